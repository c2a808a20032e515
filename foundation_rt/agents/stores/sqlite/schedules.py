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
    advance_all,
    change_all,
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
    names = {change.name for change in changes}
    known = _read(connection, names)
    was_there = change_all(known, changes)
    _write(connection, known.values())
    connection.executemany(
        "DELETE FROM schedules WHERE name = ?", [(name,) for name in names - known.keys()]
    )
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
    connection: sqlite3.Connection, advances: Sequence[Advance], now_ms: int
) -> list[EnteredRuns]:
    """See `AACPPersistenceAdapter`."""
    known = _read(connection, {advance.name for advance in advances})
    made = advance_all(known, advances)
    _write(connection, known.values())
    return [
        append(connection, [message for _, message in advance.runs], now_ms) if is_made else None
        for advance, is_made in zip(advances, made, strict=True)
    ]


def _read(connection: sqlite3.Connection, names: Iterable[str]) -> dict[str, Schedule]:
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM schedules WHERE name IN (SELECT value FROM json_each(?))",
        (ids_of(names),),
    )
    return {row[0]: records.schedule_of(row) for row in rows}


def _write(connection: sqlite3.Connection, schedules: Iterable[Schedule]) -> None:
    connection.executemany(_WRITE, map(records.schedule_row, schedules))
