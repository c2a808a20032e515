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

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from hashlib import blake2b
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from attrs import frozen

from ...errors import MissingExtraError, UsageError
from .encoder import is_agent_id
from .schedules import (
    MAX_NAME,
    MissedRuns,
    Schedule,
    default_name,
    is_same,
    is_schedule_name,
)

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


_NOW_MS = 1_700_000_000_000
"""Any time: an expression without a run in 50 years has none."""


def declared_schedule(
    expression: str,
    target_agent_id: str,
    payload: bytes,
    timezone: str,
    name: str | None,
    missed: str,
    ttl_ms: int,
    *,
    known: Mapping[str, Schedule],
) -> Schedule:
    """Return a schedule that has not begun yet.

    Args:
        expression, target_agent_id, timezone, missed: as a program gives them.
        payload: JSON.
        name: as a program gives it; None for one that is made.
        ttl_ms: the lifetime of its requests.
        known: those that this program has declared before.

    Raises:
        UsageError: something is not valid; says what to change.
    """
    if not is_agent_id(target_agent_id):
        raise UsageError("every: the target must be the id of an agent")
    if missed not in set(MissedRuns):
        raise UsageError(f"every: missed is one of {', '.join(MissedRuns)}, not {missed!r}")
    recurrence = cron_recurrence(expression, timezone)
    if next(recurrence.after(_NOW_MS), None) is None:
        raise UsageError(f"every: {expression!r} has no time in the next 50 years")
    if name is not None and not is_schedule_name(name):
        raise UsageError(
            f"every: a name is 1 to {MAX_NAME} letters, digits and . _ : -, the first a letter or a"
            " digit"
        )
    schedule = Schedule(
        name or _name_of(target_agent_id, expression),
        expression,
        timezone,
        target_agent_id,
        payload,
        MissedRuns(missed),
        ttl_ms,
        0,
    )
    before = known.get(schedule.name)
    if name is None and before is not None and not is_same(before, schedule):
        raise UsageError(
            f"every: this program has another schedule of {target_agent_id!r} with this expression:"
            " give one of them a name, with name="
        )
    return schedule


def _name_of(target_agent_id: str, expression: str) -> str:
    """Return a name made of an agent and an expression; a digest of what does not fit."""
    name = default_name(target_agent_id, expression)
    if name is None:
        digest = blake2b(f"{target_agent_id}\0{expression}".encode(), digest_size=8)
        name = f"schedule-{digest.hexdigest()}"
    return name
