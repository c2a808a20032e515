"""`mcp-tasks-list` and `mcp-tasks-summary`: what is stored.

The classes of queries are imported by the first call: a start does not need them.

A cursor holds the sort key and the id of the last task shown, so the next page costs what the first
one does, and nothing is shown twice or left out however the list changes. It is tied to the filter
and the sort of its list by a fingerprint. Every member is checked when it comes back: it is not
signed, since all that a forged one can choose is a place in a list that its author may read.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import date as day
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast, get_args

import orjson
from attrs import astuple

from ..tasks import PRIORITIES, STATUSES, SortKey, Task
from ..validation import (
    BOOLEAN,
    INTEGER,
    MAX_PROJECT,
    MAX_WORKER,
    STORED_TASK,
    STRING,
    TASK_ID,
    array,
    choice,
    closed_object,
    date,
    integer,
    nullable,
    refuse,
    text,
    uuid,
)

if TYPE_CHECKING:
    from ....features.context import ToolContext
    from ..queries import After, Summary, TaskFilter, TaskPage, TaskQuery
    from ..services import Services


_MAX_PAGE = 100_000
_MAX_SKIPPED = 100_000
"""The most tasks before a page that is chosen by its number: each of them is passed over, which
takes 0.1 to 0.8 us. A page by cursor costs the same wherever it begins."""
_MAX_PAGE_SIZE = 1_000
_PAGE_SIZE = 100
_MAX_QUERY = 200

_OVERHEAD = 1_024
"""The bytes of an answer besides its tasks, the longest cursor included."""

_SORTS = [sort for key in get_args(SortKey) for sort in (key, f"-{key}")]


def add_list_tools(services: Services) -> None:
    """Add the tools that read tasks."""

    @services.tool(
        "mcp-tasks-list",
        "List tasks",
        {
            "page": integer(
                "The number of the page, from 0; it begins within the first 100,000 tasks.",
                *(0, _MAX_PAGE),
                default=0,
            ),
            "pageSize": integer("Most tasks of a page.", 1, _MAX_PAGE_SIZE, default=_PAGE_SIZE),
            "cursor": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_LENGTH,
                "description": "The nextCursor of the page before, instead of a page number.",
            },
            **_conditions(),
            "sort": choice(
                _SORTS, "The order; - reverses. Tasks without the key are last.", default="id"
            ),
            "fields": array(
                {"enum": [*STORED_TASK]},
                "The members of a task that the answer has; all by default.",
                maxItems=len(STORED_TASK),
            ),
        },
        closed_object(
            {
                "tasks": array(closed_object(STORED_TASK, [])),
                "total": INTEGER,
                "totalIsLowerBound": BOOLEAN,
                "page": nullable("integer"),
                "pageSize": INTEGER,
                "totalPages": INTEGER,
                "nextCursor": nullable("string"),
                "truncated": BOOLEAN,
            },
            ["tasks", "total", "page", "pageSize", "totalPages", "nextCursor", "truncated"],
        ),
        {"status": "TODO", "project": "website", "sort": "dueDate", "pageSize": 20},
    )
    async def list_tasks(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """List stored tasks that meet all conditions given, page by page.

        Continue with nextCursor as `cursor`, and with the same conditions and sort; that is faster
        than page numbers and shows no task twice. An answer that would be too long ends early, with
        truncated: true; continue with nextCursor, or choose `fields`.
        """
        query = _read_query(arguments)
        page = await services.store.list_tasks(query)
        return _page_to_wire(page, query, arguments, services.settings.max_answer_bytes)

    @services.tool(
        "mcp-tasks-summary",
        "Summarize tasks",
        {"project": text("Only tasks of this project.", MAX_PROJECT)},
        closed_object(
            {
                "totalCount": INTEGER,
                "countByStatus": closed_object(dict.fromkeys(STATUSES, INTEGER)),
                "earliestDueDate": nullable("string"),
                "latestDueDate": nullable("string"),
                "overdueCount": INTEGER,
                "jobsPending": INTEGER,
                "jobsRunning": INTEGER,
                "generatedAt": STRING,
            }
        ),
        {"project": "website"},
    )
    async def summarize(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """Count the tasks by status, of one project or of all.

        Tasks that are not DONE and were due before today (UTC) are overdue. Jobs belong to no
        project.
        """
        return summary_to_wire(await services.store.summarize(arguments.get("project")))


def _conditions() -> dict[str, Any]:
    return {
        "status": choice(STATUSES, "Only tasks in this state."),
        "project": text("Only tasks of this project.", MAX_PROJECT),
        "jobId": uuid("Only tasks that this job has stored."),
        "ids": array(TASK_ID, "Only these tasks.", maxItems=_MAX_PAGE_SIZE),
        "claimedBy": text("Only tasks that this worker has claimed.", MAX_WORKER),
        "query": text(
            "Only tasks with each of these words in title or description, in any case.", _MAX_QUERY
        ),
        "dueBefore": date("Only tasks that are due before this date."),
        "dueAfter": date("Only tasks that are due after this date."),
        "updatedAfter": {
            "type": "string",
            "format": "date-time",
            "description": "Only tasks that were changed after this time (RFC 3339).",
        },
    }


def _read_query(arguments: Mapping[str, Any]) -> TaskQuery:
    """Return the query of a call.

    Raises:
        ToolError: INVALID_ARGUMENT: page and cursor, no cursor of this list, a page too deep, or no
            such time.
    """
    from ..queries import TaskQuery

    where = _read_filter(arguments)
    given = arguments.get("sort", "id")
    sort, descending = cast("SortKey", given.removeprefix("-")), given.startswith("-")
    size = int(arguments.get("pageSize", _PAGE_SIZE))
    cursor = arguments.get("cursor")
    if cursor is None:
        skipped = int(arguments.get("page", 0)) * size
        if skipped > _MAX_SKIPPED:
            problem = f"must begin within the first {_MAX_SKIPPED:,} tasks; go on by `cursor`"
            raise refuse("/page", problem, "page_too_deep")
        return TaskQuery(where, sort, descending, size, skipped)
    if "page" in arguments:
        raise refuse("/cursor", "must not stand beside `page`", "page_with_cursor")
    try:
        after = decode_cursor(cursor, where, sort, descending)
    except CursorError:
        problem = "is not a nextCursor of a list with these conditions and this sort"
        raise refuse("/cursor", problem, "invalid_cursor") from None
    return TaskQuery(where, sort, descending, size, after=after)


def _read_filter(arguments: Mapping[str, Any]) -> TaskFilter:
    from ..queries import TaskFilter, fold

    job_id, ids = arguments.get("jobId"), arguments.get("ids")
    return TaskFilter(
        status=arguments.get("status"),
        project=arguments.get("project"),
        job_id=None if job_id is None else job_id.lower(),
        ids=None if ids is None else tuple(sorted({int(each) for each in ids})),
        claimed_by=arguments.get("claimedBy"),
        words=tuple(sorted(set(fold(arguments.get("query", "")).split()))),
        due_before=arguments.get("dueBefore"),
        due_after=arguments.get("dueAfter"),
        updated_after=_read_time(arguments.get("updatedAfter")),
    )


def _read_time(text: str | None) -> str | None:
    """Return a time as `Task.updated_at` has it: in UTC, cut to milliseconds."""
    if text is None:
        return None
    from datetime import UTC

    try:
        time = datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):  # a leap second, or a year that no calendar here has
        raise refuse("/updatedAfter", "must be a time from the year 1 on", "no_time") from None
    return time.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _page_to_wire(
    page: TaskPage, query: TaskQuery, arguments: Mapping[str, Any], max_bytes: int
) -> dict[str, Any]:
    shown, truncated = fit(page.tasks, arguments.get("fields"), max_bytes - _OVERHEAD)
    total = page.total or 0
    cursor = None
    if shown and (truncated or page.has_more):
        last = page.tasks[len(shown) - 1]
        cursor = encode_cursor(last, query.where, query.sort, query.descending)
    answer = {
        "tasks": shown,
        "total": total,
        "page": None if query.after is not None else int(arguments.get("page", 0)),
        "pageSize": query.limit,
        "totalPages": -(-total // query.limit),
        "nextCursor": cursor,
        "truncated": truncated,
    }
    if page.total_is_lower_bound:
        from ..queries import EXACT_TOTAL

        answer |= {"total": EXACT_TOTAL, "totalIsLowerBound": True}
    return answer


def fit(
    tasks: Sequence[Task], fields: Sequence[str] | None, max_bytes: int
) -> tuple[list[dict[str, Any]], bool]:
    """Return the first tasks that fit, at least one, and whether some do not (TASKS-29).

    Args:
        tasks: in the order of the answer.
        fields: the members of a task that the answer has; None for all.
        max_bytes: of the tasks, as JSON in UTF-8.
    """
    shown: list[dict[str, Any]] = []
    for task in tasks:
        wire = task.to_wire()
        if fields is not None:
            wire = {name: wire[name] for name in fields}
        max_bytes -= len(orjson.dumps(wire)) + 1
        if max_bytes < 0 and shown:
            return shown, True
        shown.append(wire)
    return shown, False


def summary_to_wire(summary: Summary) -> dict[str, Any]:
    """Return a summary as `mcp-tasks-summary` shows it."""
    counts = {status: summary.count_by_status.get(status, 0) for status in STATUSES}
    return {
        "totalCount": sum(counts.values()),
        "countByStatus": counts,
        "earliestDueDate": summary.earliest_due_date,
        "latestDueDate": summary.latest_due_date,
        "overdueCount": summary.overdue,
        "jobsPending": summary.jobs_pending,
        "jobsRunning": summary.jobs_running,
        "generatedAt": summary.generated_at,
    }


MAX_LENGTH = 512
_FORMAT = 1
_MAX_ID = 2**63 - 1


class CursorError(Exception):
    """The text is no cursor, or that of another list."""


def encode_cursor(task: Task, where: TaskFilter, sort: SortKey, descending: bool) -> str:
    """Return the cursor of the page that begins behind `task`."""
    key = None if sort == "id" else getattr(task, _KEYS[sort][0])
    members = [_FORMAT, _fingerprint(where, sort, descending), key, task.id]
    return urlsafe_b64encode(orjson.dumps(members)).decode().rstrip("=")


def decode_cursor(text: str, where: TaskFilter, sort: SortKey, descending: bool) -> After:
    """Return the place that a cursor stands for.

    Raises:
        CursorError: see its class.
    """
    try:
        members = orjson.loads(urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
        version, fingerprint, key, number = members
    except (ValueError, TypeError):
        raise CursorError from None
    if version != _FORMAT or fingerprint != _fingerprint(where, sort, descending):
        raise CursorError
    if type(number) is not int or not 0 < number <= _MAX_ID or not _KEYS[sort][1](key):
        raise CursorError
    from ..queries import After

    return After(key, number)


def _is_date(text: object) -> bool:
    try:
        return isinstance(text, str) and day.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _is_time(text: object) -> bool:
    try:
        return isinstance(text, str) and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


_KEYS: Mapping[SortKey, tuple[str, Callable[[object], bool]]] = {
    "id": ("", lambda key: key is None),
    "dueDate": ("due_date", lambda key: key is None or _is_date(key)),
    "priority": ("priority", lambda key: type(key) is int and 0 <= key < len(PRIORITIES)),
    "updatedAt": ("updated_at", _is_time),
}
"""The attribute of a task that a sort goes by, but for its id, and the check of such a key."""


def _fingerprint(where: TaskFilter, sort: SortKey, descending: bool) -> str:
    from hashlib import blake2b

    described: list[Any] = [*astuple(where, recurse=False), sort, descending]
    return blake2b(orjson.dumps(described), digest_size=9).hexdigest()
