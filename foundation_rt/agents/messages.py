"""The arguments of an agent's handler: a message and its context."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from ..errors import UsageError
from ..kernel.registry.tools import is_async_callable

if TYPE_CHECKING:
    from ..base.abort import AbortSignal
    from ..base.logs.logger import StructuredLogger
    from .state import AgentState


@frozen
class AgentMessage:
    """A message from an agent or a host to an agent; it arrives as it was sent (AGENT-03).

    Args:
        type: the kind of message; agents define their own.
        payload: any value. Within a process it is passed on, not copied.
        source_agent_id: the sender, if an agent sends it and wants that to be known.
    """

    type: str
    payload: Any = None
    source_agent_id: str | None = None


@define(eq=False, repr=False)
class AgentContext:
    """The context of the message that an agent is handling (AGENT-04).

    Attributes:
        agent_id: of the agent.
        state: the agent's own, in memory; no other handler touches it meanwhile.
        abort_signal: fires when the result is no longer wanted.
        correlation_id: of the chain of requests that the message belongs to.
    """

    agent_id: str
    state: AgentState
    abort_signal: AbortSignal
    correlation_id: str
    _base_logger: StructuredLogger
    _logger: StructuredLogger | None = field(default=None, init=False)
    _writes: list[OutcomeWrite] | None = field(default=None, init=False)

    def in_outcome(self, write: OutcomeWrite) -> None:
        """Have ``await write(connection)`` called in the transaction that records the outcome.

        What it writes is committed once, if and only if this message is COMPLETED (AACP-05). It is
        called after the handler has returned, and not if the handler raises. When `write` raises,
        the message FAILED.

        Args:
            write: called with the ledger's connection, a ``psycopg.AsyncConnection`` in a
                transaction, which it must not end. It may be called again when the transaction
                has to be repeated.

        Raises:
            UsageError: this message did not come through a ledger that can do that, its handler
                has ended, or `write` is not `async def`.
        """
        if self._writes is None:
            raise UsageError(
                "in_outcome() is for the handlers of messages sent by send_request or"
                " send_reliable_message through a ledger in PostgreSQL: set aacp.store to"
                " postgresql://..., and call it before the handler returns"
            )
        if not is_async_callable(write):
            raise UsageError("what in_outcome() is given must be async def write(connection)")
        self._writes.append(write)

    def begin_writes(self) -> None:
        """Let `in_outcome` take writes from now on; for the recorder of the outcome."""
        self._writes = []

    def end_writes(self) -> list[OutcomeWrite]:
        """Return the writes that `in_outcome` was given; it takes no more."""
        writes, self._writes = self._writes or [], None
        return writes

    @property
    def base_logger(self) -> StructuredLogger:
        """The logger of the message's sender; its lines do not name the agent."""
        return self._base_logger

    @property
    def logger(self) -> StructuredLogger:
        """A logger whose lines carry the agent's id and the correlation id.

        They also carry the run id of the tool call, if there is one. It is made at its first use.
        """
        if self._logger is None:
            self._logger = self._base_logger.child(
                {"agentId": self.agent_id, "correlationId": self.correlation_id}
            )
        return self._logger


OutcomeWrite = Callable[[Any], Awaitable[None]]
"""Writes something through the connection of a ledger."""

AgentHandler = Callable[[AgentMessage, AgentContext], Awaitable[Any]]
"""The handler of an agent: an `async def` that takes a message and returns the response."""

Handle = Callable[[AgentMessage], Awaitable[Any]]
"""Calls the handler of the agent whose turn it is."""
