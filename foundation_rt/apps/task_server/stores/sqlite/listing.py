"""Pages of tasks, each along the index that fits it (TASKS-74, TASKS-75, TASKS-76).

SQLite has no statistics of its indexes here, and would choose by rules of thumb: for the tasks of a
status by due date it reads and sorts all of the status. But the counts say how many tasks meet a
condition. So each statement names its index:

- If at most `FEW` tasks meet one of the conditions, they are found by its index, and sorted.
- Otherwise the page is read along the index of its order, and the other conditions are checked.

Along an index a list is a sequence of pieces, each of which is a range of it: behind a cursor first
the rest of the tasks with the same key, then those with the next keys, then those without a key.
Descending keys are pieces of one key each, since an index has the ids of a key ascending. If many
of them do not fill the page, the rest is one piece, in which SQLite sorts the tasks of each key.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from attrs import define, field, frozen

from ...queries import EXACT_TOTAL, TaskFilter, TaskPage, TaskQuery, fold
from ...tasks import Task
from . import counts
from .rows import ids_json
from .tasks import COLUMNS

FEW = 10_000
"""The most tasks that are sorted for a page: that takes about 20 ms."""

_QUICK = 100
"""The tasks that are read in a few hundred microseconds."""

MOST_KEYS = 100
"""The most descending keys that are pieces by themselves: a piece takes 50 us, a task of the last
piece 1 us. But the tasks of a key may be many, and of these the last piece reads all."""

_KEYS = {"dueDate": "due_date", "priority": "priority", "updatedAt": "updated_at"}
_INDEXES = {
    "id": "NOT INDEXED",  # along the table itself
    "due_date": "INDEXED BY tasks_by_due_date",
    "priority": "INDEXED BY tasks_by_priority",
    "updated_at": "INDEXED BY tasks_by_updated_at",
}


@define
class _Conditions:
    """A part of a WHERE clause, and its parameters."""

    texts: list[str] = field(factory=list)
    values: list[Any] = field(factory=list)

    def add(self, text: str, *values: Any) -> None:
        self.texts.append(text)
        self.values += values

    def __add__(self, other: _Conditions) -> _Conditions:
        return _Conditions(self.texts + other.texts, self.values + other.values)

    def clause(self) -> str:
        """Return the clause, with all of them."""
        return f" WHERE {' AND '.join(self.texts)}" if self.texts else ""


@frozen
class _Piece:
    """A range of an index, or of the table.

    Attributes:
        where: what its tasks meet beside the conditions of the list.
        order: the order in which the index has them.
    """

    where: _Conditions
    order: str


def is_quick(query: TaskQuery) -> bool:
    """Return whether a page takes less than a millisecond, however many tasks there are."""
    ids = query.where.ids
    if query.where != TaskFilter(ids=ids) or query.offset + query.limit > _QUICK:
        return False
    return ids is None or len(ids) <= _QUICK


def list_tasks(connection: sqlite3.Connection, query: TaskQuery, few: int = FEW) -> TaskPage:
    """See `TaskServerStore.list_tasks`; `few` is the most tasks that are sorted for a page."""
    conditions = _conditions(query.where)
    source_of_few = _index_of_few(connection, query.where, few)
    total = _known_total(connection, query.where) if query.count else None
    if total is not None and query.offset >= total:
        return TaskPage([], False, total, False)
    if source_of_few is not None:
        source, pieces = source_of_few, iter([_sorted_piece(query)])
    else:
        source, pieces = _along(connection, query)
    tasks = _read(connection, source, conditions, pieces, query.limit + 1, query.offset)
    has_more = len(tasks) > query.limit
    del tasks[query.limit :]
    bounded = False
    if query.count and total is None:
        on_last_page = None if has_more else len(tasks)
        total = _count_all(connection, query, conditions, source_of_few, on_last_page)
        bounded = total > EXACT_TOTAL
        total = min(total, EXACT_TOTAL)
    return TaskPage(tasks, has_more, total, bounded)


def _count_all(
    connection: sqlite3.Connection,
    query: TaskQuery,
    conditions: _Conditions,
    source_of_few: str | None,
    on_last_page: int | None,
) -> int:
    """Return how many tasks a list has, or more than `EXACT_TOTAL`.

    The page was the last one if `on_last_page` is given; with the offset that is the total.
    """
    if on_last_page is not None and query.after is None and (on_last_page or not query.offset):
        return query.offset + on_last_page
    return _count(
        connection, source_of_few or _source_by_id(query.where), conditions, EXACT_TOTAL + 1
    )


# -- conditions -----------------------------------------------------------------------------------


def _conditions(where: TaskFilter) -> _Conditions:
    found = _Conditions()
    for column, value in (
        ("status", where.status),
        ("project", where.project),
        ("job_id", where.job_id),
        ("claimed_by", where.claimed_by),
    ):
        if value is not None:
            found.add(f"{column} = ?", value)
    if where.ids is not None:
        found.add("id IN (SELECT value FROM json_each(?))", ids_json(where.ids))
    if where.due_before is not None:
        found.add("due_date < ?", where.due_before)
    if where.due_after is not None:
        found.add("due_date > ?", where.due_after)
    if where.updated_after is not None:
        found.add("updated_at > ?", where.updated_after)
    for word in where.words:
        found.add("instr(search_text, ?) > 0", fold(word))
    return found


def _index_of_few(connection: sqlite3.Connection, where: TaskFilter, few: int) -> str | None:
    """Return how the tasks of a condition are found that few tasks meet."""
    if where.ids is not None:
        return "NOT INDEXED"  # by the ids themselves
    if where.job_id is not None:
        return "INDEXED BY tasks_by_job"
    if where.claimed_by is not None:
        return "INDEXED BY tasks_by_worker"
    candidates = []
    if where.project is not None and where.status is not None:
        both = TaskFilter(project=where.project, status=where.status)
        candidates.append((counts.total(connection, both), "tasks_by_project_status"))
    elif where.project is not None:
        only = TaskFilter(project=where.project)
        candidates.append((counts.total(connection, only), "tasks_by_project"))
    elif where.status is not None:
        only = TaskFilter(status=where.status)
        candidates.append((counts.total(connection, only), "tasks_by_status"))
    if where.due_before is not None or where.due_after is not None:
        due = TaskFilter(due_before=where.due_before, due_after=where.due_after)
        candidates.append((counts.total(connection, due), "tasks_by_due_date"))
    if where.updated_after is not None:
        recent = _Conditions(["updated_at > ?"], [where.updated_after])
        index = "tasks_by_updated_at"
        candidates.append((_count(connection, f"INDEXED BY {index}", recent, few + 1), index))
    fewest, index = min(candidates, default=(few + 1, ""))
    return f"INDEXED BY {index}" if fewest <= few else None


# -- orders ---------------------------------------------------------------------------------------


def _sorted_piece(query: TaskQuery) -> _Piece:
    """Return the whole list, as far as it is behind the cursor, to be sorted."""
    where, after = _Conditions(), query.after
    if query.sort == "id":
        if after is not None:
            where.add(f"id {'<' if query.descending else '>'} ?", after.id)
        return _Piece(where, "id DESC" if query.descending else "id")
    key = _KEYS[query.sort]
    if after is not None and after.key is None:
        where.add(f"{key} IS NULL AND id > ?", after.id)
    elif after is not None:
        comparison = "<" if query.descending else ">"
        where.add(
            f"({key} {comparison} ? OR ({key} = ? AND id > ?) OR {key} IS NULL)",
            after.key,
            after.key,
            after.id,
        )
    return _Piece(where, f"{key} IS NULL, {key}{' DESC' if query.descending else ''}, id")


def _along(connection: sqlite3.Connection, query: TaskQuery) -> tuple[str, Iterator[_Piece]]:
    """Return how a list is read in its order, and its pieces."""
    if query.sort == "id":
        return _source_by_id(query.where), iter([_sorted_piece(query)])
    key = _KEYS[query.sort]
    pieces = _descending if query.descending else _ascending
    return _INDEXES[key], pieces(connection, key, query)


def _source_by_id(where: TaskFilter) -> str:
    """Return what has the tasks in the order of their ids, and no more than necessary."""
    if where.project is not None and where.status is not None:
        return "INDEXED BY tasks_by_project_status"
    if where.project is not None:
        return "INDEXED BY tasks_by_project"
    if where.status is not None:
        return "INDEXED BY tasks_by_status"
    return _INDEXES["id"]


def _ascending(connection: sqlite3.Connection, key: str, query: TaskQuery) -> Iterator[_Piece]:
    after = query.after
    if after is None:
        yield _Piece(_Conditions([f"{key} IS NOT NULL"]), f"{key}, id")
    elif after.key is not None:
        yield _Piece(_Conditions([f"{key} = ?", "id > ?"], [after.key, after.id]), "id")
        yield _Piece(_Conditions([f"{key} > ?"], [after.key]), f"{key}, id")
    yield from _without_key(key, query)


def _descending(connection: sqlite3.Connection, key: str, query: TaskQuery) -> Iterator[_Piece]:
    after = query.after
    if after is None:
        next_key = f"SELECT max({key}) FROM tasks {_INDEXES[key]}"
        [value] = connection.execute(next_key).fetchone()
    else:
        value = after.key
        if value is not None:
            yield _Piece(_Conditions([f"{key} = ?", "id > ?"], [value, after.id]), "id")
            value = _key_below(connection, key, value)
    for _ in range(MOST_KEYS):
        if value is None:
            break
        yield _Piece(_Conditions([f"{key} = ?"], [value]), "id")
        value = _key_below(connection, key, value)
    else:
        if value is not None:
            yield _Piece(_Conditions([f"{key} <= ?"], [value]), f"{key} DESC, id")
    yield from _without_key(key, query)


def _key_below(connection: sqlite3.Connection, key: str, value: Any) -> Any:
    [below] = connection.execute(
        f"SELECT max({key}) FROM tasks {_INDEXES[key]} WHERE {key} < ?", (value,)
    ).fetchone()
    return below


def _without_key(key: str, query: TaskQuery) -> Iterator[_Piece]:
    if key != "due_date":
        return
    where = _Conditions([f"{key} IS NULL"])
    if query.after is not None and query.after.key is None:
        where.add("id > ?", query.after.id)
    yield _Piece(where, "id")


# -- reading --------------------------------------------------------------------------------------


def _read(
    connection: sqlite3.Connection,
    source: str,
    conditions: _Conditions,
    pieces: Iterator[_Piece],
    limit: int,
    offset: int,
) -> list[Task]:
    """Return the tasks of the pieces, one behind the other, without the first `offset`."""
    tasks: list[Task] = []
    for piece in pieces:
        where = piece.where + conditions
        rows = connection.execute(
            f"SELECT {COLUMNS} FROM tasks {source}{where.clause()}"
            f" ORDER BY {piece.order} LIMIT ? OFFSET ?",
            (*where.values, limit - len(tasks), offset),
        )
        tasks += map(Task._make, rows)
        if len(tasks) == limit:
            break
        if offset:  # none of the skipped tasks was returned: how many has this piece?
            offset = 0 if tasks else offset - _count(connection, source, where, offset)
    return tasks


def _count(connection: sqlite3.Connection, source: str, conditions: _Conditions, most: int) -> int:
    [count] = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM tasks {source}{conditions.clause()} LIMIT ?)",
        (*conditions.values, most),
    ).fetchone()
    return int(count)


def _known_total(connection: sqlite3.Connection, where: TaskFilter) -> int | None:
    """Return the total if the counts have it."""
    counted = TaskFilter(
        status=where.status,
        project=where.project,
        due_before=where.due_before,
        due_after=where.due_after,
    )
    return counts.total(connection, counted) if where == counted else None
