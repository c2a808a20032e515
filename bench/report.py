"""What the tables look like, and what has moved since a baseline was saved.

Every ratio and every count of instructions is noted as it is printed, by the title of its table
and its name there. `baseline.toml` has those that were saved.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import quantiles

import orjson
import tomli

BASELINE = Path(__file__).with_name("baseline.toml")
_HEAD = (
    "# Ratios to the floor of the same run, and thousands or millions of instructions, as\n"
    "# `python -m bench --save` has found them: what a run prints is compared with them.\n"
)
_MOVED = 0.15
_MOVED_INSTRUCTIONS = 0.03

Figures = dict[str, dict[str, float]]
"""By the title of the table, and the name there."""

_found: Figures = {}
_titles = [""]


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def head(title: str, unit: str) -> None:
    """Begin a table of latencies."""
    _titles[:] = [title]
    columns = "".join(f"{f'{name} {unit}':>12}" for name in ("p50", "p95", "p99"))
    say(f"\n{title:32}{columns}{'ratio':>12}")


def row(name: str, seconds: list[float], scale: float, ratio: float | None) -> float:
    """Print one row of latencies, and note its ratio; return its p95 in seconds."""
    cuts = percentiles(seconds)
    figures = "".join(f"{cuts[at] * scale:12.1f}" for at in (50, 95, 99))
    say(f"  {name:30}{figures}{'' if ratio is None else f'{ratio:.2f}':>12}")
    if ratio is not None:
        note(_titles[0], name, ratio)
    return cuts[95]


def note(title: str, name: str, figure: float) -> None:
    """Keep a figure for the comparison: a ratio, or instructions; not the 1.0 of a floor."""
    if figure != 1.0:
        _found.setdefault(title, {})[name] = figure


def say_moved() -> None:
    """Print which of the noted figures differ from the baseline by more than they may."""
    saved: Figures = tomli.loads(BASELINE.read_text())
    say("\nmoved by more than 15 %, instructions by more than 3 %: saved, now")
    for line in moved(saved, _found) or ["  nothing"]:
        say(line)
    names = [(title, name) for title, figures in _found.items() for name in figures]
    if new := sum(name not in saved.get(title, {}) for title, name in names):
        say(f"  {new} figures are not in the baseline: --save writes them")


def moved(saved: Figures, found: Figures) -> list[str]:
    """Return a line for each figure that both have and that differs by too much."""
    lines = []
    for title, figures in found.items():
        allowed = _MOVED_INSTRUCTIONS if title.startswith("instructions") else _MOVED
        for name, now in figures.items():
            was = saved.get(title, {}).get(name)
            if was and abs(now / was - 1) > allowed:
                change = f"{was:10.3f}{now:10.3f}{now / was - 1:+8.0%}"
                lines.append(f"  {f'{title}: {name}':62}{change}")
    return lines


def save() -> None:
    """Write the noted figures into the baseline; figures of sections that did not run stay."""
    saved: Figures = tomli.loads(BASELINE.read_text())
    lines = [_HEAD]
    for title, figures in {**saved, **_found}.items():
        lines.append(f"\n[{_quoted(title)}]\n")
        lines += [f"{_quoted(name)} = {figure:.3f}\n" for name, figure in figures.items()]
    BASELINE.write_text("".join(lines))


def _quoted(key: str) -> str:
    return orjson.dumps(key).decode()


def percentiles(seconds: list[float]) -> list[float]:
    """Of at least one value; the n-th percentile is at n, from 1 to 99."""
    if len(seconds) == 1:
        return seconds * 100
    return [min(seconds), *quantiles(seconds, n=100, method="inclusive")]
