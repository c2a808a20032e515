"""An event loop in a thread of its own, for programs that have none.

It begins when it is made and ends when it is told to, when nobody holds what uses it any more, or
with the interpreter (BLOCK-05). Whoever gives it work waits for that; so nothing that runs on the
loop may give it any.

Everything that is given to the loop is given under one lock, and so is the word that it shall end:
what was taken before that is done, and nothing is taken afterwards. No caller waits for a loop that
does not run any more.
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

_LOOK_UP = 0.5  # seconds; a signal that comes just before a lock is waited for interrupts nothing
_LEFTOVERS = 1.0  # seconds in which what still runs must end, once what it works with has ended
_AT_EXIT = 15.0  # seconds that the interpreter waits before it has the end cut short
_CUT_SHORT = 5.0  # seconds that this may take: what is killed is gone in milliseconds
_STEP = 0.5  # seconds for one step of it


class LoopEnded(Exception):
    """The loop takes no work any more."""


@define(eq=False, repr=False)
class _Work(Generic[Result]):
    """Something that a thread gives the loop to do, and can take back from the first moment on.

    By the future of `run_coroutine_threadsafe` it could not: the loop may have begun, and the
    thread be interrupted, before that function has returned it (BLOCK-03).

    Args:
        begin: makes the coroutine.
    """

    begin: Callable[[], Coroutine[Any, Any, Result]]
    _task: asyncio.Task[Any] | None = field(default=None, init=False)
    _is_withdrawn: bool = field(default=False, init=False)

    async def run(self) -> Result:
        """Do it, on the loop."""
        if self._is_withdrawn:
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        return await self.begin()

    def withdraw(self) -> None:
        """Have it end, on the loop; nothing happens if it has."""
        self._is_withdrawn = True
        if self._task is not None:
            self._task.cancel()


@define(eq=False, repr=False)
class LoopThread:
    """Runs coroutines for other threads.

    Args:
        last: what the loop does at its end; bounded in time. It may be cancelled several times, for
            each of its steps, which then has to leave nothing behind all the same.

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
    _hurry: asyncio.Event = field(factory=asyncio.Event, init=False)
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
        """What the coroutine that `work` makes returns; raises what it raises.

        Whoever is interrupted while he waits has it cancelled (BLOCK-03).

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
        if self._is_elsewhere:
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
        """Have `function` called on the loop, soon; not at all if the loop is ending."""
        if self._is_elsewhere:
            return
        with self._lock:
            if not self.is_ending:
                self._loop.call_soon_threadsafe(function)

    def end_soon(self) -> None:
        """Have it end, and do not wait."""
        if self._is_elsewhere:
            return
        with self._lock:
            if not self.is_ending:
                self.is_ending = True
                self._loop.call_soon_threadsafe(self._stop.set)

    def end(self) -> None:
        """Have it end, and wait for that; who is interrupted meanwhile has it hurry (BLOCK-04)."""
        if threading.current_thread() is self._thread:
            self.end_soon()  # a callback; it ends when that has returned
            return
        if self._is_elsewhere:
            return
        try:
            self.end_soon()
            while not self._gone.wait(_LOOK_UP):
                pass
        except BaseException:
            self._cut_short()
            raise
        self._thread.join()

    @property
    def _is_elsewhere(self) -> bool:
        """Whether this is a fork of the process that has the thread: nobody runs the loop here.

        Its lock may have been held by a thread that is not here either.
        """
        return os.getpid() != self._process

    def _exit(self) -> None:
        """The interpreter ends."""
        if self._is_elsewhere:
            return
        has_gone = False
        try:
            self.end_soon()
            has_gone = self._gone.wait(_AT_EXIT)
        finally:
            if not has_gone:
                self._cut_short()
                self._gone.wait(_CUT_SHORT)

    def _cut_short(self) -> None:
        with suppress(RuntimeError):  # closed: nothing to hurry
            self._loop.call_soon_threadsafe(self._hurry.set)

    # -- in the thread

    def _run_loop(self) -> None:
        try:
            self._loop.run_until_complete(self._live())
        finally:
            self._loop.close()
            atexit.unregister(self._exit)
            self._gone.set()

    async def _live(self) -> None:
        await self._stop.wait()
        await self._conclude()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=_LEFTOVERS)
            for other in others:
                other.cancel()
            await asyncio.wait(others, timeout=_LEFTOVERS)
        await self._loop.shutdown_asyncgens()

    async def _conclude(self) -> None:
        """Do what is last; in a hurry, cancel one step of it after the other."""
        last = asyncio.ensure_future(self._last())
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait([last, hurry], return_when=asyncio.FIRST_COMPLETED)
        while not last.done():
            last.cancel()
            await asyncio.wait([last], timeout=_STEP)
        hurry.cancel()
        if not last.cancelled() and last.exception() is not None:
            log.error("a client could not be closed", exc_info=last.exception())


def _outcome(future: Future[Result]) -> Result:
    while True:
        try:
            return future.result(_LOOK_UP)
        except TimeoutError:
            if future.done():  # its own
                return future.result()
