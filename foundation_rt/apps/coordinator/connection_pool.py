"""The connections of one server: one for the lists, and those of single clients (COORD-50 to -54).

A connection belongs to a key: its owner, None for all, and the values of the headers that were
taken from the client. The connection of the lists belongs to everybody, until the first owner
takes it over: a child process more for a single client would be wasted. When that owner has
ended, the connection is made anew, since the server may remember the owner in its session.

Where there is no room, a connection that nobody uses gives way, so that no client can keep others
out by having many (COORD-74).

`ConnectionHandlers` answer what a server asks outside of calls (COORD-59). What belongs to a call
goes to the handlers of that call. A server may also ask right after the handshake, or while several
calls run, and not say for which. On the connection of one client's session there is only one who
can be meant.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from ...client import Client, ConnectionLostError, MCPError
from ...errors import UsageError
from ...protocol.methods import ROOTS_LIST
from .call_slots import MAX_WAITING

if TYPE_CHECKING:
    from ...client import Revision, ServerRequestHandlers


MAX_CONNECTIONS = 16


@frozen(cache_hash=True)
class ConnectionKey:
    """The clients that share a connection.

    Attributes:
        owner: of the connection; None: all clients.
        headers: taken from the client's request, by name; they may be secrets.
        principal: of the client that the connection was made for; None if it is not known.
    """

    owner: str | None = None
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    principal: str | None = field(default=None, eq=False)


EVERYBODY = ConnectionKey()


@define(eq=False)
class PooledConnection:
    """A connection of a key.

    Attributes:
        client: None: that of the lists.
        handlers: of that client; None: those of the connection of the lists.
        running: requests that use it.
        idle_since: when the last of them ended, time of the loop.
        has_asked: whether its server has had the time to ask right after the handshake.
    """

    key: ConnectionKey
    client: Client | None
    handlers: ConnectionHandlers | None
    running: int = 0
    idle_since: float = 0.0
    timer: asyncio.TimerHandle | None = None
    is_leaving: bool = False
    has_asked: bool = False


@define(eq=False)
class ConnectionPool:
    """The connections of one server besides that of the lists, and who has taken that over.

    Args:
        server: its id, for messages.
        idle_seconds: after which a connection that nobody uses is closed.
        share: the most connections of one principal.
        make_client: makes the client of a key; not connected.
        renew_lists: makes the connection of the lists anew.
        may_take_lists: returns whether an owner may take that over.
    """

    _server: str
    _idle_seconds: float
    _share: int
    _make_client: Callable[[ConnectionKey], tuple[Client, ConnectionHandlers]]
    _renew_lists: Callable[[], None]
    _may_take_lists: Callable[[], bool]
    _connections: dict[ConnectionKey, PooledConnection] = field(factory=dict, init=False)
    _closing: set[asyncio.Task[None]] = field(factory=set, init=False)
    _room: asyncio.Event = field(factory=asyncio.Event, init=False)
    _waiting: int = field(default=0, init=False)
    _is_closed: bool = field(default=False, init=False)

    @property
    def count(self) -> int:
        """Return how many connections there are, with that of the lists."""
        own = sum(each.client is not None for each in self._connections.values())
        return 1 + own + len(self._closing)

    @property
    def lists_owner(self) -> str | None:
        """Return who has taken over the connection of the lists; None: nobody, or everybody."""
        owners = [each.key.owner for each in self._connections.values() if each.client is None]
        return owners[0] if owners else None

    @asynccontextmanager
    async def using(self, key: ConnectionKey, deadline: float) -> AsyncIterator[PooledConnection]:
        """Use the connection of a key within the block; see `take`."""
        connection = await self.take(key, deadline)
        try:
            yield connection
        finally:
            self.give_back(connection)

    async def take(self, key: ConnectionKey, deadline: float) -> PooledConnection:
        """Return the connection of a key; make or await room for it (COORD-53, COORD-74).

        Args:
            deadline: time of the loop, in s.

        Raises:
            MCPError: E208: there was no room in time; E201: the server is removed; E203: a header
                of the client cannot be sent.
        """
        while True:
            if self._is_closed:
                raise ConnectionLostError(
                    f"server {self._server!r} was closed", may_have_run=False, retryable=False
                )
            connection = self._connections.get(key) or self._make(key)
            if connection is None and self._make_room(key):
                connection = self._make(key)
            if connection is not None:
                connection.running += 1
                if connection.timer is not None:
                    connection.timer.cancel()
                    connection.timer = None
                return connection
            await self._wait_for_room(key, deadline)

    def give_back(self, connection: PooledConnection) -> None:
        """End one use of a connection; it is closed if its owner has ended, or when it is idle."""
        connection.running -= 1
        if connection.running or self._connections.get(connection.key) is not connection:
            return
        if connection.is_leaving:
            self._end(connection)
        elif connection.key != EVERYBODY or connection.client is not None:
            loop = asyncio.get_running_loop()
            connection.idle_since = loop.time()
            connection.timer = loop.call_later(self._idle_seconds, self._end, connection)
            self._room.set()  # it can give way

    def end_owner(self, owner: str) -> None:
        """Close the connections of an owner that has ended, each after its requests (COORD-52)."""
        for connection in self.of_owner(owner):
            connection.is_leaving = True
            if not connection.running:
                self._end(connection)

    def of_owner(self, owner: str) -> list[PooledConnection]:
        """Return the connections of an owner; of several values of headers each has one."""
        return [each for each in self._connections.values() if each.key.owner == owner]

    async def close(self) -> None:
        """Close all connections but that of the lists."""
        self._is_closed = True
        self._room.set()
        for connection in [*self._connections.values()]:
            self._end(connection)
        if self._closing:
            await asyncio.wait([*self._closing])

    def _make(self, key: ConnectionKey) -> PooledConnection | None:
        """Return a new connection; None if there is no room."""
        takes_lists = not key.headers and not self._lists_are_taken()
        if key.owner is not None:
            takes_lists = takes_lists and self._may_take_lists()
        is_full = not takes_lists and self.count >= MAX_CONNECTIONS
        if key != EVERYBODY and (is_full or self._has_share(key)):
            return None
        client = handlers = None
        if not takes_lists:
            try:
                client, handlers = self._make_client(key)
            except UsageError as error:
                raise MCPError("E203", str(error)) from None
        connection = self._connections[key] = PooledConnection(key, client, handlers)
        return connection

    def _has_share(self, key: ConnectionKey) -> bool:
        """Return whether the principal of a key has its share of the connections (COORD-73)."""
        return key.principal is not None and self._held()[key.principal] >= self._share

    def _held(self) -> Counter[str | None]:
        """Return how many connections each principal has."""
        return Counter(key.principal for key in self._connections if key != EVERYBODY)

    def _make_room(self, key: ConnectionKey) -> bool:
        """Close an idle connection: the longest idle of the principal that has most (COORD-74).

        That principal has more than that of the key, or is the same. Return whether there is one.
        """
        if len(self._closing) > self._waiting:
            return False  # there will be room for all that wait
        held, asking = self._held(), key.principal
        idle = [
            each
            for each in self._connections.values()
            if not each.running and each.key != EVERYBODY
        ]
        if self._has_share(key):
            idle = [each for each in idle if each.key.principal == asking]
        else:  # where all are in use, that of the lists makes no room
            idle = [
                each
                for each in idle
                if each.client is not None
                and (each.key.principal == asking or held[each.key.principal] > held[asking])
            ]
        if idle:
            self._end(max(idle, key=lambda each: (held[each.key.principal], -each.idle_since)))
        return bool(idle)

    def _lists_are_taken(self) -> bool:
        """Return whether the connection of the lists is in use by an owner, or by all."""
        return any(each.client is None for each in self._connections.values())

    async def _wait_for_room(self, key: ConnectionKey, deadline: float) -> None:
        self._room.clear()
        self._waiting += 1
        try:
            if self._waiting > MAX_WAITING:
                raise TimeoutError
            async with asyncio.timeout_at(deadline):
                await self._room.wait()
        except TimeoutError:
            text = f"server {self._server!r} has {MAX_CONNECTIONS} sessions of other clients"
            reason = "upstream_sessions"
            if self._has_share(key):
                text = (
                    f"server {self._server!r} has {self._share} sessions of this client, its share"
                )
                reason = "principal_share"
            data = {"code": "RESOURCE_EXHAUSTED", "reason": reason}
            raise MCPError("E208", text, data=data) from None
        finally:
            self._waiting -= 1

    def _end(self, connection: PooledConnection) -> None:
        if connection.timer is not None:
            connection.timer.cancel()
        del self._connections[connection.key]
        if connection.client is not None:
            task = asyncio.create_task(connection.client.close())
            self._closing.add(task)
            task.add_done_callback(self._closed)
        elif connection.key.owner is not None and not self._is_closed:
            self._renew_lists()
            self._room.set()

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        self._room.set()


@define(eq=False)
class ConnectionHandlers:
    """Answers for the session that owns a connection, by the latest of its requests that runs.

    Args:
        otherwise: answers what belongs to nobody.
        on_unowned: called when that is asked.

    Attributes:
        answered: set when the owner has answered once.
        roots_changed: the server is to be notified of new roots with the owner's next request.
    """

    _otherwise: ServerRequestHandlers
    _on_unowned: Callable[[], object]
    answered: asyncio.Event = field(factory=asyncio.Event, init=False)
    roots_changed: bool = field(default=False, init=False)
    _running: list[ServerRequestHandlers] = field(factory=list, init=False)
    _latest: ServerRequestHandlers | None = field(default=None, init=False)

    @property
    def has_owner(self) -> bool:
        """Return whether a request of the owner runs."""
        return bool(self._running)

    def capabilities(self, revision: Revision) -> Mapping[str, Any]:
        """Return those of the owner; without one, those of all connections."""
        return (self._latest or self._otherwise).capabilities(revision)

    async def handle(self, method: str, params: Any, revision: Revision) -> Mapping[str, Any]:
        """Return the result of the owner; see `ServerRequestHandlers`."""
        if not self._running:
            self._on_unowned()
            if method == ROOTS_LIST:
                self.roots_changed = True  # so that it asks again when somebody can answer
            return await self._otherwise.handle(method, params, revision)
        try:
            return await self._running[-1].handle(method, params, revision)
        finally:
            self.answered.set()

    @contextmanager
    def asking(self, owner: ServerRequestHandlers) -> Iterator[None]:
        """Let a request of the owning session answer within the block."""
        self._latest = owner
        self._running.append(owner)
        try:
            yield
        finally:
            self._running.remove(owner)
