"""ResourceSubscriptions of clients to resources of servers (GATE-13).

However many clients of one session are subscribed to a resource, its server has one subscription.
It outlives lost connections: the client of the server subscribes again by itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from attrs import define, field

from ..client import MCPError
from .failures import failure
from .relay import client_of

if TYPE_CHECKING:
    from ..core.context import ToolContext
    from ..core.forwarding.forwarder import ForwardedRequest
    from ..server import Server
    from .upstreams import Upstreams

_Key = tuple[str, str | None, str]
"""The id of the server, the client's session or principal, and the URI there."""


@define(eq=False)
class _Followed:
    """A subscription at a server, and the requests of clients that it serves."""

    task: asyncio.Task[None]
    confirmed: asyncio.Future[None]
    requests: set[ForwardedRequest] = field(factory=set)


@define(eq=False)
class ResourceSubscriptions:
    """Subscriptions of the clients of the gateway to resources of servers.

    Args:
        server: of the gateway; notifies its clients.
        upstreams: the servers.
    """

    server: Server
    upstreams: Upstreams
    _followed: dict[_Key, _Followed] = field(factory=dict, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)

    async def subscribe(self, request: ForwardedRequest, context: ToolContext, uri: str) -> None:
        """Subscribe to a resource, until `ended` is called for the request.

        Raises:
            ForwardedError, ToolError: no server has it, or accepts the subscription.
        """
        self._loop = asyncio.get_running_loop()
        routes = await self.upstreams.routes_for(context)
        server_id, inner = routes.owner_of(uri)
        client = client_of(context)
        key = (server_id, client["session"] or client["principal"], inner)
        followed = self._followed.get(key)
        if followed is None:
            confirmed: asyncio.Future[None] = self._loop.create_future()
            task = asyncio.create_task(self._follow(key, context, uri, confirmed))
            followed = self._followed[key] = _Followed(task, confirmed)
            task.add_done_callback(lambda _: self._over(key, followed))
        followed.requests.add(request)
        try:
            await asyncio.shield(followed.confirmed)
        except MCPError as error:
            raise failure(server_id, error) from error
        except BaseException:
            self._release(key, followed, request)
            raise

    def ended(self, request: ForwardedRequest) -> None:
        """Take note that the subscriptions of a request have ended; called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end, request)

    async def close(self) -> None:
        """End all subscriptions."""
        tasks = [followed.task for followed in self._followed.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(
        self, key: _Key, context: ToolContext, uri: str, confirmed: asyncio.Future[None]
    ) -> None:
        server_id, _, inner = key
        try:
            server = self.upstreams.connections(server_id)
            async with server.subscribe(inner, **client_of(context)) as changes:
                if not confirmed.done():
                    confirmed.set_result(None)
                async for _ in changes:
                    self.server.resource_updated(uri)
        except Exception as error:
            if not confirmed.done():
                confirmed.set_exception(error)
                confirmed.exception()  # those who wait raise it; there may be none

    def _end(self, request: ForwardedRequest) -> None:
        for key, followed in [*self._followed.items()]:
            self._release(key, followed, request)

    def _release(self, key: _Key, followed: _Followed, request: ForwardedRequest) -> None:
        if request in followed.requests:
            followed.requests.discard(request)
            if not followed.requests:
                followed.task.cancel()
                self._over(key, followed)

    def _over(self, key: _Key, followed: _Followed) -> None:
        if self._followed.get(key) is followed:
            del self._followed[key]
        if not followed.confirmed.done():
            followed.confirmed.cancel()
