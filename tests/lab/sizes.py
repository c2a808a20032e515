"""How much the tests try: little for a developer, more for continuous integration, or for hours.

`FOUNDATION_RT_TEST_SIZE=full` is what continuous integration runs: four times as many examples of
hypothesis. `long` has ten times the usual examples, every combination of cases that do not depend
on each other, of which the others have each case once, and whatever runs for long: kills, histories
of the simulation, pairs of the fuzzer. Every test runs in each size.
`FOUNDATION_RT_TEST_EXPLORE=1` makes hypothesis try other examples in every run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

SIZE = os.environ.get("FOUNDATION_RT_TEST_SIZE", "small")
LONG = SIZE == "long"
FULL = LONG or SIZE == "full"
EXPLORES = os.environ.get("FOUNDATION_RT_TEST_EXPLORE", "0") == "1"
SMALLEST = 20 if FULL else 10
"""Fewest examples of a property, if as many are usual."""


def size(short: int, long: int) -> int:
    """Return how long a test goes on."""
    return long if LONG else short


def cases(some: Sequence[T], every: Sequence[T]) -> Sequence[T]:
    """Return the cases of a test."""
    return every if LONG else some


def examples(usual: int) -> int:
    """Return how many examples a property is tried with, of what is usual for such properties.

    Continuous integration tries four tenths, a developer one: they are the same in every run.
    """
    if LONG:
        return 10 * usual
    return min(usual, max(SMALLEST, (4 if FULL else 1) * usual // 10))
