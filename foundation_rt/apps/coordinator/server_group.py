"""The servers of a coordinator together: their start, their lists, their replacement.

`Announcer` passes each list that has changed on once, and none too often (COORD-18, COORD-19).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from attrs import define, field, frozen

from ...client import BreakerSettings, CircuitBreaker, CircuitState
from .call_slots import StartTurns
from .catalogue import KINDS, Catalogue
from .names import ToolNames, UnknownName, id_in, inside_name
from .options import CoordinatorSettings
from .server_state import ServerState
from .servers import Plans, ServerPlan
from .supervisor import ServerSupervisor
from .tool_record import ToolRecord, ToolRegistryEntry

log = logging.getLogger("foundation_rt.coordinator")

_NAMED = ("tools", "prompts")
_MAX_WRITING = 10_000
"""The most names of one server that are remembered; beyond, all its tools count as writing."""


@define(eq=False, repr=False)
class ServerGroup:
    """The supervisors of all servers, and what they have in common.

    Attributes:
        supervisors: by id, in order.
        names: of all tools that are known, listed or not.
        catalogue: the lists of all servers.
        starting: ends when all servers are ready or failed, or after the time to wait.
    """

    _settings: CoordinatorSettings
    supervisors: dict[str, ServerSupervisor] = field(factory=dict, init=False)
    names: ToolNames = field(factory=ToolNames, init=False)
    catalogue: Catalogue = field(factory=Catalogue, init=False)
    starting: asyncio.Task[None] = field(init=False)
    _turns: StartTurns = field(factory=StartTurns, init=False)
    _announcer: Announcer = field(init=False)
    _records: dict[str, dict[str, ToolRecord]] = field(factory=dict, init=False)
    _writing: dict[str, set[str]] = field(factory=dict, init=False)
    _leaving: dict[asyncio.Task[None], ServerSupervisor] = field(factory=dict, init=False)
    _warned: set[tuple[str, str, str]] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self._settings
        self._announcer = Announcer(
            self.catalogue, settings.on_list_changed, settings.announce_interval_ms / 1000
        )

    # -- start and end

    def start(self, plans: Plans) -> None:
        """Start all servers, without waiting for any."""
        self.starting = asyncio.create_task(self._settle())  # `close` needs it if the next fails
        self.replace(plans)

    def replace(self, plans: Plans) -> None:
        """Start servers that are new, end those that are gone, replace what has changed."""
        before, self.supervisors = self.supervisors, {}
        for server, plan in plans.items():
            known = before.get(server)
            if known is not None and known.plan == plan:
                self.supervisors[server] = before.pop(server)
            else:
                self._supervise(plan, known)
        self.catalogue.arrange(self.supervisors)
        self.names.arrange(self.supervisors.keys())
        for supervisor in self.supervisors.values():
            supervisor.admit()
            self.server_listed(supervisor, "tools")
        for supervisor in before.values():
            self._retire(supervisor)
        for supervisor in self.supervisors.values():
            self._show(supervisor)
        self._announcer.announce()

    async def close(self) -> None:
        """End all connections and calls."""
        self._announcer.close()
        self.starting.cancel()
        for leaving in self._leaving.values():
            leaving.hurry()  # to cancel its task could leave a process behind
        ending = [asyncio.ensure_future(each.close()) for each in self.supervisors.values()]
        waited = [self.starting, *self._leaving, *ending]
        await asyncio.gather(*waited, return_exceptions=True)

    # -- tools

    def entry(self, tool_name: str) -> ToolRegistryEntry | None:
        """Return a tool by its name; None if the name leads to none."""
        found = self.names.resolve(tool_name)
        if isinstance(found, UnknownName):
            return None
        server, tool = found
        return self._entry(self.supervisors[server], tool)

    def entry_of_outside(self, outside_name: str) -> ToolRegistryEntry | None:
        """Return a tool by its outside name; None if the name leads to none."""
        found = self.names.from_outside(outside_name)
        return None if found is None else self._entry(self.supervisors[found[0]], found[1])

    def entries(self) -> tuple[ToolRegistryEntry, ...]:
        """Return the tools that are listed."""
        return tuple(
            self._entry(supervisor, tool)
            for supervisor in self.supervisors.values()
            if supervisor.lifecycle.is_listed
            for tool in supervisor.tools
        )

    def now(self) -> datetime:
        """Return the time of people."""
        return self._settings.now()

    def record(self, server: str, tool: str) -> ToolRecord:
        """Return the record of a tool, kept as long as its server lists it."""
        records = self._records.setdefault(server, {})
        record = records.get(tool)
        if record is None:
            circuit = self._settings.circuit(self.supervisors[server].plan.settings)
            record = records[tool] = ToolRecord(_breaker(inside_name(server, tool), circuit))
        return record

    def status(self, supervisor: ServerSupervisor) -> ServerStatus:
        """Return the state of one server."""
        records = self._records.get(supervisor.server_id, {}).values()
        return ServerStatus.of(
            supervisor, sum(each.metrics.performance.call_count for each in records)
        )

    # -- called by supervisors

    def server_listed(self, supervisor: ServerSupervisor, kind: str) -> None:
        """Take a list that was read."""
        server = supervisor.server_id
        if self.supervisors.get(server) is not supervisor:
            return  # it is being replaced
        if kind == "tools":
            listed = [tool.wire for tool in supervisor.listed_tools.values()]
            self.catalogue.put(server, kind, listed)
            self.names.put(server, supervisor.tools)
            self._note_writing(supervisor)
            records = self._records.get(server, {})
            for tool in records.keys() - supervisor.tools.keys():
                del records[tool]
        else:
            self.catalogue.put(server, kind, supervisor.lists[kind])
        if kind in _NAMED:
            self._warn_of_ids(server, kind)
        if supervisor.lifecycle.state is ServerState.READY:
            self._announcer.announce()

    def server_changed(self, supervisor: ServerSupervisor) -> None:
        """Take a new state of a server, or the end of the time for which its tools stay listed."""
        if self.supervisors.get(supervisor.server_id) is supervisor:
            self._show(supervisor)
            self._announcer.announce_connection(supervisor.server_id)

    def server_notified(
        self,
        supervisor: ServerSupervisor,
        owner: str | None,
        method: str,
        params: Mapping[str, Any],
    ) -> None:
        """Take a notification that belongs to no call, and the owner of its connection."""
        callback = self._settings.on_notification
        if callback is not None and self.supervisors.get(supervisor.server_id) is supervisor:
            callback(supervisor.server_id, owner, method, params)

    # -- internals

    def _warn_of_ids(self, server: str, kind: str) -> None:
        """Log the names that another server's id makes ambiguous (COORD-06)."""
        for definition in self.catalogue.of_server(server, kind):
            name = str(definition.get("name"))
            other = id_in(server, name, self.names.servers)
            if other is not None and (kind, server, name) not in self._warned:
                self._warned.add((kind, server, name))
                log.warning(
                    "%s: %r of server %r is %r outside: its own name would be one of server %r",
                    kind,
                    name,
                    server,
                    self.names.outside(server, name),
                    other,
                )

    def _note_writing(self, supervisor: ServerSupervisor) -> None:
        """Note the tools that do not say that they only read, for as long as this runs."""
        known = self._writing.setdefault(supervisor.server_id, set())
        writing = (name for name, tool in supervisor.tools.items() if not tool.is_read_only)
        known.update(islice(writing, _MAX_WRITING - len(known)))

    def _was_writing(self, server: str, tool: str) -> bool:
        known = self._writing.get(server, ())
        return tool in known or len(known) >= _MAX_WRITING

    def _entry(self, supervisor: ServerSupervisor, tool: str) -> ToolRegistryEntry:
        assert supervisor.client is not None  # it has listed the tool
        record = self.record(supervisor.server_id, tool)
        return ToolRegistryEntry(
            supervisor.server_id,
            supervisor.tools[tool],
            supervisor.plan.transport_type,
            supervisor.client,
            self._was_writing(supervisor.server_id, tool),
            record.metrics,
            record.breaker,
            asyncio.get_running_loop().time,
            self.names,
        )

    def _supervise(self, plan: ServerPlan, known: ServerSupervisor | None) -> None:
        """Start the supervisor of a server that is new or has changed."""
        circuit = self._settings.circuit(plan.settings)
        supervisor = ServerSupervisor(
            plan, self._settings, self._turns, self, _breaker(plan.server_id, circuit)
        )
        if known is not None:
            supervisor.take_over(known)
            # Its circuits are new; what was counted stays.
            for tool, record in self._records.get(plan.server_id, {}).items():
                record.breaker = _breaker(inside_name(plan.server_id, tool), circuit)
        self.supervisors[plan.server_id] = supervisor
        supervisor.start()

    def _retire(self, supervisor: ServerSupervisor) -> None:
        """End a supervisor when its calls have; its server is gone, or has another one."""
        server = supervisor.server_id
        if server not in self.supervisors:
            self.names.remove(server)
            self._records.pop(server, None)
            self._announcer.forget(server)
        task = asyncio.create_task(supervisor.retire())
        self._leaving[task] = supervisor
        task.add_done_callback(self._leaving.pop)

    async def _settle(self) -> None:
        waiting = [asyncio.ensure_future(each.settled()) for each in self.supervisors.values()]
        try:
            if waiting:
                await asyncio.wait(waiting, timeout=self._settings.start_wait_ms / 1000)
        finally:
            for each in waiting:
                each.cancel()
            self._announcer.begin()

    def _show(self, supervisor: ServerSupervisor) -> None:
        self.catalogue.show(supervisor.server_id, supervisor.lifecycle.is_listed)


