"""uvicorn's side of a connection, with the limits it leaves to a proxy (HTTP-20, HTTP-21).

The head of a request has to come in time, and within a number of bytes and of fields; there are
only so many connections. And an application can cut a connection off: closing one, as uvicorn
does, waits until the client has taken what was written, which may be never.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from attrs import frozen
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from ...logs import StructuredLogger

CUT_CONNECTION = "foundation_rt.cut_connection"
"""Among the extensions of a scope: a function that ends the connection at once."""

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADER_FIELDS = 100

KEEP_ALIVE_SECONDS = 75
"""How long a connection may wait for its next request; longer than proxies keep theirs."""


@frozen
class WireLimits:
    """What one connection may do, and how many there may be."""

    header_timeout_ms: int
    max_connections: int


class _HeadRefused(Exception):
    """httptools makes it an error of its parser, which uvicorn answers with 400."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection.

    Args:
        limits: of this server; the other arguments are uvicorn's.
    """

    def __init__(self, limits: WireLimits, **uvicorn_arguments: Any) -> None:
        super().__init__(**uvicorn_arguments)
        self._limits = limits
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_is_read = True
        self._head_bytes = 0
        self._extensions: dict[str, Any] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.max_connections:
            transport.abort()
            return
        self._extensions[CUT_CONNECTION] = transport.abort
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is no more."""
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        super().data_received(data)
        if not self._head_is_read:
            # Only a head that does not come at once is watched: a timer costs each request 2 us.
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.abort()
            self._await_head()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._head_is_read = False
        self._head_bytes = 0
        self.scope["extensions"] = self._extensions

    def on_headers_complete(self) -> None:
        """The last byte of its head."""
        self._head_is_read = True
        self._stop_head_timer()
        if len(self.headers) > MAX_HEADER_FIELDS:
            raise _HeadRefused
        super().on_headers_complete()

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


class UvicornLog(logging.Handler):
    """Has what uvicorn logs written as records of ours."""

    def __init__(self, logger: StructuredLogger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        """An error is one; all else, invalid requests for instance, is for who looks for it."""
        level = "error" if record.levelno >= logging.ERROR else "debug"
        self._logger.log(level, "uvicorn", {"what": record.getMessage()})
