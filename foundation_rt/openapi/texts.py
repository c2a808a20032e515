"""Texts and names of documents, within bounds."""

from __future__ import annotations

import re


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters, cut at a word and marked with an ellipsis."""
    text = re.sub(r"[ \t]+\n", "\n", text).strip()
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= most:
        return text
    cut = text[: most - 1]
    space = max(cut.rfind(" "), cut.rfind("\n"))
    return cut[: space if space > most // 2 else most - 1].rstrip() + "…"


def snake_case(name: str) -> str:
    """Return a name in lower case with underscores between its words."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"[^A-Za-z0-9]+", "_", words).strip("_").lower()
