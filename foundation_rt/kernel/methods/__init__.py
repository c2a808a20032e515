"""The methods that every server has, by name; those of features are in their rows.

A method is a function of the dispatcher, the session, the peer and the request. It returns the
effects that answer the request, or raises `JsonRpcError` or `ToolError` to refuse it. The peer's
revision says which methods it may use (`protocol.revisions`); `tools/call` begins in
`kernel.call_lifecycle`.

The functions of `METHODS` import their module when they are first called: most servers never need
most of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...base.lazy_names import lazy
from ...protocol.methods import LOGGING_SET_LEVEL, PING, SERVER_DISCOVER, TOOLS_LIST

if TYPE_CHECKING:
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ..dispatcher import Dispatcher
    from ..effects import Effect
    from ..session import Session

    Method = Callable[[Dispatcher, Session, Peer, Request], list[Effect]]


METHODS: dict[str, Method] = {
    LOGGING_SET_LEVEL: lazy(f"{__name__}.logging", "set_level"),
    PING: lazy(f"{__name__}.lifecycle", "ping"),
    SERVER_DISCOVER: lazy(f"{__name__}.lifecycle", "discover"),
    TOOLS_LIST: lazy(f"{__name__}.lists", "list_tools"),
}
