"""The servers behind the gateway: their lists as one, and the session for a request.

The routes are made again when a list has changed; requests use those of their moment.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..client import ServerRequestRefused
from ..coordinator import Coordinator, ServerState, ServerStatus, is_own_child, outside_name
from ..errors import ErrorCode, JsonRpcErrorCode, ToolError, UsageError
from .definition_lock import DefinitionLock, LockFileError, Withheld, read_lock, write_lock
from .instructions import merge_instructions
from .own_lists import OwnLists, ServerLists
from .routes import Definition, Listed, Routes
from .settings import NEVER, GatewaySettings
from .source import Source, client_headers, marked_plans

if TYPE_CHECKING:
    from ..client import ConnectOptions
    from ..coordinator import ServerConnections, ServerPlan
    from ..core.context import ToolContext
    from ..server import Server

log = logging.getLogger("foundation_rt.gateway")

KINDS = ("tools", "resources", "resourceTemplates", "prompts")
_ANNOUNCED = {"resourceTemplates": "resources"}
_LIST_CHANGES = {
    f"notifications/{kind}/list_changed": kind for kind in ("tools", "resources", "prompts")
}
_COALESCE_SECONDS = 0.2


def _refuse(*_: object) -> Any:
    """Refuse a request of a server that belongs to no call that is known (GATE-20)."""
    raise ServerRequestRefused(
        JsonRpcErrorCode.INVALID_REQUEST,
        "The gateway does not know whose call this request belongs to",
        {"reason": "unknown_call"},
    )


REFUSING_HANDLERS: ConnectOptions = {
    "sampling": _refuse,
    "sampling_tools": True,
    "elicitation": _refuse,
    "elicitation_url": _refuse,
    "roots": _refuse,
}
"""For requests of servers outside of calls; servers see the capabilities that they stand for."""


def _bare_name(server: str, name: str) -> str:
    return name


@define(eq=False)
class Upstreams:
    """The servers of a gateway, from its start to its end.

    Args:
        server: of the gateway.
        source: of the servers.
        settings: of the gateway.
        on_started: gets the first status: when the servers are ready, or have had their time.
        handlers: for requests of servers outside of the calls of clients.
        guidance: whether the guidance of servers is read, for an application beside the gateway.
        listed_after_loss_ms: how long the lists of a server that is gone stay as they were.
        announce_interval_ms: the least time between two announcements of a server that restarts.

    Attributes:
        coordinator: has the servers.
        routes: to what the servers list.
        instructions: of all servers, as far as they are known; None without any.
        on_task_changed: gets the server and the params of each `notifications/tasks`.
    """

    server: Server
    source: Source
    settings: GatewaySettings
    on_started: Callable[[Mapping[str, Any]], object] | None = None
    handlers: ConnectOptions = field(factory=lambda: REFUSING_HANDLERS)
    guidance: bool = False
    listed_after_loss_ms: float = 30_000
    announce_interval_ms: float = 5_000
    coordinator: Coordinator = field(init=False)
    routes: Routes = field(factory=Routes, init=False)
    instructions: str | None = field(default=None, init=False)
    on_task_changed: Callable[[str, Mapping[str, Any]], object] | None = field(
        default=None, init=False
    )
    _lock: DefinitionLock | None = field(default=None, init=False)
    _withheld: list[Withheld] = field(factory=list, init=False)
    _changed: set[str] = field(factory=set, init=False)
    _announcing: asyncio.TimerHandle | None = field(default=None, init=False)
    _reloading: asyncio.Task[None] | None = field(default=None, init=False)
    _starting: asyncio.Task[None] | None = field(default=None, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _problem: str | None = field(default=None, init=False)
    _own_lists: OwnLists = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._own_lists = OwnLists(KINDS, self._make_routes)
        self.coordinator = Coordinator.from_plans(
            self._plans,
            (*self.source.files, *([Path(self.settings.lock)] if self.settings.lock else [])),
            start_wait_ms=self.settings.start_wait_ms,
            lists=KINDS,
            guidance=self.guidance,
            listed_after_loss_ms=self.listed_after_loss_ms,
            announce_interval_ms=self.announce_interval_ms,
            on_list_changed=self._list_changed,
            on_notification=self._notified,
            connections={
                "name": self.server.load_config().server.name,
                "log_level": "debug",  # each client of the gateway has a level of its own
                **self.handlers,
            },
        )

    def start(self) -> None:
        """Start all servers, without waiting for any.

        Raises:
            UsageError: the file of servers or the lock file cannot be read; says why.
        """
        self._loop = asyncio.get_running_loop()
        self.coordinator.start()
        self._starting = asyncio.create_task(self._begin())

    async def _begin(self) -> None:
        """Make the first routes, when the servers are ready or have had their time."""
        await self.coordinator.initialize()
        self._read_lists()
        self._starting = None
        if self.on_started is not None:
            self.on_started(self.status())

    def _plans(self) -> dict[str, ServerPlan]:
        if self.settings.lock is not None:
            self._take_lock(read_lock(Path(self.settings.lock)))
        if is_own_child(self.source.mark, os.environ):
            self._problem = "this gateway was started by itself, so it serves nothing"
            log.error(self._problem)
            return {}
        plans = marked_plans(self.source, os.environ)
        self._problem = None if plans or not self.source.files else self._no_servers()
        unknown = client_headers(plans) - set(self.server.runtime.config.http.request_headers)
        if unknown:
            log.warning("headersFrom: clients' %s are read from the next start on", sorted(unknown))
        return plans

    def _no_servers(self) -> str:
        """Log that there is nothing to serve, and return the sentence."""
        files = ", ".join(map(str, self.source.files))
        problem = f'no server is listed in {files}: list them in "mcpServers" or "servers"'
        log.warning(problem)
        return problem

    def _take_lock(self, lock: DefinitionLock) -> None:
        """Take what the lock file holds; definitions that were accepted are shown from now on."""
        before, self._lock = self._lock, lock
        if before is not None and before.servers != lock.servers and self._loop is not None:
            self._loop.call_soon(self._lists_changed, KINDS)

    def reload(self) -> None:
        """Read the servers again, as when their file has changed (COORD-43)."""
        if self._reloading is None:
            self._reloading = asyncio.create_task(self._reload())

    async def _reload(self) -> None:
        try:
            await self.coordinator.reload()
            log.info("the servers were read again")
        except UsageError as error:
            log.error("the servers were not read again: %s", error)
        finally:
            self._reloading = None

    async def close(self) -> None:
        """End all sessions with servers, and the servers that are children."""
        if self._announcing is not None:
            self._announcing.cancel()
        if self._starting is not None:
            self._starting.cancel()
        await self.coordinator.close()
        await self._own_lists.close()

    # -- for requests --------------------------------------------------------------------------

    async def routes_for(self, context: ToolContext) -> Routes:
        """Return the routes for a client; wait, at the start, for servers that are starting."""
        if self._starting is not None:
            await asyncio.shield(self._starting)
        own = self._with_headers_of(context)
        return (await self._own_lists.routes(own, context) if own else None) or self.routes

    def own_routes(self) -> list[Routes]:
        """Return the routes of single values of headers that were used lately."""
        return self._own_lists.known_routes()

    def _with_headers_of(
        self, context: ToolContext
    ) -> dict[str, tuple[ServerConnections, tuple[tuple[str, str], ...]]]:
        """Return the servers that get headers of this client, and these headers."""
        if not context.headers:
            return {}
        found = ((each, each.headers_of(context.headers)) for each in self._servers())
        return {server.server_id: (server, headers) for server, headers in found if headers}

    def find(self, server_id: str) -> ServerConnections | None:
        """Return a server; None if a reload has removed it."""
        return self.coordinator.server(server_id)

    def connections(self, server_id: str) -> ServerConnections:
        """Return a server.

        Raises:
            ToolError: NOT_FOUND: a reload has removed it.
        """
        found = self.find(server_id)
        if found is None:
            raise ToolError(ErrorCode.NOT_FOUND, f"The server {server_id!r} has been removed.")
        return found

    def session_ended(self, key: str) -> None:
        """Close the sessions with servers of a client that has gone; called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end_session, key)

    def _end_session(self, key: str) -> None:
        for server in self._servers():
            server.end_session(key)

    def roots_changed(self, key: str) -> None:
        """Notify the sessions with servers of a client whose roots have changed (GATE-50).

        Called from any thread.
        """
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._pass_roots_change, key)

    def _pass_roots_change(self, key: str) -> None:
        for server in self._servers():
            server.roots_changed(key)

    # -- lists ---------------------------------------------------------------------------------

    def _notified(
        self, server_id: str, owner: str | None, method: str, params: Mapping[str, Any]
    ) -> None:
        """Pass on what concerns clients: a page that a user is done with, a task."""
        if method == "notifications/elicitation/complete":
            self.server.elicitation_completed(str(params.get("elicitationId")))
        elif method in _LIST_CHANGES:
            if self._own_lists.changed(server_id):
                self.server.list_changed(_LIST_CHANGES[method])
        elif method == "notifications/tasks" and self.on_task_changed is not None:
            self.on_task_changed(server_id, params)

    def _list_changed(self, kind: str) -> None:
        self._lists_changed((kind,))

    def _lists_changed(self, kinds: Iterable[str]) -> None:
        """Make the routes again, and notify clients once of what changes in 200 ms."""
        self._read_lists()
        self._changed |= {_ANNOUNCED.get(kind, kind) for kind in kinds}
        if self._announcing is None and self._loop is not None:
            self._announcing = self._loop.call_later(_COALESCE_SECONDS, self._announce)

    def _read_lists(self) -> None:
        self.routes = self._make_routes({})
        self._own_lists.shared_changed()
        self.instructions = merge_instructions(self._instructions())

    def _announce(self) -> None:
        self._announcing = None
        changed, self._changed = self._changed, set()
        for kind in changed:
            self.server.list_changed(kind)

    def _make_routes(self, own: Mapping[str, ServerLists]) -> Routes:
        """Return the routes to what the servers list.

        Args:
            own: by server, lists that take the place of those for all.
        """
        lists: dict[str, Listed] = {kind: self._listed(kind, own) for kind in KINDS}
        withheld: list[Withheld] = []
        if self._lock is not None:
            lists, withheld = self._admit(self._lock, lists)
            if own:
                # Not in the status: every client reads that, and these lists are one client's.
                self._log_withheld(each for each in withheld if each not in self._withheld)
            else:
                self._note_withheld(withheld)
        return Routes.of(
            lists,
            [
                each.server_id
                for each in self._servers()
                if each.has_capability("resources")
                or own.get(each.server_id, {}).get("resources")
                or own.get(each.server_id, {}).get("resourceTemplates")
            ],
            _bare_name if self.settings.prefix == NEVER else outside_name,
            withheld,
        )

    def _listed(self, kind: str, own: Mapping[str, ServerLists]) -> list[tuple[str, Definition]]:
        """Return a list of all servers, in their order."""
        listed = self.coordinator.listed(kind)
        if not own:
            return listed
        by_server: dict[str, list[Definition]] = {}
        for server_id, definition in listed:
            by_server.setdefault(server_id, []).append(definition)
        by_server |= {server_id: [*lists[kind]] for server_id, lists in own.items()}
        return [
            (server_id, definition)
            for server_id in self.coordinator.states
            for definition in by_server.get(server_id, ())
        ]

    def _servers(self) -> Iterator[ServerConnections]:
        for server_id in self.coordinator.states:
            found = self.coordinator.server(server_id)
            if found is not None:
                yield found

    def _instructions(self) -> list[tuple[str, str]]:
        described = ((each.server_id, each.description) for each in self._servers())
        return [
            (server_id, description.instructions)
            for server_id, description in described
            if description is not None and description.instructions
        ]

    def _admit(
        self, lock: DefinitionLock, lists: Mapping[str, Listed]
    ) -> tuple[dict[str, Listed], list[Withheld]]:
        """Return the lists without the definitions that are withheld, and these (GATE-31)."""
        by_server: dict[str, dict[str, list[Definition]]] = {}
        for kind, listed in lists.items():
            for server_id, definition in listed:
                by_server.setdefault(server_id, {}).setdefault(kind, []).append(definition)
        known = len(lock.servers)
        admitted: dict[str, list[tuple[str, Definition]]] = {kind: [] for kind in lists}
        withheld: list[Withheld] = []
        for server_id in self.coordinator.states:
            if server_id in by_server:
                shown, held = lock.admit(server_id, by_server[server_id])
                withheld += held
                for kind, definitions in shown.items():
                    admitted[kind] += [(server_id, each) for each in definitions]
        if len(lock.servers) != known:
            self._keep(lock)
        return {**admitted}, withheld

    def _note_withheld(self, withheld: list[Withheld]) -> None:
        self._log_withheld(each for each in withheld if each not in self._withheld)
        self._withheld = withheld

    def _log_withheld(self, withheld: Iterable[Withheld]) -> None:
        for each in withheld:
            log.warning(
                "%s of server %r is withheld, since it is %s: %r",
                each.kind,
                each.server,
                each.reason,
                each.identifier,
            )

    def _keep(self, lock: DefinitionLock) -> None:
        assert self.settings.lock is not None
        try:
            write_lock(Path(self.settings.lock), lock)
        except LockFileError as error:
            log.error("the definitions of new servers are not recorded: %s", error)

    # -- for operators -------------------------------------------------------------------------

    async def has_ready_server(self) -> bool:
        """Return True for a readiness check; in the loop, where the circuits have their time.

        Raises:
            LookupError: none is.
        """
        states = self.coordinator.states.values()
        serving = (each.state is ServerState.READY or each.needs_credential for each in states)
        if states and not any(serving):
            raise LookupError("no server is ready")
        return True

    def status(self) -> dict[str, Any]:
        """Return the document that operators see (GATE-40)."""
        return {
            "name": self.server.load_config().server.name,
            "version": self.server.load_config().server.version,
            "problem": self._problem,
            "servers": [self._status_of(each) for each in self.coordinator.states.values()],
        }

    def _status_of(self, status: ServerStatus) -> dict[str, Any]:
        server = self.coordinator.server(status.server_id)
        return {
            "id": status.server_id,
            "state": status.state,
            "reason": status.reason,
            "transport": status.transport_type,
            "revision": status.revision,
            "tools": status.tools,
            "circuit": status.circuit,
            "running": status.running,
            "waiting": status.waiting,
            "calls": status.call_count,
            "sessions": 0 if server is None else server.connections,
            "lastError": status.last_error,
            "withheld": [
                {"kind": each.kind, "identifier": each.identifier, "reason": each.reason}
                for each in self._withheld
                if each.server == status.server_id
            ],
        }
