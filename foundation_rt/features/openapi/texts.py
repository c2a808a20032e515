"""Texts and names of documents, within bounds."""

from __future__ import annotations

from typing import Final

_MORE: Final = 4
"""A text is read to so many times its longest length: most of the rest are spaces."""


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters, cut at a word and marked with an ellipsis."""
    lines = text[: most * _MORE].split("\n")
    text = "\n".join(line.rstrip(" \t") for line in lines).strip()
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= most:
        return text
    cut = text[: most - 1]
    space = max(cut.rfind(" "), cut.rfind("\n"))
    return cut[: space if space > most // 2 else most - 1].rstrip() + "…"
