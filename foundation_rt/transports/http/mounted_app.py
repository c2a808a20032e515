"""An ASGI application of the author at the paths that the runtime does not use (HTTP-39).

The runtime checks Host and Origin, and finds the principal, before the application sees a request
or a WebSocket; a refused WebSocket is answered over HTTP, before the upgrade. The application ends
with the runtime: what it still does when the time for handlers is over is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field

from .asgi import CLOSE, SECURED, SECURITY_HEADERS, HttpRefusal, send_body
from .page_access import PageCookies

if TYPE_CHECKING:
    from ...config.settings import HttpSection
    from ...protocol.principal import Principal
    from ...runtime import MountedApp
    from .asgi import Event, RawHeaders, Receive, Scope, Send
    from .authentication import Authenticator
    from .headers import RequestHead

PRINCIPAL = "foundation_rt.principal"
"""The key of the scope under which the application finds the `Principal`, or None."""

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
        cookies: finds those of browsers; None: there are none.
    """

    _mounted: MountedApp
    _authenticator: Authenticator
    _cookies: PageCookies | None
    _tasks: set[asyncio.Task[Any]] = field(factory=set, init=False)
    _stopping: asyncio.Event = field(factory=asyncio.Event, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)

    async def authenticate(
        self, scope: Scope, head: RequestHead, path: str, mount: str
    ) -> Principal | HttpRefusal | RawHeaders | None:
        """Return the principal, a refusal, or the headers of the redirect that sets the cookie."""
        cookies = self._cookies
        has_credential = head.api_key is not None or head.authorization is not None
        if cookies is not None and not has_credential:
            if scope["type"] == "http":
                redirect = cookies.log_in(scope)
                if redirect is not None:
                    return redirect
            found = cookies.find(scope)
            if found is not None:
                return found
        if not has_credential and _is_public(self._mounted, path):
            return None
        principal = await self._authenticator.authenticate(head, mount)
        if isinstance(principal, HttpRefusal) and cookies is not None and not has_credential:
            return evolve(
                principal,
                message="Unauthorized: open the URL that the server has printed, which has a token;"
                " programs send a key of this server in X-API-Key, or as a Bearer token",
            )
        return principal

    async def redirect(self, send: Send, headers: RawHeaders) -> None:
        """Send a browser to the same URL without its token."""
        await send_body(_secured(send), 303, _PLAIN, b"", headers)

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
                exchange = _Exchange(receive, _secured(send), self._stopping)
                await self._mounted.app(scope, exchange.receive, exchange.send)
            else:
                await self._serve_socket(scope, receive, send)

    def stop_listening(self) -> None:
        """Let event streams end: the server stops (HTTP-72)."""
        self._stopping.set()

    def close(self) -> None:
        """Cancel whatever the application still does; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel)

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


def make_service(
    mounted: MountedApp, authenticator: Authenticator, settings: HttpSection
) -> MountedService:
    """Return the service of an application.

    Args:
        mounted: the application.
        authenticator: has the token of its page among its keys.
        settings: the section `http`.
    """
    cookies = None
    if mounted.page_token is not None and authenticator.keys is not None:
        origins = frozenset(each.lower() for each in settings.allowed_origins)
        cookies = PageCookies(authenticator.keys, origins)
    return MountedService(mounted, authenticator, cookies)


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


def _secured(send: Send) -> Send:
    """Return `send` with the security headers that the application does not set itself."""

    async def send_secured(event: Event) -> None:
        if event["type"] == "http.response.start":
            own = [*event.get("headers", ())]
            names = {bytes(name).lower() for name, _ in own}
            added = [each for each in SECURITY_HEADERS if each[0] not in names]
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
