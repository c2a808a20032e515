"""A TCP connection that a test can cut, swallow and mend: a proxy before a server, or several."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import SplitResult, urlsplit

from attrs import define, field

PORTS = {"postgresql": 5432, "redis": 6379}


@define(eq=False)
class Cable:
    """See the module.

    Attributes:
        url: the address for clients; otherwise that of the first server.
        cuts: after so many more bytes to clients every connection is cut; the first is next.
        cut_count: how often that has happened.
    """

    _targets: Iterator[SplitResult]
    url: str = field(default="", init=False)
    cuts: list[int] = field(factory=list, init=False)
    cut_count: int = field(default=0, init=False)
    port: int = field(default=0, init=False)
    _server: asyncio.Server | None = field(default=None, init=False)
    _carrying: set[asyncio.Task[None]] = field(factory=set, init=False)
    _is_passing: asyncio.Event = field(factory=asyncio.Event, init=False)

    async def mend(self) -> None:
        """Take connections, always at the same port; each goes to the next of the servers."""
        self._is_passing.set()
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """End every connection, and refuse new ones."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        ended = self._drop()
        await asyncio.gather(*ended, return_exceptions=True)

    async def swallow(self) -> None:
        """Bring nothing to the other end; both ends find their connections open."""
        self._is_passing.clear()

    async def let_go(self) -> None:
        """Bring what was held back, and all else from now on."""
        self._is_passing.set()

    def _drop(self) -> list[asyncio.Task[None]]:
        ended = [*self._carrying]
        for task in ended:
            task.cancel()
        return ended

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)
        writers = [writer]
        try:
            target = next(self._targets)
            port = target.port or PORTS[target.scheme]
            far_reader, far_writer = await asyncio.open_connection(target.hostname, port)
            writers.append(far_writer)
            ways = [self._copy(reader, far_writer), self._copy_back(far_reader, writer)]
            tasks = [asyncio.ensure_future(way) for way in ways]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in tasks:
                    each.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            for each in writers:
                each.transport.abort()
        for each in writers:
            each.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._is_passing.wait()
            writer.write(data)
            await writer.drain()

    async def _copy_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._is_passing.wait()
            if self.cuts and len(data) >= self.cuts[0]:
                writer.write(data[: self.cuts.pop(0)])
                self.cut_count += 1
                self._drop()
                return
            if self.cuts:
                self.cuts[0] -= len(data)
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def cable(*urls: str) -> AsyncIterator[Cable]:
    """Run a cable to the servers at `urls`."""
    targets = [urlsplit(url) for url in urls]
    line = Cable(itertools.cycle(targets))
    await line.mend()
    user, at, _ = targets[0].netloc.rpartition("@")
    line.url = targets[0]._replace(netloc=f"{user}{at}127.0.0.1:{line.port}").geturl()
    try:
        yield line
    finally:
        await line.cut()


@contextmanager
def cable_in_thread(url: str) -> Iterator[tuple[Cable, Callable[[Coroutine[Any, Any, Any]], Any]]]:
    """Run a cable for a test without a loop; yield it, and what runs a coroutine of it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def do(what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, loop).result()

    stack = AsyncExitStack()
    try:
        yield do(stack.enter_async_context(cable(url))), do
    finally:
        do(stack.aclose())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
