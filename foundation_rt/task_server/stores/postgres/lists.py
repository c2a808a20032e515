"""The SQL of lists of tasks.

A list is read in one of two ways. Where an index has the order that is asked for, and the
conditions exclude little, the index is walked from the cursor on until the page is full. Where few
tasks meet the conditions, up to `EXACT_TOTAL`, they are gathered and sorted. The counts say how
many there are, if the conditions are of status, project and due date only; otherwise gathering up
to that number does. So a page costs about the same however many tasks there are.

The sorted columns have indexes in ascending order, and equal keys are by ascending id in both
directions. An index cannot be walked backwards and keep that. So a descending list is put together
from walks through the tasks of one key each.
"""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

from ....database.postgres import Query
from ...queries import EXACT_TOTAL, After, SortKey, TaskFilter, TaskQuery
from ...tasks import PRIORITIES, STATUSES
from .counts import ALL_PROJECTS
from .statements import TASK_COLUMNS

_SORTED: Final[dict[SortKey, tuple[str, str]]] = {
    "id": ("id", "bigint"),
    "dueDate": ("due_date", "date"),
    "priority": ("priority", "smallint"),
    "updatedAt": ("updated_at", "timestamptz"),
}
"""The column of a sort, and its type."""


@frozen
class _Where:
    """Conditions joined by AND, with their parameters."""

    sql: tuple[str, ...] = ()
    values: tuple[object, ...] = ()

    def and_(self, sql: str, *values: object) -> _Where:
        """Return these conditions and one more."""
        return _Where((*self.sql, sql), (*self.values, *values))

    def __str__(self) -> str:
        """Return the clause, empty without a condition."""
        return "WHERE " + " AND ".join(self.sql) if self.sql else ""


# -- how many -----------------------------------------------------------------------------------


def is_counted(where: TaskFilter) -> bool:
    """Return whether the counts say how many tasks meet the conditions."""
    counted = TaskFilter(
        status=where.status,
        project=where.project,
        due_before=where.due_before,
        due_after=where.due_after,
    )
    return where == counted


def count(where: TaskFilter) -> Query:
    """Return how many tasks meet the conditions of a filter that `is_counted`."""
    counted = _Where().and_("project = %b", where.project or ALL_PROJECTS)
    if where.status is not None:
        counted = counted.and_("status = %b", where.status)
    if where.due_before is not None:
        counted = counted.and_("due_date < %b::date", where.due_before)
    if where.due_after is not None:
        counted = counted.and_("due_date > %b::date AND due_date < 'infinity'", where.due_after)
    return (
        f"SELECT coalesce(sum(count), 0)::bigint FROM {{schema}}.task_counts {counted}",
        counted.values,
    )


# -- few tasks: gathered and sorted -------------------------------------------------------------


def gather(query: TaskQuery) -> Query:
    """Return rows of the number of tasks that meet the conditions and of one task of the page.

    Without a task in the page there is one row. A number of more than `EXACT_TOTAL` means only
    that there are more, and then the page is not the page.
    """
    where = _conditions(query.where)
    column, _ = _SORTED[query.sort]
    key = "" if query.sort == "id" else f", t.{column}"
    after = _Where() if query.after is None else _behind(query, query.after)
    return (
        f"""WITH found AS MATERIALIZED (
            SELECT t.id{key} FROM {{schema}}.tasks AS t {where} LIMIT {EXACT_TOTAL + 1}
        ), page AS MATERIALIZED (
            SELECT t.id FROM found AS t {after}
            ORDER BY {_order(query)} LIMIT {query.limit + 1} OFFSET {query.offset}
        )
        SELECT counted.total, {TASK_COLUMNS}
        FROM (SELECT count(*) AS total FROM found) AS counted
        LEFT JOIN (page JOIN {{schema}}.tasks AS t USING (id)) ON true
        ORDER BY {_order(query)}""",
        (*where.values, *after.values),
    )


def _conditions(where: TaskFilter) -> _Where:
    """Return the conditions of a filter, on the table `t`."""
    result = _Where()
    for sql, value in (
        ("t.status = %b", where.status),
        ("t.project = %b", where.project),
        ("t.job_id = %b::uuid", where.job_id),
        ("t.id = ANY(%b::bigint[])", None if where.ids is None else list(where.ids)),
        ("t.claimed_by = %b", where.claimed_by),
        ("t.due_date < %b::date", where.due_before),
        ("t.due_date > %b::date", where.due_after),
        ("t.updated_at > %b::timestamptz", where.updated_after),
        *(("position(%b IN t.search_text) > 0", word.casefold()) for word in where.words),
    ):
        if value is not None:
            result = result.and_(sql, value)
    return result


def _order(query: TaskQuery) -> str:
    column, _ = _SORTED[query.sort]
    direction = "DESC" if query.descending else "ASC"
    if query.sort == "id":
        return f"t.id {direction}"
    # Only due dates may be missing; where NULLS LAST is said, an index must say it too.
    nulls = " NULLS LAST" if query.sort == "dueDate" else ""
    return f"t.{column} {direction}{nulls}, t.id"


