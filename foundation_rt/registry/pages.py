"""Pages of a list that may change while a client reads it (spec/pagination.md).

A cursor says after which name the next page begins, not how many names came before. So what is
added or removed between two pages shifts nothing: whatever is there all along is seen exactly once.
No cursor is remembered: any worker understands those of another, and none can be leaked.
"""

from __future__ import annotations

from binascii import Error, a2b_base64, b2a_base64
from bisect import bisect_right
from collections.abc import Sequence

_MARK = "after:"
_TO_URL = str.maketrans("+/", "-_")
_FROM_URL = str.maketrans("-_", "+/")


class InvalidCursor(ValueError):
    """The cursor is none that was ever given out."""


def page(names: Sequence[str], cursor: str | None, size: int) -> tuple[Sequence[str], str | None]:
    """The names of one page, and the cursor of the page after it (PAGE-01, PAGE-02).

    Args:
        names: all of them, in ascending order.
        cursor: what the page before came with; None for the first page.
        size: how many names a page holds, at least 1.

    Returns:
        The names, and None in place of a cursor when none are left.

    Raises:
        InvalidCursor: `cursor` is none that was ever given out (PAGE-03).
    """
    start = 0 if cursor is None else bisect_right(names, read_cursor(cursor))
    chosen = names[start : start + size]
    if start + size >= len(names):
        return chosen, None
    return chosen, write_cursor(chosen[-1])


def write_cursor(name: str) -> str:
    """The cursor of the page that begins after `name`: base64url without padding."""
    encoded = b2a_base64((_MARK + name).encode(), newline=False).decode()
    return encoded.rstrip("=").translate(_TO_URL)


def read_cursor(cursor: str) -> str:
    """The name after which the page begins.

    Raises:
        InvalidCursor: `write_cursor` never wrote it.
    """
    try:
        padded = cursor.translate(_FROM_URL) + "=" * (-len(cursor) % 4)
        name = a2b_base64(padded).decode().removeprefix(_MARK)
    except (Error, ValueError):
        raise InvalidCursor from None
    # There are many ways to write one text in base64, of which one is ours; and the mark is there.
    if write_cursor(name) != cursor:
        raise InvalidCursor
    return name
