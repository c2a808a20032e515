"""Several processes behind one port (HTTP-23).

Each worker is a `foundation-rt serve` of its own that binds the port as one of many (SO_REUSEPORT):
the system gives every new connection to one of them. A request of the stateless era may come to
any, since all seal with one key; a session of the handshake era lives in the worker it began in.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

from attrs import define, field

from .signals import handling_signals

WORKER_VARIABLE = "FOUNDATION_RT_WORKER"
"""Is set for a worker: the key that it seals with unless the configuration has one."""

_TOO_SOON_SECONDS = 2.0
"""A worker that ends within so long of its start would end again."""

_FAILURE_EXIT = 1


def shared_state_key() -> str | None:
    """The key of this worker's group, in hexadecimal; None in a process that is no worker."""
    return os.environ.get(WORKER_VARIABLE)


def is_worker() -> bool:
    """Whether this process is a worker, and so must not start any."""
    return WORKER_VARIABLE in os.environ


def keep_workers(words: Sequence[str], count: int) -> int:
    """Run `count` processes of `foundation-rt` with the arguments `words` until a signal comes.

    One that ends is replaced, unless it ended as soon as it had begun.

    Returns:
        143 after SIGTERM, 130 after SIGINT, 1 when workers cannot be kept.
    """
    return _Supervisor([sys.executable, "-m", "foundation_rt", *words]).run(count)


@define(eq=False, repr=False)
class _Supervisor:
    """Starts workers, replaces them, and ends them."""

    _command: list[str]
    _environment: dict[str, str] = field(init=False)
    _workers: dict[int, tuple[subprocess.Popen[bytes], float]] = field(factory=dict, init=False)
    _signal: int | None = field(default=None, init=False)
    _is_giving_up: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._environment = {**os.environ, WORKER_VARIABLE: secrets.token_hex(32)}

    def run(self, count: int) -> int:
        """Keep `count` workers until a signal comes, or one fails at once."""
        with handling_signals(self._on_signal):
            for _ in range(count):
                self._start()
            while self._workers:
                self._replace(*os.wait())
        return _FAILURE_EXIT if self._signal is None else 128 + self._signal

    def _start(self) -> None:
        # Its input ends when this process does, however that ends. And it has a group of its own:
        # what is typed at a terminal comes to this process alone.
        worker = subprocess.Popen(
            self._command, env=self._environment, stdin=subprocess.PIPE, process_group=0
        )
        self._workers[worker.pid] = (worker, time.monotonic())
        if self._signal is not None:
            worker.send_signal(self._signal)  # it came while this one was being started

    def _replace(self, pid: int, status: int) -> None:
        """A worker has ended: another takes its place, unless all are to end."""
        worker, started = self._workers.pop(pid)
        assert worker.stdin is not None
        worker.stdin.close()
        worker.returncode = os.waitstatus_to_exitcode(status)
        if self._signal is not None or self._is_giving_up:
            return
        _say(f"worker {pid} has ended with exit code {worker.returncode}")
        if time.monotonic() - started < _TOO_SOON_SECONDS:
            self._is_giving_up = True
            _say("it had only just begun: the others are ended as well")
            self._tell_all(signal.SIGTERM)
        else:
            self._start()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signal = self._signal or number
        self._tell_all(signal.SIGTERM)

    def _tell_all(self, number: int) -> None:
        for worker, _ in list(self._workers.values()):
            worker.send_signal(number)


def _say(what: str) -> None:
    sys.stderr.write(f"foundation-rt: {what}\n")
