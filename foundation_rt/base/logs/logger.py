"""Structured logs: one JSON object per line, on standard error, without secrets, never blocking.

`StructuredLogger` turns a message and fields into a line; a `LogSink` writes it. Logging never
raises and never changes its arguments; the line is complete before the call returns, so later
changes of the fields have no effect (LOG-03).

The records that matter for speed are those of every call: a dozen short, harmless fields, some of
them in objects in the audit log. `_encode_plain` encodes such fields unchanged and then proves, on
what is encoded, that there was nothing to redact, to escape or to truncate. Level, message and
context, and the names of the fields, are looked at only if they differ from those of the record
before. A secret by its pattern (`secret_patterns`) has an ``=``, ``@``, ``'`` or a space. Any other
record goes through `Redactor.for_log`, which treats every value by the rules and takes several
times as long. Both produce the same line.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Final, Protocol

import orjson
from attrs import define, field

from ...errors import UsageError
from ..clock import Clock, SystemClock
from .redaction import MAX_TEXT, VALUE_KEYS, Redactor, line_may_hold_secret
from .writer import BackgroundWriter

DEFAULT_CAPACITY_BYTES: Final = 4 * 1024 * 1024
# How long a line may wait for others to be written with it (seconds). Waking the writer's thread
# costs the thread that logs a hand-over of the interpreter lock.
_BATCH_DELAY: Final = 0.02

_RANKS: Final = {"debug": 10, "info": 20, "warn": 30, "error": 40}
_DEBUG, _INFO, _WARN, _ = _RANKS.values()
_RESERVED: Final = frozenset({"timestamp", "level", "message"})
_NO_FIELDS: Final[dict[str, Any]] = {}

_MAX_PLAIN_KEYS: Final = 4096
_MAX_STARTS: Final = 8
_MAX_PLAIN_LEVELS: Final = 4  # of objects, the record included
# Searched for as numbers: for bytes, CPython first raises and drops a TypeError.
_BACKSLASH, _DELETE, _LIST, _BRACKET = b"\\\x7f[{"
_OBJECT: Final = b"{"
# Every byte without which an object needs no closer look becomes a bracket.
_CLOSER_LOOK: Final = b"\\[{=@' " + bytes(range(0x7F, 0x100))
_MARKS: Final = bytes.maketrans(_CLOSER_LOOK, _OBJECT * len(_CLOSER_LOOK))


class LogSink(Protocol):
    """Writes log lines."""

    def write(self, line: bytes) -> None:
        """Write one whole JSON line, which ends with a newline; never blocks, never raises."""
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
        """Return the records written so far, decoded."""
        return [orjson.loads(line) for line in self._lines]


class StderrSink:
    """Writes log lines to a descriptor without ever blocking the caller.

    Lines are gathered for up to 20 ms and written by a daemon thread. A killed process loses the
    lines not written yet (LOG-19). A sink that was not closed is flushed for a second when the
    process exits or the sink is collected.

    Args:
        capacity: the most bytes that wait in memory; lines beyond are dropped, counted and
            reported.
        clock: gives the timestamp of the line that reports them; by default the system's.
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
        """Write one line (LOG-16)."""
        self._writer.write(line)

    @property
    def dropped(self) -> int:
        """Return the number of lost lines: beyond the capacity, after `close`, without reader."""
        return self._writer.lost_writes

    def flush(self, timeout: float) -> bool:
        """Wait `timeout` seconds at most for the lines so far; return whether all were written."""
        return self._writer.flush(timeout)

    def close(self, timeout: float) -> None:
        """Write the waiting lines within `timeout` seconds, and take no more (LOG-18)."""
        self._writer.close(timeout)


def _line(timestamp: str, level: str, message: str, fields: Mapping[str, Any]) -> bytes:
    entry = {"timestamp": timestamp, "level": level, "message": message, **fields}
    return orjson.dumps(entry) + b"\n"


