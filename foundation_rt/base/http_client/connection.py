"""One connection of HTTP/1.1: requests out as bytes, responses in by llhttp's parser.

Bytes are parsed as they arrive. At most 256 KiB of a body and one read are kept: then the peer
waits. Of a response at most `MAX_HEAD_BYTES` in a row are no body (CHTTP-36, CHTTP-43).
"""

from __future__ import annotations

import asyncio
import select
import ssl
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from ...errors import MissingExtraError
from .errors import BrokenOffError

try:
    import httptools
except ImportError:
    raise MissingExtraError("A server over HTTP", "client") from None

if TYPE_CHECKING:
    from .network import Proxy

RawHeaders = list[tuple[bytes, bytes]]

MAX_HEAD_BYTES: Final = 100 * 1024
"""Most bytes of a response in a row that are no body: its head, or what stands around chunks."""

_FRAMING = (b"content-length", b"transfer-encoding")


class HttpConnection(asyncio.Protocol):
    """A connection, for one request at a time; made by `Network`, and called by asyncio.

    A plain class: its attributes are looked at several times for each request.

    Attributes:
        status: of the response; 0 until its head has come.
        headers: of the response, as they came, without trailers.
        is_complete: whether the response has ended.
        is_last: whether the connection ends with it, or brought more than a response.
        is_over: whether no byte comes any more.
        most_kept: bytes of a body that nobody has taken; beyond, the peer has to wait.
        forwarder: the proxy that is to be named the whole URL; None: the peer is the server.
    """

    __slots__ = (
        "_beside_body",
        "_body",
        "_error",
        "_is_paused",
        "_loop",
        "_parser",
        "_size",
        "_transport",
        "_waiter",
        "forwarder",
        "headers",
        "is_complete",
        "is_last",
        "is_over",
        "status",
    )

    most_kept: ClassVar[int] = 256 * 1024

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self.forwarder: Proxy | None = None
        self.is_over = self._is_paused = False
        self._begin()
        self.is_complete = True  # nothing was asked

    def _begin(self) -> None:
        self.status = self._size = self._beside_body = 0
        self.headers: RawHeaders = []
        self._body: list[bytes] = []
        self.is_complete = self.is_last = False

    # -- one request

    def send(self, data: bytes) -> None:
        """Send a request, encoded."""
        self._begin()
        self._transport.write(data)

    async def head(self) -> None:
        """Wait for the head of the response.

        Raises:
            BrokenOffError: it does not come.
        """
        while not self.status:
            await self._more("the server has closed without a response")

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives.

        Raises:
            BrokenOffError: it ends before its end.
        """
        while True:
            for piece in self.take():
                yield piece
            if self.is_complete and not self._body:
                return
            if not self._body:
                await self._more("the body is incomplete")

    async def body(self, most: int) -> bytes | None:
        """Return the whole body; None if it is longer than `most` bytes.

        Raises:
            BrokenOffError: it ends before its end.
        """
        pieces: list[bytes] = []
        size = 0
        while True:
            taken = self.take()
            pieces += taken
            size += sum(map(len, taken))
            if size > most:
                return None
            if self.is_complete:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            await self._more("the body is incomplete")

    def take(self) -> list[bytes]:
        """Return what has come of the body since the last call; read on."""
        body, self._body, self._size = self._body, [], 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return body

    @property
    def has_body(self) -> bool:
        """Return whether something of the body is to be taken."""
        return bool(self._body)

    async def wait(self) -> None:
        """Wait for bytes, or for the end."""
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def _more(self, what: str) -> None:
        if self._error is not None:
            raise BrokenOffError(str(self._error) or type(self._error).__name__)
        if self.is_over:
            raise BrokenOffError(what)
        await self.wait()

    # -- the connection

    def abort(self) -> None:
        """Close the connection; its socket is closed in the next turn of the event loop."""
        self._transport.abort()

    async def aclose(self) -> None:
        """Close the connection at once."""
        self._transport.abort()
        await asyncio.sleep(0)

    async def secure(self, context: ssl.SSLContext, name: str) -> None:
        """Go on under TLS.

        Args:
            context: the settings.
            name: of the peer, which its certificate has to have.

        Raises:
            OSError: the handshake failed.
        """
        plain = self._transport
        try:
            upgraded = await self._loop.start_tls(plain, self, context, server_hostname=name)
        except BaseException:
            plain.abort()
            await asyncio.sleep(0)
            raise
        assert upgraded is not None
        self._transport = upgraded

    @property
    def transport(self) -> asyncio.Transport:
        """Return the transport of asyncio."""
        return self._transport

    @property
    def descriptor(self) -> int | None:
        """Return the descriptor of the socket; None once it is closed."""
        if self.is_over or self._transport.is_closing():
            return None
        found: int = self._transport.get_extra_info("socket").fileno()
        return found

    @property
    def can_be_used(self) -> bool:
        """Return whether an idle connection is open, and brought nothing unasked (CHTTP-41).

        The socket is asked: the event loop may not have read its end yet.
        """
        if not self.is_complete or self.is_last or (descriptor := self.descriptor) is None:
            return False
        if sys.platform == "win32":  # which has no `poll`, and a `select` without a limit
            return not select.select([descriptor], (), (), 0)[0]
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return not poll.poll(0)

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the connection."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Parse bytes of a response."""
        if not self.is_complete:
            self._parse(data)
            self._wake()
        else:
            self.is_last = True  # nothing was asked
            self._transport.abort()

    def _parse(self, data: bytes) -> None:
        before = self._size
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("the server changes the protocol")
        except httptools.HttpParserError:
            if self.is_complete:
                self.is_last = True
            else:
                self._fail("no HTTP")
        if self._size > before:
            self._beside_body = 0
            if self._size >= self.most_kept and not self.is_complete and not self._is_paused:
                self._is_paused = True
                self._transport.pause_reading()
        elif not self.is_complete:
            self._beside_body += len(data)
            if self._beside_body > MAX_HEAD_BYTES:
                self._fail("the head is too long")

    def eof_received(self) -> None:
        """Take the end of the connection, which may be that of the body; close our side, too."""
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the end of the connection."""
        self._end(exc)
        self._parser = None  # it holds this connection

    def _end(self, error: Exception | None) -> None:
        if not self.is_over:
            self.is_over = True
            if not self.is_complete:
                is_framed = any(name.lower() in _FRAMING for name, _ in self.headers)
                self._error = self._error or error
                if self.status and self._error is None and not is_framed:
                    self.is_complete = self.is_last = True
        self._wake()

    def _fail(self, what: str) -> None:
        self._error = self._error or BrokenOffError(what)
        self._transport.abort()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- httptools

    def on_message_begin(self) -> None:
        """Note a response after the first one."""
        self.is_last = self.is_last or self.is_complete

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; trailers are dropped."""
        if not self.status:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Take the end of a head, unless that of an interim response."""
        status = self._parser.get_status_code()
        if not self.status and not 100 <= status < 200:
            self.status = status

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        if not self.is_complete:
            self._body.append(body)
            self._size += len(body)

    def on_message_complete(self) -> None:
        """Take the end of a response."""
        if not self.status:
            self.headers.clear()
        elif not self.is_complete:
            self.is_complete = True
            self.is_last = not self._parser.should_keep_alive()
