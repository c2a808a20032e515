"""One connection of HTTP/1.1, against a socket that does as it is told; how it is made."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from foundation_rt.base.http_client import network
from foundation_rt.base.http_client.connection import HttpConnection
from foundation_rt.base.http_client.errors import BrokenOffError, ConnectError
from foundation_rt.base.http_client.exchange import fetch
from foundation_rt.base.http_client.network import Network, RequestUrl
from tests.lab.checks.leaks import ResourceSnapshot
from tests.lab.peers.scripted_http import ReceivedRequest, ScriptedReply, self_signed, talking

LIVENESS = 60.0

both_loops = pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
Loop = Callable[[], asyncio.AbstractEventLoop]
Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def connected(
    loop: Loop, peer: Peer, scenario: Callable[[HttpConnection], Awaitable[None]]
) -> None:
    """Play a scene with a connection to the peer; nothing may hang, and nothing may be left."""

    async def main() -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await peer(reader, writer)
            finally:
                writer.close()

        async with asyncio.timeout(LIVENESS):
            server = await asyncio.start_server(accept, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            connection = await Network().connect(RequestUrl.of(f"http://127.0.0.1:{port}/"))
            try:
                await scenario(connection)
            finally:
                await connection.aclose()
                server.close()
                await asyncio.sleep(0)

    before = sockets()
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
    assert sockets() == before


def sockets() -> set[str]:
    """Return the sockets of this process; uvloop keeps a pipe of its own."""
    return {each for each in ResourceSnapshot.now().descriptors if "socket:" in each}


OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


@pytest.mark.rule("CHTTP-36")
@both_loops
def test_early_response_to_a_large_request_is_read(loop: Loop) -> None:
    """A server may refuse a body that it does not read: nothing waits until it does."""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await reader.read()

    async def scenario(connection: HttpConnection) -> None:
        connection.send(b"POST / HTTP/1.1\r\n\r\n" + bytes(32 * 1024 * 1024))
        await connection.head()
        assert connection.status == 413

    connected(loop, peer, scenario)


@pytest.mark.rule("CHTTP-36")
@both_loops
def test_unread_body_pauses_the_peer(loop: Loop) -> None:
    size = 32 * 1024 * 1024

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK % size + bytes(size))
        await writer.drain()
        await reader.read()

    async def scenario(connection: HttpConnection) -> None:
        connection.send(b"GET / HTTP/1.1\r\n\r\n")
        await connection.head()
        read = most = 0
        async for piece in connection.pieces():
            most = max(most, connection._size)
            read += len(piece)
            await asyncio.sleep(0)
        assert read == size
        assert most < 1024 * 1024
        assert connection.can_be_used

    connected(loop, peer, scenario)


@pytest.mark.rule("CHTTP-41")
@both_loops
def test_connection_that_breaks_off_is_an_error_for_its_reader(loop: Loop) -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(OK % 10 + b"part")
        await writer.drain()
        connection = writer.get_extra_info("socket")
        # Closed with 0 s of lingering, it is reset.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    async def scenario(connection: HttpConnection) -> None:
        connection.send(b"x")
        with pytest.raises(BrokenOffError):
            await connection.head()
            await connection.body(100)
        assert not connection.can_be_used

    connected(loop, peer, scenario)


@pytest.mark.rule("CHTTP-41")
@both_loops
def test_connection_with_an_unasked_response_is_not_used(loop: Loop) -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(OK % 1 + b"a" + OK % 1 + b"b")
        await reader.read()

    async def scenario(connection: HttpConnection) -> None:
        connection.send(b"x")
        await connection.head()
        assert await connection.body(1) == b"a"
        assert not connection.can_be_used

    connected(loop, peer, scenario)


@pytest.mark.rule("CHTTP-42")
@both_loops
@pytest.mark.parametrize("answering", [0, 1, None])
def test_of_several_addresses_the_first_that_answers_counts(
    loop: Loop, answering: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = ["127.0.0.2", "127.0.0.3"]

    async def looked_up(host: str, port: int, threads: object) -> list[str]:
        return [*addresses]

    monkeypatch.setattr(network, "addresses_of", looked_up)

    async def main() -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(OK % 1 + b"a")
            writer.close()

        place = "127.0.0.9" if answering is None else addresses[answering]
        server = await asyncio.start_server(accept, place, 0)
        url = RequestUrl.of(f"http://two.example:{server.sockets[0].getsockname()[1]}/")
        if answering is None:
            with pytest.raises(ConnectError):
                await Network().connect(url)
        else:
            connection = await Network().connect(url)
            assert connection.transport.get_extra_info("peername")[0] == place
            connection.send(b"x")
            await connection.head()
            assert await connection.body(1) == b"a"
            await connection.aclose()
        server.close()
        await asyncio.sleep(0)

    before = sockets()
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(main(), LIVENESS))
    assert sockets() == before


@pytest.mark.rule("CHTTP-41")
@both_loops
def test_connection_that_was_closed_just_now_is_known_to_be(loop: Loop) -> None:
    """Also where the event loop has had no turn since; a request on it might have run or not."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            url = RequestUrl.of(f"http://127.0.0.1:{server.getsockname()[1]}/")
            connection = await Network().connect(url)
            peer, _ = server.accept()
            assert connection.can_be_used
            peer.close()
            assert not connection.can_be_used
            await connection.aclose()

    before = sockets()
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
    assert sockets() == before


@pytest.mark.rule("CHTTP-36")
async def test_head_and_body_of_a_request_arrive_in_one_piece() -> None:
    """Two packets would cost the server a turn of its loop, and both sides a system call."""
    pieces: list[bytes] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pieces.append(await reader.read(65_536))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await reader.read()
        writer.close()

    async with asyncio.timeout(LIVENESS):
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        answer = await fetch(Network(), f"http://127.0.0.1:{port}/mcp", 60, 100, body=b"the body")
        server.close()
    assert answer.status == 200
    assert pieces[0].endswith(b"the body")


@pytest.mark.rule("CHTTP-36", "CHTTP-11")
async def test_answer_over_tls_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))

    async def answer(asked: ReceivedRequest, out: ScriptedReply) -> None:
        out.result({"text": "x" * 1_000_000})

    async with talking(answer, tls=tls) as talk:
        for _ in range(2):
            assert len((await talk.call("tools/call"))["text"]) == 1_000_000
