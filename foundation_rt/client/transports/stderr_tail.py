"""What a child process writes to stderr: told line by line, and its end kept for when it is asked.

It is text of somebody else's that ends up in messages, and so on terminals: an excerpt has neither
control characters nor the sequences that set colours and move cursors.
"""

from __future__ import annotations

import re

from attrs import define, field

from ...protocol.framing import LineReader, LineTooLong
from ..printable import without_unfit

KEPT_BYTES = 64 * 1024
"""How much of the end is kept."""

EXCERPT_BYTES = 2 * 1024
"""How much of it is put into a message."""

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")


@define(eq=False, repr=False)
class StderrTail:
    """Takes bytes; gives lines, and the end of it all. Memory is bounded, whatever comes."""

    _kept: bytearray = field(factory=bytearray, init=False)
    _reader: LineReader = field(factory=lambda: LineReader(KEPT_BYTES), init=False)

    def feed(self, data: bytes) -> list[str]:
        """Take the next bytes; return the lines they complete, blank ones left out."""
        self._kept += data
        # Not at every line: what is cut off has to be moved over.
        if len(self._kept) > 2 * KEPT_BYTES:
            del self._kept[:-KEPT_BYTES]
        return [_text(line) for line in self._reader.feed(data)]

    def end(self) -> list[str]:
        """Nothing more comes: a last line without a newline counts as one."""
        return [_text(line) for line in self._reader.end()]

    @property
    def text(self) -> str:
        """The last 64 KiB, as they came; what is no UTF-8 is replaced."""
        return self._kept[-KEPT_BYTES:].decode(errors="replace")

    def excerpt(self) -> str:
        """The last lines, 2 KiB at most, safe to show; empty if nothing was written."""
        whole = self._kept.rstrip()
        end = whole[-EXCERPT_BYTES:]
        if len(end) < len(whole):
            _, newline, rest = end.partition(b"\n")
            end = rest if newline else end
        return without_unfit(_SEQUENCE.sub("", end.decode(errors="replace"))).strip()


def _text(line: bytes | LineTooLong) -> str:
    if isinstance(line, LineTooLong):
        return f"[a line of more than {line.limit} bytes]"
    return line.decode(errors="replace")
