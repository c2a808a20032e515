"""`tools/list`; what `tools/call` does stands in `tools_call`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lists import answer_list

if TYPE_CHECKING:
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ..dispatcher import Dispatcher
    from ..effects import Effect
    from ..session import Session


def list_tools(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """A page of the tools, as the peer's revision shows them (REG-02)."""
    registry = dispatcher.tools_call.registry
    return answer_list(dispatcher, session, peer, request, "tools", registry)
