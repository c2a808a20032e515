"""The tasks extension as every server knows it: its name, and the clients that declare it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import JsonRpcError, JsonRpcErrorCode

if TYPE_CHECKING:
    from ...protocol.peer import Peer

EXTENSION = "io.modelcontextprotocol/tasks"
"""The name of the extension, in the capabilities of either side."""

REQUIRED_CAPABILITIES: dict[str, Any] = {"extensions": {EXTENSION: {}}}
"""The capabilities that a client without the extension has to declare (TASK-02)."""


def can_have_tasks(peer: Peer) -> bool:
    """Return whether a client declares the extension with this very request (TASK-01)."""
    return peer.revision.has("capabilities", "extensions") and peer.can("extensions", EXTENSION)


def require_extension(peer: Peer, **data: Any) -> None:
    """Raise `JsonRpcError`, with `data`, unless the client declares the extension (TASK-02)."""
    if not can_have_tasks(peer):
        raise JsonRpcError(
            JsonRpcErrorCode.MISSING_CLIENT_CAPABILITY,
            "Missing required client capability",
            {"requiredCapabilities": REQUIRED_CAPABILITIES, **data},
        )
