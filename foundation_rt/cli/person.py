"""The person at a terminal, who reads and types (CLI-35, CLI-47)."""

from __future__ import annotations

import asyncio
import os
import sys

from attrs import define, field

if sys.platform != "win32":
    import termios

from .serve import is_terminal

_MAX_LINE = 32_768


class InputClosedError(Exception):
    """The person has ended the input (Ctrl-D) instead of answering."""


def _find_terminal() -> int | None:
    """Return the descriptor from which a person is read; None if nobody is there.

    It is stdin. Where that is a pipe, it is the terminal that the process runs at.
    """
    if not is_terminal(sys.stderr):
        return None
    if is_terminal(sys.stdin):
        return int(sys.stdin.fileno())
    try:
        descriptor = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    if os.tcgetpgrp(descriptor) == os.getpgrp():
        return descriptor
    os.close(descriptor)  # reading it would stop a process in the background
    return None


def confirm(question: str) -> bool:
    """Ask the person at the terminal; without one, it is not confirmed.

    What was typed before the question answers something else.
    """
    descriptor = _find_terminal()
    if descriptor is None:
        return False
    termios.tcflush(descriptor, termios.TCIFLUSH)
    sys.stderr.write(question)
    sys.stderr.flush()
    return os.read(descriptor, _MAX_LINE).strip().lower() in (b"y", b"yes")


@define(eq=False)
class Person:
    """The person at a terminal; nobody if there is none."""

    _descriptor: int | None = field(factory=_find_terminal)

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
        loop, descriptor = asyncio.get_running_loop(), self._descriptor
        line: asyncio.Future[bytes] = loop.create_future()

        def read() -> None:
            loop.remove_reader(descriptor)
            if not line.done():
                try:
                    line.set_result(os.read(descriptor, _MAX_LINE))
                except OSError:  # the terminal has been closed
                    line.set_result(b"")

        loop.add_reader(descriptor, read)
        try:
            return (await line).decode("utf-8", "replace") or None
        finally:
            loop.remove_reader(descriptor)
