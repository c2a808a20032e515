"""The methods of MCP: a table, and a module for each noun of the protocol.

A method is a function of the dispatcher, the session, the peer and the request. It returns the
effects that answer the request, or raises `JsonRpcError` or `ToolError` to refuse it. The peer's
revision says which methods it may use (`protocol.revisions`); `tools/call` begins in
`kernel.call_lifecycle`.

The functions of `METHODS` import their module when they are first called: most servers never need
most of them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from ...protocol.methods import (
    LOGGING_SET_LEVEL,
    PING,
    SERVER_DISCOVER,
    TOOLS_LIST,
)

if TYPE_CHECKING:
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ..dispatcher import Dispatcher
    from ..effects import Effect
    from ..session import Session

    Method = Callable[[Dispatcher, Session, Peer, Request], list[Effect]]


def _lazy(module: str, name: str) -> Method:
    """Return the function of a module, which is imported when a request first needs it."""

    def answer(
        dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
    ) -> list[Effect]:
        effects: list[Effect] = getattr(import_module(f"{__name__}.{module}"), name)(
            dispatcher, session, peer, request
        )
        return effects

    return answer


METHODS: dict[str, Method] = {
    LOGGING_SET_LEVEL: _lazy("logging", "set_level"),
    PING: _lazy("lifecycle", "ping"),
    SERVER_DISCOVER: _lazy("lifecycle", "discover"),
    TOOLS_LIST: _lazy("lists", "list_tools"),
}
