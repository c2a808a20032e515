"""Tasks are read, claimed, changed and deleted."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from ...queries import casefold_text
from ...store import (
    Change,
    Deletion,
    TaskQuota,
    TaskUpdate,
    TaskUsage,
    check_versions,
    ranges_of,
)
from ...tasks import Task, text_bytes
from . import change_log, counts
from .tables import MAX_ID, ids_json, later, now

COLUMNS = ", ".join(Task._fields)

_OF_IDS = "id IN (SELECT value FROM json_each(?))"
_CLAIM_ORDER = "priority DESC, ifnull(due_date, '~'), id"
_MEMBERS = ("title", "description", "status", "due_date", "project", "priority")


def get(connection: sqlite3.Connection, task_id: int) -> Task | None:
    """See `TaskServerStore.get_task`."""
    if not 0 < task_id <= MAX_ID:
        return None
    row = connection.execute(f"SELECT {COLUMNS} FROM tasks WHERE id = ?", (task_id,)).fetchone()
    return None if row is None else Task._make(row)


def _read(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, Task]:
    """Return those of these tasks that there are."""
    rows = connection.execute(f"SELECT {COLUMNS} FROM tasks WHERE {_OF_IDS}", (ids_json(ids),))
    return {row[0]: Task._make(row) for row in rows}


# -- claims ---------------------------------------------------------------------------------------


def claim(
    connection: sqlite3.Connection,
    count: int,
    project: str | None,
    worker: str,
    lease_seconds: int,
) -> list[Task]:
    """See `TaskServerStore.claim_tasks`."""
    time = now(connection)
    ids = _find_claimable(connection, count, project, time)
    if not ids:
        return []
    before = _read(connection, ids)
    connection.execute(
        "UPDATE tasks SET status = 'IN_PROGRESS', version = version + 1, claimed_by = ?,"
        f" claim_expires_at = ?, updated_at = ? WHERE {_OF_IDS}",
        (worker, later(connection, time, lease_seconds), time, ids_json(ids)),
    )
    claimed = _read(connection, ids)
    _record(connection, list(before.values()), list(claimed.values()))
    return [claimed[task_id] for task_id in ids]


def _find_claimable(
    connection: sqlite3.Connection, count: int, project: str | None, time: str
) -> list[int]:
    """Return the ids of the first tasks that can be claimed.

    Those that are TODO come from an index in the order of claims. Those with an ended claim, mostly
    few, are found by the end of their claims and sorted.
    """
    of_project, values = ("", ()) if project is None else (" AND project = ?", (project,))
    index = "tasks_to_claim" if project is None else "tasks_to_claim_of_project"
    select = "SELECT -priority, ifnull(due_date, '~'), id FROM tasks"
    order = f"{of_project} ORDER BY {_CLAIM_ORDER} LIMIT ?"
    free = connection.execute(
        f"{select} INDEXED BY {index} WHERE status = 'TODO'{order}", (*values, count)
    ).fetchall()
    expired = connection.execute(
        f"{select} INDEXED BY tasks_by_claim_end WHERE claim_expires_at <= ?{order}",
        (time, *values, count),
    ).fetchall()
    return [task_id for *_, task_id in sorted(free + expired)[:count]]


# -- changes --------------------------------------------------------------------------------------


def update(
    connection: sqlite3.Connection, updates: Sequence[TaskUpdate], quota: TaskQuota
) -> list[tuple[int, int]]:
    """See `TaskServerStore.update_tasks`."""
    before = _read(connection, [each.id for each in updates])
    check_versions(updates, {task.id: task.version for task in before.values()})
    time = now(connection)
    after = []
    for each in updates:
        lease = each.lease_seconds
        until = None if lease is None else later(connection, time, lease)
        after.append(_updated(before[each.id], each.members, until, time))
    connection.executemany(
        "UPDATE tasks SET title = ?, description = ?, status = ?, due_date = ?, project = ?,"
        " priority = ?, version = ?, claimed_by = ?, claim_expires_at = ?, updated_at = ?,"
        " search_text = ? WHERE id = ?",
        [
            (*each[1:10], each.updated_at, casefold_text(each.title, each.description), each.id)
            for each in after
        ],
    )
    _record(connection, list(before.values()), after, quota=quota)
    return [(each.id, each.version) for each in after]


def _updated(task: Task, members: Mapping[str, Any], until: str | None, time: str) -> Task:
    """Return a task as an update leaves it.

    Args:
        task: as it was.
        members: the new values.
        until: the new end of its claim; None leaves it.
        time: that of the update.
    """
    if not members.keys() <= set(_MEMBERS):
        raise TypeError(f"no member of a task can be changed by these names: {list(members)}")
    task = task._replace(**members, version=task.version + 1, updated_at=time)
    if members.get("status") in ("TODO", "DONE"):
        return task._replace(claimed_by=None, claim_expires_at=None)
    if until is not None and task.claimed_by is not None:
        return task._replace(claim_expires_at=until)
    return task


def delete(
    connection: sqlite3.Connection, ids: Sequence[int] | None = None, job_id: str | None = None
) -> Deletion:
    """See `TaskServerStore.delete_tasks`."""
    if job_id is not None:
        rows = connection.execute(f"SELECT {COLUMNS} FROM tasks WHERE job_id = ?", (job_id,))
        found = {row[0]: Task._make(row) for row in rows}
        ids = list(found)
    else:
        ids = ids or ()
        found = _read(connection, ids)
    if found:
        connection.execute(f"DELETE FROM tasks WHERE {_OF_IDS}", (ids_json(found),))
        _record(connection, list(found.values()), [], lists=True)
    return Deletion(len(found), sorted(set(ids) - found.keys()))


def _record(
    connection: sqlite3.Connection,
    before: Sequence[Task],
    after: Sequence[Task],
    *,
    lists: bool = False,
    quota: TaskQuota | None = None,
) -> None:
    """Enter the change of tasks in the counts, in what their creators store, and in the changes."""
    deltas = counts.Deltas()
    stored: dict[str, TaskUsage] = {}
    for sign, tasks in ((-1, before), (1, after)):
        for task in tasks:
            deltas[task.project, task.status, task.due_date] += sign
            number, size = stored.get(task.created_by, TaskUsage())
            own = text_bytes(task.title, task.description, task.project)
            stored[task.created_by] = TaskUsage(number + sign, size + sign * own)
    counts.add_usage(connection, stored, quota)
    counts.apply(connection, deltas)
    change_log.record(connection, Change(tasks=ranges_of(each.id for each in before), lists=lists))
