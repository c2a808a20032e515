"""What a server says it can do: what is there, and no more (REV-08)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..dispatcher import Dispatcher
    from ..protocol.revisions import Revision


def capabilities_of(dispatcher: Dispatcher, revision: Revision) -> dict[str, Any]:
    """The `ServerCapabilities` for a peer that speaks `revision`."""
    return revision.keep("capabilities", {"tools": {"listChanged": True}})
