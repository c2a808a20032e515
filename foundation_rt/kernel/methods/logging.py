"""`logging/setLevel`: the level of the log messages that a client wants, after a handshake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.peer import LOGGING_LEVELS
from ..replies import invalid_params, result_reply

if TYPE_CHECKING:
    from ...protocol.jsonrpc import Request
    from ...protocol.peer import Peer
    from ..dispatcher import Dispatcher
    from ..effects import Effect
    from ..session import Session


def set_level(
    dispatcher: Dispatcher, session: Session, peer: Peer, request: Request
) -> list[Effect]:
    """Set the level from now on, also for calls that already run (NOTE-04)."""
    level = request.members.get("level")
    if level not in LOGGING_LEVELS:
        raise invalid_params(f"level must be one of {', '.join(LOGGING_LEVELS)}")
    peer.log_level = level
    return [result_reply(request.id, {})]
