"""The ASGI application: paths, authentication, start, stop and mounting."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from foundation_rt import ConfigError, RegistrationError, Server, UsageError
from foundation_rt.errors import MissingExtraError
from foundation_rt.protocol.principal import Principal
from tests.lab.servers.asgi import PATIENCE, ask, call, open_session, visit
from tests.lab.servers.http_harness import STOP_SECONDS, harness

KEY = "0123456789abcdef-key"


def make_server(**http: Any) -> Server:
    return Server("test", config={"http": {"no_auth": True, **http}, "logging": {"level": "error"}})


class Host:
    """An ASGI server's side of the lifespan."""

    def __init__(self, app: Any) -> None:
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.outgoing: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        self.task = asyncio.create_task(app(scope, self.incoming.get, self.outgoing.put))

    async def tell(self, what: str) -> dict[str, Any]:
        self.incoming.put_nowait({"type": f"lifespan.{what}"})
        async with asyncio.timeout(PATIENCE):
            return await self.outgoing.get()


def note_life(server: Server) -> list[str]:
    life: list[str] = []

    @server.lifespan
    async def hook(server: Server) -> AsyncIterator[str]:
        life.append("entered")
        yield "state"
        life.append("left")

    return life


@pytest.mark.rule("HTTP-24")
async def test_application_follows_lifespan_of_host() -> None:
    server = make_server()
    life = note_life(server)
    app = server.asgi_app()
    host = Host(app)
    assert (await visit(app, "GET", "/readyz").finish()).json == {"status": "starting"}
    assert await host.tell("startup") == {"type": "lifespan.startup.complete"}
    assert life == ["entered"]
    assert (await visit(app, "GET", "/readyz").finish()).status == 200
    assert await host.tell("shutdown") == {"type": "lifespan.shutdown.complete"}
    assert life == ["entered", "left"]
    await host.task


@pytest.mark.rule("HTTP-70")
@pytest.mark.parametrize("path", ["/mcp", "/tools/here"])
async def test_root_says_where_the_endpoint_is(path: str) -> None:
    app = make_server(path=path).asgi_app()
    found = await visit(app, "GET", "/").finish()
    assert (found.status, found.body) == (200, f"The MCP endpoint is at {path}\n".encode())
    assert found.headers["content-type"] == "text/plain; charset=utf-8"
    assert (await visit(app, "HEAD", "/").finish()).status == 200
    assert (await visit(app, "POST", "/").finish()).status == 404
    mounted = await visit(Starlette(routes=[Mount("/a", app)]), "GET", "/a/").finish()
    assert mounted.body == f"The MCP endpoint is at /a{path}\n".encode()


@pytest.mark.rule("HTTP-24")
async def test_host_gets_lifespan_failure() -> None:
    server = make_server()

    @server.lifespan
    async def broken(server: Server) -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    host = Host(server.asgi_app())
    told = await host.tell("startup")
    assert told["type"] == "lifespan.startup.failed"
    assert "no database" in told["message"]
    await host.task


@pytest.mark.rule("HTTP-24", "HTTP-36")
async def test_mounted_application_starts_with_first_request() -> None:
    server = make_server()
    life = note_life(server)
    app = server.asgi_app()
    host = Starlette(routes=[Mount("/tools", app)])
    answers = [ask(_Under(host, "/tools"), "tools/list") for _ in range(3)]
    for answer in answers:
        assert (await answer.finish()).json["result"]["tools"]
    assert life == ["entered"]
    assert (await visit(host, "GET", "/tools/healthz").finish()).status == 200
    await app.stop(STOP_SECONDS)
    assert life == ["entered", "left"]


