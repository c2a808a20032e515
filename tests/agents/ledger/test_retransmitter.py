"""When something is tried again, and when it is given up."""

from __future__ import annotations

from itertools import pairwise
from math import inf, nan
from random import Random
from typing import Any

import pytest
from attrs.exceptions import FrozenInstanceError
from hypothesis import example, given
from hypothesis import strategies as st

from foundation_rt.agents.ledger.retransmitter import (
    MAX_DELAY_MS,
    RetransmissionPolicy,
    Retransmitter,
)
from foundation_rt.agents.ledger.types import MessageRecord, MessageState, MessageType, Outcome
from foundation_rt.errors import ErrorCode, StructuredError

NOW_MS = 1_705_314_600_000
ALMOST_ONE = 1 - 2**-53
"""The largest number that a random number from 0 to 1, 1 excluded, can be."""

BUSY = StructuredError(ErrorCode.RESOURCE_EXHAUSTED, "busy")
BROKEN = StructuredError(ErrorCode.INTERNAL, "broken")

chances = st.floats(0, ALMOST_ONE)
attempts = st.integers(1, 100) | st.integers(1, 10**9)


@st.composite
def policies(
    draw: st.DrawFn, jitter: st.SearchStrategy[float] | None = None
) -> RetransmissionPolicy:
    base_delay_ms = draw(st.integers(1, 10_000) | st.integers(1, MAX_DELAY_MS))
    return RetransmissionPolicy(
        max_attempts=draw(st.integers(1, 100)),
        base_delay_ms=base_delay_ms,
        max_delay_ms=draw(st.integers(base_delay_ms, MAX_DELAY_MS)),
        backoff_multiplier=draw(st.floats(1, 10) | st.floats(1) | st.integers(1, 10**6)),
        jitter=draw(st.floats(0, 1) if jitter is None else jitter),
    )


def message(tried: int, state: MessageState = MessageState.PENDING, seq: int = 1) -> MessageRecord:
    return MessageRecord(
        "00000000-0000-4000-8000-000000000001",
        "request",
        "source",
        "target",
        seq,
        MessageType.REQUEST,
        b"null",
        state,
        NOW_MS,
        NOW_MS + 86_400_000,
        tried,
    )


# -- delays


@pytest.mark.rule("AACP-13")
def test_the_delay_doubles_from_the_base_up_to_the_longest() -> None:
    policy = RetransmissionPolicy(
        base_delay_ms=100, max_delay_ms=1000, backoff_multiplier=2, jitter=0
    )
    delays = [Retransmitter(policy, lambda: 0.5).backoff_delay_ms(tried) for tried in range(1, 8)]
    assert delays == [100, 200, 400, 800, 1000, 1000, 1000]


@pytest.mark.rule("AACP-13")
@pytest.mark.parametrize(
    ("chance", "delay"), [(0.0, 1000), (0.25, 900), (0.5, 800), (ALMOST_ONE, 600)]
)
def test_jitter_takes_at_most_its_share_off_delay(chance: float, delay: int) -> None:
    policy = RetransmissionPolicy(base_delay_ms=1000, max_delay_ms=1000, jitter=0.4)
    assert Retransmitter(policy, lambda: chance).backoff_delay_ms(1) == delay


@pytest.mark.rule("AACP-13")
@given(policy=policies(), tried=attempts, chance=chances)
@example(policy=RetransmissionPolicy(jitter=1.0), tried=1, chance=ALMOST_ONE)
@example(policy=RetransmissionPolicy(backoff_multiplier=inf), tried=1, chance=0.0)
@example(policy=RetransmissionPolicy(backoff_multiplier=inf), tried=2, chance=0.0)
@example(policy=RetransmissionPolicy(backoff_multiplier=1e308), tried=10**9, chance=0.0)
@example(policy=RetransmissionPolicy(backoff_multiplier=10**300), tried=3, chance=0.0)
def test_a_delay_is_a_whole_number_within_its_bounds(
    policy: RetransmissionPolicy, tried: int, chance: float
) -> None:
    delay = Retransmitter(policy, lambda: chance).backoff_delay_ms(tried)
    assert type(delay) is int
    assert 1 <= delay <= policy.max_delay_ms
    # The longest and the shortest this attempt can get; a millisecond is cut off.
    longest = Retransmitter(policy, lambda: 0.0).backoff_delay_ms(tried)
    assert (longest - 1) * (1 - policy.jitter) - 1 <= delay <= longest


