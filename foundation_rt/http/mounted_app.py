"""An ASGI application of the author at the paths that the runtime does not use (HTTP-39).

The runtime checks Host and Origin, and finds the principal, before the application sees a request
or a WebSocket; a refused WebSocket is answered over HTTP, before the upgrade. The application ends
with the runtime: what it still does when the time for handlers is over is cancelled.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field

from ..base.abort import call_in_loop
from .asgi import CLOSE, SECURED, SECURITY_HEADERS, HttpRefusal, security_headers

if TYPE_CHECKING:
    from ..features.http_pages import MountedApp
    from ..protocol.principal import Principal
    from .asgi import Event, Receive, Scope, Send
    from .auth.authentication import Authenticator
    from .headers import RequestHead

PRINCIPAL = "foundation_rt.principal"
"""The key of the scope under which the application finds the `Principal`, or None."""

SUBPROTOCOL = "foundation-rt.bearer"
"""The subprotocol of a browser's WebSocket, which has `.KEY` in base64url beside it (HTTP-44)."""

RESTARTING = 1012
FAILED = 1011

_DENIAL = "websocket.http.response"
_PLAIN = b"text/plain; charset=utf-8"
_EVENT_STREAM = b"text/event-stream"


@define(eq=False, repr=False)
class MountedService:
    """The application while the runtime serves.

    Args:
        mounted: the application.
        authenticator: finds the principals of keys and tokens.
    """

    _mounted: MountedApp
    _authenticator: Authenticator
    _tasks: set[asyncio.Task[Any]] = field(factory=set, init=False)
    _stopping: asyncio.Event = field(factory=asyncio.Event, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)

    async def authenticate(
        self, scope: Scope, head: RequestHead, path: str, mount: str
    ) -> Principal | HttpRefusal | None:
        """Return the principal, or a refusal; at a public path nobody is refused (HTTP-46)."""
        if scope["type"] == "websocket":
            head = _with_subprotocol(scope, head)
        principal = await self._authenticator.authenticate(head, mount)
        if not isinstance(principal, HttpRefusal):
            return principal
        if _is_public(self._mounted, path):
            return None
        if self._mounted.page_token is None or (head.api_key or head.authorization) is not None:
            return principal
        return evolve(
            principal,
            message="Unauthorized: open the URL that the server has printed, which has a token;"
            " programs send a key of this server in X-API-Key, or as a Bearer token",
        )

    @property
    def takes_sockets(self) -> bool:
        """Return whether the application takes WebSockets."""
        return self._mounted.websocket

    async def serve(
        self, scope: Scope, receive: Receive, send: Send, principal: Principal | None
    ) -> None:
        """Hand a request or a WebSocket to the application."""
        scope[PRINCIPAL] = principal
        with self._counted():
            if scope["type"] == "http":
                exchange = _Exchange(receive, _secured(scope, send), self._stopping)
                await self._mounted.app(scope, exchange.receive, exchange.send)
            else:
                await self._serve_socket(scope, receive, send)

    def stop_listening(self) -> None:
        """Let event streams end: the server stops (HTTP-72)."""
        self._stopping.set()

    def close(self) -> None:
        """Cancel whatever the application still does; from any thread."""
        if self._loop is not None:
            call_in_loop(self._loop, self._cancel)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._loop = task.get_loop()
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket, and close it properly however the application ends."""
        is_open = False
        was_told = False

        async def receive_noting() -> Event:
            nonlocal was_told
            event = await receive()
            if event["type"] == "websocket.disconnect" and event.get("code") == RESTARTING:
                was_told = True
            return event

        async def send_noting(event: Event) -> None:
            nonlocal is_open
            if event["type"] == "websocket.accept" and SUBPROTOCOL in scope.get("subprotocols", ()):
                # A browser ends a connection whose server takes none of its subprotocols.
                event = {**event, "subprotocol": event.get("subprotocol") or SUBPROTOCOL}
            await send(event)
            if event["type"] == "websocket.accept":
                is_open = True
            elif event["type"] == "websocket.close":
                is_open = False

        code = FAILED
        try:
            await self._mounted.app(scope, receive_noting, send_noting)
            code = RESTARTING if was_told else 1000
        except asyncio.CancelledError:
            code = RESTARTING
            raise
        finally:
            if is_open:
                await close_socket(send, code)


@define(eq=False, repr=False)
class _Exchange:
    """One request to the application; an event stream hears of the end of the server (HTTP-72)."""

    _receive: Receive
    _send: Send
    _stopping: asyncio.Event
    _has_body: bool = field(default=False, init=False)
    _is_stream: bool = field(default=False, init=False)

    async def receive(self) -> Event:
        """Return the next part of the request, or that nobody listens any more."""
        if not self._has_body:
            event = await self._receive()
            self._has_body = not event.get("more_body", False)
            return event
        coming = asyncio.ensure_future(self._receive())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((coming, stopping), return_when=asyncio.FIRST_COMPLETED)
            if self._is_stream and not coming.done():
                return {"type": "http.disconnect"}
            return await coming
        finally:
            coming.cancel()
            stopping.cancel()

    async def send(self, event: Event) -> None:
        """Send a part of the response."""
        if event["type"] == "http.response.start":
            self._is_stream = any(
                bytes(name).lower() == b"content-type" and bytes(value).startswith(_EVENT_STREAM)
                for name, value in event.get("headers", ())
            )
        await self._send(event)


def _with_subprotocol(scope: Scope, head: RequestHead) -> RequestHead:
    """Move the key among the subprotocols of a WebSocket into its head (HTTP-44)."""
    prefix = f"{SUBPROTOCOL}."
    offered = scope.get("subprotocols", ())
    keys = [each.removeprefix(prefix) for each in offered if each.startswith(prefix)]
    if not keys:
        return head
    scope["subprotocols"] = [each for each in offered if not each.startswith(prefix)]
    try:
        key = urlsafe_b64decode(f"{keys[0]}==").decode()
    except ValueError:
        key = ""  # none of this server
    return head if head.api_key is not None else evolve(head, api_key=key)


def _is_public(mounted: MountedApp, path: str) -> bool:
    return any(
        path.startswith(each) if each.endswith("/") and each != "/" else path == each
        for each in mounted.public
    )


async def close_socket(send: Send, code: int) -> None:
    """Close a WebSocket that may have been closed from the other side."""
    try:
        await send({"type": "websocket.close", "code": code})
    except (OSError, RuntimeError):
        return  # it was closed already, which servers say in several ways


def _secured(scope: Scope, send: Send) -> Send:
    """Return `send` with the security headers that the application does not set itself."""

    async def send_secured(event: Event) -> None:
        if event["type"] == "http.response.start":
            own = [*event.get("headers", ())]
            names = {bytes(name).lower() for name, _ in own}
            added = [each for each in security_headers(scope) if each[0] not in names]
            event = {**event, "headers": own + added, SECURED: True}
        await send(event)

    return send_secured


def denying(scope: Scope, send: Send) -> Send:
    """Return a `send` for a response to a WebSocket that is refused before its upgrade."""
    if _DENIAL not in scope.get("extensions", {}):
        return _closing(send)

    async def deny(event: Event) -> None:
        event = {**event, "type": f"websocket.{event['type']}"}
        if event["type"] == f"{_DENIAL}.start":
            event["headers"] = [*event.get("headers", ()), *SECURITY_HEADERS, CLOSE]
        await send(event)

    return deny


def _closing(send: Send) -> Send:
    """Return a `send` for servers that can only refuse with 403."""

    async def close(event: Event) -> None:
        if event["type"] == "http.response.start":
            await send({"type": "websocket.close"})

    return close
