"""Calls of an API: credentials, results, errors, redirects, ends."""

from __future__ import annotations

import asyncio
import gzip
import logging
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import httpx2
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import AbortSignal, Server, ToolContext, ToolError
from foundation_rt.features.openapi.api import Api, read_api
from foundation_rt.features.openapi.documents import OpenApiError
from foundation_rt.features.openapi.operations import ApiOperation
from foundation_rt.features.openapi.requests import ApiRequest
from foundation_rt.features.openapi.responses import ApiResponse, tool_error, tool_result
from foundation_rt.features.openapi.upstream import Upstream
from foundation_rt.testing import TestClient
from tests.lab.peers.echo_api import EchoApi, echo_api
from tests.lab.servers.http_server import free_port
from tests.lab.waiting import until

QUIET = {"logging": {"level": "error"}}


@pytest.fixture(scope="module")
def api() -> Iterator[EchoApi]:
    with echo_api() as served:
        yield served


def document(operation: dict[str, Any], path: str = "/x", **more: Any) -> dict[str, Any]:
    given = {"operationId": "x", **operation}
    info = {"title": "x", "version": "1"}
    return {"openapi": "3.1.0", "info": info, "paths": {path: {"get": given}}, **more}


def secured(**schemes: Any) -> dict[str, Any]:
    return {
        "components": {"securitySchemes": schemes},
        "security": [{name: []} for name in schemes],
    }


async def call(server: Server, **arguments: Any) -> Any:
    async with TestClient(server) as client:
        return await client.call("x", **arguments)


async def result(server: Server, **arguments: Any) -> dict[str, Any]:
    async with TestClient(server) as client:
        return await client.request("tools/call", {"name": "x", "arguments": arguments})


# -- credentials ---------------------------------------------------------------------------------

SCHEMES: list[tuple[dict[str, Any], Any, str]] = [
    ({"type": "http", "scheme": "bearer"}, "s3", "Bearer s3"),
    ({"type": "oauth2", "flows": {}}, "s3", "Bearer s3"),
    ({"type": "openIdConnect"}, "s3", "Bearer s3"),
    (
        {"type": "http", "scheme": "Basic"},
        ("me", "s3"),
        f"Basic {b64encode(b'me:s3').decode()}",
    ),
    ({"type": "http", "scheme": "basic"}, "me:s3", f"Basic {b64encode(b'me:s3').decode()}"),
]


@pytest.mark.rule("OAPI-49")
@pytest.mark.parametrize(("scheme", "secret", "expected"), SCHEMES)
async def test_secret_is_sent_as_the_scheme_says(
    api: EchoApi, scheme: dict[str, Any], secret: Any, expected: str
) -> None:
    given = document({}, **secured(myAuth=scheme))
    server = Server.from_openapi(given, base_url=api.url, config=QUIET, auth={"myAuth": secret})
    assert "s3" not in repr(server.list())
    assert (await call(server))["headers"]["authorization"] == expected


