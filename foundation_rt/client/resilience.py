"""Around every call: its deadline, the circuit breakers, and what is tried again (section 3 of
spec/client-failing.md).

One try is one permit of every breaker and one `Attempt`. What may be tried again, its error says:
only what cannot have run, or what may run twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import TypeVar

from attrs import define

from .circuit_breaker import CircuitBreaker, Permit
from .deadline import Deadline
from .errors import CallTimeoutError, CircuitOpenError, MCPError, SessionExpiredError
from .retries import RetryBudget, RetryPolicy
from .session import Attempt

Result = TypeVar("Result")

_FAILURES = {"E201", "E202", "E209"}
"""What says that the server is not well; everything else is an answer (BREAK rules)."""


@define(eq=False, repr=False)
class Resilience:
    """Performs operations so that they fail well.

    Args:
        allowance: seconds that a deadline may stand still while a person answers.
        draw: gives a random number, at least 0 and less than 1.
    """

    policy: RetryPolicy
    budget: RetryBudget
    allowance: float
    draw: Callable[[], float]

    async def perform(
        self,
        what: str,
        operation: Callable[[Attempt], Awaitable[Result]],
        make_attempt: Callable[[], Attempt],
        breakers: Sequence[CircuitBreaker],
        timeout: float,
    ) -> Result:
        """Try `operation` until it has a result, or there is no use in trying (RETRY rules).

        Args:
            what: it is, for messages.
            make_attempt: makes the `Attempt` for each try.
            timeout: seconds for all of it.

        Raises:
            MCPError: the last one there was.
        """
        deadline = Deadline(asyncio.get_running_loop().time() + timeout, self.allowance)
        tries, is_repaired, may_have_run = 1, False, False
        while True:
            attempt = make_attempt()
            try:
                result = await self._try_once(what, operation, attempt, breakers, deadline, timeout)
            except MCPError as error:
                may_have_run = may_have_run or _may_have_run(error, attempt)
                repeats = _may_repeat(error, attempt)
                session = attempt.session
                if repeats and not is_repaired and session is not None and not session.is_usable:
                    is_repaired = True  # the session is made anew: that is no retry of the server
                    continue
                delay = self._delay(error, tries, deadline) if repeats else None
                if delay is None:
                    raise _saying(error, may_have_run) from error.__cause__
            else:
                self.budget.succeeded()
                return result
            tries += 1
            await asyncio.sleep(delay)

    async def _try_once(
        self,
        what: str,
        operation: Callable[[Attempt], Awaitable[Result]],
        attempt: Attempt,
        breakers: Sequence[CircuitBreaker],
        deadline: Deadline,
        timeout: float,
    ) -> Result:
        clock = asyncio.get_running_loop().time
        permits = _admit(breakers, clock(), what)
        attempt.deadline = deadline
        try:
            async with deadline:
                result = await operation(attempt)
        except MCPError as error:
            _report(permits, error, attempt, clock())
            raise
        except TimeoutError:
            late = CallTimeoutError(
                f"the server did not answer {what} within {timeout:g} s",
                may_have_run=attempt.was_sent,
            )
            _report(permits, late, attempt, clock())
            raise late from None
        except BaseException:
            for breaker, permit in permits:
                breaker.abandoned(permit, clock())
            raise
        for breaker, permit in permits:
            breaker.succeeded(permit, clock())
        return result

    def _delay(self, error: MCPError, tries: int, deadline: Deadline) -> float | None:
        """Seconds to wait before the next try; None if there is to be none."""
        if tries >= self.policy.max_attempts:
            return None
        delay = self.policy.delay(tries, self.draw(), error.retry_after)
        remaining = deadline.remaining()
        if remaining is not None and delay >= remaining:
            return None
        return delay if self.budget.take() else None


def _may_repeat(error: MCPError, attempt: Attempt) -> bool:
    """Whether the same may be asked again (RETRY rules)."""
    if isinstance(error, CircuitOpenError) or not error.retryable:
        return False
    return attempt.is_idempotent or not _may_have_run(error, attempt)


def _may_have_run(error: MCPError, attempt: Attempt) -> bool:
    """Whether this try may have been carried out.

    What was only needed for it, a connection or a list of tools, says nothing of it.
    """
    return attempt.was_sent and error.may_have_run


def _saying(error: MCPError, may_have_run: bool) -> MCPError:
    """The error as it is for all tries together; its own object, if others hold it too."""
    if error.may_have_run == may_have_run:
        return error
    told = copy(error)
    told.may_have_run = may_have_run
    return told


def _admit(
    breakers: Sequence[CircuitBreaker], now: float, what: str
) -> list[tuple[CircuitBreaker, Permit]]:
    permits: list[tuple[CircuitBreaker, Permit]] = []
    for breaker in breakers:
        permit = breaker.admit(now)
        if permit is None:
            for earlier, given in permits:
                earlier.abandoned(given, now)
            after = breaker.retry_after(now)
            raise CircuitOpenError(
                f"{what} was not sent: the server has failed {breaker.failures} times in a row "
                f"and is left alone for another {after:.0f} s",
                retry_after=after,
            )
        permits.append((breaker, permit))
    return permits


def _report(
    permits: list[tuple[CircuitBreaker, Permit]], error: MCPError, attempt: Attempt, now: float
) -> None:
    """Tell the breakers what a try ended in."""
    is_failure = error.code in _FAILURES and not isinstance(error, SessionExpiredError)
    session = attempt.session
    if is_failure and session is not None and session.error is not None:
        # A connection that is lost is one failure, however many calls waited on it.
        is_failure = not session.is_failure_counted
        session.is_failure_counted = True
        is_answer = False
    else:
        is_answer = attempt.was_sent and error.code not in _FAILURES | {"E207", "E208"}
    for breaker, permit in permits:
        if is_failure:
            breaker.failed(permit, now)
        elif is_answer:
            breaker.succeeded(permit, now)
        else:
            breaker.abandoned(permit, now)
