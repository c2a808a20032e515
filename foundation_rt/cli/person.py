"""The person at a terminal: reads and types (CLI-35, CLI-47), and agrees to what runs (CLI-84)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from ..base.abort import call_in_loop
from ..base.mcp_json import agree
from ..client.safe_text import printable_line
from ..errors import UsageError
from .serve import is_terminal

if TYPE_CHECKING:
    from ..base.mcp_json import WaitingEntry

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


def ask_value(question: str, *, hidden: bool) -> str | None:
    """Return what the person at the terminal writes, without blanks around it; None without one.

    It is empty where the person ends the input.

    Args:
        question: what is asked for.
        hidden: nothing of the answer is shown.
    """
    descriptor = _find_terminal()
    if descriptor is None:
        return None
    if hidden:
        from getpass import getpass

        try:
            return getpass(question).strip()
        except EOFError:
            sys.stderr.write("\n")
            return ""
    sys.stderr.write(question)
    sys.stderr.flush()
    return _read(descriptor).decode("utf-8", "replace").strip()


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


# -- agreement --------------------------------------------------------------------------------

TRUST = "--trust"

_MAX_SHOWN = 4096
"""Characters of a question: of a longer one, the beginning has left the screen."""


def settle(waiting: Sequence[WaitingEntry], command: str, *, trusts: bool) -> None:
    """Let the person agree to these entries, and record it.

    Args:
        waiting: the entries; without any, nothing is asked.
        command: that agrees without a question, if `--trust` is added.
        trusts: `--trust` was given.

    Raises:
        UsageError: the person has not agreed, or nobody is there who could, or it is too much to
            be read in a question.
    """
    if not waiting:
        return
    question = "" if trusts else _shown(waiting)
    if len(question) > _MAX_SHOWN:
        files = ", ".join(sorted({str(each.path) for each in waiting}))
        raise UsageError(
            f"nothing was started: what {printable_line(files)} would run is too long to be asked"
            f" about; look at the file, then run: foundation-rt {command} {TRUST}"
        )
    if not trusts and not confirm(f"{question}Run them here from now on? [y/N] "):
        names = ", ".join(f"{each.name!r} of {each.path}" for each in waiting)
        raise UsageError(
            f"nothing was started: you have not agreed to {printable_line(names)}; look at the"
            f" file, then run it at a terminal, which asks, or: foundation-rt {command} {TRUST}"
        )
    agree(waiting)


def _shown(waiting: Sequence[WaitingEntry]) -> str:
    """Return what the person is asked to agree to: each entry whole, then what runs, at the end."""
    lines = ["This folder lists servers that you have not agreed to run:"]
    for entry in waiting:
        lines += ["", f"  {json.dumps(entry.name, ensure_ascii=False)} of {entry.path}"]
        lines += (f"    {name}  {value}" for name, value in _rows(entry))
    lines += ["", "Of these runs, or is reached:"]
    lines += (f"  {json.dumps(each.name, ensure_ascii=False)}: {each.target}" for each in waiting)
    return "\n".join(map(printable_line, lines)) + "\n\n"


def _rows(entry: WaitingEntry) -> Iterator[tuple[str, str]]:
    for name, value in entry.members.items():
        yield name, json.dumps(value, ensure_ascii=False)
    if entry.from_person:
        yield "takes from your environment", ", ".join(entry.from_person)
    for name, value in entry.from_folder.items():
        shown = "..." if name in entry.hidden else json.dumps(value, ensure_ascii=False)
        yield "takes from .env", f"{name}={shown}"
