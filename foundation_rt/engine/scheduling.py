"""Where a connection's timers and coroutines run.

The engine needs three things of its surroundings: a timer, a place to run a coroutine as a real
asyncio task, and a way back to the thread that its host expects to be called in. There are three
surroundings (EMBED-02):

* a host with an event loop of its own: `HostLoop`;
* a host without one: `Background`, whose threads start when they are first needed;
* the stdio process, whose main thread waits in `transports.stdio.reactor`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from .timers import Callback, Timer, TimerThread

if TYPE_CHECKING:
    import asyncio

    from .loop_monitor import LoopDelay

ReportError = Callable[[str, BaseException | None], object]
"""Is told what went wrong on an event loop of ours, and the exception if there was one."""

_SAMPLE_SECONDS = 0.1


class Scheduler(Protocol):
    """What the engine asks of the place it runs in."""

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """Run `callback` in `seconds`; called where messages are fed."""

    def start_task(
        self, coroutine: Coroutine[Any, Any, None], started: Callable[[asyncio.Task[None]], object]
    ) -> None:
        """Run `coroutine` as a task in a context of its own.

        `started(task)` is called in the loop's thread when the task has had its first go: what ends
        at once needs no deadline, with eager start and without.
        """

    def call_in_loop(self, callback: Callback) -> None:
        """Run `callback` in the thread of the event loop that runs the tasks; thread-safe."""

    def is_here(self) -> bool:
        """Return whether the host may be called in this very thread; safe from any."""

    def return_to_host(self, callback: Callback) -> None:
        """Run `callback` where the host expects to be called; safe from any thread.

        Where that place is gone it is dropped: there is nobody left to be told.
        """


@define(eq=False, repr=False)
class HostTimer:
    """A timer of a host's loop; a loop's own may be cancelled in its thread only."""

    _host: HostLoop
    _handle: asyncio.TimerHandle

    def cancel(self) -> None:
        """Take it back; safe from any thread."""
        if self._host.is_here():
            self._handle.cancel()
        else:
            self._host.return_to_host(self._handle.cancel)


@define(eq=False, repr=False)
class HostLoop:
    """Everything happens on the event loop of the host; messages are fed in its thread."""

    loop: asyncio.AbstractEventLoop

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """A timer of the host's loop, which worker threads may cancel."""
        return HostTimer(self, self.loop.call_later(seconds, callback))

    def start_task(
        self, coroutine: Coroutine[Any, Any, None], started: Callable[[asyncio.Task[None]], object]
    ) -> None:
        """A task on the host's loop."""
        _start_task(self.loop, coroutine, started)

    def call_in_loop(self, callback: Callback) -> None:
        """On the host's loop."""
        self.loop.call_soon_threadsafe(callback)

    def return_to_host(self, callback: Callback) -> None:
        """On the host's loop; nowhere when it has been closed."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(callback)

    def is_here(self) -> bool:
        """Return whether this is the thread of the host's loop, and the loop runs."""
        import asyncio

        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return False

    def sample_delay(self, delay: LoopDelay, wanted: Callable[[], bool]) -> None:
        """Tell `delay` how late the host's loop runs its timers, as long as `wanted()`.

        Nobody tells us the turns of a loop that is not ours, so ten timers a second probe it.
        """
        due = time.monotonic() + _SAMPLE_SECONDS

        def sample() -> None:
            delay.begin_turn(due)
            delay.end_turn(time.monotonic())
            if wanted():
                self.sample_delay(delay, wanted)

        self.loop.call_later(_SAMPLE_SECONDS, sample)


@define(eq=False, repr=False)
class Background:
    """For hosts without an event loop: a timer thread and a loop thread of our own (EMBED-03)."""

    _on_error: ReportError
    _timers: TimerThread = field(factory=TimerThread, init=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """A timer of the timer thread."""
        return self._timers.call_later(seconds, callback)

    def start_task(
        self, coroutine: Coroutine[Any, Any, None], started: Callable[[asyncio.Task[None]], object]
    ) -> None:
        """A task on the loop thread, which starts when it is first needed."""
        loop = self._running_loop()
        loop.call_soon_threadsafe(_start_task, loop, coroutine, started)

    def call_in_loop(self, callback: Callback) -> None:
        """On the loop thread."""
        self._running_loop().call_soon_threadsafe(callback)

    def is_here(self) -> bool:
        """Always: such a host takes calls from any thread."""
        return True

    def return_to_host(self, callback: Callback) -> None:
        """In place: such a host takes calls from any thread."""
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
    """For a loop whose errors nobody asked for."""


def run_protected(loop: asyncio.AbstractEventLoop) -> None:
    """Run `loop` until it is stopped, or a task of a handler raises through it.

    asyncio lets `SystemExit` and `KeyboardInterrupt` of a task out of the loop. The task has the
    exception as well, so the handler that waits for it fails with it (ERR-05); the loop can be run
    again. So it can after another thread has thrown an exception into this one (ERR-07).
    """
    try:
        loop.run_forever()
    except BaseException as error:
        if loop.is_closed():
            raise
        loop.call_exception_handler({"message": interruption(error), "exception": error})


def interruption(error: BaseException) -> str:
    """Return what the log says of an exception that came out of a running loop."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return "a task tried to end the process"
    return "the loop was interrupted"


def report_errors(loop: asyncio.AbstractEventLoop, report: ReportError) -> None:
    """Send what asyncio would print (exceptions nobody retrieved, for one) to `report`."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        report(str(context.get("message")), context.get("exception"))

    loop.set_exception_handler(handle)


def _start_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, None],
    started: Callable[[asyncio.Task[None]], object],
) -> None:
    # A loop calls back in the order in which it was asked to: after the first step of the task.
    loop.call_soon(started, create_task(loop, coroutine))


def create_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]
) -> asyncio.Task[None]:
    """A task in a context of its own; started at once where Python can do that (3.12)."""
    import asyncio
    import sys

    if sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, eager_start=True)
    return loop.create_task(coroutine)
