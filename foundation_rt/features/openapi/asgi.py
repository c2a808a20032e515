"""An ASGI application as an API: its own document, its lifespan, requests in process (OAPI-40).

The body of a response is passed on piece by piece: the application waits until the last piece was
read. So a response is bounded as one from the network is, and one that never ends does not fill
the memory (OAPI-46).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from threading import Thread
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from attrs import define, field

from ...base.http_client.errors import BrokenOffError
from .documents import MAX_BYTES, OpenApiError, parse_text
from .requests import ApiRequest
from .responses import ApiResponse

BASE_URL: Final = "http://localhost"
DOCUMENT_PATH: Final = "/openapi.json"

_log: Final = logging.getLogger("foundation_rt.openapi")
_CLIENT: Final = ("127.0.0.1", 123)
_CLOSE_SECONDS: Final = 5.0

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


@define(eq=False)
class InProcessApp:
    """An ASGI application that is called in this process.

    Args:
        app: of ASGI 3, as those of FastAPI and Starlette are.
    """

    app: Any
    _state: dict[str, Any] = field(factory=dict, init=False)
    _running: set[asyncio.Task[None]] = field(factory=set, init=False)

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Call the application, with the state that its lifespan has set."""
        await self.app({**scope, "state": dict(self._state)}, receive, send)

    def document(self) -> Any:
        """Return the application's own OpenAPI document.

        Raises:
            OpenApiError: it has none.
        """
        make = getattr(self.app, "openapi", None)
        if callable(make):
            return make()
        found: list[bytes] = []
        # The application is called before there is a loop, or within one that cannot be waited in.
        thread = Thread(target=lambda: found.append(asyncio.run(self._read_document())))
        thread.start()
        thread.join()
        if not found or not found[0]:
            raise OpenApiError(
                f"the application has no document at {DOCUMENT_PATH}: give it as document=..."
            )
        return parse_text(found[0], DOCUMENT_PATH)

    async def _read_document(self) -> bytes:
        try:
            found = await self.send(ApiRequest("GET", f"{BASE_URL}{DOCUMENT_PATH}", {}), MAX_BYTES)
        finally:
            await self.close()
        return found.content if found is not None and found.status == 200 else b""

    async def send(self, request: ApiRequest, max_bytes: int) -> ApiResponse | None:
        """Return the response of the application; None if it is longer than `max_bytes`.

        Raises:
            BrokenOffError: the application has ended within its response.
        """
        exchange = _Exchange(request.content or b"")
        task = asyncio.create_task(exchange.run(self, _scope(request)))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        content = bytearray()
        try:
            await exchange.begun.wait()
            async for piece in exchange.pieces():
                content += piece
                if len(content) > max_bytes:
                    return None
        finally:
            if not exchange.is_complete:
                task.cancel()
        headers: dict[str, str] = {}
        for name, value in exchange.headers:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        return ApiResponse(exchange.status, headers, bytes(content))

    async def close(self) -> None:
        """Wait for what the application does after its responses, then cancel it."""
        tasks = [*self._running]
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
        for task in tasks:
            task.cancel()

    @asynccontextmanager
    async def lifespan(self, server: object) -> AsyncIterator[None]:
        """Start the application, and end it (the lifespan protocol of ASGI).

        An application that has no lifespan raises when it is asked for one; it is served without.

        Raises:
            OpenApiError: it says that it could not start.
        """
        events: asyncio.Queue[_Message] = asyncio.Queue()
        answers: asyncio.Queue[_Message] = asyncio.Queue()
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": self._state}
        running = asyncio.ensure_future(self.app(scope, events.get, answers.put))
        try:
            started = await self._answer_to("lifespan.startup", events, answers, running)
            if started is not None and started["type"] == "lifespan.startup.failed":
                raise OpenApiError(f"the application did not start: {started.get('message', '')}")
            yield
            if started is not None:
                await self._answer_to("lifespan.shutdown", events, answers, running)
        finally:
            running.cancel()
            await asyncio.wait([running])
            if not running.cancelled():
                running.exception()  # looked at: an application without a lifespan raises

    async def _answer_to(
        self,
        event: str,
        events: asyncio.Queue[_Message],
        answers: asyncio.Queue[_Message],
        running: asyncio.Future[Any],
    ) -> _Message | None:
        """Send an event; return the answer, None if the application ends without one."""
        events.put_nowait({"type": event})
        answer = asyncio.ensure_future(answers.get())
        await asyncio.wait([answer, running], return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        answer.cancel()
        return None


def _scope(request: ApiRequest) -> _Message:
    parts = urlsplit(request.url)
    headers = [(name.lower().encode(), text.encode()) for name, text in request.headers.items()]
    host, content = parts.netloc.encode(), request.content
    framing = [] if content is None else [(b"content-length", b"%d" % len(content))]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "headers": [(b"host", host), *headers, *framing],
        "scheme": parts.scheme,
        "path": unquote(parts.path or "/"),
        "raw_path": (parts.path or "/").encode("ascii"),
        "query_string": parts.query.encode("ascii"),
        "server": (parts.hostname, parts.port),
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
        """Yield the body, piece by piece.

        Raises:
            BrokenOffError: the application has ended within its response.
        """
        while (piece := await self._pieces.get()) is not None:
            yield piece
        if not self.is_complete and self.status < 500:
            raise BrokenOffError("the application has ended within its response")
