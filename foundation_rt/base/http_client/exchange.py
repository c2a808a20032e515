"""Requests and responses: over connections that are kept, or one request with all its bounds."""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Final

from attrs import define, field, frozen

from ...version import __version__
from ..shown import Shown
from .connection import HttpConnection, RawHeaders
from .errors import PackedError, UnsendableError
from .network import Network, RequestUrl

KEEP_ALIVE: Final = 4.0
"""Seconds that an idle connection is kept.

Servers such as uvicorn and Node.js close a connection after 5 idle seconds. A request on a
connection that is being closed may or may not have run.
"""

NO_HEADERS: Final[Mapping[str, str]] = {}


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
    url: RequestUrl
    headers: RawHeaders
    body: bytes = b""


def encode_request(request: OutgoingRequest, connection: HttpConnection) -> bytes:
    """Return the bytes of a request, as its connection wants them.

    Raises:
        UnsendableError: a header holds a line break or NUL; it is not repeated.
    """
    target, proxy = request.url.target, connection.forwarder
    if proxy is not None:
        target = bytes(request.url)
    lines = [b"%b %b HTTP/1.1\r\n" % (request.method.encode("ascii"), target)]
    lines += [b"%b: %b\r\n" % header for header in request.headers]
    if proxy is not None:
        lines += [b"%b: %b\r\n" % header for header in proxy.headers]
    lines.append(b"\r\n")
    head, count = b"".join(lines), len(lines)
    if head.count(b"\n") != count or head.count(b"\r") != count or b"\0" in head:
        raise UnsendableError("a header cannot be sent")
    return head + request.body


