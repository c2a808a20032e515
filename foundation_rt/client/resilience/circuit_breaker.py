"""The circuit breaker: stops the calls to a failing server, and tries it again with one call.

                      failures                       time
        CLOSED ────────────────────────► OPEN ─────────────► HALF_OPEN
          ▲                               ▲                    │    │
          │                               └────────────────────┘    │
          │                      the probe failed, or took too long │
          └─────────────────────────────────────────────────────────┘
                                the probe succeeded

Pure: `now` is the time of a monotonic clock, in s. The state changes only inside a call; a change
that was due earlier counts from its due time (BREAK-05).

Every admitted call holds a `Permit` of the state in which it was admitted. A result counts only
while that state lasts: a call from before the circuit opened decides nothing later, and neither
does a probe that timed out (BREAK-04). The caller decides which result is a failure. A breaker
belongs to one thread, that of its client's event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum

from attrs import define, field, frozen
from attrs.validators import optional

from ...base.shown import Shown
from .settings import at_least, true_or_false


class CircuitState(StrEnum):
    """The state of a circuit: it admits all calls, none, or probes (BREAK-01)."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


OnChange = Callable[[CircuitState, CircuitState], object]
"""Called after each change, with the old and the new state."""


@frozen(eq=False, repr=False)
class BreakerSettings(Shown):
    """The settings of a circuit breaker (BREAK-01).

    Attributes:
        failure_threshold: failures in a row that open it.
        reset_timeout_ms: time that it then stays open, in ms.
        probe_timeout_ms: time after which a probe counts as failed, in ms.
        half_open_max: most probes at one time.
        window_ms: age up to which a failure counts, in ms; None: every failure counts.
        forgive: whether a success takes one failure off the count, instead of all.

    Raises:
        ConfigError: a number is no whole number, or less than 1; `forgive` is no boolean.
    """

    failure_threshold: int = field(default=5, validator=at_least(1))
    reset_timeout_ms: int = field(default=30_000, validator=at_least(1))
    probe_timeout_ms: int = field(default=30_000, validator=at_least(1))
    half_open_max: int = field(default=1, validator=at_least(1))
    window_ms: int | None = field(default=None, validator=optional(at_least(1)))
    forgive: bool = field(default=False, validator=true_or_false)


@define(eq=False, repr=False)
class Permit(Shown):
    """Permission for one call; returned once, with the result of the call."""

    _epoch: int
    _given: float


@define(eq=False, repr=False)
class CircuitBreaker:
    """The circuit of a server, or of one of its tools.

    Args:
        settings: when it opens, and how it closes.
        on_change: observes each change; must not raise.

    Attributes:
        failures: number of failures that count.
    """

    _settings: BreakerSettings = field(factory=BreakerSettings)
    _on_change: OnChange | None = None
    failures: int = field(default=0, init=False)
    _failed_at: deque[float] = field(factory=deque, init=False)  # if they count for a time only
    _lasting: int = field(default=0, init=False)  # of the failures, those that count in any case
    _state: CircuitState = field(default=CircuitState.CLOSED, init=False)
    _epoch: int = field(default=0, init=False)  # one more with each change of the state
    _probes: list[Permit] = field(factory=list, init=False)  # under way, the oldest first
    _open_until: float = field(default=0.0, init=False)

    def state(self, now: float) -> CircuitState:
        """Return the state at `now`, in s."""
        self._let_time_pass(now)
        return self._state

    def admit(self, now: float) -> Permit | None:
        """Return a permit for a call; None if it must not be sent (BREAK-02, BREAK-03)."""
        self._let_time_pass(now)
        if self._state is CircuitState.OPEN:
            return None
        permit = Permit(self._epoch, now)
        if self._state is CircuitState.HALF_OPEN:
            if len(self._probes) >= self._settings.half_open_max:
                return None
            self._probes.append(permit)
        return permit

    def succeeded(self, permit: Permit, now: float) -> None:
        """Count a success: the server responded, even if it refused the call."""
        if not self._counts(permit, now):
            return
        self.failures -= self._lasting
        self._lasting = 0
        if self._state is CircuitState.HALF_OPEN:
            self._forget(self.failures)
            self._change(CircuitState.CLOSED)
        elif self.failures:
            self._forget(1 if self._settings.forgive else self.failures)

    def failed(self, permit: Permit, now: float, *, lasts: bool = False) -> None:
        """Count a failure of the server, or of the connection to it.

        Args:
            permit: of the call.
            now: in s.
            lasts: whether it counts until the next success, whatever the window.
        """
        if self._counts(permit, now):
            self.failures += 1
            if self._state is CircuitState.HALF_OPEN:
                self._open(now)
                return
            if lasts:
                self._lasting += 1
            elif self._settings.window_ms is not None:
                self._failed_at.append(now)
            if self.failures >= self._settings.failure_threshold:
                self._open(now)

    def abandoned(self, permit: Permit, now: float) -> None:
        """Return a permit whose call says nothing; after a probe the next call is the probe."""
        self._counts(permit, now)

    def is_current(self, permit: Permit, now: float) -> bool:
        """Return whether the state in which the permit was given still lasts."""
        self._let_time_pass(now)
        return permit._epoch == self._epoch

    def is_probe(self, permit: Permit) -> bool:
        """Return whether the permit belongs to a probe."""
        return permit in self._probes

    def retry_after(self, now: float) -> float:
        """Return the time until the next call can be admitted, in s; 0 if it can be now.

        With an open circuit that is the time until a probe; with a running probe, the time until
        it times out.
        """
        self._let_time_pass(now)
        if self._state is CircuitState.OPEN:
            return self._open_until - now
        if len(self._probes) >= self._settings.half_open_max:
            return self._probe_deadline() - now
        return 0.0

    def _let_time_pass(self, now: float) -> None:
        if self._probes and now >= (deadline := self._probe_deadline()):
            self.failures += 1
            self._open(deadline)
        if self._state is CircuitState.OPEN and now >= self._open_until:
            self._change(CircuitState.HALF_OPEN)
        elif self._failed_at and self._state is CircuitState.CLOSED:
            window = (self._settings.window_ms or 0) / 1000
            self._forget(sum(now - failed_at > window for failed_at in self._failed_at))

    def _forget(self, number: int) -> None:
        """Take the oldest failures off the count."""
        self.failures -= number
        for _ in range(min(number, len(self._failed_at))):
            self._failed_at.popleft()

    def _counts(self, permit: Permit, now: float) -> bool:
        """Take back a permit; return whether its call counts in the present state (BREAK-04)."""
        self._let_time_pass(now)
        counts = permit._epoch == self._epoch
        permit._epoch = -1  # a second result of the same call has no say
        if permit in self._probes:
            self._probes.remove(permit)
        return counts

    def _probe_deadline(self) -> float:
        return self._probes[0]._given + self._settings.probe_timeout_ms / 1000

    def _open(self, since: float) -> None:
        self._open_until = since + self._settings.reset_timeout_ms / 1000
        self._change(CircuitState.OPEN)

    def _change(self, state: CircuitState) -> None:
        before, self._state = self._state, state
        self._epoch += 1
        self._probes.clear()
        if self._on_change is not None:
            self._on_change(before, state)
