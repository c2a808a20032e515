"""When something is tried again, and when it is given up."""

from __future__ import annotations

from itertools import pairwise
from math import inf, nan
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foundation_rt.agents.ledger.request_options import MAX_DELAY_MS, ExecutionRetries
from foundation_rt.agents.ledger.retransmitter import RetransmissionPolicy, Retransmitter
from foundation_rt.agents.ledger.types import (
    Claim,
    MessageRecord,
    MessageState,
    MessageType,
    Outcome,
)
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
def test_a_small_multiplier_goes_on_to_multiply() -> None:
    policy = RetransmissionPolicy(base_delay_ms=1000, backoff_multiplier=1.001, jitter=0)
    retransmitter = Retransmitter(policy, lambda: 0.0)
    assert retransmitter.backoff_delay_ms(1001) == 2716
    assert retransmitter.backoff_delay_ms(2001) == 7381
    assert retransmitter.backoff_delay_ms(10_000) == policy.max_delay_ms


# -- giving up


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
    assert not executes_again(retransmitter, executions, StructuredError(code, "no"))


@pytest.mark.rule("AACP-63")
def test_a_temporary_error_is_tried_again_so_often_and_another_is_not() -> None:
    policy = RetransmissionPolicy(
        should_retry_error=lambda error: error.code is ErrorCode.RESOURCE_EXHAUSTED,
        max_executions=3,
    )
    retransmitter = Retransmitter(policy, lambda: 0.0)
    again = [executes_again(retransmitter, executions, BUSY) for executions in range(1, 6)]
    assert again == [True, True, False, False, False]
    assert not any(executes_again(retransmitter, each, BROKEN) for each in range(1, 6))


@pytest.mark.rule("AACP-63")
def test_a_policy_is_not_asked_when_it_makes_no_difference() -> None:
    asked = []
    policy = RetransmissionPolicy(
        should_retry_error=lambda error: not asked.append(error), max_executions=1
    )
    assert not executes_again(Retransmitter(policy, lambda: 0.0), 1, BUSY)
    assert asked == []


@pytest.mark.rule("AACP-46")
@pytest.mark.parametrize(("executions", "starts", "most"), [(1, 1, 1), (1, 3, 3), (5, 3, 5)])
def test_an_execution_may_be_begun_so_often(executions: int, starts: int, most: int) -> None:
    policy = RetransmissionPolicy(max_executions=executions, max_starts=starts)
    retransmitter = Retransmitter(policy, lambda: 0.0)
    begins = [retransmitter.may_begin(claim(each)) for each in (1, most, most + 1)]
    assert begins == [True, True, False]


# -- requests with a policy of their own


@pytest.mark.rule("AACP-124")
@given(st.integers(1, 20), st.integers(1, 20), chances)
def test_own_policy_decides_how_often_and_when(
    attempts: int, executions: int, chance: float
) -> None:
    retries = ExecutionRetries(attempts, base_delay_ms=100, max_delay_ms=1_000, jitter=0.5)
    patient = RetransmissionPolicy(should_retry_error=lambda error: True, max_executions=100)
    retransmitter = Retransmitter(patient, lambda: chance)
    delay = retransmitter.delay_before_next_execution_ms(claim(executions, retries), BROKEN)
    if executions >= attempts:
        assert delay is None
    else:
        longest = min(100 * 2 ** (executions - 1), 1_000)
        assert delay is not None
        assert max(1, int(longest / 2)) <= delay <= longest


@pytest.mark.rule("AACP-124")
@pytest.mark.parametrize(
    ("final", "again"),
    [((), True), (("INTERNAL",), False), (("full",), False), (("INVALID_ARGUMENT", "x"), True)],
)
def test_error_whose_code_or_reason_is_final_is_not_tried_again(
    final: tuple[str, ...], again: bool
) -> None:
    error = StructuredError(ErrorCode.INTERNAL, "broken", {"reason": "full"})
    retransmitter = Retransmitter(RetransmissionPolicy(), lambda: 0.0)
    own = claim(1, ExecutionRetries(final=final))
    assert (retransmitter.delay_before_next_execution_ms(own, error) is not None) is again


@pytest.mark.rule("AACP-46", "AACP-124")
def test_own_policy_may_begin_more_often_than_that_of_the_coordinator() -> None:
    retransmitter = Retransmitter(RetransmissionPolicy(), lambda: 0.0)
    own = ExecutionRetries(attempts=50)
    assert [retransmitter.may_begin(claim(each, own)) for each in (50, 51)] == [True, False]


@pytest.mark.rule("AACP-124")
@pytest.mark.parametrize(
    "values",
    [
        {"attempts": 0},
        {"attempts": 1_001},
        {"attempts": True},
        {"base_delay_ms": 0},
        {"base_delay_ms": 2, "max_delay_ms": 1},
        {"max_delay_ms": MAX_DELAY_MS + 1},
        {"multiplier": 0.5},
        {"multiplier": nan},
        {"jitter": 2},
        {"jitter": -1},
        {"final": "INTERNAL"},
        {"final": (1,)},
        {"final": ("x" * 101,)},
        {"final": ("x",) * 101},
    ],
)
def test_own_policy_that_is_not_valid_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(values)).partition("_delay")[0]):
        ExecutionRetries(**values)


@pytest.mark.rule("AACP-124")
@given(st.integers(1, 1_000), st.integers(1, 99), st.floats(1, 1_000), st.floats(0, 1))
def test_own_policy_is_read_as_it_was_written(
    attempts: int, base: int, multiplier: float, jitter: float
) -> None:
    retries = ExecutionRetries(attempts, base, 100, multiplier, jitter, ["A", "b"])
    assert ExecutionRetries.from_json(retries.to_json()) == retries


def executes_again(retransmitter: Retransmitter, executions: int, error: StructuredError) -> bool:
    return retransmitter.delay_before_next_execution_ms(claim(executions), error) is not None


def claim(executions: int, own: ExecutionRetries | None = None) -> Claim:
    retry = None if own is None else own.to_json()
    kind = MessageType.REQUEST
    return Claim("r", 1, executions, "a", "b", kind, b"1", 1, NOW_MS, NOW_MS + 1, retry=retry)


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
