"""A server that is part of a program of its own: where its timers and coroutines run (EMBED-02).

The program either has an event loop, on which everything then runs, or it has none: then a timer
thread and a loop thread start when they are first needed (EMBED-03).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from ..base.abort import call_in_loop
from ..base.timers import Callback, QueuedTimer, Timer, TimerQueue
from ..errors import UsageError
from ..kernel.engine.loop_monitor import LoopMonitor
from ..kernel.engine.scheduling import (
    ReportError,
    report_errors,
    run_protected,
    running_loop,
    start_task_on,
)

if TYPE_CHECKING:
    import asyncio

    from ..kernel.effects import Notify, Reply
    from ..kernel.engine.connection import Connection, Send
    from ..kernel.runtime import Runtime
    from ..kernel.session import TransportType

_SAMPLE_SECONDS = 0.1


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
        start_task_on(self.loop, coroutine, started)

    def call_in_loop(self, callback: Callback) -> None:
        """Run `callback` on the host's loop."""
        self.loop.call_soon_threadsafe(callback)

    def return_to_host(self, callback: Callback) -> None:
        """Run `callback` on the host's loop, unless that is closed."""
        call_in_loop(self.loop, callback)

    def can_step(self) -> bool:
        """Return whether the loop of the host runs here."""
        return self.is_here()

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
class TimerThread:
    """Runs timers in a thread of their own; any thread may add one."""

    _queue: TimerQueue = field(factory=TimerQueue, init=False)
    _changed: threading.Condition = field(factory=threading.Condition, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def call_later(self, seconds: float, callback: Callback) -> QueuedTimer:
        """Run `callback` in `seconds`."""
        due = time.monotonic() + seconds
        with self._changed:
            before = self._queue.next_due()
            timer = self._queue.add(due, callback)
            if self._thread is None:
                thread = threading.Thread(
                    target=self._run, name="foundation-rt-timers", daemon=True
                )
                thread.start()
                self._thread = thread
            elif before is None or due < before:
                self._changed.notify()
        return timer

    def _run(self) -> None:
        while True:
            with self._changed:
                callbacks = list(self._queue.pop_due(time.monotonic()))
                if not callbacks:
                    due = self._queue.next_due()
                    self._changed.wait(None if due is None else due - time.monotonic())
            for callback in callbacks:
                callback()


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
        loop.call_soon_threadsafe(start_task_on, loop, coroutine, started)

    def call_in_loop(self, callback: Callback) -> None:
        """Run `callback` on the loop thread."""
        self._running_loop().call_soon_threadsafe(callback)

    def can_step(self) -> bool:
        """Return False: one thread runs all coroutines."""
        return False

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


class Closable(Protocol):
    """A user of a loop until it is closed: a connection or an application."""

    @property
    def closed(self) -> bool:
        """Return whether it no longer uses the loop."""


@define(eq=False, repr=False)
class HostLoopMonitor:
    """Monitors a host's own loop by a probe, as long as any of its users is open."""

    host: HostLoop
    monitor: LoopMonitor = field(factory=LoopMonitor, init=False)
    # Only the probe removes closed users: it runs as long as there is a user.
    _users: list[Closable] = field(factory=list, init=False)

    def watch(self, user: Closable) -> None:
        """Probe at least until `user` is closed."""
        self._users.append(user)
        if len(self._users) == 1:
            self.host.probe(self.monitor, self._is_used)

    def is_used(self) -> bool:
        """Return whether any user of the loop is open."""
        return not all(each.closed for each in self._users)

    def _is_used(self) -> bool:
        self._users = [each for each in self._users if not each.closed]
        return bool(self._users)


class Embedding:
    """One server within a program: its connections, on the loop of the program or its own threads.

    Args:
        runtime: the server.
    """

    __slots__ = ("_loop_thread", "_monitored", "_runtime")

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._loop_thread = Background(runtime.report_loop_error)
        self._monitored: HostLoopMonitor | None = None

    def connect(self, send: Send, transport_type: TransportType) -> Connection:
        """Return a connection of an embedding host, on its running event loop if it has one.

        Raises:
            UsageError: the server has lifespan hooks that have not been entered (OPS-06).
        """
        if self._runtime.lifespan is not None and not self._runtime.lifespan.is_open:
            raise UsageError(
                "the server has lifespan hooks: connect within `async with server.lifetime():`,"
                " or in a host without an event loop within `with server.lifetime():`"
            )
        loop = running_loop()

        def deliver(message: Reply | Notify) -> None:
            send(message.line)

        if loop is None:
            connection = self._runtime.connect(deliver, transport_type, self._loop_thread)
        else:
            host = self._monitor_of(loop)
            connection = self._runtime.connect(deliver, transport_type, host.host)
            host.watch(connection)
        self._runtime.start_background(connection.scheduler)
        return connection

    def use_loop(self, loop: asyncio.AbstractEventLoop, user: Closable) -> HostLoop:
        """Return the scheduler of `loop`, whose delay is monitored until `user` is closed."""
        host = self._monitor_of(loop)
        host.watch(user)
        return host.host

    @property
    def is_serving(self) -> bool:
        """Return whether a connection or an application on a host's event loop is open."""
        return self._monitored is not None and self._monitored.is_used()

    def _monitor_of(self, loop: asyncio.AbstractEventLoop) -> HostLoopMonitor:
        """Return the monitor of `loop`; the delay of the latest loop is the reported one."""
        if self._monitored is None or self._monitored.host.loop is not loop:
            self._monitored = monitored = HostLoopMonitor(HostLoop(loop))
            resources = self._runtime.resources
            resources.event_loop_delay = lambda: monitored.monitor.p99_ms(time.monotonic())
        return self._monitored

    def run_in_background(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `function()` on the loop thread of a host without a loop, and wait for its end.

        Raises:
            UsageError: an event loop runs in this thread.
        """
        if running_loop() is not None:
            raise UsageError("this host has an event loop: use `async with server.lifetime():`")
        self._loop_thread.run(function())
