"""Around every call: its deadline, the circuit breakers, and what is tried again (section 3 of
spec/client-failing.md).

One call takes one permit of every breaker, when something of it is to be sent; one try is one
`Attempt`. The error of a try says if it may be repeated: only what cannot have run, or what may run
twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import Any, TypeVar
from weakref import WeakSet

from attrs import define, field

from ..errors import CallTimeoutError, CircuitOpenError, MCPError, SessionExpiredError
from .attempt import Attempt
from .breakers import Permits
from .circuit_breaker import CircuitBreaker
from .deadline import Deadline, DeadlineTimer
from .retries import RetryBudget, RetryPolicy

Result = TypeVar("Result")

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
    watch: DeadlineTimer = field(factory=DeadlineTimer, init=False)
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
            breakers: that of the server, and that of the tool if it has one.
            timeout: seconds for all of it; 0 or less, or NaN, is over before it begins.

        Raises:
            MCPError: the last one there was; it speaks for all tries.
        """
        if not timeout > 0:
            raise CallTimeoutError(f"{what} was given no time", may_have_run=False)
        end = asyncio.get_running_loop().time() + timeout
        deadline = Deadline(end, self.allowance, self.watch)
        permits = Permits(breakers, what)
        told: MCPError | None = None
        tries = Tries()
        try:
            while True:
                attempt = make_attempt()
                attempt.permits, attempt.deadline = permits, deadline
                try:
                    result = await self._try_once(what, operation, attempt, deadline, timeout)
                except CircuitOpenError as refusal:
                    error = told or refusal
                    may_have_run = error.may_have_run or _may_have_run(refusal, attempt)
                    raise _saying(error, may_have_run) from None
                except MCPError as error:
                    told = _saying(error, _may_have_run(error, attempt) or _has_run(told))
                    delay = self._delay(error, attempt, tries, deadline)
                    if delay is None:
                        self._settle(permits, error, attempt)
                        raise told from error.__cause__
                else:
                    self._succeeded(permits)
                    return result
                if delay:
                    await asyncio.sleep(delay)
                permits.renew()
        finally:
            permits.release()  # also where the caller has gone

    async def _try_once(
        self,
        what: str,
        operation: Callable[[Attempt], Awaitable[Result]],
        attempt: Attempt,
        deadline: Deadline,
        timeout: float,
    ) -> Result:
        try:
            async with deadline:
                return await operation(attempt)
        except MCPError:
            raise
        except TimeoutError:
            raise self._late(what, attempt, timeout) from None

    def _late(self, what: str, attempt: Attempt, timeout: float) -> CallTimeoutError:
        if not attempt.was_sent:
            return self.not_ready(what, timeout)
        message = f"the server did not answer {what} within {timeout:g} s"
        return CallTimeoutError(message, may_have_run=True)

    def _succeeded(self, permits: Permits) -> None:
        """Count a success, if anything was sent for it (BREAK-10)."""
        if permits.are_held:
            permits.settle(CircuitBreaker.succeeded, CircuitBreaker.succeeded)
            self.budget.succeeded()

    def _settle(self, permits: Permits, error: MCPError, attempt: Attempt) -> None:
        """Report to the breakers what a call that ended in `error` says of them (BREAK-10)."""
        if not permits.are_held:
            return
        if not _is_failure(error):
            is_answer = attempt.was_sent and error.code not in _SAYS_NOTHING
            verdict = CircuitBreaker.succeeded if is_answer else CircuitBreaker.abandoned
            permits.settle(verdict, verdict)
            return
        # A connection that is lost, or cannot be made, is one failure, however many wait for it.
        cause = _cause(error, attempt)
        if isinstance(cause, SessionExpiredError) or cause in self._counted:
            return
        self._counted.add(cause)
        is_the_tools = len(permits.breakers) > 1 and attempt.was_answered
        servers = CircuitBreaker.succeeded if is_the_tools else CircuitBreaker.failed
        permits.settle(servers, CircuitBreaker.failed)

    def _delay(
        self, error: MCPError, attempt: Attempt, tries: Tries, deadline: Deadline
    ) -> float | None:
        """Seconds to wait before the next try; None if there is to be none (RETRY-10)."""
        assert attempt.permits is not None
        if not _may_repeat(error, attempt):
            return None
        session = attempt.session
        is_expired = isinstance(_cause(error, attempt), SessionExpiredError)
        if attempt.permits.has_probe and _is_failure(error) and not is_expired:
            return None  # a probe asks once
        if not tries.is_repaired and session is not None and not session.is_usable:
            tries.is_repaired = True  # the session is made anew: that is no retry of the server
            return 0.0
        if tries.number >= self.policy.max_attempts:
            return None
        delay = self.policy.delay(tries.number, self.draw(), error.retry_after)
        if delay >= deadline.remaining() or not self.budget.take():
            return None
        tries.number += 1
        return delay


@define(eq=False, repr=False)
class Tries:
    """How often a call was tried.

    Attributes:
        number: of tries, the present one included.
        is_repaired: whether the call was repeated once because its session was lost.
    """

    number: int = 1
    is_repaired: bool = False


def _is_failure(error: MCPError) -> bool:
    """Return whether an error says that the server, or the way to it, is not well."""
    return error.code in _FAILURES and not _is_an_applications(error)


def _cause(error: MCPError, attempt: Attempt) -> MCPError:
    """Return the error of the session, if that has ended, else the call's own."""
    session = attempt.session
    return error if session is None or session.error is None else session.error


def _may_repeat(error: MCPError, attempt: Attempt) -> bool:
    """Return whether the same may be asked again (RETRY-10)."""
    return error.retryable and (attempt.is_idempotent or not _may_have_run(error, attempt))


def _may_have_run(error: MCPError, attempt: Attempt) -> bool:
    """Return whether this try may have been carried out, in part at least (CLIENT-21).

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
    """Return whether what the server runs has failed, and not the server.

    A handler of a foundation-rt server says so itself (FEAT-02); and numbers outside the range that
    JSON-RPC reserves are an application's own.
    """
    data: Any = error.data
    if isinstance(data, dict) and "runId" in data:
        return True
    return error.original_code is not None and not -32768 <= error.original_code <= -32000
