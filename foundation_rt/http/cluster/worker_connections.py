"""Connections to other workers, each for one request at a time (HTTP-61, HTTP-67).

    open ── send ── the response ─┬─ complete, to a worker of this host ──► idle, until `open`
                                  └─ else ────────────────────────────────► closed

A connection that is used again may have been closed by its worker when the request is sent. Over a
Unix socket it is certain then that the worker has not read the request: the system says so, and the
request may be sent again. Over TCP a reset may come from anything in between, after the worker has
read the request, so connections to other hosts are used once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from attrs import define, field

from ...base.http_client.connection import HttpConnection
from ..asgi import SECURED

if TYPE_CHECKING:
    from ..asgi import Event

Address = str | tuple[str, int]
"""The path of a Unix socket; or a host and a port."""

OF_ONE_CONNECTION = frozenset(
    (b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
"""Headers that mean one connection (RFC 9110, section 7.6.1)."""

PUT_OFF = (b"foundation-rt-put-off", b"1")
"""The header of a refusal by a worker that stops, which has done nothing of the request."""

MAX_IDLE = 32
"""Connections to one worker that wait for a request."""

_NOT_RETURNED = OF_ONE_CONNECTION | {b"date", PUT_OFF[0]}
_CONNECT_SECONDS = 2.0


class WorkerConnection(HttpConnection):
    """One HTTP connection to a worker. Belongs to one event loop.

    Args:
        address: of the worker.
        pool: takes the connection back.

    Attributes:
        address: of the worker.
        is_unread: whether it has ended before the worker has read the whole request, or the worker
            has put the request off.
    """

    __slots__ = ("_is_end_taken", "_is_head_taken", "_pool", "address", "is_unread")

    most_kept: ClassVar[int] = 64 * 1024

    def __init__(self, address: Address, pool: WorkerConnections) -> None:
        super().__init__()
        self.address = address
        self._pool = pool
        self.is_unread = self._is_head_taken = self._is_end_taken = False

    # -- one request -----------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send a request, encoded."""
        self._is_head_taken = self._is_end_taken = False
        self.is_unread = self.is_over and isinstance(self.address, str)
        super().send(data)

    async def wait_for_news(self, seconds: float | None = None) -> None:
        """Wait until there is something to take, the connection has ended, or the time is up."""
        if self.has_body or self.is_complete or self.is_over or self._is_head_new:
            return
        timer = None if seconds is None else self._loop.call_later(seconds, self._wake)
        try:
            await self.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def events(self) -> list[Event]:
        """Return what has come of the response since the last call, and read on.

        The last event of a response says so; without an event, the connection was lost before.
        """
        events: list[Event] = []
        if self._is_head_new:
            self._is_head_taken = True
            lowered = [(name.lower(), value) for name, value in self.headers]
            headers = [each for each in lowered if each[0] not in _NOT_RETURNED]
            start = {"type": "http.response.start", "status": self.status}
            events.append({**start, "headers": headers, SECURED: True})
        pieces = self.take()
        if pieces or (self.is_complete and not self._is_end_taken):
            self._is_end_taken = self.is_complete
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            more = not self.is_complete
            events.append({"type": "http.response.body", "body": body, "more_body": more})
        return events

    async def answer(self) -> bytes | None:
        """Return the whole body of a response; None if it is lost or refuses."""
        events: list[Event] = []
        while not self._is_end_taken:
            await self.wait_for_news()
            taken = self.events()
            if not taken:
                return None
            events += taken
        return b"".join(each.get("body", b"") for each in events) if self.status == 200 else None

    def finish(self) -> None:
        """Let another request have the connection; close it if the response is not complete."""
        is_local = isinstance(self.address, str)
        if is_local and self._is_end_taken and not (self.is_last or self.is_over):
            self._pool.keep(self)
        else:
            self.abort()

    @property
    def _is_head_new(self) -> bool:
        return self.status > 0 and not self._is_head_taken

    # -- asyncio and httptools -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count among the open connections."""
        super().connection_made(transport)
        self._pool.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake who waits: the connection has ended."""
        super().connection_lost(exc)
        self._pool.forget(self)

    def _end(self, error: Exception | None) -> None:
        if not (self.is_over or self.status) and isinstance(self.address, str):
            # What is left to write was not read; nor was what the system says it dropped.
            left = self._transport.get_write_buffer_size() > 0
            self.is_unread = left or isinstance(error, ConnectionResetError | BrokenPipeError)
        super()._end(error)

    def on_headers_complete(self) -> None:
        """Begin the response, or note that the worker has put the request off."""
        super().on_headers_complete()
        if isinstance(self.address, str):
            self.is_unread = any(name.lower() == PUT_OFF[0] for name, _ in self.headers)


@define(eq=False, repr=False)
class WorkerConnections:
    """All connections of this worker to others; belongs to one event loop."""

    _idle: dict[Address, list[WorkerConnection]] = field(factory=dict, init=False)
    _open: set[WorkerConnection] = field(factory=set, init=False)

    async def ask(self, address: Address, question: bytes, seconds: float) -> bytes | None:
        """Return the body that a worker answers with; None without one, or in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for _ in range(2):  # the first connection may have been closed while it was idle
                    connection = await self.open(address)
                    if connection is None:
                        break
                    connection.send(question)
                    try:
                        body = await connection.answer()
                    finally:
                        connection.finish()
                    if not connection.is_unread:
                        return body
        return None

    async def open(self, address: Address) -> WorkerConnection | None:
        """Return a connection to a worker; None if nothing listens there."""
        idle = self._idle.get(address)
        while idle:
            connection = idle.pop()  # the one that was used last
            if not connection.is_over:
                return connection
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                if isinstance(address, str):
                    _, connection = await loop.create_unix_connection(
                        lambda: WorkerConnection(address, self), address
                    )
                else:
                    _, connection = await loop.create_connection(
                        lambda: WorkerConnection(address, self), *address
                    )
        except OSError:
            return None
        return connection

    def add(self, connection: WorkerConnection) -> None:
        """Keep account of a connection until `forget`."""
        self._open.add(connection)

    def keep(self, connection: WorkerConnection) -> None:
        """Keep a connection for the next request, unless there are many."""
        idle = self._idle.setdefault(connection.address, [])
        if len(idle) < MAX_IDLE:
            idle.append(connection)
        else:
            connection.abort()

    def forget(self, connection: WorkerConnection) -> None:
        """Drop a connection that has ended."""
        self._open.discard(connection)
        idle = self._idle.get(connection.address)
        if idle is not None and connection in idle:
            idle.remove(connection)

    def close(self) -> None:
        """Close all connections."""
        for each in [*self._open]:
            each.abort()

    @property
    def descriptors(self) -> list[int]:
        """Return the descriptors that no forked child may use."""
        return [found for each in self._open if (found := each.descriptor) is not None]
