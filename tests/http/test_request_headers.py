"""The headers of HTTP requests that handlers get."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from foundation_rt import ConfigError, Server, ToolContext, ToolError, UsageError
from foundation_rt.base.config.http_sections import HttpSection, OauthSection
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.features.tracing import Tracing
from foundation_rt.http.asgi import HttpRefusal
from foundation_rt.http.headers import make_header_selection
from foundation_rt.kernel.session import NO_HEADERS
from foundation_rt.protocol.http_headers import RequestHeaders
from foundation_rt.testing import TestClient
from tests.lab.places.services import need_redis
from tests.lab.servers.asgi import Visit, ask, open_session, post, request

SECRET = "token-of-a-user"
KEY = "k" * 32
ISSUER = OauthSection(issuer="https://a.example", audience="https://b.example")


def make_server(**config: Any) -> tuple[Server, list[Any]]:
    """Return a server with tools that keep the headers of their calls, and these."""
    http = {"no_auth": True, **config.pop("http", {})}
    seen: list[Any] = []
    server = Server("test", config={"http": http, **config}, request_headers=["X-Tenant", "x-user"])

    @server.tool
    async def look(context: ToolContext) -> None:
        seen.append(context.headers)

    @server.tool
    def fail(context: ToolContext) -> None:
        seen.append(context.headers)
        context.logger.info("looked", {"headers": context.headers, "call": repr(context.call)})
        raise ToolError("INTERNAL", f"failed with {context.headers}")

    @server.prompt
    def review(context: ToolContext) -> str:
        seen.append(context.headers)
        return "x"

    return server, seen


def calling(app: Any, name: str, headers: dict[str, str]) -> Visit:
    return ask(app, "tools/call", {"name": name, "arguments": {}}, headers=headers)


@pytest.mark.rule("HEAD-16", "HEAD-19")
async def test_stateless_handlers_get_the_allowed_headers_of_their_own_request() -> None:
    server, seen = make_server()
    app = server.asgi_app()
    async with app.lifespan():
        sent = {"x-tenant": "a", "x-user": " b ", "x-other": "c", "authorization": "d"}
        await calling(app, "look", sent).finish()
        await calling(app, "look", {}).finish()
        prompt = {"x-user": "p", "mcp-name": "review"}
        await ask(app, "prompts/get", {"name": "review"}, headers=prompt).finish()
    assert seen == [{"x-tenant": "a", "x-user": "b"}, {}, {"x-user": "p"}]
    assert seen[0]["X-Tenant"] == "a"
    assert "X-Other" not in seen[0]


@pytest.mark.rule("HEAD-16", "HEAD-19")
async def test_session_keeps_no_header_of_the_request_before() -> None:
    server, seen = make_server()
    app = server.asgi_app()
    async with app.lifespan():
        session = await open_session(app)
        call = {"name": "look", "arguments": {}}
        mine = {**session.headers, "x-user": SECRET}
        await post(app, request("tools/call", call, 1), mine).finish()
        await post(app, request("tools/call", call, 2), session.headers).finish()
        [opened] = app._service.endpoint.sessions  # type: ignore[union-attr]
        assert opened.connection.session.headers is NO_HEADERS
    assert seen == [{"x-user": SECRET}, {}]


@pytest.mark.rule("HEAD-16")
async def test_call_that_waited_for_its_rate_limit_has_the_headers_of_its_own_request() -> None:
    limit = {"per_key": 100, "store": need_redis()}
    server, seen = make_server(rate_limit=limit)
    app = server.asgi_app()
    async with app.lifespan():
        session = await open_session(app)
        call = {"name": "look", "arguments": {}}
        posts = [
            post(app, request("tools/call", call, each), {**session.headers, "x-user": f"u{each}"})
            for each in range(10)
        ]
        await asyncio.gather(*(each.finish() for each in posts))
    assert sorted(each["x-user"] for each in seen) == [f"u{each}" for each in range(10)]


@pytest.mark.rule("HEAD-19")
async def test_values_are_in_no_log_line_audit_record_or_trace(
    capfd: pytest.CaptureFixture[str],
) -> None:
    server, seen = make_server(
        audit={"enabled": True, "sensitive_data": "full"}, logging={"level": "debug"}
    )
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    server.middleware(Tracing(provider))
    app = server.asgi_app()
    async with app.lifespan():
        answer = await calling(app, "fail", {"x-user": SECRET}).finish()
        await calling(app, "nothing", {"x-user": SECRET}).finish()
        await calling(app, "look", {"x-user": f"{SECRET}\x7f"}).finish()
    server.runtime.close_logs(1.0)
    logged = capfd.readouterr().err
    assert "looked" in logged and "TOOL" in logged
    assert SECRET not in logged
    assert [span.name for span in exporter.get_finished_spans()][:1] == ["tools/call fail"]
    assert not any(SECRET in span.to_json() for span in exporter.get_finished_spans())
    assert SECRET not in answer.body.decode()
    assert SECRET not in repr(seen)
    assert seen == [{"x-user": SECRET}]


@pytest.mark.rule("HEAD-16")
async def test_headers_are_empty_without_http() -> None:
    server, seen = make_server()
    async with TestClient(server) as client:
        await client.call("look")
    assert seen == [{}]


@pytest.mark.rule("HEAD-16", "EMBED-07")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_test_client_sends_headers_of_which_handlers_get_the_allowed(revision: str) -> None:
    server, seen = make_server()
    sent = {"X-Tenant": "a", "X-Other": "b"}
    async with TestClient(server, headers=sent, revision=revision) as client:
        await client.call("look")
        await client.get_prompt("review")
    assert seen == [{"x-tenant": "a"}] * 2


@pytest.mark.rule("HEAD-17", "HEAD-03")
@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ([(b"x-user", b"a"), (b"x-user", b"a")], -32600),
        ([(b"mcp-tenant", b"a"), (b"mcp-tenant", b"b")], -32020),
        ([(b"x-user", b"a\x00b")], -32600),
        ([(b"x-user", "ä".encode())], -32600),
    ],
)
def test_allowed_header_stands_once_and_in_visible_ascii(
    raw: list[tuple[bytes, bytes]], code: int
) -> None:
    http = HttpSection(request_headers=("X-User", "Mcp-Tenant"))
    refusal = make_header_selection(ServerConfig(http=http)).read(raw)
    assert isinstance(refusal, HttpRefusal)
    assert (refusal.status, refusal.code) == (400, code)
    assert raw[0][0].decode() in refusal.message


@pytest.mark.rule("HEAD-17")
def test_headers_that_are_not_allowed_are_not_looked_at() -> None:
    twice = [(b"x-user", b"\xff"), (b"x-user", b"a")]
    assert make_header_selection(ServerConfig()).read(twice) is NO_HEADERS
    http = HttpSection(request_headers=("x-tenant",))
    assert make_header_selection(ServerConfig(http=http)).read(twice) is NO_HEADERS


@pytest.mark.rule("HEAD-18")
@pytest.mark.parametrize(
    ("http", "oauth", "own"),
    [
        ({"no_auth": True}, None, {"mcp-session-id"}),
        ({"api_keys": (KEY,)}, None, {"mcp-session-id", "authorization", "x-api-key"}),
        ({}, ISSUER, {"mcp-session-id", "authorization"}),
        ({"api_keys": (KEY,)}, ISSUER, {"mcp-session-id", "authorization", "x-api-key"}),
    ],
)
def test_own_credentials_cannot_be_allowed(
    http: dict[str, Any], oauth: OauthSection | None, own: set[str]
) -> None:
    for name in ("Mcp-Session-Id", "Authorization", "X-API-KEY", "Cookie"):
        section = HttpSection(**http, request_headers=("x-a", name))
        config = ServerConfig(http=section, oauth=oauth or OauthSection())
        if name.lower() in own:
            with pytest.raises(UsageError, match=name.lower()):
                make_header_selection(config)
        else:
            make_header_selection(config)


@pytest.mark.rule("HEAD-18")
def test_application_that_would_hand_out_its_keys_is_not_made() -> None:
    server = Server(config={"http": {"api_keys": [KEY]}}, request_headers=["Authorization"])
    with pytest.raises(UsageError, match=r"http\.request_headers: authorization"):
        server.asgi_app()


@pytest.mark.rule("HEAD-16")
def test_configuration_overrides_the_headers_in_code(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(request_headers=["X-Tenant"])
    assert server.load_config().http.request_headers == ("X-Tenant",)
    monkeypatch.setenv("FOUNDATION_RT_HTTP__REQUEST_HEADERS", "X-User,X-Team")
    assert server.load_config().http.request_headers == ("X-User", "X-Team")
    monkeypatch.setenv("FOUNDATION_RT_HTTP__REQUEST_HEADERS", "X User")
    with pytest.raises(ConfigError, match="the name of a header"):
        server.load_config()


@pytest.mark.rule("HEAD-16", "HEAD-19")
@given(st.dictionaries(st.from_regex(r"[a-z-]{1,8}", fullmatch=True), st.text(min_size=9)))
def test_headers_are_a_mapping_that_shows_no_value(values: dict[str, str]) -> None:
    headers = RequestHeaders(values)
    assert headers == values
    assert {name: headers[name.upper()] for name in headers} == values
    assert len(headers) == len(values)
    assert repr(headers) == f"<headers {', '.join(values)}>"
