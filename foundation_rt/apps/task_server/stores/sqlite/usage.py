"""The tasks and bytes that each principal stores, for its quota (TASKS-98).

The transaction that submits a job adds its tasks, so those that are not stored yet count too; the
one that fails it, or deletes tasks, takes them off. No task is counted again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from ...store import TaskQuota, TaskUsage

_ADD = (
    "INSERT INTO usage VALUES (?, ?, ?) ON CONFLICT (principal) DO UPDATE"
    " SET tasks = tasks + excluded.tasks, bytes = bytes + excluded.bytes"
)


def add(
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
    connection.executemany(_ADD, rows)
