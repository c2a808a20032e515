"""Execute one claim by its agent, when it is the agent's turn; return an outcome to record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define

from ...base.abort import AbortSignal, is_task_cancelled
from ...errors import AbortError, ErrorCode, StructuredError, ToolError, describe_exception
from ..errors import AgentNotFoundError, AgentUnregisteredError
from ..mailbox import current_entry
from ..messages import Handle, OutcomeWrite
from .payloads import encode_result, keepable, read_message
from .types import Claim

if TYPE_CHECKING:
    from ...base.logs.logger import StructuredLogger
    from .coordinator import AgentCoordinatorV2
    from .workers import Ended

_NO_LIMIT = 2**62
"""For the mailbox of an agent, which has one claim at a time to take."""


@define(eq=False, repr=False)
class Executor:
    """Executes claims by the agents of a coordinator.

    Args:
        takes_writes: whether handlers may write with their outcome (AACP-05).
        max_result_bytes: returns the size of the largest result.
        begun: called with the agent whose handler begins.
    """

    coordinator: AgentCoordinatorV2
    logger: StructuredLogger
    takes_writes: bool
    max_result_bytes: Callable[[], int]
    begun: Callable[[str], None]

    async def execute(self, claim: Claim, signal: AbortSignal) -> Ended | None:
        """Have the agent handle a claim in its turn.

        Every exception of the handler is an outcome, `SystemExit` included (ERR-05).

        Returns:
            None if it did not begin, or was stopped: it may be executed again.
        """
        try:
            return await self.coordinator.run_in_turn(
                claim.target_agent_id,
                partial(self._handle, claim, signal),
                abort_signal=signal,
                correlation_id=claim.request_id,
                max_queue=_NO_LIMIT,
            )
        except (AbortError, AgentNotFoundError, AgentUnregisteredError):
            return None

    async def _handle(self, claim: Claim, signal: AbortSignal, handle: Handle) -> Ended:
        entry = current_entry()
        assert entry is not None
        self.begun(claim.target_agent_id)
        if self.takes_writes:
            entry.context.begin_writes()
        timeout_ms = self.coordinator.execution_timeout_ms(claim.target_agent_id)
        # `asyncio.timeout(None)` would cost every message 1.5 us.
        limit = None if timeout_ms is None else asyncio.timeout(timeout_ms / 1000)
        try:
            if limit is None:
                answer = await handle(read_message(claim))
            else:
                async with limit:
                    answer = await handle(read_message(claim))
            result = encode_result(answer, self.max_result_bytes())
            writes = entry.context.end_writes()
            return result, None, partial(_write_all, writes) if writes else None
        except ToolError as error:
            return None, keepable(error.to_structured()), None
        except BaseException as error:
            if isinstance(error, TimeoutError) and limit is not None and limit.expired():
                return None, _timed_out(timeout_ms), None
            if _is_stopped(error, signal):
                raise
            self._log_failure(claim, error)
            return None, StructuredError(ErrorCode.INTERNAL, "The agent failed."), None

    def _log_failure(self, claim: Claim, error: BaseException) -> None:
        fields = {**claim.identity_fields, "error": describe_exception(error)}
        self.logger.error("agent handler failed", fields)


def _timed_out(timeout_ms: int | None) -> StructuredError:
    return StructuredError(
        ErrorCode.TIMEOUT,
        f"The agent took longer than {timeout_ms} ms.",
        {"reason": "execution_timeout"},
    )


async def _write_all(writes: list[OutcomeWrite], connection: Any) -> None:
    for write in writes:
        await write(connection)


def _is_stopped(error: BaseException, signal: AbortSignal) -> bool:
    """Return whether a handler ended because it was stopped, not by itself."""
    if isinstance(error, asyncio.CancelledError):
        return is_task_cancelled()
    return isinstance(error, AbortError) and signal.aborted
