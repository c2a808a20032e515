"""One attempt of an operation; the number of retries and the time between them. Pure.

The backoff is random up to a bound that doubles (full jitter), so that clients that failed together
do not retry together (RETRY-01). All calls of a client share one budget, which successes fill and
retries empty: a server in trouble gets at most a tenth more requests, not three times as many
(RETRY-02). `Retries` decides whether a request may be repeated, and when (RETRY-10).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from ...base.backoff import exponential_delay
from ...base.shown import Shown
from ..errors import MCPError, SessionExpiredError
from .settings import at_least, true_or_false

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ..callbacks import LogCallback, ProgressCallback
    from ..handlers.server_requests import ServerRequestHandlers
    from ..session.pending_requests import NotificationReceived
    from ..session.session import ClientSession
    from .deadline import Deadline
    from .resilience import Permits

_FAILURES = {"E201", "E202", "E209"}
"""Codes that count as a failure of the server (BREAK-10)."""

_COST = 10  # of a retry, in tenths; a success gives back one


@frozen(eq=False, repr=False)
class RetryPolicy(Shown):
    """The number of attempts, and the backoff between them.

    Attributes:
        max_attempts: of one call, the first included; 1: nothing is tried again after a wait. A
            call whose session was lost or has expired is repeated once more, at once, in the next
            one: that is no attempt (RETRY-10).
        base_delay_ms: bound of the wait before the second attempt, in ms; it doubles with each.
        max_delay_ms: the longest wait, in ms.
        budget: retries in advance; each success gives back a tenth.
        repeats_lost: whether a call whose session was lost or has expired is repeated (RETRY-14);
            false where another layer repeats.

    Raises:
        ConfigError: `max_attempts` is less than 1, one of the others is negative or not finite, or
            one but `budget` is no whole number.
    """

    max_attempts: int = field(default=3, validator=at_least(1))
    base_delay_ms: int = field(default=100, validator=at_least(0))
    max_delay_ms: int = field(default=5_000, validator=at_least(0))
    budget: float = field(default=10.0, validator=at_least(0, whole=False))
    repeats_lost: bool = field(default=True, validator=true_or_false)

    def delay(self, attempt: int, draw: float, retry_after: float | None = None) -> float:
        """Return the time to wait after `attempt` attempts, in s (RETRY-01).

        Args:
            attempt: from 1 on.
            draw: random, from 0 to 1.
            retry_after: time that the server asked for, in s: the minimum, up to `max_delay_ms`.
        """
        longest = self.max_delay_ms / 1000
        grown_ms = exponential_delay(attempt, self.base_delay_ms, self.max_delay_ms)
        drawn = grown_ms / 1000 * draw
        # In this order: what a server sends may be no number (NaN), which no comparison picks.
        return drawn if retry_after is None else min(max(drawn, retry_after), longest)


@define(eq=False, repr=False)
class RetryBudget:
    """The retries that all calls of a client have left (RETRY-02).

    Counted in tenths, as integers: ten times 0.1 is less than 1.
    """

    _policy: RetryPolicy
    _tenths: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._tenths = self._full

    def take(self) -> bool:
        """Take one retry; return whether there was one."""
        if self._tenths < _COST:
            return False
        self._tenths -= _COST
        return True

    def succeeded(self) -> None:
        """Count a successful call."""
        self._tenths = min(self._tenths + 1, self._full)

    @property
    def _full(self) -> int:
        return int(self._policy.budget * _COST)


@define(eq=False, repr=False)
class Attempt(Shown):
    """One attempt of an operation: its callbacks, its deadline, its state.

    Attributes:
        is_idempotent: whether it may run twice.
        handlers: answer the requests of the server that belong to it; None: those of the client.
        permits: of the call's circuit breakers; None for a request that is part of another call.
        session: the session it uses; None while it waits for one.
        was_sent: whether a request of it was handed to a transport, and not refused.
        was_answered: whether the server has responded to its last request.
        has_begun: whether the server has started it, and asked for input.
        response_bytes: length of the message with its last response.
    """

    deadline: Deadline | None = None
    on_progress: ProgressCallback | None = None
    on_log: LogCallback | None = None
    on_notification: Callable[[NotificationReceived], object] | None = None
    is_idempotent: bool = False
    permits: Permits | None = None
    handlers: ServerRequestHandlers | None = None
    session: ClientSession | None = field(default=None, init=False)
    was_sent: bool = field(default=False, init=False)
    was_answered: bool = field(default=False, init=False)
    has_begun: bool = field(default=False, init=False)
    response_bytes: int = field(default=0, init=False)
    response: asyncio.Future[dict[str, Any] | MCPError] = field(init=False)

    def admit(self) -> None:
        """Take the permits of the call, before anything is sent for it (BREAK-10).

        Raises:
            CircuitOpenError: a circuit is open.
        """
        if self.permits is not None:
            self.permits.take()

    def withdraw(self) -> None:
        """Release the permits while the client itself delays the call (BREAK-13)."""
        if self.permits is not None:
            self.permits.release()


@define(eq=False, repr=False)
class Retries:
    """Decides whether and when a call is tried again.

    Args:
        draw: gives a random number, at least 0 and less than 1.
    """

    policy: RetryPolicy
    draw: Callable[[], float]
    _budget: RetryBudget = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._budget = RetryBudget(self.policy)

    def succeeded(self) -> None:
        """Count a successful call."""
        self._budget.succeeded()

    def delay(
        self, error: MCPError, attempt: Attempt, tries: Tries, remaining: float
    ) -> float | None:
        """Return the seconds until the next attempt; None for no further one (RETRY-10).

        Args:
            error: of the attempt.
            attempt: the one that has just ended.
            tries: of the call; counts the next attempt.
            remaining: seconds until the call's deadline.
        """
        assert attempt.permits is not None
        if not _may_repeat(error, attempt):
            return None
        session = attempt.session
        is_expired = isinstance(cause_of(error, attempt), SessionExpiredError)
        if attempt.permits.has_probe and is_failure(error) and not is_expired:
            return None  # a probe asks once
        can_repair = self.policy.repeats_lost and not tries.is_repaired
        if can_repair and session is not None and not session.is_usable:
            tries.is_repaired = True  # a new session is no retry of the server
            return 0.0
        if tries.number >= self.policy.max_attempts:
            return None
        delay = self.policy.delay(tries.number, self.draw(), error.retry_after)
        if delay >= remaining or not self._budget.take():
            return None
        tries.number += 1
        return delay


@define(eq=False, repr=False)
class Tries(Shown):
    """The attempts of one call.

    Attributes:
        number: of attempts, the present one included.
        is_repaired: whether the call was repeated once because its session was lost.
    """

    number: int = 1
    is_repaired: bool = False


def is_failure(error: MCPError) -> bool:
    """Return whether an error is a failure of the server, or of the connection to it."""
    return error.code in _FAILURES and not _is_an_applications(error)


def cause_of(error: MCPError, attempt: Attempt) -> MCPError:
    """Return the error of the session if that has ended, else the call's own."""
    session = attempt.session
    return error if session is None or session.error is None else session.error


def _may_repeat(error: MCPError, attempt: Attempt) -> bool:
    """Return whether the request may be repeated (RETRY-10)."""
    return error.retryable and (attempt.is_idempotent or not attempt_may_have_run(error, attempt))


def attempt_may_have_run(error: MCPError, attempt: Attempt) -> bool:
    """Return whether this attempt may have run, at least in part (CLIENT-21).

    A connection or a list of tools that it needed first does not count.
    """
    return attempt.was_sent and (error.may_have_run or attempt.has_begun)


def _is_an_applications(error: MCPError) -> bool:
    """Return whether an application behind the server has failed, and not the server.

    A handler of a foundation-rt server says so itself (FEAT-02); and numbers outside the range that
    JSON-RPC reserves are an application's own.
    """
    data: Any = error.data
    if isinstance(data, dict) and "runId" in data:
        return True
    return error.original_code is not None and not -32768 <= error.original_code <= -32000
