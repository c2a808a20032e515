"""Schedules are changed, found and moved on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from ...ledger.schedules import (
    Advance,
    DueSchedules,
    EnteredRuns,
    Schedule,
    ScheduleChange,
    advanced,
    replaced,
)
from .. import records
from .messages import append
from .working_set import ids_of

_COLUMNS = ", ".join(records.SCHEDULE_COLUMNS)
_WRITE = (
    f"INSERT OR REPLACE INTO schedules ({_COLUMNS})"
    f" VALUES ({', '.join('?' * len(records.SCHEDULE_COLUMNS))})"
)


def change_schedules(
    connection: sqlite3.Connection, changes: Sequence[ScheduleChange]
) -> list[bool]:
    """See `AACPPersistenceAdapter`."""
    was_there = []
    for change in changes:
        existing = _read(connection, [change.name]).get(change.name)
        was_there.append(existing is not None)
        if isinstance(change, Schedule):
            _write(connection, replaced(existing, change))
        else:
            connection.execute("DELETE FROM schedules WHERE name = ?", (change.name,))
    return was_there


def list_schedules(connection: sqlite3.Connection, after: str, limit: int) -> list[Schedule]:
    """See `AACPPersistenceAdapter`."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM schedules WHERE name > ? ORDER BY name LIMIT ?", (after, limit)
    )
    return list(map(records.schedule_of, rows))


def due_schedules(connection: sqlite3.Connection, now_ms: int, limit: int) -> DueSchedules:
    """See `AACPPersistenceAdapter`."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM schedules WHERE next_run_at_ms <= ?"
        " ORDER BY next_run_at_ms, name LIMIT ?",
        (now_ms, limit),
    )
    due = list(map(records.schedule_of, rows))
    [next_at_ms] = connection.execute(
        "SELECT min(next_run_at_ms) FROM schedules WHERE next_run_at_ms > ?", (now_ms,)
    ).fetchone()
    return DueSchedules(due, next_at_ms)


def enter_runs(
    connection: sqlite3.Connection, incarnation: int, advances: Sequence[Advance], now_ms: int
) -> list[EnteredRuns]:
    """See `AACPPersistenceAdapter`; the incarnation is that of this ledger."""
    entered: list[EnteredRuns] = []
    for advance in advances:
        moved = advanced(_read(connection, [advance.name]).get(advance.name), advance)
        if moved is None:
            entered.append(None)
            continue
        _write(connection, moved)
        messages = [message for _, message in advance.runs]
        entered.append(append(connection, incarnation, messages, now_ms) if messages else [])
    return entered


def _read(connection: sqlite3.Connection, names: Iterable[str]) -> dict[str, Schedule]:
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM schedules WHERE name IN (SELECT value FROM json_each(?))",
        (ids_of(names),),
    )
    return {row[0]: records.schedule_of(row) for row in rows}


def _write(connection: sqlite3.Connection, schedule: Schedule) -> None:
    connection.execute(_WRITE, records.schedule_row(schedule))
