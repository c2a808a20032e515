"""Parse server-sent events (HTML standard, section 9.2; CHTTP-20 to CHTTP-23). Pure.

Goals: every byte is processed once, however the stream is chunked; memory is bounded by the limit
plus one chunk; no input makes it raise.

Plan: a chunk is split into lines at once. An incomplete line is kept until its end arrives; the
lines of an event are kept until a blank line. A line beyond the limit is dropped up to its end, and
its event is reported once as too long, in its place.

The data of an event stays bytes: it is a message, and its parser decodes it.
"""

from __future__ import annotations

import re

from attrs import define, field

from ...base.shown import Shown
from ...protocol.framing import LineTooLong

_BOM = b"\xef\xbb\xbf"
_CR, _LF = b"\r", b"\n"
_MILLISECONDS = re.compile(rb"[0-9]{1,9}")  # up to 11 days
_SHORT = 4096  # bytes of a field that is not data; a longer one is as good as not there
_FIELD = len(_BOM) + len(b"data: ")  # what stands before the data of a line, at most


@define(eq=False, repr=False)
class ServerSentEvent(Shown):
    """An event with data.

    Attributes:
        kind: its type; `message` if it names none.
    """

    data: bytes
    kind: str = "message"


@define(eq=False, repr=False)
class EventReader:
    """Splits a stream of bytes into events.

    A resumed stream takes over `last_id` and `retry_ms`.

    Args:
        max_bytes: longest data of one event, in bytes.

    Attributes:
        last_id: of the last complete event with an id; None if there is none, or an empty one reset
            it.
        retry_ms: time before the next attempt, as the server asks; None if it asks for none.
        is_silent: whether there was neither an event nor an id yet.
    """

    max_bytes: int
    last_id: bytes | None = None
    retry_ms: int | None = None
    is_silent: bool = field(default=True, init=False)
    _line: bytearray = field(factory=bytearray, init=False)
    _line_is_too_long: bool = field(default=False, init=False)
    _begins: bool = field(default=True, init=False)
    _after_cr: bool = field(default=False, init=False)
    _data: bytes | bytearray | None = field(default=None, init=False)
    _is_too_long: bool = field(default=False, init=False)
    _kind: bytes = field(default=b"", init=False)
    _id: bytes | None = field(default=None, init=False)

    def feed(self, chunk: bytes) -> list[ServerSentEvent | LineTooLong]:
        """Parse the next bytes; return the events that they complete, in order.

        An incomplete event at the end of the stream is dropped (CHTTP-22).
        """
        events: list[ServerSentEvent | LineTooLong] = []
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(_LF)
            self._after_cr = False
        for part in chunk.splitlines(keepends=True):
            line = part.rstrip(b"\r\n")
            self._keep(line)
            if len(line) < len(part):
                self._end_line(events)
        if chunk.endswith(_CR):
            self._after_cr = True
        return events

    def _keep(self, part: bytes) -> None:
        if self._line_is_too_long:
            return
        self._line += part
        if len(self._line) > self.max_bytes + _FIELD:
            self._line_is_too_long = True
            self._line = self._line[:_FIELD]  # enough to tell what it is

    def _end_line(self, events: list[ServerSentEvent | LineTooLong]) -> None:
        line = bytes(self._line)
        self._line = bytearray()
        if self._begins:
            self._begins = False
            line = line.removeprefix(_BOM)
        if self._line_is_too_long:
            self._line_is_too_long = False
            self._is_too_long = self._is_too_long or line.startswith(b"data:")
        elif line:
            self._take_field(line)
        else:
            self._dispatch(events)

    def _take_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._take_data(value)
        elif len(value) > _SHORT:
            return
        elif name == b"event":
            self._kind = value
        elif name == b"id" and b"\0" not in value:
            self._id = value
        elif name == b"retry" and _MILLISECONDS.fullmatch(value) is not None:
            self.retry_ms = int(value)

    def _take_data(self, value: bytes) -> None:
        if self._is_too_long:
            return
        if self._data is None:
            self._data = value
        else:
            if isinstance(self._data, bytes):
                self._data = bytearray(self._data)
            self._data += _LF + value
        if len(self._data) > self.max_bytes:
            self._is_too_long = True
            self._data = None

    def _dispatch(self, events: list[ServerSentEvent | LineTooLong]) -> None:
        if self._id is not None:
            self.last_id = self._id or None
            self.is_silent = False
        if self._is_too_long or self._data:
            self.is_silent = False
        if self._is_too_long:
            events.append(LineTooLong(self.max_bytes))
        elif self._data:
            kind = self._kind.decode("utf-8", "replace")
            events.append(ServerSentEvent(bytes(self._data), kind or "message"))
        self._data = None
        self._is_too_long = False
        self._kind = b""
        self._id = None
