"""Clocks: one interface, the system's clock, and a clock that a test moves by hand.

Every component that needs the time is given a `Clock` and uses no other source, so a test or a
replayed session sees the same instants every time. Wall-clock time is for people (`now`,
`timestamp`). Durations and deadlines are measured with `monotonic`, which never goes backwards
(ID-05, ID-06).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from time import gmtime, strftime, time_ns
from typing import Protocol

DEFAULT_START = datetime(2024, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """A source of time."""

    def now(self) -> datetime:
        """Return the wall-clock time, aware, in UTC."""
        ...

    def timestamp(self) -> str:
        """Return the wall-clock time as ISO 8601: ``2024-01-15T10:30:00.000Z`` (ID-05)."""
        ...

    def monotonic(self) -> float:
        """Return seconds since a fixed point; only differences have a meaning (ID-06)."""
        ...


class SystemClock:
    """The clock of the machine; safe to share between threads."""

    __slots__ = ("_second",)

    def __init__(self) -> None:
        # The last rendered second and its text. The tuple is replaced as a whole: a thread sees the
        # old pair or the new one, never the text of another second.
        self._second = (-1, "")

    def now(self) -> datetime:
        """Return the wall-clock time, aware, in UTC."""
        return datetime.now(UTC)

    def timestamp(self) -> str:
        """Return the wall-clock time as ISO 8601 in UTC, cut to milliseconds (ID-05)."""
        # 0.28 us, against 1.0 us for datetime.now(UTC).isoformat(): only the milliseconds are
        # rendered each time, and without a format specification where they have three digits.
        second, millisecond = divmod(time_ns() // 1_000_000, 1000)
        rendered, text = self._second
        if second != rendered:
            text = strftime("%Y-%m-%dT%H:%M:%S.", gmtime(second))
            self._second = (second, text)
        return f"{text}{millisecond}Z" if millisecond > 99 else f"{text}{millisecond:03d}Z"

    monotonic = staticmethod(time.monotonic)
    """See `Clock`; the function itself, which saves a call of a Python function every time."""


class ManualClock:
    """A clock that stands still until it is advanced: for tests and replayed sessions (ID-07).

    Args:
        start: the first instant; aware, in any time zone.

    Raises:
        ValueError: `start` has no time zone.
    """

    __slots__ = ("_elapsed", "_start")

    def __init__(self, start: datetime = DEFAULT_START) -> None:
        if start.tzinfo is None:
            raise ValueError(f"start needs a time zone: {start!r} has none")
        self._start = start.astimezone(UTC)
        self._elapsed = timedelta()

    def advance(self, seconds: float) -> None:
        """Advance the clock by `seconds`, to the microsecond.

        Raises:
            ValueError: `seconds` is negative; time does not go backwards.
        """
        if seconds < 0:
            raise ValueError(f"seconds must not be negative: {seconds!r}")
        self._elapsed += timedelta(seconds=seconds)

    def now(self) -> datetime:
        """Return the start plus the time passed, aware, in UTC."""
        return self._start + self._elapsed

    def timestamp(self) -> str:
        """Return `now` as ISO 8601 in UTC, cut to milliseconds (ID-05)."""
        return f"{self.now().replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"

    def monotonic(self) -> float:
        """Return the seconds that have passed since the start."""
        return self._elapsed.total_seconds()
