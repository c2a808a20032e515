"""The record of a task, which its client sees, and the table of its states (TASK-05).

    working ──ask──► input_required ──answered──► working
       └────────────────┴── complete, fail, cancel ──► completed, failed, cancelled (terminal)

A record never changes: `advance` makes the next one. `manager` knows the call behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

import orjson
from attrs import evolve, field, frozen

from ...base.shown import Shown


class TaskStatus(Enum):
    """The status of a task, spelled as on the wire."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TaskEvent(Enum):
    """An event that moves a task from one status to the next."""

    ASK = auto()
    """Its handler sends a request to the client."""
    ANSWERED = auto()
    """The client has responded to all requests."""
    COMPLETE = auto()
    """The call has a result, `isError` or not."""
    FAIL = auto()
    """The call has a JSON-RPC error."""
    CANCEL = auto()
    """The client has cancelled it, or the server has stopped."""


TRANSITIONS: dict[tuple[TaskStatus, TaskEvent], TaskStatus] = {
    (TaskStatus.WORKING, TaskEvent.ASK): TaskStatus.INPUT_REQUIRED,
    (TaskStatus.WORKING, TaskEvent.COMPLETE): TaskStatus.COMPLETED,
    (TaskStatus.WORKING, TaskEvent.FAIL): TaskStatus.FAILED,
    (TaskStatus.WORKING, TaskEvent.CANCEL): TaskStatus.CANCELLED,
    (TaskStatus.INPUT_REQUIRED, TaskEvent.ASK): TaskStatus.INPUT_REQUIRED,
    (TaskStatus.INPUT_REQUIRED, TaskEvent.ANSWERED): TaskStatus.WORKING,
    (TaskStatus.INPUT_REQUIRED, TaskEvent.COMPLETE): TaskStatus.COMPLETED,
    (TaskStatus.INPUT_REQUIRED, TaskEvent.FAIL): TaskStatus.FAILED,
    (TaskStatus.INPUT_REQUIRED, TaskEvent.CANCEL): TaskStatus.CANCELLED,
}

TERMINAL = frozenset({TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED})

_INTERNAL_ERROR = -32603
_OUTCOME_MEMBER = {TaskStatus.COMPLETED: "result", TaskStatus.FAILED: "error"}


@frozen(eq=False, repr=False)
class TaskRecord(Shown):
    """The state of one task that its client sees.

    Attributes:
        task_id: cannot be guessed; a client of the same principal that knows it may use the task.
        owner: the `identity_of` that principal; None where there is no authentication.
        created_at, updated_at: ISO 8601, UTC.
        ttl_ms: how long the record is kept, in ms from its creation.
        poll_interval_ms: how often a client should ask, in ms.
        message: the progress that the handler reported last, or why the task failed.
        input_requests: the requests to the client that have no response yet, by key.
        outcome: the result of a completed task, the error of a failed one: JSON in UTF-8; None
            where there was no room for it (TASK-12).
    """

    task_id: str
    owner: str | None
    created_at: str
    updated_at: str
    ttl_ms: int
    poll_interval_ms: int
    status: TaskStatus = TaskStatus.WORKING
    message: str | None = None
    input_requests: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    outcome: bytes | None = None

    @property
    def is_terminal(self) -> bool:
        """Return whether the status is final."""
        return self.status in TERMINAL

    def advance(self, event: TaskEvent, at: str, **changes: Any) -> TaskRecord | None:
        """Return the record after an event, or None where the table has no such step.

        Args:
            event: the event.
            at: its time, ISO 8601.
            changes: other attributes that change.
        """
        following = TRANSITIONS.get((self.status, event))
        if following is None:
            return None
        if following is not TaskStatus.INPUT_REQUIRED:
            changes["input_requests"] = {}
        return evolve(self, status=following, updated_at=at, **changes)

    def handle(self) -> dict[str, Any]:
        """Return the `Task` of the extension, which every message about it has (TASK-03)."""
        wire: dict[str, Any] = {
            "taskId": self.task_id,
            "status": self.status.value,
            "createdAt": self.created_at,
            "lastUpdatedAt": self.updated_at,
            "ttlMs": self.ttl_ms,
            "pollIntervalMs": self.poll_interval_ms,
        }
        if self.message is not None:
            wire["statusMessage"] = self.message
        return wire

    def detailed(self) -> dict[str, Any]:
        """Return the `DetailedTask`: the handle, and members by its status (TASK-06)."""
        wire = self.handle()
        if self.status is TaskStatus.INPUT_REQUIRED:
            wire["inputRequests"] = dict(self.input_requests)
        elif self.outcome is not None:
            wire[_OUTCOME_MEMBER[self.status]] = orjson.Fragment(self.outcome)
        elif self.status is TaskStatus.FAILED:
            wire["error"] = {"code": _INTERNAL_ERROR, "message": self.message or "Internal error"}
        return wire
