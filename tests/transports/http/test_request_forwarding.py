"""One request on its way to another worker, which is scripted: byte for byte, and how it breaks."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from foundation_rt.transports.http.asgi import HttpRefusal
from foundation_rt.transports.http.forwarding import Forwarded, forward
from foundation_rt.transports.http.headers import RequestHead
from foundation_rt.transports.http.request import HttpRequest
from foundation_rt.transports.http.request_routing import RequestRouter
from tests.support.asgi import PATIENCE, Visit

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nDate: now\r\n"


def request(visit: Visit, method: str = "POST") -> HttpRequest:
    headers = [(b"host", b"here"), (b"origin", b"http://a"), (b"connection", b"keep-alive")]
    scope: dict[str, Any] = {
        "method": method,
        "raw_path": b"/mcp",
        "query_string": b"a=b",
        "headers": [*headers, (b"x-api-key", b"secret"), (b"content-length", b"999")],
        "extensions": {"foundation_rt.cut_connection": visit.cut_connection},
    }
    return HttpRequest(RequestHead(), None, scope, visit.receive, visit.send)


@asynccontextmanager
async def worker(script: Script) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(reader, writer)
        finally:
            writer.close()

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "0.sock")
        server = await asyncio.start_unix_server(serve, path)
        async with asyncio.timeout(PATIENCE):
            try:
                yield path
            finally:
                server.close()


async def send(path: str, visit: Visit, method: str = "POST", body: bytes = b"{}") -> Forwarded:
    forwarded = await forward(request(visit, method), body, path)
    assert forwarded is not None
    return forwarded


@pytest.mark.rule("HTTP-61")
async def test_request_and_response_pass_without_the_headers_of_one_connection() -> None:
    came: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await reader.readuntil(b"{}"))
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")

    visit = Visit()
    visit.read()
    async with worker(script) as path:
        forwarded = await send(path, visit)
        assert await forwarded.relay(request(visit)) is None
    assert came == [
        b"POST /mcp?a=b HTTP/1.1\r\nhost: here\r\nx-api-key: secret\r\n"
        b"content-length: 2\r\nconnection: close\r\n\r\n{}"
    ]
    assert (visit.status, visit.headers) == (200, {"content-type": "text/event-stream"})
    assert visit.body == b"abc" and visit.ended


@pytest.mark.rule("HTTP-67")
async def test_worker_that_dies_before_it_responds_is_a_502() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")

    visit = Visit()
    async with worker(script) as path:
        refusal = await (await send(path, visit)).relay(request(visit))
    assert refusal is not None and (refusal.status, refusal.reason) == (502, "worker_lost")


@pytest.mark.rule("HTTP-67")
async def test_worker_that_dies_within_a_response_takes_the_connection_with_it() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Length: 10\r\n\r\nabc")

    visit = Visit()
    visit.read()
    async with worker(script) as path:
        assert await (await send(path, visit)).relay(request(visit)) is None
    assert visit.body == b"abc" and visit.cut and not visit.ended


@pytest.mark.rule("HTTP-16")
async def test_stream_of_a_listener_ends_in_order_when_this_worker_stops() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await reader.read()
        await reader.read()

    visit = Visit()
    visit.read()
    async with worker(script) as path:
        forwarded = await send(path, visit, "GET")
        relaying = asyncio.create_task(forwarded.relay(request(visit, "GET")))
        await visit.until(lambda: visit.body == b"abc")
        forwarded.end()
        assert await relaying is None
    assert visit.ended and not visit.cut


@pytest.mark.rule("HTTP-67")
async def test_client_that_leaves_is_gone_for_the_other_worker() -> None:
    left = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        await reader.read()
        left.set()

    visit = Visit()
    async with worker(script) as path:
        relaying = asyncio.create_task((await send(path, visit)).relay(request(visit)))
        visit.leave()
        assert await relaying is None
        await left.wait()
    assert visit.status is None


@pytest.mark.rule("HTTP-61", "HTTP-17")
async def test_no_more_is_read_than_the_client_takes() -> None:
    written = 0
    size, most = 1024 * 1024, 64 * 1024 * 1024

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % most)
        while written < most:
            writer.write(bytes(size))
            written += size
            await writer.drain()

    visit = Visit()  # it does not read
    async with worker(script) as path:
        relaying = asyncio.create_task((await send(path, visit)).relay(request(visit)))
        before = -1
        while written != before:  # until the worker waits
            before = written
            for _ in range(1000):
                await asyncio.sleep(0)
        assert written <= 4 * size
        visit.leave()
        visit.read()
        assert await relaying is None


async def test_place_without_a_worker_is_no_address(tmp_path: Path) -> None:
    assert await forward(request(Visit()), b"", str(tmp_path / "0.sock")) is None
    assert await forward(request(Visit()), b"", ("127.0.0.1", 1)) is None


@pytest.mark.rule("HTTP-65")
async def test_place_that_gets_no_worker_is_a_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foundation_rt.transports.http.request_routing.PATIENCE_SECONDS", 0.0)

    class Group:
        async def find(self, session_id: str, principal: None, scope: object) -> str:
            return str(tmp_path / "0.sock")

    router = RequestRouter(cast(Any, Group()), cast(Any, {}), lambda *_: None)
    asked = request(Visit())
    asked.head.session_id = "a"
    taken = await router.take(asked)
    assert isinstance(taken, HttpRefusal)
    assert (taken.status, taken.reason) == (503, "worker_unreachable")
    assert await router.respond(asked, taken) is taken
