"""Pages for a terminal, with rich (extra `cli`); NO_COLOR is respected, as rich does it."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.table import Table as RichTable
from rich.text import Text

from .page import Heading, Json, Page, Paragraph, Part, Payload, Table
from .plain import pretty_json
from .printable import printable_line, printable_text

if TYPE_CHECKING:
    from rich.console import RenderableType

_MAX_HIGHLIGHTED = 100_000  # characters; highlighting costs about a microsecond for each
_GAP = (0, 2, 0, 0)


def write_coloured(page: Page, width: int) -> str:
    """The page with the escapes of a terminal of so many columns."""
    # Texts are `Text`, never markup: what a server says in brackets is no style.
    written = StringIO()
    console = Console(file=written, force_terminal=True, width=width, highlight=False)
    for at, part in enumerate(page):
        if at and isinstance(part, Heading):
            console.print()
        console.print(_renderable(part), soft_wrap=not isinstance(part, Table))
    return written.getvalue()


def _renderable(part: Part) -> RenderableType:
    match part:
        case Heading(text, detail):
            shown = Text(printable_line(text), "bold")
            return shown.append(f"  {printable_line(detail)}", "dim") if detail else shown
        case Paragraph(text):
            return Text(printable_text(text).removesuffix("\n"))
        case Table(rows):
            return _table(rows)
        case Json(value):
            return _json(pretty_json(value))
        case Payload():
            return _renderable(part.shown())


def _table(rows: Sequence[Sequence[str]]) -> RichTable:
    table = RichTable(box=None, padding=_GAP, show_header=False)
    for row in rows:
        first, *rest = (Text(printable_line(cell), overflow="fold") for cell in row)
        first.stylize("cyan")
        table.add_row(first, *rest)
    return table


def _json(text: str) -> Text:
    shown = Text(text)
    if len(text) <= _MAX_HIGHLIGHTED:
        JSONHighlighter().highlight(shown)
    return shown
