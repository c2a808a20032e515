"""Log messages to a client after the call that has made them (NOTE-07)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..kernel.effects import Notify
from ..kernel.session import RUNNING
from ..protocol.jsonrpc import encode
from ..protocol.methods import NOTIFICATIONS_MESSAGE
from ..protocol.peer import is_wanted
from .context import log_params

if TYPE_CHECKING:
    from ..kernel.effects import Effect
    from ..kernel.engine.connection import Connection
    from ..kernel.engine.directory import SessionDirectory
    from ..kernel.invocation import Invocation
    from ..kernel.session import Session


class SessionLog:
    """The log of the session of a client, also after the call was answered (NOTE-07).

    It knows the session by its id alone: an application may keep it for longer than the session.
    Made by `ToolContext.session_log`; a plain class, as it is made where it is needed.
    """

    __slots__ = ("_send", "_session_id")

    def __init__(self, send: Callable[[int, str, bytes], None], session_id: int | None) -> None:
        self._send = send
        self._session_id = session_id

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a log message to the client, if its session lives and wants this level.

        May be called in any thread, at any time. A client of the stateless mode has no session, and
        gets nothing.

        Args:
            level: one of `protocol.peer.LOGGING_LEVELS`.
            data: a value that can be written as JSON.
            logger: the name of the logger, for the client.

        Raises:
            TypeError: `data` cannot be written as JSON.
            UsageError: there is no such level.
        """
        params = log_params(level, data, logger)
        if self._session_id is not None:
            message = {"jsonrpc": "2.0", "method": NOTIFICATIONS_MESSAGE, "params": params}
            self._send(self._session_id, level, encode(message))


def session_log(call: Invocation, connection: Connection) -> SessionLog:
    """Return the log of the session in which a call is made."""
    session_id = None if call.peer.revision.is_stateless else connection.session.id
    return SessionLog(partial(_send_log, connection.engine.directory), session_id)


def _send_log(directory: SessionDirectory, session_id: int, level: str, line: bytes) -> None:
    """Send a log message, encoded, to a session that lives and wants this level."""
    directory.decide(session_id, _decide_log, level, line)


def _decide_log(session: Session, level: str, line: bytes) -> list[Effect]:
    peer = session.peer
    if session.state is not RUNNING or peer is None:
        return []
    return [Notify(line)] if is_wanted(level, peer.log_level) else []
