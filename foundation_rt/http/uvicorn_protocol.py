"""uvicorn's side of a connection, with the limits that it leaves to a proxy (HTTP-20, HTTP-21).

The head of a request has to come in time, and is limited in bytes and fields. The number of
connections is limited, and so is the time for which one may be silent. The application can cut a
connection off: closing one, as uvicorn does, waits until the client has read what was written,
which may be never.

    silence, or part of a head ── header_timeout_ms ──► cut off
    a head ──► a response, and the rest of the request: its body, trailers
    a response that begins before its request has ended ──► is the last one
    both have ended ── 75 s without a byte ──► closed
    a client that reads nothing of what waits for it ── 75 s ──► cut off

A request with a head that came before is answered beside uvicorn, if it can: see `known_heads`.

`UnreadBytes` bounds the bytes that all clients together have not read (HTTP-29).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field, frozen
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from .asgi import (
    CUT_CONNECTION,
    HOLD_BYTES,
    NOTE_HEAD,
    SECURITY_HEADERS,
    UNCOUNTED_BYTES,
    encode_headers,
)
from .known_heads import KnownRequest

if TYPE_CHECKING:
    from ..base.logs.logger import StructuredLogger
    from .asgi import RawHeader, Receive, Scope, Send
    from .known_heads import KnownHead

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADER_FIELDS = 100

_FIELD_BYTES = 4  # a header field's colon, space and line end
_DROPPED: deque[tuple[bytes, bytes]] = deque(maxlen=0)

_VERSIONS = ("1.1", "1.0")

_MOST_JOINED = 64 * 1024  # bytes that are copied to be written with what stands before them

_MAX_KNOWN_HEADS = 8  # of a connection: with more, all are forgotten
_MAX_KNOWN_HEAD_BYTES = 2048

_LENGTH_FIELDS = (b"\r\nContent-Length: ", b"\r\ncontent-length: ")
_MOST_DIGITS = 8

_FAIR_SECONDS = 1.0
"""A client that has had less time than this to read is closed only after all others."""


def _last_response(status: bytes, text: bytes) -> bytes:
    """Return a response, encoded, that ends its connection."""
    headers = (
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(text)),
        (b"connection", b"close"),
        *SECURITY_HEADERS,
    )
    return b"HTTP/1.1 %s\r\n%s\r\n%s" % (status, encode_headers(headers), text)


_NO_HTTP_RESPONSE = _last_response(b"400 Bad Request", b"Invalid HTTP request\n")
_OTHER_VERSION_RESPONSE = _last_response(
    b"505 HTTP Version Not Supported", b"Use HTTP/1.1 or HTTP/1.0\n"
)
_OTHER_HOST_RESPONSE = _last_response(
    b"400 Bad Request", b"The host of the request target is not the one of the header Host\n"
)


@frozen
class ConnectionLimits:
    """The limits of one connection, and of their number.

    Attributes:
        header_timeout_ms: how long the head of a request may take, in milliseconds.
        max_connections: how many connections there may be.
        keep_alive_seconds: how long a connection may wait for its next request, and its client
            may read nothing; longer than proxies keep theirs.
    """

    header_timeout_ms: int
    max_connections: int
    keep_alive_seconds: float = 75.0


class _HeadRefused(Exception):
    """The head is refused: httptools turns this into a parser error, which uvicorn answers."""


@define(eq=False, repr=False)
class ResponseWriter:
    """Joins what a response writes in one turn of the event loop: mostly its head and its body.

    Each write is a system call and a packet, which cost as much as a tenth of a call of a tool. It
    stands for the transport of a response, which writes, asks and closes, and does nothing else.
    """

    _transport: asyncio.Transport
    _loop: asyncio.AbstractEventLoop
    _kept: bytes = field(default=b"", init=False)

    def write(self, data: bytes) -> None:
        """Write a part at the end of the turn, or together with the next one."""
        kept, self._kept = self._kept, b""
        if not kept:
            self._kept = data
            self._loop.call_soon(self.flush)
        elif len(data) <= _MOST_JOINED:
            self._transport.write(kept + data)
        else:
            self._transport.write(kept)
            self._transport.write(data)

    def flush(self) -> None:
        """Write what is kept."""
        kept, self._kept = self._kept, b""
        if kept and not self._transport.is_closing():
            self._transport.write(kept)

    def is_closing(self) -> bool:
        """Return whether the connection ends."""
        return self._transport.is_closing()

    def close(self) -> None:
        """End the connection once all is sent."""
        self.flush()
        self._transport.close()


class BoundedProtocol(HttpToolsProtocol):
    """One connection.

    Args:
        limits: the server's limits.
        unread: counts the bytes that the server's clients have not read.
        uvicorn_arguments: uvicorn's own arguments.
    """

    def __init__(
        self, limits: ConnectionLimits, unread: UnreadBytes, **uvicorn_arguments: Any
    ) -> None:
        super().__init__(**uvicorn_arguments)
        self._limits = limits
        self._unread = unread
        self.held = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._unread_before: int | None = None
        self._head_is_read = True
        self._request_is_whole = True
        self._bytes_of_head_at_most = 0
        self._bytes_beside_body = 0
        self._keeps_alive = True
        self._refusal = _NO_HTTP_RESPONSE
        self._is_lost = False
        self._is_upgraded = False
        self._extensions: dict[str, Any] = {}
        self._known_heads: dict[bytes, KnownHead] = {}
        self._new_head: bytes | None = None
        self._answered = 0.0
        self._exchange: KnownRequest | None = None
        self._default_headers: list[RawHeader] = []
        self._default_fields = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.max_connections:
            transport.abort()
            return
        transport.set_write_buffer_limits(UNCOUNTED_BYTES)
        self._writer = ResponseWriter(transport, self.loop)
        self._extensions[CUT_CONNECTION] = transport.abort
        self._extensions[HOLD_BYTES] = self._hold
        self._extensions[NOTE_HEAD] = self._note_head
        self._await_head()
        self._await_progress()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and count the connection's bytes no longer."""
        self._stop_timers()
        self._is_lost = True
        self._known_heads.clear()
        self._leave_place()
        super().connection_lost(exc)
        # uvicorn does so only where there was no error: each that is reset was kept for 75 s.
        self._unset_keepalive_if_required()

    def _stop_timers(self) -> None:
        self._stop_head_timer()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self._unread.forget(self)

    def shutdown(self) -> None:
        """End the connection after the current request: the server stops."""
        self._keeps_alive = False
        self._leave_place()
        super().shutdown()

    # -- input -----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse bytes of the client, within the limits of a head."""
        if self._request_is_whole and self._is_idle():
            key, body = split_request(bytes(data))  # a bytearray on Windows
            known = self._known_heads.get(key)
            if known is not None and not self.flow.write_paused:
                self._answer(known, body)
                return
            self._new_head = key or None
        self._leave_place()
        size = len(data)
        self._bytes_beside_body += size
        self._bytes_of_head_at_most = size + (
            0 if self._head_is_read else self._bytes_of_head_at_most
        )
        super().data_received(data)
        if self._is_upgraded:
            return
        if self._request_is_whole:
            if self._is_idle():
                # Line breaks before a head: uvicorn has stopped its own timer.
                self._await_head()
        elif self._bytes_beside_body > MAX_HEAD_BYTES:
            self.transport.abort()
        elif not self._head_is_read:
            # Only a head that comes in pieces has a timer, which would cost each request 2 us.
            self._await_head()

    def _note_head(self, known: KnownHead) -> None:
        """Remember a head, if its request came alone, whole and at once."""
        head, self._new_head = self._new_head, None
        is_alone = self._request_is_whole and not self.pipeline
        if head is None or not is_alone or not self.cycle.keep_alive or self.expect_100_continue:
            return
        if len(self._known_heads) >= _MAX_KNOWN_HEADS:
            self._known_heads.clear()
        self._known_heads[head] = known

    def _answer(self, known: KnownHead, body: bytes) -> None:
        """Answer a request with a known head, as far as that goes, beside uvicorn (HTTP-80)."""
        self._stop_head_timer()
        context = copy_context()
        self._exchange = exchange = KnownRequest(known, body, self)
        rest = context.run(known.begin, exchange)
        if rest is not None:
            task = self.loop.create_task(rest, context=context)
            task.add_done_callback(partial(self._end_task, exchange))
            self.tasks.add(task)
        elif not exchange.is_answered:
            self._end_cycle(exchange, None)

    def write_reply(self, exchange: KnownRequest, reply: bytes) -> bool:
        """Write the whole response to a request that uvicorn has no cycle of."""
        if self._exchange is not exchange or self.flow.write_paused:
            return False
        self._exchange = None
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            if self._default_headers is not self.server_state.default_headers:  # a second later
                self._default_headers = self.server_state.default_headers
                self._default_fields = encode_headers(self._default_headers)
            fields = self._default_fields, exchange.head.fields, len(reply), reply
            self.transport.write(b"HTTP/1.1 200 OK\r\n%s%scontent-length: %d\r\n\r\n%s" % fields)
            self._answered = self.loop.time()
            if self.timeout_keep_alive_task is None:
                self.timeout_keep_alive_handler()
        return True

    def cycle_of(self, exchange: KnownRequest) -> RequestResponseCycle:
        """Return uvicorn's cycle of a request, which it has from now on."""
        if self._exchange is exchange:
            self._exchange = None
            self._unset_keepalive_if_required()
            exchange.cycle = self.cycle = RequestResponseCycle(
                scope=exchange.head.scope,  # type: ignore[arg-type]
                transport=self._writer,  # type: ignore[arg-type]
                flow=self.flow,
                logger=self.logger,
                access_logger=self.access_logger,
                access_log=self.access_log,
                default_headers=self.server_state.default_headers,
                message_event=asyncio.Event(),
                expect_100_continue=False,
                keep_alive=self._keeps_alive,
                on_response=self.on_response_complete,
            )
            self.cycle.more_body = False
        if exchange.cycle is None:
            raise RuntimeError("the request was answered")
        return exchange.cycle

    def _leave_place(self) -> None:
        """Leave a request that waits for its reply to uvicorn: something else happens."""
        if self._exchange is not None:
            self.cycle_of(self._exchange)

    def _end_task(self, exchange: KnownRequest, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not exchange.is_answered:
            self._end_cycle(exchange, task)

    def _end_cycle(self, exchange: KnownRequest, task: asyncio.Task[None] | None) -> None:
        """Let uvicorn do what it does at the end of an application, unless all was sent."""
        cycle = self.cycle_of(exchange)
        if task is None and cycle.response_complete:
            cycle.on_response = lambda: None  # as uvicorn has it, for no cycle of references
            return

        async def ended(scope: Scope, receive: Receive, send: Send) -> None:
            if task is not None:
                task.result()

        self._start_asgi_task(cycle, ended)  # type: ignore[arg-type]

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, 75 s after its last response; one in place moves no timer."""
        left = self._answered + self.timeout_keep_alive - self.loop.time()
        if self._exchange is not None:
            left = self.timeout_keep_alive
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(
                left, self.timeout_keep_alive_handler
            )
        else:
            super().timeout_keep_alive_handler()

    def on_message_begin(self) -> None:
        """Begin to count the head of a request."""
        super().on_message_begin()
        self._head_is_read = self._request_is_whole = False
        self._bytes_beside_body = 0
        self.scope["extensions"] = self._extensions

    def on_headers_complete(self) -> None:
        """Check the head of a request, before uvicorn starts to answer it."""
        self._stop_head_timer()
        self._bytes_beside_body = 0
        if len(self.headers) > MAX_HEADER_FIELDS or self._head_is_too_long():
            raise _HeadRefused
        if self.parser.get_http_version() not in _VERSIONS:
            self._refusal = _OTHER_VERSION_RESPONSE
            raise _HeadRefused
        if self.url[:1] != b"/" and not self._is_for_this_host():
            self._refusal = _OTHER_HOST_RESPONSE
            raise _HeadRefused
        self._head_is_read = True
        super().on_headers_complete()
        if self._upgrades():
            return
        self.cycle.transport = self._writer  # type: ignore[assignment]
        # Fields that come now are trailers, which uvicorn would add to the head.
        self.headers = _DROPPED  # type: ignore[assignment]
        # Until the request is whole: nothing would read the rest of it after an early response.
        self._keeps_alive, self.cycle.keep_alive = self.cycle.keep_alive, False

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body."""
        self._bytes_beside_body = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Pass on the end of a request."""
        self._request_is_whole = True
        if self._upgrades():
            return
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._keeps_alive
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection to the protocol of WebSockets."""
        self._stop_timers()
        self._is_upgraded = True
        super().handle_websocket_upgrade()

    def _upgrades(self) -> bool:
        return self.parser.should_upgrade() and self._should_upgrade()

    def _should_upgrade(self) -> bool:
        """Return whether a request begins a WebSocket: a GET without a body, after all others."""
        if not super()._should_upgrade() or not self._is_idle():
            return False
        return self.parser.get_method() == b"GET" and not any(
            name in (b"content-length", b"transfer-encoding") for name, _ in self.headers
        )

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that is not HTTP, unless a response is under way."""
        if self._is_idle() or self._is_unanswered_body():
            self.transport.write(self._refusal)
        self.transport.close()

    def _is_idle(self) -> bool:
        """Return whether no request waits for its response."""
        if self._exchange is not None:
            return False
        cycle = self.cycle  # None until the first request, whatever its annotation says
        return cycle is None or cycle.response_complete  # type: ignore[redundant-expr]

    def _is_unanswered_body(self) -> bool:
        """Return whether the input belongs to the body of the next request to answer."""
        in_body = self._head_is_read and not self._request_is_whole
        return in_body and not self.pipeline and not self.cycle.response_started

    def _is_for_this_host(self) -> bool:
        """Return whether an absolute target has the same host as `Host` (RFC 9112, 3.2.2)."""
        scheme, separator, rest = self.url.partition(b"://")
        if not separator:
            return True  # a target of any other form is a path at which nothing is served
        authority = re.split(rb"[/?#]", rest, maxsplit=1)[0].lower()
        hosts = [value.lower() for name, value in self.headers if name == b"host"]
        return scheme.lower() in (b"http", b"https") and hosts == [authority]

    def _head_is_too_long(self) -> bool:
        if self._bytes_of_head_at_most <= MAX_HEAD_BYTES:
            return False
        fields = sum(len(name) + len(value) + _FIELD_BYTES for name, value in self.headers)
        return len(self.url) + fields > MAX_HEAD_BYTES

    def _await_head(self) -> None:
        if self._head_timer is None:
            seconds = self._limits.header_timeout_ms / 1000
            self._head_timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    # -- output ----------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        """Write the rest of a response, before anything else happens to the connection."""
        self._writer.flush()
        self._new_head = None
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Count the unsent bytes: the client has not read what was written."""
        super().pause_writing()
        self._unread.wait(self)

    def resume_writing(self) -> None:
        """Count the unsent bytes no longer: the client has read most of them."""
        self._unread_before = None
        self._unread.resume(self)
        super().resume_writing()

    def unsent(self) -> int:
        """Return how many bytes the transport has not sent."""
        return self.transport.get_write_buffer_size()

    def cut(self) -> None:
        """End the connection at once, and drop what it has not sent."""
        self._is_lost = True
        self.transport.abort()

    def _hold(self, size: int) -> None:
        if not self._is_lost:
            self._unread.hold(self, size)

    def _await_progress(self) -> None:
        seconds = self._limits.keep_alive_seconds
        self._stall_timer = self.loop.call_later(seconds, self._check_progress)

    def _check_progress(self) -> None:
        """Cut off a client that has read nothing since the last check."""
        unread = None
        if self.flow.write_paused or self.transport.is_closing():
            # Nothing is added then: unless the number has fallen, nothing was read.
            unread = self.transport.get_write_buffer_size()
            if self._unread_before is not None and unread >= self._unread_before:
                self.transport.abort()
                return
        self._unread_before = unread
        self._await_progress()


def split_request(data: bytes) -> tuple[bytes, bytes]:
    """Return the head of a POST without the length of its body, and the body.

    Both are empty unless `data` is one whole request, with a head that is worth being remembered.
    """
    end = data.find(b"\r\n\r\n", 0, _MAX_KNOWN_HEAD_BYTES)
    if end < 0 or not data.startswith(b"POST "):
        return b"", b""
    for name in _LENGTH_FIELDS:
        start = data.find(name, 0, end) + len(name)
        if start >= len(name):
            break
    else:
        return b"", b""
    stop = data.find(b"\r\n", start)
    digits = data[start:stop]
    if not digits.isdigit() or len(digits) > _MOST_DIGITS or len(data) != end + 4 + int(digits):
        return b"", b""
    return data[:start] + data[stop:end], data[end + 4 :]


class Reader(Protocol):
    """A connection whose client reads.

    Attributes:
        held: bytes that the application buffers for it.
    """

    held: int

    def unsent(self) -> int:
        """Return how many bytes its transport has not sent."""
        ...

    def cut(self) -> None:
        """End the connection at once, and drop what it has not sent."""
        ...


@define(eq=False, repr=False)
class _Wait:
    """A connection that waits.

    Attributes:
        since: seconds, of the clock.
        first: bytes that were unsent when it began to wait.
        counted: bytes that are counted as unsent now, at least as many as there are.
    """

    since: float
    first: int
    counted: int


@define(eq=False, repr=False)
class UnreadBytes:
    """The bytes that the clients of a server have not read; belongs to one event loop.

    A connection *waits* from the moment its transport has more than `UNCOUNTED_BYTES` to send
    until the client has read most of it. Nothing is added to its transport meanwhile, so the bytes
    that its client has read are the difference of two sizes. *Held* bytes, which the application
    buffers for it, count too. The exact sum is computed only when the limit may be exceeded: the
    count of a connection that waits is never less than its unsent bytes.

    Args:
        max_bytes: the limit; a single connection may exceed it.
        now: returns the time in seconds.
    """

    _max_bytes: int
    _now: Callable[[], float]
    _counted: int = field(default=0, init=False)
    _waiting: dict[Reader, _Wait] = field(factory=dict, init=False)

    @property
    def counted(self) -> int:
        """Return the bytes counted now, at least as many as there are."""
        return self._counted

    def hold(self, reader: Reader, size: int) -> None:
        """Add `size` to the bytes that the application buffers for `reader`; may be negative."""
        reader.held += size
        self._counted += size
        if size > 0:
            self._bound()

    def wait(self, reader: Reader) -> None:
        """Count what the transport of `reader` has not sent: its client reads too slowly."""
        size = reader.unsent()
        self._waiting[reader] = _Wait(self._now(), size, size)
        self._counted += size
        self._bound()

    def resume(self, reader: Reader) -> None:
        """Count the unsent bytes no longer: the client has read most of them, or has gone."""
        wait = self._waiting.pop(reader, None)
        if wait is not None:
            self._counted -= wait.counted

    def forget(self, reader: Reader) -> None:
        """Count nothing of a connection that has ended."""
        self.resume(reader)
        self._counted -= reader.held
        reader.held = 0

    def _bound(self) -> None:
        if self._counted <= self._max_bytes:
            return
        for reader, wait in self._waiting.items():
            unsent = reader.unsent()
            self._counted -= wait.counted - unsent
            wait.counted = unsent
        while self._counted > self._max_bytes and len(self._waiting) > 1:
            slowest = min(self._waiting, key=self._rank)
            self.forget(slowest)
            slowest.cut()

    def _rank(self, reader: Reader) -> tuple[bool, float, float]:
        """Return a lower rank for a client that has read less in the time it had (HTTP-29)."""
        wait = self._waiting[reader]
        seconds = self._now() - wait.since
        taken = wait.first - wait.counted
        return seconds < _FAIR_SECONDS, taken / max(seconds, _FAIR_SECONDS), wait.since


class UvicornLogHandler(logging.Handler):
    """Writes uvicorn's log records to the server's log."""

    def __init__(self, logger: StructuredLogger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        """Log errors as errors, all else, such as invalid requests, at debug level."""
        level = "error" if record.levelno >= logging.ERROR else "debug"
        self._logger.log(level, "uvicorn", {"what": record.getMessage()})
