"""Cutting a text to a number of tokens. Pure."""

from __future__ import annotations

from collections.abc import Callable

Count = Callable[[str], int]
"""Estimates the tokens of a text; a longer text never has fewer."""


def cut_text(text: str, tokens: int, count: Count, note: str) -> str:
    """Return a text of at most `tokens`: itself, or its beginning and a note, or "".

    Args:
        text: of any length.
        tokens: the most that it may have.
        count: estimates the tokens of a text.
        note: says that it was cut.
    """
    if len(text) <= tokens and count(text) <= tokens:
        return text
    # A token has fewer than 64 characters on average in any text that is one.
    low, high = 0, min(len(text), 64 * max(tokens, 0))
    if high == len(text) and count(text) <= tokens:
        return text
    if count(note) > tokens:
        return ""
    while low < high:  # at most 20 steps, on texts that get shorter
        middle = (low + high + 1) // 2
        if count(text[:middle] + note) <= tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low] + note