@pytest.mark.rule("OAPI-49")
async def test_document_takes_no_variable_of_the_environment(
    api: EchoApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("github", "GITHUB_TOKEN", "openai_api_key", "AWS_SECRET_ACCESS_KEY")
    for name in (*names, "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY_TOKEN"):
        monkeypatch.setenv(name, "s3cret")
    for name in names:
        given = document({}, **secured(**{name: {"type": "apiKey", "in": "header", "name": "k"}}))
        server = Server.from_openapi(given, base_url=api.url, config=QUIET)
        assert "s3cret" not in str(await call(server))


@pytest.mark.rule("OAPI-49")
def test_place_that_http_needs_takes_no_secret() -> None:
    with pytest.raises(OpenApiError, match="the security scheme 'a' is no object"):
        read_api(document({}, **secured(a=5)), {"base_url": "http://a"})
    for name in ("Host", "Content-Length", "X\r\nY: z", ""):
        schemes = {"a": {"type": "apiKey", "in": "header", "name": name}, "b": {"type": "oauth2"}}
        schemes |= {"c": {"type": "mutualTLS"}, "d": {"type": "apiKey", "in": "body", "name": "k"}}
        given = document({}, **secured(**schemes))
        assert [*read_api(given, {"base_url": "http://a"}).credentials.schemes] == ["b"]


@pytest.mark.rule("OAPI-49", "OAPI-28")
async def test_keys_are_sent_where_the_scheme_says_and_not_logged(
    api: EchoApi, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    arrived = {}
    for place in ("header", "query", "cookie"):
        scheme = {"type": "apiKey", "in": place, "name": "k"}
        given = document({}, **secured(apiKey=scheme))
        server = Server.from_openapi(given, base_url=api.url, config=QUIET, auth={"apiKey": "s3/&"})
        arrived[place] = await call(server)
    assert arrived["header"]["headers"]["k"] == "s3/&"
    assert arrived["query"]["query"] == "k=s3%2F%26"
    assert arrived["cookie"]["headers"]["cookie"] == "k=s3/&"
    assert "httpx2" in caplog.text or not caplog.records
    assert "s3" not in caplog.text


@pytest.mark.rule("OAPI-50", "OAPI-51")
@pytest.mark.parametrize(
    ("servers", "document_url", "is_named"),
    [
        (["/v1"], "https://a.example/openapi.json", True),
        (["https://A.example:443/v1"], "https://a.example/openapi.json", True),
        (["https://a.example"], None, False),
        (["https://b.example"], "https://a.example/openapi.json", False),
        (["http://a.example"], "https://a.example/openapi.json", False),
        (["https://a.example:8443"], "https://a.example/openapi.json", False),
        (["//b.example/v1"], "https://a.example/openapi.json", False),
        (["https://a.example.b.example"], "https://a.example/openapi.json", False),
        (["https://{host}/v1"], "https://a.example/openapi.json", False),
    ],
)
def test_secrets_go_where_the_user_says(
    servers: list[str], document_url: str | None, is_named: bool
) -> None:
    variables = {"host": {"default": "b.example"}}
    listed = [{"url": each, "variables": variables} for each in servers]
    key = secured(key={"type": "apiKey", "in": "header", "name": "k"})
    of_document = document({}, servers=listed, **key)
    of_operation = document({"servers": listed}, servers=[{"url": "/"}], **key)
    ways: list[Any] = [{"auth": {"key": "s3"}}, {"headers": {"k": "s3"}}]
    ways += [{"auth": lambda scheme, ctx: "s3"}, {"client": httpx2.AsyncClient()}]
    for each in (of_document, of_operation):
        for way in ways:
            options = {**way, "document_url": document_url}
            if is_named:
                assert read_api(each, options).tools
                continue
            with pytest.raises(
                OpenApiError, match=r"go only where you say.*--exclude 'GET"
            ) as raised:
                read_api(each, options)
            assert "--base-url," in str(raised.value)
            named = read_api(each, {**options, "base_url": "https://c.example"})
            assert named.origins() == ["https://c.example:443"]
        assert read_api(each, {"document_url": document_url}).tools
    free = document({"servers": listed, "security": []}, **key)
    assert read_api(free, {"auth": {"key": "s3"}, "document_url": document_url}).tools


@pytest.mark.rule("OAPI-54")
def test_operation_at_another_origin_than_its_document_is_left_out() -> None:
    key = secured(key={"type": "apiKey", "in": "header", "name": "k"})
    listed = document({}, servers=[{"url": "/v1"}], **key)
    listed["paths"]["/evil"] = {"get": {"servers": [{"url": "https://evil.example/take"}]}}
    found = read_api(listed, {"auth": {"key": "s3"}, "document_url": "https://a.example/api.json"})
    assert found.origins() == ["https://a.example:443"]
    [left_out] = found.skipped
    assert left_out.label == "GET /evil"
    assert left_out.reason.endswith("leave the operation out, with --exclude 'GET /evil'")


@pytest.mark.rule("OAPI-26")
async def test_application_gives_the_secret_of_each_call(api: EchoApi) -> None:
    asked = []

    async def auth(scheme: str, context: ToolContext) -> str | None:
        asked.append((scheme, bool(context.run_id)))
        return f"of {scheme}"

    schemes = {name: {"type": "apiKey", "in": "header", "name": name} for name in "ab"}
    given = document({"security": [{"a": [], "b": []}]}, **secured(**schemes))
    server = Server.from_openapi(given, base_url=api.url, config=QUIET, auth=auth)
    arrived = await call(server)
    assert (arrived["headers"]["a"], arrived["headers"]["b"]) == ("of a", "of b")
    assert asked == [("a", True), ("b", True)]
    server = Server.from_openapi(given, base_url=api.url, config=QUIET, auth={"a": "x", "b": "y"})
    assert (await call(server))["headers"]["a"] == "x"

    async def of_call(context: ToolContext) -> str:
        return f"of {bool(context.run_id)}"

    server = Server.from_openapi(
        given, base_url=api.url, config=QUIET, auth={"b": of_call, "a": "of a"}
    )
    assert (await call(server))["headers"]["b"] == "of True"
    server = Server.from_openapi(
        given, base_url=api.url, config=QUIET, auth={"b": "x", "a": lambda context: None}
    )
    assert not {"a", "b"} & (await call(server))["headers"].keys()
    with pytest.raises(OpenApiError, match="no such security scheme: it has a, b"):
        Server.from_openapi(given, base_url=api.url, auth={"c": "x"})
    server = Server.from_openapi(
        given, base_url=api.url, config=QUIET, auth={"a": "x\r\ny: z", "b": ""}
    )
    with pytest.raises(ToolError, match="line ends"):
        await call(server)


@pytest.mark.rule("OAPI-27", "OAPI-28", "OAPI-36")
@pytest.mark.parametrize("status", [401, 403])
async def test_error_names_the_secrets_to_give_and_none(api: EchoApi, status: int) -> None:
    api.answers["/x"] = (
        status,
        {"content-type": "application/problem+json"},
        b'{"detail": "Who? s3cret"}',
    )
    schemes = {
        "first": {"type": "http", "scheme": "bearer"},
        "a second": {"type": "http", "scheme": "basic"},
    }
    given = document({}, **secured(**schemes))
    words = r"--secret first=VARIABLE, or --secret 'a second=VARIABLE'"
    try:
        with pytest.raises(ToolError, match=words) as missing:
            await call(Server.from_openapi(given, base_url=api.url, config=QUIET))
        server = Server.from_openapi(
            given, base_url=api.url, config=QUIET, auth={"first": "s3cret"}
        )
        with pytest.raises(ToolError) as refused:
            await call(server)
    finally:
        del api.answers["/x"]
    assert missing.value.code == refused.value.code == "UNAUTHORIZED"
    assert "s3cret" not in str(refused.value.details) + refused.value.message
    assert "--secret" not in refused.value.message


@pytest.mark.rule("OAPI-28")
async def test_secret_is_cut_out_of_long_errors_and_links(api: EchoApi) -> None:
    given = document({}, **secured(key={"type": "apiKey", "in": "query", "name": "api_key"}))
    auth = {"key": "s3cret-s3cret"}
    server = Server.from_openapi(given, base_url=api.url, config=QUIET, auth=auth)
    try:
        api.answers["/x"] = (500, {"content-type": "text/plain"}, b"x" * 4_090 + b"s3cret-s3cret")
        with pytest.raises(ToolError) as refused:
            await call(server)
        assert "s3" not in str(refused.value.details) and "s3" not in refused.value.message
        link = "<https://a/?api_key=s3cret-s3cret&page=2>; rel=next"
        api.answers["/x"] = (200, {"content-type": "application/json", "link": link}, b"{}")
        kept = (await result(server))["_meta"]["foundation-rt/http"]
    finally:
        del api.answers["/x"]
    assert kept["link"] == "<https://a/?api_key=[REDACTED]&page=2>; rel=next"


@pytest.mark.rule("OAPI-22")
async def test_argument_never_becomes_another_parameter(api: EchoApi) -> None:
    parameters = [
        {"name": "filter", "in": "query", "schema": {}},
        {"name": "admin", "in": "query", "schema": {"type": "boolean"}},
        {"name": "X-Key", "in": "header", "schema": {"type": "string"}},
    ]
    schemes = {
        "key": {"type": "apiKey", "in": "query", "name": "api_key"},
        "other": {"type": "apiKey", "in": "header", "name": "x-key"},
    }
    given = document({"parameters": parameters}, **secured(**schemes))
    given["security"] = [{"key": [], "other": []}]
    auth = {"key": "k", "other": "o"}
    server = Server.from_openapi(given, base_url=api.url, config=QUIET, auth=auth)
    for name in ("admin", "api_key"):
        with pytest.raises(ToolError, match=f"no member '{name}'"):
            await call(server, filter={name: "x"})
    arrived = await call(server, **{"filter": {"age": 3}, "X-Key": "mine"})
    assert arrived["query"] == "age=3&api_key=k"
    assert arrived["headers"]["x-key"] == "o"


@pytest.mark.rule("OAPI-28")
async def test_no_cookie_of_the_api_is_kept(api: EchoApi) -> None:
    api.answers["/set"] = (200, {"set-cookie": "session=of-somebody; Path=/"}, b"")
    given = document({})
    given["paths"]["/set"] = {"get": {"operationId": "set"}}
    async with TestClient(Server.from_openapi(given, base_url=api.url, config=QUIET)) as client:
        await client.call("set")
        assert "cookie" not in (await client.call("x"))["headers"]


# -- results -------------------------------------------------------------------------------------


@pytest.mark.rule("OAPI-19")
async def test_arguments_that_are_not_given_are_not_sent(api: EchoApi) -> None:
    parameters = [
        {"name": "limit", "in": "query", "schema": {"type": "integer", "default": 10}},
        {"name": "x-note", "in": "header", "schema": {"type": ["string", "null"]}},
    ]
    server = Server.from_openapi(
        document({"parameters": parameters}), base_url=api.url, config=QUIET, headers={"X-App": "a"}
    )
    arrived = await call(server, **{"x-note": None})
    assert arrived["query"] == "" and "x-note" not in arrived["headers"]
    assert arrived["headers"]["x-app"] == "a"


@pytest.mark.rule("OAPI-34")
@pytest.mark.parametrize(
    ("media_type", "body", "kind"),
    [
        ("application/json; charset=utf-8", b'{"a": 1}', {"type": "text", "text": '{"a":1}'}),
        ("application/json", b"null", {"type": "text", "text": "null"}),
        ("application/json", b"{broken", {"type": "text", "text": "{broken"}),
        ("text/html; charset=latin-1", b"\xe9", {"type": "text", "text": "é"}),
        ("text/plain; charset=none", b"a\xff", {"type": "text", "text": "a�"}),
        ("text/plain; charset=idna", b"a\xff", {"type": "text", "text": "a�"}),
        ("image/png", b"png", {"type": "image", "data": "cG5n", "mimeType": "image/png"}),
        ("audio/wav", b"wav", {"type": "audio", "data": "d2F2", "mimeType": "audio/wav"}),
        (
            "application/pdf",
            b"pdf",
            {
                "type": "resource",
                "resource": {"uri": "/x", "mimeType": "application/pdf", "blob": "cGRm"},
            },
        ),
        ("text/plain", b"", {"type": "text", "text": "Done: HTTP 201, without content."}),
    ],
)
async def test_response_becomes_content(
    api: EchoApi, media_type: str, body: bytes, kind: dict[str, Any]
) -> None:
    headers = {"content-type": media_type, "link": "<https://a>; rel=next"}
    api.answers["/x"] = (201, headers, body)
    try:
        found = await result(Server.from_openapi(document({}), base_url=api.url, config=QUIET))
    finally:
        del api.answers["/x"]
    if kind["type"] == "resource":
        kind["resource"]["uri"] = f"{api.url}/x"
    assert found["content"] == [kind]
    assert found.get("structuredContent") == ({"a": 1} if b'{"a"' in body else None)
    assert found["_meta"] == {"foundation-rt/http": {"status": 201, "link": headers["link"]}}


@pytest.mark.rule("OAPI-35")
async def test_output_schemas_are_strict_only_if_asked_for(api: EchoApi) -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    responses = {"200": {"content": {"application/json": {"schema": schema}}}}
    given = document({"responses": responses})
    loose = Server.from_openapi(given, base_url=api.url, config=QUIET)
    strict = Server.from_openapi(given, base_url=api.url, config=QUIET, strict_outputs=True)
    for body, fits in ((b"[1, 2]", True), (b'["a"]', False)):
        api.answers["/x"] = (200, {"content-type": "application/json"}, body)
        assert not (await result(loose))["isError"]
        found = await result(strict)
        assert found["isError"] is not fits
        if fits:
            assert found["structuredContent"] == {"result": [1, 2]}
    del api.answers["/x"]
    listed = {each.name: each for each in loose.list()}
    assert listed["x"].output_schema is None


OPERATION = ApiOperation("x", "GET", "/x", None, None, (), False, (), None, (), (), {})


@pytest.mark.rule("OAPI-36")
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "INVALID_ARGUMENT"),
        (401, "UNAUTHORIZED"),
        (403, "UNAUTHORIZED"),
        (404, "NOT_FOUND"),
        (408, "TIMEOUT"),
        (410, "NOT_FOUND"),
        (422, "INVALID_ARGUMENT"),
        (429, "RESOURCE_EXHAUSTED"),
        (500, "INTERNAL"),
        (503, "RESOURCE_EXHAUSTED"),
        (504, "TIMEOUT"),
        (304, "INTERNAL"),
    ],
)
def test_status_decides_the_code(status: int, code: str) -> None:
    headers = {"content-type": "application/json", "retry-after": "7"}
    response = ApiResponse(status, headers, b'{"error": {"message": "No."}}')
    error = tool_error(OPERATION, response, (), "")
    assert error.code == code and error.message == f"GET /x answered {status}: No."
    assert error.details == {
        "reason": "http_status",
        "status": status,
        "body": {"error": {"message": "No."}},
        "retryAfterMs": 7000,
    }


