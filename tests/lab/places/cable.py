"""A TCP connection that a test can cut, swallow and mend: a proxy before a PostgreSQL server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg.conninfo
from attrs import define, field


@define(eq=False)
class Cable:
    """See the module.

    Attributes:
        url: the address for clients.
    """

    url: str
    _host: str
    _far_port: int
    _port: int = field(default=0, init=False)
    _server: asyncio.Server | None = field(default=None, init=False)
    _carrying: set[asyncio.Task[None]] = field(factory=set, init=False)
    _is_passing: asyncio.Event = field(factory=asyncio.Event, init=False)

    async def mend(self) -> None:
        """Take connections, always at the same port."""
        self._is_passing.set()
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """End every connection, and refuse new ones."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    def swallow(self) -> None:
        """Bring nothing to the other end; both ends find their connections open."""
        self._is_passing.clear()

    def let_go(self) -> None:
        """Bring what was held back, and all else from now on."""
        self._is_passing.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)
        writers = [writer]
        with suppress(OSError, asyncio.CancelledError):
            far_reader, far_writer = await asyncio.open_connection(self._host, self._far_port)
            writers.append(far_writer)
            ways = [self._copy(reader, far_writer), self._copy(far_reader, writer)]
            tasks = [asyncio.ensure_future(way) for way in ways]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in tasks:
                    each.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        for each in writers:
            each.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._is_passing.wait()
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def cable(url: str) -> AsyncIterator[Cable]:
    """Run a cable to the PostgreSQL server at `url`."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    line = Cable("", str(parts.get("host") or "127.0.0.1"), int(parts.get("port") or 5432))
    await line.mend()
    line.url = psycopg.conninfo.make_conninfo(
        url, host="127.0.0.1", port=line._port, sslmode="disable", gssencmode="disable"
    )
    try:
        yield line
    finally:
        await line.cut()
