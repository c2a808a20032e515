"""The decision to send or execute again, or to give up (AACP-13).

A message that is not acknowledged is sent again. A request whose error the policy calls temporary
is executed again, under a new epoch. Both wait for a delay that grows exponentially, with a jitter
that keeps many senders from trying at the same instant.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, frozen

from ...base.backoff import exponential_delay
from ...errors import StructuredError
from .request_options import ExecutionRetries, check_backoff, jittered_ms
from .types import Claim, MessageRecord, MessageState


def nothing_is_temporary(error: StructuredError) -> bool:
    """Return False: by default a handler that failed is not executed again."""
    return False


@frozen
class RetransmissionPolicy:
    """The number of attempts, and the delays between them.

    Attributes:
        max_attempts: after so many, a message is given up; by default its lifetime ends first.
        base_delay_ms: between the first attempt and the second.
        max_delay_ms: the longest delay; at most `MAX_DELAY_MS`.
        backoff_multiplier: the factor by which the delay grows.
        jitter: the random share of a delay, from 0 to 1.
        should_retry_error: returns whether a request that failed with an error is executed again.
        max_executions: after so many executions, a temporary error is final.
        max_starts: a request whose execution was begun so often, and at least `max_executions`
            times, and has no outcome, is not executed again (AACP-46).

    Raises:
        ValueError: names the invalid value.
    """

    max_attempts: int = 10_000
    base_delay_ms: int = 200
    max_delay_ms: int = 60_000
    backoff_multiplier: float = 2.0
    jitter: float = 0.5
    should_retry_error: Callable[[StructuredError], bool] = nothing_is_temporary
    max_executions: int = 5
    max_starts: int = 10

    def __attrs_post_init__(self) -> None:
        if min(self.max_attempts, self.max_executions, self.max_starts) < 1:
            raise ValueError("max_attempts, max_executions and max_starts must be at least 1")
        check_backoff(self.base_delay_ms, self.max_delay_ms, self.jitter)
        if not self.backoff_multiplier >= 1:  # so that NaN is refused too
            raise ValueError("backoff_multiplier must be at least 1")


PATIENT_POLICY = RetransmissionPolicy(max_delay_ms=600_000)
"""For a transport: its targets say when they listen again, so nobody has to try every minute."""


@define(eq=False, repr=False)
class Retransmitter:
    """Decides by a policy, with random numbers from outside.

    Args:
        random: returns a new number from 0 (included) to 1 (excluded) with every call.
    """

    policy: RetransmissionPolicy
    random: Callable[[], float]

    def backoff_delay_ms(self, attempts: int) -> int:
        """Return the delay after so many attempts (at least 1), in whole ms (at least 1)."""
        policy = self.policy
        delay = exponential_delay(
            attempts, policy.base_delay_ms, policy.max_delay_ms, policy.backoff_multiplier
        )
        return jittered_ms(delay, policy.jitter, self.random())

    def next_attempt_at_ms(self, message: MessageRecord, now_ms: int) -> int | None:
        """Return when a message that is being sent again now is due next; None gives it up.

        A tombstone is never given up: the numbers behind it wait for it (AACP-14).
        """
        exhausted = message.attempts >= self.policy.max_attempts
        if exhausted and message.state is not MessageState.TOMBSTONE:
            return None
        return now_ms + self.backoff_delay_ms(message.attempts + 1)

    def delay_before_next_execution_ms(self, claim: Claim, error: StructuredError) -> int | None:
        """Return the delay before a request that failed is executed again; None: it is not.

        Its own `ExecutionRetries` decide, if it has any (AACP-124).

        Args:
            claim: of its last execution.
            error: of that.
        """
        if claim.retry is not None:
            retries = ExecutionRetries.from_json(claim.retry)
            again = retries.should_execute_again(claim.executions, error)
            return retries.delay_ms(claim.executions, self.random()) if again else None
        policy = self.policy
        again = claim.executions < policy.max_executions and policy.should_retry_error(error)
        return self.backoff_delay_ms(claim.executions) if again else None

    def may_begin(self, claim: Claim) -> bool:
        """Return whether the execution of a claim may begin (AACP-46)."""
        most = max(self.policy.max_starts, self.policy.max_executions)
        if claim.executions > most and claim.retry is not None:
            most = ExecutionRetries.from_json(claim.retry).attempts
        return claim.executions <= most
