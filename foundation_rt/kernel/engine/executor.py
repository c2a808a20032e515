"""The engine runs handlers: with tasks, threads, deadlines and abort signals.

From the start to the end of a handler the engine holds exactly one `RunningCall` for it. The end is
reported once to the dispatcher, which gives the slot back and decides the reply and the record
(CALL-09). A handler runs in one of three ways:

* `async def`: a task on the connection's event loop;
* `def`: in a worker thread;
* inline: in place, for handlers that take microseconds; and an `async def` that never waits
  (CALL-44).

An awaitable that a handler returns is awaited in a task, wherever the handler ran (CALL-40).
With middleware every call is a task, in which the handler is called in its own way (OPS-09).

The second half of the first way, and of calls with middleware, is `coroutines`.

The deadline answers and aborts; it stops nothing. A coroutine that runs for `cancel_grace_ms` after
its abort is cancelled at its next await, or at once where its kind has no grace; a thread cannot be
stopped (TIME-04, FWD-31).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from attrs import define

from ...base.abort import AbortSignal
from ...base.clock import Clock
from ...base.config.settings import ServerConfig
from ...base.shown import Shown
from ...errors import AbortError, describe_exception, has_type
from ...protocol.methods import TOOLS_CALL
from ..call_lifecycle import Hooks
from ..dispatcher import Dispatcher
from ..effects import Reply
from ..invocation import PENDING, CallOutcome, Invocation, Phase, Raised, Returned, Stopped
from ..registry.tools import BRIEF, INLINE, ExecutionMode
from . import deadlines
from .worker_threads import WorkerPool

if TYPE_CHECKING:
    import asyncio

    from ...base.logs.logger import StructuredLogger
    from ...base.timers import Timer
    from ..effects import Effect, Performed
    from .connection import Connection
    from .coroutines import CoroutineRunner
    from .directory import SessionDirectory


_T = TypeVar("_T")

Emit = Callable[["list[Effect]"], "list[Performed]"]
"""`Connection.emit` or `Connection.emit_from_thread`."""

Proceed = Callable[[], Awaitable[Any]]
"""Runs a handler, or a handler with middleware around it."""


_IN_PLACE = (INLINE, BRIEF)
_PLAIN = frozenset((dict, list, tuple, str, int, float, bool, type(None)))


def is_awaitable(kind: type) -> bool:
    """Return whether values of a type may be awaited.

    Not by `hasattr` alone: for a type without the method Python makes an error, and drops it. That
    is 1.5 % of a call, and most handlers return a value of a few types.
    """
    return kind not in _PLAIN and hasattr(kind, "__await__")


class HandlerContext(Protocol):
    """The context of a call, as far as the kernel uses it; see `Engine.make_context`."""

    @property
    def abort_signal(self) -> AbortSignal:
        """Return the signal that fires when the result is no longer needed."""

    @property
    def logger(self) -> StructuredLogger:
        """Return a logger whose records carry the ids of the call."""


MakeContext = Callable[
    [str, str, AbortSignal, "StructuredLogger", Invocation, "Connection", Any], HandlerContext
]
"""Makes the context of a call; see `Engine`."""


class HoldsState(Protocol):
    """Holds the state that handlers get, from `start` to `stop`."""

    @property
    def state(self) -> Any:
        """Return the state of the application, as its lifespan has made it."""

    @property
    def after_initialize(self) -> bool:
        """Return whether `initialize` may be answered before the start."""

    @property
    def is_open(self) -> bool:
        """Return whether it has been started and not been stopped."""

    @property
    def holders(self) -> int:
        """Return how many have started it and not stopped it."""

    async def start(self) -> None:
        """Start, or wait until another holder has done so."""

    async def stop(self, timeout: float) -> None:
        """Stop, if this is the last holder, in `timeout` seconds at most."""


@define(eq=False, repr=False)
class RunningCall(Shown):
    """A call whose handler has been started and has not ended.

    Attributes:
        started: the start of the handler, in monotonic seconds.
        due: the deadline, in monotonic seconds; infinite if there is none.
        ending: the handler has ended, and its end is being reported.
        waits: how many of its server requests are open; the deadline is paused meanwhile.
        waits_since: when the deadline was paused, in monotonic seconds.
        threads: within middleware, how many worker threads run the handler.
        left: how the task ended, if it ended before those threads.
        finishers: called in turn with how the handler has ended, in a thread that may wait; each
            returns how the call is to end.
        reply_bytes: the length of its reply.
    """

    connection: Connection
    call: Invocation
    context: HandlerContext
    started: float
    deadline: Timer | None = None
    cancellation: Timer | None = None
    coroutine: Coroutine[Any, Any, None] | None = None
    task: asyncio.Task[None] | None = None
    ended: bool = False
    due: float = math.inf
    ending: bool = False
    waits: int = 0
    waits_since: float = 0.0
    threads: int = 0
    left: CallOutcome | None = None
    finishers: tuple[Callable[[CallOutcome], CallOutcome], ...] = ()
    reply_bytes: int = 0

    @property
    def signal(self) -> AbortSignal:
        """Return the abort signal of the handler."""
        return self.context.abort_signal


class Engine:
    """Runs handlers for all connections of a server.

    Args:
        config: the configuration of the server.
        directory: finds the sessions of the server.
        make_context: makes the context of a call, of its two ids, its abort signal, the logger of
            its session, itself, its connection and the state of the application.
        lifespan: holds the state for handlers; None if there are no hooks.

    Attributes:
        on_idle: called, from any thread, when the last running handler has ended; may be None.
        on_unanswered: called, from any thread, with None when a tool call will not be answered,
            and again with the outcome of its handler (AACP-28).
        around: puts the middleware of the server around a handler; None if there is none.
        dependency_overrides: by function of a dependency, the one that is called instead.
        is_one_of_several: this process is one of several workers.
        parts: what features keep for the server, by the class of that; see `part`.
        starting, forgetting, ended: the hooks of features; see `RuntimeFeature.starting`,
            `RuntimeFeature.forget` and `RuntimeFeature.session_ended`.
        opening: the hooks of features for new sessions; see `RuntimeFeature.opening`.
    """

    opening: Hooks = ()
    starting: Hooks = ()
    forgetting: Hooks = ()
    ended: Hooks = ()

    def __init__(
        self,
        dispatcher: Dispatcher,
        clock: Clock,
        config: ServerConfig,
        workers: WorkerPool,
        directory: SessionDirectory,
        make_context: MakeContext,
        lifespan: HoldsState | None = None,
    ) -> None:
        self.dispatcher = dispatcher
        self.clock = clock
        self.config = config
        self.workers = workers
        self.directory = directory
        self.make_context = make_context
        self.lifespan = lifespan
        self.on_idle: Callable[[], object] | None = None
        self.on_unanswered: Callable[[Invocation, CallOutcome | None], object] | None = None
        self.around: Callable[[Invocation, Proceed], Proceed] | None = None
        self.dependency_overrides: Mapping[Callable[..., Any], Callable[..., Any]] = {}
        self.is_one_of_several = False
        self.parts: dict[type, Any] = {}
        self._ended_sessions: dict[Connection, str] = {}
        self._runs: dict[str, RunningCall] = {}
        self._inline: RunningCall | None = None
        self._coroutines: CoroutineRunner | None = None
        self._ended = threading.Condition()
        self._waiting = 0

    @property
    def running(self) -> list[Invocation]:
        """Return the calls whose handlers have not ended, answered or not."""
        return [run.call for run in list(self._runs.values())]

    def renew_locks(self) -> None:
        """Replace the locks that a thread left behind by a fork may hold (PROC-12)."""
        for run in self._runs.values():
            run.connection.lock = threading.RLock()

    def start(self, connection: Connection, call: Invocation) -> None:
        """Run the handler of `call`: step 8 of a call."""
        context = self.make_context(
            call.run_id,
            call.correlation_id,
            AbortSignal(),
            connection.session.logger,
            call,
            connection,
            None if self.lifespan is None else self.lifespan.state,
        )
        run = RunningCall(connection, call, context, self.clock.monotonic())
        self._runs[call.run_id] = run
        if call.phase is not PENDING:
            # Another thread closed the connection after the decision to start the handler.
            self.abort(call, "disconnected")
        if call.execution is BRIEF:
            self._place(run)
        if call.execution in _IN_PLACE and self.around is None:
            self._inline = run
            try:
                outcome = self.run_in_place(run, variables := copy_context())
                if isinstance(outcome, Returned) and is_awaitable(type(outcome.value)):
                    self._await_result(run, outcome.value, variables)
                else:
                    self.finish(run, outcome)
                del outcome  # this frame is reachable from its traceback; see `CoroutineRunner.run`
            except BaseException as error:
                self.finish(run, Raised(error))
                raise
            finally:
                self._inline = None
            return
        try:
            self._launch(run)
        except BaseException as error:
            # No thread is available, or the host's loop is closed: the call ends before its start.
            if run.coroutine is not None:
                run.coroutine.close()
            self.finish(run, Raised(error))
            if not isinstance(error, Exception):
                raise

    def _place(self, run: RunningCall) -> None:
        """Leave a coroutine that never waits in place, or make it a task (CALL-44)."""
        run.due = run.started + run.call.timeout_ms / 1000
        if self.around or self.starting or not run.connection.scheduler.can_step():
            run.call.execution = ExecutionMode.ASYNC

    def _launch(self, run: RunningCall) -> None:
        run.due = run.started + run.call.timeout_ms / 1000
        if self._is_task(run.call):
            coroutines = self._coroutines or self.coroutines
            run.coroutine = coroutines.run(run)
            run.connection.scheduler.start_task(run.coroutine, partial(coroutines.started, run))
        else:
            deadlines.arm(run, run.started, self.expire)
            self.workers.submit(partial(self._run_in_thread, run))

    @property
    def coroutines(self) -> CoroutineRunner:
        """Return what runs the handlers that need an event loop; made for the first of them."""
        if self._coroutines is None:
            from .coroutines import CoroutineRunner

            self._coroutines = self.part(CoroutineRunner)
        return self._coroutines

    def _is_task(self, call: Invocation) -> bool:
        return call.execution is ExecutionMode.ASYNC or self.around is not None

    def has_started(self, call: Invocation) -> bool:
        """Return whether the handler of `call` was started and has not ended."""
        return call.run_id in self._runs

    def abort(self, call: Invocation, reason: str) -> None:
        """Fire the signal of a call; a task still running after the grace is cancelled."""
        run = self._runs.get(call.run_id)
        if run is None:
            return
        if call.phase is not Phase.EXPIRED:
            self._note_unanswered(call, None)
        for error in run.signal.fire(reason):
            run.context.logger.error("abort callback failed", {"error": describe_exception(error)})
        if self._is_task(call) and not run.ending:
            self._cancel_later(run)

    def extend(self, call: Invocation, timeout_ms: int) -> None:
        """Give a call whose deadline has passed another one, `timeout_ms` from now."""
        run = self._runs.get(call.run_id)
        if run is None:
            return
        with run.connection.lock:
            if not run.ended:
                now = self.clock.monotonic()
                run.due = now + timeout_ms / 1000
                deadlines.arm(run, now, self.expire)

    def pause_deadline(self, call: Invocation) -> None:
        """Stop the deadline of a call that waits for its client (ASK-17)."""
        run = self._runs.get(call.run_id)
        if run is None:
            return
        with run.connection.lock:
            deadlines.pause(run, self.clock.monotonic())

    def resume_deadline(self, call: Invocation) -> None:
        """Let the deadline of a call go on: its handler waits no longer."""
        run = self._runs.get(call.run_id)
        if run is None:
            return  # the process is ending, and has given the call up
        with run.connection.lock:
            deadlines.resume(run, self.clock.monotonic(), self.expire)

    def end_session(self, connection: Connection, key: str) -> None:
        """Report the end of a session as soon as none of its handlers runs (LIFE-18)."""
        self.directory.forget_key(key)
        if self.ended:
            self._ended_sessions[connection] = key
            self._report_session_end(connection)

    def _report_session_end(self, connection: Connection) -> None:
        """Report a session that has ended, unless a handler of it runs.

        The calls of the stateless mode that came over the same connection are not of the session.
        """
        for run in list(self._runs.values()):
            if run.connection is connection and not run.call.peer.revision.is_stateless:
                return
        key = self._ended_sessions.pop(connection, None)
        if key is not None:
            for ended in self.ended:
                ended(key)

    def run_of(self, call: Invocation) -> RunningCall | None:
        """Return the run of a call; None once its handler has ended."""
        return self._runs.get(call.run_id)

    def part(self, cls: type[_T]) -> _T:
        """Return what a feature keeps for the server; made, with the engine, when first needed."""
        found = self.parts.get(cls)
        if found is None:
            made: Callable[[Engine], Any] = cls
            with self._ended:  # the first one wins, should two threads make one
                found = self.parts.setdefault(cls, made(self))
        return cast("_T", found)

    def forget_session(self, session_id: str) -> None:
        """Drop what features keep for a session that has ended, by its id in all workers."""
        for forget in self.forgetting:
            forget(session_id)

    def wait_idle(self, timeout: float) -> bool:
        """Wait, at most `timeout` seconds, until no handler runs; return whether none does."""
        with self._ended:
            self._waiting += 1
            try:
                return self._ended.wait_for(lambda: not self._runs, timeout)
            finally:
                self._waiting -= 1

    def give_up(self) -> list[Invocation]:
        """Report every running handler as stopped: the process ends without it (PROC-10).

        Returns:
            The calls of these handlers.
        """
        runs = list(self._runs.values())
        for run in runs:
            self.finish(run, Stopped())
        return [run.call for run in runs]

    def on_loop(self, loop: asyncio.AbstractEventLoop | None) -> Invocation | None:
        """Return the call that blocks `loop`, or the feeding thread; safe from any thread."""
        if self._inline is not None:
            return self._inline.call
        if loop is None:
            return None
        import asyncio

        current = asyncio.current_task(loop)
        coroutine = None if current is None else current.get_coro()
        for run in list(self._runs.values()):
            if run.coroutine is not None and run.coroutine is coroutine:
                return run.call
        return None

    # -- the three ways to run ---------------------------------------------------------------

    def run_in_place(self, run: RunningCall, variables: Context) -> CallOutcome:
        """Call the handler; every exception is an outcome, `SystemExit` included (ERR-05)."""
        call = run.call
        try:
            value = variables.run(call.handler, call.arguments, run.context)
            return Returned(variables.run(_step, value) if call.execution is BRIEF else value)
        except BaseException as error:
            return outcome_of(error, run.signal)

    def _run_in_thread(self, run: RunningCall) -> None:
        emit = run.connection.emit_from_thread
        try:
            outcome = self.run_in_place(run, variables := copy_context())
            if isinstance(outcome, Returned) and is_awaitable(type(outcome.value)):
                awaiting = partial(self._await_result, run, outcome.value, variables)
                run.connection.scheduler.call_in_loop(awaiting)
            else:
                self.finish(run, self.finished(run, outcome), emit)
            del outcome  # see `start`
        except BaseException as error:
            self.finish(run, Raised(error), emit)
            raise

    def _await_result(
        self, run: RunningCall, awaitable: Awaitable[Any], variables: Context
    ) -> None:
        """Let a task await what a handler has returned, in the handler's context (CALL-40)."""
        run.call.execution = ExecutionMode.ASYNC
        run.coroutine = self.coroutines.run(run, awaitable)
        scheduler = run.connection.scheduler
        variables.run(scheduler.start_task, run.coroutine, partial(self.coroutines.started, run))
        if run.signal.aborted and run.cancellation is None:
            self._cancel_later(run)

    @staticmethod
    def finished(run: RunningCall, outcome: CallOutcome) -> CallOutcome:
        """Return how a call ends whose handler has ended; this may wait."""
        for finish in run.finishers:
            outcome = finish(outcome)
        return outcome

    # -- deadline, cancellation, end ---------------------------------------------------------

    def _expire_overdue(self, run: RunningCall, now: float, emit: Emit) -> None:
        """Expire a call whose deadline passed before its end, unnoticed by any timer (TIME-10)."""
        run.ending = True
        while run.due <= now:
            run.due = math.inf  # unless the call gets another deadline
            self.expire(run, emit)

    def expire(self, run: RunningCall, emit: Emit | None = None) -> None:
        """Answer a call whose deadline has passed, and abort it (TIME-01)."""
        connection = run.connection
        with connection.lock:
            if run.ended or run.waits:
                return
            # Before the client learns of the timeout, and may ask for the outcome.
            self._note_unanswered(run.call, None)
            rest = (emit or connection.emit)(self.dispatcher.expire(run.call))
        connection.perform(rest)

    def _cancel_later(self, run: RunningCall) -> None:
        """Cancel the task of an aborted call after its grace."""
        grace = self.config.tools.cancel_grace_ms / 1000 if run.call.kind.has_grace else 0
        run.cancellation = run.connection.scheduler.call_later(grace, partial(self._cancel, run))

    def _cancel(self, run: RunningCall) -> None:
        run.connection.scheduler.call_in_loop(partial(self._cancel_task, run))

    def _cancel_task(self, run: RunningCall) -> None:
        if run.task is not None and not run.task.done():
            run.task.cancel()

    def finish(self, run: RunningCall, outcome: CallOutcome, emit: Emit | None = None) -> None:
        """Report the end of a handler to the dispatcher, once (CALL-09); perform its decision."""
        # Whole microseconds; round() would take 0.4 us to find the nearest.
        now = self.clock.monotonic()
        duration_ms = int((now - run.started) * 1_000_000) / 1000
        call, connection = run.call, run.connection
        emit = emit or connection.emit
        effects: list[Effect] | None = None
        ours = False
        try:
            if run.due <= now and not run.ending:
                self._expire_overdue(run, now, emit)
            with connection.lock:
                if run.ended:
                    return
                run.ended = ours = True
                effects = self.dispatcher.conclude(call, outcome, duration_ms)
                if effects and isinstance(effects[0], Reply):
                    run.reply_bytes = len(effects[0].line)
                rest = emit(effects)
        except BaseException as error:
            # A bug, an exception that a result raises when it is read, or one of another thread.
            with connection.lock:
                if run.ended and not ours:
                    return
                run.ended = True
                if effects is None:
                    effects = self.dispatcher.break_off(call, error, duration_ms)
                else:
                    described = {"error": describe_exception(error)}
                    run.context.logger.error("internal error", described)
                rest = emit(effects)
        try:
            if run.deadline is not None:
                run.deadline.cancel()
            if run.cancellation is not None:
                run.cancellation.cancel()
            if rest:
                connection.perform(rest)
            if call.phase is not PENDING:
                self._note_unanswered(call, outcome)
        finally:
            # Last of all: an idle engine has sent its last reply.
            self._runs.pop(call.run_id, None)
            if connection in self._ended_sessions:
                self._report_session_end(connection)
            if not self._runs:
                if self._waiting:
                    self._wake_waiting()
                if self.on_idle is not None:
                    self.on_idle()

    def _note_unanswered(self, call: Invocation, outcome: CallOutcome | None) -> None:
        if self.on_unanswered is not None and call.method == TOOLS_CALL:
            self.on_unanswered(call, outcome)

    def _wake_waiting(self) -> None:
        with self._ended:
            self._ended.notify_all()


def _step(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return what a coroutine returns that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a coroutine that runs in place has waited")


def outcome_of(error: BaseException, signal: AbortSignal) -> CallOutcome:
    if signal.aborted and (has_type(error, AbortError) or is_cancellation(error)):
        return Stopped()
    return Raised(error)


def is_cancellation(error: BaseException) -> bool:
    """Return whether `error` is asyncio's, without importing asyncio."""
    import sys

    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and has_type(error, asyncio.CancelledError)
