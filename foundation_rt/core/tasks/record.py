"""What a client can know of a task: a value, and the table of what may become of it (TASK-05).

    working ──ask──► input_required ──answered──► working
       └────────────────┴── complete, fail, cancel ──► completed, failed, cancelled (terminal)

A record never changes; `advance` makes the next one. What runs behind it is the business of
`running`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

import orjson
from attrs import evolve, field, frozen


class Status(Enum):
    """Where a task stands, spelled as on the wire."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Event(Enum):
    """What moves a task from one status to the next."""

    ASK = auto()
    """Its handler asks the client something."""
    ANSWERED = auto()
    """Nothing it asked is open any more."""
    COMPLETE = auto()
    """The request has a result, be it one with `isError`."""
    FAIL = auto()
    """The request has a JSON-RPC error."""
    CANCEL = auto()
    """Its client does not want it any more."""


TRANSITIONS: dict[tuple[Status, Event], Status] = {
    (Status.WORKING, Event.ASK): Status.INPUT_REQUIRED,
    (Status.WORKING, Event.COMPLETE): Status.COMPLETED,
    (Status.WORKING, Event.FAIL): Status.FAILED,
    (Status.WORKING, Event.CANCEL): Status.CANCELLED,
    (Status.INPUT_REQUIRED, Event.ASK): Status.INPUT_REQUIRED,
    (Status.INPUT_REQUIRED, Event.ANSWERED): Status.WORKING,
    (Status.INPUT_REQUIRED, Event.COMPLETE): Status.COMPLETED,
    (Status.INPUT_REQUIRED, Event.FAIL): Status.FAILED,
    (Status.INPUT_REQUIRED, Event.CANCEL): Status.CANCELLED,
}

TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})

_INTERNAL_ERROR = -32603
_OUTCOME_MEMBER = {Status.COMPLETED: "result", Status.FAILED: "error"}


@frozen(eq=False, repr=False)
class TaskRecord:
    """One task as its client sees it.

    Attributes:
        task_id: unguessable; whoever knows it, and is the same principal, may use the task.
        owner: the `identity_of` who may; None where nobody is told apart.
        created_at, updated_at: ISO 8601, UTC.
        ttl_ms: how long the record is kept, in ms from its creation.
        poll_interval_ms: how often a client should ask, in ms.
        message: what the handler said of its progress, or why the task failed.
        input_requests: what the client is asked and has not answered, by key.
        outcome: the result of a completed task, the error of a failed one: JSON in UTF-8; None
            where there was no room for it, and the message says all there is (TASK-12).
    """

    task_id: str
    owner: str | None
    created_at: str
    updated_at: str
    ttl_ms: int
    poll_interval_ms: int
    status: Status = Status.WORKING
    message: str | None = None
    input_requests: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    outcome: bytes | None = None

    @property
    def is_terminal(self) -> bool:
        """Return whether nothing will become of it any more."""
        return self.status in TERMINAL

    def advance(self, event: Event, at: str, **changes: Any) -> TaskRecord | None:
        """The record after `event`, or None where the table has no such step.

        Args:
            at: when, ISO 8601.
            changes: what else is different.
        """
        following = TRANSITIONS.get((self.status, event))
        if following is None:
            return None
        if following is not Status.INPUT_REQUIRED:
            changes["input_requests"] = {}
        return evolve(self, status=following, updated_at=at, **changes)

    def handle(self) -> dict[str, Any]:
        """The `Task` of the extension: what every message about a task carries (TASK-03)."""
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
        """The `DetailedTask`: the handle, and what belongs to its status (TASK-06)."""
        wire = self.handle()
        if self.status is Status.INPUT_REQUIRED:
            wire["inputRequests"] = dict(self.input_requests)
        elif self.outcome is not None:
            wire[_OUTCOME_MEMBER[self.status]] = orjson.Fragment(self.outcome)
        elif self.status is Status.FAILED:
            wire["error"] = {"code": _INTERNAL_ERROR, "message": self.message or "Internal error"}
        return wire
