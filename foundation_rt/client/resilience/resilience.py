"""The deadline, the circuit breakers and the retries of every call (spec/client-failing.md).

Each try is one `Attempt`, whose error says whether it may be repeated: it did not run, or it may
run twice.

A server has one circuit breaker, and on request one more for each tool. A call may need several
attempts, pages and rounds, and is one call to a breaker (BREAK-10). It takes one permit of every
breaker before it sends anything: a call that sends nothing succeeds while the circuit is open. A
call that waits for a free slot of the client holds no permit meanwhile (BREAK-13).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from functools import partial
from typing import Final, TypeVar
from weakref import WeakSet

from attrs import define, field

from ..callbacks import call_callback
from ..errors import CallTimeoutError, CircuitOpenError, MCPError, SessionExpiredError
from .circuit_breaker import BreakerSettings, CircuitBreaker, CircuitState, Permit
from .deadline import Deadline, DeadlineTimer
from .retries import (
    Attempt,
    Retries,
    Tries,
    attempt_may_have_run,
    cause_of,
    is_failure,
)

log = logging.getLogger("foundation_rt.client")

MAX_TOOL_BREAKERS: Final = 10_000
"""Most tools of one client that have a breaker (BREAK-23)."""

Verdict = Callable[[CircuitBreaker, Permit, float], object]
"""Reports the end of a call to one breaker: succeeded, failed or abandoned."""

_SAYS_NOTHING = {"E207", "E208"}
"""Codes that a proxy may send: they say nothing about the server."""


@define(eq=False, repr=False)
class Permits:
    """The permits of one call, one of each breaker: of all or of none.

    Args:
        breakers: that of the server first, then that of the tool if it has one.
        refuse: makes the error for a breaker that refuses; takes it, and the seconds until it may
            admit a call.
    """

    breakers: Sequence[CircuitBreaker]
    refuse: Callable[[CircuitBreaker, float], CircuitOpenError]
    _held: list[Permit] = field(factory=list, init=False)

    @property
    def are_held(self) -> bool:
        """Return whether the call was about to send something, and is not settled."""
        return bool(self._held)

    @property
    def has_probe(self) -> bool:
        """Return whether the call is the probe of a half-open circuit."""
        return any(map(CircuitBreaker.is_probe, self.breakers, self._held))

    def take(self) -> None:
        """Take one permit of every breaker; does nothing if they are held.

        Raises:
            CircuitOpenError: a breaker refuses; nothing is held then (BREAK-02, BREAK-03).
        """
        if self._held:
            return
        now = asyncio.get_running_loop().time()
        for breaker in self.breakers:
            permit = breaker.admit(now)
            if permit is None:
                self.release()
                raise self.refuse(breaker, breaker.retry_after(now))
            self._held.append(permit)

    def renew(self) -> None:
        """Release the permits if a state has changed since: the next attempt takes new ones."""
        now = asyncio.get_running_loop().time()
        for breaker, permit in zip(self.breakers, self._held, strict=False):
            if not breaker.is_current(permit, now):
                self.release()
                return

    def settle(self, of_server: Verdict, of_tool: Verdict | None = None) -> None:
        """Report the end of the call to each breaker; by default the same to both."""
        if self._held:
            now = asyncio.get_running_loop().time()
            held, self._held = self._held, []
            verdicts = (of_server, of_tool or of_server)
            for breaker, permit, verdict in zip(self.breakers, held, verdicts, strict=False):
                verdict(breaker, permit, now)

    def settle_error(
        self, error: MCPError, counts: Callable[[], bool], is_the_tools: bool, was_sent: bool = True
    ) -> None:
        """Report a call that ended in `error` (BREAK-10, BREAK-16, BREAK-17).

        Args:
            error: of its last attempt.
            counts: returns whether a failure is one that was not counted yet.
            is_the_tools: whether the server has responded, so that a failure is that of the tool.
            was_sent: whether anything was.
        """
        if not is_failure(error):
            is_response = was_sent and error.code not in _SAYS_NOTHING
            self.settle(CircuitBreaker.succeeded if is_response else CircuitBreaker.abandoned)
        elif self._held and counts():
            of_server = CircuitBreaker.succeeded if is_the_tools else CircuitBreaker.failed
            self.settle(of_server, CircuitBreaker.failed)
        else:
            self.release()

    def release(self) -> None:
        """Release what is held: the call says nothing about the server."""
        self.settle(CircuitBreaker.abandoned)


def _refusal(what: str, breaker: CircuitBreaker, after: float) -> CircuitOpenError:
    return CircuitOpenError(
        f"{what} was not sent: the server has failed {breaker.failures} times "
        f"and is left alone for another {after:.0f} s",
        retry_after=after,
    )


@define(eq=False, repr=False)
class Breakers:
    """The circuit breakers of one server; logs their changes.

    Args:
        has_tools: whether every tool has a breaker, too.
        on_circuit: gets each change: the tool, None for the server; the new state.

    Attributes:
        server: the breaker of every call.
    """

    settings: BreakerSettings
    has_tools: bool
    on_circuit: Callable[[str | None, CircuitState], object] | None = None
    server: CircuitBreaker = field(init=False)
    _tools: dict[str, CircuitBreaker] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.server = CircuitBreaker(self.settings, partial(self._changed, None))

    def of_tool(self, tool: str) -> tuple[CircuitBreaker, ...]:
        """Return the breakers for a call of this tool."""
        if not self.has_tools:
            return (self.server,)
        breaker = self._tools.get(tool)
        if breaker is None:
            if len(self._tools) >= MAX_TOOL_BREAKERS:
                self._make_room()
            breaker = CircuitBreaker(self.settings, partial(self._changed, tool))
            self._tools[tool] = breaker
        return (self.server, breaker)

    def _make_room(self) -> None:
        """Drop the breakers without failures; if all have some, the oldest."""
        now = asyncio.get_running_loop().time()
        for breaker in self._tools.values():
            breaker.state(now)
        failing = {tool: each for tool, each in self._tools.items() if each.failures}
        if len(failing) >= MAX_TOOL_BREAKERS:
            del failing[next(iter(failing))]
        self._tools = failing

    def forget(self, tool: str) -> None:
        """Drop the breaker of a tool that does not exist, so that invented names do not pile up."""
        self._tools.pop(tool, None)

    def tool_state(self, tool: str, now: float) -> CircuitState:
        """Return the state of a tool's breaker; CLOSED if it has none."""
        breaker = self._tools.get(tool)
        return CircuitState.CLOSED if breaker is None else breaker.state(now)

    def _changed(self, tool: str | None, before: CircuitState, after: CircuitState) -> None:
        _log(tool, before, after)
        if self.on_circuit is not None:
            call_callback(self.on_circuit, tool, after)


