"""The one place where the main thread of a stdio process waits.

A `turn` waits for descriptors, timers and wake-ups, then calls their handlers. As long as no
handler is a coroutine, `run` takes one turn after another and asyncio is not even imported: that
saves a third of the start-up, and half of a round trip (measured: 20 us through asyncio's reader
callbacks against 10 us here).

The first coroutine starts an asyncio loop in the same thread. Its selector's `select` takes a
`turn`, in which the reactor also waits for asyncio's descriptors. So the thread waits in one way
only, before and after.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from math import ceil
from typing import TYPE_CHECKING, Any

from ...base.timers import Callback, QueuedTimer, TimerQueue
from ..engine.loop_monitor import LoopMonitor
from ..engine.scheduling import (
    ReportError,
    create_task,
    ignore_error,
    interruption,
    report_errors,
    running_loop,
)

if TYPE_CHECKING:
    import asyncio

    from .loop import ReactorLoop

if sys.platform == "win32":
    READABLE, GONE = 1, 16
else:
    READABLE = select.POLLIN
    # POLLHUP and POLLERR are reported even if they are not requested.
    GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL

_MAX_FAILURES = 100
"""The most consecutive turns that an exception may end; beyond, the error is raised."""


class Reactor:
    """Waits for events and calls their handlers; belongs to the thread that calls `run`.

    Other threads may call `wake`, `stop`, `run_later`, `call_in_loop`, `return_to_host` and
    `QueuedTimer.cancel`, and nothing else.

    Attributes:
        read: returns the bytes of a descriptor that is readable, of a number at most.
        monitor: measures how long events wait.
        loop: the asyncio loop; None before the first coroutine.
        on_wake: called after `wake`.
        on_turn: called at the beginning of each turn.
        on_error: called with each exception that ends a turn.
        stopped: whether `run` returns after the present turn.
    """

    read = staticmethod(os.read)

    def __init__(self) -> None:
        self.monitor = LoopMonitor()
        self.loop: ReactorLoop | None = None
        self.on_wake: Callback = lambda: None
        self.on_turn: Callback = lambda: None
        self.on_error: ReportError = ignore_error
        self.stopped = self._closing = self._woken = False
        self._handlers: dict[int, Callable[[int], object]] = {}
        self._timers = TimerQueue()
        self._started: list[Callback] = []
        self._posted: list[Callback] = []
        # Reentrant: a signal handler that wakes may interrupt a wake under way in the same thread.
        self._wake_lock = threading.RLock()
        self._open()

    def _open(self) -> None:
        self._poll = select.poll()
        self._wake_pipe: tuple[int, ...] = os.pipe()
        self.watch(self._wake_pipe[0], READABLE, self._on_wake_byte)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Return the reactor's own descriptors; no child of this process may write there."""
        return self._wake_pipe

    # -- events ----------------------------------------------------------------------------------

    def watch(self, descriptor: int, events: int, handler: Callable[[int], object]) -> None:
        """Call `handler(events)` when `events` or a hang-up occur on `descriptor`."""
        self._handlers[descriptor] = handler
        self._poll.register(descriptor, events)

    def unwatch(self, descriptor: int) -> None:
        """Stop waiting for `descriptor`."""
        if self._handlers.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def has_input(self, descriptor: int) -> bool:
        """Return whether a descriptor that is not watched can be read at once."""
        readable = select.poll()
        readable.register(descriptor, READABLE)
        return bool(readable.poll(0))

    def call_later(self, seconds: float, callback: Callback) -> QueuedTimer:
        """Run `callback` in `seconds`, in this thread."""
        return self._timers.add(time.monotonic() + seconds, callback)

    def run_later(self, seconds: float, callback: Callback) -> None:
        """Run `callback` in `seconds`, in this thread; from any thread."""
        self.call_in_loop(lambda: self.call_later(seconds, callback))

    def wake(self) -> None:
        """End the present wait and let `on_wake` be called; from any thread or signal handler."""
        with self._wake_lock:
            if not self._woken:
                self._woken = True
                os.write(self._wake_pipe[1], b"\0")

    def _on_wake_byte(self, events: int) -> None:
        os.read(self._wake_pipe[0], 64)
        self._on_woken()

    def _on_woken(self) -> None:
        self._woken = False
        while self._posted:
            self._posted.pop(0)()
        self.on_wake()

    # -- running ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Take turns until `stop`; inside the asyncio loop once there is one.

        An exception that ends a turn is reported, and the next turn is taken (ERR-07). If every
        turn fails, the last exception is raised.
        """
        failures = 0
        while not self.stopped:
            turns = self.monitor.turns
            try:
                if self.loop is None:
                    self.turn(None)
                    failures = 0
                else:
                    self.loop.run_forever()
            except BaseException as error:
                failures = failures + 1 if self.monitor.turns <= turns + 1 else 1
                if failures > _MAX_FAILURES:
                    raise
                self._recover(error)
        # Handlers do not delay what follows, such as waiting for a slow client.
        self.monitor.end_turn(time.monotonic())

    def _recover(self, error: BaseException) -> None:
        """Report the exception that has ended a turn, and check everything again."""
        self.on_error(interruption(error), error)
        self._woken = False
        self.wake()

    def stop(self) -> None:
        """Let `run` return after the present turn."""
        if not self._closing:
            self.stopped = True
            self.wake()

    def turn(self, timeout: float | None) -> None:
        """Wait for events, `timeout` seconds at most (None: no limit), and call their handlers."""
        if self._started:
            self._notify_started()
        now = time.monotonic()
        self.monitor.end_turn(now)
        due = self._timers.next_due()
        if due is not None:
            remaining = max(0.0, due - now)
            timeout = remaining if timeout is None else min(timeout, remaining)
        # Rounded up: a wait that ends before its timer is due would only be repeated.
        ready = self._poll.poll(None if timeout is None else ceil(timeout * 1000))
        now = time.monotonic()
        self.monitor.begin_turn(now)
        self.on_turn()
        for descriptor, events in ready:
            handler = self._handlers.get(descriptor)
            if handler is not None:
                handler(events)
        if due is not None:
            for callback in self._timers.pop_due(now):
                callback()
        if self.stopped and self.loop is not None:
            self.loop.stop()

    def close(
        self, grace: float, first: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> None:
        """Close the descriptors, and end the asyncio loop, if any.

        Args:
            grace: the time for the loop's tasks to end, in seconds.
            first: runs on the loop before its tasks are cancelled.
        """
        # What was to happen in a turn, or later, belongs to a session that is over. The turns that
        # the loop still takes to end its tasks must not be stopped by it.
        self._closing = True
        self.stopped = False
        self.on_wake = self.on_turn = lambda: None
        self._timers = TimerQueue()
        if self.loop is not None:
            from .loop import finish_loop

            finish_loop(self.loop, grace, None if first is None else first())
        with self._wake_lock:
            # A later `wake`, by a worker that ends late for example, must write nothing: the
            # number may belong to another file by then.
            self._woken = True
            for descriptor in self._wake_pipe:
                os.close(descriptor)

    # -- coroutines ------------------------------------------------------------------------------

    def prepare_loop(self) -> ReactorLoop:
        """Return the asyncio loop, made by the first call."""
        if self.loop is None:
            self.loop = self._make_loop()
            report_errors(self.loop, lambda message, error: self.on_error(message, error))
        return self.loop

    def _make_loop(self) -> ReactorLoop:
        from .loop import make_loop

        return make_loop(self)

    def start_task(
        self, coroutine: Coroutine[Any, Any, None], started: Callable[[asyncio.Task[None]], object]
    ) -> None:
        """Start a task on the loop of this thread; call `started` after its first step.

        So a coroutine that ends at once never needs a deadline, with eager tasks and without.
        """
        task = create_task(self.prepare_loop(), coroutine)
        self._started.append(lambda: started(task))

    def can_step(self) -> bool:
        """Return whether its loop runs, or nothing can look for it as asyncio was not imported."""
        return "asyncio" not in sys.modules or running_loop() is not None

    def _notify_started(self) -> None:
        while self._started:
            self._started.pop(0)()

    def call_in_loop(self, callback: Callback) -> None:
        """Run `callback` in this thread, which is that of the loop; from any thread."""
        self._posted.append(callback)
        self.wake()

    def is_here(self) -> bool:
        """Return True: a worker thread writes its own reply."""
        return True

    def return_to_host(self, callback: Callback) -> None:
        """Run `callback` in place: a worker thread writes its own reply, without a wake-up."""
        callback()
