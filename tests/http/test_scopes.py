"""The check of a tool's scopes, by HTTP status and by the tool call itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote

import httpx2
import orjson
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from foundation_rt import Header, Server, ServerOptions
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.http_sections import HttpSection, OauthSection
from foundation_rt.base.config.settings import ServerConfig, ServerSection
from foundation_rt.protocol.jsonrpc import parse
from foundation_rt.protocol.principal import ALL_SCOPES, Principal
from tests.lab.login.issuer import AUDIENCE, Issuer, running_issuer, token
from tests.lab.servers.asgi import META, REVISION, visit
from tests.lab.servers.core import INITIALIZE, INITIALIZED, make_core, replies, request

API_KEY = "k" * 32
PATIENCE = 60.0
HEADERS = {
    "host": "localhost",
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as it:
        yield it


def calling(name: str) -> dict[str, Any]:
    params = {"name": name, "arguments": {}}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


def server_of(issuer: Issuer) -> Server:
    http = HttpSection(api_keys=(API_KEY,))
    oauth = OauthSection(issuer=issuer.url, audience=AUDIENCE)
    config = ServerConfig(http=http, oauth=oauth)
    server = Server("scoped", options=ServerOptions(config=config, clock=ManualClock()))

    @server.tool
    def look() -> str:
        return "seen"

    @server.tool(scopes=("files:write",))
    def change() -> str:
        return "changed"

    return server


@pytest.mark.rule("AUTH-34", "AUTH-13")
def test_scopes_of_tool_are_checked_against_token_of_call(issuer: Issuer) -> None:
    weak = {"authorization": f"Bearer {token(issuer)}"}
    strong = {"authorization": f"Bearer {token(issuer, scope='files:write')}"}

    async def main() -> None:
        app = server_of(issuer).asgi_app()
        await app.start()
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://localhost", headers=HEADERS
        ) as client:

            async def post(body: Any, **headers: str) -> httpx2.Response:
                return await client.post("/mcp", content=orjson.dumps(body), headers=headers)

            async def call(name: str, **headers: str) -> int:
                return (await post(calling(name), **headers)).status_code

            opened = await post(orjson.loads(INITIALIZE), **weak)
            session = {"mcp-session-id": opened.headers["mcp-session-id"]}
            await post({"jsonrpc": "2.0", "method": "notifications/initialized"}, **weak, **session)
            assert await call("look", **weak, **session) == 200
            refused = await post(calling("change"), **weak, **session)
            assert refused.status_code == 403
            assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]
            assert 'scope="files:write"' in refused.headers["www-authenticate"]
            assert await call("change", **strong, **session) == 200
            assert await call("change", **weak, **session) == 403
            assert await call("look", **session, **{"x-api-key": API_KEY}) == 404
            assert await call("look", **session) == 401

            modern = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call"}
            modern["mcp-name"] = "change"
            body = calling("change")
            body["params"]["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            assert (await post(body, **modern, **weak)).status_code == 403
            assert (await post(body, **modern, **strong)).status_code == 200
            assert (await post(body, **modern, **{"x-api-key": API_KEY})).status_code == 200
        await app.stop(5)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


@pytest.mark.rule("AUTH-02", "AUTH-13", "AUTH-38")
def test_key_may_have_scopes_of_its_own() -> None:
    keys = (
        f"reader:{API_KEY}:files:read other",
        f"writer:{API_KEY[:-1]}w:files:write",
        API_KEY[1:],
    )
    config = ServerConfig(http=HttpSection(api_keys=keys))
    server = Server("scoped", options=ServerOptions(config=config, clock=ManualClock()))
    server.tool(scopes=("files:write",))(change)

    async def main() -> None:
        app = server.asgi_app()
        headers = {
            "mcp-protocol-version": REVISION,
            "mcp-method": "tools/call",
            "mcp-name": "change",
        }
        body = calling("change")
        body["params"]["_meta"] = META
        for key, status in ((API_KEY, 403), (f"{API_KEY[:-1]}w", 200), (API_KEY[1:], 200)):
            sent = {**headers, "x-api-key": key}
            answer = await visit(app, "POST", headers=sent, body=orjson.dumps(body)).finish()
            assert answer.status == status
            if status == 403:
                challenge = 'Bearer error="insufficient_scope", scope="files:write"'
                assert answer.headers["www-authenticate"] == challenge
        await app.stop(5)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def change() -> str:
    return "changed"


@pytest.mark.rule("AUTH-34")
def test_batch_gets_one_challenge_for_all_scopes(issuer: Issuer) -> None:
    server = server_of(issuer)

    @server.tool(scopes=("mail:read",))
    def mail() -> str:
        return "read"

    weak = {"authorization": f"Bearer {token(issuer, scope='mail:read')}"}

    async def main() -> None:
        app = server.asgi_app()
        await app.start()
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://localhost", headers={**HEADERS, **weak}
        ) as client:
            first = orjson.loads(INITIALIZE)
            first["params"]["protocolVersion"] = "2025-03-26"
            opened = await client.post("/mcp", content=orjson.dumps(first))
            session = {"mcp-session-id": opened.headers["mcp-session-id"]}
            batch = [{**calling(name), "id": name} for name in ("look", "mail", "change")]
            refused = await client.post("/mcp", content=orjson.dumps(batch), headers=session)
            assert refused.status_code == 403
            assert 'scope="files:write mail:read"' in refused.headers["www-authenticate"]
        await app.stop(5)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


@pytest.mark.rule("AUTH-05", "AUTH-06", "AUTH-28")
@pytest.mark.parametrize("mount", ["/tools", '/t"o, b="', "/{tenant}/a"])
def test_challenge_names_metadata_url(issuer: Issuer, mount: str) -> None:
    app = server_of(issuer).asgi_app()
    host = Starlette(routes=[Mount(mount, app)], lifespan=app.lifespan)
    path = mount.replace("{tenant}", quote('x" y'))

    async def main() -> None:
        transport = httpx2.ASGITransport(host)
        async with (
            app.lifespan(),
            httpx2.AsyncClient(
                transport=transport, base_url="http://localhost", headers=HEADERS
            ) as client,
        ):
            for headers in ({}, {"authorization": "Bearer a.b.c"}, {"x-api-key": "wrong"}):
                refused = await client.post(f"{path}/mcp", content=b"{}", headers=headers)
                assert refused.status_code == 401
                challenge = refused.headers["www-authenticate"]
                [url] = re.findall(r'resource_metadata="https://mcp.example.com([^"]*)"', challenge)
                found = await client.get(url)
                assert found.json()["resource"] == AUDIENCE
            weak = {"authorization": f"Bearer {token(issuer)}"}
            head = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call"}
            body = orjson.dumps(calling("change"))
            refused = await client.post(
                f"{path}/mcp", content=body, headers={**head, "mcp-name": "change", **weak}
            )
            assert refused.status_code == 403
            assert f'"https://mcp.example.com{url}"' in refused.headers["www-authenticate"]

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


@pytest.mark.rule("AUTH-13")
@pytest.mark.parametrize(
    ("principal", "allowed"),
    [
        (None, True),
        (Principal("key:alice", ALL_SCOPES), True),
        (Principal("alice", frozenset(("a", "b", "c"))), True),
        (Principal("alice", frozenset(("a",))), False),
        (Principal("alice", frozenset(("*",))), False),
    ],
)
def test_protocol_checks_scopes_that_http_did_not(
    principal: Principal | None, allowed: bool
) -> None:
    core = make_core()
    core.add("scoped", scopes=("a", "b"))
    core.handshake().session.principal = principal
    if allowed:
        core.begin("scoped")
        return
    [reply] = replies(core.call("scoped"))
    error = orjson.loads(reply["result"]["content"][0]["text"])
    assert error["code"] == "UNAUTHORIZED"
    lacking = {"reason": "insufficient_scope", "scopes": ["a", "b"]}
    assert error["details"] == lacking


def scoped_server(issuer: Issuer) -> Server:
    """Return a server whose every other tool, resource, template and prompt needs a scope."""
    http = HttpSection(api_keys=(API_KEY,))
    oauth = OauthSection(issuer=issuer.url, audience=AUDIENCE)
    settings = ServerSection(page_size=2, cache_scope="public")
    config = ServerConfig(http=http, oauth=oauth, server=settings)
    server = Server("scoped", options=ServerOptions(config=config, clock=ManualClock()))
    for number in range(6):
        scopes = ("secrets",) if number % 2 else ()
        server.tool(lambda: "", name=f"t{number}", scopes=scopes)  # type: ignore[call-overload]
        server.resource(f"note://{number}", name=f"r{number}", scopes=scopes)(lambda: "text")
        server.prompt(name=f"p{number}", scopes=scopes)(lambda: "text")

        def read(id: str) -> str:
            return id

        server.resource(f"m{number}://{{id}}", name=f"m{number}", scopes=scopes)(read)
    server.completion("m1://{id}", "id")(lambda begun: [])
    return server


LISTS = {
    "tools/list": ("tools", "t"),
    "prompts/list": ("prompts", "p"),
    "resources/list": ("resources", "r"),
    "resources/templates/list": ("resourceTemplates", "m"),
}
NEEDING_SCOPES = [
    ("prompts/get", {"name": "p1"}, "p1"),
    ("resources/read", {"uri": "note://1"}, "note://1"),
    ("resources/read", {"uri": "m1://x"}, "m1://x"),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": "m1://{id}"},
            "argument": {"name": "id", "value": ""},
        },
        None,
    ),
]


class Asker:
    """A client of the stateless mode."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client

    async def __call__(
        self, method: str, params: dict[str, Any], name: str | None, headers: dict[str, str]
    ) -> httpx2.Response:
        head = {"mcp-protocol-version": REVISION, "mcp-method": method, **headers}
        if name is not None:
            head["mcp-name"] = name
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        return await self.client.post("/mcp", content=orjson.dumps(message), headers=head)

    async def names(self, method: str, *holders: dict[str, str]) -> list[str]:
        """Return the items of a list whose pages are requested by `holders` in turn."""
        found: list[str] = []
        params: dict[str, Any] = {}
        for turn in range(100):
            answer = await self(method, params, None, holders[turn % len(holders)])
            result = answer.json()["result"]
            assert result["cacheScope"] == "private"
            names = [each["name"] for each in result[LISTS[method][0]]]
            found += [name for name in names if name != "health"]
            if "nextCursor" not in result:
                return found
            params = {"cursor": result["nextCursor"]}
        raise AssertionError("the list has no end")


