"""uvicorn's side of a connection, with the limits it leaves to a proxy (HTTP-20, HTTP-21).

The head of a request has to come in time, and within a number of bytes and of fields; there are
only so many connections, and none outlasts what happens on it. And an application can cut a
connection off: closing one, as uvicorn does, waits until the client has taken what was written,
which may be never.

    silence, or part of a head ── header_timeout_ms ──► cut off
    a head ──► a response, and the rest of the request: its body, trailers
    a response that begins before its request has ended ──► is the last one
    both have ended ── 75 s without a byte ──► closed
    a client that takes nothing of what waits for it ── 75 s ──► cut off
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from typing import TYPE_CHECKING, Any

from attrs import frozen
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .guard import SECURITY_HEADERS
from .unread import UNCOUNTED_BYTES

if TYPE_CHECKING:
    from ...logs.logger import StructuredLogger
    from .unread import Unread

CUT_CONNECTION = "foundation_rt.cut_connection"
"""Among the extensions of a scope: a function that ends the connection at once."""

HOLD_BYTES = "foundation_rt.hold_bytes"
"""Among them: a function that is told how many bytes more, or fewer, are kept for the client."""

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADER_FIELDS = 100

_FIELD_BYTES = 4  # of a field besides name and value: a colon, a space, the end of the line
_DROPPED: deque[tuple[bytes, bytes]] = deque(maxlen=0)

_VERSIONS = ("1.1", "1.0")


def _last_response(status: bytes, text: bytes) -> bytes:
    """A response that is written to the wire as it is, and ends its connection."""
    headers = (
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(text)),
        (b"connection", b"close"),
        *SECURITY_HEADERS,
    )
    lines = b"".join(b"%s: %s\r\n" % header for header in headers)
    return b"HTTP/1.1 %s\r\n%s\r\n%s" % (status, lines, text)


_NO_HTTP_RESPONSE = _last_response(b"400 Bad Request", b"Invalid HTTP request\n")
_OTHER_VERSION_RESPONSE = _last_response(
    b"505 HTTP Version Not Supported", b"Use HTTP/1.1 or HTTP/1.0\n"
)
_OTHER_HOST_RESPONSE = _last_response(
    b"400 Bad Request", b"The host of the request target is not the one of the header Host\n"
)


@frozen
class WireLimits:
    """What one connection may do, and how many there may be.

    Attributes:
        keep_alive_seconds: how long it may wait for its next request, and leave unread what waits
            for it; longer than proxies keep theirs.
    """

    header_timeout_ms: int
    max_connections: int
    keep_alive_seconds: float = 75.0


class _HeadRefused(Exception):
    """httptools makes it an error of its parser, which uvicorn answers with 400."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection.

    Args:
        limits: of this server.
        unread: what all its clients have not read; the other arguments are uvicorn's.
    """

    def __init__(self, limits: WireLimits, unread: Unread, **uvicorn_arguments: Any) -> None:
        super().__init__(**uvicorn_arguments)
        self._limits = limits
        self._unread = unread
        self.held = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._untaken: int | None = None
        self._head_is_read = True
        self._request_is_whole = True
        self._bytes_of_head_at_most = 0
        self._bytes_beside_body = 0
        self._keeps_alive = True
        self._refusal = _NO_HTTP_RESPONSE
        self._is_lost = False
        self._extensions: dict[str, Any] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.max_connections:
            transport.abort()
            return
        transport.set_write_buffer_limits(UNCOUNTED_BYTES)
        self._extensions[CUT_CONNECTION] = transport.abort
        self._extensions[HOLD_BYTES] = self._hold
        self._await_head()
        self._await_progress()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is no more."""
        self._stop_head_timer()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self._unread.forget(self)
        self._is_lost = True
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server stops: what is under way is the last."""
        self._keeps_alive = False
        super().shutdown()

    # -- what comes ----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        size = len(data)
        self._bytes_beside_body += size
        self._bytes_of_head_at_most = size + (
            0 if self._head_is_read else self._bytes_of_head_at_most
        )
        super().data_received(data)
        if self._request_is_whole:
            if self._is_idle():
                # Line breaks before a head: uvicorn has stopped its own timer for them.
                self._await_head()
        elif self._bytes_beside_body > MAX_HEAD_BYTES:
            self.transport.abort()
        elif not self._head_is_read:
            # Only a head that does not come at once is watched: a timer costs each request 2 us.
            self._await_head()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._head_is_read = self._request_is_whole = False
        self._bytes_beside_body = 0
        self.scope["extensions"] = self._extensions

    def on_headers_complete(self) -> None:
        """The last byte of its head."""
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
        # Fields that come now are trailers. They would be taken for fields of the head.
        self.headers = _DROPPED  # type: ignore[assignment]
        # Until the request is whole: what followed an early response would be read by nobody.
        self._keeps_alive, self.cycle.keep_alive = self.cycle.keep_alive, False

    def on_body(self, body: bytes) -> None:
        """Some of the body."""
        self._bytes_beside_body = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The last byte of a request."""
        self._request_is_whole = True
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._keeps_alive
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, unless that could be taken for part of another response."""
        if self._is_idle() or self._is_unanswered_body():
            self.transport.write(self._refusal)
        self.transport.close()

    def _is_idle(self) -> bool:
        """Return whether there is nothing to answer."""
        cycle = self.cycle  # None until the first request, whatever its annotation says
        return cycle is None or cycle.response_complete  # type: ignore[redundant-expr]

    def _is_unanswered_body(self) -> bool:
        """Return whether what comes is of the request that is to be answered next."""
        in_body = self._head_is_read and not self._request_is_whole
        return in_body and not self.pipeline and not self.cycle.response_started

    def _is_for_this_host(self) -> bool:
        """Whether a target in absolute form names the host that `Host` names (RFC 9112, 3.2.2)."""
        scheme, separator, rest = self.url.partition(b"://")
        if not separator:
            return True  # a target of another form is no path that anything is served at
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
            self._head_timer = self.loop.call_later(seconds, self._head_is_late)

    def _head_is_late(self) -> None:
        self.transport.abort()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    # -- what goes -----------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """The client has not taken what was written."""
        super().pause_writing()
        self._unread.wait(self)

    def resume_writing(self) -> None:
        """The client has taken something."""
        self._untaken = None
        self._unread.go_on(self)
        super().resume_writing()

    def unsent(self) -> int:
        """Return how many bytes its transport has not sent."""
        return self.transport.get_write_buffer_size()

    def cut(self) -> None:
        """End the connection at once; what it has not sent is dropped."""
        self._is_lost = True
        self.transport.abort()

    def _hold(self, size: int) -> None:
        if not self._is_lost:
            self._unread.hold(self, size)

    def _await_progress(self) -> None:
        seconds = self._limits.keep_alive_seconds
        self._stall_timer = self.loop.call_later(seconds, self._check_progress)

    def _check_progress(self) -> None:
        """Cut off a client that has taken nothing since this was asked the last time."""
        untaken = None
        if self.flow.write_paused or self.transport.is_closing():
            # Nothing is added then: if it is not less, nothing was taken.
            untaken = self.transport.get_write_buffer_size()
            if self._untaken is not None and untaken >= self._untaken:
                self.transport.abort()
                return
        self._untaken = untaken
        self._await_progress()


class UvicornLog(logging.Handler):
    """Has what uvicorn logs written as records of ours."""

    def __init__(self, logger: StructuredLogger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        """An error is one; all else, invalid requests for instance, is for who looks for it."""
        level = "error" if record.levelno >= logging.ERROR else "debug"
        self._logger.log(level, "uvicorn", {"what": record.getMessage()})
