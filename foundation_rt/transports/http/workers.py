"""Several processes behind one port (HTTP-23).

Each worker is a `foundation-rt serve` of its own that binds the port as one of many (SO_REUSEPORT):
the system gives every new connection to one of them. A request of the stateless era may come to
any, since all seal with one key; a session of the handshake era lives in the worker it began in.

A worker's standard input is a socket to the process that started it. The worker writes a byte when
it serves, and ends when the other side has gone.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from attrs import define, field

from .signals import handling_signals

WORKER_VARIABLE = "FOUNDATION_RT_WORKER"
"""Is set for a worker: the key that it seals with unless the configuration has one."""

SETTLED_SECONDS = 10.0
"""A worker that has lived so long is replaced at once."""

_FIRST_DELAY = 0.1
_MAX_DELAY = 10.0

_FAILURE_EXIT = 1


def shared_state_key() -> str | None:
    """The key of this worker's group, in hexadecimal; None in a process that is no worker."""
    return os.environ.get(WORKER_VARIABLE)


def is_worker() -> bool:
    """Return whether this process is a worker, and so must not start any."""
    return WORKER_VARIABLE in os.environ


def report_serving() -> None:
    """Tell the process that started this worker that it serves."""
    with suppress(OSError):
        os.write(0, b"\0")


def keep_workers(words: Sequence[str], count: int) -> int:
    """Run `count` processes of `foundation-rt` with the arguments `words` until a signal comes.

    One that ends is replaced, after a pause that grows if it ends soon again.

    Returns:
        143 after SIGTERM, 130 after SIGINT, 129 after SIGHUP, 1 when no worker ever served.
    """
    return _Supervisor([sys.executable, "-m", "foundation_rt", *words]).run(count)


@define(eq=False, repr=False)
class Backoff:
    """The pauses between the workers that follow each other in one place."""

    _delay: float = field(default=_FIRST_DELAY, init=False)

    def delay_after(self, seconds: float) -> float:
        """Return the pause after a worker that has lived for `seconds`, in seconds."""
        if seconds >= SETTLED_SECONDS:
            self._delay = _FIRST_DELAY
            return 0.0
        delay, self._delay = self._delay, min(_MAX_DELAY, 2 * self._delay)
        return delay


@define(eq=False, repr=False)
class _Place:
    """Where one worker after another runs.

    Attributes:
        process: the worker; None while there is none.
        channel: our end of its standard input.
        heard: whether it has written there, or closed its end.
        since: when it was started, in monotonic seconds.
        due: when the next one is to be started.
    """

    backoff: Backoff = field(factory=Backoff)
    process: subprocess.Popen[bytes] | None = None
    channel: socket.socket | None = None
    heard: bool = False
    since: float = 0.0
    due: float = 0.0


@define(eq=False, repr=False)
class _Supervisor:
    """Starts workers, replaces them, and ends them."""

    _command: list[str]
    _environment: dict[str, str] = field(init=False)
    _places: list[_Place] = field(factory=list, init=False)
    _signal: int | None = field(default=None, init=False)
    _has_served: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._environment = {**os.environ, WORKER_VARIABLE: secrets.token_hex(32)}

    def run(self, count: int) -> int:
        """Keep `count` workers until a signal comes, or all have failed to serve."""
        self._places = [_Place() for _ in range(count)]
        with _waking() as wake, handling_signals(self._on_signal):
            for place in self._places:
                self._start(place)
            while self._running() or (self._has_served and self._signal is None):
                self._wait(wake)
                self._reap()
                self._replace()
        return _FAILURE_EXIT if self._signal is None else 128 + self._signal

    def _running(self) -> list[_Place]:
        return [place for place in self._places if place.process is not None]

    def _start(self, place: _Place) -> None:
        ours, theirs = socket.socketpair()
        # It has a group of its own: what is typed at a terminal comes to this process alone.
        with theirs:
            place.process = subprocess.Popen(
                self._command, env=self._environment, stdin=theirs.fileno(), process_group=0
            )
        place.channel, place.heard, place.since = ours, False, time.monotonic()
        if self._signal is not None:
            place.process.terminate()  # the signal came while this one was being started

    def _wait(self, wake: int) -> None:
        """Wait until a signal comes, a child ends, a worker serves or one is to be started."""
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        starting = {
            place.channel.fileno(): place
            for place in self._running()
            if place.channel is not None and not place.heard
        }
        for channel in starting:
            poll.register(channel, select.POLLIN)
        for descriptor, _ in poll.poll(self._wait_ms()):
            if descriptor == wake:
                os.read(wake, 64)
            else:
                self._listen_to(starting[descriptor])

    def _wait_ms(self) -> float | None:
        if not self._has_served or self._signal is not None:
            return None
        waits = [place.due - time.monotonic() for place in self._places if place.process is None]
        return max(0.0, min(waits)) * 1000 + 1 if waits else None

    def _listen_to(self, place: _Place) -> None:
        assert place.channel is not None
        place.heard = True
        with suppress(OSError):
            if place.channel.recv(1):
                self._has_served = True

    def _reap(self) -> None:
        """Take note of the workers that have ended."""
        now = time.monotonic()
        for place in self._running():
            assert place.process is not None and place.channel is not None
            if place.process.poll() is None:
                continue
            place.channel.close()
            if self._signal is None:
                pid, code = place.process.pid, place.process.returncode
                _say(f"worker {pid} has ended with exit code {code}")
            place.process = None
            place.due = now + place.backoff.delay_after(now - place.since)

    def _replace(self) -> None:
        """Start workers where there is none, and it is time; once any has served."""
        if not self._has_served:
            return
        now = time.monotonic()
        for place in self._places:
            if place.process is None and place.due <= now and self._signal is None:
                self._start(place)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signal = self._signal or number
        for place in self._running():
            assert place.process is not None
            place.process.terminate()


@contextmanager
def _waking() -> Iterator[int]:
    """While this lasts, what is yielded can be read when a signal comes or a child ends."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous = signal.signal(signal.SIGCHLD, lambda number, frame: None)
    descriptor = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(descriptor)
        signal.signal(signal.SIGCHLD, previous)
        os.close(reader)
        os.close(writer)


def _say(what: str) -> None:
    sys.stderr.write(f"foundation-rt: {what}\n")