@pytest.mark.rule("AACP-13")
@given(policy=policies(jitter=st.just(0.0)), chance=chances)
def test_without_jitter_delays_never_shrink_and_chance_does_not_count(
    policy: RetransmissionPolicy, chance: float
) -> None:
    plain, lucky = Retransmitter(policy, lambda: 0.0), Retransmitter(policy, lambda: chance)
    delays = [plain.backoff_delay_ms(tried) for tried in range(1, 60)]
    assert delays[0] == policy.base_delay_ms
    assert all(earlier <= later for earlier, later in pairwise(delays))
    assert delays == [lucky.backoff_delay_ms(tried) for tried in range(1, 60)]


@pytest.mark.rule("AACP-13")
@given(policy=policies(), chance=chances)
def test_on_average_delays_never_shrink(policy: RetransmissionPolicy, chance: float) -> None:
    """The same luck each time takes the same share each time."""
    retransmitter = Retransmitter(policy, lambda: chance)
    delays = [retransmitter.backoff_delay_ms(tried) for tried in range(1, 60)]
    assert all(earlier <= later for earlier, later in pairwise(delays))


@pytest.mark.rule("AACP-13")
def test_a_small_multiplier_goes_on_to_multiply() -> None:
    policy = RetransmissionPolicy(base_delay_ms=1000, backoff_multiplier=1.001, jitter=0)
    retransmitter = Retransmitter(policy, lambda: 0.0)
    assert retransmitter.backoff_delay_ms(1001) == 2716
    assert retransmitter.backoff_delay_ms(2001) == 7381
    assert retransmitter.backoff_delay_ms(10_000) == policy.max_delay_ms


@pytest.mark.rule("AACP-13")
@given(policy=policies(), seed=st.integers(), tries=st.lists(st.integers(1, 50), max_size=20))
def test_the_same_chance_gives_the_same_delays(
    policy: RetransmissionPolicy, seed: int, tries: list[int]
) -> None:
    one, other = (Retransmitter(policy, Random(seed).random) for _ in range(2))
    assert [one.backoff_delay_ms(each) for each in tries] == [
        other.backoff_delay_ms(each) for each in tries
    ]


@pytest.mark.rule("AACP-13")
def test_many_senders_do_not_try_at_the_same_instant() -> None:
    chance = Random(7).random
    retransmitter = Retransmitter(RetransmissionPolicy(base_delay_ms=10_000), chance)
    delays = [retransmitter.backoff_delay_ms(1) for _ in range(1000)]
    assert 5000 <= min(delays) < 5500
    assert 9500 < max(delays) <= 10_000
    assert len(set(delays)) > 800


# -- giving up


@pytest.mark.rule("AACP-13", "AACP-14")
def test_a_message_is_sent_as_often_as_the_policy_says_and_then_given_up() -> None:
    retransmitter = Retransmitter(RetransmissionPolicy(max_attempts=4), Random(1).random)
    sent = 1
    while retransmitter.next_attempt_at_ms(message(sent), NOW_MS) is not None:
        sent += 1
    assert sent == 4


@pytest.mark.rule("AACP-13")
@given(policy=policies(), tried=st.integers(1, 200), seed=st.integers())
def test_the_next_attempt_is_due_after_the_delay_of_its_number(
    policy: RetransmissionPolicy, tried: int, seed: int
) -> None:
    due_ms = Retransmitter(policy, Random(seed).random).next_attempt_at_ms(message(tried), NOW_MS)
    delay = Retransmitter(policy, Random(seed).random).backoff_delay_ms(tried + 1)
    assert due_ms == (NOW_MS + delay if tried < policy.max_attempts else None)


@pytest.mark.rule("AACP-14")
@given(policy=policies(), tried=st.integers(1, 10**9), chance=chances)
def test_a_tombstone_is_never_given_up(
    policy: RetransmissionPolicy, tried: int, chance: float
) -> None:
    void = message(tried, MessageState.TOMBSTONE)
    due_ms = Retransmitter(policy, lambda: chance).next_attempt_at_ms(void, NOW_MS)
    assert due_ms is not None
    assert NOW_MS < due_ms <= NOW_MS + policy.max_delay_ms


@pytest.mark.rule("AACP-14")
def test_deciding_changes_nothing_about_a_message() -> None:
    pending = message(3)
    Retransmitter(RetransmissionPolicy(), lambda: 0.0).next_attempt_at_ms(pending, NOW_MS)
    assert pending == message(3)


