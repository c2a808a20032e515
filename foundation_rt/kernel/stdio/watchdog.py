"""A thread that ends the process when the main thread cannot.

A handler that blocks the event loop also blocks the detection of end of file, deadlines and
signals. This thread handles (PROC-06, TIME-09):

* a turn that lasts over a second: the blocking handler is named in a WARN;
* a client that hangs up during a turn: the process ends `hang_up_budget` later;
* SIGTERM, SIGINT or SIGHUP when the main thread does not end the process in time, or cannot react
  to a second signal;
* a main thread that is done while something it cannot stop keeps the interpreter alive;
* an idle process that holds much free memory: it is given back (PROC-18).

It wakes when the next of these is due; once a second while turns are taken; and four times per
`hang_up_budget` after the client has gone. So it has seen every turn before anything about it is
due. Otherwise it sleeps without limit.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
import time
from collections.abc import Callable

from ..engine.loop_monitor import LoopMonitor
from ..engine.shutdown import ending_signals, exit_code
from .reactor import READABLE

_TICK_SECONDS = 1.0
_BLOCKED_SECONDS = 1.0
_NEVER = float("inf")
if sys.platform == "win32":
    from .windows import PipePoll

    _HANG_UP = 0
else:
    _HANG_UP = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR

# The commands on the control pipe, besides signal numbers. The interpreter writes the numbers of
# all signals that are handled in the process, including those that a tool handles.
_LOOK = 0
_END = 255


class Watchdog:
    """Watches the main thread from beside it.

    Args:
        peer: the descriptor whose hang-up means that the client has gone; None if the process
            does not end with its client.
        monitor: knows when the present turn began.
        hang_up_budget: how long a turn may last after the client has hung up, in seconds.
        signal_budget: the time from an ending signal to the end of the process, in seconds.
        on_blocked: called with the number of seconds that a turn has lasted.
        on_signal: wakes the main thread: Python calls handlers there alone, and the system may
            deliver a signal to another thread, or to this one just before it waits.
        end_process: ends the process at once with an exit code; does not return.

    Attributes:
        asleep: whether the thread sleeps without limit.
        has_ended: returns whether the peer has ended, on Windows, where only who reads it knows.
    """

    _control: tuple[int, int]
    _thread: threading.Thread

    def __init__(
        self,
        peer: int | None,
        monitor: LoopMonitor,
        *,
        hang_up_budget: float,
        signal_budget: float,
        on_blocked: Callable[[float], object],
        on_signal: Callable[[], object],
        end_process: Callable[[int], object],
    ) -> None:
        self.peer = peer
        self.monitor = monitor
        self.hang_up_budget = hang_up_budget
        self.signal_budget = signal_budget
        self.on_blocked = on_blocked
        self.on_signal = on_signal
        self.end_process = end_process
        self.has_ended: Callable[[], bool] | None = None
        self.asleep = self._signalled = self._ending = False
        self._to_end = ending_signals()
        self._limit = (_NEVER, 0)
        self._hung_up_at: float | None = None
        self._hung_up_in = self._memory = 0
        self._warned_of: float | None = None

    def start(self) -> None:
        """Start the thread."""
        self._control = os.pipe()
        if sys.platform != "win32":
            os.set_blocking(self._control[1], False)
        self._thread = threading.Thread(
            target=self._run, name="foundation-rt-watchdog", daemon=True
        )
        self._thread.start()

    @property
    def signal_descriptor(self) -> int:
        """Return the descriptor for `signal.set_wakeup_fd`: a signal starts the budget."""
        return self._control[1]

    @property
    def descriptors(self) -> tuple[int, int]:
        """Return the watchdog's own descriptors; no child of this process may write there."""
        return self._control

    def look(self) -> None:
        """Wake the thread, because a turn begins while it is asleep."""
        self.asleep = False
        self._send(_LOOK)

    def limit(self, seconds: float, exit_code: int) -> float:
        """End the process with `exit_code` in `seconds`, unless `stop` comes first.

        The time counts from now, or from the hang-up if a long turn kept the main thread from
        noticing it.

        Args:
            seconds: the time that is left.
            exit_code: the exit code of the process.

        Returns:
            The time of that end, in monotonic seconds.
        """
        due = min(time.monotonic() + seconds, self._limit[0])
        if self._hung_up_at is not None and self.monitor.turns <= self._hung_up_in + 1:
            due = min(due, self._hung_up_at + self.hang_up_budget)
        self._limit = (due, exit_code)
        self._send(_LOOK)
        return due

    def note_hang_up(self, now: float) -> None:
        """Allow a turn `hang_up_budget` seconds from now on, since the client has gone."""
        self._hung_up_at = now
        self._hung_up_in = self.monitor.turns

    def stop(self) -> None:
        """End the thread: the process ends by itself, or continues without it."""
        self._send(_END)
        self._thread.join()
        for descriptor in reversed(self._control):  # on Windows the reader's end closes at its end
            os.close(descriptor)

    def _send(self, byte: int) -> None:
        os.write(self._control[1], bytes((byte,)))

    def _run(self) -> None:
        if sys.platform == "win32":
            poll = PipePoll()
            read = poll.read
        else:
            poll, read = select.poll(), os.read
            if self.peer is not None:
                poll.register(self.peer, _HANG_UP)
        poll.register(self._control[0], READABLE)
        turns = -1
        while not self._ending:
            pause = self.pause(time.monotonic())
            ready = poll.poll(None if pause is None else pause * 1000 + 1)
            for descriptor, _ in ready:
                if descriptor == self._control[0]:
                    self._obey(read(descriptor, 64))
                else:
                    poll.unregister(descriptor)  # else it would be reported again and again
                    self.note_hang_up(time.monotonic())
            if not ready:
                # A whole tick has passed. Only a process that took no turn in it is idle: waking
                # this thread for each turn would double the time of a call.
                self.asleep = self._is_idle(turns)
                turns = self.monitor.turns
                if self.asleep:
                    from ...base.free_memory import give_back

                    self._memory = give_back(self._memory)
            if self._hung_up_at is None and self._is_read_to_its_end():
                self.note_hang_up(time.monotonic())
            self._check(time.monotonic())

    def _is_idle(self, turns: int) -> bool:
        """Return whether nothing is due, and no turn was taken since there were `turns`."""
        # Set first, checked then: a turn that begins in between either sees this thread asleep and
        # wakes it, or is seen here.
        self.asleep = True
        return (
            self.monitor.turns == turns
            and self.monitor.turn_started is None
            and self._limit[0] == _NEVER
        )

    def _is_read_to_its_end(self) -> bool:
        """Return whether the input is a file that was read to its end: a file never hangs up."""
        if self.has_ended is not None:
            return self.has_ended()
        if self.peer is None:
            return False
        try:
            state = os.fstat(self.peer)
            return stat.S_ISREG(state.st_mode) and os.lseek(self.peer, 0, 1) >= state.st_size
        except OSError:
            return False

    def _obey(self, commands: bytes) -> None:
        for command in commands:
            if command == _END:
                self._ending = True
            elif command != _LOOK:
                if command in self._to_end:
                    self._limit_by_signal(command)
                self.on_signal()  # also for a handler that a tool has set

    def _limit_by_signal(self, number: int) -> None:
        """Let the process end in time after an ending signal; at once after the second one."""
        due = time.monotonic() + (0.0 if self._signalled else self.signal_budget)
        self._signalled = True
        # The signal's exit code replaces any earlier one (PROC-04).
        self._limit = (min(due, self._limit[0]), exit_code(number))

    def pause(self, now: float) -> float | None:
        """Return the seconds until the next check; None while nothing is to be checked."""
        limit, turn = self._limit[0], self.monitor.turn_started
        if limit == _NEVER and self.asleep:
            return None
        waits = [_TICK_SECONDS, limit - now]
        if turn is not None and turn != self._warned_of:
            waits.append(turn + _BLOCKED_SECONDS - now)
        if self._hung_up_at is not None:
            waits.append(self.hang_up_budget / 4)
            if turn is not None:
                waits.append(max(turn, self._hung_up_at) + self.hang_up_budget - now)
        return max(0.0, min(waits))

    def _check(self, now: float) -> None:
        if self._ending:
            return
        if now >= self._limit[0]:
            self.end_process(self._limit[1])
        turn = self.monitor.turn_started
        if turn is None:
            return
        if now - turn >= _BLOCKED_SECONDS and turn != self._warned_of:
            self._warned_of = turn
            self.on_blocked(now - turn)
        if self._hung_up_at is not None and now - max(turn, self._hung_up_at) > self.hang_up_budget:
            self.end_process(0)