def with_scoped_server(issuer: Issuer, scenario: Any) -> None:
    async def main() -> None:
        app = scoped_server(issuer).asgi_app()
        await app.start()
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app), base_url="http://localhost", headers=HEADERS
        ) as client:
            await scenario(Asker(client))
        await app.stop(PATIENCE)

    asyncio.run(main())


@pytest.mark.rule("VIS-02")
async def test_hidden_tool_is_answered_over_http_as_an_unknown_one() -> None:
    config = ServerConfig(http=HttpSection(api_keys=(API_KEY,)))
    server = Server("hiding", options=ServerOptions(config=config))

    @server.tool(visible=lambda principal: False)
    def hidden(region: Annotated[str, Header("Region")]) -> str:
        return region

    app = server.asgi_app()
    await app.start()
    answers = []
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app),
        base_url="http://localhost",
        headers={**HEADERS, "x-api-key": API_KEY, "mcp-protocol-version": REVISION},
    ) as client:
        for name in ("hidden", "absent"):
            body = calling(name)
            body["params"] |= {"_meta": META, "arguments": {"region": "eu"}}
            headers = {"mcp-method": "tools/call", "mcp-name": name}
            answer = await client.post("/mcp", json=body, headers=headers)
            found = orjson.loads(answer.json()["result"]["content"][0]["text"])
            answers.append((answer.status_code, found["code"]))
    await app.stop(PATIENCE)
    assert answers == [(200, "NOT_FOUND")] * 2


