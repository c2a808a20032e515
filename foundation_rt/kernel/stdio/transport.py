"""Line-delimited JSON-RPC over standard input and output, from the first line to the exit code.

The life of the process (spec/process.md):

    opening the lifespan, if there is one; before it, if its hooks allow that, `initialize` ──►
    serving ── end of file ──► answering the rest ── all answered, or the grace is over ──►
    ── SIGTERM, SIGINT, SIGHUP ──► the same, with the longer grace of a shutdown ──►
    ── output closed ─────────────────────────────────────────────────────────► closed ──► gone

*Closed* fires the abort signals and writes nothing more. *Gone* comes when the last handler has
ended, and at the latest `server.shutdown_timeout_ms` after the input ended or the signal came,
whatever handlers do.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from ..engine.forks import ForkGuard
from ..engine.shutdown import (
    HANDLER_SHARE,
    LOOP_GRACE_SECONDS,
    STOP_SHARE,
    abandon_calls,
    end_process,
    exit_code,
    handling_signals,
)
from ..records import identity_fields
from .descriptors import ProtocolDescriptors, isolate
from .streams import ClientStreams
from .watchdog import Watchdog

if sys.platform == "win32":
    from .windows import WindowsReactor as Reactor
else:
    from .reactor import Reactor

if TYPE_CHECKING:
    import asyncio

    from ..runtime import Runtime


_QUIET_SECONDS = 0.01
"""The time without an event after which checks are generated: the client is at work."""

_BUSY_SECONDS = 0.25
"""The longest time between two looks: a call that runs for long costs four wake-ups a second."""


class Companion(Protocol):
    """A second transport of the process, on the loop of the same thread (PROC-11)."""

    async def run(self) -> None:
        """Serve until `stop`, and then until every call has ended or the time is up."""

    def stop(self) -> None:
        """Begin to end."""

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that no child process may use."""


def serve(
    runtime: Runtime,
    *,
    descriptors: ProtocolDescriptors | None = None,
    process_goes_on: bool = False,
    companion: Companion | None = None,
) -> int:
    """Serve one client over descriptors 0 and 1 until it leaves; return the exit code.

    0 after end of file or when the client closes the output, 143 after SIGTERM, 130 after SIGINT,
    129 after SIGHUP.

    Args:
        runtime: the server's runtime.
        descriptors: of the protocol, if they are isolated already.
        process_goes_on: whether the process may continue afterwards. Otherwise it ends at the
            latest when its budget is spent, whatever keeps the interpreter alive (PROC-06).
        companion: served at the same time, and until a signal comes: when the client leaves, only
            its session ends.
    """
    descriptors = descriptors or isolate()
    try:
        return StdioTransport(runtime, descriptors, process_goes_on, companion).run()
    finally:
        descriptors.close()


