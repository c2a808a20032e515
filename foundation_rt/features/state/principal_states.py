"""The states that handlers keep for principals, who have no session in the stateless mode."""

from __future__ import annotations

import threading
from collections.abc import Callable

from attrs import define, field

from .handler_state import HandlerState, too_many_states


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
