"""Requests that an application has entered in a database transaction of its own (AACP-150).

Such a request is a row that the transaction adds, and changes nothing else: so the transaction
keeps nobody waiting, however long it stays open. After its commit a process of the ledger takes the
row over: it enters the request and deletes the row, in one transaction.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import define

from ...base.shown import Shown
from .request_options import RequestOptions, begin_of
from .rules import digest_of
from .types import Appended, MessageType, OutgoingMessage


@define(eq=False, repr=False)
class SubmittedRequest(Shown):
    """A request that waits to be taken over.

    Attributes:
        message_id: of its first attempt.
        request_id: the id under which the ledger will keep it.
        ttl_ms: its lifetime, which begins when it is taken over.
        local: as in `OutgoingMessage`.
        options: JSON of its `RequestOptions`, if it has any.
        number: its place among all; 0 before it has one.
        transaction: the number of the transaction that added it; 0 before that.
    """

    message_id: str
    request_id: str
    source_agent_id: str
    target_agent_id: str
    payload: bytes
    ttl_ms: int
    local: bool
    options: bytes | None = None
    number: int = 0
    transaction: int = 0

    @property
    def digest(self) -> bytes:
        """The digest of the request (AACP-12)."""
        return digest_of(
            self.source_agent_id, self.target_agent_id, MessageType.REQUEST, self.payload
        )

    def outgoing(self, now_ms: int, next_attempt_at_ms: int) -> OutgoingMessage:
        """Return the message to enter.

        Args:
            now_ms: the time at which it is taken over.
            next_attempt_at_ms: when it is sent a second time, if another ledger executes it.
        """
        options = None if self.options is None else RequestOptions.from_json(self.options)
        return OutgoingMessage(
            self.message_id,
            self.request_id,
            self.source_agent_id,
            self.target_agent_id,
            MessageType.REQUEST,
            self.payload,
            self.digest,
            now_ms,
            begin_of(options, now_ms) + self.ttl_ms,
            self.local,
            0 if self.local else next_attempt_at_ms,
            options,
        )


def submission_of(outgoing: OutgoingMessage) -> SubmittedRequest:
    """Return the submission of a request that a transaction of the application enters."""
    options = outgoing.options
    return SubmittedRequest(
        outgoing.message_id,
        outgoing.key,
        outgoing.source_agent_id,
        outgoing.target_agent_id,
        outgoing.payload,
        outgoing.expires_at_ms - begin_of(options, outgoing.created_at_ms),
        outgoing.local,
        None if options is None else options.to_json(),
    )


@define(eq=False, repr=False)
class TakenSubmissions(Shown):
    """The result of taking submissions over.

    Attributes:
        entered: the requests, and what entering them has led to.
        left: there may be more that can be taken at once.
        locked: there are more, behind what other processes keep locked.
    """

    entered: list[tuple[OutgoingMessage, Appended]]
    left: bool = False
    locked: bool = False


def in_order(seen: Collection[SubmittedRequest], taken: Collection[int]) -> list[SubmittedRequest]:
    """Return what may be entered of what a process has locked (AACP-152).

    The requests of one transaction to one agent are entered in their order. So what is behind one
    that another process has is left.

    Args:
        seen: submissions in their order, from the first of each transaction and agent on.
        taken: the numbers of those that the process has locked.
    """
    stopped: set[tuple[int, str]] = set()
    entered = []
    for each in seen:
        group = (each.transaction, each.target_agent_id)
        if each.number not in taken:
            stopped.add(group)
        elif group not in stopped:
            entered.append(each)
    return entered
