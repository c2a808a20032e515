"""An ASGI application beside the endpoint: requests, WebSockets, and the end of the server."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from attrs import define, field
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus

from foundation_rt import PageAccess, Server, UsageError
from foundation_rt.http import uvicorn_websocket
from foundation_rt.http.mounted_app import SUBPROTOCOL
from foundation_rt.http.serve import HttpServing, make_serving
from foundation_rt.http.uvicorn_websocket import MAX_FRAMES, BoundedWebSocket
from tests.lab.checks.leaks import tasks
from tests.lab.servers.asgi import visit

TOKEN = "t" * 43
KEY = {"X-API-Key": TOKEN}


@define(eq=False)
class Application:
    """An application that echoes, and ends in the way that its path says."""

    served: list[str] = field(factory=list)
    stopping: asyncio.Event = field(factory=asyncio.Event)
    ended: list[str] = field(factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.served.append(scope["path"])
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
            return
        if scope["path"] == "/fails":
            raise ValueError("a secret")
        if scope["path"] in ("/events", "/download"):
            await self._stream(scope, receive, send)
            return
        headers = [(b"cache-control", b"max-age=60")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"page"})

    async def _stream(self, scope: Any, receive: Any, send: Any) -> None:
        kind = b"text/event-stream" if scope["path"] == "/events" else b"text/csv"
        headers = [(b"content-type", kind)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        assert (await receive())["type"] == "http.request"
        try:
            self.ended.append((await receive())["type"])
        except asyncio.CancelledError:
            self.ended.append("cancelled")
        await send({"type": "http.response.body", "body": b"last"})

    async def _socket(self, scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        if scope["path"] == "/fails":
            raise ValueError("a secret")
        try:
            while True:
                event = await receive()
                if event["type"] == "websocket.disconnect":
                    self.ended.append(str(event["code"]))
                    self.stopping.set()
                    if scope["path"] == "/closes":
                        await send({"type": "websocket.close", "code": 1000})
                    if event["code"] == 1012 and scope["path"] == "/drains":
                        await send({"type": "websocket.send", "text": "last words"})
                        assert (await receive())["text"] == "go"
                        await send({"type": "websocket.send", "text": "gone"})
                    if event["code"] == 1012 and scope["path"] == "/stays":
                        await asyncio.get_running_loop().create_future()
                    return
                silent = scope["extensions"]["foundation_rt.seconds_silent"]()
                assert silent >= 0
                await send({"type": "websocket.send", "text": event.get("text") or "bytes"})
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise


@define(eq=False)
class Served:
    """A server that serves in this loop."""

    app: Application
    serving: HttpServing
    task: asyncio.Task[None]

    @property
    def port(self) -> int:
        return int(self.serving.url.rpartition(":")[2].partition("/")[0])

    def connect(self, path: str = "/ws", headers: Any = KEY, name: str = "127.0.0.1") -> Any:
        url = f"ws://{name}:{self.port}{path}"
        return connect(
            url, additional_headers=headers, compression=None, proxy=None, host="127.0.0.1"
        )


@asynccontextmanager
async def served(config: Any = None, application: Any = None, **http: Any) -> AsyncIterator[Served]:
    settings = {"http": {"port": 0, **http}, "logging": {"level": "error"}, **(config or {})}
    server = Server("test", config=settings)
    app = Application()
    server.http_app(application or app, page_access=PageAccess(TOKEN))
    serving = make_serving(server.runtime)
    found = Served(app, serving, asyncio.create_task(serving.run()))
    try:
        yield found
    finally:
        serving.stop()
        await found.task
        server.runtime.close_logs(1.0)


async def close_code(connection: ClientConnection) -> int | None:
    with pytest.raises(ConnectionClosed):
        while True:
            await connection.recv()
    return connection.close_code


@pytest.mark.rule("HTTP-39", "HTTP-46")
async def test_application_has_the_paths_that_the_runtime_does_not_use() -> None:
    server = Server("test", config={"http": {"no_auth": True}, "logging": {"level": "error"}})
    application = Application()
    server.http_app(application)
    app = server.asgi_app()
    page = await visit(app, "GET", "/some/page").finish()
    assert (page.status, page.body) == (200, b"page")
    assert page.headers["cache-control"] == "max-age=60"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert (await visit(app, "GET", "/healthz").finish()).json == {"status": "ok"}
    assert (await visit(app, "PUT", "/mcp").finish()).status == 405
    failed = await visit(app, "GET", "/fails").finish()
    assert failed.status == 500 and b"secret" not in failed.body
    assert application.served == ["/some/page", "/fails"]


@pytest.mark.rule("HTTP-50")
async def test_audit_record_has_the_first_part_of_the_path(
    capfd: pytest.CaptureFixture[str],
) -> None:
    server = Server("test", config={"audit": {"enabled": True}})
    server.http_app(Application(), page_access=PageAccess(TOKEN))
    app = server.asgi_app()
    for path in ("/chats/a-secret/export", "/mcp"):
        assert (await visit(app, "GET", path).finish()).status == 401
    server.runtime.close_logs(1.0)
    printed = capfd.readouterr().err
    assert '"path":"/chats"' in printed and '"path":"/mcp"' in printed
    assert "a-secret" not in printed


@pytest.mark.rule("HTTP-39")
def test_server_has_one_application() -> None:
    server = Server("test")
    with pytest.raises(UsageError, match="begins with /"):
        server.http_app(Application(), public=("open",))
    server.http_app(Application())
    with pytest.raises(UsageError, match="one application"):
        server.http_app(Application())


@pytest.mark.rule("HTTP-72")
@pytest.mark.parametrize(
    ("path", "seen"), [("/events", "http.disconnect"), ("/download", "cancelled")]
)
async def test_event_stream_is_told_that_the_server_stops(path: str, seen: str) -> None:
    # A download has its time, however short.
    async with served({"server": {"shutdown_timeout_ms": 1_000}}) as one:
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        key = f"X-API-Key: {TOKEN}\r\nConnection: close"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{key}\r\n\r\n".encode())
        await reader.readuntil(b"first")
        one.serving.stop()
        assert b"last" in await reader.read()
        assert one.app.ended == [seen]
        writer.close()


@pytest.mark.rule("HTTP-40", "HTTP-39", "HTTP-44")
async def test_websocket_is_refused_before_the_upgrade() -> None:
    async with served() as one:
        own = {"Origin": f"http://127.0.0.1:{one.port}"}
        refused = [
            ("/ws", {}, 401),
            ("/ws", {"X-API-Key": "wrong"}, 401),
            ("/ws", {**KEY, "Origin": "http://evil.example"}, 403),
            ("/ws", {**own, "Cookie": f"token={TOKEN}"}, 401),
            ("/ws", {**own, "Sec-WebSocket-Protocol": subprotocols("wrong")}, 401),
            ("/ws", {**own, "Sec-WebSocket-Protocol": f"{SUBPROTOCOL}.{TOKEN}!"}, 401),
            ("/ws", {"X-API-Key": "wrong", "Sec-WebSocket-Protocol": subprotocols(TOKEN)}, 401),
            ("/mcp", KEY, 404),
            ("/healthz", KEY, 404),
        ]
        for path, headers, status in refused:
            with pytest.raises(InvalidStatus) as error:
                await one.connect(path, headers)
            assert error.value.response.status_code == status, (path, headers)
        with pytest.raises(InvalidStatus) as error:
            await one.connect("/ws", name="evil.example")
        assert error.value.response.status_code == 421
        assert one.app.served == []
        for headers in (KEY, {"Authorization": f"Bearer {TOKEN}"}):
            async with one.connect("/ws", headers) as connection:
                await connection.send("hello")
                assert await connection.recv() == "hello"


def subprotocols(key: str) -> str:
    """Return what a browser offers that knows a key."""
    encoded = urlsafe_b64encode(key.encode()).decode().rstrip("=")
    return f"{SUBPROTOCOL}, {SUBPROTOCOL}.{encoded}"


@pytest.mark.rule("HTTP-44")
@pytest.mark.parametrize("no_auth", [False, True])
async def test_key_among_the_subprotocols_is_neither_selected_nor_passed_on(no_auth: bool) -> None:
    server = Server("test", config={"http": {"no_auth": no_auth}, "logging": {"level": "error"}})
    found: list[Any] = []
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found.append((scope["foundation_rt.principal"], scope["subprotocols"]))
        await send({"type": "websocket.accept"})

    async def send(event: Any) -> None:
        sent.append(event)

    server.http_app(app, page_access=PageAccess(TOKEN))
    scope = {
        "type": "websocket",
        "path": "/ws",
        "headers": [(b"host", b"127.0.0.1")],
        "subprotocols": subprotocols(TOKEN).split(", "),
    }
    await server.asgi_app()(scope, asyncio.Queue[Any]().get, send)
    ((principal, offered),) = found
    assert (None if principal is None else principal.subject) == (None if no_auth else "key:page")
    assert offered == [SUBPROTOCOL]
    assert sent[0] == {"type": "websocket.accept", "subprotocol": SUBPROTOCOL}


@pytest.mark.rule("HTTP-40")
async def test_server_that_sends_no_response_closes_websocket() -> None:
    server = Server("test", config={"http": {"no_auth": True}, "logging": {"level": "error"}})
    app = server.asgi_app()  # without an application of its own
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    scope = {"type": "websocket", "path": "/ws", "headers": [(b"host", b"127.0.0.1")]}
    await app(scope, asyncio.Queue[Any]().get, send)
    assert sent == [{"type": "websocket.close"}]


@pytest.mark.rule("HTTP-41")
async def test_long_message_closes_with_1009() -> None:
    async with served() as one, one.connect() as connection:
        await connection.send("x" * 1024 * 1024)
        assert len(await connection.recv()) == 1024 * 1024
        await connection.send("x" * (1024 * 1024 + 1))
        assert await close_code(connection) == 1009


FLOODS = {
    "messages": b"\x81\x81\0\0\0\0x" * 20_000,
    "pings": b"\x89\x80\0\0\0\0" * 20_000,
    "fragments": b"\x01\x80\0\0\0\0" + b"\0\x80\0\0\0\0" * 20_000,
}


@pytest.mark.rule("HTTP-75")
@pytest.mark.parametrize("kind", FLOODS)
async def test_flood_of_frames_closes_with_1008_and_is_not_parsed(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled = []
    handle = BoundedWebSocket.handle_events

    def count(self: BoundedWebSocket) -> None:
        handled.append(len(self.conn.events))
        handle(self)

    monkeypatch.setattr(BoundedWebSocket, "handle_events", count)
    async with served() as one, one.connect() as connection:
        connection.transport.write(FLOODS[kind])
        assert await close_code(connection) == 1008
        assert MAX_FRAMES < sum(handled) < 2 * MAX_FRAMES


@pytest.mark.rule("HTTP-75")
async def test_others_have_their_turn_between_two_messages() -> None:
    turns, passed = 0, []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        def turn() -> None:
            nonlocal turns
            turns += 1
            asyncio.get_running_loop().call_soon(turn)

        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        turn()
        for _ in range(10):
            assert (await receive())["text"] == "x"
            passed.append(turns)
        await send({"type": "websocket.close", "code": 1000})

    async with served(application=app) as one, one.connect() as connection:
        connection.transport.write(FLOODS["messages"][:70])
        assert await close_code(connection) == 1000
    assert len(set(passed)) == len(passed)


@pytest.mark.rule("HTTP-41", "HTTP-21")
async def test_websockets_count_as_connections() -> None:
    async with served(max_connections=1) as one, one.connect() as connection:
        with pytest.raises((OSError, InvalidMessage)):
            await one.connect()
        await connection.send("still here")
        assert await connection.recv() == "still here"


@pytest.mark.rule("HTTP-41")
@pytest.mark.parametrize(
    "head",
    [
        "POST /ws HTTP/1.1\r\nContent-Length: 2\r\n",
        "GET /ws HTTP/1.1\r\nContent-Length: 2\r\n",
        f"GET /ws HTTP/1.1\r\nX-Long: {'x' * 20_000}\r\n",
        "GET /ws HTTP/1.1\r\nSec-WebSocket-Version: 12\r\n",
    ],
)
async def test_head_that_begins_no_websocket_is_answered(head: str) -> None:
    async with served() as one:
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        rest = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: eA==\r\n"
        writer.write(f"{head}Host: 127.0.0.1\r\nX-API-Key: {TOKEN}\r\n{rest}\r\n{{}}".encode())
        answer = await reader.readuntil(b"\r\n")
        assert answer.startswith(b"HTTP/1.1 ") and not answer.startswith(b"HTTP/1.1 101")
        writer.close()


@pytest.mark.rule("HTTP-41", "HTTP-20")
async def test_websocket_outlives_the_time_for_a_head() -> None:
    async with served(header_timeout_ms=500) as one, one.connect() as connection:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connection.recv(), 0.8)
        await connection.send("still here")
        assert await connection.recv() == "still here"


@pytest.mark.rule("HTTP-42")
async def test_stop_lets_application_finish_and_closes_with_1012() -> None:
    async with served() as one:
        async with one.connect("/drains") as draining, one.connect("/ws") as plain:
            await draining.send("begin")
            assert await draining.recv() == "begin"
            one.serving.stop()
            assert await draining.recv() == "last words"
            assert await close_code(plain) == 1012
            with pytest.raises((OSError, InvalidStatus)):
                await one.connect("/ws")
            await draining.send("go")
            assert await draining.recv() == "gone"
            assert await close_code(draining) == 1012
        await one.task
    assert one.app.ended == ["1012", "1012"]
    assert not [each for each in tasks() if each is not asyncio.current_task()]


@pytest.mark.rule("HTTP-42")
async def test_application_that_stays_is_cancelled_in_time() -> None:
    async with served({"server": {"shutdown_timeout_ms": 500}}) as one:
        async with one.connect("/stays") as connection:
            await connection.send("begin")
            await connection.recv()
            one.serving.stop()
            assert await close_code(connection) == 1012
        await one.task
    assert one.app.ended == ["1012", "cancelled"]


@pytest.mark.rule("HTTP-49")
async def test_silent_and_stalled_clients_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_websocket, "PING_SECONDS", 0.05)
    monkeypatch.setattr(uvicorn_websocket, "_STALL_SECONDS", 0.05)
    async with served() as one:
        async with one.connect() as silent:
            silent.transport.pause_reading()  # so it answers no ping
            async with asyncio.timeout(20):
                await one.app.stopping.wait()
        async with one.connect("/fails") as stalled:
            assert await close_code(stalled) == 1011


@pytest.mark.rule("HTTP-49")
async def test_websocket_that_is_closed_after_its_client_has_gone_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[weakref.ref[BoundedWebSocket]] = []
    begin = BoundedWebSocket.connection_made

    def note(self: BoundedWebSocket, transport: Any) -> None:
        made.append(weakref.ref(self))
        begin(self, transport)

    monkeypatch.setattr(BoundedWebSocket, "connection_made", note)
    async with served() as one:
        async with one.connect("/closes") as connection:
            connection.transport.abort()
        async with asyncio.timeout(20):  # it would be kept until it counts as stalled, for 75 s
            while made[0]() is not None:
                await asyncio.sleep(0)
                gc.collect()


@pytest.mark.rule("HTTP-42")
async def test_application_that_fails_closes_with_1011() -> None:
    async with served() as one, one.connect("/fails") as connection:
        assert await close_code(connection) == 1011


@pytest.mark.rule("HTTP-41")
def test_websockets_are_imported_for_an_application_alone() -> None:
    program = """
import sys
from foundation_rt import Server
from foundation_rt.http.serve import make_serving
make_serving(Server("s", config={"http": {"no_auth": True, "port": 0}}).runtime)
print("websockets" in sys.modules)
server = Server("s", config={"http": {"no_auth": True, "port": 0}})
server.http_app(print)
sys.modules["websockets"] = None
try:
    make_serving(server.runtime)
except Exception as error:
    print(type(error).__name__, error.extra)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == ["False", "MissingExtraError", "host"]
