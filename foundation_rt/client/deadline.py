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

    It may be entered again after it was left: the time is one for all.

    Args:
        when: the time of the event loop at which it is over; None never is.
        allowance: how long it may stand still in all, in seconds.
    """

    when: float | None
    allowance: float = 0.0
    _timeout: asyncio.Timeout = field(init=False)
    _holds: int = field(default=0, init=False)
    _held_since: float = field(default=0.0, init=False)

    def hold(self) -> None:
        """Let it stand still until `resume`; may be nested."""
        self._holds += 1
        if self._holds == 1 and self.when is not None and not self._timeout.expired():
            self._held_since = asyncio.get_running_loop().time()
            self._timeout.reschedule(self.when + self.allowance)

    def resume(self) -> None:
        """Let it go on, if nobody else holds it."""
        self._holds -= 1
        if self._holds == 0 and self.when is not None and not self._timeout.expired():
            held = min(asyncio.get_running_loop().time() - self._held_since, self.allowance)
            self.allowance -= held
            self.when += held
            self._timeout.reschedule(self.when)

    def remaining(self) -> float | None:
        """Seconds that are left; None if it never ends."""
        return None if self.when is None else self.when - asyncio.get_running_loop().time()

    async def __aenter__(self) -> Deadline:
        self._timeout = asyncio.timeout_at(self.when)
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._timeout.__aexit__(kind, error, traceback)
