"""The transitions of a request: every rule about records, as plain functions over them.

Stores differ in where they keep records, and in how they make several changes atomic. These rules
decide what a store changes. Where a database has to decide by itself, the test suite that all
stores pass holds it to these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from hashlib import blake2b
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import fields

from ...base.exact_json import dumps, loads
from ...errors import ErrorCode, StructuredError
from .ownership import given_id
from .types import (
    TERMINAL,
    VOID_PAYLOAD,
    Claim,
    ClaimCompletion,
    Claimed,
    Claiming,
    Due,
    Ending,
    EntryVerdict,
    Envelope,
    MessageRecord,
    MessageState,
    MessageType,
    RequestRecord,
    RequestState,
)

if TYPE_CHECKING:
    from ..persistence import RetryDecision

T = TypeVar("T")


def _copier(kind: type[T], fields_of_kind: Any) -> Callable[[T], T]:
    """Return a function that copies records; a copy shares the values, which do not change."""
    values_of = attrgetter(*(each.name for each in fields_of_kind))
    return lambda record: kind(*values_of(record))


copy_of_request = _copier(RequestRecord, fields(RequestRecord))
copy_of_message = _copier(MessageRecord, fields(MessageRecord))


_DIGEST_BYTES = 16

CLAIMED_AT_HEAD = 100
"""The requests at the head of a queue among which another owner's claims are looked for: so many
claims it may hold (AACP-71)."""

PURGE_BATCH = 1_000
"""The records of a kind that one purge deletes: 3 ms in memory, 10 ms in SQLite (AACP-98)."""


def digest_of(
    source_agent_id: str, target_agent_id: str, message_type: MessageType, payload: bytes
) -> bytes:
    """Return the digest that two messages of one id share if they are the same (AACP-12).

    Args:
        source_agent_id: the sender.
        target_agent_id: the receiver.
        message_type: REQUEST, RESPONSE or EVENT.
        payload: canonical JSON, as `encoder.encode_payload` writes it.
    """
    head = f"{source_agent_id}\0{target_agent_id}\0{message_type._value_}\0".encode()
    return blake2b(head + payload, digest_size=_DIGEST_BYTES).digest()


def judge(existing: RequestRecord | None, digest: bytes) -> EntryVerdict:
    """Compare a request to the record that a ledger has under its id, if any (AACP-12)."""
    if existing is None:
        return EntryVerdict.NEW
    return EntryVerdict.DUPLICATE if existing.digest == digest else EntryVerdict.CONFLICT


class Claimability(Enum):
    """The action of a claimer at one place of a queue (AACP-22)."""

    TAKE = auto()
    PASS_OVER = auto()
    """Its own, lapsed or not, or expired: what is behind it may be taken."""
    STOP = auto()
    """Another executes it, or it waits to be tried again: what is behind it waits too."""


def claimability(record: RequestRecord, owner: str, now_ms: int) -> Claimability:
    """Return whether `owner` may claim a record that is RECEIVED or CLAIMED."""
    if record.expires_at_ms <= now_ms:
        return Claimability.PASS_OVER
    if record.state is RequestState.CLAIMED and record.owner == owner:
        return Claimability.PASS_OVER
    if (
        record.state is RequestState.CLAIMED
        and record.lease_until_ms is not None
        and record.lease_until_ms > now_ms
    ):
        return Claimability.STOP
    if record.not_before_ms is not None and record.not_before_ms > now_ms:
        return Claimability.STOP
    return Claimability.TAKE


def may_complete(record: RequestRecord | None, completion: ClaimCompletion) -> bool:
    """Return whether an outcome is taken: that of the newest claim, and once (AACP-23)."""
    return (
        record is not None
        and record.state is RequestState.CLAIMED
        and record.epoch == completion.epoch
    )


def is_repeated(record: RequestRecord | None, completion: ClaimCompletion) -> bool:
    """Return whether this very completion was taken before: the answer to it was lost."""
    return (
        record is not None
        and record.state in TERMINAL
        and record.epoch == completion.epoch
        and record.epoch > 0
    )


def may_settle(record: RequestRecord | None, response: Envelope) -> bool:
    """Return whether a RESPONSE is the answer to a request that was made here (AACP-16)."""
    return (
        record is not None
        and record.state is RequestState.SENT
        and record.source_agent_id == response.target_agent_id
        and record.target_agent_id == response.source_agent_id
    )


def recorded_error(record: RequestRecord) -> StructuredError | None:
    """Return the error of a request that FAILED; None of any other."""
    return None if record.error is None else StructuredError.from_wire(loads(record.error))


# -- what a RESPONSE carries --------------------------------------------------------------------


def response_payload(state: RequestState, result: bytes | None, error: bytes | None) -> bytes:
    """Return the payload of a RESPONSE: outcome, and result or error (AACP-16)."""
    if state is RequestState.COMPLETED:
        return b'{"outcome":"COMPLETED","result":' + (result or b"null") + b"}"
    return b'{"error":' + (error or b"null") + b',"outcome":"FAILED"}'


def read_response(payload: bytes) -> Ending:
    """Return the outcome in the payload of a RESPONSE that was decoded strictly."""
    body = loads(payload)
    if body["outcome"] == RequestState.COMPLETED:
        return Ending(RequestState.COMPLETED, dumps(body["result"]))
    return Ending(RequestState.FAILED, None, dumps(body["error"]))


def conflict_error(request_id: str) -> StructuredError:
    """Return the error for the sender of a request whose id another request has (AACP-12)."""
    return StructuredError(
        ErrorCode.INVALID_ARGUMENT,
        "Another request has this id: use a new id for a new request.",
        {"reason": "request_id_conflict", "requestId": given_id(request_id)},
    )


# -- claims -------------------------------------------------------------------------------------


def claim_from(
    queue: Iterable[RequestRecord],
    limit: int,
    claiming: Claiming,
    now_ms: int,
    begins: bool,
    claimed: Claimed,
    take_over: Callable[[RequestRecord], int | None],
) -> list[RequestRecord]:
    """Claim requests from the head of a queue; return their records (AACP-22).

    Args:
        queue: the queue of one agent, in its order.
        limit: the most that are claimed.
        claiming: gives the owner of the claims and the end of their leases.
        now_ms: the time.
        begins: the execution of the first one is begun at once.
        claimed: gets the claims, and the time when the request that stops the queue may be claimed.
        take_over: called with the first request whose claim another owner let lapse. It returns
            the end of a lease that this owner still has behind it, if there is one: then the queue
            stops. Otherwise it gives back all claims of the queue that have lapsed (AACP-166).
    """
    taken: list[RequestRecord] = []
    is_taken_over = False
    for record in queue:
        if len(taken) == limit:
            break
        decision = claimability(record, claiming.owner, now_ms)
        if decision is Claimability.STOP:
            _note_stop(claimed, record)
            break
        if decision is Claimability.TAKE:
            if record.state is RequestState.CLAIMED and not is_taken_over:
                until_ms = take_over(record)
                if until_ms is not None:
                    claimed.again_at_ms[record.target_agent_id] = until_ms
                    break
                is_taken_over = True
            claimed.claims.append(claim(record, claiming, begins and not taken))
            taken.append(record)
    return taken


def executed_elsewhere_until(queue: Iterable[RequestRecord], owner: str, now_ms: int) -> int | None:
    """Return the first end of a lease under which another owner executes requests, if it does.

    Nothing of a higher priority is claimed then: an agent executes one at a time (AACP-123).

    Args:
        queue: the requests of one priority in the queue of one agent, in its order. Its head is
            looked into, where the claims are.
        owner: asks.
        now_ms: the time.
    """
    ends = [
        record.lease_until_ms
        for record, decision in _claims_of_others(queue, owner, now_ms)
        if decision is Claimability.STOP
    ]
    return min((end for end in ends if end is not None), default=None)


def give_back_lapsed(
    queue: Iterable[RequestRecord], owner: str, now_ms: int
) -> list[RequestRecord]:
    """Give back the claims of other owners that have lapsed; return their records (AACP-166).

    Their outcomes are not taken any more. The arguments are those of `executed_elsewhere_until`.
    """
    lapsed = [record for record, _ in _claims_of_others(queue, owner, now_ms)]
    for record in lapsed:
        record.state = RequestState.RECEIVED
        record.owner = record.lease_until_ms = None
    return lapsed


def _claims_of_others(
    queue: Iterable[RequestRecord], owner: str, now_ms: int
) -> list[tuple[RequestRecord, Claimability]]:
    """Return the requests at the head of a queue that others have claimed: STOP is live."""
    head = (
        (record, decision)
        for record in queue
        if (decision := claimability(record, owner, now_ms)) is not Claimability.PASS_OVER
    )
    return [
        (record, decision)
        for record, decision in islice(head, CLAIMED_AT_HEAD)
        if record.state is RequestState.CLAIMED
    ]


def claim(record: RequestRecord, claiming: Claiming, begins: bool) -> Claim:
    record.state = RequestState.CLAIMED
    record.epoch += 1
    record.executions += begins
    record.owner, record.lease_until_ms = claiming.owner, claiming.lease_until_ms
    record.not_before_ms = None
    return Claim(
        record.request_id,
        record.epoch,
        record.executions + (not begins),
        record.source_agent_id,
        record.target_agent_id,
        record.message_type,
        record.payload,
        record.seq,
        record.created_at_ms,
        record.expires_at_ms,
        record.priority,
        record.retry,
    )


def _note_stop(claimed: Claimed, record: RequestRecord) -> None:
    is_claimed = record.state is RequestState.CLAIMED
    until_ms = record.lease_until_ms if is_claimed else record.not_before_ms
    if until_ms is not None:
        # Once it has expired, it does not stop what is behind it.
        claimed.again_at_ms[record.target_agent_id] = min(until_ms, record.expires_at_ms)


# -- messages that are sent again ---------------------------------------------------------------


def retry(
    message: MessageRecord, low_watermark: int, now_ms: int, decide: RetryDecision, due: Due
) -> None:
    """Set the next attempt of a message that is due, or give it up (AACP-13, AACP-14).

    Args:
        message: the record, which is changed.
        low_watermark: that of its link.
        now_ms: the time.
        decide: returns when it is due next; None gives it up.
        due: gets a copy of the message.
    """
    if message.state is MessageState.PENDING and message.expires_at_ms <= now_ms:
        make_void(message)
        due.given_up.append(copy_of_message(message))
    next_at_ms = decide(copy_of_message(message))
    if next_at_ms is None:
        make_void(message)
        due.given_up.append(copy_of_message(message))
        next_at_ms = decide(copy_of_message(message))
    message.attempts += 1
    message.next_attempt_at_ms = next_at_ms
    sent = copy_of_message(message)
    sent.low_watermark = low_watermark
    due.messages.append(sent)


def make_void(message: MessageRecord) -> None:
    """Make a message a tombstone (AACP-14)."""
    message.state, message.payload = MessageState.TOMBSTONE, VOID_PAYLOAD
