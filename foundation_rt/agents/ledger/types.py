"""The values of AACP, the protocol by which agents talk across processes and machines.

They are the envelopes on the wire, the records in a ledger, and the arguments and results of a
ledger's operations. Times are whole milliseconds since 1970 in UTC; payloads, results and errors
are JSON in UTF-8, encoded once where they enter.

The state of a record never goes back, unless an operator requeues it (spec/aacp.md):

    a request, where it was made:      SENT ─────────────────────────────► COMPLETED | FAILED
    a request, where it is executed:   HELD ─► RECEIVED ─► CLAIMED ───────► COMPLETED | FAILED
                                        │      ▲ ▲ released │ ▲ lease lapsed: a new epoch
                                        │      │ └──────────┤ └┘
                                        └─► DELAYED ◄───────┘ to be tried again by its own policy
    a message on its way:              PENDING ─► ACKNOWLEDGED
                                       PENDING ─► TOMBSTONE ─► ACKNOWLEDGED
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from attrs import define, field, frozen

from ...base.shown import Shown

if TYPE_CHECKING:
    from ...errors import StructuredError
    from ..messages import OutcomeWrite
    from .request_options import RequestOptions


class MessageType(StrEnum):
    """The type of a message, spelled as on the wire."""

    REQUEST = "REQUEST"
    RESPONSE = "RESPONSE"
    EVENT = "EVENT"


class Outcome(StrEnum):
    """The outcome of a message as far as its caller knows it (AACP-20)."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"


class RequestState(StrEnum):
    """The state of a request, or of an event that is to be executed, in one ledger."""

    SENT = "SENT"
    """Made here, to be executed by an agent of another ledger."""
    HELD = "HELD"
    """Received before an earlier message of its link; it waits for that one."""
    DELAYED = "DELAYED"
    """It takes a place in its queue when its time has come (AACP-120)."""
    RECEIVED = "RECEIVED"
    """May be claimed."""
    CLAIMED = "CLAIMED"
    """An owner executes it, until its lease lapses."""
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"

    @property
    def outcome(self) -> Outcome:
        """The outcome for callers: UNKNOWN in every state but the last two (AACP-20)."""
        return _OUTCOMES.get(self, Outcome.UNKNOWN)


_OUTCOMES = {RequestState.COMPLETED: Outcome.COMPLETED, RequestState.FAILED: Outcome.FAILED}

TERMINAL = frozenset(_OUTCOMES)
"""The states that are left by an operator only (AACP-21)."""


class MessageState(StrEnum):
    """The state of a message to another ledger."""

    PENDING = "PENDING"
    """Sent, and sent again, until it is acknowledged."""
    TOMBSTONE = "TOMBSTONE"
    """Expired or given up: only its number is still sent (AACP-14)."""
    ACKNOWLEDGED = "ACKNOWLEDGED"
    """It is in the ledger of its receiver."""


class _Value(Shown):
    """Equal to another of its class when all fields are equal.

    Written once instead of being generated for each class, which takes start-up time.
    """

    __slots__: Sequence[str] = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(
            getattr(self, name) == getattr(other, name)
            for name in self.__slots__
            if not name.startswith("_")
        )

    __hash__ = None  # type: ignore[assignment]


Link = tuple[str, str]
"""Source and target: one sequence of numbers (AACP-10)."""

OutboxKey = tuple[str, str, int]
"""The link of a message and its number."""

OUTBOX_START: OutboxKey = ("", "", 0)
"""Before every message."""


