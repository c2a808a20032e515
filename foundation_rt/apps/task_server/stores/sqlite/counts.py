"""The counts of tasks by project, status and due date (TASKS-73), and what principals store.

Every operation that changes tasks gathers what it changes in a `Counter`, and applies it once. The
rows of all projects together have the project ''. A count of 0 has no row, so that the earliest and
the latest due date are the ends of an index.

What a principal stores is for its quota (TASKS-98). The transaction that submits a job adds its
tasks, so those that are not stored yet count too; the one that fails it, or deletes tasks, takes
them off.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ...queries import Summary, TaskFilter
from ...store import TaskQuota, TaskUsage
from ...tasks import STATUSES
from .tables import now

Deltas = Counter[tuple[str, str, str | None]]
"""The number of tasks to add to, or take from, each project, status and due date or none."""

_ALL = ""

_TABLES = {
    "task_counts": ("project", "status"),
    "due_counts": ("project", "status", "due_date"),
}


def apply(connection: sqlite3.Connection, deltas: Deltas) -> None:
    """Change the counts; to be called in the transaction that changes the tasks."""
    by_status: Counter[tuple[Any, ...]] = Counter()
    by_date: Counter[tuple[Any, ...]] = Counter()
    for (project, status, due_date), delta in deltas.items():
        for each in (project, _ALL):
            by_status[each, status] += delta
            if due_date is not None:
                by_date[each, status, due_date] += delta
    _write(connection, "task_counts", by_status)
    _write(connection, "due_counts", by_date)


def _write(connection: sqlite3.Connection, table: str, deltas: Counter[tuple[Any, ...]]) -> None:
    key = _TABLES[table]
    marks = ", ".join("?" * (len(key) + 1))
    where = " AND ".join(f"{name} = ?" for name in key)
    more = [(*key, delta) for key, delta in deltas.items() if delta > 0]
    fewer = [(-delta, *key) for key, delta in deltas.items() if delta < 0]
    if more:
        connection.executemany(
            f"INSERT INTO {table} VALUES ({marks}) ON CONFLICT ({', '.join(key)})"
            " DO UPDATE SET count = count + excluded.count",
            more,
        )
    if fewer:
        connection.executemany(f"UPDATE {table} SET count = count - ? WHERE {where}", fewer)
        connection.executemany(
            f"DELETE FROM {table} WHERE {where} AND count = 0", [key for _, *key in fewer]
        )


def total(connection: sqlite3.Connection, where: TaskFilter) -> int:
    """Return how many tasks meet the conditions on status, project and due date; no others."""
    table, conditions, values = "task_counts", ["project = ?"], [where.project or _ALL]
    statuses = STATUSES if where.status is None else (where.status,)
    if where.due_before is not None or where.due_after is not None:
        table = "due_counts"
        for comparison, date in (("<", where.due_before), (">", where.due_after)):
            if date is not None:
                conditions.append(f"due_date {comparison} ?")
                values.append(date)
    # One search for each status: the date is the last column of the key.
    parts = [
        connection.execute(
            f"SELECT ifnull(sum(count), 0) FROM {table}"
            f" WHERE {' AND '.join(conditions)} AND status = ?",
            (*values, status),
        ).fetchone()[0]
        for status in statuses
    ]
    return sum(parts)


def summarize(connection: sqlite3.Connection, project: str | None = None) -> Summary:
    """See `TaskServerStore`."""
    name = project or _ALL
    counts = dict.fromkeys(STATUSES, 0)
    counts.update(
        connection.execute("SELECT status, count FROM task_counts WHERE project = ?", (name,))
    )
    ends = [
        connection.execute(
            "SELECT (SELECT min(due_date) FROM due_counts WHERE project = ? AND status = ?),"
            " (SELECT max(due_date) FROM due_counts WHERE project = ? AND status = ?)",
            (name, status, name, status),
        ).fetchone()
        for status in STATUSES
    ]
    [overdue] = connection.execute(
        "SELECT ifnull(sum(count), 0) FROM due_counts WHERE project = ?"
        " AND status IN ('TODO', 'IN_PROGRESS') AND due_date < date('now')",
        (name,),
    ).fetchone()
    jobs = dict(
        connection.execute(
            "SELECT status, count(*) FROM batch_jobs"
            " WHERE status IN ('PENDING', 'RUNNING') GROUP BY status"
        )
    )
    return Summary(
        counts,
        min((first for first, _ in ends if first is not None), default=None),
        max((last for _, last in ends if last is not None), default=None),
        overdue,
        jobs.get("PENDING", 0),
        jobs.get("RUNNING", 0),
        now(connection),
    )


_ADD_USAGE = (
    "INSERT INTO usage VALUES (?, ?, ?) ON CONFLICT (principal) DO UPDATE"
    " SET tasks = tasks + excluded.tasks, bytes = bytes + excluded.bytes"
)


def add_usage(
    connection: sqlite3.Connection, changes: Mapping[str, TaskUsage], quota: TaskQuota | None = None
) -> None:
    """Change what principals store; to be called in the transaction that changes the tasks.

    Raises:
        QuotaExceededError: it is more than `quota`.
    """
    if quota is not None:
        for principal, change in changes.items():
            stored = connection.execute(
                "SELECT tasks, bytes FROM usage WHERE principal = ?", (principal,)
            ).fetchone()
            quota.check(TaskUsage(*(stored or ())), change)
    rows = [(principal, *change) for principal, change in changes.items() if any(change)]
    connection.executemany(_ADD_USAGE, rows)
