"""Timers: a queue of them without a clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Protocol

Callback = Callable[[], object]


class Timer(Protocol):
    """A callback that will run later, unless it is cancelled first."""

    def cancel(self) -> None:
        """Cancel the timer; does nothing if it has run."""


class QueuedTimer:
    """A timer in a `TimerQueue`."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        """Cancel the timer; safe from any thread."""
        self.callback = None


class TimerQueue:
    """Timers in the order of their time; plain data without a clock.

    Cancelling only marks a timer. Marked timers are removed when the heap has doubled since the
    last removal. So thousands of calls a second, each with a distant deadline that is cancelled at
    once, cost amortized constant time and bounded memory.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, QueuedTimer]] = []
        self._sequence = 0
        self._sweep_at = 64

    def add(self, due: float, callback: Callback) -> QueuedTimer:
        """Add a timer whose `callback` is due at the time `due`."""
        timer = QueuedTimer(callback)
        if len(self._heap) >= self._sweep_at:
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapq.heapify(self._heap)
            self._sweep_at = max(64, 2 * len(self._heap))
        self._sequence += 1
        heapq.heappush(self._heap, (due, self._sequence, timer))
        return timer

    def next_due(self) -> float | None:
        """Return when the next timer is due; None if there is none."""
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> Iterator[Callback]:
        """Remove and yield the callbacks that are due at `now`, in order."""
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                yield callback
