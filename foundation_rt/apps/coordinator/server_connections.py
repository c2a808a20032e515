"""Raw requests to one server, over the connection of the client that asks (COORD-50 to COORD-55).

This is the seam for a gateway: definitions and results as they came, questions of the server to
the client whose request asks, sessions that are not shared.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from attrs import define

from ...client import ConnectionLostError, MCPError, ServerDescription, log_in
from ...errors import UsageError
from ...protocol.methods import TOOLS_CALL
from .catalogue import LIST_METHOD_OF, Definition, offers
from .connection_pool import EVERYBODY, ConnectionKey, PooledConnection
from .guarded_request import GuardedRequest
from .requests import METHOD_NOT_FOUND, Priority
from .server_group import ServerGroup
from .server_state import ServerState
from .supervisor import ServerSupervisor

if TYPE_CHECKING:
    from ...base.mcp_json import ServerSettings
    from ...client import Client, LoginRequest, ServerRequestHandlers, Subscription
    from .connection_pool import ConnectionHandlers

_EARLY_SECONDS = 1.0
"""The longest wait for what a server asks right after the handshake."""


@define(eq=False)
class ServerConnections:
    """One server of a coordinator, for programs that hand requests on.

    Attributes:
        server_id: of the server.
    """

    _group: ServerGroup
    server_id: str

    @property
    def description(self) -> ServerDescription | None:
        """The server's description of itself; None without a connection."""
        return self._supervisor.description

    @property
    def settings(self) -> ServerSettings:
        """The settings of its entry."""
        return self._supervisor.plan.settings

    @property
    def identity(self) -> str:
        """A hash of how the server is started or reached; secrets cannot be read from it."""
        return self._supervisor.plan.identity

    @property
    def is_stateless(self) -> bool:
        """True for a server of a revision without sessions; False while that is not known."""
        return self._supervisor.is_stateless is True

    def has_capability(self, capability: str) -> bool:
        """Return whether the server declared a capability such as `resources`."""
        client = self._supervisor.client
        return client is not None and client.has_capability(capability)

    async def ready(
        self,
        *,
        session: str | None = None,
        principal: str | None = None,
        client_headers: Mapping[str, str] | None = None,
    ) -> None:
        """Wait until the server is connected; connect at once if it is not.

        A client with headers for the server needs its own connection alone: without them the
        server may admit nobody.

        Args:
            session, principal, client_headers: of the client; see `request`.

        Raises:
            MCPError: it cannot be reached within `connectTimeoutMs`.
        """
        supervisor = self._supervisor
        if supervisor.lifecycle.state is ServerState.READY:
            return
        wait = supervisor.plan.settings.connect_timeout_ms
        if not self.headers_of(client_headers or {}):
            await supervisor.ready_within(wait)
        elif supervisor.is_stateless is None:
            async with self._held_client(session, principal, client_headers or {}) as client:
                await client.initialize(timeout=wait / 1000)

    @property
    def wants_login(self) -> bool:
        """Return whether the server waits for a person to log in, by `log_in`."""
        supervisor = self._supervisor
        is_waiting = supervisor.lifecycle.state is ServerState.NEEDS_LOGIN
        return is_waiting and supervisor.plan.login_target is not None

    async def log_in(self, login: Callable[[LoginRequest], Awaitable[str]]) -> None:
        """Let a person log in to the server, then connect to it (COORD-83).

        Args:
            login: shows the page, such as `browser_login()` of the client.

        Raises:
            MCPError: nobody has logged in, or the server cannot be reached.
            UsageError: nobody logs in to such a server.
        """
        target = self._supervisor.plan.login_target
        if target is None:
            raise UsageError(f"nobody logs in to server {self.server_id!r}")
        await log_in(target, login)
        supervisor = self._supervisor  # the file may have been read again
        await supervisor.settled()  # an attempt that began before has no token
        await supervisor.ready()

    async def list_own(
        self,
        kind: str,
        *,
        session: str | None = None,
        principal: str | None = None,
        client_headers: Mapping[str, str],
    ) -> tuple[Definition, ...]:
        """Return one of the server's lists as this client's headers get it (COORD-67).

        Args:
            kind: one of the `lists` of the coordinator.
            session, principal, client_headers: of the client; `headersFrom` chooses a header.

        Raises:
            MCPError: it cannot be read.
        """
        await self.ready(session=session, principal=principal, client_headers=client_headers)
        settings = self.settings
        async with self._held_client(session, principal, client_headers) as client:
            await client.initialize(timeout=settings.connect_timeout_ms / 1000)
            if not offers(client, kind):
                return ()
            method, timeout = LIST_METHOD_OF[kind], settings.timeout_ms / 1000
            try:
                found = await client.request_all(method, timeout=timeout)
            except MCPError as error:
                if error.original_code == METHOD_NOT_FOUND:
                    return ()
                raise
            return tuple(
                each for each in found if kind != "tools" or settings.allows(str(each.get("name")))
            )

    @asynccontextmanager
    async def _held_client(
        self, session: str | None, principal: str | None, client_headers: Mapping[str, str]
    ) -> AsyncIterator[Client]:
        """Hold the connection of a client."""
        supervisor = self._supervisor
        key = _key(supervisor, session, principal, client_headers)
        deadline = asyncio.get_running_loop().time() + supervisor.plan.settings.timeout_ms / 1000
        async with supervisor.pool.using(key, deadline) as connection:
            client = connection.client or supervisor.client
            assert client is not None  # it has headers, or was ready
            yield client

    @property
    def connections(self) -> int:
        """Return how many connections to it there are, or are being made."""
        has_lists = self._supervisor.lifecycle.state in (ServerState.STARTING, ServerState.READY)
        return self._supervisor.pool.count - (not has_lists)

    def definitions(self, kind: str) -> tuple[Definition, ...]:
        """Return one of its lists as it came, without tools that its settings leave out.

        Args:
            kind: one of the `lists` of the coordinator, or `guidance`.
        """
        return self._group.catalogue.of_server(self.server_id, kind)

    def has_read(self, kind: str) -> bool:
        """Return whether one of its lists, as for `definitions`, was read: it may be empty."""
        return self._group.catalogue.has_read(self.server_id, kind)

    def headers_of(self, client_headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """Return the headers for the server that are taken from a client's, by name (COORD-54)."""
        return _headers(self.settings.headers_from, client_headers)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        session: str | None = None,
        principal: str | None = None,
        client_headers: Mapping[str, str] | None = None,
        timeout_ms: float | None = None,
        priority: Priority | str = Priority.NORMAL,
        idempotent: bool | None = None,
        handlers: ServerRequestHandlers | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Send a request over the client's connection; return its result as it came (COORD-50).

        It passes the circuits and the slots as calls do. A call of a tool is recorded.

        Args:
            method: of the request.
            params: of the request; JSON.
            session: the key of the client's session; None if it has none.
            principal: the client's principal; None if it is not known.
            client_headers: of the client's request, by lower-case name; `headersFrom` chooses.
            timeout_ms: for all of it; by default that of the server, which progress extends.
            priority: among requests that wait for this server.
            idempotent: whether it may run twice; by default what only reads, and of a tool as its
                annotations say.
            handlers: answer the server's questions that belong to this request.
            more: `meta`, `on_progress` and `on_log`, as `Client.request` takes them.

        Raises:
            MCPError: there is no result; `wire` of it is the server's own error, if it sent one.
        """
        supervisor, now = self._supervisor, asyncio.get_running_loop().time()
        tool = _tool_of(method, params)
        guarded = GuardedRequest(
            supervisor, method, tool, now, timeout_ms, priority, idempotent, principal
        )
        if self.settings.isolation is None and supervisor.is_stateless is None:
            if self.headers_of(client_headers or {}):
                await self.ready(
                    session=session, principal=principal, client_headers=client_headers
                )
            else:
                await supervisor.ready_within(supervisor.time_of(tool, timeout_ms)[0])

        async def send(connection: PooledConnection, longest: float | None) -> dict[str, Any]:
            client = await guarded.client(connection)
            with _answered_by(handlers, supervisor, connection, session):
                await _let_ask(client, supervisor, connection, guarded.remaining())
                return await client.request(
                    method,
                    params,
                    timeout=guarded.remaining(),
                    max_timeout=longest,
                    idempotent=guarded.is_idempotent,
                    handlers=handlers,
                    **more,
                )

        key = _key(supervisor, session, principal, client_headers or {})
        return await guarded.run(key, send)

    @asynccontextmanager
    async def subscribe(
        self,
        *uris: str,
        tasks: Iterable[str] = (),
        session: str | None = None,
        principal: str | None = None,
        client_headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Subscription]:
        """Subscribe over the client's connection, which is held meanwhile (COORD-56).

        Args:
            uris: of resources.
            tasks: ids of tasks; `on_notification` gets what they are now.
            session, principal, client_headers: of the client; see `request`.

        Raises:
            MCPError: the server refused it, or cannot be reached.
        """
        await self.ready(session=session, principal=principal, client_headers=client_headers)
        async with (
            self._held_client(session, principal, client_headers or {}) as client,
            client.subscribe(*uris, tasks=tasks) as changes,
        ):
            yield changes

    def end_session(self, session: str) -> None:
        """Close the connections of a session that has ended, each after its requests (COORD-52)."""
        self._supervisor.pool.end_owner(_session_owner(session))

    def roots_changed(self, session: str) -> None:
        """Notify the server that the roots of a session have changed (COORD-71).

        Its question for the new ones can be answered while a request of the session runs. So it is
        notified with the next one if none does.
        """
        supervisor = self._supervisor
        for connection in supervisor.pool.of_owner(_session_owner(session)):
            handlers = connection.handlers or supervisor.handlers
            handlers.roots_changed = True
            client = connection.client or supervisor.client
            if client is not None and handlers.has_owner:
                _pass_roots_change(client, connection, handlers)

    @property
    def _supervisor(self) -> ServerSupervisor:
        supervisor = self._group.supervisors.get(self.server_id)
        if supervisor is None:
            raise ConnectionLostError(
                f"there is no server {self.server_id!r} any more",
                may_have_run=False,
                retryable=False,
            )
        return supervisor


def _key(
    supervisor: ServerSupervisor,
    session: str | None,
    principal: str | None,
    client_headers: Mapping[str, str],
) -> ConnectionKey:
    owner = _owner(supervisor, session, principal)
    headers_from = supervisor.plan.settings.headers_from
    if owner is None and not headers_from:
        return EVERYBODY
    return ConnectionKey(owner, _headers(headers_from, client_headers), principal)


def _owner(supervisor: ServerSupervisor, session: str | None, principal: str | None) -> str | None:
    """Return the owner of a client's connection, by `isolation`; None: everybody (COORD-51)."""
    isolation = supervisor.plan.settings.isolation
    if isolation is None:
        isolation = "shared" if supervisor.is_stateless else "session"
    if isolation == "shared":
        return None
    if isolation == "session" and session is not None:
        return _session_owner(session)
    return None if principal is None else f"principal {principal}"


def _answered_by(
    handlers: ServerRequestHandlers | None,
    supervisor: ServerSupervisor,
    connection: PooledConnection,
    session: str | None,
) -> AbstractContextManager[None]:
    """Let a request answer what its server asks outside of calls, on its session's connection."""
    if handlers is None or session is None or connection.key.owner != _session_owner(session):
        return nullcontext()
    return (connection.handlers or supervisor.handlers).asking(handlers)


def _pass_roots_change(
    client: Client, connection: PooledConnection, handlers: ConnectionHandlers
) -> None:
    """Notify a server of new roots; it may ask for them before the next request."""
    handlers.roots_changed = connection.has_asked = False
    handlers.answered.clear()
    client.roots_changed()


async def _let_ask(
    client: Client, supervisor: ServerSupervisor, connection: PooledConnection, seconds: float
) -> None:
    """Let a server ask before the request, after the handshake (COORD-59) or for new roots.

    Its answer, such as the roots, may decide what the request may do.
    """
    handlers = connection.handlers or supervisor.handlers
    if handlers.has_owner and handlers.roots_changed:
        _pass_roots_change(client, connection, handlers)
    if not supervisor.asks_early or connection.handlers is None or not handlers.has_owner:
        return
    if connection.has_asked:
        return
    await client.initialize(timeout=seconds)
    if not connection.has_asked:
        connection.has_asked = True
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, _EARLY_SECONDS)):
                await handlers.answered.wait()


def key_of_call(isolation: str | None, session: str | None, principal: str | None) -> ConnectionKey:
    """Return the key of the connection for a call, which all share unless told (COORD-61)."""
    owner = None
    if isolation == "principal" and principal is not None:
        owner = f"principal {principal}"
    elif isolation in ("session", "principal") and session is not None:
        owner = _session_owner(session)
    return EVERYBODY if owner is None else ConnectionKey(owner, principal=principal)


def _session_owner(session: str) -> str:
    return f"session {session}"


def _headers(
    headers_from: Mapping[str, str], given: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return the headers for the server that are taken from a client's, by name."""
    return tuple(
        (name, given[source.lower()])
        for name, source in sorted(headers_from.items())
        if source.lower() in given
    )


def _tool_of(method: str, params: Mapping[str, Any] | None) -> str | None:
    """Return the tool of a `tools/call`; None of other requests."""
    tool = None if method != TOOLS_CALL or params is None else params.get("name")
    return tool if isinstance(tool, str) else None
