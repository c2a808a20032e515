"""An asyncio loop whose time is a `ManualClock`: nothing waits, and nothing depends on how fast.

When nothing is ready, a real loop waits for its next timer; this one moves the clock there. So a
test of deadlines runs at once, and gives the same answer on any machine. Where the loop has
nothing to wait for but another thread, it really waits, with a bound.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from foundation_rt.base.clock import ManualClock

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds after which something that should have happened counts as hanging."""


class LoopHanging(BaseException):
    """The loop waits for something that does not come; no handler of `Exception` hides it."""


class _Selector(selectors.DefaultSelector):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout is not None else PATIENCE)
        if timeout is None and not ready:
            raise LoopHanging
        if timeout and not ready:
            # Up to the next microsecond: the clock knows nothing finer.
            self._clock.advance(math.ceil(timeout * 1_000_000) / 1_000_000)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs in the time of `clock`."""

    def __init__(self, clock: ManualClock) -> None:
        self._virtual_clock = clock
        super().__init__(_Selector(clock))
        self._clock_resolution = 1e-9  # Windows' own, 16 ms, would let timers be early

    def time(self) -> float:
        return self._virtual_clock.monotonic()

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the threads: the bound of Python 3.12 is over at once in virtual time."""
        await super().shutdown_default_executor()

    def turn(self, times: int = 1) -> None:
        """Run what is ready now, and what that makes ready, `times` turns deep; wait for nothing.

        For tests that hold the loop in their own hands.
        """
        for _ in range(times):
            self.call_soon(self.stop)
            self.run_forever()


def run_bounded(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `main()` in real time; a test that hangs fails after `PATIENCE` seconds."""

    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE):
            return await main()

    return asyncio.run(bounded())


def run_virtual(main: Callable[[ManualClock], Coroutine[Any, Any, T]]) -> T:
    """Run `main(clock)` as `asyncio.run` would, in the time of `clock`."""
    clock = ManualClock()
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        return runner.run(main(clock))
