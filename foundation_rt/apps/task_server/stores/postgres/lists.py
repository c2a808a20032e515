"""The SQL of lists of tasks.

A list is read in one of two ways. Where an index has the order that is asked for, and the
conditions exclude little, the index is walked from the cursor on until the page is full. Where few
tasks meet the conditions, up to `EXACT_TOTAL`, they are gathered and sorted. The counts say how
many there are, if the conditions are of status, project and due date only; otherwise gathering up
to that number does. So a page costs about the same however many tasks there are.

The sorted columns have indexes in ascending order, and equal keys are by ascending id in both
directions. An index cannot be walked backwards and keep that. So a descending list is put together
from walks through the tasks of one key each.

The last part keeps the counts right: what a transaction changes in them, and in what principals
store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import orjson
from attrs import define, evolve, field

from .....base.database.postgres import Query
from ...queries import EXACT_TOTAL, TaskFilter, TaskQuery
from ...store import TaskQuota, TaskUsage
from ...tasks import STATUSES
from ..conditions import KEYS, Conditions, Dialect, behind, conditions, order
from .statements import TASK_COLUMNS

DIALECT: Final = Dialect(
    parameter="%b",
    ids="t.id = ANY(%b::bigint[])",
    ids_value=list,
    word="position(%b IN t.search_text) > 0",
    # An index must say NULLS LAST where it is said here.
    order="{key} {direction} NULLS LAST",
    casts={
        "id": "::bigint",
        "job_id": "::uuid",
        "due_date": "::date",
        "priority": "::smallint",
        "updated_at": "::timestamptz",
    },
)

MOST_KEYS: Final = 100
"""The most descending keys that are walked one by one: each takes 40 us, a task of the rest 1 us.
But the tasks of a key may be many, and in the rest all of them are read and sorted."""


# -- how many -----------------------------------------------------------------------------------


def count(where: TaskFilter) -> Query:
    """Return how many tasks meet the conditions of a filter that is counted."""
    counted = Conditions().and_("project = %b", where.project or ALL_PROJECTS)
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
    """Return rows of the total and of a task of the page or the one behind; at least one row.

    A total of more than `EXACT_TOTAL` means only that there are more, and then the page is wrong.
    """
    where = conditions(query.where, DIALECT)
    column = KEYS[query.sort]
    key = "" if query.sort == "id" else f", t.{column}"
    after, in_order = behind(query, DIALECT), order(query, DIALECT)
    return (
        f"""WITH found AS MATERIALIZED (
            SELECT t.id{key} FROM {{schema}}.tasks AS t {where} LIMIT {EXACT_TOTAL + 1}
        ), page AS MATERIALIZED (
            SELECT t.id FROM found AS t {after}
            ORDER BY {in_order} LIMIT %b OFFSET %b
        )
        SELECT counted.total, {TASK_COLUMNS}
        FROM (SELECT count(*) AS total FROM found) AS counted
        LEFT JOIN (page JOIN {{schema}}.tasks AS t USING (id)) ON true
        ORDER BY {in_order}""",
        (*where.values, *after.values, query.limit + 1, query.offset),
    )


# -- many tasks: a walk along an index ----------------------------------------------------------


def has_index(query: TaskQuery) -> bool:
    """Return whether `walk` passes over no task, as its indexes hold all conditions."""
    if query.sort == "id":
        return evolve(query.where, status=None, project=None) == TaskFilter()
    return query.where == TaskFilter()


def walk(query: TaskQuery) -> Query:
    """Return rows of the total and of a task of the page or the one behind; at least one row.

    The total is that of the counts, NULL if they do not say it or nobody asks.
    """
    is_counting = query.count and query.where.is_counted
    total, values = count(query.where) if is_counting else ("SELECT NULL::bigint", ())
    parameters, in_order = [*values], order(query, DIALECT)
    most = query.offset + query.limit + 1
    parts = []
    for sql, values in _walks(query, most):
        parts.append(f"({sql} LIMIT %b)")
        parameters += (*values, most)
    return (
        f"""SELECT counted.total, {TASK_COLUMNS}
        FROM ({total}) AS counted (total) LEFT JOIN (
            SELECT t.* FROM ({" UNION ALL ".join(parts)}) AS t
            ORDER BY {in_order} LIMIT %b OFFSET %b
        ) AS t ON true
        ORDER BY {in_order}""",
        (*parameters, query.limit + 1, query.offset),
    )


def _walks(query: TaskQuery, most: int) -> list[Query]:
    """Return one or more walks, the first tasks of each of which make the page."""
    where, after = conditions(query.where, DIALECT), query.after
    if query.sort == "id":
        where, by_id = where + behind(query, DIALECT), order(query, DIALECT)
        if query.where.project is None or query.where.status is not None:
            return [_walk(where, by_id)]
        each = (where.and_("t.status = %b", status) for status in STATUSES)
        return [_walk(one, by_id) for one in each]
    column = KEYS[query.sort]
    place = DIALECT.place(column)
    # Within a key, the index of a status for instance has the order of the ids too: it would be
    # searched for every key, and has all tasks of the status.
    where = _indexed_by(where, column)
    by_key = f"t.{column}, t.id"
    without = [where.and_(f"t.{column} IS NULL")] if query.sort == "dueDate" else []
    if after is not None and after.key is None:
        return [_walk(one.and_("t.id > %b::bigint", after.id), by_key) for one in without]
    walks = []
    if query.descending:
        if after is not None:
            same_key = f"t.{column} = {place} AND t.id > %b::bigint"
            walks.append(_walk(where.and_(same_key, after.key, after.id), by_key))
        walks.append(_walk_through_keys(query, where, most))
    elif after is None:
        return [_walk(where, by_key)]  # with those without a key, which its index has last
    else:
        later = f"({by_key}) > ({place}, %b::bigint)"
        walks.append(_walk(where.and_(later, after.key, after.id), by_key))
    return [*walks, *(_walk(one, by_key) for one in without)]


def _walk_through_keys(query: TaskQuery, where: Conditions, most: int) -> Query:
    """Return a walk from one key to the one before it, and by id through the tasks of each.

    PostgreSQL goes on to the next key only while the limit is not reached. If many keys do not
    reach it, the rest of the index is walked, and the tasks of each key are sorted.
    """
    column = KEYS[query.sort]
    before = Conditions()
    if query.after is not None:
        before = before.and_(f"{column} < {DIALECT.place(column)}", query.after.key)
    of_key = where.and_(f"t.{column} = key")
    rest = where.and_(f"t.{column} < (SELECT min(key) FROM keys)")
    return (
        f"""WITH RECURSIVE keys (key, number) AS (
            SELECT max({column}), 1 FROM {{schema}}.tasks {before}
            UNION ALL
            SELECT (SELECT max({column}) FROM {{schema}}.tasks WHERE {column} < key), number + 1
            FROM keys WHERE key IS NOT NULL AND number < {MOST_KEYS}
        )
        SELECT t.* FROM keys CROSS JOIN LATERAL (
            SELECT t.* FROM {{schema}}.tasks AS t {of_key} ORDER BY t.{column}, t.id LIMIT %b
        ) AS t
        UNION ALL
        (SELECT t.* FROM {{schema}}.tasks AS t {rest} ORDER BY t.{column} DESC, t.id)""",
        (*before.values, *of_key.values, most, *rest.values),
    )


def _walk(where: Conditions, order: str) -> Query:
    return (f"SELECT t.* FROM {{schema}}.tasks AS t {where} ORDER BY {order}", where.values)


def _indexed_by(where: Conditions, column: str) -> Conditions:
    """Return conditions that mean the same; only those of one column have an index searched."""
    of_column = f"t.{column} "
    sql = (one if one.startswith(of_column) else f"({one}) IS TRUE" for one in where.sql)
    return Conditions(tuple(sql), where.values)


ALL_PROJECTS = ""
"""The name under which the tasks of all projects are counted; no project is called so."""
NO_DUE_DATE = "infinity"

_ADD = """
INSERT INTO {schema}.task_counts AS counts (project, status, due_date, count)
SELECT project, status, due_date, count
FROM json_to_recordset(%b::json) AS added (project text, status text, due_date date, count bigint)
ORDER BY project COLLATE "C", status COLLATE "C", due_date
ON CONFLICT (project, status, due_date) DO UPDATE SET count = counts.count + excluded.count
"""


_ADD_USAGE = """
INSERT INTO {schema}.usage AS stored (principal, tasks, bytes)
SELECT principal, tasks, bytes
FROM json_to_recordset(%b::json) AS added (principal text, tasks bigint, bytes bigint)
ORDER BY principal COLLATE "C"
ON CONFLICT (principal) DO UPDATE
    SET tasks = stored.tasks + excluded.tasks, bytes = stored.bytes + excluded.bytes
