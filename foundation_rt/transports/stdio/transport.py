"""Line-delimited JSON-RPC over standard input and output, from the first line to the exit code.

The life of the process (spec/process.md):

    opening the lifespan, where there is one ──►
    serving ── end of file ──► answering what is left ── all answered, or the grace is over ──►
    ── SIGTERM, SIGINT, SIGHUP ──► the same, with the longer grace of a shutdown ──►
    ── output closed ─────────────────────────────────────────────────────────► closed ──► gone

*Closed* fires the abort signals and writes nothing more; *gone* comes when the last handler has
ended, and at the latest `server.shutdown_timeout_ms` after the input ended or the signal came,
whatever handlers do. A client that stops reading stops being read: input waits while more than
`_HIGH_WATER_BYTES` of output are pending (PROC-05).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field

from ...core.records import identity_fields
from ...engine.forks import ForkGuard
from ...engine.shutdown import ending_signals
from ...logs.writer import BackgroundWriter
from .descriptors import ProtocolDescriptors, isolate
from .reactor import GONE, READABLE, Reactor
from .watchdog import Watchdog

if TYPE_CHECKING:
    import asyncio

    from ...config.settings import ServerSection
    from ...core.effects import Notify, Reply
    from ...engine.connection import Connection
    from ...protocol.framing import LineTooLong
    from ...runtime import Runtime

_CHUNK_BYTES = 65_536  # what a pipe holds
_HIGH_WATER_BYTES = 4 * 1024 * 1024
_LOW_WATER_BYTES = 1024 * 1024
_GATHER_BYTES = 2048  # so that it still goes out in one direct write of at most PIPE_BUF bytes

# The share of the shutdown budget in which calls may still finish by themselves; the rest is for
# those that were then aborted.
_PATIENCE = 0.8

# The share of it after which whatever still runs is left behind; the rest is for writing the log.
_STOP = 0.9

_LAST_WORDS = 0.2  # seconds for settling calls, and again for the log, when the process is ended

_LOOP_GRACE = 0.5  # seconds in which tasks that handlers left behind may end when cancelled


class Companion(Protocol):
    """What else the process serves, on the loop of the same thread (PROC-11)."""

    async def run(self) -> None:
        """Serve until `stop`, and then until all has ended or its time is up."""

    def stop(self) -> None:
        """Begin to end."""

    @property
    def descriptors(self) -> list[int]:
        """Those that are its clients' alone: no child may use them."""


def serve(
    runtime: Runtime, *, process_goes_on: bool = False, companion: Companion | None = None
) -> int:
    """Serve one client over descriptors 0 and 1 until it leaves; return the exit code.

    0 after end of file or when the client closes the output, 143 after SIGTERM, 130 after SIGINT,
    129 after SIGHUP.

    Args:
        process_goes_on: the process may live on when all has ended; otherwise it is ended at the
            latest when its budget is spent, whatever keeps the interpreter alive (PROC-06).
        companion: served beside, and until a signal comes: the client's leaving ends its session
            alone.
    """
    descriptors = isolate()
    try:
        return StdioTransport(runtime, descriptors, process_goes_on, companion).run()
    finally:
        descriptors.close()


