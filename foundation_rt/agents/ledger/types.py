"""The values of AACP, the protocol by which agents talk across processes and machines.

Nothing here does anything: these are the envelopes that travel, the records that a ledger keeps of
them, and what a ledger is asked and answers. Times are whole milliseconds since 1970 in UTC;
payloads, results and errors are JSON in UTF-8, encoded once where they enter.

What a record says never goes back (spec/aacp.md):

    a request, where it was made:      SENT ─────────────────────────────► COMPLETED | FAILED
    a request, where it is executed:   HELD ─► RECEIVED ─► CLAIMED ───────► COMPLETED | FAILED
                                               ▲ released │ ▲ lease lapsed: a new epoch
                                               └──────────┘ └┘
    a message on its way:              PENDING ─► ACKNOWLEDGED
                                       PENDING ─► TOMBSTONE ─► ACKNOWLEDGED
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from attrs import define, field

if TYPE_CHECKING:
    from ..messages import Write


class MessageType(StrEnum):
    """What an envelope carries, spelled as on the wire."""

    REQUEST = "REQUEST"
    RESPONSE = "RESPONSE"
    EVENT = "EVENT"


class Outcome(StrEnum):
    """What a caller knows of a message (AACP-20)."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"


class RequestState(StrEnum):
    """Where a request, or an event that is to be executed, stands in one ledger."""

    SENT = "SENT"
    """Made here, to be executed by an agent of another ledger."""
    HELD = "HELD"
    """Received before an earlier message of its link; it waits for that one."""
    RECEIVED = "RECEIVED"
    """May be claimed."""
    CLAIMED = "CLAIMED"
    """Somebody executes it, until its lease lapses."""
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"

    @property
    def outcome(self) -> Outcome:
        """What a caller knows by it: no state but the last two is a completion (AACP-20)."""
        return _OUTCOMES.get(self, Outcome.UNKNOWN)


_OUTCOMES = {RequestState.COMPLETED: Outcome.COMPLETED, RequestState.FAILED: Outcome.FAILED}

TERMINAL = frozenset(_OUTCOMES)
"""The states that are never left (AACP-21)."""


class MessageState(StrEnum):
    """Where a message to another ledger stands."""

    PENDING = "PENDING"
    """Sent, and sent again, until it is acknowledged."""
    TOMBSTONE = "TOMBSTONE"
    """Expired or given up: only its number is still sent (AACP-14)."""
    ACKNOWLEDGED = "ACKNOWLEDGED"
    """It is in the ledger of its receiver."""


class WithRepr:
    """Shown with its fields.

    Written once instead of being generated for each class, which takes 0.35 ms of start-up.
    """

    __slots__: Sequence[str] = ()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields())
        return f"{type(self).__name__}({shown})"

    def _fields(self) -> list[str]:
        return [name for name in self.__slots__ if not name.startswith("_")]


class _Value(WithRepr):
    """Equal to another of its class when all fields are equal."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(
            getattr(self, name) == getattr(other, name) for name in self._fields()
        )

    __hash__ = None  # type: ignore[assignment]


Link = tuple[str, str]
"""Source and target: one sequence of numbers (AACP-10)."""


@define(eq=False, repr=False)
class Envelope(_Value):
    """One attempt to transmit one message.

    Attributes:
        message_id: new for every attempt.
        request_id: the same for every attempt; None for an EVENT without one.
        seq: the number of the logical message on its link, from 1; 0 for a bare acknowledgement.
        ack: the highest number up to which the sender has received everything on the link in the
            other direction; None when it says nothing.
        timestamp_ms: when the logical message was made.
        payload: JSON; for a RESPONSE an object with the outcome (`response_payload`).
        expires_at_ms: when the message stops counting; None leaves it to the receiver's TTL.
        tombstone: the message is void; only its number counts.
        incarnation: that of the sender's ledger, whose numbers these are (AACP-19).
        ack_incarnation: the incarnation that `ack` is about; None when there is none.
        low_watermark: the lowest number of the link that was not acknowledged when this was sent;
            0 in a bare acknowledgement.
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


@define(eq=False, repr=False)
class RequestRecord(_Value):
    """What a ledger knows of one request, or of one event that is to be executed.

    Attributes:
        request_id: its key; for an EVENT without one, the id of the message it came with.
        digest: of source, target, type and payload (AACP-12).
        needs_response: its maker is in another ledger and is told the outcome by a RESPONSE.
        position: its place in the queue of its target, once it may be claimed.
        epoch: how often it was claimed; the outcome of an older epoch is not taken (AACP-23).
        executions: how often its execution was begun, as far as is known: one that was not the
            first of its agent when it was claimed counts when it is given back (AACP-13, AACP-46).
        owner: who claimed it last.
        not_before_ms: it is not claimed earlier: it failed, and is tried again.
        result: JSON, once COMPLETED.
        error: JSON of a structured error, once FAILED.
        completion_ref: where a result is that is not kept here.
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

    @property
    def outcome(self) -> Outcome:
        """COMPLETED or FAILED once that is durable, else UNKNOWN."""
        return self.state.outcome


@define(eq=False, repr=False)
class MessageRecord(_Value):
    """What a ledger knows of one message that it sends to another.

    Attributes:
        message_id: that of the first attempt; the record's key.
        attempts: how often it was sent, or is about to be.
        next_attempt_at_ms: when it is sent again; None once it is acknowledged.
        low_watermark: of its link, where the record is given out to be sent; it is not kept.
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
    low_watermark: int = 1

    @property
    def outcome(self) -> Outcome:
        """COMPLETED once it is acknowledged, FAILED once it is void, else UNKNOWN."""
        return _MESSAGE_OUTCOMES[self.state]

    def envelope(
        self, message_id: str, ack: int | None, incarnation: int, ack_incarnation: int | None = None
    ) -> Envelope:
        """The message for one attempt, from a ledger of this incarnation."""
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
        )


