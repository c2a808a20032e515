"""The log of changes, for every process that has the file open (TASKS-84).

An operation that changes something adds a row to `changes` in its transaction. A process reads the
rows behind the last one that it has read: at once after its own operations, and ten times a second
if the file's version has changed. So what was rolled back is never told, and neither a caller that
was cancelled nor a process that was killed after its commit leaves anybody waiting.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import orjson

from ...store import Change

KEPT = 1000
"""The rows that are kept. A process that has read none of them learns that anything may differ."""

Version = tuple[int, int]
"""Two numbers: one changes with the file by other processes, one by this connection."""

UNREAD: Version = (-1, -1)

_EVERYTHING = Change(everything=True, lists=True)


def record(connection: sqlite3.Connection, change: Change) -> None:
    """Add a change to the transaction, and remove those that are old."""
    text = orjson.dumps([change.tasks, change.jobs, change.everything, change.lists]).decode()
    cursor = connection.execute("INSERT INTO changes (change) VALUES (?)", (text,))
    connection.execute("DELETE FROM changes WHERE number <= ?", ((cursor.lastrowid or 0) - KEPT,))


def last(connection: sqlite3.Connection) -> int:
    """Return the number of the last change."""
    [number] = connection.execute("SELECT max(number) FROM changes").fetchone()
    return number or 0


def look(
    connection: sqlite3.Connection, behind: int, version: Version
) -> tuple[int, Version, list[Change]]:
    """Return what has changed.

    Args:
        connection: of the reader.
        behind: the number of the last change that it has read.
        version: of the file when it did so; `UNREAD` if that is not known.

    Returns:
        The number of the last change, the version of the file, and the changes behind that number.
    """
    [of_others] = connection.execute("PRAGMA data_version").fetchone()
    current = (of_others, connection.total_changes)
    if current == version:
        return behind, current, []
    rows = connection.execute(
        "SELECT number, change FROM changes WHERE number > ? ORDER BY number", (behind,)
    ).fetchall()
    if not rows:
        return behind, current, []
    lost = [_EVERYTHING] if rows[0][0] > behind + 1 else []
    return rows[-1][0], current, [*lost, *(_change_of(orjson.loads(text)) for _, text in rows)]


def _change_of(values: list[Any]) -> Change:
    tasks, jobs, everything, lists = values
    return Change(tuple((first, last) for first, last in tasks), tuple(jobs), everything, lists)
