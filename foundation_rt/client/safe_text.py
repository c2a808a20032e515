"""Text of a server, made safe to print on a terminal (CERR-12, CHILD-08, CLI-19).

The texts of a server are untrusted, and a terminal obeys control characters: they overwrite printed
text, set the title of the window, send input in the user's name. Invisible characters hide text
that a model reads. Printed text shows all of them as escapes; the messages of errors replace them.

Patterns are compiled on first use: most programs never print or fail.
"""

from __future__ import annotations

import re
from typing import Any

MAX_MESSAGE_CHARACTERS = 1000
"""Longest text of a server that a message repeats."""

_LINE_BREAKS = "\t\n"
_UNFIT = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, also those of eight bits
    "\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # unseen, bidi
    "\ud800-\udfff"  # half a character: cannot be encoded
    "\U000e0000-\U000e0fff"  # tags and variations: text within text
)
_UNFIT_IN_TEXT = f"[{_UNFIT}]"
_UNFIT_IN_LINE = f"[{_UNFIT}{_LINE_BREAKS}]"


def printable_text(text: str) -> str:
    """Return `text` with its line breaks, and every unfit character as in a Python literal."""
    return re.sub(_UNFIT_IN_TEXT, _escape, text.replace("\r\n", "\n"))


def printable_line(text: str) -> str:
    """Return `text` as a single line, with every unfit character as in a Python literal."""
    return re.sub(_UNFIT_IN_LINE, _escape, text)


def printable_json(text: str) -> str:
    """Return the same JSON with every unfit character escaped; they occur only in its strings."""
    return re.sub(_UNFIT_IN_TEXT, _escape_in_json, text)


def without_unfit(text: str) -> str:
    """Return `text` with its line breaks, and U+FFFD for every unfit character."""
    return re.sub(_UNFIT_IN_TEXT, "\N{REPLACEMENT CHARACTER}", text)


def readable(text: Any) -> str:
    """Return a server's text, bounded and without control characters (CERR-12)."""
    if not isinstance(text, str):
        return ""
    cut = text[:MAX_MESSAGE_CHARACTERS] + ("..." if len(text) > MAX_MESSAGE_CHARACTERS else "")
    return without_unfit(cut).strip()


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _escape_in_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
