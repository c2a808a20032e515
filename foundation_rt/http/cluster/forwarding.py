"""Forwarding one request to the worker that has its session (HTTP-61).

The request goes as it came to a private address of that worker, which checks it as if it had come
to it at first, authentication included. The response comes back as it is made: nothing is gathered,
and no more is read than the client takes. A client that goes takes the connection to the worker
with it, and a worker that dies takes the connection to the client.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from attrs import define, field

from ...errors import JsonRpcErrorCode
from ..asgi import HttpRefusal
from ..uvicorn_protocol import CUT_CONNECTION
from .worker_connections import OF_ONE_CONNECTION

if TYPE_CHECKING:
    from ..request import HttpRequest
    from .worker_connections import Address, WorkerConnection, WorkerConnections

_WATCHED_AFTER_SECONDS = 0.1
"""Seconds after which the client of a request is watched. Most responses are complete by then."""

# The first worker has checked `Origin`, and adds what a browser needs in the response.
_NOT_FORWARDED = OF_ONE_CONNECTION | {b"content-length", b"expect", b"origin"}

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
        unread: the request, if the worker has done nothing of it, because it stops or has ended.
    """

    _connection: WorkerConnection
    _data: bytes
    is_stream: bool
    unread: bytes | None = field(default=None, init=False)
    _is_ended: bool = field(default=False, init=False)

    @property
    def address(self) -> Address:
        """Return the address of the worker."""
        return self._connection.address

    async def relay(self, request: HttpRequest) -> HttpRefusal | None:
        """Send the worker's response; return a refusal if there will be none."""
        connection, data = self._connection, self._data
        self._data = b""
        try:
            await connection.wait_for_news(_WATCHED_AFTER_SECONDS)
            if connection.is_unread:
                self.unread = data
                return None
            del data  # it may be large, and the response may take hours (HTTP-28)
            if not connection.is_complete:
                return await self._relay_on(request)
            events = connection.events()
        finally:
            connection.finish()
        for event in events:
            await request.send(event)
        return None

    async def _relay_on(self, request: HttpRequest) -> HttpRefusal | None:
        """Send a response that takes its time, for as long as its client is there."""
        connection = self._connection
        watcher = asyncio.ensure_future(self._watch(request))
        try:
            while True:
                await connection.wait_for_news()
                events = connection.events()
                if not events:
                    break
                for event in events:
                    await request.send(event)
                if not events[-1].get("more_body", True):
                    return None
            if not connection.status:
                return None if watcher.done() else _LOST
            await self._break_off(request, watcher)
            return None
        finally:
            watcher.cancel()

    def end(self) -> None:
        """End the response, as a stream that is complete: this worker stops."""
        self._is_ended = True
        self._connection.abort()

    async def _watch(self, request: HttpRequest) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self._connection.abort()

    async def _break_off(self, request: HttpRequest, watcher: asyncio.Future[None]) -> None:
        if self._is_ended:
            await request.send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        cut = request.scope.get("extensions", {}).get(CUT_CONNECTION)
        if cut is not None and not watcher.done():
            cut()  # an end in order would say that the stream is complete
            await watcher


async def forward(
    connections: WorkerConnections, address: Address, data: bytes, *, is_stream: bool
) -> Forwarded | None:
    """Send an encoded request to a worker; return None if nothing listens there."""
    connection = await connections.open(address)
    if connection is None:
        return None
    connection.send(data)
    return Forwarded(connection, data, is_stream)


def encode_request(request: HttpRequest, body: bytes) -> bytes:
    """Return a request, whose body has been read, as it is sent to another worker."""
    scope = request.scope
    target = scope["raw_path"]
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    lines = [b"%s %s HTTP/1.1" % (scope["method"].encode(), target)]
    lines += [b"%s: %s" % each for each in scope["headers"] if each[0] not in _NOT_FORWARDED]
    lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join((*lines, b"", body))
