"""The bytes of HTTP: one connection of the client's, against a socket that does as it is told."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpcore2
import pytest
import uvloop

from foundation_rt.client.transports import http_network
from foundation_rt.client.transports.http_network import Network, NetworkStream
from tests.support.leaks import ResourceSnapshot
from tests.support.scripted_http import ReceivedRequest, ScriptedReply, self_signed, talking

LIVENESS = 60.0

both_loops = pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
Loop = Callable[[], asyncio.AbstractEventLoop]
Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def connected(loop: Loop, peer: Peer, scenario: Callable[[NetworkStream], Awaitable[None]]) -> None:
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
            stream = await Network().connect_tcp("127.0.0.1", port)
            try:
                await scenario(stream)
            finally:
                await stream.aclose()
                server.close()
                await asyncio.sleep(0)

    before = sockets()
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
    assert sockets() == before


def sockets() -> set[str]:
    """Return the sockets of this process; uvloop keeps a pipe of its own."""
    return {each for each in ResourceSnapshot.now().descriptors if "socket:" in each}


@pytest.mark.rule("CHTTP-36")
@both_loops
def test_writes_are_sent_when_the_response_is_read(loop: Loop) -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read(100))

    async def scenario(stream: NetworkStream) -> None:
        await stream.write(b"head ")
        await stream.write(b"body")
        assert await stream.read(4) == b"head"
        assert await stream.read(100) == b" body"
        assert await stream.read(100) == b""
        assert stream.get_extra_info("is_readable")
        with pytest.raises(httpcore2.WriteError):
            await stream.write(b"more")

    connected(loop, peer, scenario)


@pytest.mark.rule("CHTTP-36")
@both_loops
def test_write_waits_for_a_peer_that_does_not_read(loop: Loop) -> None:
    size = 32 * 1024 * 1024
    go = asyncio.Event()

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        writer.write(b"%d" % len(await reader.readexactly(size)))

    async def scenario(stream: NetworkStream) -> None:
        with pytest.raises(httpcore2.WriteTimeout):
            await stream.write(bytes(size), timeout=0.01)
        go.set()
        assert await stream.read(100) == b"%d" % size

    connected(loop, peer, scenario)


@pytest.mark.rule("CHTTP-36")
@both_loops
def test_unread_bytes_pause_the_peer(loop: Loop) -> None:
    size = 32 * 1024 * 1024
    blocked = asyncio.Event()

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(size))
        blocked.set()
        await writer.drain()

    async def scenario(stream: NetworkStream) -> None:
        await blocked.wait()
        read = most = 0
        while read < size:
            data = await stream.read(64 * 1024)
            most = max(most, len(stream._received))
            read += len(data)
        assert read == size
        assert most < 1024 * 1024

    connected(loop, peer, scenario)


@pytest.mark.rule("CHTTP-41")
@both_loops
def test_connection_that_breaks_off_is_an_error_for_its_reader(loop: Loop) -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        connection = writer.get_extra_info("socket")
        # Closed with 0 s of lingering, it is reset.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    async def scenario(stream: NetworkStream) -> None:
        with pytest.raises(httpcore2.ReadTimeout):
            await stream.read(1, timeout=0.001)
        await stream.write(b"x")
        with pytest.raises(httpcore2.ReadError):
            await stream.read(1)

    connected(loop, peer, scenario)


@pytest.mark.rule("CHTTP-42")
@both_loops
@pytest.mark.parametrize("answering", [0, 1, None])
def test_of_several_addresses_the_first_that_answers_counts(
    loop: Loop, answering: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = ["127.0.0.2", "127.0.0.3"]

    async def looked_up(host: str, port: int) -> list[str]:
        return [*addresses]

    monkeypatch.setattr(http_network, "addresses_of", looked_up)

    async def main() -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        place = "127.0.0.9" if answering is None else addresses[answering]
        server = await asyncio.start_server(accept, place, 0)
        port = server.sockets[0].getsockname()[1]
        if answering is None:
            with pytest.raises(httpcore2.ConnectError):
                await Network().connect_tcp("two.example", port)
        else:
            stream = await Network().connect_tcp("two.example", port)
            assert stream.get_extra_info("peername")[0] == place
            await stream.aclose()
        server.close()
        await asyncio.sleep(0)

    before = sockets()
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
    assert sockets() == before


@pytest.mark.rule("CHTTP-41")
@both_loops
def test_connection_that_was_closed_just_now_is_known_to_be(loop: Loop) -> None:
    """Also where the event loop has had no turn since; a request on it might have run or not."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            stream = await Network().connect_tcp("127.0.0.1", server.getsockname()[1])
            peer, _ = server.accept()
            assert not stream.get_extra_info("is_readable")
            peer.close()
            assert stream.get_extra_info("is_readable")
            await stream.aclose()

    before = sockets()
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
    assert sockets() == before


@pytest.mark.rule("CHTTP-36")
def test_head_and_body_of_a_request_arrive_in_one_piece() -> None:
    """Two packets would cost the server a turn of its loop, and both sides a system call."""
    pieces: list[bytes] = []

    async def main() -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            pieces.append(await reader.read(65_536))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            await reader.read()
            writer.close()
            await writer.wait_closed()
            closed.set()

        closed = asyncio.Event()
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with httpcore2.AsyncConnectionPool(network_backend=Network()) as pool:
            await pool.request("POST", f"http://127.0.0.1:{port}/mcp", content=b"the body")
        await closed.wait()
        server.close()

    asyncio.run(main())
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