def _behind(query: TaskQuery, after: After) -> _Where:
    """Return the condition of tasks behind a place, for any order."""
    column, type_ = _SORTED[query.sort]
    sign = "<" if query.descending else ">"
    if query.sort == "id":
        return _Where((f"t.id {sign} %b::bigint",), (after.id,))
    if after.key is None:
        return _Where((f"t.{column} IS NULL AND t.id > %b::bigint",), (after.id,))
    return _Where(
        (
            f"(t.{column} {sign} %b::{type_} OR t.{column} IS NULL"
            f" OR (t.{column} = %b::{type_} AND t.id > %b::bigint))",
        ),
        (after.key, after.key, after.id),
    )


# -- many tasks: a walk along an index ----------------------------------------------------------


def has_index(query: TaskQuery) -> bool:
    """Return whether `walk` passes over no task, as its indexes hold all conditions."""
    if query.sort == "id":
        return evolve(query.where, status=None, project=None) == TaskFilter()
    return query.where == TaskFilter()


def walk(query: TaskQuery) -> Query:
    """Return the tasks of a page and one more."""
    most = query.offset + query.limit + 1
    values: list[object] = []
    parts = []
    for sql, parameters in _walks(query, most):
        parts.append(f"({sql} LIMIT {most})")
        values += parameters
    return (
        f"""SELECT {TASK_COLUMNS} FROM ({" UNION ALL ".join(parts)}) AS t
        ORDER BY {_order(query)} LIMIT {query.limit + 1} OFFSET {query.offset}""",
        values,
    )


def _walks(query: TaskQuery, most: int) -> list[Query]:
    """Return one or more walks, the first tasks of each of which make the page."""
    where = _conditions(query.where)
    after = query.after
    if query.sort == "id":
        if after is not None:
            where = where.and_(*_flat(_behind(query, after)))
        if query.where.project is None or query.where.status is not None:
            return [_walk(where, _order(query))]
        each = (where.and_("t.status = %b", status) for status in STATUSES)
        return [_walk(one, _order(query)) for one in each]
    if query.sort == "dueDate":
        return _walks_by_due_date(query, where, most)
    column, type_ = _SORTED[query.sort]
    if not query.descending:
        if after is not None:
            behind = f"(t.{column}, t.id) > (%b::{type_}, %b::bigint)"
            where = where.and_(behind, after.key, after.id)
        return [_walk(where, _order(query))]
    if query.sort == "priority":
        return _walks_by_priority(where, after)
    # The tasks of one time were changed by one transaction, so they are few enough to be sorted.
    if after is not None:
        where = where.and_("t.updated_at <= %b::timestamptz", after.key)
        where = where.and_(*_flat(_behind(query, after)))
    return [_walk(where, _order(query))]


def _walks_by_priority(where: _Where, after: After | None) -> list[Query]:
    first = len(PRIORITIES) - 1 if after is None else int(str(after.key))
    walks = []
    for priority in range(first, -1, -1):
        one = where.and_("t.priority = %b::smallint", priority)
        if after is not None and priority == first:
            one = one.and_("t.id > %b::bigint", after.id)
        walks.append(_walk(one, "t.priority, t.id"))
    return walks


def _walks_by_due_date(query: TaskQuery, where: _Where, most: int) -> list[Query]:
    after = query.after
    order = "t.due_date, t.id"
    without = where.and_("t.due_date IS NULL")
    if after is not None and after.key is None:
        return [_walk(without.and_("t.id > %b::bigint", after.id), order)]
    if after is None:
        if query.descending:
            return [_walk_through_days(where, after, most), _walk(without, order)]
        return [_walk(where, order)]
    if query.descending:
        same = where.and_("t.due_date = %b::date AND t.id > %b::bigint", after.key, after.id)
        days = _walk_through_days(where, after, most)
        return [_walk(same, order), days, _walk(without, order)]
    behind = "(t.due_date, t.id) > (%b::date, %b::bigint)"
    return [_walk(where.and_(behind, after.key, after.id), order), _walk(without, order)]


def _walk_through_days(where: _Where, after: After | None, most: int) -> Query:
    """Return a walk from one due date to the one before it, and by id through the tasks of each.

    PostgreSQL goes on to the next date only while the limit is not reached.
    """
    before = _Where() if after is None else _Where(("due_date < %b::date",), (after.key,))
    where = where.and_("t.due_date = day")
    return (
        f"""WITH RECURSIVE days (day) AS (
            SELECT max(due_date) FROM {{schema}}.tasks {before}
            UNION ALL
            SELECT (SELECT max(due_date) FROM {{schema}}.tasks WHERE due_date < day)
            FROM days WHERE day IS NOT NULL
        )
        SELECT t.* FROM days CROSS JOIN LATERAL (
            SELECT t.* FROM {{schema}}.tasks AS t {where} ORDER BY t.due_date, t.id LIMIT {most}
        ) AS t""",
        (*before.values, *where.values),
    )


def _walk(where: _Where, order: str) -> Query:
    return (f"SELECT t.* FROM {{schema}}.tasks AS t {where} ORDER BY {order}", where.values)


def _flat(where: _Where) -> tuple[str, *tuple[object, ...]]:
    return (" AND ".join(where.sql), *where.values)