@pytest.mark.rule("HTTP-24")
async def test_mounted_application_follows_outer_lifespan() -> None:
    server = make_server()
    life = note_life(server)
    app = server.asgi_app()
    host = Host(Starlette(routes=[Mount("/tools", app)], lifespan=app.lifespan))
    assert await host.tell("startup") == {"type": "lifespan.startup.complete"}
    assert life == ["entered"]
    assert (await visit(app, "GET", "/readyz").finish()).status == 200
    assert await host.tell("shutdown") == {"type": "lifespan.shutdown.complete"}
    assert life == ["entered", "left"]
    await host.task


class _Under:
    """An application, asked below a path."""

    def __init__(self, app: Any, path: str) -> None:
        self.app, self.path = app, path

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        await self.app({**scope, "path": self.path + scope["path"]}, receive, send)


@pytest.mark.rule("HTTP-24", "HTTP-36")
def test_application_restarts_after_stop_on_another_loop() -> None:
    server = make_server()
    app = server.asgi_app()

    async def scenario() -> None:
        await app.start()
        await open_session(app)
        await app.stop(STOP_SECONDS)
        await app.stop(STOP_SECONDS)
        assert (await visit(app, "GET", "/readyz").finish()).json == {"status": "stopping"}

    asyncio.run(scenario())
    asyncio.run(scenario())


@pytest.mark.rule("HTTP-24")
def test_configured_path_is_served() -> None:
    async def scenario() -> None:
        app = make_server(path="/a/b").asgi_app()
        answer = await visit(app, "POST", "/a/b", body=b"{").finish()
        assert answer.status == 400
        await app.stop(STOP_SECONDS)

    asyncio.run(scenario())
    with pytest.raises(UsageError, match="begins with"):
        make_server().asgi_app("mcp")


async def test_foreign_host_and_origin_are_refused() -> None:
    async with harness() as one:
        host = await visit(one.app, "POST", headers={"host": "evil.example"}).finish()
        assert host.status == 421
        origin = await visit(one.app, "POST", headers={"origin": "http://evil.example"}).finish()
        assert origin.status == 403
        assert origin.headers["x-content-type-options"] == "nosniff"
        twice = await visit(one.app, "POST", headers={"mcp-name": "a", "Mcp-Name ": "b"}).finish()
        assert twice.status in (400, 415)


async def test_internal_error_is_logged_and_answered() -> None:
    async with harness() as one:
        endpoint = one.app._service.endpoint
        endpoint.runtime = None
        answer = await call(one.app, "echo", text="x").finish()
        assert answer.status == 500
        assert answer.json["error"]["data"]["reason"] == "internal_error"


async def test_disconnect_before_body_gets_no_response() -> None:
    async with harness() as one:
        half = visit(one.app, "POST", body=None)
        half.bring(b"{", more=True)
        half.leave()
        await half.finish()
        assert half.status is None


@pytest.mark.rule("HTTP-19")
async def test_readiness_follows_load() -> None:
    async with harness() as one:
        resources = one.server.runtime.resources
        slots = []
        while (slot := resources.try_acquire_slot()) is not None:
            slots.append(slot)
        overloaded = await visit(one.app, "GET", "/readyz").finish()
        assert (overloaded.status, overloaded.json) == (503, {"status": "overloaded"})
        assert (await visit(one.app, "GET", "/healthz").finish()).status == 200
        for slot in slots:
            slot.release()
        assert (await visit(one.app, "GET", "/readyz").finish()).status == 200


@pytest.mark.rule("HTTP-16")
async def test_running_calls_are_aborted_at_stop() -> None:
    async with harness() as one:
        session = await open_session(one.app)
        in_session, alone = session.call("wait", tag="a"), call(one.app, "wait", tag="b")
        await one.until(lambda: len(one.entered) == 2)
        one.app.begin_stop()
        stopping = asyncio.create_task(one.app.stop(STOP_SECONDS))
        await in_session.finish()
        await alone.finish()
        one.go.set()
        await stopping
        assert in_session.messages == alone.messages == []


async def test_websockets_are_refused() -> None:
    app = make_server().asgi_app()
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    await app({"type": "websocket", "path": "/mcp"}, None, send)
    assert sent == [{"type": "websocket.close"}]