@pytest.mark.rule("VERS-05", "VERS-06", "AUTH-13", "SCHEMA-23")
async def test_headers_and_scopes_are_those_of_the_version_that_is_called() -> None:
    keys = (f"reader:{API_KEY}:a", f"writer:{API_KEY[:-1]}w:files:write")
    config = ServerConfig(http=HttpSection(api_keys=keys))
    server = Server("versions", options=ServerOptions(config=config))

    @server.tool("find", version="1", inline=True)
    def find_all(region: Annotated[str, Header("Region")]) -> str:
        return "1"

    @server.tool("find", version="2", inline=True, scopes=["files:write"])
    def find(region: str) -> str:
        return "2"

    app = server.asgi_app()

    async def call(key: str, name: str, version: str = "", **headers: str) -> Any:
        body = calling(name)
        said = {"foundation-rt/version": version} if version else {}
        body["params"] |= {"_meta": {**META, **said}, "arguments": {"region": "eu"}}
        sent = {"mcp-protocol-version": REVISION, "mcp-method": "tools/call", "mcp-name": name}
        sent |= {"x-api-key": key} | headers
        answer = await visit(app, "POST", headers=sent, body=orjson.dumps(body)).finish()
        if answer.status != 200:
            return answer.status
        return orjson.loads(answer.body)["result"]["content"][0]["text"]

    reader, writer, region = API_KEY, f"{API_KEY[:-1]}w", {"mcp-param-region": "eu"}
    assert await call(reader, "find", **region) == "1"
    assert await call(reader, "find") == 400
    for name, version in (("find@2", ""), ("find", "2")):
        assert await call(reader, name, version) == 403
        assert await call(writer, name, version) == "2"
    for name, version in (("find@1", ""), ("find", "1")):
        assert await call(writer, name, version) == 400
        assert await call(writer, name, version, **region) == "1"
    assert await call(writer, "find") == "2"
    assert "NOT_FOUND" in await call(writer, "find", "3")
    await app.stop(PATIENCE)


