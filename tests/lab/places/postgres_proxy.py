"""A proxy before PostgreSQL that delays or cuts chosen messages of the protocol.

A fault strikes at a message and ends at another event of the protocol, never after a time, so a
test with it does the same every time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from typing import Final

import psycopg.conninfo
from attrs import define, field

_CANCEL_REQUEST: Final = 80877102
_READY_FOR_QUERY: Final = b"Z\x00\x00\x00\x05"
_FLUSH: Final = b"H\x00\x00\x00\x04"
_COMMAND_COMPLETE: Final = b"C\x00\x00\x00"
_LAST_WORD: Final = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0"


class ProxyFault(StrEnum):
    """A fault of a connection, at a message of its client."""

    CUT_BEFORE = "cut before the server has it"
    CUT_AFTER = "cut after the server has carried it out"
    LATE = "answered when the client asks to cancel it"
    """If the client never asks, the answer is never delivered."""
    SILENT = "cut when the client asks to cancel it"
    ENDED = "answered, but for its Sync, which the last word of the server answers"
    """The end of the connection does not come before the client closes it."""


@define(eq=False)
class PostgresProxy:
    """See the module.

    Attributes:
        url: the address for clients.
        struck: how often each fault has struck.
    """

    url: str
    _host: str
    _port: int
    _plans: list[tuple[bytes, ProxyFault]] = field(factory=list, init=False)
    struck: int = field(default=0, init=False)
    _cancelled: asyncio.Event = field(factory=asyncio.Event, init=False)
    _connections: set[asyncio.Task[None]] = field(factory=set, init=False)

    def plan(self, text: str, fault: ProxyFault, times: int = 1) -> None:
        """Have a fault strike at the next so many messages of clients that contain a text."""
        self._plans += [(text.encode(), fault)] * times

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection of a client."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            length = await reader.readexactly(4)
            rest = await reader.readexactly(int.from_bytes(length) - 4)
            if int.from_bytes(rest[:4]) == _CANCEL_REQUEST:
                self._cancelled.set()  # and is not passed on: it would come too late
            else:
                await self._carry(reader, writer, length + rest)
        await _close(writer)

    async def close(self) -> None:
        """End every connection."""
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, startup: bytes
    ) -> None:
        from_server, to_server = await asyncio.open_connection(self._host, self._port)
        to_server.write(startup)
        answers = _Answers(from_server, writer)
        answering = asyncio.create_task(answers.forward())
        fault: ProxyFault | None = None
        prepared: dict[bytes, bytes] = {}  # the texts of statements, by name
        try:
            while True:
                head = await reader.readexactly(5)
                message = head + await reader.readexactly(int.from_bytes(head[1:]) - 4)
                found = self._fault_at(message, prepared)
                fault = found or fault
                if fault is ProxyFault.CUT_BEFORE:
                    return
                if found is not None:
                    self._cancelled.clear()
                    answers.hold()
                if fault is ProxyFault.ENDED and message[:1] == b"S":
                    to_server.write(_FLUSH)
                    await answers.carried_out.wait()
                    answers.end()
                    await reader.read()
                    return
                to_server.write(message)
                if fault is not None and message[:1] in b"QS":  # the server answers it now
                    if not await self._go_on(fault, reader, answers):
                        return
                    fault = None
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
            await _close(to_server)

    def _fault_at(self, message: bytes, prepared: dict[bytes, bytes]) -> ProxyFault | None:
        text = message
        if message[:1] == b"P":
            name, text, _ = message[5:].split(b"\0", 2)
            prepared[name] = text
        elif message[:1] == b"B":
            text = prepared.get(message[5:].split(b"\0", 2)[1], b"")
        elif message[:1] != b"Q":
            return None
        if self._plans and self._plans[0][0] in text:
            self.struck += 1
            return self._plans.pop(0)[1]
        return None

    async def _go_on(
        self, fault: ProxyFault, reader: asyncio.StreamReader, answers: _Answers
    ) -> bool:
        """Wait for the end of a fault; return whether the connection goes on."""
        if fault is ProxyFault.CUT_AFTER:
            await answers.complete.wait()
            return False
        cancelled = asyncio.create_task(self._cancelled.wait())
        closed = asyncio.create_task(reader.read(1))  # clients send nothing before the answer
        await asyncio.wait({cancelled, closed}, return_when=asyncio.FIRST_COMPLETED)
        was_cancelled = cancelled.done()
        cancelled.cancel()
        closed.cancel()
        with suppress(asyncio.CancelledError):
            await closed
        if fault is ProxyFault.SILENT or not was_cancelled:
            return False
        await answers.complete.wait()
        answers.let_go()
        return True


@define(eq=False)
class _Answers:
    """The messages of the server to one client, which may be held back."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    complete: asyncio.Event = field(factory=asyncio.Event, init=False)
    carried_out: asyncio.Event = field(factory=asyncio.Event, init=False)
    _held: bytes | None = field(default=None, init=False)

    async def forward(self) -> None:
        while data := await self.reader.read(65536):
            if self._held is None:
                self.writer.write(data)
                continue
            self._held += data
            if _COMMAND_COMPLETE in self._held:
                self.carried_out.set()
            if _READY_FOR_QUERY in self._held:
                self.complete.set()
        self.writer.close()

    def hold(self) -> None:
        self._held = b""
        self.complete.clear()
        self.carried_out.clear()

    def end(self) -> None:
        """Deliver what was held, and the server's last word."""
        self.let_go()
        self.writer.write(b"E" + (len(_LAST_WORD) + 4).to_bytes(4) + _LAST_WORD)

    def let_go(self) -> None:
        assert self._held is not None
        self.writer.write(self._held)
        self._held = None


@asynccontextmanager
async def postgres_proxy(url: str) -> AsyncIterator[PostgresProxy]:
    """Run a proxy before the server at `url`, on a free port."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    host, port = str(parts.get("host") or "127.0.0.1"), int(parts.get("port") or 5432)
    proxy = PostgresProxy("", host, port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    own_port = server.sockets[0].getsockname()[1]
    proxy.url = psycopg.conninfo.make_conninfo(
        url, host="127.0.0.1", port=own_port, sslmode="disable", gssencmode="disable"
    )
    async with server:
        try:
            yield proxy
        finally:
            await proxy.close()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