def test_explicit_settings_take_precedence() -> None:
    server = make_server(port=1)
    server.override("http", port=2, path="/x")
    assert server.load_config().http.port == 2
    assert server.runtime.config.http.path == "/x"
    with pytest.raises(UsageError, match="before the server is started"):
        server.override("http", port=3)
    wrong = make_server()
    wrong.override("http", port=70_000)
    with pytest.raises(ConfigError, match="http: port"):
        wrong.load_config()


def test_server_without_authentication_settings_does_not_start() -> None:
    with pytest.raises(UsageError, match="--no-auth"):
        Server("test").asgi_app()


def test_missing_http_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("foundation_rt.http")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with pytest.raises(MissingExtraError, match=r"foundation-rt\[http\]"):
        make_server().asgi_app()


@pytest.mark.rule("HTTP-16")
async def test_request_waiting_for_keys_is_refused_at_stop() -> None:
    async with harness() as one:
        waiting = asyncio.Event()

        class Waits:
            async def authenticate(self, *_: Any) -> None:
                waiting.set()
                await asyncio.Event().wait()

        one.app._authenticator = Waits()  # type: ignore[assignment]
        for stopping in (False, True):
            waiting.clear()
            asked = call(one.app, "echo", text="x")
            async with asyncio.timeout(PATIENCE):
                await waiting.wait()
            if stopping:
                one.app.begin_stop()
            asked.task.cancel()
            if stopping:
                assert (await asked.finish()).status == 503
            else:
                with pytest.raises(asyncio.CancelledError):
                    await asked.task


@pytest.mark.rule("HTTP-36")
def test_application_restarts_after_its_loop_was_closed() -> None:
    server = make_server()
    server.tool(name="work")(lambda: "done")
    app = server.asgi_app()

    async def ask_once() -> int | None:
        return (await call(app, "work").finish()).status

    assert [asyncio.run(ask_once()) for _ in range(3)] == [200, 200, 200]

    async def ask_beside() -> None:
        assert await ask_once() == 200
        assert await asyncio.to_thread(asyncio.run, ask_once()) == 500
        assert await ask_once() == 200
        await app.stop(STOP_SECONDS)

    asyncio.run(ask_beside())


@pytest.mark.rule("HTTP-38")
async def test_page_of_the_application_is_authenticated_and_written() -> None:
    server = make_server(no_auth=False, api_keys=(KEY,))

    @server.http_get("/status")
    async def status(principal: Principal | None) -> dict[str, Any]:
        assert principal is not None
        return {"servers": ["\u00e9"]}

    @server.http_get("/status/text")
    def text(principal: Principal | None) -> str:
        return "\u00e9\n"

    app, key = server.asgi_app(), {"authorization": f"Bearer {KEY}"}
    assert (await visit(app, "GET", "/status").finish()).status == 401
    assert (await visit(app, "GET", "/status", key).finish()).json == {"servers": ["\u00e9"]}
    answer = await visit(app, "GET", "/status/text", key).finish()
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.body == "\u00e9\n".encode()
    assert (await visit(app, "POST", "/status", key).finish()).status == 405


@pytest.mark.rule("HTTP-38")
@pytest.mark.parametrize("path", ["/mcp", "/healthz", "/sse"])
def test_page_at_a_path_of_the_runtime_is_refused(path: str) -> None:
    server = make_server()
    server.http_get(path)(lambda principal: {})
    with pytest.raises(UsageError, match=f"{path} is a path of the runtime"):
        server.asgi_app()


@pytest.mark.rule("HTTP-38")
@pytest.mark.parametrize("path", ["status", "/", "/a b", "/taken", None])
def test_page_needs_a_free_path(path: Any) -> None:
    server = make_server()
    server.http_get("/taken")(lambda principal: {})
    with pytest.raises(RegistrationError, match="http_get"):
        server.http_get(path)
