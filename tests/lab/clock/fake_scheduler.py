"""A `Scheduler` without real time, and a worker pool without threads.

Timers fire when the test advances the clock; coroutines are real asyncio tasks that run when the
test says so; a `def` handler is held until the test lets it run, in the test's own thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from foundation_rt.base.clock import ManualClock
from tests.lab.clock.virtual_loop import VirtualLoop

_TURNS = 6  # deeper than any chain of callbacks that a handler, its end and its reply make


class FakeTimer:
    """A timer that can be cancelled."""

    def __init__(self, due: float, callback: Callable[[], object]) -> None:
        self.due = due
        self._callback: Callable[[], object] | None = callback

    @property
    def live(self) -> bool:
        return self._callback is not None

    def cancel(self) -> None:
        self._callback = None

    def fire(self) -> None:
        callback, self._callback = self._callback, None
        assert callback is not None
        callback()


class FakeScheduler:
    """The scheduler of an engine, controlled by a test.

    Attributes:
        timers: those that may still fire.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.loop = VirtualLoop(clock)
        self._timers: list[FakeTimer] = []

    @property
    def timers(self) -> list[FakeTimer]:
        return [timer for timer in self._timers if timer.live]

    # -- foundation_rt.kernel.engine.scheduling.Scheduler ----

    def call_later(self, seconds: float, callback: Callable[[], object]) -> FakeTimer:
        timer = FakeTimer(self.clock.monotonic() + seconds, callback)
        self._timers.append(timer)
        return timer

    def run_later(self, seconds: float, callback: Callable[[], object]) -> None:
        self.call_later(seconds, callback)

    def start_task(
        self,
        coroutine: Coroutine[Any, Any, None],
        started: Callable[[asyncio.Task[None]], object],
    ) -> None:
        started(self.loop.create_task(coroutine))

    def can_step(self) -> bool:
        return False

    def is_here(self) -> bool:
        return True

    def call_in_loop(self, callback: Callable[[], object]) -> None:
        self.loop.call_soon(callback)

    def return_to_host(self, callback: Callable[[], object]) -> None:
        callback()

    # -- for the test --------------------------------------------------------------------------

    def settle(self) -> None:
        """Let every coroutine run until it waits."""
        self.loop.turn(_TURNS)

    def advance(self, seconds: float) -> None:
        """Advance the clock; each timer fires at its own time, and what it starts runs then."""
        until = self.clock.monotonic() + seconds
        while True:
            due = min(self.timers, key=lambda timer: timer.due, default=None)
            if due is None or due.due > until + 1e-9:
                break
            self._move_to(due.due)
            due.fire()
            self.settle()
        self._move_to(until)
        self._timers = self.timers
        self.settle()

    def _move_to(self, instant: float) -> None:
        self.clock.advance(max(0.0, instant - self.clock.monotonic()))

    def close(self) -> None:
        """Close the loop, and drop the coroutines that still run on it."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.settle()
        self.loop.close()


class HeldWorkers:
    """Takes the place of the worker pool: functions wait until the test runs them."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], None]] = deque()

    def submit(self, function: Callable[[], None]) -> None:
        self.waiting.append(function)

    def run(self, index: int = 0) -> None:
        """Run the waiting function at `index`, in the order of submission."""
        function = self.waiting[index]
        del self.waiting[index]
        function()
