"""The circuit breaker: by vectors, and by chance against a model that forgets nothing."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import define, field
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from foundation_rt.client.resilience.circuit_breaker import (
    BreakerSettings,
    CircuitBreaker,
    CircuitState,
    Permit,
)
from foundation_rt.errors import ConfigError
from tests.lab.peers.client_vectors import cases

CLOSED, OPEN, HALF_OPEN = CircuitState
LATER = 30.0  # when a circuit that opened at 0 is half open, by default


def opened(settings: BreakerSettings | None = None) -> CircuitBreaker:
    """Return a breaker whose circuit opened at 0."""
    settings = settings or BreakerSettings()
    breaker = CircuitBreaker(settings)
    for _ in range(settings.failure_threshold):
        breaker.failed(admitted(breaker, 0.0), 0.0)
    assert breaker.state(0.0) is OPEN
    return breaker


def admitted(breaker: CircuitBreaker, now: float) -> Permit:
    permit = breaker.admit(now)
    assert permit is not None
    return permit


# -- by example


@pytest.mark.rule("BREAK-01", "BREAK-02", "BREAK-03", "BREAK-14", "BREAK-04", "BREAK-05")
@pytest.mark.rule("BREAK-20", "BREAK-21")
@pytest.mark.parametrize("vector", cases("circuit-breaker"))
def test_the_vectors_hold(vector: dict[str, Any]) -> None:
    breaker = CircuitBreaker(BreakerSettings(**vector["settings"]))
    permits: dict[str, Permit] = {}
    for number, (now, (what, *names), expected) in enumerate(vector["steps"]):
        if what == "admit":
            permit = breaker.admit(now)
            permits |= {} if permit is None else {names[0]: permit}
            seen: Any = permit is not None
        else:
            if names:
                getattr(breaker, what)(permits[names[0]], now)
            seen = breaker.state(now)
        assert seen == expected, f"step {number}"


@pytest.mark.rule("BREAK-01")
def test_by_default_five_failures_open_it_for_thirty_seconds_and_one_probe() -> None:
    settings = BreakerSettings()
    assert (settings.failure_threshold, settings.half_open_max) == (5, 1)
    assert (settings.reset_timeout_ms, settings.probe_timeout_ms) == (30_000, 30_000)
    assert [*CircuitState] == ["CLOSED", "OPEN", "HALF_OPEN"]


@pytest.mark.rule("BREAK-02")
def test_refused_call_knows_how_long_to_wait() -> None:
    breaker = CircuitBreaker(BreakerSettings(failure_threshold=1, probe_timeout_ms=8_000))
    assert breaker.retry_after(0.0) == 0.0
    breaker.failed(admitted(breaker, 0.0), 0.0)
    assert [breaker.retry_after(now) for now in (0.0, 29.5, 30.0)] == [30.0, 0.5, 0.0]
    admitted(breaker, 31.0)
    assert [breaker.retry_after(now) for now in (31.0, 38.5)] == [8.0, 0.5]
    assert breaker.retry_after(39.0) == 30.0


@pytest.mark.rule("BREAK-05", "BREAK-15")
def test_on_change_sees_the_new_state() -> None:
    seen: list[bool] = []
    breaker = CircuitBreaker(
        BreakerSettings(failure_threshold=1),
        lambda before, since: seen.append(breaker.state(0.0) is since),
    )
    breaker.failed(admitted(breaker, 0.0), 0.0)
    assert seen == [True]


@pytest.mark.rule("BREAK-06")
@pytest.mark.parametrize(
    "name", ["failure_threshold", "reset_timeout_ms", "probe_timeout_ms", "half_open_max"]
)
@pytest.mark.parametrize("value", [0, -1, float("nan"), 1.5, "3", None, True])
def test_settings_that_cannot_be_are_refused_by_name(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be a whole number .*, not {value!r}"):
        BreakerSettings(**{name: value})


@pytest.mark.rule("BREAK-06")
def test_a_window_may_be_absent_and_forgiving_is_a_choice() -> None:
    assert BreakerSettings().window_ms is None
    for window in (0, -1, 1.5, "3", True):
        with pytest.raises(ConfigError, match="window_ms must be a whole number"):
            BreakerSettings(window_ms=window)  # type: ignore[arg-type]
    for forgive in (1, "yes", None):
        with pytest.raises(ConfigError, match="forgive must be true or false"):
            BreakerSettings(forgive=forgive)  # type: ignore[arg-type]


# -- by chance

# Times are multiples of a quarter, which floats hold exactly: what is due is met to the point.
RESET, PROBE = 2.0, 1.5


@define(eq=False)
class Call:
    """One call, as the model remembers it."""

    permit: Permit
    began: float
    is_probe: bool
    has_say: bool = True


@define(eq=False)
class Model:
    """A circuit told in the words of the rules, with all its calls."""

    threshold: int
    probes_at_once: int
    window: float | None = None
    forgives: bool = False
    state: CircuitState = CLOSED
    failed: list[float] = field(factory=list)
    opened: float = 0.0
    calls: list[Call] = field(factory=list)
    changes: list[tuple[CircuitState, CircuitState]] = field(factory=list)

    def become(self, state: CircuitState) -> None:
        self.changes.append((self.state, state))
        self.state = state
        for call in self.calls:
            call.has_say = False

    def probes(self) -> list[Call]:
        return [call for call in self.calls if call.is_probe and call.has_say]

    def tick(self, now: float) -> None:
        late = [call.began + PROBE for call in self.probes() if now - call.began >= PROBE]
        if late:
            self.failed.append(min(late))
            self.opened = min(late)
            self.become(OPEN)
        if self.state is OPEN and now - self.opened >= RESET:
            self.become(HALF_OPEN)
        if self.state is CLOSED and self.window is not None:
            self.failed = [each for each in self.failed if now - each <= self.window]

    def lets_through(self) -> bool:
        if self.state is HALF_OPEN:
            return len(self.probes()) < self.probes_at_once
        return self.state is CLOSED

    def end(self, call: Call, how: str, now: float) -> None:
        had_say, call.has_say = call.has_say, False
        if not had_say or how == "abandoned":
            return
        if how == "succeeded":
            self.failed = self.failed[1:] if self.forgives and not call.is_probe else []
            if call.is_probe:
                self.become(CLOSED)
        else:
            self.failed.append(now)
            if call.is_probe or len(self.failed) >= self.threshold:
                self.opened = now
                self.become(OPEN)


class BreakerMachine(RuleBasedStateMachine):
    """Calls that begin and end in any order, while time passes in steps of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.changes: list[tuple[CircuitState, CircuitState]] = []

    @initialize(
        threshold=st.integers(1, 4),
        probes=st.sampled_from([1, 1, 1, 2, 3]),
        window=st.sampled_from([None, None, 0.75, 3.0]),
        forgive=st.booleans(),
    )
    def begin(self, threshold: int, probes: int, window: float | None, forgive: bool) -> None:
        self.model = Model(threshold, probes, window, forgive)
        settings = BreakerSettings(
            failure_threshold=threshold,
            reset_timeout_ms=int(RESET * 1000),
            probe_timeout_ms=int(PROBE * 1000),
            half_open_max=probes,
            window_ms=None if window is None else int(window * 1000),
            forgive=forgive,
        )
        self.breaker = CircuitBreaker(settings, lambda *change: self.changes.append(change))

    @rule(callers=st.integers(1, 5))
    def calls_begin(self, callers: int) -> None:
        self.model.tick(self.now)
        for _ in range(callers):
            expected = self.model.lets_through()
            permit = self.breaker.admit(self.now)
            assert (permit is not None) is expected
            if permit is not None:
                is_probe = self.model.state is HALF_OPEN
                self.model.calls.append(Call(permit, self.now, is_probe))

    # Any call there ever was: also those from before the circuit opened, and those that have ended.
    @precondition(lambda self: self.model.calls)
    @rule(
        pick=st.randoms(use_true_random=False),
        how=st.sampled_from(["succeeded", "failed"] * 2 + ["abandoned"]),
    )
    def one_ends(self, pick: Any, how: str) -> None:
        self.end(pick.choice(self.model.calls), how)

    @precondition(lambda self: self.model.probes())
    @rule(how=st.sampled_from(["succeeded", "failed", "abandoned"]))
    def a_probe_ends(self, how: str) -> None:
        self.end(self.model.probes()[0], how)

    @precondition(lambda self: [call for call in self.model.calls if call.has_say])
    @rule(times=st.integers(1, 4))
    def calls_that_count_fail(self, times: int) -> None:
        for call in [call for call in self.model.calls if call.has_say][:times]:
            self.end(call, "failed")

    def end(self, call: Call, how: str) -> None:
        self.model.tick(self.now)
        could = self.model.state
        counts = call.has_say
        self.model.end(call, how, self.now)
        getattr(self.breaker, how)(call.permit, self.now)
        if not counts:
            assert self.breaker.state(self.now) is could

    @rule(quarters=st.integers(1, 20))
    def time_passes(self, quarters: int) -> None:
        self.now += quarters / 4

    @rule()
    def somebody_looks(self) -> None:
        self.model.tick(self.now)
        assert self.breaker.state(self.now) is self.model.state
        assert self.breaker.failures == len(self.model.failed)
        assert self.changes == self.model.changes
        assert (self.breaker.retry_after(self.now) == 0) is self.model.lets_through()

    @invariant()
    def no_more_probes_are_under_way_than_may_be(self) -> None:
        assert len(self.model.probes()) <= self.model.probes_at_once

    @invariant()
    def it_closes_only_out_of_half_open(self) -> None:
        allowed = {(CLOSED, OPEN), (OPEN, HALF_OPEN), (HALF_OPEN, OPEN), (HALF_OPEN, CLOSED)}
        assert set(self.changes) <= allowed

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self.somebody_looks()


TestBreakerMachine = pytest.mark.rule(
    "BREAK-01", "BREAK-02", "BREAK-03", "BREAK-14", "BREAK-04", "BREAK-05", "BREAK-20", "BREAK-21"
)(BreakerMachine.TestCase)
