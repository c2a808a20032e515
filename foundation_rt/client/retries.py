"""How often a failed request may be sent again, and after how long. Pure.

Waits are drawn from the whole range up to a bound that doubles (full jitter), so that clients that
failed together do not come back together (RETRY-01). All calls of a client share one budget, which
successes fill and retries empty, so that a server in trouble gets a tenth more requests at most,
not three times as many (RETRY-02). Whether a request may be repeated at all is decided elsewhere.
"""

from __future__ import annotations

import math

from attrs import define, field, frozen

_TOKENS_BACK = 10  # successes that give back what one retry costs
# Beyond this many doublings every bound has been reached; a power of 2 must not grow for ever.
_MAX_DOUBLINGS = 62


@frozen(eq=False)
class RetryPolicy:
    """How often, and how soon.

    Attributes:
        max_attempts: of one call, the first included; 1: nothing is sent again.
        base_ms: bound of the wait before the second attempt, in ms; it doubles with each.
        max_ms: the longest wait, in ms.
        budget: how many retries may be ahead of what successes give back; each gives a tenth.

    Raises:
        ValueError: `max_attempts` is less than 1, or one of the others is negative or no number.
    """

    max_attempts: int = 3
    base_ms: int = 100
    max_ms: int = 5_000
    budget: float = 10.0

    def __attrs_post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError("max_attempts must be at least 1")
        if min(self.base_ms, self.max_ms) < 0:
            raise ValueError("base_ms and max_ms must not be negative")
        if not (math.isfinite(self.budget) and self.budget >= 0):
            raise ValueError("budget must be a number that is not negative")

    def delay(self, attempt: int, draw: float, retry_after: float | None = None) -> float:
        """How long to wait after `attempt` attempts, in s (RETRY-01).

        Args:
            attempt: from 1 on.
            draw: random, from 0 to 1.
            retry_after: what the server asked for, in s: the least, up to `max_ms`.
        """
        doublings = min(attempt - 1, _MAX_DOUBLINGS)
        longest = self.max_ms / 1000
        drawn: float = min(self.base_ms * 2**doublings / 1000, longest) * draw
        # In this order: what a server sends may be no number (NaN), which no comparison picks.
        return drawn if retry_after is None else min(max(drawn, retry_after), longest)


@define(eq=False, repr=False)
class RetryBudget:
    """How many retries all calls of a client have left (RETRY-02).

    Counted in tenths, as integers: ten times 0.1 is less than 1.
    """

    _policy: RetryPolicy
    _tenths: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._tenths = self._full

    def take(self) -> bool:
        """Whether there is one retry left; it is taken."""
        if self._tenths < _TOKENS_BACK:
            return False
        self._tenths -= _TOKENS_BACK
        return True

    def succeeded(self) -> None:
        """A call succeeded."""
        self._tenths = min(self._tenths + 1, self._full)

    @property
    def _full(self) -> int:
        return int(self._policy.budget * _TOKENS_BACK)
