"""The levels of log messages that a client may be sent: those of RFC 5424, least severe first."""

from __future__ import annotations

LOGGING_LEVELS = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)

DEFAULT_LEVEL = "info"
"""From which level on a client of the handshake mode is sent messages, unless it says otherwise."""


def is_wanted(level: str, least: str | None) -> bool:
    """Whether a message of `level` goes to a peer that wants `least` and above; None wants none."""
    return least is not None and LOGGING_LEVELS.index(level) >= LOGGING_LEVELS.index(least)
