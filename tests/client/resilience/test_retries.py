"""Waits between attempts, and how many attempts there are."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foundation_rt.client.resilience.retries import RetryBudget, RetryPolicy
from foundation_rt.errors import ConfigError

draws = st.floats(0, 1, exclude_max=True)
policies = st.builds(
    RetryPolicy,
    base_delay_ms=st.integers(0, 10_000),
    max_delay_ms=st.integers(0, 100_000),
    budget=st.floats(0, 50),
)


# -- waiting


@pytest.mark.rule("RETRY-01")
def test_by_default_there_are_three_attempts_and_waits_up_to_five_seconds() -> None:
    policy = RetryPolicy()
    assert (policy.max_attempts, policy.budget) == (3, 10)
    assert (policy.base_delay_ms, policy.max_delay_ms) == (100, 5000)


@pytest.mark.rule("RETRY-01")
def test_the_bound_of_a_wait_doubles_up_to_the_longest() -> None:
    policy = RetryPolicy()
    bounds = [policy.delay(attempt, 0.5) * 2 for attempt in range(1, 9)]
    assert bounds == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert policy.delay(3, 0.0) == 0.0


@pytest.mark.rule("RETRY-01")
@given(policy=policies, attempt=st.integers(1, 10**9), draw=draws)
def test_a_wait_is_drawn_from_the_whole_range(
    policy: RetryPolicy, attempt: int, draw: float
) -> None:
    waits = policy.delay(attempt, draw)
    assert 0 <= waits <= policy.max_delay_ms / 1000
    longest = policy.delay(attempt, 1.0)
    assert waits == pytest.approx(longest * draw)
    assert policy.delay(attempt + 1, draw) >= waits


@pytest.mark.rule("RETRY-01")
@example(RetryPolicy(), 1, 0.5, math.nan)
@given(
    policy=policies,
    attempt=st.integers(1, 100),
    draw=draws,
    asked=st.floats(allow_nan=True, allow_infinity=True),
)
def test_a_server_is_waited_for_as_it_asks_but_not_for_ever(
    policy: RetryPolicy, attempt: int, draw: float, asked: float
) -> None:
    drawn, waits = policy.delay(attempt, draw), policy.delay(attempt, draw, asked)
    longest = policy.max_delay_ms / 1000
    if math.isnan(asked) or asked <= drawn:
        assert waits == drawn
    else:
        assert waits == min(asked, longest)


# -- the budget


@pytest.mark.rule("RETRY-02")
@given(tenths=st.integers(0, 300), succeeds=st.lists(st.booleans(), max_size=300))
def test_over_any_time_there_are_no_more_retries_than_the_start_and_a_tenth_of_the_successes(
    tenths: int, succeeds: list[bool]
) -> None:
    budget = RetryBudget(RetryPolicy(budget=tenths / 10))
    left, retries, successes = tenths, 0, 0
    for has_succeeded in succeeds:
        if has_succeeded:
            budget.succeeded()
            successes += 1
            left = min(left + 1, tenths)
        else:
            taken = budget.take()
            assert taken is (left >= 10)
            retries += taken
            left -= 10 * taken
        assert 10 * retries <= tenths + successes


# -- settings


@pytest.mark.rule("RETRY-03")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_attempts", 0),
        ("max_attempts", -1),
        ("base_delay_ms", -1),
        ("max_delay_ms", -1),
        ("base_delay_ms", math.inf),
        ("max_delay_ms", math.nan),
        ("max_attempts", 1.5),
        ("max_attempts", "3"),
        ("budget", None),
        ("budget", -0.1),
        ("budget", math.nan),
        ("budget", math.inf),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be a"):
        RetryPolicy(**{name: value})  # type: ignore[arg-type]


@pytest.mark.rule("RETRY-03")
def test_settings_that_just_can_be_are_taken() -> None:
    policy = RetryPolicy(max_attempts=1, base_delay_ms=0, max_delay_ms=0, budget=0)
    assert policy.delay(1, 0.9, 7.0) == 0.0
