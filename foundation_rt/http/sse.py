"""Server-sent events, and the body of a response that carries them.

The HTML standard defines events under "server-sent events" (section 9.2). Messages are JSON
without line breaks, so each is one `data` field.

Several writers may fill a body; the coroutine that holds the response sends it. The buffer in
between is bounded: a client that stops reading is cut off, and can ask for the events that it
missed where its revision allows resuming (HTTP-17).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..base.shown import Shown

if TYPE_CHECKING:
    from .asgi import Send

KEEP_ALIVE = b":\n\n"
"""A comment: it carries nothing, and keeps proxies from taking the connection for idle."""

MAX_PENDING_BYTES = 1024 * 1024
"""The most that is buffered for a client that does not read; one message may be larger."""


def encode_event(line: bytes, event_id: str | None = None, kind: str | None = None) -> bytes:
    """Return one message as an event.

    Args:
        line: the message, without a line break.
        event_id: the id from which a client can resume after it.
        kind: the event's type; by default it is a message.
    """
    head = b"" if event_id is None else b"id: %s\n" % event_id.encode()
    if kind is not None:
        head += b"event: %s\n" % kind.encode()
    return b"%sdata: %s\n\n" % (head, line)


def encode_priming(event_id: str, retry_ms: int, *, visible: bool) -> bytes:
    """Return the first event of a stream: its id, and the delay before a reconnect (SEP-1699).

    Args:
        event_id: the id from which a client can resume.
        retry_ms: the delay, in milliseconds.
        visible: whether it has an empty `data`, which makes it an event. Clients that expect JSON
            in every event get none: without `data` a client only takes over the id and the delay.
    """
    data = b"data: \n" if visible else b""
    return b"id: %s\nretry: %d\n%s\n" % (event_id.encode(), retry_ms, data)


def encode_retry(retry_ms: int) -> bytes:
    """Return the delay before a reconnect; sent before the response of a live stream ends."""
    return b"retry: %d\n\n" % retry_ms


@define(eq=False, repr=False)
class EventBody(Shown):
    """The body of one response, open until it is ended from either side.

    Every method except `pump` and `wait` returns at once. Belongs to the event loop's thread.

    Args:
        cut_connection: ends the connection without waiting until the client has read what was
            written; None if the HTTP server cannot do that.
        hold: is called with the change in the number of buffered bytes (HTTP-29).
        max_pending_bytes: the bound of the buffer.

    Attributes:
        ended: whether the body is complete; what was written is still sent.
        gone: whether the client has gone or was cut off; nothing more is sent.
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
        """Buffer `chunk` to be sent; cut off a client that is too far behind."""
        if self.ended:
            return
        if self._chunks and self._pending_bytes + len(chunk) > self.max_pending_bytes:
            self._cut_off()
            return
        self._chunks.append(chunk)
        self._count(self._pending_bytes + len(chunk))
        self.wake()

    def begin_with(self, chunk: bytes) -> None:
        """Buffer `chunk`, of any size, to be sent before everything written so far."""
        self._chunks.insert(0, chunk)
        self._count(self._pending_bytes + len(chunk))

    def end(self) -> None:
        """Complete the body: later writes are ignored."""
        self.ended = True
        self.wake()

    def leave(self) -> None:
        """Drop what is buffered, since the client has gone."""
        self.ended = self.gone = True
        self._chunks.clear()
        self._count(0)
        self.wake()

    def wake(self) -> None:
        """Let `wait` return."""
        if self._waiter is not None:
            _resolve(self._waiter, True)

    async def wait(self, seconds: float) -> bool:
        """Wait for the next `wake`, `seconds` at most; return whether it came in time."""
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
        """Send what is written until the body has ended, and a comment after each silence."""
        self._sender = asyncio.current_task()
        while not self.gone:
            if self._chunks:
                chunk = b"".join(self._chunks)
                self._chunks.clear()
                # The chunk counts until it is sent: `send` waits while the client does not read.
                with suppress(OSError):  # the client has gone; a disconnect follows
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                del chunk  # the next one may come much later
                self._count(sum(map(len, self._chunks)))
            elif self.ended:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            elif not await self.wait(keep_alive_seconds):
                self._chunks.append(KEEP_ALIVE)

    def _count(self, pending_bytes: int) -> None:
        """Set the number of pending bytes."""
        more = pending_bytes - self._pending_bytes
        self._pending_bytes = pending_bytes
        if self.hold is not None and more:
            self.hold(more)

    def _cut_off(self) -> None:
        self.leave()
        if self.cut_connection is not None:
            self.cut_connection()
        elif self._sender is not None:
            # It may wait for ever for the client to read.
            self._sender.cancel()


def _resolve(waiter: asyncio.Future[bool], happened: bool) -> None:
    if not waiter.done():
        waiter.set_result(happened)
