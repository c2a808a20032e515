"""What a handler is given besides its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from .peer import Peer
from .protocol.levels import is_wanted
from .protocol.revisions import NEWEST_HANDSHAKE_REVISION, REVISIONS

if TYPE_CHECKING:
    from .abort import AbortSignal
    from .invocation import Invocation
    from .logs import StructuredLogger
    from .principal import Principal


_NOBODY = Peer(REVISIONS[NEWEST_HANDSHAKE_REVISION], {}, {}, None)
"""Who asks where a host made the context itself, and named no call."""


class Channel(Protocol):
    """The way back to whoever called."""

    def notify(self, call: Invocation, method: str, params: dict[str, Any]) -> None:
        """Send a notification that belongs to `call`; safe from any thread."""


@define(eq=False, repr=False)
class ToolContext:
    """The call that a handler is serving, of a tool or of another feature (CALL-11).

    Attributes:
        run_id: UUID v4 of this invocation.
        correlation_id: the client's correlation id, or a generated one.
        abort_signal: fires when nobody waits for the result any more.
        state: what the lifespan hook of the server gave; None without one.
    """

    run_id: str
    correlation_id: str
    abort_signal: AbortSignal
    _base_logger: StructuredLogger
    _call: Invocation | None = None
    _channel: Channel | None = None
    state: Any = None
    _logger: StructuredLogger | None = field(default=None, init=False)
    _progress: float | None = field(default=None, init=False)

    @property
    def logger(self) -> StructuredLogger:
        """A logger whose lines carry this call's ids; made when first asked for."""
        if self._logger is None:
            self._logger = self._base_logger.child(
                {"runId": self.run_id, "correlationId": self.correlation_id}
            )
        return self._logger

    @property
    def client(self) -> Peer:
        """Who asks, as it describes itself: its revision, capabilities, name."""
        return _NOBODY if self._call is None else self._call.peer

    @property
    def principal(self) -> Principal | None:
        """Who asks, as was proved; None where nobody has to prove anything."""
        return None if self._call is None else self._call.session.principal

    def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Tell the client how far the call has come, if it asked to be told (NOTE-01).

        May be called in any thread. A value that is not above the one before is not sent.

        Args:
            progress: of `total`, if that is known.
            message: what is being done; not sent where the revision has no room for it.
        """
        if self._call is None or self._call.meta is None:
            return
        token = self._call.meta.get("progressToken")
        if type(token) is not str and type(token) is not int:
            return
        if self._progress is not None and progress <= self._progress:
            return
        self._progress = progress
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None and self.client.revision.has("progress", "message"):
            params["message"] = message
        self._notify("notifications/progress", params)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send the client a log message, if it wants those of this level (NOTE-02).

        May be called in any thread. The server's own log is `logger`.

        Args:
            level: one of `protocol.levels.LOGGING_LEVELS`.
            data: anything that can be written as JSON.
            logger: the name of what logs.
        """
        if not is_wanted(level, self.client.log_level):
            return
        params: dict[str, Any] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        self._notify("notifications/message", params)

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        if self._call is not None and self._channel is not None:
            self._channel.notify(self._call, method, params)
