"""The tasks extension as every server knows it: its name, its options, and who declares it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from ...base.shown import Shown
from ...errors import JsonRpcError, JsonRpcErrorCode
from ...kernel.registry.tools import ToolPart

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


@frozen(eq=False, repr=False)
class TaskSupport(ToolPart, Shown):
    """Calls of a tool may become tasks.

    Attributes:
        required: the tool is for clients with the tasks extension only (TASK-02).
        after_ms: how long a call runs before it becomes a task, in ms; 0: at once.
    """

    required: bool
    after_ms: int = 0

    @property
    def restricts(self) -> bool:
        """Return whether some clients may not call the tool."""
        return self.required
