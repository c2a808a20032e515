"""How much the random tests try: few cases for a developer, many for continuous integration.

`FOUNDATION_RT_TEST_SIZE=full` makes everything large: examples of hypothesis, histories of the
simulation, pairs of the fuzzer. Every test runs in both sizes; where it combines things that do not
depend on each other, the small size has each of them once. `FOUNDATION_RT_TEST_EXPLORE=1` makes
hypothesis try other examples in every run.
"""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

FULL = os.environ.get("FOUNDATION_RT_TEST_SIZE", "small") == "full"
EXPLORES = os.environ.get("FOUNDATION_RT_TEST_EXPLORE", "0") == "1"
SMALLEST = 20
"""Fewest examples of a property; what is larger is cut to a fifth, unless all is large."""


def size(small: T, full: T) -> T:
    """Return one of two sizes of a test, or one of two lists of its cases."""
    return full if FULL else small


def examples(full: int) -> int:
    """Return how many examples a property is tried with, which may be as many as `full`."""
    return full if FULL else min(full, max(SMALLEST, full // 5))
