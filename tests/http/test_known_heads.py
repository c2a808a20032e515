"""Requests whose head their connection knows: answered without a parser, and no different."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import orjson
import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from foundation_rt import Server, ToolContext, ToolError, UsageError
from foundation_rt.http import endpoint
from foundation_rt.http.auth.authentication import Authenticator
from foundation_rt.http.headers import RequestHead
from foundation_rt.http.known_heads import KnownHead, KnownRequest
from foundation_rt.http.serve import HttpServing, make_serving
from foundation_rt.http.uvicorn_protocol import MAX_HEAD_BYTES, split_request
from foundation_rt.protocol.principal import ALL_SCOPES, Principal
from tests.lab.waiting import PATIENCE, settle, until

KEY = {"X-API-Key": "0123456789abcdef0123456789abcdef"}
REVISION, STATELESS = "2025-11-25", "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}
HELLO = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "t"}}


@define(eq=False)
class Wire:
    """One connection of a client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    headers: dict[str, str] = field(factory=dict)

    def post(self, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
        fields = {
            "Host": "localhost",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Content-Length": str(len(body)),
            **self.headers,
            **(headers or {}),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body

    def call(self, tool: str, number: int = 1, **arguments: Any) -> bytes:
        return self.post(message("tools/call", number, name=tool, arguments=arguments))

    async def ask(self, data: bytes) -> tuple[int, dict[str, str], bytes]:
        self.writer.write(data)
        return await self.answer()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Read a response: its status, headers and body."""
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.strip().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            body = b""
            if "transfer-encoding" in headers:
                while size := int(await self.reader.readuntil(b"\r\n"), 16):
                    body += (await self.reader.readexactly(size + 2))[:-2]
                await self.reader.readexactly(2)
            else:
                body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return int(status.split()[1]), headers, body

    async def begin(self) -> None:
        """Begin a session."""
        _, headers, _ = await self.ask(self.post(message("initialize", 0, **HELLO)))
        self.headers |= {"Mcp-Session-Id": headers["mcp-session-id"]}
        await self.ask(self.post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}'))


def message(method: str, number: int = 1, **params: Any) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


@define(eq=False)
class Served:
    """A server in this loop, and what it has seen."""

    serving: HttpServing
    heads: list[bytes]
    keys: dict[str, str]
    go: asyncio.Event = field(factory=asyncio.Event)
    ended: list[str] = field(factory=list)
    wires: list[Wire] = field(factory=list)

    async def open(self, headers: Mapping[str, str]) -> Wire:
        port = int(re.findall(r":(\d+)/", self.serving.url)[0])
        wire = Wire(*await asyncio.open_connection("127.0.0.1", port), {**headers})
        self.wires.append(wire)
        return wire

    async def connect(self) -> Wire:
        wire = await self.open(self.keys)
        await wire.begin()
        return wire


USER: ContextVar[str] = ContextVar("user", default="nobody")


@asynccontextmanager
async def serve(
    configure: Callable[[Server], object] = lambda server: None, **http: Any
) -> AsyncIterator[Served]:
    """Serve with tools of every kind; the heads that are parsed are listed."""
    keys = {} if http.get("no_auth") else KEY
    if keys:
        http["api_keys"] = [f"ops:{KEY['X-API-Key']}"]
    config = {"http": {"port": 0, **http}, "logging": {"level": "error"}}
    server = Server("test", version="1", config=config)

    @server.tool(inline=True)
    def echo(text: str) -> str:
        return text

    @server.tool(inline=True)
    def user() -> str:
        return USER.get()

    @server.tool
    async def brief(text: str) -> str:
        return text

    @server.tool
    async def later(text: str) -> str:
        await asyncio.sleep(0)
        return text

    @server.tool
    def work(text: str) -> str:
        return text

    @server.tool(inline=True)
    def fails() -> None:
        raise ToolError("NOT_FOUND", "no such thing")

    @server.tool(inline=True)
    def exits() -> None:
        raise SystemExit(3)

    @server.tool(inline=True)
    def large(size: int) -> str:
        return "x" * size

    @server.tool(inline=True)
    def progress(context: ToolContext) -> str:
        context.report_progress(1, 1)
        return "done"

    @server.tool
    async def wait(context: ToolContext) -> str:
        try:
            await found.go.wait()
        except asyncio.CancelledError:
            found.ended.append(str(context.abort_signal.reason))
            raise
        return "waited"

    configure(server)
    heads: list[bytes] = []
    serving = make_serving(server.runtime)
    found = Served(serving, heads, {**keys})
    patch = pytest.MonkeyPatch()
    parsed = HttpToolsProtocol.on_headers_complete

    def note(protocol: HttpToolsProtocol) -> None:
        heads.append(protocol.url)
        parsed(protocol)

    patch.setattr(HttpToolsProtocol, "on_headers_complete", note)
    # A response is no stream because the machine is slow (HTTP-07).
    patch.setattr(endpoint, "SOON_SECONDS", PATIENCE)
    task = asyncio.create_task(serving.run())
    try:
        await asyncio.sleep(0)
        yield found
    finally:
        found.go.set()
        for wire in found.wires:
            wire.writer.close()
        serving.stop()
        await task
        server.runtime.close_logs(1.0)
        patch.undo()


def _stable(response: tuple[int, dict[str, str], bytes]) -> Any:
    """Return a response without what differs between any two: times and random ids."""
    status, headers, body = response
    headers.pop("date")
    headers.pop("mcp-session-id", None)
    body = re.sub(rb"[0-9a-f]{8}-[0-9a-f-]{27}|id: [^\n]*", b"", body)
    return status, sorted(headers.items()), body


STATELESS_CALL = message("tools/call", 9, name="echo", arguments={"text": "s"}, _meta=META)
STATELESS_HEADS = {"MCP-Protocol-Version": STATELESS, "Mcp-Method": "tools/call"}


def _requests(wire: Wire) -> list[bytes]:
    """Return requests of every kind of outcome, most of them with one head."""
    progress = message("tools/call", 5, name="progress", _meta={"progressToken": 1})
    named = {**STATELESS_HEADS, "Mcp-Name": "echo"}
    return [
        wire.call("echo", 1, text="a"),
        wire.call("echo", 2, text="longer" * 100),
        wire.call("brief", 3, text="b"),
        wire.call("later", 4, text="c"),
        wire.call("work", 5, text="d"),
        wire.call("fails"),
        wire.call("exits"),
        wire.call("nothing"),
        wire.call("echo", text=1),
        wire.call("large", size=17_000),
        wire.post(progress),
        wire.post(b'{"jsonrpc":"2.0","method":"notifications/cancelled"}'),
        wire.post(b"no json"),
        wire.post(b""),
        wire.post(b"[]"),
        wire.post(message("initialize", 0, **HELLO)),
        wire.post(message("tools/list")),
        wire.post(STATELESS_CALL, named),
        wire.post(STATELESS_CALL, {**STATELESS_HEADS, "Mcp-Name": "other"}),
        wire.post(message("none"), {"Mcp-Session-Id": "unknown"}),
        wire.post(b"{}", {"X-API-Key": "wrong" * 8}),
        wire.post(b"{}", {"Origin": "http://elsewhere"}),
        wire.post(b"{}", {"Accept": "text/html"}),
    ]


@pytest.mark.rule("HTTP-80", "AUTH-24")
async def test_response_is_the_same_as_on_a_new_connection() -> None:
    async with serve() as served:
        wire = await served.connect()
        for data in _requests(wire):
            responses = []
            for _ in range(3):
                other = await served.open({})
                responses.append(_stable(await other.ask(data)))
                other.writer.close()
                response = await wire.ask(data)
                if response[1].get("connection") == "close":
                    wire = await served.open(wire.headers)
                responses.append(_stable(response))
            assert responses == [responses[0]] * len(responses), data


@pytest.mark.rule("HTTP-80")
async def test_known_head_is_not_parsed_again() -> None:
    async with serve() as served:
        wire = await served.connect()
        await wire.ask(wire.call("echo", text="a"))
        before = len(served.heads)
        for size in (0, 1, 10_000):
            for tool in ("echo", "brief", "later", "work"):
                status, _, body = await wire.ask(wire.call(tool, text="x" * size))
                assert status == 200 and b"x" * size in body
        assert len(served.heads) == before


@pytest.mark.rule("HTTP-80", "AUTH-03")
async def test_key_is_checked_for_each_request() -> None:
    async with serve() as served:
        wire = await served.connect()
        assert (await wire.ask(wire.call("echo", text="a")))[0] == 200
        keys = served.serving.application._authenticator.keys
        assert keys is not None
        keys.principals.clear()
        assert (await wire.ask(wire.call("echo", text="a")))[0] == 401


@pytest.mark.rule("HTTP-80", "AUTH-07")
async def test_issuer_may_be_asked_about_each_token() -> None:
    asked: list[str] = []

    class Issuer:
        async def authenticate(self, token: str, mount: str) -> Principal:
            async with asyncio.timeout(PATIENCE):  # which wants a task
                await asyncio.sleep(0)
            asked.append(token)
            return Principal("someone", ALL_SCOPES)

    async with serve() as served:
        served.serving.application._authenticator = Authenticator(None, Issuer())  # type: ignore[arg-type]
        served.keys = {"Authorization": "Bearer token"}
        wire = await served.connect()
        asked.clear()
        for _ in range(3):
            assert (await wire.ask(wire.call("echo", text="a")))[0] == 200
        assert asked == ["token"] * 3


@pytest.mark.rule("HTTP-80", "HTTP-05")
async def test_session_is_looked_up_for_each_request() -> None:
    async with serve(no_auth=True) as served:
        wire, other = await served.connect(), await served.connect()
        assert (await wire.ask(wire.call("echo", text="a")))[0] == 200
        ending = wire.post(b"").replace(b"POST", b"DELETE", 1)
        assert (await other.ask(ending))[0] == 204
        assert (await wire.ask(wire.call("echo", text="a")))[0] == 404


@pytest.mark.rule("HTTP-80", "HTTP-16")
async def test_known_head_is_refused_when_server_stops() -> None:
    async with serve() as served:
        wire = await served.connect()
        await wire.ask(wire.call("echo", text="a"))
        served.serving.application.begin_stop()
        assert (await wire.ask(wire.call("echo", text="a")))[0] == 503


@pytest.mark.rule("HTTP-80")
async def test_middleware_sees_every_request() -> None:
    with pytest.raises(UsageError, match="http_middleware: 5 cannot be called"):
        Server("s").http_middleware(5)  # type: ignore[type-var]
    seen: list[str] = []

    def configure(server: Server) -> None:
        @server.http_middleware
        def around(app: Any) -> Any:
            async def counted(scope: Any, receive: Any, send: Any) -> None:
                seen.append(scope["type"])
                await app(scope, receive, send)

            return counted

    async with serve(configure) as served:
        wire = await served.connect()
        before = len(seen)
        for _ in range(3):
            await wire.ask(wire.call("echo", text="a"))
        assert len(seen) == before + 3


@pytest.mark.rule("HTTP-80", "HTTP-06")
async def test_requests_behind_one_that_waits_are_answered_in_their_order() -> None:
    async with serve() as served:
        wire = await served.connect()
        await wire.ask(wire.call("echo", text="a"))
        wire.writer.write(wire.call("wait", 1))
        await asyncio.sleep(0.02)
        wire.writer.write(wire.call("echo", 2, text="b") + wire.call("echo", 3, text="c"))
        served.go.set()
        bodies = [(await wire.answer())[2] for _ in range(3)]
        assert [orjson.loads(body)["id"] for body in bodies] == [1, 2, 3]


@pytest.mark.rule("HTTP-80", "HTTP-10")
async def test_call_is_cancelled_when_its_client_has_gone() -> None:
    async with serve(no_auth=True) as served:
        wire = await served.open({**STATELESS_HEADS, "Mcp-Name": "wait"})
        call = wire.post(message("tools/call", name="wait", _meta=META))
        served.go.set()
        assert (await wire.ask(call))[0] == 200
        served.go.clear()
        endpoint.SOON_SECONDS = 0.0  # then its client is watched
        wire.writer.write(call)
        engine = served.serving.runtime.engine
        async with asyncio.timeout(PATIENCE):
            await until(lambda: engine.running, "the call runs")
            wire.writer.close()
            await until(lambda: served.ended, "the call ends")
        assert served.ended == ["disconnected"]


@pytest.mark.rule("HTTP-80")
async def test_context_variables_of_one_request_are_not_those_of_the_next() -> None:
    def configure(server: Server) -> None:
        @server.call_observer
        def observe(call: Any) -> None:
            USER.set("the observer")

    async with serve(configure) as served:
        wire = await served.connect()
        for _ in range(3):
            _, _, body = await wire.ask(wire.call("user"))
            assert b"nobody" in body


@pytest.mark.rule("HTTP-80", "HTTP-39")
async def test_request_behind_one_of_an_application_is_not_taken_for_it() -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        entered.set()
        await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"of the application"})

    async with serve(lambda server: server.http_app(app)) as served:
        wire = await served.connect()
        own = wire.post(b"{}").replace(b"/mcp", b"/app", 1)
        wire.writer.write(own)
        await entered.wait()
        wire.writer.write(wire.call("echo", text="a"))
        await asyncio.sleep(0.02)
        go.set()
        for expected in (b"of the application", b'"a"'):
            assert expected in (await wire.answer())[2]
        assert (await wire.ask(own))[2] == b"of the application"


# -- what is known -------------------------------------------------------------------------------


@pytest.mark.rule("HTTP-80")
@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"\r\n" + data,
        lambda data: data.replace(b"Content-Length", b"CONTENT-LENGTH"),
        lambda data: data.replace(b"Host", b"Expect: 100-continue\r\nHost"),
        lambda data: data.replace(b"Host", b"X-Long: %s\r\nHost" % (b"x" * 4096)),
    ],
    ids=["line break", "spelling", "expect", "long"],
)
async def test_unusual_head_is_parsed_each_time(change: Callable[[bytes], bytes]) -> None:
    async with serve() as served:
        wire = await served.connect()
        data = change(wire.call("echo", text="a"))
        before = len(served.heads)
        for count in range(1, 4):
            status, _, _ = await wire.ask(data)
            if status == 100:
                status, _, _ = await wire.answer()
            assert status == 200
            assert len(served.heads) == before + count


@pytest.mark.rule("HTTP-80", "HTTP-20")
async def test_two_requests_in_one_piece_are_both_answered() -> None:
    async with serve() as served:
        wire = await served.connect()
        for _ in range(3):
            wire.writer.write(wire.call("echo", 1, text="a") + wire.call("echo", 2, text="b"))
            ids = [orjson.loads((await wire.answer())[2])["id"] for _ in range(2)]
            assert ids == [1, 2]


@pytest.mark.rule("HTTP-80")
async def test_pieces_of_a_request_are_one_request() -> None:
    async with serve() as served:
        wire = await served.connect()
        data = wire.call("echo", text="abc")
        await wire.ask(data)
        for cut in (3, len(data) - 30, len(data) - 1):
            wire.writer.write(data[:cut])
            await asyncio.sleep(0.01)
            status, _, body = await wire.ask(data[cut:])
            assert status == 200 and b"abc" in body
        wire.writer.write(b"P")
        await asyncio.sleep(0.01)
        assert (await wire.ask(data))[0] == 400


@pytest.mark.rule("HTTP-80", "HTTP-29")
async def test_number_of_known_heads_is_bounded() -> None:
    async with serve() as served:
        wire = await served.connect()
        for number in range(100):
            await wire.ask(wire.post(message("ping"), {"X-Number": str(number)}))
        [connection] = served.serving._server.server_state.connections
        assert len(connection._known_heads) <= 8  # type: ignore[union-attr]


@pytest.mark.rule("HTTP-80", "HTTP-29")
@pytest.mark.parametrize("tool", ["echo", "wait"])
async def test_nothing_is_written_while_client_does_not_read(tool: str) -> None:
    async with serve() as served:
        wire = await served.connect()
        arguments = {"text": "b"} if tool == "echo" else {}
        served.go.set()
        await wire.ask(wire.call(tool, **arguments))
        served.go.clear()
        engine = served.serving.runtime.engine
        [connection] = served.serving._server.server_state.connections
        async with asyncio.timeout(PATIENCE):
            if tool == "echo":
                connection.pause_writing()
            wire.writer.write(wire.call(tool, 2, **arguments))
            await until(lambda: not connection._is_idle(), "the request is read")
            connection.pause_writing()
            served.go.set()
            await until(lambda: not engine.running, "the call ends")
        await settle(10)
        assert not connection._is_idle()  # type: ignore[union-attr]
        connection.resume_writing()
        assert orjson.loads((await wire.answer())[2])["id"] == 2


@pytest.mark.rule("HTTP-80", "HTTP-16")
async def test_response_after_the_server_began_to_stop_is_the_last() -> None:
    async with serve() as served:
        wire = await served.connect()
        served.go.set()
        await wire.ask(wire.call("wait"))
        served.go.clear()
        wire.writer.write(wire.call("wait", 2))
        [connection] = served.serving._server.server_state.connections
        await until(lambda: not connection._is_idle(), "the request is read")
        connection.shutdown()
        served.go.set()
        _, headers, body = await wire.answer()
        assert headers["connection"] == "close" and orjson.loads(body)["id"] == 2


@pytest.mark.rule("HTTP-80", "HTTP-27")
async def test_connection_is_not_closed_while_a_call_waits() -> None:
    async with serve() as served:
        wire = await served.connect()
        await wire.ask(wire.call("echo", text="a"))
        [connection] = served.serving._server.server_state.connections
        wire.writer.write(wire.call("wait", 2))
        await until(lambda: not connection._is_idle(), "the request is read")
        connection._answered -= connection.timeout_keep_alive  # type: ignore[union-attr]
        connection.timeout_keep_alive_handler()  # as its time is over
        served.go.set()
        assert orjson.loads((await wire.answer())[2])["id"] == 2


@pytest.mark.rule("HTTP-80", "HTTP-06", "HTTP-20")
@given(st.lists(st.integers(0, 700), max_size=6), st.sampled_from(["later", "work", "wait"]))
def test_bytes_that_come_while_a_call_waits_are_the_next_requests(
    cuts: list[int], tool: str
) -> None:
    async def talk() -> None:
        async with serve(no_auth=True) as served:
            wire = await served.connect()
            await wire.ask(wire.call("echo", text="a"))
            arguments = {} if tool == "wait" else {"text": "b"}
            following = wire.call(tool, 2, **arguments) + wire.call("echo", 3, text="c")
            wire.writer.write(wire.call(tool, 1, **arguments))
            at = 0
            for cut in (*sorted(cuts), len(following)):
                await settle(3)
                wire.writer.write(following[at:cut])
                at = min(cut, len(following))
            served.go.set()
            bodies = [(await wire.answer())[2] for _ in range(3)]
            assert [orjson.loads(body)["id"] for body in bodies] == [1, 2, 3]

    asyncio.run(talk())


@pytest.mark.rule("HTTP-80", "HTTP-10")
async def test_call_that_waits_is_cancelled_when_its_client_goes_at_once() -> None:
    async with serve(no_auth=True) as served:
        wire = await served.open({**STATELESS_HEADS, "Mcp-Name": "wait"})
        call = wire.post(message("tools/call", name="wait", _meta=META))
        served.go.set()
        assert (await wire.ask(call))[0] == 200
        served.go.clear()
        endpoint.SOON_SECONDS = 0.2  # it has gone when it is looked for
        wire.writer.write(call)
        engine = served.serving.runtime.engine
        async with asyncio.timeout(PATIENCE):
            await until(lambda: engine.running, "the call runs")
            wire.writer.transport.abort()
            await until(lambda: served.ended, "the call ends")
        assert served.ended == ["disconnected"]


@pytest.mark.rule("HTTP-80", "HTTP-27")
async def test_connection_is_kept_after_the_last_request_and_not_longer() -> None:
    async with serve() as served:
        wire = await served.connect()
        await wire.ask(wire.call("echo", text="a"))
        [connection] = served.serving._server.server_state.connections
        first = connection.timeout_keep_alive_task
        await wire.ask(wire.call("echo", text="a"))
        assert connection.timeout_keep_alive_task is first and first is not None
        connection.timeout_keep_alive_handler()  # as its time is over
        second = connection.timeout_keep_alive_task
        assert second is not first and second is not None and not wire.reader.at_eof()
        connection.timeout_keep_alive = 0
        connection.timeout_keep_alive_handler()
        async with asyncio.timeout(PATIENCE):
            assert await wire.reader.read() == b""


@pytest.mark.rule("HTTP-80")
@given(
    st.binary(max_size=40).map(lambda each: each.replace(b"\r\n\r\n", b"")),
    st.binary(max_size=40).map(lambda each: each.replace(b"\r\n\r\n", b"")),
    st.binary(max_size=40),
    st.sampled_from([b"Content-Length", b"content-length", b"Content-length"]),
)
def test_head_is_known_by_all_but_the_length(
    before: bytes, after: bytes, body: bytes, name: bytes
) -> None:
    def request(before: bytes, after: bytes, body: bytes) -> bytes:
        length = b"%s: %d" % (name, len(body))
        return b"POST /%s\r\n%s\r\n%s\r\n\r\n%s" % (before, length, after, body)

    key, found = split_request(request(before, after, body))
    if not key:
        return
    assert found == body
    assert split_request(request(before, after, body + b"more"))[0] in (key, b"")
    assert split_request(request(before + b"x", after, body))[0] != key
    assert split_request(request(before, after + b"x", body))[0] != key
    assert split_request(request(before, after, body) + b"x") == (b"", b"")
    assert len(key) < MAX_HEAD_BYTES


@pytest.mark.parametrize("how", ["sleeps", "waits", "raises"])
async def test_what_remains_of_a_response_is_done_by_its_task(how: str) -> None:
    done, go = list[str](), asyncio.get_running_loop().create_future()

    async def respond(exchange: KnownRequest) -> None:
        if how == "raises":
            raise ValueError("at once")
        await (go if how == "waits" else asyncio.sleep(0))
        done.append(how)

    known: Any = KnownHead(RequestHead(), {}, {}, "", b"", respond)
    remaining = known.begin(None)
    assert remaining is not None and not done
    go.set_result(None)
    if how == "raises":
        with pytest.raises(ValueError, match="at once"):
            await remaining
    else:
        await asyncio.create_task(remaining)
        assert done == [how]
