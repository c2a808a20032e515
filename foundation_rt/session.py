"""One connection's place in the protocol: a state machine, and the calls it waits for.

The lifecycle is the table `TRANSITIONS`; what it does not list does not happen (LIFE-01):

    STARTING ──initialize──► INITIALIZING ──initialized──► RUNNING
        └───────────────────────┴────────── close ────────────┴──► CLOSED (terminal)

A session decides nothing on its own and performs nothing; the dispatcher asks it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

from attrs import define, field

if TYPE_CHECKING:
    from .invocation import Invocation
    from .logs import StructuredLogger
    from .protocol.jsonrpc import RequestId

TransportType = Literal["stdio", "http", "sse", "memory"]


class State(Enum):
    """Where a connection stands."""

    STARTING = "STARTING"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    CLOSED = "CLOSED"


class Event(Enum):
    """What moves a connection from one state to the next."""

    INITIALIZE = "initialize"
    INITIALIZED = "initialized"
    CLOSE = "close"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.STARTING, Event.INITIALIZE): State.INITIALIZING,
    (State.INITIALIZING, Event.INITIALIZED): State.RUNNING,
    (State.STARTING, Event.CLOSE): State.CLOSED,
    (State.INITIALIZING, Event.CLOSE): State.CLOSED,
    (State.RUNNING, Event.CLOSE): State.CLOSED,
}


@define(eq=False, repr=False)
class Session:
    """The state of one connection.

    Attributes:
        connection_correlation_id: stands in where a message has no correlation id of its own.
        transport_type: how the peer is connected; admin policy looks at it.
        logger: its lines carry the connection's correlation id.
        protocol_version: the revision agreed on, once there is one.
        client_info: what the client said of itself in `initialize`.
        in_flight: the calls that wait for their answer, by request id.
    """

    connection_correlation_id: str
    transport_type: TransportType
    logger: StructuredLogger
    state: State = field(default=State.STARTING, init=False)
    protocol_version: str | None = field(default=None, init=False)
    client_info: dict[str, Any] = field(factory=dict, init=False)
    in_flight: dict[RequestId, Invocation] = field(factory=dict, init=False)

    def advance(self, event: Event) -> bool:
        """Apply `event`; return whether the table has it in this state."""
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            return False
        self.state = following
        return True


def create_session(
    transport_type: TransportType, connection_correlation_id: str, logger: StructuredLogger
) -> Session:
    """A session at its start, with a child logger of its own."""
    child = logger.child({"connectionCorrelationId": connection_correlation_id})
    return Session(connection_correlation_id, transport_type, child)
