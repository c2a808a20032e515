"""The report as tables, as a page and as a chart, made from its JSON alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from attrs import frozen

from bench.peers.contestants import RUNTIME

Report = dict[str, Any]
Row = dict[str, Any]

_QUIET_LOAD = 2.0
"""The driver and one server keep two cores busy; a higher load is that of others."""


@frozen
class Column:
    """A figure of a row.

    Attributes:
        title: with the unit.
        key: of the row.
        digits: after the point.
        higher_is_better: of two rows the one with more is better.
    """

    title: str
    key: str
    digits: int = 0
    higher_is_better: bool = False

    def shown(self, row: Row) -> str:
        """Return the figure of a row as a text."""
        return f"{row[self.key]:,.{self.digits}f}"


_CALLS = (
    Column("p50 µs", "p50_us"),
    Column("p95 µs", "p95_us"),
    Column("p99 µs", "p99_us"),
    Column("calls/s, 8 in flight", "calls_per_second", higher_is_better=True),
)
_INSTALLED = (Column("packages", "packages"), Column("MB installed", "megabytes", 1))
_STDIO = (
    Column("handshake ms", "handshake_ms"),
    Column("first answer ms", "start_ms"),
    *_CALLS,
    Column("MB at rest", "rest_mb"),
    Column("MB after all calls", "used_mb"),
    *_INSTALLED,
)
_HTTP = (*_CALLS, Column("MB at rest", "rest_mb"), *_INSTALLED)
_WEIGHED = (
    "Each extra alone, in an environment of its own: all packages, the runtime among them, and what"
    " they take on the disk with their bytecode. Of the runtime without an extra the first table"
    " has both."
)


# -- texts -----------------------------------------------------------------------------------------


def conditions(report: Report) -> str:
    """Return the date, the machine and the versions in one sentence."""
    machine = report["machine"]
    node = f", Node {report['node']}" if report["node"] else ""
    shared = ""
    if machine["highest_load"] > _QUIET_LOAD:
        shared = f" Other work shared the machine (load up to {machine['highest_load']})."
    return (
        f"Measured {report['date']} on {machine['cores']} cores of {machine['processor']},"
        f" {machine['system']}, Python {report['python']}{node}.{shared}"
    )


def summary(report: Report) -> str:
    """Return what a reader needs first: few columns of both transports, and the conditions."""
    over_http = {row["name"]: row for row in report["http"]}
    columns = (
        Column("start ms", "start_ms"),
        Column("call µs", "p50_us"),
        Column("calls/s", "calls_per_second", higher_is_better=True),
        Column("MB used", "used_mb"),
        Column("MB installed", "megabytes", 1),
        Column("HTTP calls/s", "http_calls_per_second", higher_is_better=True),
    )
    floors = [row["calls_per_second"] for row in report["http"] if row["is_floor"]]
    rows = []
    for row in report["stdio"]:
        other = over_http.get(row["name"])
        rate = other["calls_per_second"] if other else None
        if row["is_floor"] and floors:
            [rate] = floors
        rows.append({**row, "http_calls_per_second": rate})
    return f"{_table(columns, rows)}\n{_wrapped(conditions(report))}{_gaps(report)}"


def tables(report: Report) -> str:
    """Return every figure: the table of each transport, the gaps and the conditions."""
    parts = [
        "## Over stdio\n",
        _table(_STDIO, report["stdio"]),
        "## Over HTTP\n",
        _table(_HTTP, report["http"]),
    ]
    text = "\n".join(parts) + f"\n{_wrapped(conditions(report))}{_gaps(report)}"
    if not report["extras"]:
        return text
    return f"{text}\n## What each extra installs\n\n{_wrapped(_WEIGHED)}\n{_weights(report)}"


def page(report: Report) -> str:
    """Return the page of the figures, in Markdown."""
    rounds = report["rounds"]
    starts, calls = rounds["starts"], rounds["calls"]
    sequential, each = rounds["sequential"]
    http, seconds = rounds["http"]
    how = (
        "Every server has the same tool, `echo`, and is driven by the same client. They take turns"
        " round by round, and their answers are checked first. Each runs in an environment of its"
        " own, installed as a user would install it. Handshake and first answer: from the start of"
        f" a process, median of {starts}. Latencies: {sequential} rounds of {each} calls, one"
        " after another. Memory: resident, at rest after three calls, and after"
        f" {calls:,} calls. HTTP: one session, {http} rounds of {seconds:g} s with one connection"
        " and with eight; answers in JSON where the server offers them. Every server in Python"
        " that runs under uvicorn has uvloop and httptools. The bare loop and the bare ASGI"
        " application are floors: they check nothing. **Bold** is the best one besides them."
    )
    return (
        "# Figures\n\n<!-- Written by `make bench-peers` and `make tables`. -->\n\n"
        "![Bar charts of the figures below](peers.svg)\n\n"
        f"{_wrapped(how)}\n{tables(report)}{_behind(report)}"
    )


def _table(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    best = {column.key: _best(column, rows) for column in columns}
    lines = [
        " | ".join(("server", *(column.title for column in columns))),
        "|".join(("---", *("---:" for _ in columns))),
    ]
    for row in rows:
        cells = []
        for column in columns:
            if row[column.key] is None:
                cells.append("")
                continue
            shown = column.shown(row)
            is_best = shown == best[column.key] and not row["is_floor"]
            cells.append(f"**{shown}**" if is_best else shown)
        lines.append(" | ".join((_label(row), *cells)))
    return "".join(f"| {line} |\n" if "---" not in line else f"|{line}|\n" for line in lines)


def _weights(report: Report) -> str:
    """Return the table of what each extra installs, in which nothing is best."""
    lines = ["| extra | packages | MB installed |", "|---|---:|---:|"]
    for row in report["extras"]:
        cells = (column.shown(row) for column in _INSTALLED)
        lines.append(" | ".join((f"| `{row['name'].partition('[')[2][:-1]}`", *cells)) + " |")
    return "\n".join(lines) + "\n"


def _best(column: Column, rows: Sequence[Row]) -> str | None:
    measured = [row for row in rows if not row["is_floor"] and row[column.key] is not None]
    if not measured:
        return None
    choose: Callable[..., Row] = max if column.higher_is_better else min
    return column.shown(choose(measured, key=lambda row: row[column.key]))


def _label(row: Row) -> str:
    return row["name"] if row["is_floor"] else f"`{row['name']}` {row['version']}"


def _gaps(report: Report) -> str:
    """Return a list of the contestants that were not measured."""
    gaps = report["gaps"]
    lines = [
        f"- not measured: `{gap['name']}` over {gap['transport']}: {gap['reason']}\n"
        for gap in gaps
    ]
    return "".join(("\n", *lines)) if lines else ""


def _behind(report: Report) -> str:
    """Return a list of the figures in which a peer is better than the runtime."""
    lines = []
    for transport, columns in (("stdio", _STDIO), ("http", _HTTP)):
        ours = [row for row in report[transport] if row["name"] == RUNTIME]
        peers = [row for row in report[transport] if row["name"] != RUNTIME and not row["is_floor"]]
        for row in ours:
            for column in columns:
                ahead = [peer for peer in peers if _is_better(column, peer, row)]
                names = ", ".join(f"`{peer['name']}` {column.shown(peer)}" for peer in ahead)
                if ahead:
                    over = "HTTP" if transport == "http" else transport
                    line = f"- {column.title}, {over}: {names}; here {column.shown(row)}"
                    lines.append(_wrapped(line).rstrip().replace("\n", "\n  ") + "\n")
    if not lines:
        return ""
    return f"\n## Where a peer is better\n\n{''.join(lines)}"


def _is_better(column: Column, one: Row, other: Row) -> bool:
    if column.higher_is_better:
        return bool(one[column.key] > other[column.key])
    return bool(one[column.key] < other[column.key])


def _wrapped(text: str, width: int = 110) -> str:
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*lines, line]) + "\n"


# -- the chart -------------------------------------------------------------------------------------

_PANELS = (
    ("stdio", "Start to the first answer, ms", Column("", "start_ms")),
    ("stdio", "One call, p50, µs", Column("", "p50_us")),
    ("stdio", "Calls per second, 8 in flight", Column("", "calls_per_second", 0, True)),
    ("http", "HTTP calls per second, 8 connections", Column("", "calls_per_second", 0, True)),
    ("stdio", "Memory after all calls, MB", Column("", "used_mb")),
    ("stdio", "Installed, MB", Column("", "megabytes", 1)),
)
_WIDTH, _MARGIN, _GUTTER = 920, 24, 36
_NAMES, _BAR, _STEP = 198, 13, 22
_HEAD, _TITLE = 62, 40
_PANEL = (_WIDTH - 2 * _MARGIN - _GUTTER) // 2
_LONGEST = _PANEL - _NAMES - 54
# The chart has a ground of its own: it is readable on a page of either theme.
_STYLE = """
    text { font: 12px system-ui, sans-serif; fill: var(--ink) }
    .title { font-size: 16px; font-weight: 600 }
    .panel { font-weight: 600 }
    .quiet { fill: var(--quiet) }
    .ours { font-weight: 600 }
    svg { --ground: #ffffff; --ink: #1f2328; --quiet: #59636e; --edge: #d1d9e0;
          --bar: #9aa4af; --floor: #d3d9df; --accent: #0969da }
    @media (prefers-color-scheme: dark) {
      svg { --ground: #151b23; --ink: #e6edf3; --quiet: #9198a1; --edge: #3d444d;
            --bar: #6e7681; --floor: #3d444d; --accent: #4493f8 }
    }
"""


def chart(report: Report) -> str:
    """Return the chart: a panel for each figure, a bar for each contestant, as SVG."""
    tall = max(len(report["stdio"]), len(report["http"]))
    height_of_panel = _TITLE + tall * _STEP + 18
    height = _HEAD + 3 * height_of_panel + 14
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}"'
        f' viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{RUNTIME} beside its peers</title>",
        f"<style>{_STYLE}</style>",
        f'<rect x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="8"'
        ' fill="var(--ground)" stroke="var(--edge)"/>',
        _text(_MARGIN, 34, f"{RUNTIME} beside its peers", "title"),
        _text(_MARGIN, 54, _short_conditions(report), "quiet"),
    ]
    for number, (transport, title, column) in enumerate(_PANELS):
        x = _MARGIN + (number % 2) * (_PANEL + _GUTTER)
        y = _HEAD + (number // 2) * height_of_panel
        parts += _panel(x, y, title, column, report[transport])
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(x: int, y: int, title: str, column: Column, rows: Sequence[Row]) -> list[str]:
    better = "more is better" if column.higher_is_better else "less is better"
    parts = [
        f'<text x="{x}" y="{y + 26}"><tspan class="panel">{escape(title)}</tspan>'
        f'<tspan class="quiet" dx="8">{better}</tspan></text>'
    ]
    most = max((row[column.key] for row in rows), default=0) or 1
    for number, row in enumerate(rows):
        top = y + _TITLE + number * _STEP
        long = max(row[column.key] / most * _LONGEST, 1)
        ours = row["name"] == RUNTIME
        fill = "accent" if ours else "floor" if row["is_floor"] else "bar"
        kind = "ours" if ours else ""
        parts += [
            _text(x, top + 11, row["name"], kind),
            f'<rect x="{x + _NAMES}" y="{top}" width="{long:.1f}" height="{_BAR}" rx="2"'
            f' fill="var(--{fill})"/>',
            _text(x + _NAMES + long + 6, top + 11, column.shown(row), kind),
        ]
    return parts


def _short_conditions(report: Report) -> str:
    machine = report["machine"]
    node = f", Node {report['node']}" if report["node"] else ""
    shared = ", shared" if machine["highest_load"] > _QUIET_LOAD else ""
    return (
        f"{report['date']} · {machine['cores']} cores of {machine['processor']}{shared}"
        f" · Python {report['python']}{node} · the same tool, echo, and the same client for all"
    )


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    shown = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{shown}>{escape(text)}</text>'
