"""The differences that a transaction makes to the counts of tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import orjson
from attrs import define, field

from ....database.postgres import Query

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


@define(eq=False)
class CountChanges:
    """Adds up differences, and writes them in the order of the key."""

    _changes: Counter[tuple[str, str, str | None]] = field(factory=Counter, init=False)

    def add(self, tasks: Iterable[tuple[str, str, str | None]], by: int = 1) -> None:
        """Count so many more of each: project, status, due date."""
        for key in tasks:
            self._changes[key] += by

    def queries(self) -> tuple[Query, ...]:
        """Return the last statement of a transaction; none if nothing changes."""
        total: Counter[tuple[str, str, str | None]] = Counter()
        for (project, status, due_date), count in self._changes.items():
            total[project, status, due_date] += count
            total[ALL_PROJECTS, status, due_date] += count
        rows = [
            {"project": p, "status": s, "due_date": d or NO_DUE_DATE, "count": count}
            for (p, s, d), count in total.items()
            if count
        ]
        return ((_ADD, (orjson.dumps(rows).decode(),)),) if rows else ()