@define(eq=False, repr=False)
class StdioTransport:
    """Moves bytes between the protocol's descriptors and one connection."""

    runtime: Runtime
    descriptors: ProtocolDescriptors
    process_goes_on: bool
    _companion: Companion | None = None
    reactor: Reactor = field(factory=Reactor, init=False)
    connection: Connection = field(init=False)
    _settings: ServerSection = field(init=False)
    _writer: BackgroundWriter = field(init=False)
    _watchdog: Watchdog = field(init=False)
    _lines: deque[bytes | LineTooLong] = field(factory=deque, init=False)
    _gathered: list[bytes] | None = field(default=None, init=False)
    _gathered_bytes: int = field(default=0, init=False)
    _input_ended: bool = field(default=False, init=False)
    _reading: bool = field(default=False, init=False)
    _leaving: bool = field(default=False, init=False)
    _deadline: float | None = field(default=None, init=False)
    _signal: int | None = field(default=None, init=False)
    _restore_signals: Callable[[], None] = field(init=False)
    _guard: ForkGuard = field(init=False)
    _ending: bool = field(default=False, init=False)
    _warm: bool = field(default=False, init=False)
    _open: bool = field(default=False, init=False)
    _opening: asyncio.Task[None] | None = field(default=None, init=False)
    _companion_task: asyncio.Task[None] | None = field(default=None, init=False)
    _session_ends: bool = field(default=False, init=False)
    _failure: Exception | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._settings = self.runtime.config.server
        self._writer = BackgroundWriter(
            self.descriptors.output,
            name="foundation-rt-stdout",
            on_broken=self.reactor.wake,
            on_drained=self.reactor.wake,
            high_water=_HIGH_WATER_BYTES,
            low_water=_LOW_WATER_BYTES,
        )
        self.connection = self.runtime.connect(self._deliver, "stdio", self.reactor)
        self._watchdog = Watchdog(
            self.descriptors.input if self._companion is None else None,
            self.reactor.delay,
            hang_up_budget=self._budget,
            signal_budget=self._budget,
            on_blocked=self._report_blocked,
            on_signal=self.reactor.wake,
            end_process=self._end_process,
        )

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
        reactor.on_wake = self._look_around
        reactor.on_turn = self._begin_turn
        reactor.on_error = self.runtime.report_loop_error
        self.runtime.engine.on_idle = self._on_idle
        self.runtime.resources.event_loop_delay = lambda: reactor.delay.p99_ms(time.monotonic())
        self._watchdog.start()
        self._restore_signals = self._take_signals()
        self._guard = ForkGuard(
            self.runtime.engine, self._own_descriptors, self._on_signal, self.runtime.flush_logs
        )
        try:
            self._begin()
            self._begin_companion()
            # No events: only its end is of interest.
            reactor.watch(self.descriptors.output, 0, self._on_output_gone)
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
        return 0 if self._signal is None else 128 + self._signal

    # -- opening -----------------------------------------------------------------------------

    def _begin(self) -> None:
        """Read, once the lifespan has been entered; without hooks that is at once (OPS-05)."""
        if self.runtime.lifespan is None:
            self._open = True
            self._resume_reading()
        else:
            self.reactor.watch(self.descriptors.input, 0, self._on_hang_up_while_waiting)
            self.reactor.start_task(self._enter_lifespan(), self._keep_opening)

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

    def _keep_opening(self, task: asyncio.Task[None]) -> None:
        self._opening = task

    async def _enter_lifespan(self) -> None:
        try:
            await self.runtime.start_lifespan()
        except Exception as error:
            self._failure = error
            self._leave(0)
        else:
            self._open = True
            self._resume_reading()

    async def _wind_up(self) -> None:
        """End what has run beside the calls: the agents, then the lifespan they may use."""
        import asyncio

        for task in (self._opening, self._companion_task, self.runtime.agents_task):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=min(_LOOP_GRACE, self._remaining()))
        await self.runtime.stop_lifespan(self._remaining() * _STOP)
        await self.runtime.close_operations()

    # -- input -------------------------------------------------------------------------------

    def _on_readable(self, events: int) -> None:
        if self._signal is not None:
            return  # it came in the same turn: no more input is served
        try:
            data = os.read(self.descriptors.input, _CHUNK_BYTES)
        except OSError:
            data = b""  # a terminal that hung up, a socket that was reset: it has ended
        if data:
            self._lines.extend(self.connection.reader.feed(data))
        else:
            self._lines.extend(self.connection.reader.end())
            self._input_ended = True
            self._stop_reading()
        self._serve_lines()

    def _serve_lines(self) -> None:
        """Serve what has been read, as long as the client takes what is answered."""
        lines = self._lines
        if len(lines) > 1:
            with self.connection.lock:
                self._gathered = []
        try:
            while lines and self._writer.pending_bytes <= _HIGH_WATER_BYTES:
                try:
                    self.connection.receive(lines[0])
                finally:
                    del lines[0]
        finally:
            self._write_gathered()
        if lines:
            self._pause_reading()
        elif self._input_ended:
            self._leave(self._settings.eof_grace_ms / 1000)
        if not self._warm:
            self._warm_up()

    def _stop_reading(self) -> None:
        self.reactor.unwatch(self.descriptors.input)
        self._reading = False

    def _pause_reading(self) -> None:
        """Read on when the output has drained; until then only a hang-up is of interest."""
        self._stop_reading()
        if not self._input_ended:
            self.reactor.watch(self.descriptors.input, 0, self._on_hang_up_while_waiting)

    def _on_hang_up_while_waiting(self, events: int) -> None:
        """It has gone without its answers, or will read them yet: give it a while."""
        self.reactor.unwatch(self.descriptors.input)
        self.reactor.call_later(self._budget * _PATIENCE, self._disconnect_if_waiting)

    def _disconnect_if_waiting(self) -> None:
        if self._lines or not self._open:
            self._disconnect()

    def _resume_reading(self) -> None:
        if self._open and not (self._reading or self._input_ended or self._leaving):
            self._reading = True
            self.reactor.unwatch(self.descriptors.input)
            self.reactor.watch(self.descriptors.input, READABLE, self._on_readable)

    def _warm_up(self) -> None:
        """Between the answer to `initialize` and the first call, get ready for coroutines."""
        self._warm = True
        if self.runtime.needs_event_loop():
            self.reactor.prepare_loop()
            # Importing asyncio is no load that an event would wait for another time.
            self.reactor.delay.begin_turn(time.monotonic())
        self.runtime.start_agents(self.reactor)

    # -- output ------------------------------------------------------------------------------

    def _deliver(self, message: Reply | Notify) -> None:
        """Write a message; while several lines of input are served, gather what fits one write.

        Calls that arrive together and end at once are answered together: every write to a client
        that sleeps costs a wake-up, and with eight calls in flight this gives a third more calls a
        second. The price: an inline handler that blocks, as none should, holds back the replies
        to the lines before it (PROC-09). Called under the connection's lock.
        """
        gathered = self._gathered
        if gathered is None:
            self._writer.write(message.line + b"\n")
            return
        gathered.append(message.line + b"\n")
        self._gathered_bytes += len(message.line) + 1
        if self._gathered_bytes >= _GATHER_BYTES:
            self._gathered = None
            self._flush(gathered)

    def _write_gathered(self) -> None:
        with self.connection.lock:
            gathered, self._gathered = self._gathered, None
            if gathered:
                self._flush(gathered)

    def _flush(self, gathered: list[bytes]) -> None:
        self._gathered_bytes = 0
        self._writer.write(b"".join(gathered))

    def _on_output_gone(self, events: int) -> None:
        if events & GONE:
            self._disconnect()

    # -- leaving -----------------------------------------------------------------------------

    def _look_around(self) -> None:
        """Something happened outside this thread: see what it was."""
        if self._signal is not None and not self._leaving:
            self._stop_reading()
            self._lines.clear()
            self._leave(self._budget * _PATIENCE)
        if self._writer.broken:
            self._disconnect()
        if self._lines or self._input_ended:
            self._serve_lines()
        if not self._lines:
            self._resume_reading()
        if self._leaving:
            self._stop_if_idle()

    def _leave(self, grace: float) -> None:
        """No more input: calls may finish within `grace` seconds, then they are aborted."""
        if self._leaving:
            return
        self.connection.end_listening()
        if self._companion is not None:
            if self._signal is None and self._failure is None:
                self._end_session(grace)
                return
            self._companion.stop()
        self._leaving = True
        self._deadline = self._watchdog.limit(self._budget, self._exit_code)
        self.reactor.call_later(min(grace, self._remaining() * _PATIENCE), self._disconnect)
        self.reactor.call_later(self._remaining() * _STOP, self.reactor.stop)
        self._stop_if_idle()

    def _end_session(self, grace: float) -> None:
        """PROC-11: the client has left, and the process stays for others."""
        if not self._session_ends:
            self._session_ends = self._input_ended = True
            self.reactor.call_later(grace, self._disconnect)

    def _disconnect(self) -> None:
        """Write nothing more, abort what runs, and go when it has ended."""
        self._lines.clear()
        self._stop_reading()
        self.reactor.unwatch(self.descriptors.output)
        reason = "disconnected" if self._signal is None else "shutdown"
        self.connection.close(reason)
        self._leave(self._budget)
        if self._leaving:
            self.runtime.stop_tasks(reason)
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
        """Let what was answered reach the client, then say goodbye to what can't be stopped."""
        if not self._writer.broken and not self.connection.closed:
            # A client that does not read takes no time from the hooks.
            share = 1.0 if self.runtime.lifespan is None else _PATIENCE
            self._writer.flush(self._remaining() * share)
        self.connection.close()
        self._writer.close(0)
        self._guard.stop()
        self.reactor.unwatch(self.descriptors.input)
        self.reactor.unwatch(self.descriptors.output)
        self.reactor.close(min(_LOOP_GRACE, self._remaining()), self._wind_up)
        stuck = self._account_for_what_runs()
        if self.process_goes_on and not stuck and not _foreign_threads():
            self._restore_signals()
            self._watchdog.stop()
        self.runtime.close_logs(max(0.1, min(1.0, self._remaining())))

    def _account_for_what_runs(self) -> bool:
        """PROC-10: what has not ended is named, and has its record; whether there was any."""
        stuck = self.runtime.engine.give_up()
        for call in stuck:
            fields = identity_fields(call)
            self.runtime.logger.warn("handler has not ended; the process ends without it", fields)
        return bool(stuck)

    def _remaining(self) -> float:
        """Seconds left of the budget."""
        if self._deadline is None:
            return self._budget
        return max(0.0, self._deadline - time.monotonic())

    # -- signals and the watchdog ------------------------------------------------------------

    def _take_signals(self) -> Callable[[], None]:
        """Handle the signals that end it; return the function that gives them back."""
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        previous = {each: signal.signal(each, self._on_signal) for each in ending_signals()}
        descriptor = signal.set_wakeup_fd(
            self._watchdog.signal_descriptor, warn_on_full_buffer=False
        )

        def restore() -> None:
            signal.set_wakeup_fd(descriptor)
            for number, handler in previous.items():
                signal.signal(number, handler)

        return restore

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._signal is not None:
            self._watchdog.limit(0, 128 + number)  # asked twice: at once
        self._signal = number
        self.reactor.wake()

    def _begin_turn(self) -> None:
        if self._watchdog.asleep:
            self._watchdog.look()

    def _report_blocked(self, seconds: float) -> None:
        """TIME-09: name the handler that keeps the event loop from running."""
        fields: dict[str, Any] = {"blockedSeconds": round(seconds, 1)}
        call = self.runtime.engine.on_loop(self.reactor.loop)
        if call is not None:
            fields |= identity_fields(call)
        self.runtime.logger.warn("a handler blocks the event loop", fields)

    def _end_process(self, exit_code: int) -> None:
        """The last resort: calls and log are settled, everything else is left where it is."""
        self._ending = True
        # In a thread of its own, with a bound: it waits for locks, and fires abort callbacks.
        last = threading.Thread(target=self._settle, daemon=True)
        with suppress(RuntimeError):
            last.start()
            last.join(_LAST_WORDS)
        self.runtime.close_logs(_LAST_WORDS)
        os._exit(exit_code)

    def _settle(self) -> None:
        self.connection.close()
        self._account_for_what_runs()


def _foreign_threads() -> bool:
    """Return whether a thread that is not ours would keep the interpreter from ending."""
    return any(
        not thread.daemon and thread is not threading.main_thread()
        for thread in threading.enumerate()
        if thread is not threading.current_thread()
    )
