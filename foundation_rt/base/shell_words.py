"""Words of command lines that messages show, quoted for the shells of this system.

On Windows these are cmd.exe and PowerShell, which both take double quotes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Final

_is_windows = sys.platform == "win32"  # no constant: each side is tested on every system

_PLAIN: Final = re.compile(r"[\w./:\\@+=\[\]-]+", re.ASCII)
_QUOTE: Final = re.compile(r'(\\*)("|\Z)')


def quote(word: str) -> str:
    """Return a word so that a shell takes it as it is."""
    if not _is_windows:
        from shlex import quote

        return quote(word)
    if _PLAIN.fullmatch(word):
        return word
    # Backslashes before a quote, or the last one, are doubled: so programs split their line.
    return f'"{_QUOTE.sub(_escaped, word)}"'


def join(words: Iterable[str]) -> str:
    """Return the command line of these words."""
    return " ".join(map(quote, words))


def _escaped(found: re.Match[str]) -> str:
    return found[1] * 2 + ("\\" + found[2] if found[2] else "")
