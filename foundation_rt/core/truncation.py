"""Answers that grow with what a server holds: cut to a limit, always in the same place.

A tool that returns a list, or an object, of which nobody knows beforehand how long it is, returns
it through `truncate` (AGENT-17). The limit is that of results (CALL-10), measured as they are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .results import encode_result, write_json

T = TypeVar("T")


def truncate(entries: Sequence[T], wrap: Callable[[Sequence[T], bool], Any], max_bytes: int) -> Any:
    """The answer with as many of the first `entries` as fit.

    Args:
        entries: in an order that is always the same.
        wrap: ``wrap(some, truncated)`` is the answer with these entries; the more there are, the
            longer it is.
        max_bytes: of the answer as JSON in UTF-8.

    Raises:
        ToolError: INTERNAL; not even the answer without entries fits, or an entry is no JSON.
    """

    def too_large(count: int) -> bool:
        return len(write_json(wrap(entries[:count], count < len(entries)))) > max_bytes

    if not too_large(len(entries)):
        return wrap(entries, False)
    # The first that is too large comes after the longest that is not.
    fitting = bisect_left(range(len(entries)), True, key=too_large) - 1
    answer = wrap(entries[: max(fitting, 0)], bool(entries))
    if fitting < 0:
        encode_result(answer, max_bytes)  # says what it is too large for
    return answer