@define(eq=False, repr=False)
class HttpResponse(Shown):
    """The head of a response, with access to its body.

    Attributes:
        status_code: of the response.
        raw_headers: as they came.
        headers: by name in lower case; those of one name are joined by commas.
    """

    status_code: int
    raw_headers: RawHeaders
    _connection: HttpConnection
    headers: dict[str, str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.headers = found = dict[str, str]()
        for raw_name, value in self.raw_headers:
            name, text = raw_name.decode("latin-1").lower(), value.decode("latin-1")
            found[name] = f"{found[name]}, {text}" if name in found else text

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the body as it arrives, never decompressed (CHTTP-14).

        A few bytes can decompress to gigabytes, which would block the event loop.

        Raises:
            PackedError: it is compressed.
        """
        self._refuse_packed()
        return self._connection.pieces()

    async def read(self, most: int, *, unpacks: bool = False) -> bytes | None:
        """Return the whole body; None if it is longer than `most` bytes.

        Args:
            most: bytes, packed and unpacked.
            unpacks: whether it may be compressed by gzip.

        Raises:
            PackedError: it is compressed otherwise.
            BrokenOffError: it ends before its end.
        """
        is_packed = unpacks and self._encoding == "gzip"
        if not is_packed:
            self._refuse_packed()
        body = await self._connection.body(most)
        return _unpacked(body, most) if is_packed and body is not None else body

    @property
    def is_packed(self) -> bool:
        """Return whether the body is compressed, or otherwise encoded."""
        return self._encoding != "identity"

    @property
    def _encoding(self) -> str:
        return self.headers.get("content-encoding", "identity").strip().lower()

    @property
    def media_type(self) -> str:
        """The media type of the body, without parameters; empty if the response has none."""
        return self.headers.get("content-type", "").partition(";")[0].strip(" \t").lower()

    async def aclose(self) -> None:
        """End the exchange; the connection is closed unless it can be used again."""
        if self._connection.is_last or not self._connection.is_complete:
            await self._connection.aclose()

    async def close_connection(self) -> None:
        """Close the connection, even if the body was read."""
        await self._connection.aclose()

    def _refuse_packed(self) -> None:
        if self.is_packed:
            raise PackedError("the response is packed (Content-Encoding), though none may be")


def _unpacked(body: bytes, most: int) -> bytes | None:
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        found = unpacker.decompress(body, most + 1)
    except zlib.error:
        raise PackedError("the response cannot be unpacked") from None
    if len(found) <= most and not unpacker.eof:
        raise PackedError("the response cannot be unpacked")
    return found if len(found) <= most else None


@define(eq=False, repr=False)
class HttpSender:
    """At most one connection, made by the first request and again after it was closed.

    Args:
        network: makes it.
    """

    network: Network
    _connection: HttpConnection | None = field(default=None, init=False)
    _origin: tuple[str, str, int] | None = field(default=None, init=False)

    async def send(self, request: OutgoingRequest) -> HttpResponse:
        """Send a request; return its response as soon as the head is there.

        Raises:
            HttpError: there is none.
        """
        connection = await self._connected(request.url)
        try:
            connection.send(encode_request(request, connection))
            await connection.head()
        except BaseException:
            await self.aclose()
            raise
        return HttpResponse(connection.status, connection.headers, connection)

    async def aclose(self) -> None:
        """Close it."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.aclose()

    async def _connected(self, url: RequestUrl) -> HttpConnection:
        """Return the connection; a new one if the server has closed it, or said something since."""
        origin = (url.scheme, url.host, url.port)
        if self._connection is not None:
            if self._origin == origin and self._connection.can_be_used:
                return self._connection
            await self.aclose()
        self._connection, self._origin = await self.network.connect(url), origin
        return self._connection


@define(eq=False, repr=False)
class HttpConnections:
    """Lends a connection for each exchange; the last used one first.

    Args:
        network: makes them.
        most: connections in use at one time.
        keep_alive: seconds that an idle connection is kept.
    """

    network: Network
    most: int
    keep_alive: float = KEEP_ALIVE
    _open: set[HttpSender] = field(factory=set, init=False)
    _kept: deque[tuple[float, HttpSender]] = field(factory=deque, init=False)
    _places: asyncio.Semaphore = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.most)

    async def take(self, timeout: float) -> HttpSender:
        """Return a connection for exclusive use until it is given back.

        Args:
            timeout: seconds to wait while all are in use.

        Raises:
            TimeoutError: they still are.
        """
        if self._places.locked():
            async with asyncio.timeout(timeout):
                await self._places.acquire()
        else:
            await self._places.acquire()  # at once
        try:
            await self._close_expired()
            return self._kept.pop()[1] if self._kept else self._make()
        except BaseException:
            self._places.release()
            raise

    def give_back(self, sender: HttpSender) -> None:
        """Take back a connection whose response was closed."""
        self._kept.append((asyncio.get_running_loop().time(), sender))
        self._places.release()

    async def close(self) -> None:
        """Close all of them, including those in use."""
        self._kept.clear()
        while self._open:
            await self._close(next(iter(self._open)))

    def _make(self) -> HttpSender:
        sender = HttpSender(self.network)
        self._open.add(sender)
        return sender

    async def _close_expired(self) -> None:
        oldest = asyncio.get_running_loop().time() - self.keep_alive
        while self._kept and self._kept[0][0] < oldest:
            await self._close(self._kept.popleft()[1])

    async def _close(self, sender: HttpSender) -> None:
        self._open.discard(sender)
        with suppress(Exception):  # it has gone already
            await sender.aclose()


@frozen
class HttpAnswer:
    """A whole response.

    Attributes:
        status: of the response.
        headers: by name in lower case.
        body: None if it is compressed, or too long.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes | None = field(repr=False)


async def fetch(
    network: Network,
    url: str,
    seconds: float,
    most: int,
    headers: Mapping[str, str] = NO_HEADERS,
    body: bytes | None = None,
) -> HttpAnswer:
    """Return the response to one request, over a connection of its own.

    Args:
        network: makes the connection.
        url: whose server gets it.
        seconds: for all of it.
        most: bytes of the body that are read.
        headers: further ones.
        body: to POST; None to GET.

    Raises:
        TimeoutError: there is none in time.
        HttpError: there is none.
    """
    place = RequestUrl.of(url)
    named = {"user-agent": f"foundation-rt/{__version__}", "accept-encoding": "identity", **headers}
    raw = [(b"host", place.authority)]
    try:
        raw += [(name.encode("ascii"), value.encode("ascii")) for name, value in named.items()]
    except UnicodeEncodeError:
        raise UnsendableError("a header cannot be sent") from None
    if body is not None:
        raw.append((b"content-length", b"%d" % len(body)))
    sender = HttpSender(network)
    try:
        async with asyncio.timeout(seconds):
            request = OutgoingRequest("GET" if body is None else "POST", place, raw, body or b"")
            response = await sender.send(request)
            found = None if response.is_packed else await response.read(most)
    finally:
        await sender.aclose()
    return HttpAnswer(response.status_code, response.headers, found)
