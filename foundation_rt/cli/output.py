"""Where the results and the errors of a command go, and in which form (CLI-21)."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from attrs import define

from ..client.failing.printable import printable_json, printable_text
from ..protocol.exact_json import dumps
from .page import Page, Payload
from .plain import pretty_json, write_plain

UNWRITABLE_EXIT = 4
"""stdout is closed, or takes nothing."""

CLOSED_EXIT = 141
"""Nobody reads stdout any more."""


@define(eq=False, repr=False)
class Output:
    """Writes results to one stream and errors to another; never raises for what becomes of them.

    Args:
        out: None if it is closed, likewise `err`.
        as_json: both as JSON, for programs.
    """

    out: TextIO | None
    err: TextIO | None
    as_json: bool = False

    def result(self, data: Any, page: Page) -> int:
        """Write a result, `data` for programs or `page` for people; return the exit code."""
        if self.as_json:
            return self.write(f"{pretty_json(data)}\n".encode())
        if self.out is not None and self.out.isatty():
            return self.write(_terminal_writer()(page))
        return self.write(_for_programs(page))

    def write(self, data: bytes) -> int:
        """Write a result as it is; return the exit code, 0 if it was taken (CLI-20)."""
        try:
            _write(self.out, data)
        except BrokenPipeError:
            return CLOSED_EXIT
        except OSError as error:
            text = f"stdout cannot be written: {error.strerror}"
            self.error({"code": "OUTPUT", "message": text}, text)
            return UNWRITABLE_EXIT
        return 0

    def error(self, data: Any, text: str) -> None:
        """Write an error: `data` for programs, on one line as logs are; or `text` for people."""
        if self.as_json:
            line = printable_json(dumps(data).decode())
        else:
            line = f"foundation-rt: {printable_text(text)}"
        with suppress(OSError):  # there is nowhere else to say it
            _write(self.err, f"{line}\n".encode())

    def warning(self, text: str) -> None:
        """Write what people should know; a program reads one error or nothing."""
        if not self.as_json:
            self.error(None, f"warning: {text}")


def _write(stream: TextIO | None, data: bytes) -> None:
    if stream is None:
        raise OSError(errno.EBADF, "it is closed")
    try:
        # Not through the stream's own encoding: JSON is UTF-8, and bytes are what they are.
        stream.flush()
        stream.buffer.write(data)
        stream.buffer.flush()
    except OSError:
        _discard(stream)
        raise


def _discard(stream: TextIO) -> None:
    """What is left in its buffer goes nowhere: the interpreter would try once more at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _terminal_writer() -> Callable[[Page], bytes]:
    """With colours where rich is installed, else without."""
    try:
        from .coloured import write_coloured
    except ImportError:
        return lambda page: write_plain(page).encode()
    columns = shutil.get_terminal_size().columns
    return lambda page: write_coloured(page, columns).encode()


def _for_programs(page: Page) -> bytes:
    """Payloads as they are; bytes only where they are all there is."""
    if len(page) == 1 and isinstance(page[0], Payload) and isinstance(page[0].data, bytes):
        return page[0].data
    return write_plain(page, payloads_as_they_are=True).encode()
