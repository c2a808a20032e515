"""What a server says it can do: what is there, and no more (REV-08)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..extensions.tasks.support import EXTENSION

if TYPE_CHECKING:
    from ..dispatcher import Dispatcher
    from ..protocol.revisions import Revision


def capabilities_of(dispatcher: Dispatcher, revision: Revision) -> dict[str, Any]:
    """The `ServerCapabilities` for a peer that speaks `revision`."""
    capabilities: dict[str, Any] = {"tools": {"listChanged": True}}
    if dispatcher.tasks.offered:
        capabilities["extensions"] = {EXTENSION: {}}
    return revision.keep("capabilities", capabilities)