@define(eq=False, repr=False)
class Envelope(_Value):
    """One attempt to transmit one message.

    Attributes:
        message_id: new for every attempt.
        request_id: the same for every attempt; None for an EVENT without one.
        seq: the number of the logical message on its link, from 1; 0 for a bare acknowledgement.
        ack: the highest number up to which the sender has received everything on the link in the
            other direction; None when there is none.
        timestamp_ms: when the logical message was made.
        payload: JSON; for a RESPONSE an object with the outcome (`response_payload`).
        expires_at_ms: when the message stops counting; None leaves it to the receiver's TTL.
        tombstone: the message is void; only its number counts.
        incarnation: that of the sender's ledger, whose numbers these are (AACP-19).
        ack_incarnation: the incarnation that `ack` is about; None when there is none.
        low_watermark: the lowest number of the link that was not acknowledged when this was sent;
            0 in a bare acknowledgement.
        options: JSON of the `RequestOptions` of a REQUEST or an EVENT, if it has any.
    """

    message_id: str
    request_id: str | None
    source_agent_id: str
    target_agent_id: str
    seq: int
    ack: int | None
    message_type: MessageType
    timestamp_ms: int
    payload: bytes
    expires_at_ms: int | None = None
    tombstone: bool = False
    incarnation: int = 0
    ack_incarnation: int | None = None
    low_watermark: int = 1
    options: bytes | None = None


@define(eq=False, repr=False)
class RequestRecord(_Value):
    """The record of one request, or of one event that is to be executed.

    Attributes:
        request_id: its key; for an EVENT without one, the id of the message it came with.
        digest: of source, target, type and payload (AACP-12).
        needs_response: its sender is in another ledger and gets the outcome in a RESPONSE.
        position: its place in the queue of its target, once it may be claimed.
        epoch: how often it was claimed; the outcome of an older epoch is refused (AACP-23).
        executions: how often its execution was begun, as far as is known: one that was not the
            first of its agent when it was claimed counts when it is given back (AACP-13, AACP-46).
        owner: the last one that claimed it.
        not_before_ms: it is not claimed earlier: it was sent so, or it failed and is tried again.
        result: JSON, once COMPLETED.
        error: JSON of a structured error, once FAILED.
        completion_ref: the place of a result that is not kept here.
        priority: of two in a queue, the one with the higher priority is claimed first (AACP-122).
        retry: JSON of its own `ExecutionRetries`, if it has any (AACP-124).
    """

    request_id: str
    message_type: MessageType
    source_agent_id: str
    target_agent_id: str
    seq: int
    digest: bytes
    payload: bytes
    state: RequestState
    created_at_ms: int
    expires_at_ms: int
    needs_response: bool = False
    position: int | None = None
    epoch: int = 0
    executions: int = 0
    owner: str | None = None
    lease_until_ms: int | None = None
    not_before_ms: int | None = None
    result: bytes | None = None
    error: bytes | None = None
    completion_ref: str | None = None
    finished_at_ms: int | None = None
    priority: int = 0
    retry: bytes | None = None

    @property
    def outcome(self) -> Outcome:
        """COMPLETED or FAILED once that is durable, else UNKNOWN."""
        return self.state.outcome


@define(eq=False, repr=False)
class MessageRecord(_Value):
    """The record of one message to another ledger.

    Attributes:
        message_id: that of the first attempt; the record's key.
        attempts: how often it was sent, or is about to be.
        next_attempt_at_ms: when it is sent again; None once it is acknowledged.
        options: JSON of its `RequestOptions`, if it has any.
        low_watermark: that of its link, in a record that is returned to be sent; it is not kept.
    """

    message_id: str
    request_id: str | None
    source_agent_id: str
    target_agent_id: str
    seq: int
    message_type: MessageType
    payload: bytes
    state: MessageState
    created_at_ms: int
    expires_at_ms: int
    attempts: int = 1
    next_attempt_at_ms: int | None = None
    options: bytes | None = None
    low_watermark: int = 1

    @property
    def outcome(self) -> Outcome:
        """COMPLETED once it is acknowledged, FAILED once it is void, else UNKNOWN."""
        return _MESSAGE_OUTCOMES[self.state]

    def envelope(
        self, message_id: str, ack: int | None, incarnation: int, ack_incarnation: int | None = None
    ) -> Envelope:
        """Return an envelope for one attempt, from a ledger of this incarnation."""
        return Envelope(
            message_id,
            self.request_id,
            self.source_agent_id,
            self.target_agent_id,
            self.seq,
            ack,
            self.message_type,
            self.created_at_ms,
            self.payload,
            self.expires_at_ms,
            self.state is MessageState.TOMBSTONE,
            incarnation,
            ack_incarnation,
            self.low_watermark,
            self.options,
        )


