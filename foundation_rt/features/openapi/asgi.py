"""An ASGI application as an API: its own document, its lifespan, requests in process (OAPI-40)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from threading import Thread
from typing import Any, Final

from attrs import define, field

from ...errors import MissingExtraError
from .documents import MAX_BYTES, OpenApiError, parse_text

BASE_URL: Final = "http://localhost"
DOCUMENT_PATH: Final = "/openapi.json"

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
        import httpx2

        async with httpx2.AsyncClient(transport=self.transport(), base_url=BASE_URL) as client:
            response = await client.get(DOCUMENT_PATH)
        is_found = response.status_code == 200 and len(response.content) <= MAX_BYTES
        return response.content if is_found else b""

    def transport(self) -> Any:
        """Return a transport of httpx2 that calls the application.

        Raises:
            MissingExtraError: the extra `openapi` is not installed.
        """
        try:
            from .in_process import InProcessTransport
        except ImportError:
            raise MissingExtraError("Calling an application in process", "openapi") from None
        return InProcessTransport(self)

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
