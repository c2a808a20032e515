"""Around every call: its deadline, the circuit breakers, and what is tried again (section 3 of
spec/client-failing.md).

One try is one permit of every breaker and one `Attempt`. What may be tried again, its error says:
only what cannot have run, or what may run twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import Any, TypeVar
from weakref import WeakSet

from attrs import define, field

from .attempt import Attempt
from .circuit_breaker import CircuitBreaker, Permit
from .deadline import Deadline, Watch
from .errors import CallTimeoutError, CircuitOpenError, MCPError, SessionExpiredError
from .retries import RetryBudget, RetryPolicy

Result = TypeVar("Result")
Verdict = Callable[[CircuitBreaker, Permit, float], None]
"""How a try ended, for a breaker: it succeeded, failed, or was abandoned."""

_FAILURES = {"E201", "E202", "E209"}
"""What says that the server is not well (BREAK-10)."""

_SAYS_NOTHING = {"E207", "E208"}
"""What is said on the way to the server, maybe by somebody else."""


@define(eq=False, repr=False)
class Resilience:
    """Performs operations so that they fail well.

    Args:
        allowance: seconds that a deadline may stand still while a person answers.
        draw: gives a random number, at least 0 and less than 1.
        not_ready: makes the error of what could not be sent in time; it takes what was to be sent
            and how long that was waited for, in s.

    Attributes:
        watch: of the deadlines; to be closed with the client.
    """

    policy: RetryPolicy
    budget: RetryBudget
    allowance: float
    draw: Callable[[], float]
    not_ready: Callable[[str, float], CallTimeoutError]
    watch: Watch = field(factory=Watch, init=False)
    _counted: WeakSet[MCPError] = field(factory=WeakSet, init=False)

    async def perform(
        self,
        what: str,
        operation: Callable[[Attempt], Awaitable[Result]],
        make_attempt: Callable[[], Attempt],
        breakers: Sequence[CircuitBreaker],
        timeout: float,
    ) -> Result:
        """Try `operation` until it has a result, or there is no use in trying (RETRY-10).

        Args:
            what: it is, for messages.
            make_attempt: makes the `Attempt` for each try.
            timeout: seconds for all of it; 0 or less, or NaN, is over before it begins.

        Raises:
            MCPError: the last one there was; it speaks for all tries.
        """
        if not timeout > 0:
            raise CallTimeoutError(f"{what} was given no time", may_have_run=False)
        end = asyncio.get_running_loop().time() + timeout
        deadline = Deadline(end, self.allowance, self.watch)
        told: MCPError | None = None
        tries, is_repaired = 1, False
        while True:
            attempt = make_attempt()
            try:
                result = await self._try_once(what, operation, attempt, breakers, deadline, timeout)
            except CircuitOpenError as refusal:
                raise told or refusal from None
            except MCPError as error:
                told = _saying(error, _may_have_run(error, attempt) or _has_run(told))
                if not _may_repeat(error, attempt):
                    raise told from error.__cause__
            else:
                self.budget.succeeded()
                return result
            session = attempt.session
            if not is_repaired and session is not None and not session.is_usable:
                is_repaired = True  # the session is made anew: that is no retry of the server
                continue
            delay = self._delay(told, tries, deadline)
            if delay is None:
                raise told from told.__cause__
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
        verdict: Verdict = CircuitBreaker.abandoned  # also where the caller has gone
        attempt.deadline = deadline
        try:
            async with deadline:
                result = await operation(attempt)
            verdict = CircuitBreaker.succeeded
        except MCPError as error:
            verdict = self._verdict(error, attempt)
            raise
        except TimeoutError:
            late = self._late(what, attempt, timeout)
            verdict = self._verdict(late, attempt)
            raise late from None
        finally:
            for breaker, permit in permits:
                verdict(breaker, permit, clock())
        return result

    def _late(self, what: str, attempt: Attempt, timeout: float) -> CallTimeoutError:
        if not attempt.was_sent:
            return self.not_ready(what, timeout)
        message = f"the server did not answer {what} within {timeout:g} s"
        return CallTimeoutError(message, may_have_run=True)

    def _verdict(self, error: MCPError, attempt: Attempt) -> Verdict:
        """What a try that ended in `error` says of the server (BREAK-10)."""
        if error.code not in _FAILURES or _is_an_applications(error):
            is_answer = attempt.was_sent and error.code not in _SAYS_NOTHING
            return CircuitBreaker.succeeded if is_answer else CircuitBreaker.abandoned
        session = attempt.session
        # A connection that is lost, or cannot be made, is one failure, however many wait for it.
        cause = error if session is None or session.error is None else session.error
        if isinstance(cause, SessionExpiredError) or cause in self._counted:
            return CircuitBreaker.abandoned
        self._counted.add(cause)
        return CircuitBreaker.failed

    def _delay(self, error: MCPError, tries: int, deadline: Deadline) -> float | None:
        """Seconds to wait before the next try; None if there is to be none."""
        if tries >= self.policy.max_attempts:
            return None
        delay = self.policy.delay(tries, self.draw(), error.retry_after)
        if delay >= deadline.remaining():
            return None
        return delay if self.budget.take() else None


def _may_repeat(error: MCPError, attempt: Attempt) -> bool:
    """Whether the same may be asked again (RETRY-10)."""
    return error.retryable and (attempt.is_idempotent or not _may_have_run(error, attempt))


def _may_have_run(error: MCPError, attempt: Attempt) -> bool:
    """Whether this try may have been carried out, in part at least (CLIENT-21).

    What was only needed for it, a connection or a list of tools, says nothing of it.
    """
    return attempt.was_sent and (error.may_have_run or attempt.has_begun)


def _has_run(told: MCPError | None) -> bool:
    return told is not None and told.may_have_run


def _saying(error: MCPError, may_have_run: bool) -> MCPError:
    """The error as it is for all tries together; its own object, if others hold it too."""
    if error.may_have_run == may_have_run:
        return error
    told = copy(error)
    told.may_have_run = may_have_run
    return told


def _is_an_applications(error: MCPError) -> bool:
    """Whether what the server runs has failed, and not the server.

    A handler of a foundation-rt server says so itself (FEAT-02); and numbers outside the range that
    JSON-RPC reserves are an application's own.
    """
    data: Any = error.data
    if isinstance(data, dict) and "runId" in data:
        return True
    return error.original_code is not None and not -32768 <= error.original_code <= -32000


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
