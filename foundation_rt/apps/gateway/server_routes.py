"""The servers behind the gateway: their lists as one, and the session for a request.

The routes are made again when a list has changed; requests use those of their moment.

The instructions of all servers become one text (GATE-12).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...base.abort import call_in_loop
from ...base.app_format import APPS
from ...client import MCPError, ServerRequestRefused
from ...errors import ErrorCode, JsonRpcErrorCode, ToolError
from ...protocol.methods import NOTIFICATIONS_ELICITATION_COMPLETE, NOTIFICATIONS_TASKS
from ..coordinator import (
    CircuitOptions,
    Coordinator,
    ServerState,
    ServerStatus,
    is_own_child,
    outside_name,
)
from ..coordinator.servers import Source
from .client_request_bridge import client_of
from .definition_lock import KINDS as LOCKED
from .definition_lock import DefinitionLock, LockFileError, Withheld, read_lock, write_lock
from .failures import failure
from .per_client_lists import PerClientLists, ServerLists
from .routes import Definition, Routes, names_server
from .settings import NEVER, GatewaySettings
from .source import client_headers, marked_plans
from .transforms import ShapedTools

if TYPE_CHECKING:
    from ...base.transforms import Transform
    from ...client import ConnectOptions
    from ...features.context import ToolContext
    from ...server import Server
    from ..coordinator import ServerConnections, ServerPlan


log = logging.getLogger("foundation_rt.gateway")

KINDS = ("tools", "resources", "resourceTemplates", "prompts", "skills")
LISTS = (*KINDS, "instructions")
_ANNOUNCED = {"resourceTemplates": "resources", "skills": "resources"}
_LIST_CHANGES = {
    f"notifications/{kind}/list_changed": kind for kind in ("tools", "resources", "prompts")
}
_COALESCE_SECONDS = 0.2
_ANY_PRINCIPAL = "any principal"


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
class ServerRoutes:
    """The servers of a gateway, from its start to its end.

    Args:
        server: of the gateway.
        source: of the servers.
        settings: of the gateway.
        on_started: gets the first status: when the servers are ready, or have had their time.
        handlers: for requests of servers outside of the calls of clients.
        circuits: when circuits open, and for how long.
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
    circuits: CircuitOptions = field(factory=CircuitOptions)
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
    # Recorded for the first time, by this gateway, before their guidance was read.
    _without_guidance: set[str] = field(factory=set, init=False)
    _renamed: set[str] = field(factory=set, init=False)
    _changed: set[str] = field(factory=set, init=False)
    _announcing: asyncio.TimerHandle | None = field(default=None, init=False)
    _starting: asyncio.Task[None] | None = field(default=None, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _problem: str | None = field(default=None, init=False)
    _client_lists: PerClientLists = field(init=False)
    _shaped: ShapedTools = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._client_lists = PerClientLists(KINDS, self._make_routes)
        self._shaped = ShapedTools(self._transform_of)
        config = self.server.load_config()
        self.coordinator = Coordinator.from_plans(
            self._plans,
            (*self.source.watched, *([Path(self.settings.lock)] if self.settings.lock else [])),
            start_wait_ms=self.settings.start_wait_ms,
            lists=LISTS,
            guidance=self.guidance,
            admits=self._admits,
            listed_after_loss_ms=self.listed_after_loss_ms,
            announce_interval_ms=self.announce_interval_ms,
            principal_share_percent=config.share_of(100, _ANY_PRINCIPAL),
            on_list_changed=self._list_changed,
            on_notification=self._notified,
            connections={
                "name": config.server.name,
                "log_level": "debug",  # each client of the gateway has a level of its own
                "extensions": APPS,
                **self.handlers,
            },
            **self.circuits,
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
            self._read_lock(Path(self.settings.lock))
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

    def _read_lock(self, path: Path) -> None:
        """Take what the lock file holds; definitions that were accepted are shown from now on.

        One that is gone would let every definition pass: then the lock stays as it was (GATE-31).
        """
        before, lock = self._lock, read_lock(path)
        if before is not None and before.servers and lock is None:
            log.error("%s is gone: what it held stays locked; restore it, or accept anew", path)
            return
        self._lock = lock = lock or DefinitionLock()
        if before is not None and before.servers != lock.servers and self._loop is not None:
            self._without_guidance.clear()
            self._loop.call_soon(self._lists_changed, KINDS)

    async def close(self) -> None:
        """End all sessions with servers, and the servers that are children."""
        if self._announcing is not None:
            self._announcing.cancel()
        if self._starting is not None:
            self._starting.cancel()
        await self.coordinator.close()
        await self._client_lists.close()

    # -- for requests --------------------------------------------------------------------------

    async def routes_for(self, context: ToolContext) -> Routes:
        """Return the routes for a client; wait, at the start, for servers that are starting."""
        if self._starting is not None:
            await asyncio.shield(self._starting)
        own = self._with_headers_of(context)
        return (await self._client_lists.routes(own, context) if own else None) or self.routes

    async def routes_when_started(
        self, name: str, context: ToolContext, *, is_uri: bool = False
    ) -> Routes:
        """Return the routes when no server that may have a name or a URI is starting (GATE-56).

        Raises:
            ToolError: the server with whose id it begins cannot be reached; or, of a name without
                one, that a server is starting still.
        """
        starting = [
            server_id
            for server_id, status in self.coordinator.states.items()
            if status.state is ServerState.STARTING
        ]
        named = [each for each in starting if names_server(name, each, is_uri=is_uri)]
        if starting and not named and not is_uri and self.settings.prefix == NEVER:
            servers = ", ".join(map(repr, starting))
            raise ToolError(
                ErrorCode.RESOURCE_EXHAUSTED,
                f"{name!r} may be of a server that is starting: {servers}. Try again.",
                {"reason": "starting", "servers": starting},
            )
        awaited = named or (starting if is_uri else ())
        client = client_of(context)
        ready = (self.connections(each).ready(**client) for each in awaited)
        found = await asyncio.gather(*ready, return_exceptions=True)
        for server_id, error in zip(awaited, found, strict=True):
            if isinstance(error, MCPError) and server_id in named:
                raise failure(server_id, error) from error
            if error is not None and not isinstance(error, MCPError):
                raise error
        if awaited:
            self._read_lists()
        return await self.routes_for(context)

    def are_all_ready(self) -> bool:
        """Return whether the tools of every server are known now."""
        states = self.coordinator.states.values()
        return all(each.state is ServerState.READY for each in states)

    def own_routes(self) -> list[Routes]:
        """Return the routes of single values of headers that were used lately."""
        return self._client_lists.known_routes()

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
        if self._loop is not None:
            call_in_loop(self._loop, self._end_session, key)

    def _end_session(self, key: str) -> None:
        for server in self._servers():
            server.end_session(key)

    def roots_changed(self, key: str) -> None:
        """Notify the sessions with servers of a client whose roots have changed (GATE-50).

        Called from any thread.
        """
        if self._loop is not None:
            call_in_loop(self._loop, self._pass_roots_change, key)

    def _pass_roots_change(self, key: str) -> None:
        for server in self._servers():
            server.roots_changed(key)

    # -- lists ---------------------------------------------------------------------------------

    def _notified(
        self, server_id: str, owner: str | None, method: str, params: Mapping[str, Any]
    ) -> None:
        """Pass on what concerns clients: a page that a user is done with, a task."""
        if method == NOTIFICATIONS_ELICITATION_COMPLETE:
            self.server.elicitation_completed(str(params.get("elicitationId")))
        elif method in _LIST_CHANGES:
            if self._client_lists.changed(server_id):
                self.server.list_changed(_LIST_CHANGES[method])
        elif method == NOTIFICATIONS_TASKS and self.on_task_changed is not None:
            self.on_task_changed(server_id, params)

    def _list_changed(self, kind: str) -> None:
        self._lists_changed((kind,))

    def _lists_changed(self, kinds: Iterable[str]) -> None:
        """Make the routes again, and notify clients once of what changes in 200 ms."""
        self._read_lists()
        self._changed |= {_ANNOUNCED.get(kind, kind) for kind in kinds if kind in KINDS}
        if self._announcing is None and self._loop is not None:
            self._announcing = self._loop.call_later(_COALESCE_SECONDS, self._announce)

    def _read_lists(self) -> None:
        self.routes = self._make_routes({})
        self._client_lists.shared_changed()
        self.instructions = merge_instructions(
            [
                (server_id, str(each["text"]))
                for server_id, each, withheld in self._listed("instructions", {})
                if withheld is None
            ]
        )

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
        if self._lock is not None:
            self._record_new(self._lock, own)
        lists = {kind: self._listed(kind, own) for kind in LOCKED}
        withheld = [each for listed in lists.values() for _, _, each in listed if each is not None]
        new = [each for each in withheld if each not in self._withheld]
        if not own:  # of those, clients may know nothing: every client reads the status
            self._withheld = withheld
        for each in new:
            log.warning(
                "%s of server %r is withheld, since it is %s: %r",
                each.kind,
                each.server,
                each.reason,
                each.identifier,
            )
        servers = self.coordinator.states.keys()
        is_bare = self.settings.prefix == NEVER
        for server_id, status in self.coordinator.states.items():
            if status.state is ServerState.READY and self._transform_of(server_id) is not None:
                listed = [each for server, each, _ in lists["tools"] if server == server_id]
                self._shaped.look_for_unknown(server_id, listed)
        routes = Routes.of(
            lists,
            servers,
            _bare_name if is_bare else partial(outside_name, servers=servers),
            self._shaped.shape,
        )
        for uri in routes.renamed_for_ids() - self._renamed:
            self._renamed.add(uri)
            log.warning("a URI is %r outside: its own would be one of another server", uri)
        return routes

    def _transform_of(self, server_id: str) -> Transform | None:
        server = self.coordinator.server(server_id)
        return None if server is None else server.settings.tools

    def _listed(
        self, kind: str, own: Mapping[str, ServerLists]
    ) -> list[tuple[str, Definition, Withheld | None]]:
        """Return a list of all servers, in their order, with what the lock withholds."""
        by_server: dict[str, list[Definition]] = {}
        for server_id, definition in self.coordinator.listed(kind):
            by_server.setdefault(server_id, []).append(definition)
        if kind in KINDS:
            by_server |= {server_id: [*lists[kind]] for server_id, lists in own.items()}
        lock = self._lock or DefinitionLock()
        return [
            (server_id, definition, lock.check(server_id, kind, definition))
            for server_id in self.coordinator.states
            for definition in by_server.get(server_id, ())
        ]

    def _servers(self) -> Iterator[ServerConnections]:
        for server_id in self.coordinator.states:
            found = self.coordinator.server(server_id)
            if found is not None:
                yield found

    # -- the lock

    @property
    def is_locked(self) -> bool:
        """Return whether definitions have to be accepted (GATE-31)."""
        return self._lock is not None

    def withholds(self, server_id: str, kind: str, definition: Definition) -> Withheld | None:
        """Return why a definition that came now is withheld; None if it is recorded (GATE-53)."""
        return None if self._lock is None else self._lock.check(server_id, kind, definition)

    def _admits(self, server_id: str, kind: str, definition: Definition) -> bool:
        """Return whether what the coordinator has read may be used, as by a chat beside it."""
        return self.withholds(server_id, kind, definition) is None

    def _record_new(self, lock: DefinitionLock, own: Mapping[str, ServerLists]) -> None:
        """Record the definitions of servers that were never listed before (GATE-31).

        Args:
            own: by server, lists that take the place of those for all.
        """
        has_new = False
        for server_id, status in self.coordinator.states.items():
            server = self.coordinator.server(server_id)
            if server is None or not (status.state is ServerState.READY or server_id in own):
                continue  # its lists may not all be read
            lists = {kind: server.definitions(kind) for kind in LOCKED} | {**own.get(server_id, {})}
            if server_id not in lock.servers:
                if not any(lists.values()):
                    continue
                lock.record(server_id, lists)
                self._without_guidance.add(server_id)
                has_new = True
            if server_id in self._without_guidance and server.has_read("guidance"):
                self._without_guidance.discard(server_id)  # from now on, one that comes is new
                lock.add(server_id, {"guidance": lists["guidance"]})
                has_new |= bool(lists["guidance"])
        if has_new:
            self._keep(lock)

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
            "leftOut": [*status.left_out],
            "withheld": [
                {"kind": each.kind, "identifier": each.identifier, "reason": each.reason}
                for each in self._withheld
                if each.server == status.server_id
            ],
        }


MAX_INSTRUCTION_BYTES = 16 * 1024

_CUT = "\n[cut]"


def merge_instructions(texts: Sequence[tuple[str, str]]) -> str | None:
    """Return the instructions of the servers, each below the id of its server.

    Args:
        texts: pairs of a server's id and its instructions, in the order of the file.

    Returns:
        At most `MAX_INSTRUCTION_BYTES` of UTF-8: where all are too long together, each is cut to an
        equal share, and what short ones leave goes to the others. None if no server has any.
    """
    sections = [(server, text.strip()) for server, text in texts if text.strip()]
    if not sections:
        return None
    heads = [f"# {server}\n\n" for server, _ in sections]
    fixed = sum(len(head.encode()) for head in heads) + 2 * (len(sections) - 1)
    bodies = [text for _, text in sections]
    shares = _shares([len(body.encode()) for body in bodies], MAX_INSTRUCTION_BYTES - fixed)
    merged = "\n\n".join(
        head + _cut(body, share) for head, body, share in zip(heads, bodies, shares, strict=True)
    )
    return _cut(merged, MAX_INSTRUCTION_BYTES)


def _shares(sizes: list[int], available: int) -> list[int]:
    """Return how many bytes each text may have: short ones all, the others an equal share."""
    shares = [0] * len(sizes)
    left, waiting = max(0, available), len(sizes)
    for index in sorted(range(len(sizes)), key=sizes.__getitem__):
        shares[index] = min(sizes[index], left // waiting)
        left, waiting = left - shares[index], waiting - 1
    return shares


def _cut(text: str, size: int) -> str:
    encoded = text.encode()
    if len(encoded) <= size:
        return text
    kept = encoded[: max(0, size - len(_CUT))].decode("utf-8", "ignore")
    return kept + _CUT if size >= len(_CUT) else ""