def _breaker(name: str, settings: BreakerSettings) -> CircuitBreaker:
    def log_change(before: CircuitState, after: CircuitState) -> None:
        own = {"component": "MCP", "action": "circuit_changed"}
        fields = {**own, "circuit": name, "before": before.value, "after": after.value}
        log.warning("the circuit of %s is %s", name, after.value, extra={"fields": fields})

    return CircuitBreaker(settings, log_change)


@define(eq=False)
class Announcer:
    """Compares the lists with those last announced.

    Args:
        callback: gets the kind of a list that changed; None: nobody does.
        interval: seconds between two announcements of what the connections of one server have
            changed.
    """

    _catalogue: Catalogue
    _callback: Callable[[str], object] | None
    _interval: float
    _has_begun: bool = field(default=False, init=False)
    _times: dict[str, float] = field(factory=dict, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    def begin(self) -> None:
        """Take the lists as they are for announced; what comes later is a change of them."""
        self._catalogue.announce(KINDS)
        self._has_begun = True

    def close(self) -> None:
        """Announce nothing more."""
        self._has_begun = False
        if self._timer is not None:
            self._timer.cancel()

    def announce(self) -> None:
        """Announce each list that has changed."""
        if not self._has_begun:
            return
        changed = self._catalogue.changes()
        self._catalogue.announce(changed)
        if self._callback is None:
            return
        for kind in changed:
            try:
                self._callback(kind)
            except Exception:
                log.exception("on_list_changed failed")

    def announce_connection(self, server: str) -> None:
        """Announce what a beginning or an end of this server has changed, later if need be."""
        if not self._has_begun or not self._catalogue.changes():
            return
        loop = asyncio.get_running_loop()
        due = self._times.get(server, -self._interval) + self._interval
        if loop.time() >= due:
            self._announce_for(server)
        elif self._timer is None:
            self._timer = loop.call_at(due, self._announce_for, server)

    def forget(self, server: str) -> None:
        """Forget a server that was removed."""
        self._times.pop(server, None)

    def _announce_for(self, server: str) -> None:
        self._timer = None
        self._times[server] = asyncio.get_running_loop().time()
        self.announce()


@frozen
class ServerStatus:
    """The state of one server.

    Attributes:
        state: `starting`, `ready`, `lost`, `failed`, `needs login` or `disabled`.
        reason: why it is lost or failed, or how to log in.
        transport_type: `stdio`, `http` or `memory`.
        revision: of the protocol; None without a connection.
        tools: how many it lists, of those that its settings allow.
        circuit: of the server.
        running: calls that run.
        waiting: calls that wait for a slot.
        call_count: of its tools.
        last_error: the latest of the way to it.
        needs_credential: it is reached, and serves those clients alone whose headers it gets
            (COORD-69).
        left_out: what was wrong with tools that cannot be used.
    """

    server_id: str
    state: ServerState
    reason: str | None
    transport_type: str
    revision: str | None
    tools: int
    circuit: CircuitState
    running: int
    waiting: int
    call_count: int
    last_error: str | None
    needs_credential: bool
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, supervisor: ServerSupervisor, call_count: int) -> ServerStatus:
        """Return the status of a server now."""
        description, lifecycle = supervisor.description, supervisor.lifecycle
        return cls(
            supervisor.server_id,
            lifecycle.state,
            lifecycle.reason,
            supervisor.plan.transport_type,
            None if description is None else description.revision.name,
            len(supervisor.tools),
            supervisor.breaker.state(asyncio.get_running_loop().time()),
            supervisor.slots.running,
            supervisor.slots.waiting,
            call_count,
            supervisor.last_error,
            supervisor.is_refused
            and lifecycle.state is not ServerState.READY
            and bool(supervisor.plan.settings.headers_from),
            supervisor.left_out,
        )
