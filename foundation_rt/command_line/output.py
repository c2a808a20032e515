"""Where the results and the errors of a command go, and in which form (CLI-21)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any, TextIO

import orjson
from attrs import define

from ..client.printable import printable_json, printable_text
from .page import Page, Payload
from .plain import pretty_json, write_plain


@define(eq=False, repr=False)
class Output:
    """Writes results to one stream and errors to another.

    Args:
        as_json: both as JSON, for programs.
    """

    out: TextIO
    err: TextIO
    as_json: bool

    def result(self, data: Any, page: Page) -> None:
        """Write a result: `data` for programs, or `page` for people.

        Raises:
            BrokenPipeError: nobody reads it.
        """
        if self.as_json:
            _write(self.out, f"{pretty_json(data)}\n".encode())
        elif self.out.isatty():
            _write(self.out, _terminal_writer()(page))
        else:
            _write(self.out, _for_programs(page))

    def error(self, data: Any, text: str) -> None:
        """Write an error: `data` for programs, on one line as logs are; or `text` for people."""
        if self.as_json:
            line = printable_json(orjson.dumps(data).decode())
        else:
            line = f"foundation-rt: {printable_text(text)}"
        _write(self.err, f"{line}\n".encode())

    def warning(self, text: str) -> None:
        """Write what people should know; a program reads one error or nothing."""
        if not self.as_json:
            self.error(None, f"warning: {text}")


def _write(stream: TextIO, data: bytes) -> None:
    # Not through the stream's own encoding: JSON is UTF-8, and bytes are what they are.
    stream.flush()
    stream.buffer.write(data)
    stream.buffer.flush()


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
