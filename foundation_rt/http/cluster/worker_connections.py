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
from typing import TYPE_CHECKING, Any

import httptools
from attrs import define, field

from ..asgi import SECURED

if TYPE_CHECKING:
    from ..asgi import Event, RawHeader

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

_NOT_RETURNED = OF_ONE_CONNECTION | {b"date"}
_BUFFER_BYTES = 64 * 1024
_CONNECT_SECONDS = 2.0


class WorkerConnection(asyncio.Protocol):
    """One HTTP connection to a worker; httptools calls it back. Belongs to one event loop.

    A plain class: its attributes are looked at several times for each request.

    Args:
        address: of the worker.
        pool: takes the connection back.

    Attributes:
        address: of the worker.
        has_begun: whether the response has begun.
        is_complete: whether the response has ended.
        is_lost: whether the connection has ended.
        is_unread: whether it has ended before the worker has read the whole request, or the worker
            has put the request off.
    """

    __slots__ = (
        "_chunks",
        "_headers",
        "_is_end_taken",
        "_is_head_taken",
        "_is_idle",
        "_is_paused",
        "_keeps_alive",
        "_loop",
        "_parser",
        "_pool",
        "_size",
        "_status",
        "_transport",
        "_waiter",
        "address",
        "has_begun",
        "is_complete",
        "is_lost",
        "is_unread",
    )

    def __init__(self, address: Address, pool: WorkerConnections) -> None:
        self.address = address
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._waiter: asyncio.Future[None] | None = None
        self._is_idle = True
        self.is_lost = self.is_unread = False
        self._prepare()

    def _prepare(self) -> None:
        self.has_begun = self.is_complete = self._is_head_taken = self._is_end_taken = False
        self._keeps_alive = self._is_paused = False
        self._status = self._size = 0
        self._headers: list[RawHeader] = []
        self._chunks: list[bytes] = []

    @property
    def descriptor(self) -> int | None:
        """Return the descriptor of the connection; None once it is closed."""
        if self.is_lost or self._transport.is_closing():
            return None
        found: int = self._transport.get_extra_info("socket").fileno()
        return found

    # -- one request -----------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send a request, encoded."""
        self._prepare()
        self._is_idle = False
        self.is_unread = self.is_lost and isinstance(self.address, str)
        self._transport.write(data)

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until there is something to take, the connection has ended, or the time is up."""
        if self._has_news():
            return
        self._waiter = self._loop.create_future()
        timer = None if seconds is None else self._loop.call_later(seconds, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def take(self) -> list[Event]:
        """Return what has come of the response since the last call, and read on.

        The last event of a response says so; without an event, the connection was lost before.
        """
        events: list[Event] = []
        if self.has_begun and not self._is_head_taken:
            self._is_head_taken = True
            start = {"type": "http.response.start", "status": self._status}
            events.append({**start, "headers": self._headers, SECURED: True})
        if self._chunks or (self.is_complete and not self._is_end_taken):
            body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
            self._chunks, self._size, self._is_end_taken = [], 0, self.is_complete
            more = not self.is_complete
            events.append({"type": "http.response.body", "body": body, "more_body": more})
        if self._is_paused and not self.is_complete:
            self._is_paused = False
            self._transport.resume_reading()
        return events

    async def body(self) -> bytes | None:
        """Return the whole body of a response; None if it is lost or refuses."""
        events: list[Event] = []
        while not self._is_end_taken:
            await self.wait()
            taken = self.take()
            if not taken:
                return None
            events += taken
        return b"".join(each.get("body", b"") for each in events) if self._status == 200 else None

    def finish(self) -> None:
        """Let another request have the connection; close it if the response is not complete."""
        if self._is_end_taken and self._keeps_alive and not self.is_lost:
            self._is_idle = True
            self._pool.keep(self)
        else:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def _has_news(self) -> bool:
        is_head_new = self.has_begun and not self._is_head_taken
        return bool(self._chunks) or self.is_complete or self.is_lost or is_head_new

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- asyncio ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count among the open connections."""
        self._transport = transport  # type: ignore[assignment]
        self._pool.add(self)

    def data_received(self, data: bytes) -> None:
        """Parse a part of the response."""
        if self._is_idle or self.is_complete:
            self.abort()  # nothing was asked
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.abort()
        if self._size > _BUFFER_BYTES and not self._is_paused and not self.is_complete:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """Let nothing more be sent: the worker has closed the connection."""
        self._note_loss(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Wake who waits: the connection has ended."""
        self._note_loss(error)
        self._pool.forget(self)

    def _note_loss(self, error: Exception | None) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        if not self.has_begun and isinstance(self.address, str):
            # What is left to write was not read; nor was what the system says it dropped.
            left = self._transport.get_write_buffer_size() > 0
            self.is_unread = left or isinstance(error, ConnectionResetError | BrokenPipeError)
        self._wake()

    # -- httptools -------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header of the response, unless it means this connection."""
        name = name.lower()
        if name == PUT_OFF[0]:
            self.is_unread = isinstance(self.address, str)
        elif name not in _NOT_RETURNED:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Begin the response."""
        self._status, self.has_begun = self._parser.get_status_code(), True

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body until it is taken."""
        self._chunks.append(body)
        self._size += len(body)

    def on_message_complete(self) -> None:
        """End the response."""
        self.is_complete = True
        self._keeps_alive = isinstance(self.address, str) and self._parser.should_keep_alive()


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
                        body = await connection.body()
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
            if not connection.is_lost:
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
