"""Several processes behind one port (HTTP-23).

Each worker is a `foundation-rt serve` of its own that binds the port as one of many (SO_REUSEPORT):
the system gives every new connection to one of them. A request of the stateless mode may reach any
worker, since all seal with one key. A session of the handshake mode is in one worker, and the
others forward its requests there (`worker_group`): for that all have a folder, which no other user
can enter.

A worker's standard input is a socket to the supervising process. The worker writes a byte when it
serves, and ends when the other side has gone.
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
from functools import cache
from tempfile import TemporaryDirectory
from types import FrameType

from attrs import define, field, frozen

from ...base.backoff import exponential_delay
from ...base.extras import require
from ...errors import UsageError
from ...kernel.engine.shutdown import exit_code, handling_signals

WORKER_VARIABLE = "FOUNDATION_RT_WORKER"
"""The environment variable of a worker, with its `WorkerPlace`."""

SETTLED_SECONDS = 10.0
"""A worker that has lived this long is replaced at once."""

_FIRST_DELAY = 0.1
_MAX_DELAY = 10.0

_FAILURE_EXIT = 1


@frozen(repr=False)
class WorkerPlace:
    """The place of a worker in its group; its successors have the same.

    Attributes:
        key: with which the group seals, in hexadecimal, unless a key is configured.
        group: the name of the group.
        slot: the number of the place, from 0.
        folder: private to the group.
    """

    key: str
    group: str
    slot: int
    folder: str

    def __str__(self) -> str:
        return f"{self.key}:{self.group}:{self.slot}:{self.folder}"


@cache
def worker_place() -> WorkerPlace | None:
    """Return the place of this worker; None in a process that is no worker.

    It is taken out of the environment: what a tool starts does not get the key.
    """
    text = os.environ.pop(WORKER_VARIABLE, None)
    if text is None:
        return None
    key, group, slot, folder = text.split(":", 3)
    return WorkerPlace(key, group, int(slot), folder)


def report_serving() -> None:
    """Report to the supervising process that this worker serves."""
    with suppress(OSError):
        os.write(0, b"\0")


def keep_workers(arguments: Sequence[str], count: int) -> int:
    """Run `count` processes of `foundation-rt` with `arguments` until a signal comes.

    A worker that ends is replaced, after a pause that grows if it keeps ending soon.

    Args:
        arguments: of each.
        count: of them.

    Returns:
        143 after SIGTERM, 130 after SIGINT, 129 after SIGHUP, 1 when no worker ever served.

    Raises:
        MissingExtraError: the extra `http-full` is not installed.
        UsageError: on Windows, where processes cannot share a port so (WIN-06).
    """
    if sys.platform == "win32":
        raise UsageError(
            "--workers cannot be used on Windows: leave it out, or start several servers with a"
            " port each, behind a proxy"
        )
    require("--workers", "http-full", "cryptography")
    # -P: the working directory, which others may have written, is no place of modules (CLI-80).
    command = [sys.executable, "-P", "-m", "foundation_rt", *arguments]
    with TemporaryDirectory(prefix="foundation-rt-", ignore_cleanup_errors=True) as folder:
        return _Supervisor(command, folder).run(count)


@define(eq=False, repr=False)
class WorkerBackoff:
    """The delays between the successive workers of one slot."""

    _ended_soon: int = field(default=0, init=False)  # in a row

    def delay_after(self, seconds: float) -> float:
        """Return the delay after a worker that has lived for `seconds`, in seconds."""
        if seconds >= SETTLED_SECONDS:
            self._ended_soon = 0
            return 0.0
        self._ended_soon += 1
        return exponential_delay(self._ended_soon, _FIRST_DELAY, _MAX_DELAY)


@define(eq=False, repr=False)
class _WorkerSlot:
    """The slot of one worker and its successors.

    Args:
        number: of the slot, from 0.

    Attributes:
        process: the worker; None while there is none.
        channel: the supervisor's end of the worker's standard input.
        reported: whether the worker has written there, or closed its end.
        since: when it was started, in monotonic seconds.
        due: when the next one is to be started, in monotonic seconds.
    """

    number: int
    backoff: WorkerBackoff = field(factory=WorkerBackoff)
    process: subprocess.Popen[bytes] | None = None
    channel: socket.socket | None = None
    reported: bool = False
    since: float = 0.0
    due: float = 0.0


@define(eq=False, repr=False)
class _Supervisor:
    """Starts workers, replaces them, and ends them."""

    _command: list[str]
    _folder: str
    _key: str = field(factory=lambda: secrets.token_hex(32), init=False)
    _group: str = field(factory=lambda: secrets.token_hex(6), init=False)
    _slots: list[_WorkerSlot] = field(factory=list, init=False)
    _signal: int | None = field(default=None, init=False)
    _has_served: bool = field(default=False, init=False)

    def run(self, count: int) -> int:
        """Keep `count` workers until a signal comes, or all have failed to serve."""
        self._slots = [_WorkerSlot(number) for number in range(count)]
        with _waking() as wake, handling_signals(self._on_signal):
            for slot in self._slots:
                self._start(slot)
            while self._running() or (self._has_served and self._signal is None):
                self._wait(wake)
                self._reap()
                self._replace()
        return _FAILURE_EXIT if self._signal is None else exit_code(self._signal)

    def _running(self) -> list[_WorkerSlot]:
        return [slot for slot in self._slots if slot.process is not None]

    def _start(self, slot: _WorkerSlot) -> None:
        slot.reported = False
        place = WorkerPlace(self._key, self._group, slot.number, self._folder)
        environment = {**os.environ, WORKER_VARIABLE: str(place)}
        ours, theirs = socket.socketpair()
        # It has a group of its own: signals typed at a terminal reach this process only.
        with theirs:
            slot.process = subprocess.Popen(
                self._command, env=environment, stdin=theirs.fileno(), process_group=0
            )
        slot.channel, slot.since = ours, time.monotonic()
        if self._signal is not None:
            slot.process.terminate()  # the signal came during the start

    def _wait(self, wake: int) -> None:
        """Wait until a signal comes, a child ends, a worker serves or one is to be started."""
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        starting = {
            slot.channel.fileno(): slot
            for slot in self._running()
            if slot.channel is not None and not slot.reported
        }
        for channel in starting:
            poll.register(channel, select.POLLIN)
        for descriptor, _ in poll.poll(self._wait_ms()):
            if descriptor == wake:
                os.read(wake, 64)
            else:
                self._read_report(starting[descriptor])

    def _wait_ms(self) -> float | None:
        if not self._has_served or self._signal is not None:
            return None
        waits = [slot.due - time.monotonic() for slot in self._slots if slot.process is None]
        return max(0.0, min(waits)) * 1000 + 1 if waits else None

    def _read_report(self, slot: _WorkerSlot) -> None:
        assert slot.channel is not None
        slot.reported = True
        with suppress(OSError):
            if slot.channel.recv(1):
                self._has_served = True

    def _reap(self) -> None:
        """Note which workers have ended."""
        now = time.monotonic()
        for slot in self._running():
            assert slot.process is not None and slot.channel is not None
            if slot.process.poll() is None:
                continue
            slot.channel.close()
            if self._signal is None:
                pid, code = slot.process.pid, slot.process.returncode
                _print(f"worker {pid} has ended with exit code {code}")
            slot.process = None
            slot.due = now + slot.backoff.delay_after(now - slot.since)

    def _replace(self) -> None:
        """Start the workers that are due; none before any has served."""
        if not self._has_served:
            return
        now = time.monotonic()
        for slot in self._slots:
            if slot.process is None and slot.due <= now and self._signal is None:
                self._start(slot)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signal = self._signal or number
        for slot in self._running():
            assert slot.process is not None
            slot.process.terminate()


@contextmanager
def _waking() -> Iterator[int]:
    """Yield a descriptor that becomes readable when a signal comes or a child ends."""
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


def _print(message: str) -> None:
    sys.stderr.write(f"foundation-rt: {message}\n")
