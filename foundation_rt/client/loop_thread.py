"""An event loop in a thread of its own, for programs that have none.

It starts when it is made. It ends when `end` is called, when its user is collected, or with the
interpreter (BLOCK-05). A caller blocks until its work is done, so code on the loop must not call
`run`.

Work and the order to end are given to the loop under one lock: work that was accepted before the
end is done, later work is refused. So no caller waits for a loop that has stopped.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

from attrs import define, field

from ..errors import UsageError

Result = TypeVar("Result")

log = logging.getLogger("foundation_rt.client")

_POLL_SECONDS = (
    0.5  # seconds; a signal that comes just before a lock is waited for interrupts nothing
)
_LEFTOVER_SECONDS = (
    1.0  # seconds in which what still runs must end, once what it works with has ended
)
_EXIT_SECONDS = 15.0  # that the interpreter waits before it cuts the end short
_ABORT_SECONDS = 5.0  # for an end that was cut short; a killed process is gone in ms
_STEP_SECONDS = 0.5  # for one step of it


class LoopEnded(Exception):
    """The loop takes no work any more."""


@define(eq=False, repr=False)
class _Work(Generic[Result]):
    """Work that a thread gives the loop, and can cancel from the first moment on.

    The future of `run_coroutine_threadsafe` is not enough: the thread may be interrupted after the
    loop has started the work, and before that function has returned the future (BLOCK-03).

    Args:
        begin: makes the coroutine.
    """

    begin: Callable[[], Coroutine[Any, Any, Result]]
    _task: asyncio.Task[Any] | None = field(default=None, init=False)
    _is_withdrawn: bool = field(default=False, init=False)

    async def run(self) -> Result:
        """Run the coroutine, on the loop."""
        if self._is_withdrawn:
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        return await self.begin()

    def withdraw(self) -> None:
        """Cancel it, on the loop; do nothing if it has ended."""
        self._is_withdrawn = True
        if self._task is not None:
            self._task.cancel()


@define(eq=False, repr=False)
class LoopThread:
    """Runs coroutines for other threads.

    Args:
        last: the last work of the loop; bounded in time. It may be cancelled once for each of its
            steps, and has to leave nothing behind even then.

    Attributes:
        is_ending: whether it takes no work any more.

    Raises:
        RuntimeError: the system starts no thread.
    """

    _last: Callable[[], Coroutine[Any, Any, object]]
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.new_event_loop, init=False)
    # Reentrant: `end_soon` is called in garbage collection, which may begin anywhere.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)
    is_ending: bool = field(default=False, init=False)
    _stop: asyncio.Event = field(factory=asyncio.Event, init=False)
    _abort: asyncio.Event = field(factory=asyncio.Event, init=False)
    _thread: threading.Thread = field(init=False)
    _process: int = field(factory=os.getpid, init=False)
    # Not `join`: until Python 3.13 a thread whose `join` was interrupted counts as ended.
    _gone: threading.Event = field(factory=threading.Event, init=False)

    def __attrs_post_init__(self) -> None:
        name = "foundation-rt-client"
        self._thread = threading.Thread(target=self._run_loop, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._loop.close()
            raise
        atexit.register(self._exit)

    def run(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Run the coroutine that `work` makes; return what it returns, raise what it raises.

        An interrupt of the waiting thread cancels it (BLOCK-03).

        Raises:
            LoopEnded: the loop has been told to end.
            UsageError: this is the thread of the loop, or a process that was forked.
            concurrent.futures.CancelledError: the loop has ended meanwhile.
        """
        if threading.current_thread() is self._thread:
            raise UsageError(
                "a callback of a blocking client runs on the client's own thread, which cannot "
                "wait for itself: call the client from another thread"
            )
        if self._is_forked:
            raise UsageError("a process that was forked needs a client of its own: make one there")
        asked = _Work(work)
        try:
            with self._lock:
                if self.is_ending:
                    raise LoopEnded
                future = asyncio.run_coroutine_threadsafe(asked.run(), self._loop)
            return _outcome(future)
        except BaseException:
            with suppress(RuntimeError):  # closed: nothing runs
                self._loop.call_soon_threadsafe(asked.withdraw)
            raise

    def tell(self, function: Callable[[], object]) -> None:
        """Call `function` on the loop, soon; do nothing if the loop is ending."""
        if self._is_forked:
            return
        with self._lock:
            if not self.is_ending:
                self._loop.call_soon_threadsafe(function)

    def end_soon(self) -> None:
        """Start the end, and do not wait for it."""
        if self._is_forked:
            return
        with self._lock:
            if not self.is_ending:
                self.is_ending = True
                self._loop.call_soon_threadsafe(self._stop.set)

    def end(self) -> None:
        """End the loop and wait for it; an interrupt meanwhile cuts the end short (BLOCK-04)."""
        if threading.current_thread() is self._thread:
            self.end_soon()  # a callback; it ends when that has returned
            return
        if self._is_forked:
            return
        try:
            self.end_soon()
            while not self._gone.wait(_POLL_SECONDS):
                pass
        except BaseException:
            self._abort_shutdown()
            raise
        self._thread.join()

    @property
    def _is_forked(self) -> bool:
        """Return whether this is a forked process, which has neither the thread nor its loop.

        The lock may be held for ever here, by a thread of the parent.
        """
        return os.getpid() != self._process

    def _exit(self) -> None:
        """End the loop when the interpreter ends."""
        if self._is_forked:
            return
        has_gone = False
        try:
            self.end_soon()
            has_gone = self._gone.wait(_EXIT_SECONDS)
        finally:
            if not has_gone:
                self._abort_shutdown()
                self._gone.wait(_ABORT_SECONDS)

    def _abort_shutdown(self) -> None:
        with suppress(RuntimeError):  # closed: nothing to hurry
            self._loop.call_soon_threadsafe(self._abort.set)

    # -- in the thread

    def _run_loop(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        finally:
            self._loop.close()
            atexit.unregister(self._exit)
            self._gone.set()

    async def _main(self) -> None:
        await self._stop.wait()
        await self._shut_down()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=_LEFTOVER_SECONDS)
            for other in others:
                other.cancel()
            await asyncio.wait(others, timeout=_LEFTOVER_SECONDS)
        await self._loop.shutdown_asyncgens()

    async def _shut_down(self) -> None:
        """Run the last work; when the end is cut short, cancel it step by step."""
        last = asyncio.ensure_future(self._last())
        hurry = asyncio.ensure_future(self._abort.wait())
        await asyncio.wait([last, hurry], return_when=asyncio.FIRST_COMPLETED)
        while not last.done():
            last.cancel()
            await asyncio.wait([last], timeout=_STEP_SECONDS)
        hurry.cancel()
        if not last.cancelled() and last.exception() is not None:
            log.error("a client could not be closed", exc_info=last.exception())


def _outcome(future: Future[Result]) -> Result:
    while True:
        try:
            return future.result(_POLL_SECONDS)
        except TimeoutError:
            if future.done():  # its own
                return future.result()
