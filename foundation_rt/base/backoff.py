"""The one exponential backoff, public. Pure: the caller adds chance, and waits."""

from __future__ import annotations

import sys


def exponential_delay(attempt: int, base: float, maximum: float, multiplier: float = 2.0) -> float:
    """Return the delay after `attempt` attempts, in the unit of `base`.

    Args:
        attempt: from 1 on; the delay after the first one is `base`.
        base: at least 0.
        maximum: the longest delay; in the unit of `base`.
        multiplier: the factor by which the delay grows with each attempt, at least 1.
    """
    try:
        factor = float(multiplier) ** (attempt - 1)
    except OverflowError:
        factor = sys.float_info.max
    return min(base * factor, maximum)
