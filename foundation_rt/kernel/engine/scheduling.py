"""Schedulers: where a connection's timers and coroutines run.

The engine needs timers, a place for asyncio tasks, and a way back to the thread in which its host
expects calls. There are three schedulers (EMBED-02):

* `HostLoop`, for a host with an event loop of its own;
* `Background`, for a host without one: its threads start when they are first needed;
* `Reactor` in `kernel.stdio`, for the main thread of the stdio process.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from ...base.timers import Callback, Timer, TimerThread

if TYPE_CHECKING:
    import asyncio

    from .loop_monitor import LoopMonitor

ReportError = Callable[[str, BaseException | None], object]
"""Takes a message and an exception, or None, of an event loop that has failed."""

_SAMPLE_SECONDS = 0.1


class Scheduler(Protocol):
    """The place where the timers and coroutines of a connection run."""

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """Run `callback` in `seconds`; only from the thread that feeds messages."""

    def run_later(self, seconds: float, callback: Callback) -> None:
        """Run `callback` in `seconds`; safe from any thread. A closed loop drops it."""

    def start_task(
        self, coroutine: Coroutine[Any, Any, None], started: Callable[[asyncio.Task[None]], object]
    ) -> None:
        """Run `coroutine` as a task in a context of its own.

        `started(task)` is called in the loop's thread after the first step of the task: a task that
        ends in it needs no deadline, with eager start and without.
        """

    def call_in_loop(self, callback: Callback) -> None:
        """Run `callback` in the thread of the tasks' event loop; safe from any thread."""

    def is_here(self) -> bool:
        """Return whether the host may be called in this thread; safe from any thread."""

    def return_to_host(self, callback: Callback) -> None:
        """Run `callback` in the thread in which the host expects calls; safe from any thread.

        It is dropped if the host's loop is closed.
        """


@define(eq=False, repr=False)
class HostTimer:
    """A timer of a host's loop that any thread may cancel."""

    _host: HostLoop
    _handle: asyncio.TimerHandle

    def cancel(self) -> None:
        """Cancel the timer; safe from any thread."""
        if self._host.is_here():
            self._handle.cancel()
        else:
            self._host.return_to_host(self._handle.cancel)


@define(eq=False, repr=False)
class HostLoop:
    """Runs everything on the event loop of the host, in whose thread messages are fed."""

    loop: asyncio.AbstractEventLoop
    _running_loop: Callable[[], object] = field(init=False)

    def __attrs_post_init__(self) -> None:
        from asyncio.events import _get_running_loop

        self._running_loop = _get_running_loop  # unlike get_running_loop() it does not raise

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """Return a timer of the host's loop, which worker threads may cancel."""
        return HostTimer(self, self.loop.call_later(seconds, callback))

    def run_later(self, seconds: float, callback: Callback) -> None:
        """Run `callback` on the host's loop, unless that is closed."""
        self.return_to_host(partial(self.loop.call_later, seconds, callback))

    def start_task(
        self, coroutine: Coroutine[Any, Any, None], started: Callable[[asyncio.Task[None]], object]
    ) -> None:
        """Start a task on the host's loop."""
        _start_task(self.loop, coroutine, started)

    def call_in_loop(self, callback: Callback) -> None:
        """Run `callback` on the host's loop."""
        self.loop.call_soon_threadsafe(callback)

    def return_to_host(self, callback: Callback) -> None:
        """Run `callback` on the host's loop, unless that is closed."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(callback)

    def is_here(self) -> bool:
        """Return whether this is the thread of the host's loop, and the loop runs."""
        return self._running_loop() is self.loop

    def probe(self, monitor: LoopMonitor, is_needed: Callable[[], bool]) -> None:
        """Report to `monitor` how late the host's loop runs its timers, as long as `is_needed()`.

        The turns of a loop that belongs to the host are unknown, so ten timers a second probe it.
        """
        due = time.monotonic() + _SAMPLE_SECONDS

        def sample() -> None:
            monitor.begin_turn(due)
            monitor.end_turn(time.monotonic())
            if is_needed():
                self.probe(monitor, is_needed)

        self.loop.call_later(_SAMPLE_SECONDS, sample)


@define(eq=False, repr=False)
class Background:
    """A timer thread and a loop thread, for hosts without an event loop (EMBED-03)."""

    _on_error: ReportError
    _timers: TimerThread = field(factory=TimerThread, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """Return a timer of the timer thread."""
        return self._timers.call_later(seconds, callback)

    def run_later(self, seconds: float, callback: Callback) -> None:
        """Run `callback` in the timer thread."""
        self._timers.call_later(seconds, callback)

    def start_task(
        self, coroutine: Coroutine[Any, Any, None], started: Callable[[asyncio.Task[None]], object]
    ) -> None:
        """Start a task on the loop thread, which starts when it is first needed."""
        loop = self._running_loop()
        loop.call_soon_threadsafe(_start_task, loop, coroutine, started)

    def call_in_loop(self, callback: Callback) -> None:
        """Run `callback` on the loop thread."""
        self._running_loop().call_soon_threadsafe(callback)

    def is_here(self) -> bool:
        """Return True: such a host takes calls from any thread."""
        return True

    def return_to_host(self, callback: Callback) -> None:
        """Run `callback` in place: such a host takes calls from any thread."""
        callback()

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run `coroutine` on the loop thread, and wait until it has returned or raised."""
        import asyncio

        asyncio.run_coroutine_threadsafe(coroutine, self._running_loop()).result()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                import asyncio

                loop = asyncio.new_event_loop()
                report_errors(loop, self._on_error)
                thread = threading.Thread(
                    target=self._keep_running, args=(loop,), name="foundation-rt-loop", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:
                    loop.close()
                    raise
                self._loop = loop
            return self._loop

    def _keep_running(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            run_protected(loop)


def ignore_error(message: str, error: BaseException | None) -> None:
    """Ignore an error of a loop."""


def run_protected(loop: asyncio.AbstractEventLoop) -> None:
    """Run `loop` until it is stopped, or a task of a handler raises through it.

    asyncio raises `SystemExit` and `KeyboardInterrupt` of a task out of the loop. The task keeps
    the exception as well, so the handler that waits for it fails with it (ERR-05), and the loop can
    run again. The same holds after another thread has thrown an exception into this one (ERR-07).
    """
    try:
        loop.run_forever()
    except BaseException as error:
        if loop.is_closed():
            raise
        loop.call_exception_handler({"message": interruption(error), "exception": error})


def interruption(error: BaseException) -> str:
    """Return the log message for an exception that left a running loop."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return "a task tried to end the process"
    return "the loop was interrupted"


def report_errors(loop: asyncio.AbstractEventLoop, report: ReportError) -> None:
    """Report what asyncio would print, such as exceptions that were never retrieved."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        report(str(context.get("message")), context.get("exception"))

    loop.set_exception_handler(handle)


def _start_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, None],
    started: Callable[[asyncio.Task[None]], object],
) -> None:
    # A loop runs callbacks in their order: this one after the first step of the task.
    loop.call_soon(started, create_task(loop, coroutine))


def create_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]
) -> asyncio.Task[None]:
    """Return a task in a context of its own; with Python 3.12 it starts at once."""
    import asyncio

    if sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, eager_start=True)
    return loop.create_task(coroutine)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, without importing asyncio."""
    if "asyncio" not in sys.modules:
        return None
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
