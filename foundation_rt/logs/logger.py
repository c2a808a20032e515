"""Structured logs: one JSON object a line, on standard error, without secrets and without waiting.

`StructuredLogger` turns a message and fields into a line; a `LogSink` takes the line away. Logging
never raises and never changes what it is given; the line is complete before the call returns, so
that later changes to the fields do not show (LOG-03).

The record that matters for speed is the one written for every completed call: a dozen short, flat,
harmless fields. `_encode_plain` writes such a record as it stands and proves afterwards, on the
encoded line, that there was nothing to redact, to escape or to cut: 1.5 us, and 2.5 us with the
timestamp and the hand-over to the sink. A secret by its shape (`shapes`) has an ``=``, ``@``, ``'``
or a space; spaces are counted, since those of a message that was searched before are known.
Whatever the proof does not cover goes through `Redactor.for_log`, which treats every value by the
rules (17 us for the same record). Both write the same line.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Final, Protocol

import orjson
from attrs import define, field

from ..clock import Clock, SystemClock
from ..errors import UsageError
from ..protocol.jsonrpc import compact
from .redaction import MAX_TEXT, VALUE_KEYS, Redactor, sanitize, unused_name
from .shapes import line_may_hold_secret
from .writer import BackgroundWriter

DEFAULT_CAPACITY_BYTES: Final = 4 * 1024 * 1024
# How long a line may wait for others to be written with it (seconds). A wake-up of the writer's
# thread costs the thread that logs a hand-over of the interpreter lock.
_BATCH_DELAY: Final = 0.02

_RANKS: Final = {"debug": 10, "info": 20, "warn": 30, "error": 40}
_DEBUG, _INFO, _WARN, _ = _RANKS.values()
_RESERVED: Final = frozenset({"timestamp", "level", "message"})
_NO_FIELDS: Final[dict[str, Any]] = {}

_MAX_PLAIN_KEYS: Final = 4096
# Looked for as numbers: of bytes, CPython first raises and drops a TypeError for not being one.
_BACKSLASH, _DELETE, _LIST, _EQUALS, _AT, _QUOTE = b"\\\x7f[=@'"
_OBJECT, _SPACE = b"{", b" "


class LogSink(Protocol):
    """Where log lines go."""

    def write(self, line: bytes) -> None:
        """Take one whole JSON line with its newline; never blocks, never raises."""
        ...


class MemorySink:
    """Keeps log lines in memory: for tests."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: list[bytes] = []

    def write(self, line: bytes) -> None:
        """Keep one line."""
        self._lines.append(line)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The records written so far, decoded."""
        return [orjson.loads(line) for line in self._lines]


class StderrSink:
    """Writes log lines to a descriptor without ever making the one who logs wait.

    Lines are gathered for up to 20 ms and written by a daemon thread. A killed process loses what
    was not written yet (LOG-19). A sink that nobody closed is drained for a second when the process
    exits or the sink is collected.

    Args:
        capacity: bytes that may wait in memory; lines beyond are dropped, counted and reported.
        clock: for the timestamp of the line that reports them; by default the system's.
        fd: the descriptor; its flags are not changed, and it is not closed.
    """

    __slots__ = ("__weakref__", "_writer")

    def __init__(
        self,
        capacity: int = DEFAULT_CAPACITY_BYTES,
        *,
        clock: Clock | None = None,
        fd: int = 2,
    ) -> None:
        timestamp = (clock or SystemClock()).timestamp

        def notice(dropped: int) -> bytes:
            return _line(timestamp(), "warn", "log lines dropped", {"dropped": dropped})

        self._writer = BackgroundWriter(
            fd, name="foundation-rt-logs", limit=capacity, notice=notice, delay=_BATCH_DELAY
        )
        weakref.finalize(self, self._writer.close, 1.0)

    def write(self, line: bytes) -> None:
        """Take one line (LOG-16)."""
        # Faster than without: the buffer of the line is still in the cache when the next needs one.
        self._writer.write(compact(line))

    @property
    def dropped(self) -> int:
        """Lines lost so far: beyond the buffer, after `close`, or because nobody reads any more."""
        return self._writer.lost_writes

    def flush(self, timeout: float) -> bool:
        """Wait `timeout` seconds at most for the lines so far; whether all were written."""
        return self._writer.flush(timeout)

    def close(self, timeout: float) -> None:
        """Write what is left, within `timeout` seconds, and take no more lines (LOG-18)."""
        self._writer.close(timeout)


def _line(timestamp: str, level: str, message: str, fields: Mapping[str, Any]) -> bytes:
    entry = {"timestamp": timestamp, "level": level, "message": message, **fields}
    return orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)


@define(eq=False, repr=False)
class StructuredLogger:
    """Writes records of at least one level, each with the logger's context (LOG-01 to LOG-05).

    Args:
        sink: takes the lines.
        clock: gives the timestamps.
        level: the lowest level written: ``debug``, ``info``, ``warn`` or ``error``.
        redactor: knows which fields are secret.
        context: fields of every record; their values are read when a record is written.

    Raises:
        UsageError: no such level.
    """

    sink: LogSink
    clock: Clock
    level: str = "info"
    redactor: Redactor = field(factory=Redactor)
    context: Mapping[str, Any] = field(factory=dict)
    # Keys found to be neither secret nor reserved; shared with the children.
    _plain_keys: set[str] = field(factory=set, kw_only=True)
    # Messages found to hold no secret, with the number of their spaces; shared likewise.
    _plain_messages: dict[str, int] = field(factory=dict, kw_only=True)
    _rank: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        rank = _RANKS.get(self.level)
        if rank is None:
            raise UsageError(f"unknown log level {self.level!r}: use one of {', '.join(_RANKS)}")
        self._rank = rank
        if type(self.context) is not dict:
            self.context = dict(self.context)

    def debug(self, message: str, fields: Mapping[str, Any] | None = None) -> None:
        """Write a record for whoever debugs the server; not written by default."""
        if self._rank <= _DEBUG:
            self._write("debug", message, fields)

    def info(self, message: str, fields: Mapping[str, Any] | None = None) -> None:
        """Write a record of what happened as it should."""
        if self._rank <= _INFO:
            self._write("info", message, fields)

    def warn(self, message: str, fields: Mapping[str, Any] | None = None) -> None:
        """Write a record of what an operator may want to look into."""
        if self._rank <= _WARN:
            self._write("warn", message, fields)

    def error(self, message: str, fields: Mapping[str, Any] | None = None) -> None:
        """Write a record of what went wrong; no level leaves it out."""
        self._write("error", message, fields)

    def log(self, level: str, message: str, fields: Mapping[str, Any] | None = None) -> None:
        """Write a record of the level named; an unknown name counts as ``warn`` (LOG-02)."""
        rank = _RANKS.get(level)
        if rank is None:
            level, rank = "warn", _WARN
        if self._rank <= rank:
            self._write(level, message, fields)

    def is_enabled(self, level: str) -> bool:
        """Whether records of `level` are written: ask before fields that are costly to gather."""
        return self._rank <= _RANKS.get(level, _WARN)

    def child(self, context: Mapping[str, Any]) -> StructuredLogger:
        """A logger with more context; what it says wins over what this one says (LOG-05)."""
        return StructuredLogger(
            self.sink,
            self.clock,
            self.level,
            self.redactor,
            {**self.context, **context},
            plain_keys=self._plain_keys,
            plain_messages=self._plain_messages,
        )

    def redact(self, value: Any) -> Any:
        """`value` without secrets; see `Redactor.redact`."""
        return self.redactor.redact(value)

    def sanitize(self, text: str) -> str:
        """`text` made safe to show; see `redaction.sanitize`."""
        return sanitize(text)

    def _write(self, level: str, message: str, fields: Mapping[str, Any] | None) -> None:
        given = _NO_FIELDS if fields is None else fields
        try:
            timestamp = self.clock.timestamp()
            line = self._encode_plain(timestamp, level, message, given)
            self.sink.write(line or self._encode(timestamp, level, message, given))
        except Exception:
            # Out of memory, out of stack, or a sink of the host's own that raises: the record is
            # lost, and the one who logged goes on (LOG-15).
            return

    def _encode_plain(
        self, timestamp: str, level: str, message: str, fields: Mapping[str, Any]
    ) -> bytes | None:
        """The line, if the record can be written as it stands; else None."""
        context, plain_keys = self.context, self._plain_keys
        if not (
            type(fields) is dict and fields.keys() <= plain_keys and context.keys() <= plain_keys
        ):
            return None
        entry = {
            "timestamp": timestamp,
            "level": level,
            "message": message,
            **context,
            **fields,
        }
        try:
            line = orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)
        except TypeError:  # an integer over 64 bits, a lone surrogate
            return None
        # Searches at the speed of memchr, 15 ns each, instead of one look at every value. C0
        # controls are written with a backslash, C1 controls and U+2028 are not ASCII, no string can
        # be longer than the line, and whatever is nested opens a second bracket.
        harmless = (
            len(line) <= MAX_TEXT
            and _BACKSLASH not in line
            and _DELETE not in line
            and _LIST not in line
            and line.find(_OBJECT, 1) < 0
            and line.isascii()
        )
        if not harmless:
            return None
        if (
            line.count(_SPACE) == self._plain_messages.get(message)
            and _EQUALS not in line
            and _AT not in line
            and _QUOTE not in line
        ):
            return line
        return line if self._is_without_secrets(line, message) else None

    def _is_without_secrets(self, line: bytes, message: str) -> bool:
        """Return whether a line, harmless in all else, holds no secret by its shape (LOG-27)."""
        if line_may_hold_secret(line) or type(message) is not str:
            return False
        if len(self._plain_messages) >= _MAX_PLAIN_KEYS:
            self._plain_messages.clear()
        self._plain_messages[message] = message.count(" ")
        return True

    def _encode(self, timestamp: str, level: str, message: str, fields: Mapping[str, Any]) -> bytes:
        """The line of any record."""
        merged = {**self._cleaned(self.context), **self._cleaned(fields)}
        return _line(timestamp, level, self.redactor.for_log(message), merged)

    def _cleaned(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Fields ready to be written, under names that are free (LOG-04)."""
        cleaned = self.redactor.for_log(fields)
        if not isinstance(cleaned, dict):  # unreadable as a whole
            return {"fields": cleaned}
        if len(self._plain_keys) > _MAX_PLAIN_KEYS:
            self._plain_keys.clear()
        for name in list(cleaned):
            if name in _RESERVED:
                cleaned[unused_name(f"{name}_", cleaned)] = cleaned.pop(name)
            elif not (self.redactor.is_secret(name) or name in VALUE_KEYS):
                self._plain_keys.add(name)
        return cleaned
