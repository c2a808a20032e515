"""The events of a simulation, in order: tuples that are rendered only when they are read."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, TypeAlias

from foundation_rt.agents.ledger.types import (
    Appended,
    Claim,
    ClaimCompletion,
    Claimed,
    Completed,
    Due,
    Envelope,
    IncomingEnvelope,
    MessageRecord,
    MessageType,
    OutgoingMessage,
    Received,
    Release,
    RequestRecord,
)

Event: TypeAlias = tuple[int, str, int, tuple[Any, ...]]
"""Time in ms since the start; the kind of event; its process; details."""


def render(events: Iterable[Event]) -> list[str]:
    """Return one line for every event."""
    return [
        f"{time_ms:>8} ms  {who!s:<6} {what:<10} {' '.join(map(_show, details))}".rstrip()
        for time_ms, what, who, details in events
    ]


def digest(events: Iterable[Event]) -> str:
    """Return a digest that two runs share if, and only if, their events are the same."""
    return blake2b("\n".join(render(events)).encode(), digest_size=16).hexdigest()


def _show(value: Any) -> str:
    show = _SHOWN_BY.get(type(value))
    return str(value) if show is None else show(value)


def _show_all(values: Iterable[Any]) -> str:
    return "[" + ", ".join(map(_show, values)) + "]"


def _envelope(envelope: Envelope) -> str:
    ack = "" if envelope.ack is None else f" ack {envelope.ack}"
    link = f"{envelope.source_agent_id}>{envelope.target_agent_id}"
    if envelope.seq == 0:
        return f"({link}{ack})"
    kind = "TOMBSTONE" if envelope.tombstone else envelope.message_type.value
    request = envelope.request_id or ""
    return f"({link} #{envelope.seq} {kind} {request} {_text(envelope.payload)}{ack})"


def _text(payload: bytes | None) -> str:
    return "" if payload is None else payload.decode()


def _outgoing(outgoing: OutgoingMessage) -> str:
    where = "here" if outgoing.local else "there"
    link = f"{outgoing.source_agent_id}>{outgoing.target_agent_id}"
    return (
        f"({link} {outgoing.message_type.value} {outgoing.key} {_text(outgoing.payload)} {where})"
    )


def _message(message: MessageRecord) -> str:
    kind = "" if message.message_type is MessageType.REQUEST else f" {message.message_type.value}"
    link = f"{message.source_agent_id}>{message.target_agent_id}"
    return f"({link} #{message.seq}{kind} {message.state.value} attempt {message.attempts})"


def _record(record: RequestRecord) -> str:
    outcome = _text(record.result or record.error)
    return f"({record.request_id} {record.state.value} epoch {record.epoch} {outcome})"


def _appended(appended: Appended) -> str:
    claimed = "" if appended.claim is None else f" claimed as {appended.claim.epoch}"
    return f"{appended.verdict.value} #{appended.seq}{claimed}"


def _received(received: Received) -> str:
    acks = ", ".join(f"{link[0]}>{link[1]} {ack}" for link, ack in received.acks.items())
    return (
        f"acks [{acks}] finished {_show_all(received.finished)}"
        f" acknowledged {_show_all(received.acknowledged)}"
        f" responses {_show_all(received.responses)}"
    )


def _claim(claim: Claim) -> str:
    return f"({claim.target_agent_id} {claim.request_id} #{claim.seq} epoch {claim.epoch})"


def _completed(completed: Completed) -> str:
    if completed.record is None:
        return "not taken" if completed.failure is None else repr(completed.failure)
    answer = "" if completed.response is None else f" RESPONSE #{completed.response.seq}"
    return f"{_record(completed.record)}{answer}"


def _completion(completion: ClaimCompletion) -> str:
    outcome = _text(completion.result or completion.error)
    writes = "" if completion.in_transaction is None else " writes"
    epoch = f"epoch {completion.epoch}{writes}"
    return f"({completion.request_id} {epoch} {completion.state.value} {outcome})"


def _release(release: Release) -> str:
    return f"({release.request_id} epoch {release.epoch} from {release.not_before_ms})"


_SHOWN_BY: dict[type, Any] = {
    list: _show_all,
    tuple: _show_all,
    bytes: _text,
    Envelope: _envelope,
    IncomingEnvelope: lambda incoming: _envelope(incoming.envelope),
    OutgoingMessage: _outgoing,
    MessageRecord: _message,
    RequestRecord: _record,
    Appended: _appended,
    Received: _received,
    Claim: _claim,
    Claimed: lambda claimed: f"{_show_all(claimed.claims)} again {claimed.again_at_ms}",
    Completed: _completed,
    ClaimCompletion: _completion,
    Release: _release,
    Due: lambda due: f"{_show_all(due.messages)} void {_show_all(due.given_up)} {due.next_at_ms}",
}
