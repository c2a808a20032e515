"""Peers for tests: the descriptions of clients."""

from __future__ import annotations

from typing import Any

from foundation_rt.protocol.peer import Peer, describe_peer
from foundation_rt.protocol.revisions import REVISIONS

ABLE: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}
"""The capabilities of a client that accepts every server request."""


def peer(revision: str = "2025-11-25", capabilities: dict[str, Any] | None = None) -> Peer:
    """Return a client; by default one that accepts every server request."""
    return describe_peer(REVISIONS[revision], ABLE if capabilities is None else capabilities, {})
