"""Schedules: requests that are made again and again, once for each time, in every ledger alike.

A schedule is in the ledger, with the time up to which its runs are decided. Any process enters the
runs that are due, and moves that time on in the same transaction: so each run is entered once,
however many processes try, and also by one that was stopped for longer than records are kept.

What is due, and what was missed, is decided here by functions over values (AACP-144, AACP-145).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import Protocol, TypeAlias

from attrs import define, evolve, frozen

from ...base.shown import Shown
from .encoder import format_time
from .ownership import is_request_id
from .types import Appended, OutgoingMessage

ON_TIME_MS = 60_000
"""A run that nobody has entered so long after its time was missed."""

MAX_MISSED = 100
"""The most missed runs of a schedule that are entered together: the latest."""

MAX_NAME = 100
"""The longest name of a schedule, in characters."""

ID_PREFIX = "every:"
"""The beginning of the request ids of runs, which callers do not give (AACP-143)."""


class Recurrence(Protocol):
    """The times of a schedule."""

    def after(self, at_ms: int) -> Iterator[int]:
        """Yield the times after that one, each later than the last, all of them whole seconds."""


RecurrenceOf: TypeAlias = Callable[[str, str], Recurrence]
"""Returns the recurrence of an expression and a time zone."""


class MissedRuns(StrEnum):
    """The rule for runs that nobody has entered in time."""

    ONCE = "once"
    """Of those that were missed together the latest is entered."""
    ALL = "all"
    """All are entered, at most `MAX_MISSED` of them."""
    NONE = "none"
    """None is entered."""


@define(repr=False)
class Schedule(Shown):
    """The record of a schedule.

    Attributes:
        name: its key.
        expression: says when it runs.
        timezone: the IANA name of the zone in which it does.
        payload: JSON, of each request.
        ttl_ms: the lifetime of each request.
        created_at_ms: when it was added.
        revision: how often it was replaced.
        decided_until_ms: the runs up to then have been entered or passed over.
        next_run_at_ms: when it runs next; None: never.
        last_run_at_ms: the latest run that was entered.
    """

    name: str
    expression: str
    timezone: str
    target_agent_id: str
    payload: bytes
    missed: MissedRuns
    ttl_ms: int
    created_at_ms: int
    revision: int = 0
    decided_until_ms: int = 0
    next_run_at_ms: int | None = None
    last_run_at_ms: int | None = None


@frozen
class RemoveSchedule:
    """The removal of the schedule of that name."""

    name: str


ScheduleChange: TypeAlias = Schedule | RemoveSchedule
"""A schedule that is to be added, or to take the place of the one of its name; or a removal."""


@define(repr=False)
class DueSchedules(Shown):
    """The schedules that have something to decide.

    Attributes:
        next_at_ms: when the next one of the others has; None if there is none.
    """

    schedules: list[Schedule]
    next_at_ms: int | None


@define(eq=False, repr=False)
class Decision(Shown):
    """The decision at one time about one schedule.

    Attributes:
        runs: the times of the runs that are entered, in order.
        missed: whether a run was missed.
        until_ms: the runs up to then are decided.
        next_run_at_ms: when it runs next; None: never.
    """

    runs: list[int]
    missed: bool
    until_ms: int
    next_run_at_ms: int | None


@define(eq=False, repr=False)
class Advance(Shown):
    """A decision that is to be entered, if the schedule is still as it was.

    Attributes:
        revision, decided_until_ms: of the schedule, as they were when it was read.
        runs: the messages, with their times.
        missed: whether a run was missed.
    """

    name: str
    revision: int
    decided_until_ms: int
    until_ms: int
    next_run_at_ms: int | None
    target_agent_id: str
    runs: list[tuple[int, OutgoingMessage]]
    missed: bool = False


EnteredRuns: TypeAlias = "Sequence[Appended] | None"
"""An answer for each message of an `Advance`; None: the schedule is not as it was, or another
process keeps it locked, and nothing has happened."""


# -- names and ids --------------------------------------------------------------------------------

_WRITTEN = str.maketrans({" ": "_", "*": "x", "/": ":", ",": ".", "#": "n"})


def default_name(target_agent_id: str, expression: str) -> str | None:
    """Return a name made of an agent and an expression; None if they do not fit into one."""
    written = " ".join(expression.upper().split()).translate(_WRITTEN)
    name = f"{target_agent_id}:{written}"
    return name if is_schedule_name(name) else None


def is_schedule_name(value: object) -> bool:
    """Return whether it can be the name of a schedule (AACP-141)."""
    return is_request_id(value) and len(str(value)) <= MAX_NAME


def run_id(name: str, run_at_ms: int) -> str:
    """Return the request id of a run (AACP-143)."""
    at = format_time(run_at_ms).removesuffix(".000Z").removesuffix(":00")
    return f"{ID_PREFIX}{name}:{at}Z"


# -- decisions ------------------------------------------------------------------------------------


def decide(schedule: Schedule, recurrence: Recurrence, now_ms: int) -> Decision:
    """Return what is done about a schedule now (AACP-144, AACP-145).

    The work is bounded, however long nobody has looked.
    """
    since_ms = schedule.decided_until_ms
    on_time_from_ms = max(since_ms, now_ms - ON_TIME_MS)
    on_time = latest_runs(recurrence, on_time_from_ms, now_ms, ON_TIME_MS // 1000)
    most = MAX_MISSED if schedule.missed is MissedRuns.ALL else 1
    missed = latest_runs(recurrence, since_ms, on_time_from_ms, most)
    due = missed + on_time
    until_ms = due[-1] if due else since_ms
    runs = on_time if schedule.missed is MissedRuns.NONE else due
    return Decision(runs, bool(missed), until_ms, next(recurrence.after(until_ms), None))


def latest_runs(recurrence: Recurrence, after_ms: int, until_ms: int, most: int) -> list[int]:
    """Return the latest runs after a time and up to another one, at most so many, in order.

    A recurrence goes forward only, and there may be millions of runs in between: the time from
    which there are enough, and few, is found by halving.
    """
    limit = 4 * most
    start_ms, too_late_ms = after_ms, until_ms
    found = _first_runs(recurrence, start_ms, until_ms, limit)
    while len(found) > limit or (len(found) < most and start_ms > after_ms):
        if len(found) > limit:
            after_ms = start_ms
        else:
            too_late_ms = start_ms
        start_ms = (after_ms + too_late_ms) // 2
        if start_ms == after_ms:  # a recurrence that has more than one run a second
            break
        found = _first_runs(recurrence, start_ms, until_ms, limit)
    return found[-most:]


def _first_runs(recurrence: Recurrence, after_ms: int, until_ms: int, limit: int) -> list[int]:
    """Return the first runs in that time; one more than the limit says that there are more."""
    if after_ms >= until_ms:
        return []
    found = []
    for run_at_ms in islice(recurrence.after(after_ms), limit + 1):
        if run_at_ms > until_ms:
            break
        found.append(run_at_ms)
    return found


# -- transitions of the record --------------------------------------------------------------------


def replaced(existing: Schedule | None, schedule: Schedule) -> Schedule:
    """Return the record after a schedule was added, or has taken the place of another (AACP-142).

    Args:
        existing: the record of that name, if there is one.
        schedule: what it is to be, with the times at which a new one begins.
    """
    if existing is None or is_same(existing, schedule):
        return existing or schedule
    kept = evolve(
        schedule,
        created_at_ms=existing.created_at_ms,
        revision=existing.revision + 1,
        last_run_at_ms=existing.last_run_at_ms,
    )
    if (existing.expression, existing.timezone) != (schedule.expression, schedule.timezone):
        # Nothing is entered twice, even if the clock of the ledger was set back.
        kept.decided_until_ms = max(schedule.decided_until_ms, existing.decided_until_ms)
        return kept
    kept.decided_until_ms = existing.decided_until_ms
    kept.next_run_at_ms = existing.next_run_at_ms
    return kept


def is_same(one: Schedule, other: Schedule) -> bool:
    """Return whether two schedules say the same, whatever has become of them."""
    return all(getattr(one, name) == getattr(other, name) for name in _DEFINITION)


_DEFINITION = ("expression", "timezone", "target_agent_id", "payload", "missed", "ttl_ms")


def advanced(existing: Schedule | None, advance: Advance) -> Schedule | None:
    """Return the record after an advance; None if the schedule is not as it was (AACP-140)."""
    if existing is None or (existing.revision, existing.decided_until_ms) != (
        advance.revision,
        advance.decided_until_ms,
    ):
        return None
    last_run_at_ms = advance.runs[-1][0] if advance.runs else existing.last_run_at_ms
    return evolve(
        existing,
        decided_until_ms=advance.until_ms,
        next_run_at_ms=advance.next_run_at_ms,
        last_run_at_ms=last_run_at_ms,
    )


def change_all(known: dict[str, Schedule], changes: Sequence[ScheduleChange]) -> list[bool]:
    """Change the records of schedules by name; return whether there was each (AACP-142)."""
    was_there = []
    for change in changes:
        existing = known.get(change.name)
        was_there.append(existing is not None)
        if isinstance(change, Schedule):
            known[change.name] = replaced(existing, change)
        else:
            known.pop(change.name, None)
    return was_there


def advance_all(known: dict[str, Schedule], advances: Sequence[Advance]) -> list[bool]:
    """Move the records of schedules on; return whether each advance did (AACP-140)."""
    is_made = []
    for advance in advances:
        moved = advanced(known.get(advance.name), advance)
        is_made.append(moved is not None)
        if moved is not None:
            known[advance.name] = moved
    return is_made
