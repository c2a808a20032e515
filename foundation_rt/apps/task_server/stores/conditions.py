"""The conditions and the orders of lists, in the SQL of either database (TASKS-74, TASKS-75).

The table of tasks is called `t`. What the databases write differently is their `Dialect`. The plans
have no more in common: SQLite is asked piece by piece, along the index that each statement names;
PostgreSQL in one statement, in which a recursive query walks descending keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import field, frozen

from ..queries import TaskFilter, TaskQuery, fold
from ..tasks import SortKey

KEYS: Final[Mapping[SortKey, str]] = {
    "id": "id",
    "dueDate": "due_date",
    "priority": "priority",
    "updatedAt": "updated_at",
}
"""The column of a sort."""


@frozen
class Conditions:
    """Conditions joined by AND, with their parameters."""

    sql: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()

    def and_(self, sql: str, *values: Any) -> Conditions:
        """Return these conditions and one more."""
        return Conditions((*self.sql, sql), (*self.values, *values))

    def __add__(self, other: Conditions) -> Conditions:
        return Conditions(self.sql + other.sql, self.values + other.values)

    def __str__(self) -> str:
        """Return the clause, empty without a condition."""
        return "WHERE " + " AND ".join(self.sql) if self.sql else ""


@frozen
class Dialect:
    """The SQL of one database.

    Attributes:
        parameter: a place for a value.
        ids: the condition that an id is one of several.
        ids_value: returns the value of its parameter.
        word: the condition that a word is in the text of a task.
        order: of a key that may be missing; such tasks come last.
        casts: what follows the parameter of a column, by the column.
    """

    parameter: str
    ids: str
    ids_value: Callable[[tuple[int, ...]], Any]
    word: str
    order: str
    casts: Mapping[str, str] = field(factory=dict)

    def place(self, column: str) -> str:
        """Return the place for a value of a column."""
        return self.parameter + self.casts.get(column, "")


def conditions(where: TaskFilter, dialect: Dialect) -> Conditions:
    """Return the conditions of a filter."""
    found = Conditions()
    for column, sign, value in (
        ("status", "=", where.status),
        ("project", "=", where.project),
        ("job_id", "=", where.job_id),
        ("claimed_by", "=", where.claimed_by),
        ("due_date", "<", where.due_before),
        ("due_date", ">", where.due_after),
        ("updated_at", ">", where.updated_after),
    ):
        if value is not None:
            found = found.and_(f"t.{column} {sign} {dialect.place(column)}", value)
    if where.ids is not None:
        found = found.and_(dialect.ids, dialect.ids_value(where.ids))
    for word in where.words:
        found = found.and_(dialect.word, fold(word))
    return found


def behind(query: TaskQuery, dialect: Dialect) -> Conditions:
    """Return the condition of tasks behind the cursor of a list; none without a cursor."""
    after, key = query.after, KEYS[query.sort]
    if after is None:
        return Conditions()
    sign, place = "<" if query.descending else ">", dialect.place(key)
    if query.sort == "id":
        return Conditions().and_(f"t.id {sign} {place}", after.id)
    later_id = f"t.id > {dialect.place('id')}"
    if after.key is None:
        return Conditions().and_(f"t.{key} IS NULL AND {later_id}", after.id)
    later = f"t.{key} {sign} {place} OR t.{key} IS NULL OR (t.{key} = {place} AND {later_id})"
    return Conditions().and_(f"({later})", after.key, after.key, after.id)


def order(query: TaskQuery, dialect: Dialect) -> str:
    """Return the order of a list: by its key, then by ascending id."""
    direction = "DESC" if query.descending else "ASC"
    if query.sort == "id":
        return f"t.id {direction}"
    # Only due dates may be missing.
    form = dialect.order if query.sort == "dueDate" else "{key} {direction}"
    return f"{form.format(key=f't.{KEYS[query.sort]}', direction=direction)}, t.id"
