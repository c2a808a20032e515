"""One request on its way to another worker, which is scripted: byte for byte, and how it breaks."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from foundation_rt.http.asgi import HttpRefusal
from foundation_rt.http.cluster.request_routing import (
    Forwarded,
    RequestRouter,
    encode_request,
    forward,
)
from foundation_rt.http.cluster.worker_connections import (
    MAX_IDLE,
    PUT_OFF,
    Address,
    WorkerConnections,
)
from foundation_rt.http.headers import RequestHead
from foundation_rt.http.request import HttpRequest
from tests.lab.servers.asgi import PATIENCE, Visit
from tests.lab.waiting import settle, until

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
async def worker(script: Script, *, other_host: bool = False) -> AsyncIterator[Address]:
    serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving[task] = writer
        try:
            await script(reader, writer)
        finally:
            writer.close()

    with tempfile.TemporaryDirectory() as folder:
        address: Address = str(Path(folder) / "0.sock")
        if other_host:
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            address = server.sockets[0].getsockname()[:2]
        else:
            server = await asyncio.start_unix_server(serve, address)
        async with asyncio.timeout(PATIENCE):
            try:
                yield address
            finally:
                server.close()
                for each in serving.values():
                    each.transport.abort()
                await asyncio.gather(*serving, return_exceptions=True)


async def send(
    address: Address,
    visit: Visit,
    method: str = "POST",
    *,
    connections: WorkerConnections | None = None,
) -> Forwarded:
    data = encode_request(request(visit, method), b"{}")
    forwarded = await forward(
        connections or WorkerConnections(), address, data, is_stream=method == "GET"
    )
    assert forwarded is not None
    return forwarded


@pytest.mark.rule("OPS-14", "HTTP-67")
async def test_worker_answers_another_on_a_connection_that_both_keep() -> None:
    question = b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n"
    answer, opened = HEAD + b"Content-Length: 2\r\n\r\nok", list[asyncio.StreamWriter]()

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        with suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(answer if len(opened) < 3 else HEAD)
                if len(opened) == 3:
                    return  # in the middle of its response

    connections = WorkerConnections()
    async with worker(answers) as address:
        for _ in range(2):
            assert await connections.ask(address, question, PATIENCE) == b"ok"
        assert len(opened) == 1
        for number in (2, 3):
            opened[-1].close()
            if number == 3:  # before, the request goes where nobody reads it, and is sent again
                await until(lambda: not connections.descriptors, "the connection has ended")
            expected = b"ok" if number == 2 else None
            assert await connections.ask(address, question, PATIENCE) == expected
            assert len(opened) == number
    assert await connections.ask("/nowhere/0.sock", question, PATIENCE) is None
    connections.close()


def router_to(address: Address, connections: WorkerConnections) -> RequestRouter:
    class Group:
        async def find(self, session_id: str, principal: None, scope: object) -> Address:
            return address

        def begin(self, forwarded: Forwarded) -> Callable[[], None]:
            return lambda: None

    group = Group()
    group.connections = connections  # type: ignore[attr-defined]
    return RequestRouter(cast(Any, group), cast(Any, {}), lambda *_: None)


async def route(router: RequestRouter) -> tuple[Visit, HttpRefusal | None]:
    visit = Visit()
    visit.read()
    asked = request(visit)
    asked.head.session_id = "a"
    taken = await router.take(asked, b"{}")
    assert taken is not None
    return visit, await router.respond(asked, taken)


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
        b"POST /mcp?a=b HTTP/1.1\r\nhost: here\r\nx-api-key: secret\r\ncontent-length: 2\r\n\r\n{}"
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
            await settle(1000)
        assert written <= 4 * size
        visit.leave()
        visit.read()
        assert await relaying is None


async def test_place_without_a_worker_is_no_address(tmp_path: Path) -> None:
    for address in (str(tmp_path / "0.sock"), ("127.0.0.1", 1)):
        assert await forward(WorkerConnections(), address, b"", is_stream=False) is None


@pytest.mark.rule("HTTP-65")
async def test_place_that_gets_no_worker_is_a_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foundation_rt.http.cluster.request_routing.PATIENCE_SECONDS", 0.0)
    router = router_to(str(tmp_path / "0.sock"), WorkerConnections())
    _, refusal = await route(router)
    assert refusal is not None
    assert (refusal.status, refusal.reason) == (503, "worker_unreachable")


@pytest.mark.rule("HTTP-69")
async def test_session_that_cannot_be_looked_for_is_a_503(monkeypatch: pytest.MonkeyPatch) -> None:
    async def find(*_: object) -> Address:
        raise ConnectionError("Redis fails")

    router = router_to("", WorkerConnections())
    monkeypatch.setattr(router.group, "find", find)
    _, refusal = await route(router)
    assert refusal is not None
    assert (refusal.status, refusal.reason) == (503, "worker_unreachable")


ANSWER = HEAD + b"Content-Length: 2\r\n\r\nok"


class Worker:
    """Answers requests on any number of connections; what it does instead is scripted.

    Attributes:
        connections: how many there were.
        requests: how many it has read.
        closes_after: the number of requests after which it closes a connection.
    """

    def __init__(self, closes_after: int = 1_000, answer: bytes = ANSWER) -> None:
        self.connections = self.requests = 0
        self.closes_after = closes_after
        self.answer = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            for _ in range(self.closes_after):
                await reader.readuntil(b"{}")
                self.requests += 1
                writer.write(self.answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass


@pytest.mark.rule("HTTP-71")
async def test_connection_is_used_again_once_its_response_is_complete() -> None:
    scripted, connections = Worker(), WorkerConnections()
    async with worker(scripted.serve) as path:
        router = router_to(path, connections)
        for _ in range(3):
            visit, refusal = await route(router)
            assert refusal is None and visit.body == b"ok" and visit.ended
        assert (scripted.connections, scripted.requests) == (1, 3)
        assert len(connections.descriptors) == 1
        together = [await send(path, Visit(), connections=connections) for _ in range(MAX_IDLE + 2)]
        for each in together:
            visit = Visit()
            visit.read()
            await each.relay(request(visit))
            assert visit.body == b"ok"
        await until(lambda: len(connections.descriptors) <= MAX_IDLE, "few are idle")
        connections.close()
        assert connections.descriptors == []


@pytest.mark.rule("HTTP-71")
async def test_connection_to_another_host_is_used_once() -> None:
    scripted, connections = Worker(), WorkerConnections()
    async with worker(scripted.serve, other_host=True) as address:
        for _ in range(2):
            visit, _ = await route(router_to(address, connections))
            assert visit.body == b"ok"
    assert scripted.connections == 2


@pytest.mark.rule("HTTP-71")
async def test_request_that_its_worker_has_not_read_is_sent_again() -> None:
    scripted, connections = Worker(), WorkerConnections()
    held: list[asyncio.StreamWriter] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if held:
            await scripted.serve(reader, writer)
            return
        held.append(writer)
        await reader.readuntil(b"{}")
        writer.write(ANSWER)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await gone.wait()

    gone = asyncio.Event()
    async with worker(script) as path:
        router = router_to(path, connections)
        await route(router)
        asking = asyncio.create_task(route(router))
        await until(lambda: not connections._idle[path], "the connection is in use")
        held[0].transport.abort()
        gone.set()
        visit, refusal = await asking
        assert refusal is None and visit.body == b"ok"
        assert scripted.requests == 1


@pytest.mark.rule("HTTP-74")
async def test_request_that_a_stopping_worker_puts_off_is_sent_again() -> None:
    put_off = ANSWER.replace(b"200 OK", b"503 No").replace(b"Date: now", b"%s: %s" % PUT_OFF)
    scripted, connections = Worker(answer=put_off), WorkerConnections()
    async with worker(scripted.serve) as path:
        asking = asyncio.create_task(route(router_to(path, connections)))
        await until(lambda: scripted.requests, "the request is read")
        scripted.answer = ANSWER
        visit, refusal = await asking
        assert refusal is None and (visit.status, visit.body) == (200, b"ok")
    async with worker(Worker(answer=put_off).serve, other_host=True) as address:
        visit, _ = await route(router_to(address, connections))
        assert visit.status == 503 and PUT_OFF[0].decode() not in visit.headers


@pytest.mark.rule("HTTP-71", "HTTP-67")
async def test_request_that_its_worker_may_have_read_is_not_sent_again() -> None:
    scripted, connections = Worker(closes_after=2), WorkerConnections()
    async with worker(scripted.serve) as path:
        router = router_to(path, connections)
        await route(router)
        scripted.answer = b""  # after the second request it closes the connection
        _, refusal = await route(router)
        assert refusal is not None and refusal.reason == "worker_lost"
        assert (scripted.connections, scripted.requests) == (1, 2)


@pytest.mark.rule("HTTP-67")
@pytest.mark.parametrize("answer", [b"no HTTP", ANSWER + b"more"])
async def test_connection_that_says_more_than_was_asked_is_closed(answer: bytes) -> None:
    scripted, connections = Worker(answer=answer), WorkerConnections()
    async with worker(scripted.serve) as path:
        visit, refusal = await route(router_to(path, connections))
        assert visit.body == b"ok" if refusal is None else refusal.reason == "worker_lost"
        await until(lambda: not connections.descriptors, "the connection is closed")


@pytest.mark.rule("HTTP-71")
async def test_connection_that_its_worker_has_closed_is_not_used() -> None:
    scripted, connections = Worker(closes_after=1), WorkerConnections()
    async with worker(scripted.serve) as path:
        for _ in range(2):
            visit, _ = await route(router_to(path, connections))
            assert visit.body == b"ok"
            await until(lambda: not connections.descriptors, "the connection is closed")
    assert scripted.connections == 2
