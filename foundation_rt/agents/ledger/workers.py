"""Executing claims on an event loop: those of one agent one after another, in their order.

Of an agent with several workers as many are executed at a time (AACP-190).

Claims with a priority go before those of lower ones that are not begun (AACP-122).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import define, field

from ...base.abort import AbortSignal, is_task_cancelled
from ...base.shown import Shown
from ...errors import AbortError, ErrorCode, StructuredError, ToolError, describe_exception
from ..errors import AgentNotFoundError, AgentUnregisteredError
from ..mailbox import current_entry
from ..messages import Handle, OutcomeWrite
from .node import Node
from .payloads import encode_result, keepable, read_message
from .types import Claim, Executed

if TYPE_CHECKING:
    from ...base.logs.logger import StructuredLogger
    from ..messages import OutcomeWrite
    from .coordinator import AgentCoordinatorV2

Run: TypeAlias = Callable[[Claim, AbortSignal], Awaitable["Executed | None"]]
"""Executes a claim. None means that it was not executed and is to be given back. An exception is no
outcome: the claim is given back too, and claimed again only after a delay."""


@define(eq=False, repr=False)
class _Execution(Shown):
    claim: Claim
    signal: AbortSignal = field(factory=AbortSignal)


@define(eq=False, repr=False)
class Workers:
    """The agents of a node that execute something: a queue for each, and as many tasks as it may.

    Args:
        run: executes a claim.
        kick: has the node's decisions performed soon.
        context: the context variables in which executions begin.
    """

    node: Node
    now_ms: Callable[[], int]
    logger: StructuredLogger
    run: Run
    kick: Callable[[], None]
    context: Context
    tasks: dict[str, set[asyncio.Task[None]]] = field(factory=dict, init=False)
    _queues: dict[str, deque[_Execution]] = field(factory=dict, init=False)
    # By the identity of the claim.
    _executions: dict[int, _Execution] = field(factory=dict, init=False)
    _stopping: bool = field(default=False, init=False)

    def execute(self, claim: Claim) -> None:
        """Execute a claim after those that its agent has, and before those of lower priority."""
        execution = _Execution(claim)
        if self._stopping:
            self._give_back(execution)
            return
        self._executions[id(claim)] = execution
        agent_id = claim.target_agent_id
        queue = self._queues.setdefault(agent_id, deque())
        if claim.priority:
            behind = sum(each.claim.priority >= claim.priority for each in queue)
            queue.insert(behind, execution)
        else:
            queue.append(execution)
        tasks = self.tasks.setdefault(agent_id, set())
        if len(tasks) < claim.workers:
            task = asyncio.get_running_loop().create_task(
                self._work(agent_id), context=self.context.copy()
            )
            tasks.add(task)
            task.add_done_callback(partial(self._clean_up_after, agent_id))

    def abandon(self, claim: Claim) -> None:
        """Abort the execution of a claim that was lost."""
        execution = self._executions.get(id(claim))
        if execution is not None:
            self.logger.warn("lease lost", claim.identity_fields)
            self._abort(execution, "lease_lost")

    def agent_of(self, task: asyncio.Task[object] | None) -> str | None:
        """Return the agent that executes in a task; from any thread."""
        return next((agent for agent, each in list(self.tasks.items()) if task in each), None)

    def give_back_waiting(self, agent_id: str) -> None:
        """Give back what an agent has not begun."""
        self._give_back_all(self._queues.get(agent_id, deque()))

    async def stop(self, grace: float) -> None:
        """Begin nothing more; abort and cancel what has not ended after `grace` seconds."""
        self._stopping = True
        for queue in self._queues.values():
            self._give_back_all(queue)
        if self.tasks and grace > 0:
            await asyncio.wait(self.all_tasks(), timeout=grace)
        for execution in list(self._executions.values()):
            self._abort(execution, "shutdown")
        for task in self.all_tasks():
            task.cancel()

    def all_tasks(self) -> set[asyncio.Task[None]]:
        """Return the tasks of all agents."""
        return set().union(*self.tasks.values())

    async def _work(self, agent_id: str) -> None:
        """Execute what an agent has been given; the task ends when nothing is left for it."""
        queue, tasks = self._queues[agent_id], self.tasks[agent_id]
        try:
            # It may have fewer workers than before: the last of the tasks goes on.
            while queue and len(tasks) <= queue[0].claim.workers:
                execution = queue.popleft()
                if self.node.claims.holds(execution.claim):
                    if not await self._has_ended(execution) and execution.claim.workers == 1:
                        self._give_back_all(queue)  # what is behind it waits for it (AACP-04)
                else:
                    self._forget(execution)
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._leave(agent_id, task)

    def _clean_up_after(self, agent_id: str, task: asyncio.Task[None]) -> None:
        """Clean up after a task that was cancelled before its first step."""
        if task in self.tasks.get(agent_id, ()):
            self._leave(agent_id, task)

    def _leave(self, agent_id: str, task: asyncio.Task[None]) -> None:
        self.tasks[agent_id].remove(task)
        if self.tasks[agent_id]:
            return
        del self.tasks[agent_id]
        self._give_back_all(self._queues.pop(agent_id))  # there is something if it was cancelled

    async def _has_ended(self, execution: _Execution) -> bool:
        """Execute a claim; return whether it has ended, and was not given back."""
        claim = execution.claim
        try:
            ended = await self.run(claim, execution.signal)
        except BaseException as error:
            self._give_back(execution, self._not_before_ms(claim, error), begun=True)
            if not isinstance(error, Exception):
                raise
            return False
        if ended is None:
            self._give_back(execution, begun=execution.signal.aborted)
            return False
        self._forget(execution)
        self.node.claims.executed(claim, ended, self.now_ms())
        self.kick()
        return True

    def _not_before_ms(self, claim: Claim, error: BaseException) -> int | None:
        """Return when a claim whose execution broke off may be claimed again; None for at once."""
        if self._stopping:
            return None
        described = {**claim.identity_fields, "error": describe_exception(error)}
        self.logger.error("claim not executed; it is tried again", described)
        return self.now_ms() + self.node.retransmitter.backoff_delay_ms(claim.executions)

    def _give_back(
        self, execution: _Execution, not_before_ms: int | None = None, *, begun: bool = False
    ) -> None:
        self._forget(execution)
        self.node.claims.give_back(execution.claim, not_before_ms, begun=begun)
        self.kick()

    def _give_back_all(self, queue: deque[_Execution]) -> None:
        while queue:
            self._give_back(queue.popleft())

    def _forget(self, execution: _Execution) -> None:
        self._executions.pop(id(execution.claim), None)

    def _abort(self, execution: _Execution, reason: str) -> None:
        for error in execution.signal.fire(reason):
            described = {**execution.claim.identity_fields, "error": describe_exception(error)}
            self.logger.error("abort callback failed", described)


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

    async def execute(self, claim: Claim, signal: AbortSignal) -> Executed | None:
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

    async def _handle(self, claim: Claim, signal: AbortSignal, handle: Handle) -> Executed:
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
            return Executed(result, None, partial(_write_all, writes) if writes else None)
        except ToolError as error:
            return Executed(None, keepable(error.to_structured()))
        except BaseException as error:
            if isinstance(error, TimeoutError) and limit is not None and limit.expired():
                return Executed(None, _timed_out(timeout_ms))
            if _is_stopped(error, signal):
                raise
            self._log_failure(claim, error)
            return Executed(None, StructuredError(ErrorCode.INTERNAL, "The agent failed."))

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