@pytest.mark.rule("OAPI-36")
def test_error_of_an_api_that_says_nothing_has_its_status_alone() -> None:
    for body in (b'{"code": 5, "error": {"message": " "}}', b"[]", b""):
        response = ApiResponse(500, {"content-type": "application/json"}, body)
        assert tool_error(OPERATION, response, (), "").message == "GET /x answered 500."


@pytest.mark.rule("OAPI-36")
@given(st.integers(100, 999), st.text(max_size=30), st.text(max_size=30), st.binary(max_size=60))
def test_any_response_has_an_answer(status: int, media_type: str, after: str, body: bytes) -> None:
    headers = {"content-type": media_type, "retry-after": after}
    for kind in (media_type, "application/json", "text/plain; charset=utf-16"):
        response = ApiResponse(status, {**headers, "content-type": kind}, body)
        error = tool_error(OPERATION, response, ("a",), "A_TOKEN")
        assert len(orjson.dumps(error.details)) < 10_000
        assert tool_result(response, "http://x").is_error is False


@pytest.mark.rule("OAPI-36")
def test_dates_of_retry_after_are_read() -> None:
    for text, expected in (("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("9" * 30, 86_400_000)):
        response = ApiResponse(429, {"retry-after": text}, b"x" * 9_000)
        details = tool_error(OPERATION, response, (), "").details
        assert details is not None and details["retryAfterMs"] == expected
        assert len(details["body"]) == 4_096


# -- the network ---------------------------------------------------------------------------------


@pytest.mark.rule("OAPI-32")
async def test_redirects_stay_at_the_origin(api: EchoApi) -> None:
    server = Server.from_openapi(document({}), base_url=api.url, config=QUIET)
    try:
        api.answers["/x"] = (302, {"location": "/y?a=1"}, b"")
        arrived = await call(server)
        assert (arrived["path"], arrived["query"]) == ("/y", "a=1")
        for target in (
            "http://169.254.169.254/",
            "//evil.example/",
            "file:///etc",
            "https:/x",
            "http://[x/",
            "/x",
        ):
            api.answers["/x"] = (307, {"location": target}, b"")
            with pytest.raises(ToolError, match="redirect") as refused:
                await call(server)
            assert refused.value.details is not None
            assert refused.value.details["reason"] == "redirected"
        given = document({})
        given["paths"]["/x"] = {"post": {"operationId": "x"}}
        api.answers["/x"] = (307, {"location": "/y"}, b"")
        with pytest.raises(ToolError, match="not followed"):
            await call(Server.from_openapi(given, base_url=api.url, config=QUIET))
    finally:
        del api.answers["/x"]


@pytest.mark.rule("OAPI-33")
async def test_response_beyond_the_limit_is_read_no_further(api: EchoApi) -> None:
    api.answers["/x"] = (200, {"content-type": "text/plain"}, b"x" * 5_000_000)
    config = {**QUIET, "tools": {"max_response_bytes": 100_000}}
    try:
        with pytest.raises(ToolError, match="larger than 100000 bytes"):
            await call(Server.from_openapi(document({}), base_url=api.url, config=config))
    finally:
        del api.answers["/x"]


@pytest.mark.rule("OAPI-31", "OAPI-33")
@pytest.mark.parametrize(
    ("content", "encoding", "outcome"),
    [
        (gzip.compress(b"plain"), "gzip", "plain"),
        (gzip.compress(bytes(5_000_000)), "gzip", "larger than 100000 bytes"),
        (gzip.compress(b"plain")[:-9], "gzip", "cannot be decoded"),
        (b"plain", "gzip", "cannot be decoded"),
        (b"plain", "br", "cannot be decoded"),
    ],
    ids=["small", "bomb", "cut short", "no gzip", "other"],
)
async def test_packed_response_is_unpacked_within_the_limit(
    api: EchoApi, content: bytes, encoding: str, outcome: str
) -> None:
    headers = {"content-type": "text/plain", "content-encoding": encoding}
    api.answers["/x"] = (200, headers, content)
    config = {**QUIET, "tools": {"max_response_bytes": 100_000}}
    server = Server.from_openapi(document({}), base_url=api.url, config=config)
    try:
        if outcome == "plain":
            assert await call(server) == "plain"
        else:
            with pytest.raises(ToolError, match=outcome):
                await call(server)
    finally:
        del api.answers["/x"]


@pytest.mark.rule("OAPI-33")
async def test_api_that_is_away_is_an_error_in_words() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    server = Server.from_openapi(document({}), base_url=url, config=QUIET)
    with pytest.raises(ToolError, match=f"{url}.*refuses connections") as error:
        await call(server)
    assert error.value.details == {"reason": "upstream_unreachable", "cause": "ConnectError"}


@pytest.mark.rule("OAPI-33")
async def test_deadline_ends_the_request(api: EchoApi) -> None:
    config = {**QUIET, "tools": {"default_timeout_ms": 2_000}}
    server = Server.from_openapi(document({}, "/held"), base_url=api.url, config=config)
    async with TestClient(server) as client:
        with pytest.raises(ToolError) as error:
            await client.call("x")
        assert error.value.code == "TIMEOUT"
        assert await asyncio.to_thread(api.held.wait, 10)
        assert await asyncio.to_thread(api.left.wait, 10)


@pytest.mark.rule("OAPI-31")
async def test_client_of_the_application_is_used_and_left_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    seen = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append((str(request.url), request.headers["x-own"]))
        match len(seen):
            case 1:
                return httpx2.Response(200, json={"ok": True})
            case 2:
                raise httpx2.ConnectError("away")
            case 3:
                return httpx2.Response(200, content=b"x" * 100_001)
        raise LookupError("a bug")

    transport = httpx2.MockTransport(answer)
    headers = {"X-Own": "mine"}
    async with httpx2.AsyncClient(
        transport=transport, base_url="https://api.example.com/v2", headers=headers
    ) as client:
        given = document({}, **secured(key={"type": "apiKey", "in": "query", "name": "k"}))
        config = {**QUIET, "tools": {"max_response_bytes": 100_000}}
        server = Server.from_openapi(given, client=client, config=config, auth={"key": "s3"})
        assert await call(server) == {"ok": True}
        for words in ("could not be used", "larger than 100000 bytes", "^The tool failed"):
            with pytest.raises(ToolError, match=words):
                await call(server)
        assert not client.is_closed
    assert seen == [("https://api.example.com/v2/x?k=s3", "mine")] * 4
    assert "https://api.example.com/v2/x" in caplog.text and "s3" not in caplog.text


@pytest.mark.rule("OAPI-33")
async def test_task_that_is_cancelled_takes_its_request_with_it() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    class Held:
        async def send(self, request: ApiRequest, max_bytes: int) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async def close(self) -> None:
            """Nothing is open."""

    request = ApiRequest("GET", "http://localhost/", {})
    sending = asyncio.ensure_future(Upstream(sender=Held()).send(request, AbortSignal(), 9))
    await began.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await asyncio.wait_for(ended.wait(), 10)


# -- resources, and what is left out -------------------------------------------------------------


@pytest.mark.rule("OAPI-08")
async def test_operations_become_resources_and_templates(api: EchoApi) -> None:
    given = document({})
    needs = [{"name": "q", "in": "query", "required": True}]
    given["paths"] |= {
        "/pets/{pet-id}": {"get": {"operationId": "pet"}},
        "/search": {"get": {"operationId": "search", "parameters": needs}},
        "/gone": {"get": {"operationId": "gone"}},
    }
    routes: Any = {"GET": "resource"}
    api.answers |= {
        "/pets/a b": (200, {"content-type": "text/plain"}, b"Rex"),
        "/gone": (404, {}, b""),
    }
    server = Server.from_openapi(given, base_url=api.url, config=QUIET, routes=routes)
    async with TestClient(server) as client:
        listed = {each["uri"]: each["name"] for each in await client.list_resources()}
        assert listed == {"api://x": "x", "api://gone": "gone"}
        templates = await client.list_resource_templates()
        assert [each["uriTemplate"] for each in templates] == ["api://pets/{pet_id}"]
        assert [each["name"] for each in await client.list_tools()] == ["health", "search"]
        assert await client.read_resource("api://pets/a%20b") == "Rex"
        assert '"path":"/x"' in str(await client.read_resource("api://x"))
        with pytest.raises(Exception, match="404"):
            await client.read_resource("api://gone")
        with pytest.raises(Exception, match=r"`\.`|not found|no resource"):
            await client.read_resource("api://pets/%2E%2E%2Fx")
    del api.answers["/pets/a b"], api.answers["/gone"]


@pytest.mark.rule("OAPI-06", "OAPI-09")
async def test_operation_that_cannot_be_called_is_left_out() -> None:
    given = document({"parameters": [{"$ref": "#/nowhere"}]})
    given["paths"]["/ok"] = {"get": {"operationId": "ok"}}
    given["paths"]["/health"] = {"get": {"operationId": "health"}}
    server = Server.from_openapi(given, base_url="http://localhost")
    async with TestClient(server) as client:
        assert [each["name"] for each in await client.list_tools()] == [
            "health",
            "health_74fac65f",
            "ok",
        ]


@pytest.mark.rule("OAPI-09", "OAPI-54")
@pytest.mark.parametrize(
    ("options", "names", "logged"),
    [
        ({}, ["a", "b", "health", "m"], ["calling an API"]),
        ({"include": ["none"]}, ["health"], []),
        ({"rename": {"b": "a"}}, ["a", "health", "m"], ["calling an API", "GET /b: "]),
        ({"routes": {"/a*": "resource"}}, ["b", "health"], ["calling an API", "GET /a?m: "]),
    ],
)
async def test_start_says_what_is_called_and_what_cannot_be(
    options: Any, names: list[str], logged: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    paths = {path: {"get": {"operationId": path[-1]}} for path in ("/a", "/b", "/a?m")}
    given = {"openapi": "3.1.0", "info": {}, "paths": paths}
    server = Server.from_openapi(given, base_url="http://localhost", **options)
    async with TestClient(server) as client:
        assert [each["name"] for each in await client.list_tools()] == names
    logs: list[str] = []

    def is_written() -> bool:
        logs.append(capfd.readouterr().err)
        return "client connected" in "".join(logs)

    await until(is_written, "the log is written")
    lines = "".join(logs).splitlines()
    found = [each for each in lines if "calling" in each or "cannot be called" in each]
    assert len(found) == len(logged)
    assert all(words in each for words, each in zip(logged, found, strict=True))


def test_api_of_many_operations_is_read_in_the_order_of_the_document() -> None:
    paths = {f"/p{number}": {"get": {"operationId": f"op{number}"}} for number in range(300)}
    given = {"openapi": "3.0.0", "info": {}, "paths": paths}
    api: Api = read_api(given, {"base_url": "http://localhost"})
    assert [tool.definition.name for tool in api.tools] == [f"op{n}" for n in range(300)]
