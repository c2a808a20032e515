"""Pages for a terminal, with rich (extra `cli`); NO_COLOR is respected, as rich does it."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.table import Table as RichTable
from rich.text import Text

from ..client.failing.printable import printable_line
from .page import Heading, Json, Page, Part, Payload, Table
from .plain import pretty_json, write_plain

if TYPE_CHECKING:
    from rich.console import RenderableType

_MAX_STYLED = 100_000  # characters; rich takes about 5 s for a million of them
_GAP = (0, 2, 0, 0)


def write_coloured(page: Page, width: int) -> str:
    """The page with the escapes of a terminal of so many columns."""
    written = StringIO()
    console = Console(file=written, force_terminal=True, width=width, highlight=False)
    for at, part in enumerate(page):
        if at and isinstance(part, Heading):
            written.write("\n")
        shown = part.shown() if isinstance(part, Payload) else part
        plain = write_plain([shown])
        styled = _styled(shown) if len(plain) <= _MAX_STYLED else None
        if styled is None:
            written.write(plain)
        else:
            console.print(styled, soft_wrap=not isinstance(shown, Table))
    return written.getvalue()


def _styled(part: Part) -> RenderableType | None:
    """What rich makes of it; None of what has no style. Texts are `Text`: no markup is read."""
    match part:
        case Heading(text, detail):
            shown = Text(printable_line(text), "bold")
            return shown.append(f"  {printable_line(detail)}", "dim") if detail else shown
        case Table(rows):
            return _table(rows)
        case Json(value):
            shown = Text(pretty_json(value))
            JSONHighlighter().highlight(shown)
            return shown
        case _:
            return None


def _table(rows: Sequence[Sequence[str]]) -> RichTable:
    table = RichTable(box=None, padding=_GAP, show_header=False)
    for row in rows:
        first, *rest = (Text(printable_line(cell), overflow="fold") for cell in row)
        first.stylize("cyan")
        table.add_row(first, *rest)
    return table
