"""Handlers that need an event loop: coroutines, and whatever has middleware around it.

A part of the engine (`executor`), imported for the first of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...base.abort import call_in_loop
from ...errors import AbortError, has_type
from ...protocol.plain_values import settled
from ..invocation import CallOutcome, Raised, Returned, Stopped
from ..registry.tools import ExecutionMode
from . import deadlines
from .executor import is_awaitable, is_cancellation, outcome_of

if TYPE_CHECKING:
    from .executor import Engine, RunningCall

_T = TypeVar("_T")

LARGE_REPLY_BYTES = 1024 * 1024
"""The length from which on a reply has a turn of the event loop for itself."""


class CoroutineRunner:
    """Runs the handlers of an engine that need an event loop, each in a task.

    Args:
        engine: starts them, and is told of their ends.
    """

    __slots__ = ("_engine", "_large_reply")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._large_reply: asyncio.Future[None] | None = None

    async def run(self, run: RunningCall, awaitable: Awaitable[Any] | None = None) -> None:
        """Call the handler and await its value; or await what the handler has returned."""
        call = run.call
        if awaitable is None:
            # The first step may come long after the task was made: others block the loop before it.
            run.started = self._engine.clock.monotonic()
            run.due = run.started + call.timeout_ms / 1000
        try:
            for starting in self._engine.starting:
                if (preparing := starting(run)) is not None:
                    await preparing
            if awaitable is not None:
                value = await awaitable
            elif self._engine.around is None or call.is_wait:
                value = await call.handler(call.arguments, run.context)
            else:
                value = await self._engine.around(call, partial(self._proceed, run))()
            if is_awaitable(type(value)):
                value = await settled(value)
        except BaseException as error:
            # Not kept in a variable: this frame is in its traceback, and only the collector would
            # find that cycle.
            if not run.finishers or has_type(error, GeneratorExit):  # may not wait any more
                self._end_task(run, outcome_of(error, run.signal))
            else:
                await self._finish_and_end(run, outcome_of(error, run.signal))
        else:
            if self._large_reply is not None:
                await self._wait_for_turn()
            if not run.finishers:
                self._end_task(run, Returned(value))
            else:
                await self._finish_and_end(run, Returned(value))
            if run.reply_bytes > LARGE_REPLY_BYTES:
                self._hold_others()

    def _hold_others(self) -> None:
        """Have handlers that end now reply in a later turn of the event loop (RES-24)."""
        loop = asyncio.get_running_loop()
        self._large_reply = loop.create_future()
        loop.call_soon(self._release_others, self._large_reply)

    def _release_others(self, held: asyncio.Future[None]) -> None:
        self._large_reply = None
        held.set_result(None)

    async def _wait_for_turn(self) -> None:
        with suppress(asyncio.CancelledError):  # the handler has ended: its call ends as it did
            while self._large_reply is not None:
                await asyncio.shield(self._large_reply)

    async def _finish_and_end(self, run: RunningCall, outcome: CallOutcome) -> None:
        """Finish a call, unless a thread still runs its handler; then end its task."""
        ending = [outcome]
        if not run.threads:
            with suppress(asyncio.CancelledError):  # it is finished nevertheless
                await self.run_in_worker(
                    lambda: ending.append(self._engine.finished(run, ending.pop()))
                )
        self._end_task(run, ending.pop())

    def started(self, run: RunningCall, task: asyncio.Task[None]) -> None:
        """Arm the deadline after the first step of the task, unless it has ended in it."""
        run.task = task
        if not run.ended:
            if not run.waits and run.deadline is None:
                deadlines.arm(run, self._engine.clock.monotonic(), self._engine.expire)
            # A task that is cancelled before its first step cannot report its end.
            task.add_done_callback(lambda _: self._end_task(run, Stopped()))

    def _end_task(self, run: RunningCall, outcome: CallOutcome) -> None:
        """End the call with its task, unless a worker thread still runs the handler."""
        if run.threads:
            with run.connection.lock:
                if run.threads:
                    run.left = outcome if run.left is None else run.left
                    return
        self._engine.finish(run, outcome)

    # -- within middleware -------------------------------------------------------------------

    async def _proceed(self, run: RunningCall) -> Any:
        """Call the handler in its own way; return its value or raise its exception."""
        call = run.call
        if run.ended:
            raise RuntimeError("proceed() was called after its call had ended")
        if call.execution is ExecutionMode.ASYNC:
            return await settled(call.handler(call.arguments, run.context))
        variables = copy_context()
        if call.execution is ExecutionMode.INLINE:
            value = variables.run(call.handler, call.arguments, run.context)
        else:
            value = await self._await_thread(run, variables)
        while hasattr(type(value), "__await__"):
            # A task that is cancelled before its first step never awaits what `settled` has.
            coroutine = value if asyncio.iscoroutine(value) else settled(value)
            value = await asyncio.create_task(coroutine, context=variables)
        return value

    async def _await_thread(self, run: RunningCall, variables: Context) -> Any:
        """Call a `def` handler in a worker thread; do not wait for its end once cancelled."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[list[CallOutcome]] = loop.create_future()
        with run.connection.lock:
            self._engine.workers.submit(partial(self._work, run, variables, loop, ended))
            run.threads += 1
        # Taken out of the future and deleted below: this frame, and those of the worker that hold
        # the future, are in the traceback of the exception; see `run`.
        outcome = (await ended).pop()
        try:
            if isinstance(outcome, Returned):
                return outcome.value
            raise outcome.error if isinstance(outcome, Raised) else AbortError(run.signal.reason)
        finally:
            del outcome

    def _work(
        self,
        run: RunningCall,
        variables: Context,
        loop: asyncio.AbstractEventLoop,
        ended: asyncio.Future[list[CallOutcome]],
    ) -> None:
        # No variable holds the outcome, for the same reason.
        self._end_work(run, loop, ended, self._engine.run_in_place(run, variables))

    def _end_work(
        self,
        run: RunningCall,
        loop: asyncio.AbstractEventLoop,
        ended: asyncio.Future[list[CallOutcome]],
        outcome: CallOutcome,
    ) -> None:
        """Pass the outcome of a worker thread to its task; end the call if the task has ended."""
        with run.connection.lock:
            run.threads -= 1
            left = None if run.threads else run.left
        if left is None and not call_in_loop(loop, _resolve, ended, outcome):
            left = Stopped()  # the task has ended with its loop
        if left is not None:
            # The outcome of a cancelled task is not that of the call: the handler's is.
            cancelled = isinstance(left, Raised) and is_cancellation(left.error)
            ending = outcome if cancelled or isinstance(left, Stopped) else left
            self._engine.finish(
                run, self._engine.finished(run, ending), run.connection.emit_from_thread
            )

    async def run_in_worker(self, function: Callable[[], _T]) -> _T:
        """Run `function` in a worker thread for a coroutine, and wait for its end.

        A coroutine that is cancelled meanwhile is so when the thread has ended: its call, and the
        slot that goes with a thread, must not end before (CALL-18).
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[list[CallOutcome]] = loop.create_future()
        self._engine.workers.submit(partial(copy_context().run, _work_for, function, loop, ended))
        cancelled = False
        while not ended.done():
            try:
                await asyncio.wait([ended])
            except asyncio.CancelledError:
                cancelled = True
        # Taken out of the future and deleted below: see `_await_thread`.
        outcome = ended.result().pop()
        try:
            if cancelled:
                raise asyncio.CancelledError
            if isinstance(outcome, Raised):
                raise outcome.error
            return cast("Returned", outcome).value  # type: ignore[no-any-return]
        finally:
            del outcome


def _work_for(
    function: Callable[[], Any],
    loop: asyncio.AbstractEventLoop,
    ended: asyncio.Future[list[CallOutcome]],
) -> None:
    try:
        outcome: CallOutcome = Returned(function())
    except BaseException as error:
        outcome = Raised(error)
    call_in_loop(loop, _resolve, ended, outcome)


def _resolve(ended: asyncio.Future[list[CallOutcome]], outcome: CallOutcome) -> None:
    if not ended.done():
        ended.set_result([outcome])
