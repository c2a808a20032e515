"""Lists of servers that get headers of the client: each value has lists of its own (GATE-16).

Such a server may list something else for each user, or nothing without a credential. So its lists
are read over the connection of the value, when a client with this value lists or calls something.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...base.bounded_dict import BoundedDict
from ...client import MCPError
from .client_request_bridge import client_of
from .routes import Definition, Routes

if TYPE_CHECKING:
    from ...features.context import ToolContext
    from ..coordinator import ServerConnections

log = logging.getLogger("foundation_rt.gateway")

FRESH_SECONDS = 60.0
RETRY_SECONDS = 5.0
MAX_VALUES = 1_000
MAX_ROUTES = 100

Headers = tuple[tuple[str, str], ...]
ServerLists = Mapping[str, tuple[Definition, ...]]
"""By kind, the definitions of one server."""


@define(eq=False, repr=False)
class _ClientLists:
    """The lists of one value at one server, or the task that reads them.

    Attributes:
        lists: None if they could not be read.
        until: when they are read again, time of the loop.
    """

    reading: asyncio.Task[None] | None = None
    lists: ServerLists | None = None
    until: float = 0.0


@define(eq=False, repr=False)
class PerClientLists:
    """The lists of all values, as far as they were used lately.

    Args:
        kinds: the lists to read.
        make_routes: makes the routes of lists that take the place of the shared ones, by server.
    """

    _kinds: tuple[str, ...]
    _make_routes: Callable[[Mapping[str, ServerLists]], Routes]
    _lists: BoundedDict[tuple[str, Headers], _ClientLists] = field(
        factory=lambda: BoundedDict(MAX_VALUES), init=False
    )
    _routes: BoundedDict[Hashable, tuple[list[ServerLists], Routes]] = field(
        factory=lambda: BoundedDict(MAX_ROUTES), init=False
    )

    _reading: set[asyncio.Task[None]] = field(factory=set, init=False)

    def known_routes(self) -> list[Routes]:
        """Return the routes that were made lately, of all values."""
        return [routes for _, routes in self._routes.values()]

    async def routes(
        self, servers: Mapping[str, tuple[ServerConnections, Headers]], context: ToolContext
    ) -> Routes | None:
        """Return the routes of a client; None if they are those of all.

        Args:
            servers: by id, those that get headers of this client.
            context: of its request.
        """
        found = await asyncio.gather(
            *(self._read(server, headers, context) for server, headers in servers.values())
        )
        own = {server: lists for server, lists in zip(servers, found, strict=True) if lists}
        if not own:
            return None
        key = tuple((server, servers[server][1]) for server in own)
        used = [*own.values()]
        known = self._routes.use(key)
        if known is not None and all(a is b for a, b in zip(known[0], used, strict=True)):
            return known[1]
        routes = self._make_routes(own)
        self._routes[key] = used, routes
        return routes

    def shared_changed(self) -> None:
        """Make all routes anew: the lists of other servers have changed."""
        self._routes.clear()

    def changed(self, server_id: str) -> bool:
        """Read the lists of a server again when they are used; return whether any were known."""
        known = [key for key in self._lists if key[0] == server_id]
        for key in known:
            del self._lists[key]
        return bool(known)

    async def close(self) -> None:
        """Wait until nothing is read any more: all connections have been closed."""
        await asyncio.gather(*self._reading, return_exceptions=True)

    async def _read(
        self, server: ServerConnections, headers: Headers, context: ToolContext
    ) -> ServerLists | None:
        """Return the lists of a value; of clients that ask at once, one reads them."""
        key = (server.server_id, headers)
        own = self._lists[key] = self._lists.get(key) or _ClientLists()
        if own.reading is None and asyncio.get_running_loop().time() >= own.until:
            own.reading = asyncio.create_task(self._refresh(own, server, client_of(context)))
            self._reading.add(own.reading)
            own.reading.add_done_callback(self._reading.discard)
        if own.reading is not None:
            await asyncio.wait([own.reading])
        return own.lists

    async def _refresh(
        self, own: _ClientLists, server: ServerConnections, client: dict[str, Any]
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            read = await asyncio.gather(*(server.list_own(kind, **client) for kind in self._kinds))
        except MCPError as error:
            log.warning("own lists of server %r not read: %s", server.server_id, error.message)
            own.lists, own.until = None, loop.time() + RETRY_SECONDS
        else:
            fresh = dict(zip(self._kinds, read, strict=True))
            if fresh != own.lists:
                own.lists = fresh
            own.until = loop.time() + FRESH_SECONDS
        finally:
            own.reading = None
