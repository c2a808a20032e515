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
from typing import Any, Final

from attrs import frozen

from ...queries import EXACT_TOTAL, TaskFilter, TaskPage, TaskQuery
from ...tasks import Task
from ..conditions import KEYS, Conditions, Dialect, behind, conditions, order
from . import counts
from .tables import ids_json
from .tasks import COLUMNS

FEW = 10_000
"""The most tasks that are sorted for a page: that takes about 20 ms."""

_QUICK = 100
"""The tasks that are read in a few hundred microseconds."""

MOST_KEYS = 100
"""The most descending keys that are pieces by themselves: a piece takes 50 us, a task of the last
piece 1 us. But the tasks of a key may be many, and of these the last piece reads all."""

_DIALECT: Final = Dialect(
    parameter="?",
    ids="t.id IN (SELECT value FROM json_each(?))",
    ids_value=ids_json,
    word="instr(t.search_text, ?) > 0",
    order="{key} IS NULL, {key} {direction}",
)
_INDEXES = {
    "id": "NOT INDEXED",  # along the table itself
    "due_date": "INDEXED BY tasks_by_due_date",
    "priority": "INDEXED BY tasks_by_priority",
    "updated_at": "INDEXED BY tasks_by_updated_at",
}


@frozen
class _Piece:
    """A range of an index, or of the table.

    Attributes:
        where: what its tasks meet beside the conditions of the list.
        order: the order in which the index has them.
    """

    where: Conditions
    order: str


def is_quick(query: TaskQuery) -> bool:
    """Return whether a page takes less than a millisecond, however many tasks there are."""
    ids = query.where.ids
    if query.where != TaskFilter(ids=ids) or query.offset + query.limit > _QUICK:
        return False
    return ids is None or len(ids) <= _QUICK


def list_tasks(connection: sqlite3.Connection, query: TaskQuery, few: int = FEW) -> TaskPage:
    """See `TaskServerStore.list_tasks`; `few` is the most tasks that are sorted for a page."""
    where = conditions(query.where, _DIALECT)
    source_of_few = _index_of_few(connection, query.where, few)
    is_known = query.count and query.where.is_counted
    total = counts.total(connection, query.where) if is_known else None
    if total is not None and query.offset >= total:
        return TaskPage([], False, total, False)
    if source_of_few is not None:
        source, pieces = source_of_few, iter([_sorted_piece(query)])
    else:
        source, pieces = _along(connection, query)
    tasks = _read(connection, source, where, pieces, query.limit + 1, query.offset)
    has_more = len(tasks) > query.limit
    del tasks[query.limit :]
    bounded = False
    if query.count and total is None:
        on_last_page = None if has_more else len(tasks)
        total = _count_all(connection, query, where, source_of_few, on_last_page)
        bounded = total > EXACT_TOTAL
        total = min(total, EXACT_TOTAL)
    return TaskPage(tasks, has_more, total, bounded)


def _count_all(
    connection: sqlite3.Connection,
    query: TaskQuery,
    where: Conditions,
    source_of_few: str | None,
    on_last_page: int | None,
) -> int:
    """Return how many tasks a list has, or more than `EXACT_TOTAL`.

    The page was the last one if `on_last_page` is given; with the offset that is the total.
    """
    if on_last_page is not None and query.after is None and (on_last_page or not query.offset):
        return query.offset + on_last_page
    source = source_of_few or _source_by_id(query.where)
    return _count(connection, source, where, EXACT_TOTAL + 1)


# -- few tasks ------------------------------------------------------------------------------------


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
        recent = Conditions().and_("t.updated_at > ?", where.updated_after)
        index = "tasks_by_updated_at"
        candidates.append((_count(connection, f"INDEXED BY {index}", recent, few + 1), index))
    fewest, index = min(candidates, default=(few + 1, ""))
    return f"INDEXED BY {index}" if fewest <= few else None


# -- orders ---------------------------------------------------------------------------------------


def _sorted_piece(query: TaskQuery) -> _Piece:
    """Return the whole list, as far as it is behind the cursor, to be sorted."""
    return _Piece(behind(query, _DIALECT), order(query, _DIALECT))


def _along(connection: sqlite3.Connection, query: TaskQuery) -> tuple[str, Iterator[_Piece]]:
    """Return how a list is read in its order, and its pieces."""
    if query.sort == "id":
        return _source_by_id(query.where), iter([_sorted_piece(query)])
    key = KEYS[query.sort]
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
        yield _Piece(Conditions().and_(f"{key} IS NOT NULL"), f"{key}, id")
    elif after.key is not None:
        yield _Piece(Conditions().and_(f"{key} = ?", after.key).and_("id > ?", after.id), "id")
        yield _Piece(Conditions().and_(f"{key} > ?", after.key), f"{key}, id")
    yield from _without_key(key, query)


def _descending(connection: sqlite3.Connection, key: str, query: TaskQuery) -> Iterator[_Piece]:
    after = query.after
    if after is None:
        next_key = f"SELECT max({key}) FROM tasks {_INDEXES[key]}"
        [value] = connection.execute(next_key).fetchone()
    else:
        value = after.key
        if value is not None:
            yield _Piece(Conditions().and_(f"{key} = ?", value).and_("id > ?", after.id), "id")
            value = _key_below(connection, key, value)
    for _ in range(MOST_KEYS):
        if value is None:
            break
        yield _Piece(Conditions().and_(f"{key} = ?", value), "id")
        value = _key_below(connection, key, value)
    else:
        if value is not None:
            yield _Piece(Conditions().and_(f"{key} <= ?", value), f"{key} DESC, id")
    yield from _without_key(key, query)


def _key_below(connection: sqlite3.Connection, key: str, value: Any) -> Any:
    [below] = connection.execute(
        f"SELECT max({key}) FROM tasks {_INDEXES[key]} WHERE {key} < ?", (value,)
    ).fetchone()
    return below


def _without_key(key: str, query: TaskQuery) -> Iterator[_Piece]:
    if key != "due_date":
        return
    where = Conditions().and_(f"{key} IS NULL")
    if query.after is not None and query.after.key is None:
        where = where.and_("id > ?", query.after.id)
    yield _Piece(where, "id")


# -- reading --------------------------------------------------------------------------------------


def _read(
    connection: sqlite3.Connection,
    source: str,
    of_list: Conditions,
    pieces: Iterator[_Piece],
    limit: int,
    offset: int,
) -> list[Task]:
    """Return the tasks of the pieces, one behind the other, without the first `offset`."""
    tasks: list[Task] = []
    for piece in pieces:
        where = piece.where + of_list
        rows = connection.execute(
            f"SELECT {COLUMNS} FROM tasks AS t {source} {where}"
            f" ORDER BY {piece.order} LIMIT ? OFFSET ?",
            (*where.values, limit - len(tasks), offset),
        )
        tasks += map(Task._make, rows)
        if len(tasks) == limit:
            break
        if offset:  # none of the skipped tasks was returned: how many has this piece?
            offset = 0 if tasks else offset - _count(connection, source, where, offset)
    return tasks


def _count(connection: sqlite3.Connection, source: str, where: Conditions, most: int) -> int:
    [count] = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM tasks AS t {source} {where} LIMIT ?)",
        (*where.values, most),
    ).fetchone()
    return int(count)