RETURNING CASE WHEN principal <> ALL(%b::text[]) OR (tasks <= %b AND bytes <= %b)
    THEN 0 ELSE 2147483647 END + 1
"""


def add_usage(changes: Mapping[str, TaskUsage], quota: TaskQuota) -> tuple[Query, ...]:
    """Return the statement that changes what principals store; none if nothing changes.

    It fails with an integer out of range if a principal that needs more has more than `quota` then.
    """
    rows = [{"principal": name, **change._asdict()} for name, change in changes.items()]
    rows = [row for row in rows if row["tasks"] or row["bytes"]]
    growing = [name for name, change in changes.items() if max(change) > 0]
    values = (orjson.dumps(rows).decode(), growing, quota.tasks, quota.bytes)
    return ((_ADD_USAGE, values),) if rows else ()


@define(eq=False)
class CountChanges:
    """Adds up differences, and writes them in the order of the keys.

    Attributes:
        quota: the most that a principal may store.
        usage: the changes of what principals store.
    """

    quota: TaskQuota = field(factory=TaskQuota)
    usage: dict[str, TaskUsage] = field(factory=dict, init=False)
    _changes: Counter[tuple[str, str, str | None]] = field(factory=Counter, init=False)

    def add(self, tasks: Iterable[tuple[str, str, str | None]], by: int = 1) -> None:
        """Count so many more of each: project, status, due date."""
        for key in tasks:
            self._changes[key] += by

    def store(self, principal: str, tasks: int, size: int) -> None:
        """Count so many more tasks and bytes of a principal."""
        before = self.usage.get(principal, TaskUsage())
        self.usage[principal] = TaskUsage(before.tasks + tasks, before.bytes + size)

    def queries(self) -> tuple[Query, ...]:
        """Return the last statements of a transaction; none if nothing changes."""
        total: Counter[tuple[str, str, str | None]] = Counter()
        for (project, status, due_date), count in self._changes.items():
            total[project, status, due_date] += count
            total[ALL_PROJECTS, status, due_date] += count
        rows = [
            {"project": p, "status": s, "due_date": d or NO_DUE_DATE, "count": count}
            for (p, s, d), count in total.items()
            if count
        ]
        add = ((_ADD, (orjson.dumps(rows).decode(),)),) if rows else ()
        return (*add, *add_usage(self.usage, self.quota))
