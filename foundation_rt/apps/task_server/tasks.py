"""A task, as it is given and as it is stored."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

TaskStatus = Literal["TODO", "IN_PROGRESS", "DONE"]
TaskPriority = Literal["LOW", "NORMAL", "HIGH", "URGENT"]
SortKey = Literal["id", "dueDate", "priority", "updatedAt"]

STATUSES: tuple[TaskStatus, ...] = get_args(TaskStatus)
PRIORITIES: tuple[TaskPriority, ...] = get_args(TaskPriority)
"""From the least urgent to the most; the stores keep the index, so that they can sort by it."""


class NewTask(NamedTuple):
    """A task as a job stores it: checked, with every default filled in.

    Attributes:
        title: 1 to 255 characters, not blank.
        description: at most 2,000 characters, or None.
        status: one of `STATUSES`.
        due_date: a date such as "2026-11-22", or None.
        project: 1 to 100 characters.
        priority: an index into `PRIORITIES`.
    """

    title: str
    description: str | None
    status: TaskStatus
    due_date: str | None
    project: str
    priority: int


def text_bytes(title: str, description: str | None, project: str) -> int:
    """Return the bytes of a task that count against a quota."""
    texts = (title, description or "", project)
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)


WIRE_NAMES = (
    *("id", "title", "description", "status", "dueDate", "project", "priority", "version"),
    *("claimedBy", "claimExpiresAt", "jobId", "createdBy", "createdAt", "updatedAt"),
)
"""The members of a `Task`, as tools, resources and files name them."""


class Task(NamedTuple):
    """A stored task, in the order of its columns.

    Attributes:
        id: given out once, never again.
        title: see `NewTask`; so are `description` to `priority`.
        version: 1 for a new task; every change raises it by one.
        claimed_by: the worker that holds the task, if one does.
        claim_expires_at: when its claim ends, as RFC 3339 in UTC with milliseconds.
        job_id: of the job that has stored the task.
        created_by: the principal that submitted the job, or "local".
        created_at: as RFC 3339 in UTC with milliseconds.
        updated_at: as `created_at`; the time of the last change.
    """

    id: int
    title: str
    description: str | None
    status: TaskStatus
    due_date: str | None
    project: str
    priority: int
    version: int
    claimed_by: str | None
    claim_expires_at: str | None
    job_id: str
    created_by: str
    created_at: str
    updated_at: str

    def to_wire(self) -> dict[str, Any]:
        """Return the members of the task as tools and resources send them."""
        wire: dict[str, Any] = dict(zip(WIRE_NAMES, self, strict=True))
        wire["priority"] = PRIORITIES[self.priority]
        return wire
