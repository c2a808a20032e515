"""What a command shows to people, as values: a page is a sequence of parts.

Commands make pages out of what servers say; `plain` and `coloured` write them, and make every text
printable on the way (`client.failing.printable`), so that no command can forget to (CLI-19).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from attrs import frozen

from ..protocol.exact_json import loads


@frozen
class Heading:
    """A line that names what follows, and says a little of it."""

    text: str
    detail: str = ""


@frozen
class Paragraph:
    """Text of one or more lines."""

    text: str


@frozen
class Table:
    """Rows of cells.

    Attributes:
        rows: each with as many cells as the others; the first names what the row is about.
    """

    rows: Sequence[Sequence[str]]


@frozen
class Json:
    """A JSON value."""

    value: Any


@frozen
class Payload:
    """What a server was asked for, rather than something about it.

    A program gets it as it is. A terminal gets text made printable, with JSON over several lines,
    and of bytes how many they are.
    """

    data: str | bytes
    mime_type: str | None = None

    def shown(self) -> Part:
        """What a terminal gets."""
        if isinstance(self.data, bytes):
            return Paragraph(f"[{self.mime_type or 'bytes'}, {len(self.data)} bytes]")
        if self.data[:1] in ("{", "["):
            try:
                return Json(loads(self.data))
            except orjson.JSONDecodeError:
                pass
        return Paragraph(self.data)


Part = Heading | Paragraph | Table | Json | Payload
Page = Sequence[Part]
