"""Does what a node decides, on an event loop: the only place of AACP that knows tasks and timers.

Effects are performed in the order in which they were decided. Operations of the ledger and sends
run as tasks, of which the node keeps few; claims are executed one after another for each agent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import define, field

from ..abort import AbortSignal
from ..errors import StructuredError, describe_exception
from .node import (
    Abandon,
    Effect,
    Execute,
    Node,
    NoticeReceived,
    NoticeSettled,
    Persist,
    Send,
    Tell,
)
from .persistence import StoreError
from .transports import TransportError
from .types import Claim, Envelope

if TYPE_CHECKING:
    from ..clock import Clock
    from ..logs import StructuredLogger
    from .persistence import AACPPersistenceAdapter
    from .transports import AACPTransport

Ended: TypeAlias = tuple[bytes | None, StructuredError | None]
"""How an execution ended: a result in JSON, or an error."""

Run: TypeAlias = Callable[[Claim, AbortSignal], Awaitable["Ended | None"]]
"""Executes a claim; None means that it was not, and is to be given back. It raises nothing."""

_LISTEN_RETRY_SECONDS = 1.0

_QUIET_SECONDS = 2.0  # in which, at the end, the ledger may still take what was decided


class NodeClock:
    """Whole milliseconds since 1970: the wall clock, read once, and what has passed since then.

    So the time of a node never jumps while it lives; leases and attempts are measured with it.
    """

    __slots__ = ("_clock", "_origin_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._origin_ms = clock.now().timestamp() * 1000 - clock.monotonic() * 1000

    def __call__(self) -> int:
        return int(self._origin_ms + self._clock.monotonic() * 1000)


@define(eq=False, repr=False)
class _Execution:
    claim: Claim
    signal: AbortSignal = field(factory=AbortSignal)


@define(eq=False, repr=False)
class Driver:
    """Runs one node.

    Args:
        run: executes a claim.
        on_received, on_settled: are told what the node notices (AACP-29).
    """

    node: Node
    store: AACPPersistenceAdapter
    transport: AACPTransport | None
    now_ms: NodeClock
    logger: StructuredLogger
    run: Run
    on_received: Callable[[Envelope], Awaitable[None]] | None = None
    on_settled: Callable[[str, StructuredError | None], Awaitable[None]] | None = None
    _loop: asyncio.AbstractEventLoop = field(init=False)
    # What runs for all is not part of whatever happens to have caused it.
    _context: Context = field(factory=Context, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _kicked: bool = field(default=False, init=False)
    _tasks: set[asyncio.Task[Any]] = field(factory=set, init=False)
    # By agent: what it has to execute, and the task that does.
    _queues: dict[str, deque[_Execution]] = field(factory=dict, init=False)
    _workers: dict[str, asyncio.Task[None]] = field(factory=dict, init=False)
    _executions: dict[int, _Execution] = field(factory=dict, init=False)
    _notices: deque[NoticeReceived | NoticeSettled] = field(factory=deque, init=False)
    _noticing: asyncio.Task[None] | None = field(default=None, init=False)

    # -- its life -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Open store and transport and resume what is pending (AACP-27).

        Raises:
            StoreError, TransportError, UsageError: one of them cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        await self.store.open()
        try:
            if self.transport is not None:
                await self.transport.open(self.deliver)
        except BaseException:
            await self.store.close()
            raise
        self.store.on_change(self._on_change)
        self.node.start(self.now_ms())
        self.kick()

    async def stop(self, grace: float) -> None:
        """Stop: handlers may end within `grace` seconds, then they are aborted and cancelled."""
        self.node.stop()
        for queue in self._queues.values():
            while queue:
                self._give_back(queue.pop())
        if self._workers and grace > 0:
            await asyncio.wait(self._workers.values(), timeout=grace)
        for execution in list(self._executions.values()):
            execution.signal.fire("shutdown")
        for worker in list(self._workers.values()):
            worker.cancel()
        if self.transport is not None:
            with suppress(TransportError):
                await self.transport.close()
        await self._settle_down()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._workers.values(), return_exceptions=True)
        await self.store.close()

    async def _settle_down(self) -> None:
        """Let the ledger take what was decided."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_QUIET_SECONDS):
                while self._workers or self._tasks or not self.node.is_quiet:
                    pending = {*self._workers.values(), *self._tasks}
                    if pending:
                        await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                    else:
                        await asyncio.sleep(0)

    # -- what others ask of it ----------------------------------------------------------------

    async def deliver(self, envelopes: Sequence[Envelope]) -> None:
        """Envelopes have come in; returns when they are in the ledger (AACP-41).

        Raises:
            StoreError: they may not be; they have to come again.
        """
        ticket = self._loop.create_future()
        self.node.deliver(envelopes, ticket, self.now_ms())
        self.kick()
        await ticket

    def kick(self) -> None:
        """Something was told to the node: soon do what it decides, with what else happens."""
        if not self._kicked:
            self._kicked = True
            self._loop.call_soon(self._perform, context=self._context)

    def add_agent(self, agent_id: str) -> None:
        """An agent was registered: execute, and receive, what is for it."""
        self.node.add_agent(agent_id, self.now_ms())
        self.listen(agent_id)
        self.kick()

    def listen(self, agent_id: str) -> None:
        """Receive what other ledgers have for an agent, from now on (AACP-42)."""
        if self.transport is not None:
            self._spawn(self._do_listen(self.transport, agent_id))

    async def _do_listen(self, transport: AACPTransport, agent_id: str) -> None:
        while True:
            try:
                await transport.listen(agent_id)
            except TransportError as error:
                what = {"agentId": agent_id, "why": str(error)}
                self.logger.warn("cannot listen; it is tried again", what)
                await asyncio.sleep(_LISTEN_RETRY_SECONDS)
            else:
                return

    def remove_agent(self, agent_id: str) -> None:
        """An agent was unregistered: give back what it has not begun.

        Its messages are still received: its queue is in this ledger, whoever executes it (AACP-42).
        """
        self.node.remove_agent(agent_id)
        queue = self._queues.get(agent_id)
        while queue:
            self._give_back(queue.popleft())

    # -- performing ---------------------------------------------------------------------------

    def _perform(self) -> None:
        self._kicked = False
        for effect in self.node.take_effects():
            _PERFORM[type(effect)](self, effect)
        self._arm()

    def _arm(self) -> None:
        """Be back when the node wants to know that time has passed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self.node.wake_at_ms
        if due_ms is not None:
            delay = max(0, due_ms - self.now_ms()) / 1000
            self._timer = self._loop.call_later(delay, self._tick, context=self._context)

    def _tick(self) -> None:
        self._timer = None
        self.node.tick(self.now_ms())
        self._perform()

    def _on_change(self) -> None:
        self.node.look_around(self.now_ms())
        self.kick()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine, context=self._context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _persist(self, effect: Persist) -> None:
        self._spawn(self._do_persist(effect))

    async def _do_persist(self, persist: Persist) -> None:
        operation = getattr(self.store, persist.operation.value)
        try:
            result = await operation(*persist.arguments)
        except Exception as error:
            what = {"operation": persist.operation.value, "error": describe_exception(error)}
            self.logger.error("ledger operation failed; it is repeated", what)
            self.node.failed(persist, error, self.now_ms())
        else:
            self.node.persisted(persist, result, self.now_ms())
        self.kick()

    def _send(self, effect: Send) -> None:
        if self.transport is not None:
            self._spawn(self._do_send(self.transport, effect.envelopes))

    async def _do_send(self, transport: AACPTransport, envelopes: list[Envelope]) -> None:
        try:
            await transport.send(envelopes)
        except TransportError as error:
            self.logger.warn("envelopes not sent; they are sent again", {"why": str(error)})
        except Exception as error:
            self.logger.error("transport failed", {"error": describe_exception(error)})

    def _tell(self, effect: Tell) -> None:
        ticket: asyncio.Future[Any] = effect.ticket
        if ticket.done():
            return
        if isinstance(effect.answer, StoreError):
            ticket.set_exception(effect.answer)
        elif isinstance(effect.answer, Exception):
            ticket.set_exception(StoreError(str(effect.answer)))
        else:
            ticket.set_result(effect.answer)

    # -- executing ----------------------------------------------------------------------------

    def _execute(self, effect: Execute) -> None:
        execution = _Execution(effect.claim)
        self._executions[id(effect.claim)] = execution
        agent_id = effect.claim.target_agent_id
        self._queues.setdefault(agent_id, deque()).append(execution)
        if agent_id not in self._workers:
            self._workers[agent_id] = self._loop.create_task(
                self._work(agent_id), context=self._context.copy()
            )

    async def _work(self, agent_id: str) -> None:
        """Execute what an agent has been given, in order; the task ends when nothing is left."""
        queue = self._queues[agent_id]
        execution: _Execution | None = None
        try:
            while queue:
                execution = queue.popleft()
                ended = await self.run(execution.claim, execution.signal)
                if ended is None:
                    self._give_back(execution)
                else:
                    self._executions.pop(id(execution.claim), None)
                    self.node.executed(execution.claim, *ended, self.now_ms())
                    self.kick()
                execution = None
        finally:
            if execution is not None:  # cancelled
                self._give_back(execution)
            del self._workers[agent_id]
            if not queue:
                del self._queues[agent_id]

    def _give_back(self, execution: _Execution) -> None:
        self._executions.pop(id(execution.claim), None)
        self.node.give_back(execution.claim, self.now_ms())
        self.kick()

    def _abandon(self, effect: Abandon) -> None:
        execution = self._executions.get(id(effect.claim))
        if execution is None:
            return
        self.logger.warn("lease lost", {"requestId": effect.claim.request_id})
        for error in execution.signal.fire("lease_lost"):
            self.logger.error("abort callback failed", {"error": describe_exception(error)})

    # -- hooks --------------------------------------------------------------------------------

    def _notice(self, effect: NoticeReceived | NoticeSettled) -> None:
        self._notices.append(effect)
        if self._noticing is None:
            self._noticing = self._spawn(self._do_notice())

    async def _do_notice(self) -> None:
        """Call the hooks, one at a time and in order; one that fails is logged (AACP-29)."""
        try:
            while self._notices:
                notice = self._notices.popleft()
                try:
                    await self._call_hook(notice)
                except Exception as error:
                    self.logger.error("hook failed", {"error": describe_exception(error)})
        finally:
            self._noticing = None

    async def _call_hook(self, notice: NoticeReceived | NoticeSettled) -> None:
        if isinstance(notice, NoticeReceived):
            if self.on_received is not None:
                await self.on_received(notice.envelope)
        elif self.on_settled is not None:
            await self.on_settled(notice.message_id, notice.error)


_PERFORM: dict[type[Effect], Callable[[Driver, Any], None]] = {
    Persist: Driver._persist,
    Send: Driver._send,
    Tell: Driver._tell,
    Execute: Driver._execute,
    Abandon: Driver._abandon,
    NoticeReceived: Driver._notice,
    NoticeSettled: Driver._notice,
}
