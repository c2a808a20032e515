"""Bytes to lines: the receive side of line-delimited JSON-RPC, without any I/O.

Goals: every byte is examined once (O(n) in the input, however it is chunked); memory is bounded by
the frame limit plus one chunk; no input makes it raise.

Plan: a chunk is searched for newlines once. The bytes before a newline complete a line; those after
the last one are appended to a buffer, which is never searched again. A line longer than the limit
is dropped chunk by chunk up to its newline and reported once, in its place in the stream.

Worst case: a line of exactly the limit, fed a byte at a time, is appended byte by byte to a buffer
that grows geometrically, and copied once when it is complete.
"""

from __future__ import annotations

from typing import NamedTuple

_CR = 0x0D


class LineTooLong(NamedTuple):
    """Replaces a line that exceeded the limit and was dropped (FRAME-04).

    Attributes:
        limit: the limit, in bytes.
    """

    limit: int


class LineReader:
    """Splits a byte stream into lines.

    Args:
        max_line_bytes: the length of the longest accepted line, in bytes, without its line ending.
    """

    __slots__ = ("_buffer", "_discarding", "max_line_bytes")

    def __init__(self, max_line_bytes: int) -> None:
        self.max_line_bytes = max_line_bytes
        self._buffer = bytearray()
        self._discarding = False

    def feed(self, data: bytes) -> list[bytes | LineTooLong]:
        """Take the next bytes; return the lines that they complete, except blank ones."""
        # A pipe nearly always delivers one whole line per chunk.
        end = data.find(b"\n")
        if 0 < end == len(data) - 1 and not self._buffer and not self._discarding:
            line = data[:-1]
            if end <= self.max_line_bytes and line[-1] != _CR and not line.isspace():
                return [line]
        if end < 0:
            self._keep(data)
            return []
        events: list[bytes | LineTooLong] = []
        first, *middle, rest = data.split(b"\n")
        self._keep(first)
        self._complete(events)
        for line in middle:
            self._append(events, line)
        self._keep(rest)
        return events

    def end(self) -> list[bytes | LineTooLong]:
        """End the stream; return its last line, if that has no newline (FRAME-05)."""
        events: list[bytes | LineTooLong] = []
        self._complete(events)
        return events

    @property
    def pending_bytes(self) -> int:
        """Return the number of buffered bytes of an incomplete line."""
        return len(self._buffer)

    def _keep(self, part: bytes) -> None:
        if self._discarding:
            return
        # One byte more: the carriage return of a CRLF is not part of the line.
        if len(self._buffer) + len(part) > self.max_line_bytes + 1:
            self._discarding = True
            self._buffer = bytearray()
        else:
            self._buffer += part

    def _complete(self, events: list[bytes | LineTooLong]) -> None:
        if self._discarding:
            self._discarding = False
            events.append(LineTooLong(self.max_line_bytes))
            return
        line = bytes(self._buffer)
        self._buffer = bytearray()
        self._append(events, line)

    def _append(self, events: list[bytes | LineTooLong], line: bytes) -> None:
        if line.endswith(b"\r"):
            line = line[:-1]
        if len(line) > self.max_line_bytes:
            events.append(LineTooLong(self.max_line_bytes))
        elif line and not line.isspace():
            events.append(line)
