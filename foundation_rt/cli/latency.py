"""Percentiles of a handful of measured times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_PERCENTILES = {"p50": 50, "p95": 95, "p99": 99}


def percentiles(times: Sequence[float]) -> Mapping[str, float]:
    """The least, p50, p95, p99 and the greatest, by nearest rank; nothing of nothing.

    A percentile is one of the measured times: interpolating would show one that never was.
    """
    if not times:
        return {}
    ordered = sorted(times)
    ranks = {
        # The rank is the share, rounded up; in whole numbers, because 0.95 is none.
        name: ordered[-(-percent * len(ordered) // 100) - 1]
        for name, percent in _PERCENTILES.items()
    }
    return {"min": ordered[0], **ranks, "max": ordered[-1]}