class StdioTransport:
    """A process that serves one client over stdio: its start, its signals and its end."""

    _guard: ForkGuard
    _restore_signals: Callable[[], None]

    def __init__(
        self,
        runtime: Runtime,
        descriptors: ProtocolDescriptors,
        process_goes_on: bool,
        companion: Companion | None,
    ) -> None:
        self.runtime = runtime
        self.descriptors = descriptors
        self.process_goes_on = process_goes_on
        self._companion = companion
        self._settings = runtime.config.server
        self._signal: int | None = None
        self._deadline: float | None = None
        self._leaving = self._ending = self._session_ends = False
        self._failure: Exception | None = None
        self._opening: asyncio.Task[None] | None = None
        self._companion_task: asyncio.Task[None] | None = None
        self.reactor = Reactor()
        self._streams = ClientStreams(
            self.reactor,
            self.descriptors,
            self._budget,
            on_end=self._on_input_end,
            on_gone=self._disconnect,
            on_first_lines=self._warm_up,
        )
        self.connection = self.runtime.connect(self._streams.deliver, "stdio", self.reactor)
        self._streams.connection = self.connection
        self._watchdog = Watchdog(
            self.descriptors.input if self._companion is None else None,
            self.reactor.monitor,
            hang_up_budget=self._budget,
            signal_budget=self._budget,
            on_blocked=self._report_blocked,
            on_signal=self.reactor.wake,
            end_process=self._end_process,
        )

        if sys.platform == "win32" and self._companion is None:
            self._watchdog.has_ended = lambda: self.reactor.has_ended(self.descriptors.input)

    @property
    def _budget(self) -> float:
        """Seconds from the end of the input, or from a signal, to the end of the process."""
        return self._settings.shutdown_timeout_ms / 1000

    def run(self) -> int:
        """Serve until the client has left and its handlers have ended, or their time is up.

        Raises:
            LifespanError: a lifespan hook failed to start (OPS-05).
        """
        reactor = self.reactor
        reactor.on_wake = self._check_state
        reactor.on_turn = self._begin_turn
        reactor.on_error = self.runtime.report_loop_error
        self.runtime.engine.on_idle = self._on_idle
        self.runtime.resources.event_loop_delay = lambda: reactor.monitor.p99_ms(time.monotonic())
        self._watchdog.start()
        self._restore_signals = self._take_signals()
        self._guard = ForkGuard(
            self.runtime.engine, self._own_descriptors, self._on_signal, self.runtime.flush_logs
        )
        try:
            self._begin()
            self._begin_companion()
            self._streams.watch_output()
            reactor.run()
        finally:
            self._clean_up()
        if self._failure is not None:
            raise self._failure
        return self._exit_code

    def _own_descriptors(self) -> list[int]:
        ours = self.descriptors
        others = [] if self._companion is None else self._companion.descriptors
        own = *self.reactor.descriptors, *self._watchdog.descriptors
        return [ours.input, ours.output, *own, *others]

    @property
    def _exit_code(self) -> int:
        if self._failure is not None:
            return 1
        return 0 if self._signal is None else exit_code(self._signal)

    # -- opening ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Read, once the lifespan has been entered; without hooks that is at once (OPS-05)."""
        if self.runtime.lifespan is None:
            self._streams.open()
        else:
            if self.runtime.lifespan.after_initialize:
                from .early_answer import answer_initialize

                answer_initialize(self.reactor, self.descriptors.input, self._streams)
            self._streams.watch_hang_up()
            self.reactor.start_task(self._enter_lifespan(), self._keep_opening)

    def _keep_opening(self, task: asyncio.Task[None]) -> None:
        self._opening = task

    async def _enter_lifespan(self) -> None:
        try:
            await self.runtime.start_lifespan()
        except Exception as error:
            self._failure = error
            self._leave(0)
        else:
            self._streams.open()

    def _begin_companion(self) -> None:
        if self._companion is not None:
            self.reactor.start_task(self._run_companion(self._companion), self._keep_companion)

    def _keep_companion(self, task: asyncio.Task[None]) -> None:
        self._companion_task = task

    async def _run_companion(self, companion: Companion) -> None:
        try:
            await companion.run()
        except Exception as error:
            self._failure = error
        self._companion = None
        if self._failure is not None:
            self._leave(0)
        self.reactor.wake()

    def _warm_up(self) -> None:
        """Prepare for coroutines, between the answer to `initialize` and the first call."""
        if self.runtime.needs_event_loop():
            self.reactor.prepare_loop()
            # Importing asyncio does not count as the delay of an event.
            self.reactor.monitor.begin_turn(time.monotonic())
        self.runtime.start_background(self.reactor)
        self._generate_later(self.runtime.registry.generate_checks(), _QUIET_SECONDS)

    def _generate_later(self, checks: Iterator[None], seconds: float) -> None:
        """Generate the checks one at a time, whenever there is nothing else to do (REG-18)."""
        turn = self.reactor.monitor.turns + 1

        def step() -> None:
            if self._leaving or self._streams.input_ended:
                return
            is_quiet = turn == self.reactor.monitor.turns and not self.runtime.engine.running
            if not is_quiet or self.reactor.has_input(self.descriptors.input):
                self._generate_later(checks, min(_BUSY_SECONDS, 2 * (seconds or _QUIET_SECONDS)))
            elif next(checks, self) is not self:
                self._generate_later(checks, 0)

        self.reactor.call_later(seconds, step)

    # -- leaving ---------------------------------------------------------------------------------

    def _check_state(self) -> None:
        """React to what happened outside of this thread."""
        streams = self._streams
        if self._signal is not None and not self._leaving:
            streams.discard()
            self._leave(self._budget * HANDLER_SHARE)
        if streams.is_broken:
            self._disconnect()
        if streams.lines or streams.input_ended:
            streams.serve_lines()
        if not streams.lines:
            streams.resume_reading()
        if self._leaving:
            self._stop_if_idle()

    def _on_input_end(self) -> None:
        self._leave(self._settings.eof_grace_ms / 1000)

    def _leave(self, grace: float) -> None:
        """Take no more input; abort the calls that have not ended within `grace` seconds."""
        if self._leaving:
            return
        self.connection.prepare_stop()
        if self._companion is not None:
            if self._signal is None and self._failure is None:
                self._end_session(grace)
                return
            self._companion.stop()
        self._leaving = self._streams.stopped = True
        self._deadline = self._watchdog.limit(self._budget, self._exit_code)
        self.reactor.call_later(min(grace, self._remaining() * HANDLER_SHARE), self._disconnect)
        self.reactor.call_later(self._remaining() * STOP_SHARE, self.reactor.stop)
        self._stop_if_idle()

    def _end_session(self, grace: float) -> None:
        """End the session of the client that has left; the process serves others (PROC-11)."""
        if not self._session_ends:
            self._session_ends = self._streams.input_ended = True
            self.reactor.call_later(grace, self._disconnect)

    def _disconnect(self) -> None:
        """Write nothing more, abort all calls, and leave when they have ended."""
        self._streams.disconnect()
        reason = "disconnected" if self._signal is None else "shutdown"
        self.connection.close(reason)
        self._leave(self._budget)
        if self._leaving:
            self.runtime.stop_features(reason)
        self._stop_if_idle()

    def _stop_if_idle(self) -> None:
        # Not when the watchdog is ending the process: the interpreter, on its way out, would give
        # the signals back their default before the exit code is set.
        if self._leaving and not (self.runtime.engine.running or self._ending or self._companion):
            self.reactor.stop()

    def _on_idle(self) -> None:
        if self._leaving:
            self.reactor.wake()

    def _clean_up(self) -> None:
        """Flush the output, end the loop, and report the calls that cannot be stopped."""
        if not self.connection.closed:
            # A client that does not read must not take the hooks' time.
            share = 1.0 if self.runtime.lifespan is None else HANDLER_SHARE
            self._streams.flush(self._remaining() * share)
        self.connection.close()
        self._streams.close()
        self._guard.stop()
        self.reactor.close(min(LOOP_GRACE_SECONDS, self._remaining()), self._wind_up)
        stuck = abandon_calls(self.runtime.engine, self.runtime.logger)
        if self.process_goes_on and not stuck and not _foreign_threads():
            self._restore_signals()
            self._watchdog.stop()
        self.runtime.close_logs(max(0.1, min(1.0, self._remaining())))

    async def _wind_up(self) -> None:
        """End the background tasks, and then the lifespan that they may use."""
        import asyncio

        for task in (self._opening, self._companion_task, self.runtime.background_task):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=min(LOOP_GRACE_SECONDS, self._remaining()))
        await self.runtime.stop_lifespan(self._remaining() * STOP_SHARE)
        await self.runtime.close_features()

    def _remaining(self) -> float:
        """Return what is left of the budget, in seconds."""
        if self._deadline is None:
            return self._budget
        return max(0.0, self._deadline - time.monotonic())

    # -- signals and the watchdog ----------------------------------------------------------------

    def _take_signals(self) -> Callable[[], None]:
        """Handle the ending signals; return a function that restores the previous handlers."""
        stack = ExitStack()
        if threading.current_thread() is threading.main_thread():
            stack.enter_context(handling_signals(self._on_signal))
            descriptor = self._watchdog.signal_descriptor
            before = signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
            stack.callback(signal.set_wakeup_fd, before)
        return stack.close

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._signal is not None:
            self._watchdog.limit(0, exit_code(number))  # the second signal: at once
        self._signal = number
        self._streams.stopped = True
        self.reactor.wake()

    def _begin_turn(self) -> None:
        if self._watchdog.asleep:
            self._watchdog.look()

    def _report_blocked(self, seconds: float) -> None:
        """Log the handler that blocks the event loop (TIME-09)."""
        fields: dict[str, Any] = {"blockedSeconds": round(seconds, 1)}
        call = self.runtime.engine.on_loop(self.reactor.loop)
        if call is not None:
            fields |= identity_fields(call)
        self.runtime.logger.warn("a handler blocks the event loop", fields)

    def _end_process(self, exit_code: int) -> None:
        self._ending = True
        end_process(self._settle, self.runtime.close_logs, exit_code)

    def _settle(self) -> None:
        self.connection.close()
        abandon_calls(self.runtime.engine, self.runtime.logger)


def _foreign_threads() -> bool:
    """Return whether a thread of the application would keep the interpreter from ending."""
    return any(
        not thread.daemon and thread is not threading.main_thread()
        for thread in threading.enumerate()
        if thread is not threading.current_thread()
    )
