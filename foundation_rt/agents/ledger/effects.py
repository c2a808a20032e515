"""Decisions of a node, performed by the runner in a process and by the simulator in tests.

A decision is a list of these values, to be performed in order. Only `Persist` and `Execute` are
reported back to the node.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeAlias

from attrs import define

from ...base.shown import Shown
from ...errors import StructuredError
from .types import Claim, Envelope

AnyWaiter: TypeAlias = Any
"""Stands for a caller that waits for an answer; the node only gives it back."""


class Operation(StrEnum):
    """An operation of the ledger: the method of `AACPPersistenceAdapter` of that name."""

    APPEND = "append"
    RECEIVE = "receive"
    QUEUE_DELAYED = "queue_delayed"
    LIMIT_AGENTS = "limit_agents"
    CLAIM = "claim"
    COMPLETE = "complete"
    RENEW = "renew"
    RELEASE = "release"
    TAKE_DUE = "take_due"
    HASTEN = "hasten"
    LOOK_UP = "get_request_records"
    PURGE = "purge_expired"
    READ_TIME = "read_time"
    CHANGE_SCHEDULES = "change_schedules"
    DUE_SCHEDULES = "due_schedules"
    ENTER_RUNS = "enter_runs"
    TAKE_SUBMISSIONS = "take_submissions"


@define(eq=False, repr=False)
class Persist(Shown):
    """Have the ledger do `operation`; report by `Node.persisted` or `Node.failed`.

    Attributes:
        batch: the items of the operation; for the node.
    """

    operation: Operation
    arguments: tuple[Any, ...]
    batch: list[Any]


@define(eq=False, repr=False)
class SendEnvelopes(Shown):
    """Send envelopes. Nothing is reported back, since a lost message is sent again."""

    envelopes: list[Envelope]


@define(eq=False, repr=False)
class Execute(Shown):
    """Execute a claim; report by `Claims.executed` or `Claims.give_back`."""

    claim: Claim


@define(eq=False, repr=False)
class Abandon(Shown):
    """Stop the execution of a claim that was lost."""

    claim: Claim


@define(eq=False, repr=False)
class FollowTime(Shown):
    """Set the clock by which the node is told the time; report by `LedgerTime.followed`."""

    by_ms: int


@define(eq=False, repr=False)
class ResolveWaiter(Shown):
    """Give `waiter` its answer: a value, or an exception to raise."""

    waiter: AnyWaiter
    answer: Any


@define(eq=False, repr=False)
class NoticeReceived(Shown):
    """A message has come in and is in the ledger."""

    envelope: Envelope


@define(eq=False, repr=False)
class NoticeSettled(Shown):
    """A message sent from here is completed, or failed with `error`."""

    message_id: str
    error: StructuredError | None


@define(eq=False, repr=False)
class WriteLog(Shown):
    """Write a record of the log."""

    level: str
    message: str
    fields: dict[str, Any]


Effect: TypeAlias = (
    Persist
    | SendEnvelopes
    | Execute
    | Abandon
    | ResolveWaiter
    | NoticeReceived
    | NoticeSettled
    | FollowTime
    | WriteLog
)
