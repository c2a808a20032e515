"""The person at a terminal, who reads and types (CLI-35, CLI-47)."""

from __future__ import annotations

import asyncio
import os
import sys
import threading

from attrs import define, field

from ..base.abort import call_in_loop
from .serve import is_terminal

if sys.platform == "win32":
    import msvcrt

    def _open_terminal() -> int | None:
        try:
            return os.open("CONIN$", os.O_RDWR | os.O_BINARY | os.O_NOINHERIT)
        except OSError:
            return None

    def _forget_typed(descriptor: int) -> None:
        while msvcrt.kbhit():
            msvcrt.getwch()

else:
    import termios

    def _open_terminal() -> int | None:
        """Return a descriptor of the terminal that this process runs at; None without one."""
        try:
            descriptor = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        if os.tcgetpgrp(descriptor) == os.getpgrp():
            return descriptor
        os.close(descriptor)  # reading it would stop a process in the background
        return None

    def _forget_typed(descriptor: int) -> None:
        """Drop what was typed before now: it answers something else."""
        termios.tcflush(descriptor, termios.TCIFLUSH)


_MAX_LINE = 32_768
END_OF_INPUT = "Ctrl-Z and Enter" if sys.platform == "win32" else "Ctrl-D"
"""The key that ends the input, at the beginning of a line."""


class InputClosedError(Exception):
    """The person has ended the input (Ctrl-D, Ctrl-Z on Windows) instead of answering."""


def _find_terminal() -> int | None:
    """Return the descriptor from which a person is read; None if nobody is there.

    It is stdin. Where that is a pipe, it is the terminal that the process runs at.
    """
    if not is_terminal(sys.stderr):
        return None
    return int(sys.stdin.fileno()) if is_terminal(sys.stdin) else _open_terminal()


def _read(descriptor: int) -> bytes:
    """Wait for a line and return it with its end; nothing where the input has ended."""
    # Of a console of Windows, a file has what is typed in UTF-8, and `os.read` has not.
    with open(descriptor, "rb", buffering=0, closefd=False) as terminal:
        return (terminal.read(_MAX_LINE) or b"").replace(b"\r\n", b"\n")


def confirm(question: str) -> bool:
    """Ask the person at the terminal; without one, it is not confirmed."""
    descriptor = _find_terminal()
    if descriptor is None:
        return False
    _forget_typed(descriptor)
    sys.stderr.write(question)
    sys.stderr.flush()
    return _read(descriptor).strip().lower() in (b"y", b"yes")


@define(eq=False)
class Person:
    """The person at a terminal; nobody if there is none."""

    _descriptor: int | None = field(factory=_find_terminal)
    _line: asyncio.Future[bytes] | None = field(default=None, init=False)

    @property
    def is_there(self) -> bool:
        """Return whether there is somebody who can be asked."""
        return self._descriptor is not None

    async def ask(self, question: str) -> str:
        """Return a line that the person writes, without blanks around it.

        Raises:
            InputClosedError: the person has ended the input.
        """
        line = await self.read_line(question)
        if line is None:
            sys.stderr.write("\n")
            raise InputClosedError
        return line.strip()

    async def read_line(self, question: str = "") -> str | None:
        """Return a line with its end, or None if the person ends the input."""
        assert self._descriptor is not None
        sys.stderr.write(question)
        sys.stderr.flush()
        if self._line is None or self._line.done():
            loop = asyncio.get_running_loop()
            self._line = loop.create_future()
            threading.Thread(target=self._read, args=(loop, self._line), daemon=True).start()
        # Where a question was given up, its thread still waits, for the answer to this one.
        line = await asyncio.shield(self._line)
        return line.decode("utf-8", "replace") or None

    def _read(self, loop: asyncio.AbstractEventLoop, line: asyncio.Future[bytes]) -> None:
        assert self._descriptor is not None
        try:
            read = _read(self._descriptor)
        except OSError:  # the terminal has been closed
            read = b""
        call_in_loop(loop, line.set_result, read)