def _log(tool: str | None, before: CircuitState, after: CircuitState) -> None:
    fields = {"tool": tool, "before": before.value, "after": after.value}
    of = "the server" if tool is None else f"the tool {tool!r}"
    log.warning("the circuit of %s is %s", of, after.value, extra={"fields": fields})


Result = TypeVar("Result")


@define(eq=False, repr=False)
class Resilience:
    """Performs operations with a deadline, circuit breakers and retries.

    Args:
        allowance: seconds that a deadline may be paused in all.
        not_ready: makes the error for a request that could not be sent in time; takes the request
            and the timeout in s.
        watch: of the deadlines; closed with the client.
    """

    retries: Retries
    allowance: float
    not_ready: Callable[[str, float], CallTimeoutError]
    watch: DeadlineTimer = field(factory=DeadlineTimer)
    _counted: WeakSet[MCPError] = field(factory=WeakSet, init=False)

    async def perform(
        self,
        what: str,
        operation: Callable[[Attempt], Awaitable[Result]],
        make_attempt: Callable[[], Attempt],
        breakers: Sequence[CircuitBreaker],
        timeout: float,
        max_timeout: float | None = None,
    ) -> Result:
        """Try `operation` until it has a result, or a retry is of no use (RETRY-10).

        Args:
            what: the operation, for messages.
            operation: performs one attempt.
            make_attempt: makes the `Attempt` for each try.
            breakers: that of the server, and that of the tool if it has one.
            timeout: seconds for all of it; 0 or less, or NaN, is over before it begins.
            max_timeout: if progress begins the `timeout` again: seconds for all of it (CLIENT-57).

        Raises:
            MCPError: the last one; its `may_have_run` covers all attempts.
        """
        if not timeout > 0 or (max_timeout is not None and not max_timeout > 0):
            raise CallTimeoutError(f"{what} was given no time", may_have_run=False)
        now = asyncio.get_running_loop().time()
        if max_timeout is None:
            deadline = Deadline(now + timeout, self.allowance, self.watch)
        else:
            limit = now + max_timeout
            end = min(now + timeout, limit)
            deadline = Deadline(end, self.allowance, self.watch, timeout, limit)
        permits = Permits(breakers, partial(_refusal, what))
        reported: MCPError | None = None
        tries = Tries()
        try:
            while True:
                attempt = make_attempt()
                attempt.permits, attempt.deadline = permits, deadline
                try:
                    result = await self._try_once(what, operation, attempt, deadline, timeout)
                except CircuitOpenError as refusal:
                    error = reported or refusal
                    may_have_run = error.may_have_run or attempt_may_have_run(refusal, attempt)
                    raise _with_may_have_run(error, may_have_run) from None
                except MCPError as error:
                    reported = _with_may_have_run(
                        error, attempt_may_have_run(error, attempt) or _has_run(reported)
                    )
                    delay = self.retries.delay(error, attempt, tries, deadline.remaining())
                    if delay is None:
                        self._settle(permits, error, attempt)
                        raise reported from error.__cause__
                else:
                    self._succeeded(permits)
                    return result
                if delay:
                    await asyncio.sleep(delay)
                permits.renew()
        finally:
            permits.release()  # also if the caller was cancelled

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
            raise self._timeout_error(what, attempt, timeout) from None

    def _timeout_error(self, what: str, attempt: Attempt, timeout: float) -> CallTimeoutError:
        if not attempt.was_sent:
            return self.not_ready(what, timeout)
        message = f"the server did not answer {what} within {timeout:g} s"
        assert attempt.deadline is not None
        if attempt.deadline.span is not None:
            message += " of its last progress, or in the time for the whole call"
        return CallTimeoutError(message, may_have_run=True)

    def _succeeded(self, permits: Permits) -> None:
        """Count a success, if anything was sent (BREAK-10)."""
        if permits.are_held:
            permits.settle(CircuitBreaker.succeeded)
            self.retries.succeeded()

    def _settle(self, permits: Permits, error: MCPError, attempt: Attempt) -> None:
        """Report a call that ended in `error` to the breakers (BREAK-10)."""
        counts = partial(self._counts, cause_of(error, attempt))
        is_the_tools = len(permits.breakers) > 1 and attempt.was_answered
        permits.settle_error(error, counts, is_the_tools, attempt.was_sent)

    def _counts(self, cause: MCPError) -> bool:
        """Return whether a failure is one more, however many calls wait for the connection."""
        if isinstance(cause, SessionExpiredError) or cause in self._counted:
            return False
        self._counted.add(cause)
        return True


def _has_run(reported: MCPError | None) -> bool:
    return reported is not None and reported.may_have_run


def _with_may_have_run(error: MCPError, may_have_run: bool) -> MCPError:
    """Return the error with this `may_have_run`; a copy, since others may hold it."""
    if error.may_have_run == may_have_run:
        return error
    reported = copy(error)
    reported.may_have_run = may_have_run
    return reported
