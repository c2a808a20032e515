"""Server-sent events, and the body of a response that carries them.

An event is what the HTML standard has under "server-sent events" (section 9.2). Messages are JSON
without line breaks, so each is one `data` field.

A body is written by whoever has something to say and sent by the coroutine that holds the response.
What lies between the two is bounded: a client that stops reading is cut off, and what it missed it
can ask for again where the revision knows a way (HTTP-17).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from attrs import define, field

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]

KEEP_ALIVE = b":\n\n"
"""A comment: it says nothing, and nothing in between takes the connection for idle."""

MAX_PENDING_BYTES = 1024 * 1024
"""What is kept for a client that does not read; one message is taken whatever its size."""


def encode_event(line: bytes, event_id: str | None = None, kind: str | None = None) -> bytes:
    """One message as an event.

    Args:
        line: without a line break.
        event_id: where a client can resume after it.
        kind: the event's type; by default it is a message.
    """
    head = b"" if event_id is None else b"id: %s\n" % event_id.encode()
    if kind is not None:
        head += b"event: %s\n" % kind.encode()
    return b"%sdata: %s\n\n" % (head, line)


def encode_priming(event_id: str, retry_ms: int, *, visible: bool) -> bytes:
    """The first event of a stream: where to resume, and after how long (SEP-1699).

    Args:
        visible: with an empty `data`, which makes it an event. A client that expects JSON in every
            event is spared it: without `data` only the id and the delay are taken over.
    """
    data = b"data: \n" if visible else b""
    return b"id: %s\nretry: %d\n%s\n" % (event_id.encode(), retry_ms, data)


def encode_retry(retry_ms: int) -> bytes:
    """Says, before a stream is closed that goes on, when to come back."""
    return b"retry: %d\n\n" % retry_ms


@define(eq=False, repr=False)
class EventBody:
    """The body of one response, open until it is ended from either side.

    Everything but `pump` and `wait` returns at once; all of it belongs to the event loop's thread.

    Args:
        cut_connection: ends the connection without waiting for the client to take what was
            written. None where the server offers no such thing.
        hold: is told how many bytes more, or fewer, are kept for the client (HTTP-29).

    Attributes:
        ended: nothing more is taken; what was taken is still sent.
        gone: the client has gone, or was cut off: nothing is sent.
    """

    cut_connection: Callable[[], object] | None = None
    hold: Callable[[int], object] | None = None
    max_pending_bytes: int = MAX_PENDING_BYTES
    ended: bool = field(default=False, init=False)
    gone: bool = field(default=False, init=False)
    _chunks: list[bytes] = field(factory=list, init=False)
    _pending_bytes: int = field(default=0, init=False)
    _waiter: asyncio.Future[bool] | None = field(default=None, init=False)
    _sender: asyncio.Task[Any] | None = field(default=None, init=False)

    def write(self, chunk: bytes) -> None:
        """Have `chunk` sent; a client that is too far behind is cut off instead."""
        if self.ended:
            return
        if self._chunks and self._pending_bytes + len(chunk) > self.max_pending_bytes:
            self._cut_off()
            return
        self._chunks.append(chunk)
        self._count(self._pending_bytes + len(chunk))
        self.wake()

    def begin_with(self, chunk: bytes) -> None:
        """Have `chunk`, of any size, sent before all that was written."""
        self._chunks.insert(0, chunk)
        self._count(self._pending_bytes + len(chunk))

    def end(self) -> None:
        """Nothing more follows."""
        self.ended = True
        self.wake()

    def leave(self) -> None:
        """The client has gone."""
        self.ended = self.gone = True
        self._chunks.clear()
        self._count(0)
        self.wake()

    def wake(self) -> None:
        """Have `wait` return."""
        if self._waiter is not None:
            _resolve(self._waiter, True)

    async def wait(self, seconds: float) -> bool:
        """Until something has happened, `seconds` at most; return whether something has."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiter = waiter
        timer = loop.call_later(seconds, _resolve, waiter, False)
        try:
            return await waiter
        finally:
            timer.cancel()
            self._waiter = None

    async def pump(self, send: Send, keep_alive_seconds: float) -> None:
        """Send what is written until the body has ended; a comment whenever it was silent."""
        self._sender = asyncio.current_task()
        while not self.gone:
            if self._chunks:
                chunk = b"".join(self._chunks)
                self._chunks.clear()
                # Counted until it is sent: `send` waits while the client does not read.
                with suppress(OSError):  # the client has gone; its disconnect says so as well
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                del chunk  # the next one may be long in coming
                self._count(sum(map(len, self._chunks)))
            elif self.ended:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            elif not await self.wait(keep_alive_seconds):
                self._chunks.append(KEEP_ALIVE)

    def _count(self, pending_bytes: int) -> None:
        """Note how many bytes are pending from now on."""
        more = pending_bytes - self._pending_bytes
        self._pending_bytes = pending_bytes
        if self.hold is not None and more:
            self.hold(more)

    def _cut_off(self) -> None:
        self.leave()
        if self.cut_connection is not None:
            self.cut_connection()
        elif self._sender is not None:
            # It may be waiting for the client to read, for ever.
            self._sender.cancel()


def _resolve(waiter: asyncio.Future[bool], happened: bool) -> None:
    if not waiter.done():
        waiter.set_result(happened)
