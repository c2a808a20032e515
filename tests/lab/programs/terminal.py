"""A command of `foundation-rt` at a terminal of its own, with a person who reads and types."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.lab.servers import fork_server
from tests.lab.servers.process import PATIENCE, environment

_STYLE = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07)")


class Terminal:
    """Runs a command with a pseudo-terminal as stdin, stdout and stderr.

    Args:
        words: the words behind the program.
        cwd: where it runs.
        program: what is run, `foundation-rt` by default.
        variables: more of the environment.
        stdout: where stdout goes instead, as a descriptor.
        typed: what was typed before the program starts.
    """

    def __init__(
        self,
        *words: str,
        cwd: Path,
        program: Sequence[str] = (sys.executable, "-m", "foundation_rt"),
        variables: Mapping[str, str] | None = None,
        stdout: int | None = None,
        typed: str = "",
    ) -> None:
        self._ours, theirs = pty.openpty()
        self.type(typed)
        self._text = ""
        self.process = fork_server.Popen(
            [*program, *words],
            stdin=theirs,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
            cwd=cwd,
            env={**environment(), "TERM": "xterm-256color", "COLUMNS": "100", **(variables or {})},
            start_new_session=True,
        )
        os.close(theirs)

    @property
    def text(self) -> str:
        """Return what was shown so far, without styles."""
        return _STYLE.sub("", self._text).replace("\r\n", "\n")

    def wait_for(self, words: str, times: int = 1) -> str:
        """Return what was shown so far, once these words are among it so many times."""
        until = time.monotonic() + PATIENCE
        while self.text.count(words) < times:
            if not self._read(until):
                raise AssertionError(f"{words!r} was not shown: {self.text!r}")
        return self.text

    def type(self, text: str) -> None:
        """Type, as a person would."""
        os.write(self._ours, text.encode())

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal, as Ctrl-C does."""
        self.process.send_signal(number)

    def exit_code(self) -> int:
        """Return how the process has ended; reads what it still shows."""
        until = time.monotonic() + PATIENCE
        while self._read(until):
            pass
        return self.process.wait(PATIENCE)

    def _read(self, until: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._ours, 65_536)
        except OSError:  # the other side has closed it
            return False
        self._text += data.decode("utf-8", "replace")
        return bool(data)

    def __enter__(self) -> Self:
        """Return the terminal."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process and close the terminal."""
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
