"""HTTP/1.1 over one connection: requests out as bytes, responses in by llhttp's parser.

httpcore2 reads responses with a parser in Python, and takes locks at every step: a call over it
costs the process three times as much CPU. It is kept for proxies (`http_connections`).
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

import httpcore2
from attrs import define, field

from ...errors import MissingExtraError
from .http_headers import RawHeaders
from .http_network import Network, NetworkStream

try:
    from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
except ImportError:
    raise MissingExtraError("A server over HTTP", "client") from None

MAX_HEAD_BYTES: Final = 100 * 1024
"""Most bytes of a response in a row that are no body: its head, or what stands around chunks."""

_PIECE = 64 * 1024  # bytes that are read at once


@define(eq=False, repr=False)
class OutgoingRequest:
    """A request of HTTP.

    Attributes:
        method: such as `POST`.
        url: whose server gets it.
        headers: all of them, `Host` and `Content-Length` included.
        body: of the request.
    """

    method: str
    url: httpcore2.URL
    headers: RawHeaders
    body: bytes


def encode_request(request: OutgoingRequest) -> bytes:
    """Return the bytes of a request.

    Raises:
        httpcore2.LocalProtocolError: a header holds a line break or NUL; it is not repeated.
    """
    lines = [b"%b %b HTTP/1.1\r\n" % (request.method.encode("ascii"), request.url.target)]
    lines += [b"%b: %b\r\n" % header for header in request.headers]
    lines.append(b"\r\n")
    head, count = b"".join(lines), len(lines)
    if head.count(b"\n") != count or head.count(b"\r") != count or b"\0" in head:
        raise httpcore2.LocalProtocolError("a header cannot be sent")
    return head + request.body


@define(eq=False, repr=False)
class DirectResponse:
    """A response that arrives; made by `DirectConnection`. Its callbacks are the parser's.

    Attributes:
        status: of the final response; 0 until its head has come.
        headers: as they came.
        extensions: the `network_stream`, as httpcore2 names it.
        is_whole: whether all of it has come.
        is_last: whether the connection ends with it, or more came than a response.
    """

    _stream: NetworkStream
    status: int = field(default=0, init=False)
    headers: RawHeaders = field(factory=list, init=False)
    extensions: dict[str, Any] = field(init=False)
    is_whole: bool = field(default=False, init=False)
    is_last: bool = field(default=False, init=False)
    _parser: HttpResponseParser | None = field(init=False)
    _body: list[bytes] = field(factory=list, init=False)
    _beside_body: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.extensions = {"network_stream": self._stream}
        self._parser = HttpResponseParser(self)

    async def read_head(self) -> None:
        """Read up to the end of the head.

        Raises:
            httpcore2.ReadError, httpcore2.RemoteProtocolError: it does not come.
        """
        while not self.status:
            await self._read()

    async def aiter_stream(self) -> AsyncIterator[bytes]:
        """Return the body as it arrives.

        Raises:
            httpcore2.ReadError, httpcore2.RemoteProtocolError: it breaks off.
        """
        while True:
            arrived, self._body = self._body, []
            for piece in arrived:
                yield piece
            if self.is_whole:
                return
            await self._read()

    async def aclose(self) -> None:
        """Close the connection, unless it can be used again."""
        self._parser = None  # it holds this response
        if self.is_last or not self.is_whole:
            await self._stream.aclose()

    async def _read(self) -> None:
        parser, data = self._parser, await self._stream.read(_PIECE)
        if parser is None or not data:
            self._end()
            return
        try:
            parser.feed_data(data)
        except HttpParserUpgrade:
            raise httpcore2.RemoteProtocolError("the server changes the protocol") from None
        except HttpParserError as error:
            if not self.is_whole:
                raise httpcore2.RemoteProtocolError(f"no HTTP: {error}") from None
            self.is_last = True
        if self._body:
            self._beside_body = 0
        elif not self.is_whole:
            self._beside_body += len(data)
            if self._beside_body > MAX_HEAD_BYTES:
                raise httpcore2.RemoteProtocolError("the head is too long")

    def _end(self) -> None:
        """Take the end of the connection, which may be that of the body."""
        if not self.status:
            raise httpcore2.RemoteProtocolError("the server has closed without a response")
        if any(name.lower() in _FRAMING for name, _ in self.headers):
            raise httpcore2.RemoteProtocolError("the body is incomplete")
        self.is_whole = self.is_last = True

    # -- called by the parser

    def on_message_begin(self) -> None:
        """Note a response after the first one."""
        self.is_last = self.is_last or self.is_whole

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; trailers are dropped."""
        if not self.status:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Take the end of a head, unless that of an interim response."""
        assert self._parser is not None
        status = self._parser.get_status_code()
        if not self.status and not 100 <= status < 200:
            self.status = status

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        if not self.is_whole:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """Take the end of a response."""
        if not self.status:
            self.headers.clear()
        elif not self.is_whole:
            assert self._parser is not None
            self.is_whole = True
            self.is_last = not self._parser.should_keep_alive()


_FRAMING = (b"content-length", b"transfer-encoding")


@define(eq=False, repr=False)
class DirectConnection:
    """At most one connection, made by the first request and again after it was closed.

    Args:
        network: makes it.
        context: for TLS.
        options: of its socket.
        connect_timeout: seconds to connect, and again for the handshake of TLS.
    """

    network: Network
    context: ssl.SSLContext
    options: list[tuple[int, int, int]]
    connect_timeout: float
    _stream: NetworkStream | None = field(default=None, init=False)
    _origin: tuple[bytes, bytes, int | None] | None = field(default=None, init=False)

    async def send(self, request: OutgoingRequest) -> DirectResponse:
        """Send a request; return its response as soon as the head is there.

        Raises:
            httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError: there is
                none.
        """
        data = encode_request(request)
        stream = await self._connected(request.url)
        response = DirectResponse(stream)
        try:
            with suppress(httpcore2.WriteError):  # it may have responded before it closed
                await stream.write(data)
            await response.read_head()
        except BaseException:
            await self.aclose()
            raise
        return response

    async def aclose(self) -> None:
        """Close it."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            await stream.aclose()

    async def _connected(self, url: httpcore2.URL) -> NetworkStream:
        """Return the connection; a new one if the server has closed it, or said something since."""
        origin = (url.scheme, url.host, url.port)
        if self._stream is not None:
            if self._origin == origin and not self._stream.get_extra_info("is_readable"):
                return self._stream
            await self.aclose()
        host, is_tls = url.host.decode("ascii"), url.scheme == b"https"
        port = url.port or (443 if is_tls else 80)
        stream = await self.network.connect_tcp(
            host, port, self.connect_timeout, socket_options=self.options
        )
        if is_tls:
            stream = await stream.start_tls(self.context, host, self.connect_timeout)
        self._stream, self._origin = stream, origin
        return stream
