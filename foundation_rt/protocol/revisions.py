"""The revisions of the MCP specification that the handshake can agree on."""

from __future__ import annotations

HANDSHAKE_REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Oldest first; what a client names is what it gets, if it is here (LIFE-04)."""

NEWEST_HANDSHAKE_REVISION = HANDSHAKE_REVISIONS[-1]


def negotiate(requested: str) -> str:
    """The revision to answer with: the one asked for, or the newest there is (LIFE-04)."""
    return requested if requested in HANDSHAKE_REVISIONS else NEWEST_HANDSHAKE_REVISION