@define(eq=False, repr=False)
class StructuredLogger:
    """Writes records of at least one level, each with the logger's context (LOG-01 to LOG-05).

    Args:
        sink: writes the lines.
        clock: gives the timestamps.
        level: the lowest level written: ``debug``, ``info``, ``warn`` or ``error``.
        redactor: knows which fields are secret.
        context: the fields of every record; their values are read when a record is written.

    Raises:
        UsageError: the level does not exist.
    """

    sink: LogSink
    clock: Clock
    level: str = "info"
    redactor: Redactor = field(factory=Redactor)
    context: Mapping[str, Any] = field(factory=dict)
    # Keys found to be neither secret nor reserved; shared with the children.
    _plain_keys: set[str] = field(factory=set, kw_only=True)
    # What stands before the contexts of records, by level, message and names of all fields.
    _starts: dict[tuple[str, ...], str] = field(factory=dict, kw_only=True)
    _rank: int = field(init=False)
    # Level, message, context and names of the fields of a record, and the text that they make.
    _head: tuple[tuple[Any, ...], str] = field(default=((), ""), init=False)

    def __attrs_post_init__(self) -> None:
        rank = _RANKS.get(self.level)
        if rank is None:
            raise UsageError(f"unknown log level {self.level!r}: use one of {', '.join(_RANKS)}")
        self._rank = rank
        if type(self.context) is not dict:
            self.context = dict(self.context)

    def debug(self, message: str, fields: Mapping[str, Any] | None = None) -> None:
        """Write a record for debugging; not written by default."""
        if self._rank <= _DEBUG:
            self._write("debug", message, fields)

    def info(self, message: str, fields: Mapping[str, Any] | None = None) -> None:
        """Write a record of a normal event."""
        if self._rank <= _INFO:
            self._write("info", message, fields)

    def warn(self, message: str, fields: Mapping[str, Any] | None = None) -> None:
        """Write a record that an operator may want to investigate."""
        if self._rank <= _WARN:
            self._write("warn", message, fields)

    def error(self, message: str, fields: Mapping[str, Any] | None = None) -> None:
        """Write a record of a failure; written at every level."""
        self._write("error", message, fields)

    def log(self, level: str, message: str, fields: Mapping[str, Any] | None = None) -> None:
        """Write a record of a level; an unknown level counts as ``warn`` (LOG-02)."""
        rank = _RANKS.get(level)
        if rank is None:
            level, rank = "warn", _WARN
        if self._rank <= rank:
            self._write(level, message, fields)

    def is_enabled(self, level: str) -> bool:
        """Return whether records of `level` are written, to avoid gathering fields in vain."""
        return self._rank <= _RANKS.get(level, _WARN)

    def child(self, context: Mapping[str, Any]) -> StructuredLogger:
        """Return a logger with more context, which takes precedence over this one's (LOG-05)."""
        return StructuredLogger(
            self.sink,
            self.clock,
            self.level,
            self.redactor,
            {**self.context, **context},
            plain_keys=self._plain_keys,
            starts=self._starts,
        )

    def redact(self, value: Any) -> Any:
        """Return `value` without secrets; see `Redactor.redact`."""
        return self.redactor.redact(value)

    def sanitize(self, text: str) -> str:
        """Return `text` in a form that is safe to show; see `traversal.sanitize`."""
        from .traversal import sanitize

        return sanitize(text)

    def _write(self, level: str, message: str, fields: Mapping[str, Any] | None) -> None:
        given = _NO_FIELDS if fields is None else fields
        try:
            timestamp = self.clock.timestamp()
            line = self._encode_plain(timestamp, level, message, given)
            self.sink.write(line or self._encode(timestamp, level, message, given))
        except Exception:
            # Out of memory, out of stack, or a sink of the host that raises: the record is lost,
            # and the caller continues (LOG-15).
            return

    def _encode_plain(
        self, timestamp: str, level: str, message: str, fields: Mapping[str, Any]
    ) -> bytes | None:
        """Return the line, if the record can be written unchanged; otherwise None."""
        if type(fields) is not dict:
            return None
        alike, head = self._head
        try:
            if alike != (level, message, self.context, (*fields,)):
                head = self._make_head(level, message, fields)
            body = orjson.dumps(fields)
        except TypeError:  # an integer over 64 bits, a lone surrogate
            return None
        rest = body[1:]
        if not head or len(body) > MAX_TEXT:
            return None
        if _BRACKET in rest.translate(_MARKS) and not self._is_plain(body, fields):
            return None
        return f'{{"timestamp":"{timestamp}{head}{rest.decode()}\n'.encode()

    def _make_head(self, level: str, message: str, fields: dict[str, Any]) -> str:
        """Return what stands between the timestamp and the fields; empty if it is not plain.

        It is kept, as the next record of a logger nearly always has the same. What stands before
        the context is kept for all loggers: that of a stateless request writes one record.
        """
        context = {**self.context}
        names = level, message, *context, *fields
        start = self._starts.get(names) or self._make_start(names, {**context, **fields})
        line, comma = orjson.dumps(context), "," if context and fields else ""
        is_plain = _BRACKET not in line[1:].translate(_MARKS) or self._is_plain(line, context)
        head = ""
        if start and is_plain and len(line) <= MAX_TEXT:
            head = f"{start}{line[1:-1].decode()}{comma}"
        self._head = (level, message, context, (*fields,)), head
        return head

    def _make_start(self, names: tuple[str, ...], entry: dict[str, Any]) -> str:
        self._learn_plain_keys(entry)
        fixed = {"level": names[0], "message": names[1]}
        line = orjson.dumps(fixed)
        if len(line) > MAX_TEXT or not self._is_plain(line, fixed):
            return ""
        # A name that stands in both the context and the fields is written differently (LOG-04).
        if len(entry) + 2 < len(names) or not entry.keys() <= self._plain_keys:
            return ""
        if len(self._starts) >= _MAX_STARTS:
            self._starts.clear()
        return self._starts.setdefault(names, f'",{line[1:-1].decode()}{"," if entry else ""}')

    def _is_plain(self, line: bytes, entry: dict[str, Any]) -> bool:
        """Return whether a short object is written unchanged, whose own keys are plain.

        C0 controls are written with a backslash, C1 controls and U+2028 are not ASCII, no string
        can be longer than the line, and every nested value opens one more bracket.
        """
        return (
            _BACKSLASH not in line
            and _DELETE not in line
            and _LIST not in line
            and line.count(_OBJECT) == self._plain_objects(entry)
            and line.isascii()
            and not line_may_hold_secret(line)
        )

    def _plain_objects(self, entry: dict[str, Any], level: int = 1) -> int:
        """Return how many dicts `entry` consists of; 0 if some may not be written unchanged."""
        count = 1
        for value in [*entry.values()]:  # another thread may change it
            if type(value) is dict:
                inner = 0
                if level < _MAX_PLAIN_LEVELS and value.keys() <= self._plain_keys:
                    inner = self._plain_objects(value, level + 1)
                if not inner:
                    return 0
                count += inner
        return count

    def _encode(self, timestamp: str, level: str, message: str, fields: Mapping[str, Any]) -> bytes:
        """Return the line of any record."""
        merged = {**self._cleaned(self.context), **self._cleaned(fields)}
        return _line(timestamp, level, self.redactor.for_log(message), merged)

    def _cleaned(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields in their written form, under names that are free (LOG-04)."""
        from .traversal import unused_name

        cleaned = self.redactor.for_log(fields)
        if not isinstance(cleaned, dict):  # unreadable as a whole
            return {"fields": cleaned}
        for name in [each for each in cleaned if each in _RESERVED]:
            cleaned[unused_name(f"{name}_", cleaned)] = cleaned.pop(name)
        return cleaned

    def _learn_plain_keys(self, fields: Mapping[str, Any], level: int = 1) -> None:
        """Remember the keys that need no treatment, those of objects in the record included."""
        if len(fields) > MAX_TEXT / 8:
            return  # the line is too long for a plain one
        if len(self._plain_keys) > _MAX_PLAIN_KEYS:
            self._plain_keys.clear()
        for name, value in [*fields.items()]:  # another thread may change it
            if type(name) is str and not (
                name in self._plain_keys
                or name in _RESERVED
                or name in VALUE_KEYS
                or self.redactor.is_secret(name)
            ):
                self._plain_keys.add(name)
            if type(value) is dict and level < _MAX_PLAIN_LEVELS:
                self._learn_plain_keys(value, level + 1)
