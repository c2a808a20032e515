"""Progress and log messages on a terminal, while a command waits for a server (CLI-48).

It is written to stderr, and the progress is wiped when the result comes. With rich (extra `cli`) it
is a bar that moves; without it, and on a terminal that cannot move its cursor, a line now and then.
"""

from __future__ import annotations

import asyncio
import math
import sys
from time import monotonic
from typing import Any

from attrs import define, field

from ..client.safe_text import printable_line
from .render import in_words, takes_escapes
from .terminal import LEVEL_COLOURS, has_colours, paint, readable_problem

_PATIENCE = 0.3
"""Seconds after which it is shown that a command waits: most answers come sooner."""

_LINE_INTERVAL = 0.5
_MAX_TEXT = 300


@define(eq=False)
class LiveView:
    """Shows on stderr that and how a request goes on.

    Args:
        title: of what is waited for, such as the name of a tool.
    """

    _title: str
    _is_shown: bool = field(default=False, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _bars: Any = field(default=None, init=False)  # of rich; None where lines are written
    _last_line: tuple[float, str] = field(default=(0.0, ""), init=False)

    def begin(self) -> None:
        """Show the wait if it takes longer than a moment."""
        self._timer = asyncio.get_running_loop().call_later(_PATIENCE, self._show)

    def pause(self) -> None:
        """Leave the terminal to a question."""
        if self._timer is not None:
            self._timer.cancel()
        if self._bars is not None:
            self._bars.stop()
        self._is_shown = False

    end = pause

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Show the progress of a call, as its server reports it."""
        known = total if total is not None and math.isfinite(total) and total > 0 else None
        text = printable_line((message or self._title)[:_MAX_TEXT])
        if not self._is_shown:
            self._show()
        if self._bars is not None:
            shown = min(max(done, 0.0), known) if known else 0.0
            self._bars.update(0, completed=shown, total=known, description=text)
        else:
            self._progress_line(done, known, text)

    def log(self, level: str, logger: str | None, data: Any) -> None:
        """Show a log message of the server."""
        text = in_words(data)
        named = f"{logger}: " if logger else ""
        coloured = has_colours()
        shown = paint(
            f"{printable_line(level[:20]):<7}",
            LEVEL_COLOURS.get(level, "yellow"),
            coloured=coloured,
        )
        self._write(f"{shown} {printable_line((named + text)[:_MAX_TEXT])}\n")

    def record(self, line: bytes) -> bytes:
        """Show a record of the log of an APP that is served in memory; return no text (LOG-41)."""
        self._write(readable_problem(line, coloured=has_colours()))
        return b""

    def _show(self) -> None:
        self._is_shown = True
        if self._bars is None and takes_escapes():
            self._bars = _bars(self._title)
        if self._bars is not None:
            self._bars.start()
        elif not self._last_line[1]:
            self._last_line = (0.0, self._title)
            self._write(f"{printable_line(self._title[:_MAX_TEXT])} ...\n")

    def _progress_line(self, done: float, total: float | None, text: str) -> None:
        share = f"{100 * min(max(done, 0.0), total) / total:3.0f} %" if total else f"{done:g}"
        line, now = f"{share}  {text}", monotonic()
        at, last = self._last_line
        is_end = total is not None and done >= total
        if line != last and (is_end or now - at >= _LINE_INTERVAL):
            self._last_line = (now, line)
            self._write(f"{line}\n")

    def _write(self, text: str) -> None:
        """Write text above the bar."""
        if not text or sys.stderr is None:
            return
        try:
            # While the bar is shown, rich stands in for sys.stderr, and writes above it.
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:  # the terminal has been closed
            pass


def _bars(title: str) -> Any:
    """Return the bar of rich, or None if it is not installed."""
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            SpinnerColumn,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
        )
        from rich.table import Column
    except ImportError:
        return None
    bars = Progress(
        SpinnerColumn(),
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        ),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr, force_terminal=True, highlight=False),
        transient=True,
        expand=True,
    )
    bars.add_task(printable_line(title[:_MAX_TEXT]), total=None)
    return bars
