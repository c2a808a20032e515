"""The one place where the main thread of a stdio process waits.

A `turn` waits for descriptors, timers and wake-ups, then serves what is there. As long as no
handler is a coroutine, `run` takes one turn after another and asyncio is not even imported: that
saves a third of the start-up, and half of a round trip (measured: 20 us through asyncio's reader
callbacks against 10 us here).

With the first coroutine an asyncio loop moves in. It runs in the same thread and gets its waiting
done by the same `turn`: the loop's selector is one whose `select` takes a turn, with asyncio's own
descriptors among those that are waited for. So there is one way of waiting, before and after.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Coroutine
from math import ceil
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ...engine.loop_monitor import LoopDelay
from ...engine.scheduling import (
    ReportError,
    create_task,
    ignore_error,
    interruption,
    report_errors,
)
from ...engine.timers import Callback, QueuedTimer, TimerQueue

if TYPE_CHECKING:
    import asyncio

    from .loop import ReactorLoop

READABLE = select.POLLIN
# POLLHUP and POLLERR are reported whether asked for or not.
GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL

_MAX_FAILURES = 100
"""Turns in a row that may be broken off: what breaks every one is a bug, and no accident."""


@define(eq=False, repr=False)
class Reactor:
    """Waits and serves; belongs to the thread that calls `run`.

    Only `wake`, `stop`, `return_to_host` and `QueuedTimer.cancel` may be called from other threads.
    """

    delay: LoopDelay = field(factory=LoopDelay, init=False)
    loop: ReactorLoop | None = field(default=None, init=False)
    on_wake: Callback = field(default=lambda: None)
    on_turn: Callback = field(default=lambda: None)
    on_error: ReportError = ignore_error
    _poll: select.poll = field(factory=select.poll, init=False)
    _handlers: dict[int, Callable[[int], object]] = field(factory=dict, init=False)
    _timers: TimerQueue = field(factory=TimerQueue, init=False)
    _wake_pipe: tuple[int, int] = field(factory=os.pipe, init=False)
    # Reentrant: a signal handler that wakes may interrupt a wake under way in the same thread.
    _wake_lock: threading.RLock = field(factory=threading.RLock, init=False)
    _woken: bool = field(default=False, init=False)
    stopped: bool = field(default=False, init=False)
    _closing: bool = field(default=False, init=False)
    _fresh: list[Callback] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.watch(self._wake_pipe[0], READABLE, self._on_wake_byte)

    @property
    def descriptors(self) -> tuple[int, int]:
        """Its own; a child of this process must not write there."""
        return self._wake_pipe

    # -- what to wait for --------------------------------------------------------------------

    def watch(self, descriptor: int, events: int, handler: Callable[[int], object]) -> None:
        """Call `handler(events)` when `events`, or an end of the descriptor, is there."""
        self._handlers[descriptor] = handler
        self._poll.register(descriptor, events)

    def unwatch(self, descriptor: int) -> None:
        """Wait for the descriptor no more."""
        if self._handlers.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def call_later(self, seconds: float, callback: Callback) -> QueuedTimer:
        """Run `callback` in `seconds`, in this thread."""
        return self._timers.add(time.monotonic() + seconds, callback)

    def wake(self) -> None:
        """End the present wait and have `on_wake` called; from any thread or signal handler."""
        with self._wake_lock:
            if not self._woken:
                self._woken = True
                os.write(self._wake_pipe[1], b"\0")

    def _on_wake_byte(self, events: int) -> None:
        os.read(self._wake_pipe[0], 64)
        self._woken = False
        self.on_wake()

    # -- running -----------------------------------------------------------------------------

    def run(self) -> None:
        """Take turns until `stop`; go on inside an asyncio loop once there is one.

        What comes out of a turn is reported, and the next one is taken (ERR-07). Where no turn
        goes well any more, the last error is raised.
        """
        failures = 0
        while not self.stopped:
            turns = self.delay.turns
            try:
                if self.loop is None:
                    self.turn(None)
                    failures = 0
                else:
                    self.loop.run_forever()
            except BaseException as error:
                failures = failures + 1 if self.delay.turns <= turns + 1 else 1
                if failures > _MAX_FAILURES:
                    raise
                self._recover(error)
        # What follows, waiting for a slow client for one, is no turn that a handler makes last.
        self.delay.end_turn(time.monotonic())

    def _recover(self, error: BaseException) -> None:
        """A turn was broken off: report it, and have everything looked at once more."""
        self.on_error(interruption(error), error)
        self._woken = False
        self.wake()

    def stop(self) -> None:
        """Have `run` return after the present turn."""
        if not self._closing:
            self.stopped = True
            self.wake()

    def turn(self, timeout: float | None) -> None:
        """Wait `timeout` seconds at most (None: until something happens), then serve it."""
        if self._fresh:
            self._tell_started()
        now = time.monotonic()
        self.delay.end_turn(now)
        due = self._timers.next_due()
        if due is not None:
            remaining = max(0.0, due - now)
            timeout = remaining if timeout is None else min(timeout, remaining)
        # Rounded up: a wait that ends before its timer is due would only be repeated.
        ready = self._poll.poll(None if timeout is None else ceil(timeout * 1000))
        now = time.monotonic()
        self.delay.begin_turn(now)
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
        """Give back the descriptors, and end the asyncio loop, if any, within `grace` seconds.

        Args:
            first: what is done on the loop before its tasks are ended.
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
            # Whoever wakes it from now on, a worker that ends late for one, writes nothing: the
            # number may belong to somebody else's file by then.
            self._woken = True
            for descriptor in self._wake_pipe:
                os.close(descriptor)

    # -- coroutines --------------------------------------------------------------------------

    def prepare_loop(self) -> ReactorLoop:
        """The asyncio loop, made when it is first asked for."""
        if self.loop is None:
            from .loop import make_loop

            self.loop = make_loop(self)
            report_errors(self.loop, lambda message, error: self.on_error(message, error))
        return self.loop

    def start_task(
        self, coroutine: Coroutine[Any, Any, None], started: Callable[[asyncio.Task[None]], object]
    ) -> None:
        """A task on the loop of this thread; `started` is called when it has had its first go.

        So a coroutine that ends at once never has its deadline armed, with eager start and without.
        """
        task = create_task(self.prepare_loop(), coroutine)
        self._fresh.append(lambda: started(task))

    def _tell_started(self) -> None:
        while self._fresh:
            self._fresh.pop(0)()

    def call_in_loop(self, callback: Callback) -> None:
        """On the loop of this thread."""
        self.prepare_loop().call_soon_threadsafe(callback)

    def is_here(self) -> bool:
        """Always: a worker thread writes for itself."""
        return True

    def return_to_host(self, callback: Callback) -> None:
        """In place: a worker thread writes its own reply, which saves waking this one."""
        callback()