@pytest.mark.rule("AUTH-26")
@pytest.mark.parametrize("method", LISTS)
def test_every_page_of_list_shows_only_permitted_items(issuer: Issuer, method: str) -> None:
    weak = {"authorization": f"Bearer {token(issuer)}"}
    strong = {"authorization": f"Bearer {token(issuer, scope='secrets')}"}
    letter = LISTS[method][1]

    async def scenario(ask: Asker) -> None:
        everything = [f"{letter}{number}" for number in range(6)]
        assert await ask.names(method, strong) == everything
        assert await ask.names(method, {"x-api-key": API_KEY}) == everything
        assert await ask.names(method, weak) == everything[::2]
        # A cursor is good for whoever comes with it, and shows no more than the token may use.
        mixed = await ask.names(method, strong, weak)
        assert f"{letter}3" not in mixed

    with_scoped_server(issuer, scenario)


@pytest.mark.rule("AUTH-34", "AUTH-13")
@pytest.mark.parametrize(("method", "params", "name"), NEEDING_SCOPES)
def test_scopes_of_prompts_resources_and_completions_are_checked(
    issuer: Issuer, method: str, params: dict[str, Any], name: str | None
) -> None:
    weak = {"authorization": f"Bearer {token(issuer)}"}
    strong = {"authorization": f"Bearer {token(issuer, scope='secrets')}"}

    async def scenario(ask: Asker) -> None:
        refused = await ask(method, params, name, weak)
        assert refused.status_code == 403
        assert 'scope="secrets"' in refused.headers["www-authenticate"]
        answer = await ask(method, params, name, strong)
        assert answer.status_code == 200, answer.text
        assert answer.json()["result"].get("cacheScope", "private") == "private"
        assert (await ask(method, params, name, {"x-api-key": API_KEY})).status_code == 200

    with_scoped_server(issuer, scenario)


@pytest.mark.rule("AUTH-13", "AUTH-26")
@pytest.mark.parametrize(
    ("method", "params"),
    [*((method, params) for method, params, _ in NEEDING_SCOPES), ("resources/subscribe", None)],
)
def test_protocol_refuses_what_http_status_cannot(
    issuer: Issuer, method: str, params: dict[str, Any] | None
) -> None:
    """A host that embeds the dispatcher has no HTTP in front of it."""
    server = scoped_server(issuer)
    runtime = server.runtime
    session = runtime.open_session("http")
    session.principal = Principal("bob", frozenset(("other",)))
    for line in (INITIALIZE, INITIALIZED):
        runtime.dispatcher.dispatch(session, parse(line))
    given = params or {"uri": "note://1"}
    reply, *_ = runtime.dispatcher.dispatch(session, parse(request(method, given)))
    error = orjson.loads(reply.line)["error"]
    if method == "resources/subscribe":
        assert error["data"]["reason"] == "resource_not_found"
    else:
        assert (error["code"], error["data"]["code"]) == (-32603, "UNAUTHORIZED")
        assert error["data"]["details"] == {"reason": "insufficient_scope", "scopes": ["secrets"]}
