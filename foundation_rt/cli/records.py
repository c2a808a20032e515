"""JSON that is a list of like objects, as a table for people (CLI-49). Programs get the JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from .render import Heading, Json, Page, Part, Payload, Table

MAX_COLUMNS = 12
"""The most columns of a table; wider records are shown as JSON."""

_MAX_ROWS = 1000
_LEAST_WIDTH = 9  # of a column, with its gap
_Row = dict[str, Any]


def with_tables(page: Page, width: int) -> Page:
    """Return a page in which values that are records stand as tables.

    Args:
        page: of a result.
        width: of the terminal, in characters; a record that is wider is a block of lines.
    """
    most = min(MAX_COLUMNS, width // _LEAST_WIDTH)
    return [shown for part in page for shown in _shown(part, most)]


def _shown(part: Part, most: int) -> Sequence[Part]:
    shown = part.shown() if isinstance(part, Payload) else part
    if not isinstance(shown, Json):
        return [part]
    return [*_tables(shown.value, most)] or [part]


def _tables(value: Any, most: int) -> Iterator[Part]:
    """Yield the tables of a value; nothing if it is not of records alone."""
    if _are_records(value):
        yield from _of_records(value, most)
        return
    if not isinstance(value, dict):
        return
    plain = {name: each for name, each in value.items() if _is_plain(each)}
    records = {name: each for name, each in value.items() if _are_records(each)}
    if not records or len(plain) + len(records) < len(value):
        return
    if plain:
        yield Table([(name, _cell(each)) for name, each in plain.items()])
    for name, rows in records.items():
        if len(value) > 1:
            yield Heading(name, str(len(rows)))
        yield from _of_records(rows, most)


def _are_records(value: Any) -> bool:
    if not (isinstance(value, list) and 0 < len(value) <= _MAX_ROWS):
        return False
    if not all(isinstance(each, dict) and all(map(_is_plain, each.values())) for each in value):
        return False
    return 0 < len(_names(value)) <= MAX_COLUMNS


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _of_records(rows: Sequence[_Row], most: int) -> Iterator[Part]:
    """Yield a table, or where it would be too wide a block of lines for each record."""
    names = _names(rows)
    if len(names) <= most:
        cells = [[_cell(row[name]) if name in row else "" for name in names] for row in rows]
        yield Table([names, *cells], has_head=True)
        return
    for number, row in enumerate(rows, 1):
        yield Heading(f"{number} of {len(rows)}")
        yield Table([(name, _cell(value)) for name, value in row.items()])


def _names(rows: Sequence[_Row]) -> list[str]:
    """Return the names of all members, in the order in which they come."""
    return [*dict.fromkeys(name for row in rows for name in row)]


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
