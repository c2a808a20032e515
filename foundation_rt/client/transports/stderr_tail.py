"""The stderr of a child process: passed on line by line, its last 64 KiB kept.

The text is untrusted and ends up in messages, and so on terminals: an excerpt has neither control
characters nor the sequences that set colours and move cursors.
"""

from __future__ import annotations

import re
import sys

from attrs import define, field

from ...protocol.framing import LineReader, LineTooLong
from ..safe_text import without_unfit

KEPT_BYTES = 64 * 1024
"""Size of the kept end."""

EXCERPT_BYTES = 2 * 1024
"""Size of the excerpt in a message."""

_CODE_PAGE = "oem" if sys.platform == "win32" else "utf-8"
"""Of lines that are not UTF-8."""

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")

_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_LACKING = re.compile(
    r"KeyError|\b(?:environment|missing|must|needs?|provide|requires?|required|set|undefined|unset)\b",
    re.IGNORECASE,
)


@define(eq=False, repr=False)
class StderrTail:
    """Splits bytes into lines, and keeps the last of them. Memory is bounded."""

    _kept: bytearray = field(factory=bytearray, init=False)
    _reader: LineReader = field(factory=lambda: LineReader(KEPT_BYTES), init=False)

    def feed(self, data: bytes) -> list[str]:
        """Add bytes; return the lines that they complete, without blank ones."""
        self._kept += data
        # Not for every line: each cut moves the rest.
        if len(self._kept) > 2 * KEPT_BYTES:
            del self._kept[:-KEPT_BYTES]
        return [_text(line) for line in self._reader.feed(data)]

    def end(self) -> list[str]:
        """End the stream; return a last line without a newline."""
        return [_text(line) for line in self._reader.end()]

    @property
    def text(self) -> str:
        """The last 64 KiB, as they came; what cannot be decoded is replaced."""
        return _decoded(self._kept[-KEPT_BYTES:])

    def excerpt(self) -> str:
        """Return the last lines, at most 2 KiB, safe to print; may be empty."""
        whole = self._kept.rstrip()
        end = whole[-EXCERPT_BYTES:]
        if len(end) < len(whole):
            _, newline, rest = end.partition(b"\n")
            end = rest if newline else end
        return without_unfit(_SEQUENCE.sub("", _decoded(end))).strip()


def _text(line: bytes | LineTooLong) -> str:
    if isinstance(line, LineTooLong):
        return f"[a line of more than {line.limit} bytes]"
    return _decoded(line)


def _decoded(data: bytes | bytearray) -> str:
    """Return the text of lines, each in UTF-8 or else in the code page of Windows' consoles."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        lines = data.splitlines(keepends=True)
    if len(lines) > 1:
        return "".join(map(_decoded, lines))
    return data.decode(_CODE_PAGE, errors="replace")


def missing_variable(text: str) -> str | None:
    """Return the environment variable that a server says it lacks; None if it names none."""
    for line in text.splitlines():
        named = _VARIABLE.search(line)
        if named is not None and _LACKING.search(line):
            return named[0]
    return None
