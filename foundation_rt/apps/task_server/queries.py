"""The queries of lists of tasks, and their results."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve, frozen

from .tasks import SortKey, Task, TaskStatus

EXACT_TOTAL = 10_000
"""A total that has to be counted is exact up to here; beyond, it is a lower bound."""


@frozen
class TaskFilter:
    """The conditions of a list, all of which a task has to meet; None is no condition.

    Attributes:
        status: its status.
        project: its project.
        job_id: the job that has stored it.
        ids: its id is one of these.
        claimed_by: the worker that holds it; an expired claim counts as long as it is stored.
        words: each is in the title or in the description. Both sides are compared in the form that
            `casefold_text` makes, so that both stores find the same.
        due_before: its due date is before this date; a task without one does not match.
        due_after: its due date is after this date.
        updated_after: its last change is after this time, in the form of `Task.updated_at`.
    """

    status: TaskStatus | None = None
    project: str | None = None
    job_id: str | None = None
    ids: tuple[int, ...] | None = None
    claimed_by: str | None = None
    words: tuple[str, ...] = ()
    due_before: str | None = None
    due_after: str | None = None
    updated_after: str | None = None

    @property
    def is_counted(self) -> bool:
        """Return whether the counts say how many tasks meet the conditions."""
        others = evolve(self, status=None, project=None, due_before=None, due_after=None)
        return others == TaskFilter()


@frozen
class After:
    """The place in a sorted list behind one task, which may be gone: where the next page begins.

    Attributes:
        key: of that task, by the sort of the list; None if the task has none, or sorts by id.
        id: of that task.
    """

    key: str | int | None
    id: int


@frozen
class TaskQuery:
    """A page of a list.

    Attributes:
        where: the conditions.
        sort: the key; tasks without one come last in both directions, equal keys by ascending id.
        descending: the greatest key first (for `id`, the greatest id first).
        limit: the most tasks of the page.
        offset: how many tasks to skip; 0 with `after`.
        after: begin behind this task.
        count: also return the total.
    """

    where: TaskFilter
    sort: SortKey = "id"
    descending: bool = False
    limit: int = 100
    offset: int = 0
    after: After | None = None
    count: bool = True


@frozen
class TaskPage:
    """The tasks of a page.

    Attributes:
        tasks: at most `limit`.
        has_more: there are tasks behind the last one.
        total: of all pages; None unless it was asked for.
        total_is_lower_bound: there are more than `EXACT_TOTAL`, which is `total`.
    """

    tasks: list[Task]
    has_more: bool
    total: int | None
    total_is_lower_bound: bool


@frozen
class Summary:
    """The counts of all tasks, or of one project.

    Attributes:
        count_by_status: has every status.
        earliest_due_date: of all tasks with one.
        latest_due_date: of all tasks with one.
        overdue: not DONE, and due before today in UTC.
        jobs_pending: of all projects, as a job belongs to none.
        jobs_running: as `jobs_pending`.
        generated_at: RFC 3339 in UTC, the clock of the database.
    """

    count_by_status: Mapping[TaskStatus, int]
    earliest_due_date: str | None
    latest_due_date: str | None
    overdue: int
    jobs_pending: int
    jobs_running: int
    generated_at: str


def casefold_text(title: str, description: str | None) -> str:
    """Return the text that words are searched in; the stores keep it beside the task."""
    return fold(f"{title}\n{description or ''}")


def fold(text: str) -> str:
    """Return a text in the form in which words are compared: case-folded, in NFC."""
    if text.isascii():
        return text.lower()
    from unicodedata import normalize

    return normalize("NFC", normalize("NFC", text).casefold())
