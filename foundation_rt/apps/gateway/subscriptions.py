"""Subscriptions of clients to resources and tasks of servers (GATE-13).

However many requests of one client are subscribed to the same, its server has one subscription. It
outlives lost connections: the client of the server subscribes again by itself. What the connection
of one client brings is for that client alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from ...base.abort import call_in_loop
from ...client import MCPError
from .client_request_bridge import client_of
from .failures import failure

if TYPE_CHECKING:
    from ...features.context import ToolContext
    from ...features.forwarding.forwarder import ForwardedRequest
    from ...server import Server
    from .server_routes import ServerRoutes


@frozen
class _Key:
    """The identity of a subscription at a server.

    Attributes:
        inner: the URI of a resource, or the id of a task, at the server.
        owner: the client's session or principal.
        headers: of the client, that its connection is made with; they may be secrets.
    """

    server_id: str
    inner: str
    is_task: bool
    owner: str | None
    headers: tuple[tuple[str, str], ...] = field(repr=False)


@define(eq=False)
class _Followed:
    """A subscription at a server, and the requests of clients that it serves.

    Attributes:
        requests: each with a URI or id by which its client knows it.
    """

    task: asyncio.Task[None]
    confirmed: asyncio.Future[None]
    requests: set[tuple[ForwardedRequest, str]] = field(factory=set)


@define(eq=False)
class ForwardedSubscriptions:
    """Subscriptions of the clients of the gateway at its servers.

    Args:
        server: of the gateway; notifies its clients.
        servers: the servers.
    """

    server: Server
    servers: ServerRoutes
    _followed: dict[_Key, _Followed] = field(factory=dict, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)

    async def subscribe(self, request: ForwardedRequest, context: ToolContext, uri: str) -> None:
        """Subscribe to a resource, until `ended` is called for the request.

        Raises:
            ForwardedError, ToolError: no server has it, or accepts the subscription.
        """
        routes = await self.servers.routes_for(context)
        server_id, inner = routes.owner_of(uri)
        await self._join(self._key(context, server_id, inner, is_task=False), request, context, uri)

    async def subscribe_to_task(
        self, request: ForwardedRequest, context: ToolContext, task: tuple[str, str], outside: str
    ) -> None:
        """Subscribe to a task, as `subscribe` does to a resource.

        Args:
            task: its server, and its id there.
            outside: its id for the client.
        """
        await self._join(self._key(context, *task, is_task=True), request, context, outside)

    def task_changed(self, server_id: str, params: Mapping[str, Any]) -> None:
        """Pass `notifications/tasks` of a server on to the clients that have subscribed to it."""
        outside = {
            name: None
            for key, followed in self._followed.items()
            if key.is_task and (key.server_id, key.inner) == (server_id, params.get("taskId"))
            for _, name in followed.requests
        }
        for name in outside:
            self.server.task_changed({**params, "taskId": name})

    def ended(self, request: ForwardedRequest) -> None:
        """Take note that the subscriptions of a request have ended; called from any thread."""
        if self._loop is not None:
            call_in_loop(self._loop, self._end, request)

    async def close(self) -> None:
        """End all subscriptions."""
        tasks = [followed.task for followed in self._followed.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _key(self, context: ToolContext, server_id: str, inner: str, *, is_task: bool) -> _Key:
        client = client_of(context)
        headers = self.servers.connections(server_id).headers_of(context.headers)
        return _Key(server_id, inner, is_task, client["session"] or client["principal"], headers)

    async def _join(
        self, key: _Key, request: ForwardedRequest, context: ToolContext, outside: str
    ) -> None:
        """Let a request take part in a subscription, which is made if there is none."""
        self._loop = asyncio.get_running_loop()
        followed = self._followed.get(key)
        if followed is None:
            confirmed: asyncio.Future[None] = self._loop.create_future()
            task = asyncio.create_task(self._follow(key, context, confirmed))
            followed = self._followed[key] = _Followed(task, confirmed)
            task.add_done_callback(lambda _: self._over(key, followed))
        followed.requests.add((request, outside))
        try:
            await asyncio.shield(followed.confirmed)
        except MCPError as error:
            raise failure(key.server_id, error) from error
        except BaseException:
            self._release(key, followed, request)
            raise

    async def _follow(
        self, key: _Key, context: ToolContext, confirmed: asyncio.Future[None]
    ) -> None:
        uris, tasks = ((), (key.inner,)) if key.is_task else ((key.inner,), ())
        try:
            server = self.servers.connections(key.server_id)
            async with server.subscribe(*uris, tasks=tasks, **client_of(context)) as changes:
                if not confirmed.done():
                    confirmed.set_result(None)
                async for _ in changes:
                    self._updated(key)
        except Exception as error:
            if not confirmed.done():
                confirmed.set_exception(error)
                confirmed.exception()  # those who wait raise it; there may be none

    def _updated(self, key: _Key) -> None:
        """Notify the clients of a resource; those of a task have its notification."""
        followed = self._followed.get(key)
        if followed is None or key.is_task:
            return
        for uri in {outside for _, outside in followed.requests}:
            of_uri = [request for request, outside in followed.requests if outside == uri]
            self.server.resource_updated(uri, requests=of_uri)

    def _end(self, request: ForwardedRequest) -> None:
        for key, followed in [*self._followed.items()]:
            self._release(key, followed, request)

    def _release(self, key: _Key, followed: _Followed, request: ForwardedRequest) -> None:
        others = {each for each in followed.requests if each[0] is not request}
        if len(others) < len(followed.requests):
            followed.requests = others
            if not others:
                followed.task.cancel()
                self._over(key, followed)

    def _over(self, key: _Key, followed: _Followed) -> None:
        if self._followed.get(key) is followed:
            del self._followed[key]
        if not followed.confirmed.done():
            followed.confirmed.cancel()
