"""The state of one server, as a value for tables and health checks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from attrs import frozen

from ...client import CircuitState
from .server_state import ServerState

if TYPE_CHECKING:
    from .supervisor import ServerSupervisor


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
