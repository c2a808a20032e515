"""What the tables look like: a title with its columns, and rows below it."""

from __future__ import annotations

import sys
from statistics import quantiles


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def head(title: str, unit: str) -> None:
    """Begin a table of latencies."""
    columns = "".join(f"{f'{name} {unit}':>12}" for name in ("p50", "p95", "p99"))
    say(f"\n{title:32}{columns}{'ratio':>12}")


def row(name: str, seconds: list[float], scale: float, ratio: float | None) -> float:
    """Print one row of latencies; return its p95 in seconds."""
    cuts = percentiles(seconds)
    figures = "".join(f"{cuts[at] * scale:12.1f}" for at in (50, 95, 99))
    say(f"  {name:30}{figures}{'' if ratio is None else f'{ratio:.2f}':>12}")
    return cuts[95]


def percentiles(seconds: list[float]) -> list[float]:
    """Of at least one value; the n-th percentile is at n, from 1 to 99."""
    if len(seconds) == 1:
        return seconds * 100
    return [min(seconds), *quantiles(seconds, n=100, method="inclusive")]
