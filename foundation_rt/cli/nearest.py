"""The nearest known names of a mistyped one (CLI-55); imported for errors only."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST = 64  # characters of a mistyped name that are compared and shown
_MOST = 3


def no_such(kind: str, word: str, names: Iterable[str]) -> str:
    """Return a message for a mistyped name: `there is no option '--confg' (did you mean ...?)`."""
    return f"there is no {kind} {word[:_LONGEST]!r}{did_you_mean(word, names)}"


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return ` (did you mean ...?)` with the nearest names; "" if none is near."""
    cut = word[:_LONGEST].lower()
    known = sorted(names)
    begun = [each for each in known if len(cut.strip("-")) > 1 and each.startswith(cut)]
    near = [*dict.fromkeys([*begun, *get_close_matches(cut, known, n=_MOST)])][:_MOST]
    return f" (did you mean {' or '.join(near)}?)" if near else ""
