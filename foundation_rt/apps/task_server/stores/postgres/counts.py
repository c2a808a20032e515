"""The differences that a transaction makes to the counts of tasks, and to what principals store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import orjson
from attrs import define, field

from .....base.database.postgres import Query
from ...store import TaskQuota, TaskUsage

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
