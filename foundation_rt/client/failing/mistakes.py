"""Mistakes of this program itself: whoever waits is told, and the log says where to look."""

from __future__ import annotations

import logging
from traceback import extract_tb

from .errors import ConnectionLostError

log = logging.getLogger("foundation_rt.client")


def place_of(error: Exception) -> str:
    """What was raised and where; not its text, which may repeat a token or an argument."""
    place = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in line {place.lineno} of {place.filename}"


def mistake(error: Exception) -> ConnectionLostError:
    """Log what was raised though nothing should be; the error for whoever waits (CLIENT-18)."""
    what = place_of(error)
    log.error("a message could not be handled: %s", what)
    return ConnectionLostError(f"a message could not be handled: {what}", may_have_run=True)
