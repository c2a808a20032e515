"""What callers give: ids and times, checked before anything is done (AACP-12)."""

from __future__ import annotations

from .errors import invalid
from .ownership import is_request_id
from .retransmitter import MAX_DELAY_MS


def check_request_id(request_id: str) -> str:
    """Return an id that a caller gave.

    Raises:
        ToolError: INVALID_ARGUMENT, it may not be one.
    """
    if not is_request_id(request_id):
        raise invalid(
            "A request id is 1 to 128 letters, digits and . _ : -, the first a letter or a digit.",
            "invalid_request_id",
        )
    return request_id


def milliseconds(given: int | None, default: int) -> int:
    """Return a time that a caller gave, or else the default; in ms."""
    if given is None:
        return default
    if type(given) is not int or not 0 < given <= MAX_DELAY_MS:
        raise invalid(f"A time is a number of ms from 1 to {MAX_DELAY_MS}.", "invalid_time")
    return given