@pytest.mark.rule("AACP-13", "AACP-06")
def test_by_default_the_lifetime_of_a_message_ends_before_its_attempts() -> None:
    retransmitter = Retransmitter(RetransmissionPolicy(), lambda: ALMOST_ONE)
    assert message(1).outcome is Outcome.UNKNOWN  # and so it is sent again
    fastest = sum(retransmitter.backoff_delay_ms(tried) for tried in range(1, 10_000))
    assert fastest > 3 * 86_400_000


# -- executing again


@pytest.mark.rule("AACP-63")
@pytest.mark.parametrize("executions", [1, 2, 10**9])
@pytest.mark.parametrize("code", ErrorCode)
def test_by_default_no_error_is_temporary(executions: int, code: ErrorCode) -> None:
    retransmitter = Retransmitter(RetransmissionPolicy(), lambda: 0.0)
    assert not retransmitter.should_execute_again(executions, StructuredError(code, "no"))


@pytest.mark.rule("AACP-63")
def test_a_temporary_error_is_tried_again_so_often_and_another_is_not() -> None:
    policy = RetransmissionPolicy(
        should_retry_error=lambda error: error.code is ErrorCode.RESOURCE_EXHAUSTED,
        max_executions=3,
    )
    retransmitter = Retransmitter(policy, lambda: 0.0)
    again = [retransmitter.should_execute_again(executions, BUSY) for executions in range(1, 6)]
    assert again == [True, True, False, False, False]
    assert not any(retransmitter.should_execute_again(each, BROKEN) for each in range(1, 6))


@pytest.mark.rule("AACP-63")
def test_a_policy_is_not_asked_when_it_makes_no_difference() -> None:
    asked = []
    policy = RetransmissionPolicy(
        should_retry_error=lambda error: not asked.append(error), max_executions=1
    )
    assert not Retransmitter(policy, lambda: 0.0).should_execute_again(1, BUSY)
    assert asked == []


@pytest.mark.rule("AACP-46")
@pytest.mark.parametrize(("executions", "starts", "most"), [(1, 1, 1), (1, 3, 3), (5, 3, 5)])
def test_an_execution_may_be_begun_so_often(executions: int, starts: int, most: int) -> None:
    policy = RetransmissionPolicy(max_executions=executions, max_starts=starts)
    retransmitter = Retransmitter(policy, lambda: 0.0)
    assert [retransmitter.may_begin(each) for each in (1, most, most + 1)] == [True, True, False]


# -- policies


@pytest.mark.rule("AACP-13")
@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": -1}, "max_attempts"),
        ({"max_executions": 0}, "max_executions"),
        ({"base_delay_ms": 0}, "base_delay_ms"),
        ({"base_delay_ms": -5}, "base_delay_ms"),
        ({"base_delay_ms": nan}, "base_delay_ms"),
        ({"base_delay_ms": 500, "max_delay_ms": 499}, "max_delay_ms"),
        ({"max_delay_ms": 0}, "max_delay_ms"),
        ({"max_delay_ms": nan}, "max_delay_ms"),
        ({"max_delay_ms": inf}, "max_delay_ms"),
        ({"max_delay_ms": MAX_DELAY_MS + 1}, str(MAX_DELAY_MS)),
        ({"backoff_multiplier": 0.99}, "backoff_multiplier"),
        ({"backoff_multiplier": -2}, "backoff_multiplier"),
        ({"backoff_multiplier": nan}, "backoff_multiplier"),
        ({"jitter": -0.01}, "jitter"),
        ({"jitter": 1.01}, "jitter"),
        ({"jitter": nan}, "jitter"),
    ],
)
def test_invalid_policy_is_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        RetransmissionPolicy(**values)


@pytest.mark.rule("AACP-13")
@pytest.mark.parametrize(
    "values",
    [
        {"max_attempts": 1, "max_executions": 1},
        {"base_delay_ms": 1, "max_delay_ms": 1},
        {"base_delay_ms": MAX_DELAY_MS, "max_delay_ms": MAX_DELAY_MS},
        {"backoff_multiplier": 1},
        {"jitter": 0},
        {"jitter": 1},
    ],
)
def test_a_policy_may_be_at_its_limits(values: dict[str, Any]) -> None:
    assert RetransmissionPolicy(**values) == RetransmissionPolicy(**values)


def test_a_policy_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        RetransmissionPolicy().max_attempts = 3  # type: ignore[misc]
