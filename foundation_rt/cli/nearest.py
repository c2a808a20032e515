"""The nearest known names of a mistyped one (CLI-55); imported for errors only."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST_SHOWN = 64
"""Characters of a mistyped name that are compared and shown."""

_MOST = 3


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return ` (did you mean ...?)` with the nearest names; "" if none is near."""
    cut = word[:LONGEST_SHOWN].lower()
    known = sorted(names)
    begun = [each for each in known if len(cut.strip("-")) > 1 and each.startswith(cut)]
    near = [*dict.fromkeys([*begun, *get_close_matches(cut, known, n=_MOST)])][:_MOST]
    return f" (did you mean {' or '.join(near)}?)" if near else ""
