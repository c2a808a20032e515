"""Results that a server has wrapped as `{"result": 3}`, since a structured result was an object.

No member of a result says so. The content does: it serializes the inner value, while the content of
a tool that returns such an object serializes the whole object (MCP 2025-06-18, "Structured
Content").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...protocol.exact_json import loads


def is_wrapped(structured: Any, texts: Sequence[str]) -> bool:
    """Return whether `structured` is an object around the value that the content serializes.

    Args:
        structured: the structured result.
        texts: the text of each content block, where all blocks are text.
    """
    if type(structured) is not dict or structured.keys() != {"result"}:
        return False
    inner = structured["result"]
    if len(texts) == 1 and _serializes(texts[0], inner):
        return True
    # Servers write a list as one block for each item, and nothing for null.
    items = list(_items(inner))
    return len(items) == len(texts) and all(map(_serializes, texts, items))


def _serializes(text: str, value: Any) -> bool:
    if text == value:
        return True
    try:
        return bool(loads(text) == value)
    except ValueError:
        return False


def _items(value: Any) -> Iterator[Any]:
    """Return the items of a list and of the lists in it; None has no items."""
    pending = [value]
    while pending:
        one = pending.pop()
        if type(one) is list:
            pending.extend(reversed(one))
        elif one is not None:
            yield one
