"""One connection: limits of its input, of its lifetime and of unread output."""

from __future__ import annotations

import asyncio
import gc
import struct
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial, wraps
from socket import SO_LINGER, SOL_SOCKET
from time import monotonic
from typing import Any

import pytest
import uvicorn
import uvloop
from attrs import define, field
from uvicorn.server import ServerState

from foundation_rt.http.asgi import SECURITY_HEADERS
from foundation_rt.http.uvicorn_protocol import (
    MAX_HEAD_BYTES,
    MAX_HEADER_FIELDS,
    BoundedProtocol,
    ConnectionLimits,
    ResponseWriter,
    UnreadBytes,
)
from tests.lab.waiting import PATIENCE, until

LONG = 60_000
CHUNKED = b"POST /read HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
TRAILERS = CHUNKED + b"1\r\nx\r\n0\r\nX-Key: trailer\r\n\r\n"


@define(eq=False)
class UvicornClient:
    """One connection to the server, the scopes and bodies that the application got, and its end."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    scopes: list[dict[str, Any]]
    bodies: list[bytes]
    connections: set[Any]
    received: bytes = field(default=b"", init=False)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        async with asyncio.timeout(PATIENCE):
            await self.writer.drain()

    async def head(self) -> bytes:
        """Read the head of a response, and skip its body."""
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await self.reader.readexactly(int(length))
        return head

    async def rest(self) -> bytes:
        """Return all bytes until the server ends the connection."""
        async with asyncio.timeout(PATIENCE):
            try:
                while data := await self.reader.read(65_536):
                    self.received += data
            except ConnectionError:
                pass
        return self.received


def wired(
    header_timeout_ms: int = LONG, keep_alive_seconds: float = LONG
) -> Callable[[Callable[[UvicornClient], Awaitable[None]]], Callable[[], None]]:
    """Run an async test with a client of a server that has these limits."""

    def decorate(test: Callable[[UvicornClient], Awaitable[None]]) -> Callable[[], None]:
        async def scenario() -> None:
            limits = ConnectionLimits(header_timeout_ms, 10, keep_alive_seconds)
            async with connect(limits) as client:
                await test(client)

        @wraps(test)
        def run() -> None:
            uvloop.run(scenario())

        del run.__wrapped__
        return run

    return decorate


@asynccontextmanager
async def connect(limits: ConnectionLimits) -> AsyncIterator[UvicornClient]:
    scopes: list[dict[str, Any]] = []
    bodies: list[bytes] = []

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        scopes.append(scope)
        if scope["path"] == "/read":
            body, more = b"", True
            while more:
                event = await receive()
                if event["type"] == "http.disconnect":
                    return
                body, more = body + event["body"], event["more_body"]
            bodies.append(body)
        answer = b"x" * (50_000_000 if scope["path"] == "/big" else 2)
        length = [(b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": answer})

    config = uvicorn.Config(app, ws="none", log_config=None)
    config.timeout_keep_alive = limits.keep_alive_seconds  # type: ignore[assignment]
    config.load()
    state = ServerState()
    unread = UnreadBytes(64 * 1024 * 1024, monotonic)
    make = partial(BoundedProtocol, limits, unread, config=config, server_state=state, app_state={})
    loop = asyncio.get_running_loop()
    server = await loop.create_server(make, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield UvicornClient(reader, writer, scopes, bodies, state.connections)
    finally:
        writer.transport.abort()
        server.close()
        await until(lambda: not (state.connections or state.tasks), "all is forgotten")


@pytest.mark.rule("HTTP-27")
@wired()
async def test_connection_that_is_reset_is_forgotten(client: UvicornClient) -> None:
    await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b" 200 " in await client.head()
    [connection] = map(weakref.ref, client.connections)
    at_once = struct.pack("ii", 1, 0)
    client.writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, at_once)
    client.writer.transport.abort()
    client.scopes.clear()
    async with asyncio.timeout(PATIENCE):
        while connection() is not None:
            await asyncio.sleep(0)
            gc.collect()


# -- heads ---------------------------------------------------------------------------------------


@pytest.mark.rule("HTTP-20")
@pytest.mark.parametrize("pieces", [1, 7])
def test_head_over_64_kib_is_refused(pieces: int) -> None:
    @wired()
    async def test(client: UvicornClient) -> None:
        empty = b"GET / HTTP/1.1\r\nHost: a\r\nX-Pad: \r\n\r\n"
        pad = MAX_HEAD_BYTES - 2_000
        for size, status in ((pad, b"200"), (MAX_HEAD_BYTES, b"400")):
            head = empty.replace(b"Pad: ", b"Pad: " + b"a" * size)
            step = -(-len(head) // pieces)
            for at in range(0, len(head), step):
                await client.send(head[at : at + step])
                await asyncio.sleep(0)
            if status == b"200":
                assert (await client.head()).startswith(b"HTTP/1.1 200 ")
        received = await client.rest()
        assert received == b"" or received.startswith(b"HTTP/1.1 400 ")
        assert len(client.scopes) == 1

    test()


@pytest.mark.rule("HTTP-20")
@wired()
async def test_head_is_counted_without_preceding_body(client: UvicornClient) -> None:
    body = b"x" * 3 * MAX_HEAD_BYTES
    first = b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    await client.send(first + b"GET / HTTP/1.1\r\nHo")
    assert b" 200 " in await client.head()
    await client.send(b"st: a\r\n\r\n")
    assert b" 200 " in await client.head()


@pytest.mark.rule("HTTP-20", "AUTH-24")
@wired()
async def test_invalid_http_gets_response_with_security_headers(client: UvicornClient) -> None:
    await client.send(b"nothing of the kind\r\n\r\n")
    received = await client.rest()
    assert received.startswith(b"HTTP/1.1 400 ")
    for name, value in SECURITY_HEADERS:
        assert b"\r\n%s: %s\r\n" % (name, value) in received


@pytest.mark.rule("HTTP-20")
@wired()
async def test_invalid_body_is_answered(client: UvicornClient) -> None:
    await client.send(CHUNKED + b"no size\r\n")
    assert (await client.rest()).startswith(b"HTTP/1.1 400 ")


@pytest.mark.rule("HTTP-20")
@wired()
async def test_invalid_http_is_not_answered_during_another_response(client: UvicornClient) -> None:
    await client.send(
        b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nxno http\r\n\r\n"
    )
    assert b" 400 " not in await client.rest()


# -- trailers ------------------------------------------------------------------------------------


@pytest.mark.rule("HTTP-20")
@wired()
async def test_trailers_are_not_added_to_head(client: UvicornClient) -> None:
    await client.send(TRAILERS)
    assert b" 200 " in await client.head()
    await client.send(TRAILERS)
    assert b" 200 " in await client.head()
    assert client.bodies == [b"x", b"x"]
    for scope in client.scopes:
        assert [name for name, _ in scope["headers"]] == [b"host", b"transfer-encoding"]


@pytest.mark.rule("HTTP-20")
@pytest.mark.parametrize(
    "endless",
    [b"X-A: " + b"a" * 1000 + b"\r\n", b"a" * 1000, b"X-A: b\r\n" * 100],
    ids=["fields", "a name", "small fields"],
)
def test_endless_trailers_are_cut_off(endless: bytes) -> None:
    @wired()
    async def test(client: UvicornClient) -> None:
        await client.send(CHUNKED + b"1\r\nx\r\n0\r\n")
        with pytest.raises(ConnectionError):
            for _ in range(100_000):
                await client.send(endless)
        assert client.bodies == []

    test()


@pytest.mark.rule("HTTP-20")
@wired()
async def test_endless_chunk_size_is_cut_off(client: UvicornClient) -> None:
    await client.send(CHUNKED + b"1;")
    with pytest.raises(ConnectionError):
        for _ in range(100_000):
            await client.send(b"a" * 1000)


@wired()
async def test_long_body_of_small_chunks_is_accepted(client: UvicornClient) -> None:
    count = MAX_HEAD_BYTES // 4
    await client.send(CHUNKED + b"1\r\nx\r\n" * count + b"0\r\n\r\n")
    assert b" 200 " in await client.head()
    assert client.bodies == [b"x" * count]


# -- how long a connection lasts -----------------------------------------------------------------


@pytest.mark.rule("HTTP-27")
@pytest.mark.parametrize("between", [b"\r\n", b"\n", b"\r", b"\r\n" * 1000])
def test_line_breaks_do_not_keep_connection_open(between: bytes) -> None:
    @wired(header_timeout_ms=500)
    async def test(client: UvicornClient) -> None:
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b" 200 " in await client.head()
        await client.send(between)
        assert await client.rest() == b""

    test()


@pytest.mark.rule("HTTP-27")
@wired(keep_alive_seconds=0.05)
async def test_connection_without_requests_is_closed(client: UvicornClient) -> None:
    await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b" 200 " in await client.head()
    assert await client.rest() == b""


@pytest.mark.rule("HTTP-27")
@pytest.mark.parametrize(
    "request_so_far",
    [
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nx",
        CHUNKED.replace(b"/read", b"/") + b"1\r\nx\r\n",
        CHUNKED.replace(b"/read", b"/") + b"1\r\nx\r\n0\r\nX-A: b\r\n",
    ],
)
def test_response_before_end_of_request_is_last(request_so_far: bytes) -> None:
    @wired()
    async def test(client: UvicornClient) -> None:
        await client.send(request_so_far)
        received = await client.rest()
        assert received.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close\r\n" in received

    test()


@pytest.mark.rule("HTTP-27")
@wired()
async def test_connection_continues_after_complete_request(client: UvicornClient) -> None:
    for body in (b"", b"x", b"x" * 100_000):
        head = b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
        await client.send(head)
        await client.send(body)
        assert b"connection: close" not in await client.head()
    await client.send(b"POST /read HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert b"connection: close" in await client.rest()


@pytest.mark.rule("HTTP-33")
@pytest.mark.parametrize("keep", [b"", b"Connection: close\r\n"])
def test_client_that_reads_nothing_is_cut_off(keep: bytes) -> None:
    @wired(keep_alive_seconds=0.1)
    async def test(client: UvicornClient) -> None:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(b"GET /big HTTP/1.1\r\nHost: a\r\n%s\r\n" % keep)
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                while True:
                    client.writer.write(b"\r")
                    await client.writer.drain()
                    await asyncio.sleep(0)

    test()


def test_number_of_header_fields_is_limited() -> None:
    @wired()
    async def test(client: UvicornClient) -> None:
        for count, status in ((MAX_HEADER_FIELDS, b"200"), (MAX_HEADER_FIELDS + 1, b"400")):
            await client.send(b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * count + b"\r\n")
            assert (await client.head()).startswith(b"HTTP/1.1 " + status)

    test()


@define(eq=False)
class RecordingTransport:
    """Takes what is written to a connection, piece by piece."""

    pieces: list[bytes] = field(factory=list)
    closed: bool = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.pieces.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


@pytest.mark.rule("HTTP-48")
async def test_what_a_response_writes_in_one_turn_leaves_in_one_piece() -> None:
    transport = RecordingTransport()
    writer = ResponseWriter(transport, asyncio.get_running_loop())  # type: ignore[arg-type]
    writer.write(b"head ")
    writer.write(b"body")
    assert transport.pieces == [b"head body"]
    writer.write(b"an event")
    await asyncio.sleep(0)
    assert transport.pieces[1:] == [b"an event"]
    large = bytes(1_000_000)
    writer.write(b"head")
    writer.write(large)
    assert transport.pieces[2:] == [b"head", large]
    writer.write(b"the end")
    writer.close()
    await asyncio.sleep(0)
    assert transport.pieces[4:] == [b"the end"]
    assert transport.closed
