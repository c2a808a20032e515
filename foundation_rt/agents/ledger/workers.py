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
from typing import TYPE_CHECKING, TypeAlias

from attrs import define, field

from ...base.abort import AbortSignal
from ...base.shown import Shown
from ...errors import StructuredError, describe_exception
from .node import Node
from .types import Claim

if TYPE_CHECKING:
    from ...base.logs.logger import StructuredLogger
    from ..messages import OutcomeWrite

Ended: TypeAlias = "tuple[bytes | None, StructuredError | None, OutcomeWrite | None]"
"""The end of an execution: a result in JSON or an error, and the write that goes with it."""

Run: TypeAlias = Callable[[Claim, AbortSignal], Awaitable["Ended | None"]]
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
                if self.node.holds(execution.claim):
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
        result, failure, in_transaction = ended
        self.node.executed(claim, result, failure, self.now_ms(), in_transaction)
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
        self.node.give_back(execution.claim, self.now_ms(), not_before_ms, begun=begun)
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
