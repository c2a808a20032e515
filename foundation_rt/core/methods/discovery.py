"""`server/discover`: what a client of the stateless mode can learn before it asks for anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...protocol.peer import SUPPORTED_REVISIONS
from .capabilities import capabilities_of

if TYPE_CHECKING:
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ..dispatcher import Dispatcher
    from ..effects import Effect
    from ..session import Session


def discover(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """The revisions that are spoken, the capabilities, the advice for models (REV-09)."""
    results = dispatcher.results
    result: dict[str, Any] = {
        "supportedVersions": [*SUPPORTED_REVISIONS],
        "capabilities": capabilities_of(dispatcher, peer.revision),
        **results.cache_hints(peer),
    }
    if results.info.instructions is not None:
        result["instructions"] = results.info.instructions
    return [results.reply(peer, request, result)]
