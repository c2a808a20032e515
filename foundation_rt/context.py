"""What a tool handler is given besides its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from .abort import AbortSignal
    from .logs import StructuredLogger


@define(eq=False, repr=False)
class ToolContext:
    """The call a handler is serving (CALL-11).

    Attributes:
        run_id: UUID v4 of this invocation.
        correlation_id: the client's correlation id, or a generated one.
        abort_signal: fires when nobody waits for the result any more.
    """

    run_id: str
    correlation_id: str
    abort_signal: AbortSignal
    _base_logger: StructuredLogger
    _logger: StructuredLogger | None = field(default=None, init=False)

    @property
    def logger(self) -> StructuredLogger:
        """A logger whose lines carry this call's ids; made when first asked for."""
        if self._logger is None:
            self._logger = self._base_logger.child(
                {"runId": self.run_id, "correlationId": self.correlation_id}
            )
        return self._logger