_MESSAGE_OUTCOMES = {
    MessageState.PENDING: Outcome.UNKNOWN,
    MessageState.TOMBSTONE: Outcome.FAILED,
    MessageState.ACKNOWLEDGED: Outcome.COMPLETED,
}

MESSAGE_STATES = {outcome: state for state, outcome in _MESSAGE_OUTCOMES.items()}
"""The state of the messages with an outcome."""

VOID_PAYLOAD = b"null"
"""The payload of a tombstone, and of a record that no longer needs its own."""


# -- arguments of operations --------------------------------------------------------------------


@define(eq=False, repr=False)
class OutgoingMessage(Shown):
    """A REQUEST or an EVENT that is to be entered in its sender's ledger.

    Attributes:
        request_id: None for an EVENT without one.
        local: the target's queue is in this ledger; otherwise the message goes over a transport.
        next_attempt_at_ms: when it is sent again unless it is acknowledged before.
        options: when and how it is executed, if its sender said so.
        batch: names the messages that are entered together or not at all (AACP-169): they have one
            target and distinct ids, and follow each other; "" for a message by itself.
        key: the id under which the ledger keeps it.
    """

    message_id: str
    request_id: str | None
    source_agent_id: str
    target_agent_id: str
    message_type: MessageType
    payload: bytes
    digest: bytes
    created_at_ms: int
    expires_at_ms: int
    local: bool
    next_attempt_at_ms: int
    options: RequestOptions | None = None
    batch: str = ""
    key: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.key = self.request_id or self.message_id


@frozen
class Claiming:
    """The claims that a process makes: by CLAIM, or with messages that it enters (AACP-193).

    Attributes:
        wanted: the most that are claimed for each agent, by its id.
        owner: of the claims.
        lease_until_ms: the end of the leases.
        held_until_ms: what the owner has claimed for at least so long may be before what it enters.
        idle: those of the agents that execute nothing. The execution of the first request that is
            claimed for one of them begins at once and is counted in its `executions` (AACP-46).
        serves: the other agents that it executes: it looks into their queues afterwards, so that
            others need not be told (AACP-97).
    """

    wanted: Mapping[str, int] = field(factory=dict)
    owner: str = ""
    lease_until_ms: int = 0
    held_until_ms: int = 0
    idle: Collection[str] = ()
    serves: Collection[str] = ()

    def holds(self, record: RequestRecord) -> bool:
        """Return whether the owner has claimed a request for so long."""
        until_ms = record.lease_until_ms
        return (
            record.owner == self.owner and until_ms is not None and until_ms >= self.held_until_ms
        )


NO_CLAIMING = Claiming()


@frozen
class LedgerNews:
    """The changes that another process has made.

    Attributes:
        agents: those whose queues may have something new to claim.
        finished: requests that have their outcome now.
        submitted: the agent, or "" where another ledger executes, and the number of a transaction
            in which an application has entered requests (AACP-151).
    """

    agents: Sequence[str] = ()
    finished: Sequence[str] = ()
    submitted: Sequence[tuple[str, int]] = ()


@define(eq=False, repr=False)
class IncomingEnvelope(Shown):
    """An envelope that came in.

    Attributes:
        digest: of its content.
        reply_id: the message id of the RESPONSE, if it is answered at once.
        reply_next_attempt_at_ms: when that RESPONSE is sent a second time.
    """

    envelope: Envelope
    digest: bytes
    reply_id: str
    reply_next_attempt_at_ms: int


