"""How an agent executes what was claimed for it: in its turn, and to a recorded end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define

from ...abort import AbortSignal, is_task_cancelled
from ...errors import AbortError, ErrorCode, StructuredError, ToolError, describe_exception
from ..errors import AgentNotFoundError, AgentUnregisteredError
from ..mailbox import current_turn
from ..messages import Handle, Write
from .payloads import encode_result, keepable, read_message
from .types import Claim

if TYPE_CHECKING:
    from ...logs.logger import StructuredLogger
    from ..local import AgentCoordinator
    from .workers import Ended

_NO_LIMIT = 2**62
"""The queue of an agent has room for what it has claimed: that is one at a time."""


@define(eq=False, repr=False)
class Executor:
    """Has the agents of a coordinator execute claims.

    Args:
        takes_writes: whether handlers may write with their outcome (AACP-05).
        max_result_bytes: gives the size of the largest result.
    """

    coordinator: AgentCoordinator
    logger: StructuredLogger
    takes_writes: bool
    max_result_bytes: Callable[[], int]

    async def execute(self, claim: Claim, signal: AbortSignal) -> Ended | None:
        """Have the agent handle what was claimed for it, in its turn.

        Whatever the handler raises is an outcome, `SystemExit` included (ERR-05).

        Returns:
            None if it did not begin, or was stopped: another may execute it.
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
        turn = current_turn()
        assert turn is not None
        if self.takes_writes:
            turn.context.begin_writes()
        try:
            result = encode_result(await handle(read_message(claim)), self.max_result_bytes())
            writes = turn.context.end_writes()
            return result, None, partial(_write_all, writes) if writes else None
        except ToolError as error:
            return None, keepable(error.to_structured()), None
        except BaseException as error:
            if _is_stopped(error, signal):
                raise
            self._log_failure(claim, error)
            return None, StructuredError(ErrorCode.INTERNAL, "The agent failed."), None

    def _log_failure(self, claim: Claim, error: BaseException) -> None:
        fields = {**claim.identity_fields, "error": describe_exception(error)}
        self.logger.error("agent handler failed", fields)


async def _write_all(writes: list[Write], connection: Any) -> None:
    for write in writes:
        await write(connection)


def _is_stopped(error: BaseException, signal: AbortSignal) -> bool:
    """Return whether a handler ended because it was told to, and not of its own accord."""
    if isinstance(error, asyncio.CancelledError):
        return is_task_cancelled()
    return isinstance(error, AbortError) and signal.aborted
