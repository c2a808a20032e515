"""`tools/list`; what `tools/call` does stands in `tools_call`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from ..protocol.jsonrpc import ABSENT
from ..refusals import invalid_params

if TYPE_CHECKING:
    from ..dispatcher import Dispatcher
    from ..effects import Effect
    from ..peer import Peer
    from ..protocol.jsonrpc import Request
    from ..session import Session


def list_tools(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """All tools in one page (REG-02): there is no cursor a client could have been given."""
    if request.params is not ABSENT and request.params.get("cursor") is not None:
        return invalid_params(session, request, "there is no such cursor")
    tools = orjson.Fragment(dispatcher.tools_call.registry.encoded_list())
    result = {"tools": tools, **dispatcher.envelope.cache_hints(peer)}
    return [dispatcher.envelope.reply(peer, request, result)]