@define(eq=False, repr=False)
class Claim(_Value):
    """The right to execute a request, until its lease lapses.

    Attributes:
        executions: the number of its executions, as far as is known, with this one.
        priority, retry: as in `RequestRecord`.
        workers: how many requests its agent executes at a time (AACP-190).
        on_entry: it was made in the transaction that entered the request (AACP-193).
        is_quiet: its owner, which has heard of no other process, does not look into the queue after
            its outcome: whom it stops says so (AACP-195).
    """

    request_id: str
    epoch: int
    executions: int
    source_agent_id: str
    target_agent_id: str
    message_type: MessageType
    payload: bytes
    seq: int
    created_at_ms: int
    expires_at_ms: int
    priority: int = 0
    retry: bytes | None = None
    workers: int = 1
    on_entry: bool = False
    is_quiet: bool = False

    @property
    def identity_fields(self) -> dict[str, Any]:
        """The fields by which every log line about the claim names it (LOG-30)."""
        return {
            "requestId": self.request_id,
            "correlationId": self.request_id,
            "agentId": self.target_agent_id,
        }


class Executed(NamedTuple):
    """The end of an execution: a result in JSON, or an error, and the write that goes with it.

    Attributes:
        in_transaction: as in `ClaimCompletion`.
    """

    result: bytes | None = None
    error: StructuredError | None = None
    in_transaction: OutcomeWrite | None = None


class Ending(NamedTuple):
    """The outcome of a request: COMPLETED with a result, or FAILED with an error; both in JSON."""

    state: RequestState
    result: bytes | None = None
    error: bytes | None = None


@define(eq=False, repr=False)
class ClaimCompletion(Shown):
    """The end of the execution of a claim.

    Attributes:
        state: COMPLETED or FAILED.
        result, error: JSON; one of them.
        reply_id, reply_next_attempt_at_ms: of the RESPONSE, if it needs one.
        in_transaction: called with the store's connection in the transaction that records the
            outcome, and only if the outcome is taken. When it raises, its writes are undone and
            the outcome is not taken (AACP-05). The store may call it again after undoing its
            writes. Stores without such a connection raise `UsageError`.
        on_entry, is_quiet: as in `Claim`.
    """

    request_id: str
    epoch: int
    state: RequestState
    result: bytes | None
    error: bytes | None
    reply_id: str
    reply_next_attempt_at_ms: int
    in_transaction: OutcomeWrite | None = None
    on_entry: bool = False
    is_quiet: bool = False


@define(eq=False, repr=False)
class Release(Shown):
    """A claim that is given back, to be claimed again from `not_before_ms` on.

    Attributes:
        executions: those of the claim, or one less if its execution was not begun.
        leaves_queue: it is DELAYED until then, and what is behind it does not wait (AACP-124).
    """

    request_id: str
    epoch: int
    executions: int
    not_before_ms: int | None = None
    leaves_queue: bool = False


# -- results of operations ----------------------------------------------------------------------


class EntryVerdict(StrEnum):
    """The result of comparing a request to those in the ledger (AACP-12)."""

    NEW = "NEW"
    DUPLICATE = "DUPLICATE"
    """The same request is there already."""
    CONFLICT = "CONFLICT"
    """Another request has this id."""
    FULL = "FULL"
    """The ledger has no room for it, or its owner has no share left (AACP-49)."""


class Locked(Enum):
    """The answer for an item with which nothing has happened (AACP-90)."""

    LOCKED = "LOCKED"
    """Another process keeps what it needs locked: ask again later."""


LOCKED: Final = Locked.LOCKED


