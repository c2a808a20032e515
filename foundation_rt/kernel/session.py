"""The session of one connection: the state of its lifecycle, and its open requests.

The lifecycle is the table `TRANSITIONS`; every other transition is ignored (LIFE-01):

    STARTING ──initialize──► INITIALIZING ──initialized──► RUNNING
        └───────────────────────┴────────── close ────────────┴──► CLOSED (terminal)

A session is data: the dispatcher reads and changes it, and the engine knows its connection by `id`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from attrs import define, field

from ..base.shown import Shown

if TYPE_CHECKING:
    from ..base.logs.logger import StructuredLogger
    from ..protocol.jsonrpc import RequestId
    from ..protocol.peer import Peer
    from ..protocol.principal import Principal
    from .effects import Effect
    from .invocation import Invocation
    from .replies import ResultWriter

_Part = TypeVar("_Part", bound="SessionPart")

TransportType = Literal["stdio", "http", "sse", "memory"]

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
"""The headers of a request that came without any, or over another transport than HTTP."""


class State(Enum):
    """The state of a connection's lifecycle."""

    STARTING = "STARTING"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    CLOSED = "CLOSED"


# For what every call asks: to look a member up in its class takes 0.1 us.
RUNNING, CLOSED = State.RUNNING, State.CLOSED


class SessionEvent(Enum):
    """An event that moves a session from one state to the next."""

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


class SessionPart:
    """The state of a feature for one session, from its first use to the end of the session.

    The hooks are called under the lock of the session.
    """

    __slots__ = ()

    @property
    def is_busy(self) -> bool:
        """Return whether the client waits for something beside the answers to its calls."""
        return False

    def holds(self, request_id: RequestId | None) -> bool:
        """Return whether a request has not been answered, although no call of it is in flight."""
        return False

    def cancel(self, request_id: RequestId) -> list[Effect]:
        """Cancel a request that no call in flight belongs to; [] if it is not of the feature."""
        return []

    def ended(self, request_id: RequestId, effects: list[Effect]) -> list[Effect]:
        """Return what happens at the end of a call instead of `effects`.

        Args:
            request_id: the id of its request.
            effects: its end; without a reply if it was cancelled.
        """
        return effects

    def stopping(self, results: ResultWriter) -> list[Effect]:
        """End what is open beside the calls in flight: the server stops."""
        return []

    def close(self) -> None:
        """Drop the state: the session has ended."""


@define(eq=False, repr=False)
class Session(Shown):
    """The state of one connection.

    Attributes:
        connection_correlation_id: stands in for a message without a correlation id of its own.
        transport_type: how the peer is connected; the admin policy depends on it.
        logger: adds the connection's correlation id to its records.
        principal: the authenticated peer; None where authentication is off.
        headers: those of the message that is being handled, as far as handlers get them (HEAD-16).
        stateless: all its requests are in the stateless mode (REV-04).
        id: identifies the session in the directory of its server; 0 if no connection can be found
            by it.
        peer: the client of the handshake, from `initialize` on.
        capabilities: the names of the capabilities that were advertised to the peer.
        in_flight: the calls that have not been answered, by request id.
        parts: what features keep for it, by the class of that; changed under its lock.
    """

    connection_correlation_id: str
    transport_type: TransportType
    logger: StructuredLogger
    principal: Principal | None = None
    stateless: bool = False
    id: int = 0
    state: State = field(default=State.STARTING, init=False)
    headers: Mapping[str, str] = field(default=NO_HEADERS, init=False)
    peer: Peer | None = field(default=None, init=False)
    capabilities: frozenset[str] = field(default=frozenset(), init=False)
    in_flight: dict[RequestId, Invocation] = field(factory=dict, init=False)
    parts: dict[type[SessionPart], Any] = field(factory=dict, init=False)
    _key: str | None = field(default=None, init=False)

    @property
    def key(self) -> str | None:
        """Return the name of the session for applications; None unless a handler has read it.

        It is a secret: who knows it may act on what an application keeps by it (LIFE-16).
        """
        return self._key

    def set_key(self, key: str) -> None:
        """Give the session its key, once."""
        self._key = key

    def part(self, cls: type[_Part]) -> _Part:
        """Return what a feature keeps for the session, made when it is first needed.

        To be called under the lock of the session, as `parts` is changed under it.
        """
        found: _Part | None = self.parts.get(cls)
        if found is None:
            found = self.parts[cls] = cls()
        return found

    def is_open(self, request_id: RequestId | None) -> bool:
        """Return whether the request of that id has not been answered yet."""
        # A copy: a handler may add a part in another thread.
        return request_id in self.in_flight or any(
            part.holds(request_id) for part in list(self.parts.values())
        )

    @property
    def is_busy(self) -> bool:
        """Return whether any request is unanswered, or the client waits for something else."""
        return bool(self.in_flight) or any(part.is_busy for part in list(self.parts.values()))

    def advance(self, event: SessionEvent) -> bool:
        """Apply `event`; return False if the table has no such transition from this state."""
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
    session_id: int = 0,
) -> Session:
    """Return a session at its start, with a child logger of its own."""
    child = logger.child({"connectionCorrelationId": connection_correlation_id})
    return Session(
        connection_correlation_id, transport_type, child, principal, stateless, session_id
    )
