"""Names that are spelled like one that is not known, for errors. Pure."""

from __future__ import annotations

from collections.abc import Iterable

_MAX_COMPARED = 128  # characters of a name that is not known


def close_names(name: str, known: Iterable[str], most: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return names that are spelled like `name`, the nearest first.

    Args:
        name: one that is not known.
        known: those that are.
        most: how many are returned.
        cutoff: how alike they are, from 0 to 1.
    """
    from difflib import get_close_matches  # for errors only

    cut = name[:_MAX_COMPARED]
    # Of names of so different lengths none is alike; to compare thousands would take tens of ms.
    alike = [
        each for each in known if 2 * min(len(each), len(cut)) >= cutoff * (len(each) + len(cut))
    ]
    return get_close_matches(cut, alike[:2000], most, cutoff)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `: did you mean 'a' or 'b'?`, the end of an error; "" if no name is close."""
    near = close_names(name, known)
    return f": did you mean {' or '.join(map(repr, near))}?" if near else ""
