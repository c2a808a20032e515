"""Pages as plain, aligned text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from ..client.failing.printable import printable_json, printable_line, printable_text
from ..protocol.exact_json import dumps
from .page import Heading, Json, Page, Paragraph, Part, Payload, Table

_GAP = "  "
_MAX_PADDING = 60  # a server that gives a tool a name of a megabyte pads no other line with it


def write_plain(page: Page, *, payloads_as_they_are: bool = False) -> str:
    """The text of a page; every line ends.

    Args:
        payloads_as_they_are: text that was asked for is for a program, not for a terminal.
    """
    written = []
    for at, part in enumerate(page):
        if at and isinstance(part, Heading):
            written.append("\n")
        if payloads_as_they_are and isinstance(part, Payload) and isinstance(part.data, str):
            written.append(_ended(part.data))
        else:
            written.append(_write(part))
    return "".join(written)


def pretty_json(value: Any) -> str:
    """JSON over several lines, fit for any reader, without a newline at its end."""
    return printable_json(dumps(value, option=orjson.OPT_INDENT_2).decode())


def _write(part: Part) -> str:
    match part:
        case Heading(text, detail):
            return _ended(_GAP.join(printable_line(each) for each in (text, detail) if each))
        case Paragraph(text):
            return _ended(printable_text(text))
        case Table(rows):
            return _table(rows)
        case Json(value):
            return _ended(pretty_json(value))
        case Payload():
            return _write(part.shown())


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _table(rows: Sequence[Sequence[str]]) -> str:
    cells = [[printable_line(cell) for cell in row] for row in rows]
    widths = [min(max(map(len, column)), _MAX_PADDING) for column in zip(*cells, strict=True)]
    lines = (_GAP.join(map(str.ljust, row, widths)).rstrip() for row in cells)
    return "".join(f"{line}\n" for line in lines)
