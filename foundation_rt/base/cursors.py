"""Pages of names, and the cursors between them.

A cursor names the key after which the next page begins, and not the number of keys before it. So
an entry that is added or removed between two pages moves no other one: an entry that is there all
the time is seen exactly once. The server keeps no cursor: each worker understands the cursors of
the others, and none can be leaked (spec/pagination.md).
"""

from __future__ import annotations

from binascii import Error, a2b_base64, b2a_base64
from bisect import bisect_right
from collections.abc import Sequence

_MARK = "after:"
_TO_URL = str.maketrans("+/", "-_")
_FROM_URL = str.maketrans("-_", "+/")


class InvalidCursor(ValueError):
    """The cursor is not one that the server has sent."""


def page_of(names: Sequence[str], cursor: object, size: int) -> tuple[Sequence[str], str | None]:
    """Return the names of one page, and the cursor of the next page (PAGE-01, PAGE-02).

    Args:
        names: all names, in ascending order.
        cursor: from the page before; None for the first page.
        size: the most names of a page, at least 1.

    Returns:
        The names, and None in place of a cursor after the last page.

    Raises:
        InvalidCursor: `cursor` is not one that the server has sent (PAGE-03).
    """
    chosen = names_after(names, None if cursor is None else read_cursor(cursor), size + 1)
    if len(chosen) <= size:
        return chosen, None
    return chosen[:size], write_cursor(chosen[size - 1])


def names_after(names: Sequence[str], after: str | None, count: int) -> Sequence[str]:
    """Return at most `count` of `names`, which are in ascending order, that come after `after`."""
    start = 0 if after is None else bisect_right(names, after)
    return names[start : start + count]


def write_cursor(name: str) -> str:
    """Return the cursor of the page that begins after `name`: base64url without padding."""
    encoded = b2a_base64((_MARK + name).encode(), newline=False).decode()
    return encoded.rstrip("=").translate(_TO_URL)


def read_cursor(cursor: object) -> str:
    """Return the name after which the page begins.

    Raises:
        InvalidCursor: `write_cursor` did not write it.
    """
    if type(cursor) is not str:
        raise InvalidCursor
    try:
        padded = cursor.translate(_FROM_URL) + "=" * (-len(cursor) % 4)
        name = a2b_base64(padded).decode().removeprefix(_MARK)
    except (Error, ValueError):
        raise InvalidCursor from None
    # Base64 spells one text in many ways, and `write_cursor` in one of them; and the mark is there.
    if write_cursor(name) != cursor:
        raise InvalidCursor
    return name
