"""Who may have tasks, and of which tools: what every server knows of the extension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...protocol.peer import Peer

EXTENSION = "io.modelcontextprotocol/tasks"
"""The name of the extension, in the capabilities of either side."""

REQUIRED_CAPABILITIES: dict[str, Any] = {"extensions": {EXTENSION: {}}}
"""What a client that lacks the extension is told to declare (TASK-02)."""


def can_have_tasks(peer: Peer) -> bool:
    """Return whether a client may be given a task: it says so with this very request (TASK-01)."""
    return peer.revision.has("capabilities", "extensions") and peer.can("extensions", EXTENSION)
