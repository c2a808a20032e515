"""What a node decides and somebody else does: the runner in a process, the simulator in tests.

A decision is a list of these values, to be performed in order. Only `Persist` and `Execute` are
reported back to the node.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeAlias

from attrs import define

from ...errors import StructuredError
from .types import Claim, Envelope, WithRepr

Waiter: TypeAlias = Any
"""Stands for whoever waits for an answer; the node only hands it back."""


class Operation(StrEnum):
    """An operation of the ledger: the method of `AACPPersistenceAdapter` of that name."""

    APPEND = "append"
    RECEIVE = "receive"
    CLAIM = "claim"
    COMPLETE = "complete"
    RENEW = "renew"
    RELEASE = "release"
    TAKE_DUE = "take_due"
    LOOK_UP = "get_request_records"
    PURGE = "purge_expired"


@define(eq=False, repr=False)
class Persist(WithRepr):
    """Have the ledger do `operation`; report by `Node.persisted` or `Node.failed`.

    Attributes:
        batch: what the operation was made of; for the node.
    """

    operation: Operation
    arguments: tuple[Any, ...]
    batch: list[Any]


@define(eq=False, repr=False)
class Send(WithRepr):
    """Send envelopes; nothing needs to be reported, since what is lost is sent again."""

    envelopes: list[Envelope]


@define(eq=False, repr=False)
class Execute(WithRepr):
    """Execute a claim; report by `Node.executed` or `Node.give_back`."""

    claim: Claim


@define(eq=False, repr=False)
class Abandon(WithRepr):
    """A claim that is being executed was lost: whoever executes it should stop."""

    claim: Claim


@define(eq=False, repr=False)
class Resolve(WithRepr):
    """Give `waiter` its answer; an exception is to be raised."""

    waiter: Waiter
    answer: Any


@define(eq=False, repr=False)
class NoticeReceived(WithRepr):
    """A message has come in and is in the ledger."""

    envelope: Envelope


@define(eq=False, repr=False)
class NoticeSettled(WithRepr):
    """A message sent from here is completed, or failed with `error`."""

    message_id: str
    error: StructuredError | None


@define(eq=False, repr=False)
class NoticeOutdated(WithRepr):
    """A message was refused: its sender's ledger has a successor, or a rival (AACP-19)."""

    envelope: Envelope


@define(eq=False, repr=False)
class NoticeFailure(WithRepr):
    """The writes that a handler asked for raised `error`."""

    claim: Claim
    error: Exception


@define(eq=False, repr=False)
class NoticeAbandoned(WithRepr):
    """A claim is not executed but FAILED: its execution was begun too often and never ended."""

    claim: Claim


Effect: TypeAlias = (
    Persist
    | Send
    | Execute
    | Abandon
    | Resolve
    | NoticeReceived
    | NoticeSettled
    | NoticeFailure
    | NoticeOutdated
    | NoticeAbandoned
)
