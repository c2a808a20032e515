"""One connection's place in the protocol: a state machine, and the calls it waits for.

The lifecycle is the table `TRANSITIONS`; what it does not list does not happen (LIFE-01):

    STARTING ──initialize──► INITIALIZING ──initialized──► RUNNING
        └───────────────────────┴────────── close ────────────┴──► CLOSED (terminal)

A session decides nothing on its own and performs nothing; the dispatcher asks it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Literal

from attrs import define, field

if TYPE_CHECKING:
    from ..engine.connection import Connection
    from ..logs.logger import StructuredLogger
    from ..protocol.jsonrpc import RequestId
    from ..protocol.peer import Peer
    from ..protocol.principal import Principal
    from ..server_requests.session_requests import OnResponse
    from .batches import PendingBatch
    from .invocation import Invocation
    from .subscriptions import Subscriber

TransportType = Literal["stdio", "http", "sse", "memory"]


class State(Enum):
    """Where a connection stands."""

    STARTING = "STARTING"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    CLOSED = "CLOSED"


class SessionEvent(Enum):
    """What moves a connection from one state to the next."""

    INITIALIZE = "initialize"
    INITIALIZED = "initialized"
    CLOSE = "close"


TRANSITIONS: dict[tuple[State, SessionEvent], State] = {
    (State.STARTING, SessionEvent.INITIALIZE): State.INITIALIZING,
    (State.INITIALIZING, SessionEvent.INITIALIZED): State.RUNNING,
    (State.STARTING, SessionEvent.CLOSE): State.CLOSED,
    (State.INITIALIZING, SessionEvent.CLOSE): State.CLOSED,
    (State.RUNNING, SessionEvent.CLOSE): State.CLOSED,
}


def _no_connection() -> None:
    return None


@define(eq=False, repr=False)
class Session:
    """The state of one connection.

    Attributes:
        connection_correlation_id: stands in where a message has no correlation id of its own.
        transport_type: how the peer is connected; admin policy looks at it.
        logger: its lines carry the connection's correlation id.
        principal: who the peer has proved to be; None where nobody has to.
        stateless: its requests are all of the stateless era (REV-04).
        peer: who the handshake was with, from `initialize` on.
        told: the names of the capabilities that the peer was told of then.
        connection: what carries its messages, as long as somebody holds it.
        in_flight: the calls that wait for their answer, by request id.
        listening: those who listen, by the id of their request; under None the session itself.
        batches: the batch that a request belongs to, by its id, as long as it is not answered.
        questions: who waits for the answers to our own requests, by the id of the request.
        asked: how many requests of our own there have been: each has an id that no other had.
    """

    connection_correlation_id: str
    transport_type: TransportType
    logger: StructuredLogger
    principal: Principal | None = None
    stateless: bool = False
    state: State = field(default=State.STARTING, init=False)
    peer: Peer | None = field(default=None, init=False)
    told: frozenset[str] = field(default=frozenset(), init=False)
    connection: Callable[[], Connection | None] = field(default=_no_connection, init=False)
    in_flight: dict[RequestId, Invocation] = field(factory=dict, init=False)
    listening: dict[RequestId | None, Subscriber] = field(factory=dict, init=False)
    batches: dict[RequestId, PendingBatch] = field(factory=dict, init=False)
    questions: dict[str, OnResponse] = field(factory=dict, init=False)
    asked: int = field(default=0, init=False)

    def is_open(self, request_id: RequestId | None) -> bool:
        """Return whether a request of that id has not been answered yet."""
        return request_id in self.in_flight or (
            request_id is not None and request_id in self.listening
        )

    @property
    def is_waited_for(self) -> bool:
        """Return whether any request has not been answered yet, or the client listens."""
        return bool(self.in_flight or self.listening)

    def advance(self, event: SessionEvent) -> bool:
        """Apply `event`; return whether the table has it in this state."""
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            return False
        self.state = following
        return True


def create_session(
    transport_type: TransportType,
    connection_correlation_id: str,
    logger: StructuredLogger,
    *,
    principal: Principal | None = None,
    stateless: bool = False,
) -> Session:
    """A session at its start, with a child logger of its own."""
    child = logger.child({"connectionCorrelationId": connection_correlation_id})
    return Session(connection_correlation_id, transport_type, child, principal, stateless)
