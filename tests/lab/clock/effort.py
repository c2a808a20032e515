"""What a call costs, in steps of a loop that is timed beside it: a slow machine slows both."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time

_LOOP = 100_000
"""The steps of the loop: some 5 ms."""

_ATTEMPTS = 9


def steps_of(work: Callable[[], object], most: float) -> float:
    """Return for how many steps of a loop of this thread a call lasts.

    What disturbs one attempt passes: another one follows until one lasts for `most` steps or less.
    """
    least = float("inf")
    for _ in range(_ATTEMPTS):
        before = _seconds(_loop)
        seconds = _seconds(work)
        least = min(least, _LOOP * seconds / min(before, _seconds(_loop)))
        if least <= most:
            break
    return least


def _seconds(work: Callable[[], object]) -> float:
    """Return the time of the processor that a call takes in this thread."""
    before = thread_time()
    work()
    return thread_time() - before


def _loop() -> None:
    total = 0
    for step in range(_LOOP):
        total += step