@define(eq=False, repr=False)
class Appended(_Value):
    """The result of entering an `OutgoingMessage`.

    Attributes:
        seq: its number; 0 for a CONFLICT and for FULL, the first one's for a DUPLICATE.
        existing: the record that was there before; None if it is NEW, FULL or an EVENT to another
            ledger. Where a batch is refused, the first one that another message has the id of.
        message: the message to send now, if any.
        delayed_until_ms: when the first request that has become DELAYED by it is due.
        claim: the claim of the request, if it was made with it (AACP-193).
    """

    verdict: EntryVerdict
    seq: int
    existing: RequestRecord | None = None
    message: MessageRecord | None = None
    delayed_until_ms: int | None = None
    claim: Claim | None = None


@define(eq=False, repr=False)
class Received(_Value):
    """The result of receiving a batch of `IncomingEnvelope`s.

    Attributes:
        acks: for every link in the batch, the number up to which everything was received.
        accepted: the envelopes that were new and are in the ledger now, without void ones.
        finished: requests made here whose outcome has become known.
        acknowledged: messages of ours that the other side has.
        responses: those to send: to requests that were finished before, or refused.
        refused: the number of envelopes that were not taken: too far beyond a gap, so that they
            come again, or outdated.
        ready: whether there may be something new to claim.
        incarnation: for every link in `acks`, the incarnation of its number.
        outdated: the envelopes of ledgers that have successors.
        locked: the envelopes with which nothing has happened (`LOCKED`): they have to come again.
        delayed_until_ms: when the first request that has become DELAYED is due.
    """

    acks: dict[Link, int]
    accepted: list[Envelope]
    finished: list[RequestRecord]
    acknowledged: list[MessageRecord]
    responses: list[MessageRecord]
    refused: int
    ready: bool
    incarnation: dict[Link, int] = field(factory=dict)
    outdated: list[Envelope] = field(factory=list)
    locked: list[Envelope] = field(factory=list)
    delayed_until_ms: int | None = None

    def add(self, other: Received) -> None:
        """Add the result of another part of the same batch."""
        self.acks |= other.acks
        self.incarnation |= other.incarnation
        self.accepted += other.accepted
        self.finished += other.finished
        self.acknowledged += other.acknowledged
        self.responses += other.responses
        self.refused += other.refused
        self.ready = self.ready or other.ready
        self.outdated += other.outdated
        due = [at_ms for at_ms in (self.delayed_until_ms, other.delayed_until_ms) if at_ms]
        self.delayed_until_ms = min(due, default=None)


@define(eq=False, repr=False)
class Claimed(_Value):
    """The result of claiming.

    Attributes:
        again_at_ms: by agent, when to ask again for it if nothing happens before: a lease of
            another owner lapses, or a request is tried again.
    """

    claims: list[Claim]
    again_at_ms: dict[str, int] = field(factory=dict)


@define(eq=False, repr=False)
class Queued(_Value):
    """The result of queueing requests whose time has come.

    Attributes:
        agents: those whose queues have something new.
        next_at_ms: when the time of the next request comes; None when none is DELAYED.
    """

    agents: list[str]
    next_at_ms: int | None


@define(eq=False, repr=False)
class Completed(_Value):
    """The result of a `ClaimCompletion`.

    Attributes:
        record: as it is now, maybe without its payload; None when the outcome was refused because
            the claim was lost.
        response: the message to send now, if any.
        failure: the exception of `ClaimCompletion.in_transaction`; the claim is still held.
        waits: something may wait in the queue of its agent, of which nobody else tells.
    """

    record: RequestRecord | None
    response: MessageRecord | None
    failure: Exception | None = None
    waits: bool = True


@define(eq=False, repr=False)
class Hastened(_Value):
    """A page of messages that were made due.

    Attributes:
        count: how many of them are due now that were not before.
        last: the last message of the page; None when there was none.
    """

    count: int
    last: OutboxKey | None


@define(eq=False, repr=False)
class Due(_Value):
    """Messages that are to be sent again.

    Attributes:
        given_up: those that have just become tombstones.
        next_at_ms: when the next one is due; None when none is left.
    """

    messages: list[MessageRecord]
    given_up: list[MessageRecord]
    next_at_ms: int | None
