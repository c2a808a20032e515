"""How long a caller waits, whatever it waits for (CLIENT-20).

A deadline is for the server and the way to it. While a person answers what the server asks, it
stands still; but not for longer in all than its allowance, so that a server cannot hold a caller
for ever by asking.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from attrs import define, field


@define(eq=False, repr=False)
class Deadline:
    """Cancels what runs inside it when its time is over; raises `TimeoutError` then.

    It may be entered again after it was left: the time is one for all. It may be held by whoever
    outlives what runs inside it, as a handler does that still asks when the server has answered.

    Args:
        when: the time of the event loop at which it is over; None never is.
        allowance: how long it may stand still in all, in seconds.
    """

    when: float | None
    allowance: float = 0.0
    _timeout: asyncio.Timeout | None = field(default=None, init=False)
    _holds: int = field(default=0, init=False)
    _held_since: float = field(default=0.0, init=False)

    def hold(self) -> None:
        """Let it stand still until `resume`; may be nested."""
        self._holds += 1
        if self._holds == 1 and self.when is not None:
            self._held_since = asyncio.get_running_loop().time()
            self._move()

    def resume(self) -> None:
        """Let it go on, if nobody else holds it."""
        self._holds -= 1
        if self._holds == 0 and self.when is not None:
            held = min(asyncio.get_running_loop().time() - self._held_since, self.allowance)
            self.allowance -= held
            self.when += held
            self._move()

    def remaining(self) -> float | None:
        """Seconds that are left; None if it never ends."""
        return None if self.when is None else self.when - asyncio.get_running_loop().time()

    async def __aenter__(self) -> Deadline:
        timeout = asyncio.timeout_at(self._end())
        await timeout.__aenter__()
        self._timeout = timeout
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._timeout is not None
        timeout, self._timeout = self._timeout, None
        await timeout.__aexit__(kind, error, traceback)

    def _end(self) -> float | None:
        """When it is over, as things stand."""
        if self.when is None or self._holds == 0:
            return self.when
        return self.when + self.allowance

    def _move(self) -> None:
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(self._end())
