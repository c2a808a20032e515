"""Forwarding one request to the worker that has its session (HTTP-61).

The request goes as it came to a private address of that worker, which checks it as if it had come
to it at first, authentication included. The response comes back as it is made: nothing is gathered,
and no more is read than the client takes. A client that goes takes the connection to the worker
with it, and a worker that dies takes the connection to the client.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httptools
from attrs import define, field

from ...errors import JsonRpcErrorCode
from .asgi import SECURED, HttpRefusal
from .uvicorn_protocol import CUT_CONNECTION

if TYPE_CHECKING:
    from .asgi import Event, RawHeader
    from .request import HttpRequest

Address = str | tuple[str, int]
"""The path of a Unix socket; or a host and a port."""

_READ_BYTES = 64 * 1024
_CONNECT_SECONDS = 2.0

_OF_ONE_CONNECTION = frozenset(
    (b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
"""Headers that mean one connection (RFC 9110, section 7.6.1)."""

# The first worker has checked `Origin`, and adds what a browser needs in the response.
_NOT_FORWARDED = _OF_ONE_CONNECTION | {b"content-length", b"expect", b"origin"}
_NOT_RETURNED = _OF_ONE_CONNECTION | {b"date"}

_LOST = HttpRefusal(
    502,
    "The worker that had the session has ended: it is not known what became of the request",
    JsonRpcErrorCode.INTERNAL_ERROR,
    "worker_lost",
)


@define(eq=False, repr=False)
class Forwarded:
    """One request on its way; made by `forward`, and used once.

    Attributes:
        is_stream: whether it is a GET, whose response lasts as long as its session.
    """

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    is_stream: bool
    _is_ended: bool = field(default=False, init=False)

    @property
    def descriptors(self) -> list[int]:
        """Return the descriptor of the connection; none once it is closed."""
        if self._writer.is_closing():
            return []
        return [self._writer.get_extra_info("socket").fileno()]

    async def relay(self, request: HttpRequest) -> HttpRefusal | None:
        """Send the worker's response; return a refusal if there will be none."""
        watcher = asyncio.ensure_future(self._watch(request))
        response = _ResponseReader()
        try:
            while not response.is_complete:
                data = await self._read()
                if not data:
                    break
                for event in response.feed(data):
                    await request.send(event)
            if response.is_complete:
                return None
            if not response.has_begun:
                return None if watcher.done() else _LOST
            await self._break_off(request, watcher)
            return None
        finally:
            watcher.cancel()
            self._writer.transport.abort()

    def end(self) -> None:
        """End the response, as a stream that is complete: this worker stops."""
        self._is_ended = True
        self._writer.transport.abort()

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(_READ_BYTES)
        except OSError:  # the worker died with unread bytes
            return b""

    async def _watch(self, request: HttpRequest) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self._writer.transport.abort()

    async def _break_off(self, request: HttpRequest, watcher: asyncio.Future[None]) -> None:
        if self._is_ended:
            await request.send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        cut = request.scope.get("extensions", {}).get(CUT_CONNECTION)
        if cut is not None and not watcher.done():
            cut()  # an end in order would say that the stream is complete
            await watcher


async def forward(request: HttpRequest, body: bytes, address: Address) -> Forwarded | None:
    """Send a request, whose body has been read, to a worker; None if nothing listens there."""
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            if isinstance(address, str):
                reader, writer = await asyncio.open_unix_connection(address)
            else:
                reader, writer = await asyncio.open_connection(*address)
    except OSError:
        return None
    writer.write(_encode(request, body))
    return Forwarded(reader, writer, request.scope["method"] == "GET")


def _encode(request: HttpRequest, body: bytes) -> bytes:
    scope = request.scope
    target = scope["raw_path"]
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    lines = [b"%s %s HTTP/1.1" % (scope["method"].encode(), target)]
    lines += [b"%s: %s" % each for each in scope["headers"] if each[0] not in _NOT_FORWARDED]
    lines += [b"content-length: %d" % len(body), b"connection: close"]
    return b"\r\n".join((*lines, b"", body))


class _ResponseReader:
    """Turns the bytes of a response into the events of ASGI; httptools calls it back."""

    def __init__(self) -> None:
        self.has_begun = False
        self.is_complete = False
        self._headers: list[RawHeader] = []
        self._events: list[Event] = []
        self._parser: Any = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that these bytes complete."""
        self._parser.feed_data(data)
        events, self._events = self._events, []
        return events

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name not in _NOT_RETURNED:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.has_begun = True
        status = self._parser.get_status_code()
        start = {"type": "http.response.start", "status": status, "headers": self._headers}
        self._events.append({**start, SECURED: True})

    def on_body(self, body: bytes) -> None:
        self._events.append({"type": "http.response.body", "body": body, "more_body": True})

    def on_message_complete(self) -> None:
        self.is_complete = True
        self._events.append({"type": "http.response.body", "body": b"", "more_body": False})