_MESSAGE_OUTCOMES = {
    MessageState.PENDING: Outcome.UNKNOWN,
    MessageState.TOMBSTONE: Outcome.FAILED,
    MessageState.ACKNOWLEDGED: Outcome.COMPLETED,
}

MESSAGE_STATES = {outcome: state for state, outcome in _MESSAGE_OUTCOMES.items()}
"""The state of the messages with an outcome."""

VOID_PAYLOAD = b"null"
"""The payload of a tombstone, and of a record that need not keep its own any longer."""


# -- what a ledger is asked ---------------------------------------------------------------------


@define(eq=False, repr=False)
class OutgoingMessage(WithRepr):
    """A REQUEST or an EVENT that is to be entered in its maker's ledger.

    Attributes:
        request_id: None for an EVENT without one.
        local: the target's queue is in this ledger; otherwise the message goes over a transport.
        next_attempt_at_ms: when it is sent a second time, unless it is acknowledged before.
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

    @property
    def key(self) -> str:
        """Under which the ledger keeps it."""
        return self.request_id or self.message_id


@define(eq=False, repr=False)
class IncomingEnvelope(WithRepr):
    """An envelope that came in.

    Attributes:
        digest: of what it carries.
        reply_id: the message id of the RESPONSE, if it is one that is answered at once.
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
        executions: how many executions there are of it, as far as is known, with this one.
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

    @property
    def identity_fields(self) -> dict[str, Any]:
        """The fields by which every log line about the claim names it (LOG-30)."""
        return {
            "requestId": self.request_id,
            "correlationId": self.request_id,
            "agentId": self.target_agent_id,
        }


@define(eq=False, repr=False)
class Completion(WithRepr):
    """How the execution of a claim ended.

    Attributes:
        state: COMPLETED or FAILED.
        result, error: JSON; one of them.
        reply_id, reply_next_attempt_at_ms: of the RESPONSE, if its maker is told by one.
        in_transaction: called with the store's connection in the transaction that records the
            outcome, and only if the outcome is taken. When it raises, its writes are undone and
            the outcome is not taken (AACP-05). The store may call it again after undoing its
            writes. Stores without such a connection raise `UsageError`.
    """

    request_id: str
    epoch: int
    state: RequestState
    result: bytes | None
    error: bytes | None
    reply_id: str
    reply_next_attempt_at_ms: int
    in_transaction: Write | None = None


@define(eq=False, repr=False)
class Release(WithRepr):
    """A claim that is given back, to be claimed again from `not_before_ms` on.

    Attributes:
        executions: how many there were: those of the claim, or one less if it was not begun.
    """

    request_id: str
    epoch: int
    executions: int
    not_before_ms: int | None = None


# -- what a ledger answers ----------------------------------------------------------------------


class Verdict(StrEnum):
    """What a ledger finds when it is given a request (AACP-12)."""

    NEW = "NEW"
    DUPLICATE = "DUPLICATE"
    """The same request is there already."""
    CONFLICT = "CONFLICT"
    """Another request has this id."""
    FULL = "FULL"
    """There is no room for it, or its owner has no share left (AACP-49)."""


@define(eq=False, repr=False)
class Appended(_Value):
    """What became of a `OutgoingMessage`.

    Attributes:
        seq: its number; 0 for a CONFLICT and for FULL, the first one's for a DUPLICATE.
        existing: what was there before, unless it is NEW, FULL or an EVENT to another ledger.
        message: what is to be sent now, if anything.
    """

    verdict: Verdict
    seq: int
    existing: RequestRecord | None = None
    message: MessageRecord | None = None


@define(eq=False, repr=False)
class Received(_Value):
    """What became of a batch of `IncomingEnvelope`s.

    Attributes:
        acks: for every link in the batch, up to which number everything was received.
        accepted: the envelopes that were new and are in the ledger now, void ones left out.
        finished: requests made here whose outcome has become known.
        acknowledged: messages of ours that the other side has.
        responses: answers that are to be sent: to requests finished before, or refused.
        refused: how many envelopes were not taken: too far ahead, so that they come again, or
            outdated.
        ready: whether there may be something new to claim.
        incarnation: for every link in `acks`, the incarnation that its number is of.
        outdated: the envelopes of ledgers that have successors.
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


@define(eq=False, repr=False)
class Claimed(_Value):
    """What was claimed.

    Attributes:
        next_at_ms: when it is worth while to ask again, if nothing happens before: a lease of
            another lapses, or something is tried again.
    """

    claims: list[Claim]
    next_at_ms: int | None


@define(eq=False, repr=False)
class Completed(_Value):
    """What became of a `Completion`.

    Attributes:
        record: as it is now; None when the outcome was not taken, because the claim was lost.
        response: what is to be sent now, if anything.
        failure: what `Completion.in_transaction` raised; the claim is still held.
    """

    record: RequestRecord | None
    response: MessageRecord | None
    failure: Exception | None = None


@define(eq=False, repr=False)
class Due(_Value):
    """Messages that are to be sent again.

    Attributes:
        given_up: those among them that have just become tombstones.
        next_at_ms: when the next one is due; None when none is left.
    """

    messages: list[MessageRecord]
    given_up: list[MessageRecord]
    next_at_ms: int | None
