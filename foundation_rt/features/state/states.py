"""The session states of one server, and which of them is that of a call (CALL-30)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field

from ...errors import UsageError
from ...kernel.session import SessionPart
from .handler_state import HandlerState, too_many_states

if TYPE_CHECKING:
    from ...kernel.engine.connection import Connection
    from ...kernel.engine.executor import Engine
    from ...kernel.invocation import Invocation
    from ...protocol.principal import Principal
    from .stored_states import StoredStates


class OwnState(SessionPart):
    """The state of a session in this process, once a handler has looked."""

    __slots__ = ("state",)

    def __init__(self, state: HandlerState) -> None:
        self.state = state


@define(eq=False, repr=False)
class States:
    """The states of one server.

    Attributes:
        stored: those in a store; None if all are in memory.
    """

    _engine: Engine
    stored: StoredStates | None = field(default=None, init=False)
    _principals: PrincipalStates = field(init=False)

    def __attrs_post_init__(self) -> None:
        limits = self._engine.config.server
        self._principals = PrincipalStates(
            limits.session_state_bytes,
            limits.session_states,
            limits.session_state_idle_ms / 1000,
            self._engine.clock.monotonic,
        )

    def of_call(self, call: Invocation, connection: Connection) -> HandlerState:
        """Return the state of the session, or of the principal, that made `call`.

        Raises:
            ToolError: it is too large, there are too many, or the store does not answer.
            UsageError: there is none for this call.
        """
        if self.stored is not None:
            from .stored_states import name_of

            name = name_of(call, connection)
            if name is not None:
                run = self._engine.run_of(call)
                if run is None:
                    raise UsageError(
                        "the session state is read and written before the call has ended"
                    )
                return self.stored.state_of(run, name)
        if call.peer.revision.is_stateless and connection.session.transport_type in ("http", "sse"):
            return self.of_principal(call.principal)
        return self._of_session(call, connection)

    def _of_session(self, call: Invocation, connection: Connection) -> HandlerState:
        parts = connection.session.parts
        own: OwnState | None = parts.get(OwnState)
        if own is not None:
            own.state.check_size()
            return own.state
        connection.session_key(call)  # with a key it is restored nowhere without it (HTTP-68)
        with connection.lock:
            own = parts.get(OwnState)
            if own is None:
                own = OwnState(HandlerState(self._engine.config.server.session_state_bytes))
                parts[OwnState] = own
            return own.state

    def of_principal(self, principal: Principal | None) -> HandlerState:
        """Return the state of a principal in the stateless mode.

        Raises:
            ToolError: too many principals have one.
            UsageError: there is no principal, or there are other processes that would not see it.
        """
        if principal is None:
            raise UsageError(
                "there is no state for a client without session and principal; turn authentication"
                " on, or let clients of the stateless mode do without"
            )
        if self._engine.is_one_of_several:
            raise UsageError(
                "there is no state for a client of the stateless mode, which meets another worker"
                " with each call: set server.session_state_store to the URL of a Redis server, or"
                " serve without --workers"
            )
        state = self._principals.state_of(principal.identity)
        state.check_size()
        return state


@define(eq=False, repr=False)
class PrincipalStates:
    """The states of principals in the stateless mode over HTTP; safe from any thread (CALL-30).

    Args:
        max_bytes: of each state.
        max_states: how many are kept.
        idle_seconds: when an unused state may be dropped.
        now: returns monotonic seconds.
    """

    max_bytes: int
    max_states: int
    idle_seconds: float
    now: Callable[[], float]
    _states: dict[str, HandlerState] = field(factory=dict, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def state_of(self, identity: str) -> HandlerState:
        """Return the state of the principal with this identity; made when it is first read.

        Raises:
            ToolError: RESOURCE_EXHAUSTED, too many principals have one.
        """
        with self._lock:
            now = self.now()
            state = self._states.pop(identity, None)
            if state is None or state.used + self.idle_seconds <= now:
                self._drop_idle(now)
                state = HandlerState(self.max_bytes)
            state.used = now
            self._states[identity] = state  # the one that was used last is the last
            return state

    def _drop_idle(self, now: float) -> None:
        for identity, state in list(self._states.items()):
            if state.used + self.idle_seconds > now:
                break
            del self._states[identity]
        if len(self._states) >= self.max_states:
            raise too_many_states(self.max_states)
