"""Cron expressions in a time zone, as recurrences (AACP-146).

The library cronsim reads them, and does as Debian's cron does where clocks are changed:

- A run at a fixed time that the clock skips is at the first time after the gap. One at a fixed time
  that comes twice is at the first of the two.
- Where the hour or the minute begins with ``*``, runs follow the time that really passes: none is
  in a skipped hour, and an hour that comes twice has them twice.

Here that becomes a sequence of times that grow: two runs that fall on the same time are one.

Needs the extra `schedules` (cronsim, and tzdata for systems without time zones of their own).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from attrs import frozen

from ...errors import MissingExtraError, UsageError

try:
    from cronsim import CronSim, CronSimError
except ImportError:
    raise MissingExtraError("A schedule of agents", "schedules") from None

MAX_EXPRESSION = 200
"""The longest expression, in characters."""

_UTC_NAME = "UTC"


@frozen
class CronRecurrence:
    """The times of a cron expression in a zone."""

    expression: str
    zone: tzinfo

    def after(self, at_ms: int) -> Iterator[int]:
        """Yield the times after that one, for the next 50 years without one at most."""
        begin = datetime.fromtimestamp(at_ms // 1000, UTC).astimezone(self.zone)
        latest_ms = at_ms
        for found in CronSim(self.expression, begin):
            run_at_ms = int(found.timestamp()) * 1000
            # Of an hour that comes twice, the first may be found from within the second.
            if run_at_ms > latest_ms:
                latest_ms = run_at_ms
                yield run_at_ms


@lru_cache(maxsize=1_000)
def cron_recurrence(expression: str, timezone: str) -> CronRecurrence:
    """Return the recurrence of a cron expression in a time zone.

    Args:
        expression: five fields, or six with the seconds first.
        timezone: an IANA name.

    Raises:
        UsageError: one of them is not valid; the message says what to change.
    """
    zone = _zone(timezone)
    if len(expression) > MAX_EXPRESSION:
        raise UsageError(f"a cron expression has at most {MAX_EXPRESSION} characters")
    try:
        CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise UsageError(
            f"{expression!r} is no cron expression: {str(error).lower()}; its fields are [second]"
            " minute hour day-of-month month day-of-week, as in '0 6 * * *'"
        ) from None
    return CronRecurrence(expression, zone)


def _zone(name: str) -> tzinfo:
    if name == _UTC_NAME:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"there is no time zone {name!r}: use an IANA name, as in 'Europe/Berlin'"
        ) from None
