"""Performs what a node decides, on an event loop, with tasks and timers.

Effects are performed in the order in which they were decided. Operations of the ledger and sends
run as tasks, of which the node keeps few; `workers` execute claims, `hooks` call the host.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define, field

from ...errors import describe_exception
from ..persistence import StoreError
from ..transports import AgentServedElsewhereError, TransportError
from .agent_limits import NO_LIMITS, AgentLimits
from .effects import (
    Abandon,
    Effect,
    Execute,
    FollowTime,
    NoticeReceived,
    NoticeSettled,
    Persist,
    ResolveWaiter,
    SendEnvelopes,
    WriteLog,
)
from .errors import OutcomeUnknownError
from .hooks import Hooks
from .lease_keeper import LeaseKeeper
from .node import Node
from .types import Envelope, LedgerNews
from .workers import Run, Workers

if TYPE_CHECKING:
    import asyncio

    from ...base.clock import Clock
    from ...base.logs.logger import StructuredLogger
    from ..persistence import AACPPersistenceAdapter
    from ..transports import AACPTransport

_CLOCK_STEP_S = 0.001


@define(eq=False, repr=False)
class _Line:
    """The waiters of one timeout: the first is the first to be late.

    Attributes:
        waiters: with the deadline, in the time of the loop, and the request id of each.
        timer: runs at the deadline of the first one, or earlier.
    """

    # Ordered: from a dict, removing the first one again and again takes longer each time.
    waiters: OrderedDict[asyncio.Future[Any], tuple[float, str]] = field(
        factory=OrderedDict, init=False
    )
    timer: asyncio.TimerHandle | None = field(default=None, init=False)


@define(eq=False, repr=False)
class Waiters:
    """The waiters of one event loop.

    Those of one timeout share a timer: with a timer each, 500 clients spent 3 us of a request's
    50 on them.
    """

    loop: asyncio.AbstractEventLoop
    _lines: dict[float | None, _Line] = field(factory=dict, init=False)

    def __len__(self) -> int:
        return sum(len(line.waiters) for line in self._lines.values())

    def open(self, timeout: float | None = None, request_id: str = "") -> asyncio.Future[Any]:
        """Return a new waiter; the caller closes it, in the end.

        Args:
            timeout: after so many seconds it fails with `OutcomeUnknownError`; None: never.
            request_id: for that error.
        """
        waiter: asyncio.Future[Any] = self.loop.create_future()
        line = self._lines.get(timeout)
        if line is None:
            line = self._lines[timeout] = _Line()
            if timeout is not None:
                self._set_timer(line, self.loop.time() + timeout, timeout)
        line.waiters[waiter] = (self.loop.time() + (timeout or 0), request_id)
        return waiter

    def close(self, waiter: asyncio.Future[Any], timeout: float | None = None) -> None:
        """Forget a waiter that was opened with this timeout."""
        line = self._lines.get(timeout)
        if line is None:
            return  # it was late, and the last one
        line.waiters.pop(waiter, None)
        if not line.waiters:
            del self._lines[timeout]
            if line.timer is not None:
                line.timer.cancel()

    def fail(self, why: str) -> None:
        """Fail all that still wait with `StoreError`."""
        for line in self._lines.values():
            for waiter in line.waiters:
                if not waiter.done():
                    waiter.set_exception(StoreError(why))

    def _expire(self, timeout: float, line: _Line) -> None:
        """Fail and forget what is late."""
        # Clocks of loops are as coarse as a millisecond: a timer may be early by that.
        now = self.loop.time() + _CLOCK_STEP_S
        while line.waiters:
            waiter, (deadline, request_id) = next(iter(line.waiters.items()))
            if deadline > now:
                self._set_timer(line, deadline, timeout)
                return
            del line.waiters[waiter]
            if not waiter.done():
                waiter.set_exception(OutcomeUnknownError(request_id))
        del self._lines[timeout]

    def _set_timer(self, line: _Line, at: float, timeout: float) -> None:
        # It serves all callers, and keeps the context variables of none.
        line.timer = self.loop.call_at(at, self._expire, timeout, line, context=Context())


T = TypeVar("T")

_LISTEN_RETRY_SECONDS = 1.0
_REFUSAL_RETRY_SECONDS = 5.0

_QUIET_SECONDS = 2.0
"""At the end, the time for the ledger to take what was decided; and again as long for handlers that
ignore their cancellation."""

_POLL_SECONDS = 0.01


class NodeClock:
    """Whole milliseconds since 1970 that do not jump with the machine's wall clock.

    It begins with that, goes by the monotonic time, and follows the clock of a ledger (AACP-33).
    """

    __slots__ = ("_clock", "_origin_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._origin_ms = self._wall_origin_ms()

    def __call__(self) -> int:
        return int(self._origin_ms + self._clock.monotonic() * 1000)

    def move(self, by_ms: int) -> None:
        """Set it forward by so many ms; negative: back."""
        self._origin_ms += by_ms

    def wall_off_ms(self) -> int:
        """Return how far the machine's wall clock is ahead of it, in ms."""
        return int(self._wall_origin_ms() - self._origin_ms)

    def _wall_origin_ms(self) -> float:
        return self._clock.now().timestamp() * 1000 - self._clock.monotonic() * 1000


