"""A transport of httpx2 that calls an ASGI application in this process (OAPI-40, OAPI-46).

The application's body is passed on piece by piece: it waits until the last piece was read. So a
response is bounded as one from the network is, and one that never ends does not fill the memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, Final

import httpx2
from attrs import define, field

_log: Final = logging.getLogger("foundation_rt.openapi")
_CLIENT: Final = ("127.0.0.1", 123)
_CLOSE_SECONDS: Final = 5.0

_Message = MutableMapping[str, Any]


class InProcessTransport(httpx2.AsyncBaseTransport):
    """Sends requests to an ASGI application.

    Args:
        app: of ASGI 3.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app
        self._running: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the response of the application, as soon as it begins."""
        exchange = _Exchange(await request.aread())
        task = asyncio.create_task(exchange.run(self._app, _scope(request)))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            await exchange.begun.wait()
        except asyncio.CancelledError:
            task.cancel()
            raise
        return httpx2.Response(
            exchange.status, headers=exchange.headers, stream=_Body(exchange, task)
        )

    async def aclose(self) -> None:
        """Wait for what applications do after their responses, then cancel it."""
        tasks = [*self._running]
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
        for task in tasks:
            task.cancel()


def _scope(request: httpx2.Request) -> _Message:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": request.url.raw_path.partition(b"?")[0],
        "query_string": request.url.query,
        "server": (request.url.host, request.url.port),
        "client": _CLIENT,
        "root_path": "",
    }


@define(eq=False)
class _Exchange:
    """One request and its response.

    Attributes:
        content: the body of the request.
        status: of the response; 500 for an application that ends without one.
        headers: of the response.
        begun: the response has begun, or there will be none.
        is_complete: the application has sent its last piece.
    """

    content: bytes
    status: int = field(default=500, init=False)
    headers: list[tuple[bytes, bytes]] = field(factory=list, init=False)
    begun: asyncio.Event = field(factory=asyncio.Event, init=False)
    is_complete: bool = field(default=False, init=False)
    _is_sent: bool = field(default=False, init=False)
    _ended: asyncio.Event = field(factory=asyncio.Event, init=False)
    _pieces: asyncio.Queue[bytes | None] = field(factory=lambda: asyncio.Queue(1), init=False)

    async def run(self, app: Callable[..., Awaitable[None]], scope: _Message) -> None:
        """Call the application; log what it raises, as a server of ASGI does."""
        try:
            await app(scope, self.receive, self.send)
        except Exception:
            _log.exception("the application has raised")
        finally:
            self.begun.set()
            self._ended.set()
        if not self.is_complete:
            await self._pieces.put(None)

    async def receive(self) -> _Message:
        """Return the request; later, that the client has gone."""
        if self._is_sent:
            await self._ended.wait()
            return {"type": "http.disconnect"}
        self._is_sent = True
        return {"type": "http.request", "body": self.content, "more_body": False}

    async def send(self, message: _Message) -> None:
        """Take a message of the application; wait until the piece before it was read."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [(bytes(k), bytes(v)) for k, v in message.get("headers", ())]
            return
        if message["type"] != "http.response.body" or self.is_complete:
            return
        self.begun.set()
        if message.get("body"):
            await self._pieces.put(bytes(message["body"]))
        if not message.get("more_body", False):
            self.is_complete = True
            self._ended.set()
            await self._pieces.put(None)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body.

        Raises:
            httpx2.ReadError: the application has ended within its response.
        """
        while (piece := await self._pieces.get()) is not None:
            yield piece
        if not self.is_complete and self.status < 500:
            raise httpx2.ReadError("the application has ended within its response")


class _Body(httpx2.AsyncByteStream):
    """The body of a response; the application is cancelled when nobody reads it to its end."""

    def __init__(self, exchange: _Exchange, task: asyncio.Task[None]) -> None:
        self._exchange, self._task = exchange, task

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._exchange.pieces()

    async def aclose(self) -> None:
        if not self._exchange.is_complete:
            self._task.cancel()
