"""The circuit breaker: a server that keeps failing is left in peace, and asked again by one call.

                    failures in a row                time
        CLOSED ────────────────────────► OPEN ─────────────► HALF_OPEN
          ▲                               ▲                    │    │
          │                               └────────────────────┘    │
          │                      the probe failed, or took too long │
          └─────────────────────────────────────────────────────────┘
                                the probe succeeded

Pure: `now` is any clock's seconds that never go back, and nothing happens but by a call. What time
has brought about is worked out as soon as anybody asks, as of when it was due (BREAK-05).

Every call that is let through holds a `Permit` of the state it was given in, and only what ends
while that state lasts has a say. So a call from before the circuit opened, however it ends,
decides nothing afterwards, and neither does a probe that was given up (BREAK-04). What counts as a
failure, whoever calls decides. A breaker belongs to one thread, that of its client's event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from attrs import define, field, frozen

from .settings import at_least


class CircuitState(StrEnum):
    """Whether calls go through: all of them, none, or those that find out (BREAK-01)."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


OnChange = Callable[[CircuitState, CircuitState], object]
"""Told of each change, after it: the state before, and the one since."""


@frozen(eq=False, repr=False)
class BreakerSettings:
    """When the circuit opens, and how it closes (BREAK-01).

    Attributes:
        failure_threshold: failures in a row that open it.
        reset_timeout_ms: how long it then stays open, in ms.
        probe_timeout_ms: how long a probe is waited for, in ms, before it counts as failed.
        half_open_max: how many probes may be under way at once.

    Raises:
        ConfigError: one of them is no whole number, or less than 1.
    """

    failure_threshold: int = field(default=5, validator=at_least(1))
    reset_timeout_ms: int = field(default=30_000, validator=at_least(1))
    probe_timeout_ms: int = field(default=30_000, validator=at_least(1))
    half_open_max: int = field(default=1, validator=at_least(1))


@define(eq=False, repr=False)
class Permit:
    """Leave for one call; given back by telling how the call ended, once."""

    _epoch: int
    _given: float


@define(eq=False, repr=False)
class CircuitBreaker:
    """One circuit: that of a server, or of one of its tools.

    Args:
        settings: when it opens, and how it closes.
        on_change: observes; must not raise.

    Attributes:
        failures: how many there were in a row.
    """

    _settings: BreakerSettings = field(factory=BreakerSettings)
    _on_change: OnChange | None = None
    failures: int = field(default=0, init=False)
    _state: CircuitState = field(default=CircuitState.CLOSED, init=False)
    _epoch: int = field(default=0, init=False)  # one more with each change of the state
    _probes: list[Permit] = field(factory=list, init=False)  # under way, the oldest first
    _open_until: float = field(default=0.0, init=False)

    def state(self, now: float) -> CircuitState:
        """The state at `now`, in s."""
        self._let_time_pass(now)
        return self._state

    def admit(self, now: float) -> Permit | None:
        """Leave for a call; None: it is to be refused, and not sent (BREAK-02, BREAK-03)."""
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
        """The server did what it is there for, even if that was to refuse the call."""
        if self._counts(permit, now):
            self.failures = 0
            if self._state is CircuitState.HALF_OPEN:
                self._change(CircuitState.CLOSED)

    def failed(self, permit: Permit, now: float) -> None:
        """The server, or the way to it, failed the call."""
        if self._counts(permit, now):
            self.failures += 1
            # A probe's failure is one more in the row that opened the circuit.
            if self.failures >= self._settings.failure_threshold:
                self._open(now)

    def abandoned(self, permit: Permit, now: float) -> None:
        """The call ended and says nothing of the server; if it was the probe, the next call is."""
        self._counts(permit, now)

    def is_current(self, permit: Permit, now: float) -> bool:
        """Return whether the state in which the permit was given still lasts."""
        self._let_time_pass(now)
        return permit._epoch == self._epoch

    def is_probe(self, permit: Permit) -> bool:
        """Return whether the permit was given to find out if the circuit can be closed."""
        return permit in self._probes

    def retry_after(self, now: float) -> float:
        """How long a refused call should wait, in s; 0 if the next one would be let through.

        While the circuit is open, that is until a probe may be sent; while there is a probe, until
        it is given up, at the latest.
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

    def _counts(self, permit: Permit, now: float) -> bool:
        """Take back a permit; whether its call has a say in the present state (BREAK-04)."""
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