@define(eq=False, repr=False)
class NodeRunner:
    """Runs one node.

    Args:
        run: executes a claim.
        hooks: are called with what the node notices.
    """

    node: Node
    store: AACPPersistenceAdapter
    transport: AACPTransport | None
    now_ms: NodeClock
    logger: StructuredLogger
    run: Run
    hooks: Hooks
    workers: Workers = field(init=False)
    waiters: Waiters = field(init=False)  # once it is started
    _keeper: LeaseKeeper | None = field(default=None, init=False)
    _loop: asyncio.AbstractEventLoop = field(init=False)
    # Tasks and timers serve all callers: they inherit the context variables of none.
    _context: Context = field(factory=Context, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _due_ms: int | None = field(default=None, init=False)
    # What is decided before the start is performed then.
    _kicked: bool = field(default=True, init=False)
    _stopping: bool = field(default=False, init=False)
    _over: bool = field(default=False, init=False)
    _stopped: asyncio.Event = field(factory=asyncio.Event, init=False)
    _tasks: set[asyncio.Task[Any]] = field(factory=set, init=False)
    _listening: set[asyncio.Task[Any]] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self.workers = Workers(
            self.node, self.now_ms, self.logger, self.run, self.kick, self._context
        )

    # -- its life -----------------------------------------------------------------------------

    async def start(self, agent_ids: Iterable[str]) -> None:
        """Open store and transport and resume what is pending (AACP-27).

        Args:
            agent_ids: those that get messages from other ledgers (AACP-42).

        Raises:
            StoreError, TransportError, UsageError: one of them cannot be used.
            AgentServedElsewhereError: another ledger serves one of the agents; nothing was taken.
        """
        self._loop = asyncio.get_running_loop()
        self.waiters = Waiters(self._loop)
        try:
            await self.store.open()
            self.node.exchange.incarnation = self.store.incarnation
            if self.transport is not None:
                self.transport.on_loss(self._on_loss)
                await self.transport.open(self.deliver, self.store.uid)
                # All at once: one that has to wait for an agent waits for all in that time.
                listening = map(self.transport.listen, agent_ids)
                for error in await asyncio.gather(*listening, return_exceptions=True):
                    if error is not None:
                        raise error
            ledger_ms = await self.store.read_time()
        except BaseException:
            await self._close()
            raise
        self.store.on_change(self._on_change)
        if ledger_ms is not None:
            self.now_ms.move(ledger_ms - self.now_ms())
        self._keep_leases()
        self.node.start()
        self._kicked = False
        self.kick()

    def _keep_leases(self) -> None:
        renewer = self.store.renewer()
        if renewer is not None:
            self._keeper = LeaseKeeper(
                self.node.claims.held.values,
                self.workers.agent_of,
                renewer,
                self.now_ms,
                self.node.settings.lease_ms,
                self.logger,
            )

    async def stop(self, grace: float, last: Callable[[], Awaitable[None]]) -> None:
        """Stop; a second call waits for the end of the first.

        Args:
            grace: seconds in which handlers may still end; then they are aborted and cancelled.
            last: called before the ledger is closed.
        """
        if self._stopping:
            await self._stopped.wait()
            return
        self._stopping = True
        try:
            await self._stop(grace)
        finally:
            try:
                await self._end()
                await last()
            finally:
                await self._close()
                self._stopped.set()

    async def _stop(self, grace: float) -> None:
        self.node.claims.stop()
        for task in self._listening:
            task.cancel()
        await self.workers.stop(grace)
        await self._settle_down()

    async def _settle_down(self) -> None:
        """Wait until the ledger has taken what was decided."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_QUIET_SECONDS):
                while self.workers.tasks or self._tasks or not self.node.operations.is_quiet:
                    pending = {*self.workers.all_tasks(), *self._tasks}
                    if pending:
                        await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                    else:
                        await asyncio.sleep(_POLL_SECONDS)

    async def _end(self) -> None:
        """Do nothing any more; fail the waiters that still wait for the ledger."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        self.waiters.fail(_CLOSED)
        leftovers = {*self.workers.all_tasks(), *self._tasks}
        for task in leftovers:
            task.cancel()
        if leftovers:
            _, running = await asyncio.wait(leftovers, timeout=_QUIET_SECONDS)
            if running:
                self.logger.warn("tasks did not end when they were cancelled", {"n": len(running)})

    async def _close(self) -> None:
        try:
            if self._keeper is not None:
                await self._keeper.stop()
            if self.transport is not None:
                with suppress(TransportError):
                    await self.transport.close()
        finally:
            await self.store.close()

    # -- for others ----------------------------------------------------------------

    async def deliver(self, envelopes: Sequence[Envelope]) -> None:
        """Enter envelopes that have come in; return when they are in the ledger (AACP-41).

        Raises:
            StoreError: they may not be in the ledger; they have to come again.
        """
        if self._stopping:
            raise StoreError(_CLOSED)
        waiter = self.waiters.open()
        try:
            self.node.exchange.deliver(envelopes, waiter, self.now_ms())
            self.kick()
            await waiter
        finally:
            self.waiters.close(waiter)

    def is_here(self) -> bool:
        """Return whether it runs on the running event loop."""
        return asyncio.get_running_loop() is self._loop

    def ask_from_thread(self, asking: Coroutine[Any, Any, T], timeout: float) -> T:
        """Return the result of a coroutine that runs on this event loop; from another thread.

        Args:
            asking: the coroutine; it is cancelled when the time is over.
            timeout: seconds.

        Raises:
            TimeoutError: it has not ended.
            StoreError: the event loop is closed.
        """
        try:
            future = asyncio.run_coroutine_threadsafe(asking, self._loop)
        except RuntimeError:
            asking.close()
            raise StoreError(_CLOSED) from None
        try:
            return future.result(timeout)
        finally:
            future.cancel()

    def kick(self) -> None:
        """Perform soon what the node has decided, in one go with what else happens until then."""
        if not (self._kicked or self._over):
            self._kicked = True
            self._loop.call_soon(self._perform, context=self._context)

    def add_agent(self, agent_id: str, limits: AgentLimits = NO_LIMITS) -> None:
        """Execute and receive messages for an agent that was registered."""
        self.node.claims.add_agent(agent_id, limits)
        self.listen(agent_id)
        self.kick()

    def listen(self, agent_id: str) -> None:
        """Receive messages of other ledgers for an agent from now on (AACP-42)."""
        if self.transport is not None:
            task = self._spawn(self._do_listen(self.transport, agent_id))
            self._listening.add(task)
            task.add_done_callback(self._listening.discard)

    async def _do_listen(self, transport: AACPTransport, agent_id: str) -> None:
        refusal = ""
        while True:
            try:
                await transport.listen(agent_id)
            except AgentServedElsewhereError as error:
                if str(error) != refusal:
                    refusal = str(error)
                    what = {"agentId": agent_id, "error": refusal}
                    self.logger.error("an agent is served by another ledger", what)
                await asyncio.sleep(_REFUSAL_RETRY_SECONDS)
            except TransportError as error:
                what = {"agentId": agent_id, "why": str(error)}
                self.logger.warn("cannot listen; it is tried again", what)
                await asyncio.sleep(_LISTEN_RETRY_SECONDS)
            else:
                return

    def remove_agent(self, agent_id: str) -> None:
        """Give back the claims that an agent that was unregistered has not begun.

        Its messages are still received: its queue stays in this ledger (AACP-42).
        """
        self.node.claims.remove_agent(agent_id)
        self.workers.give_back_waiting(agent_id)

    # -- performing ---------------------------------------------------------------------------

    def _perform(self) -> None:
        if self._over:
            return
        self._kicked = True  # what the node decides meanwhile is performed here
        while effects := self.node.take_effects(self.now_ms()):
            for effect in effects:
                try:
                    _PERFORM[type(effect)](self, effect)
                except Exception as error:  # a bug: it stays with this effect
                    what = {"effect": type(effect).__name__, "error": describe_exception(error)}
                    self.logger.error("internal error", what)
        self._kicked = False
        self._arm()

    def _arm(self) -> None:
        """Set the timer to the time at which the node's next tick is due."""
        due_ms = self.node.operations.wake_at_ms
        if due_ms == self._due_ms:
            return
        self._due_ms = due_ms
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ms is not None:
            delay = max(0, due_ms - self.now_ms()) / 1000
            self._timer = self._loop.call_later(delay, self._tick, context=self._context)

    def _tick(self) -> None:
        self._timer = self._due_ms = None
        self.node.operations.tick(self.now_ms())
        self._perform()

    def _on_change(self, news: LedgerNews | None) -> None:
        self.node.look_around(news)
        self.kick()

    def _on_loss(self, agent_id: str | None) -> None:
        self.node.exchange.resend(agent_id)
        self.kick()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine, context=self._context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _persist(self, effect: Persist) -> None:
        performing = self._do_persist(effect)
        if not self.store.immediate:
            task = self._spawn(performing)
            task.add_done_callback(partial(self._doubt_if_cancelled, effect))
            return
        # A task, and two turns of the loop, for an operation that never waits: 40 us a request.
        try:
            performing.send(None)
        except StopIteration:
            return
        performing.close()
        raise RuntimeError("an operation of an immediate store has waited")

    def _doubt_if_cancelled(self, persist: Persist, task: asyncio.Task[None]) -> None:
        """Report an operation as failed whose task the ending loop has cancelled."""
        if task.cancelled() and not self._over:
            self.node.failed(persist, StoreError("cancelled"), self.now_ms())
            self.kick()

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
        if not self._kicked:
            self.kick()

    def _send(self, effect: SendEnvelopes) -> None:
        if self.transport is not None:
            self._spawn(self._do_send(self.transport, effect.envelopes))

    async def _do_send(self, transport: AACPTransport, envelopes: list[Envelope]) -> None:
        """Send envelopes; what is lost is sent again when its next attempt is due (AACP-13).

        It is sent again earlier if the transport says that it may have lost some (AACP-100).
        """
        try:
            await transport.send(envelopes)
        except TransportError as error:
            self.logger.warn("envelopes not sent; they are sent again", {"why": str(error)})
        except Exception as error:
            self.logger.error("transport failed", {"error": describe_exception(error)})

    def _execute(self, effect: Execute) -> None:
        self.workers.execute(effect.claim)
        if self._keeper is not None:
            self._keeper.need()

    def _follow_time(self, effect: FollowTime) -> None:
        self.now_ms.move(effect.by_ms)
        self.node.time.followed(effect.by_ms, self.now_ms.wall_off_ms())

    def _notice(self, effect: NoticeReceived | NoticeSettled) -> None:
        self.hooks.notice(effect, self._spawn)


_CLOSED = "the ledger was closed before it could answer"


def _resolve(runner: NodeRunner, effect: ResolveWaiter) -> None:
    waiter: asyncio.Future[Any] = effect.waiter
    if waiter.done():
        return
    answer = effect.answer
    if not isinstance(answer, Exception):
        waiter.set_result(answer)
    elif isinstance(answer, StoreError):
        waiter.set_exception(answer)
    else:
        waiter.set_exception(StoreError(str(answer)))


_PERFORM: dict[type[Effect], Callable[[NodeRunner, Any], None]] = {
    Persist: NodeRunner._persist,
    SendEnvelopes: NodeRunner._send,
    ResolveWaiter: _resolve,
    Execute: NodeRunner._execute,
    Abandon: lambda runner, effect: runner.workers.abandon(effect.claim),
    FollowTime: NodeRunner._follow_time,
    NoticeReceived: NodeRunner._notice,
    NoticeSettled: NodeRunner._notice,
    WriteLog: lambda runner, effect: runner.logger.log(effect.level, effect.message, effect.fields),
}
