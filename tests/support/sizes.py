"""How much the tests try: little for a developer, more for continuous integration, or for hours.

`FOUNDATION_RT_TEST_SIZE=full` is what continuous integration runs: many examples of hypothesis, and
every combination of cases that do not depend on each other, of which the small size has each case
once. `long` has ten times as many examples, and whatever runs for long: kills, histories of the
simulation, pairs of the fuzzer. Every test runs in each size. `FOUNDATION_RT_TEST_EXPLORE=1` makes
hypothesis try other examples in every run.
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
SMALLEST = 20
"""Fewest examples of a property; what is larger is cut to a fifth in the small size."""


def size(short: int, long: int) -> int:
    """Return how long a test goes on."""
    return long if LONG else short


def cases(some: Sequence[T], every: Sequence[T]) -> Sequence[T]:
    """Return the cases of a test."""
    return every if FULL else some


def examples(full: int) -> int:
    """Return how many examples a property is tried with; continuous integration tries `full`."""
    if LONG:
        return 10 * full
    return full if FULL else min(full, max(SMALLEST, full // 5))
