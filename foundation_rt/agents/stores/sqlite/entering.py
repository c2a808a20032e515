"""Messages enter the ledger: those that are made here, and those that come in."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from attrs import define, evolve, field

from ...ledger.rules import judge, may_settle, read_response
from ...ledger.session_manager import (
    LinkState,
    SequenceStatus,
    acknowledge,
    allocate,
    record_arrival,
    record_local_arrival,
)
from ...ledger.types import (
    VOID_PAYLOAD,
    Appended,
    Envelope,
    IncomingEnvelope,
    Link,
    MessageState,
    MessageType,
    OutgoingMessage,
    Received,
    RequestRecord,
    RequestState,
    Verdict,
)
from .. import records
from .batch import Batch
from .rows import IS_OUTBOUND, MESSAGE, ids_of, read_requests


def append(
    connection: sqlite3.Connection, messages: Sequence[OutgoingMessage], own: int
) -> list[Appended]:
    """See `AACPPersistenceAdapter`.

    Args:
        own: the incarnation of this ledger.
    """
    batch = Batch(connection, read_requests(connection, [outgoing.key for outgoing in messages]))
    # What is executed here and has a request id has no message.
    elsewhere = [each.message_id for each in messages if not each.local or each.request_id is None]
    sent = dict(
        connection.execute(
            "SELECT message_id, seq FROM messages"
            " WHERE message_id IN (SELECT value FROM json_each(?))",
            (ids_of(elsewhere),),
        ).fetchall()
    )
    appended = [_append(batch, outgoing, sent, own) for outgoing in messages]
    batch.flush()
    return appended


def _append(batch: Batch, outgoing: OutgoingMessage, sent: dict[str, int], own: int) -> Appended:
    existing = batch.requests.get(outgoing.key)
    verdict = judge(existing, outgoing.digest)
    if existing is not None:
        seq = existing.seq if verdict is Verdict.DUPLICATE else 0
        return Appended(verdict, seq, evolve(existing))
    if outgoing.message_id in sent:  # an event to another ledger, entered before
        return Appended(Verdict.DUPLICATE, sent[outgoing.message_id])
    link = (outgoing.source_agent_id, outgoing.target_agent_id)
    state = batch.link(link)
    seq = allocate(state)
    if outgoing.local:
        _append_local(batch, outgoing, link, seq, own)
        return Appended(Verdict.NEW, seq)
    if outgoing.message_type is MessageType.REQUEST:
        batch.add(records.outgoing_request(outgoing, seq))
    message = records.outgoing_message(outgoing, seq)
    sent[outgoing.message_id] = seq
    batch.post(message)
    message.low_watermark = state.low_watermark
    return Appended(Verdict.NEW, seq, None, message)


def _append_local(batch: Batch, outgoing: OutgoingMessage, link: Link, seq: int, own: int) -> None:
    """Enter what is sent and received in one."""
    state = batch.link(link)
    incarnation, before, waiting = state.incarnation, state.received_up_to, state.out_of_order
    record_local_arrival(state, seq, own)
    if waiting and state.incarnation != incarnation:
        batch.release_held(link, None)
    record = records.outgoing_request(outgoing, seq)
    batch.enter(record, state)
    batch.add(record)
    if state.received_up_to > before + 1:  # as in `_Reception.take`
        batch.release_held(link, state.received_up_to)


# -- receive --------------------------------------------------------------------------------------


def receive(
    connection: sqlite3.Connection,
    arrivals: Sequence[IncomingEnvelope],
    own: int,
    now_ms: int,
    ttl_ms: int,
) -> Received:
    """See `AACPPersistenceAdapter`.

    Args:
        own: the incarnation of this ledger.
    """
    keys = (each.envelope.request_id or each.envelope.message_id for each in arrivals)
    reception = _Reception(Batch(connection, read_requests(connection, keys)), own, now_ms, ttl_ms)
    for incoming in arrivals:
        reception.take(incoming)
    reception.batch.flush()
    reception.settle_acknowledged()
    return reception.received


@define(eq=False, repr=False)
class _Reception:
    """A batch of arrivals on its way into the ledger."""

    batch: Batch
    own: int
    now_ms: int
    ttl_ms: int
    received: Received = field(factory=lambda: Received({}, [], [], [], [], 0, False))
    # By link: the first number that was not acknowledged before, and the one behind the last.
    _acknowledged: dict[Link, tuple[int, int]] = field(factory=dict)

    def take(self, incoming: IncomingEnvelope) -> None:
        """Take note of one envelope: its ack, its number, itself."""
        envelope, received = incoming.envelope, self.received
        link = (envelope.source_agent_id, envelope.target_agent_id)
        if envelope.ack is not None:
            self._acknowledge((link[1], link[0]), envelope.ack)
        if envelope.seq == 0:
            return
        state = self.batch.link(link)
        incarnation, before, waiting = state.incarnation, state.received_up_to, state.out_of_order
        ours = envelope.incarnation == self.own
        found = record_arrival(
            state, envelope.seq, envelope.incarnation, envelope.low_watermark, ours=ours
        )
        if found is SequenceStatus.OUTDATED:
            received.refused += 1
            received.outdated.append(envelope)
            return
        if waiting and state.incarnation != incarnation:
            received.ready |= self.batch.release_held(link, None)
        received.acks[link], received.incarnation[link] = state.received_up_to, state.incarnation
        if found is SequenceStatus.BEYOND:
            received.refused += 1
        elif found is SequenceStatus.NEW and not envelope.tombstone:
            passed = min(state.received_up_to, envelope.seq - 1)
            # Its low watermark filled a gap below it: that comes first.
            if waiting and passed > before:
                received.ready |= self.batch.release_held(link, passed)
            received.accepted.append(envelope)
            self._take_in(incoming, state)
        if state.received_up_to > before + 1:  # by one, nothing that was held is passed
            received.ready |= self.batch.release_held(link, state.received_up_to)

    def _take_in(self, incoming: IncomingEnvelope, state: LinkState) -> None:
        """A message that was not here before, whose number has just been noted."""
        envelope = incoming.envelope
        if envelope.message_type is MessageType.RESPONSE:
            self._settle(envelope)
            return
        existing = self.batch.requests.get(envelope.request_id or envelope.message_id)
        verdict = judge(existing, incoming.digest)
        if existing is None:
            record = records.received_request(incoming, self.now_ms, self.ttl_ms)
            self._enter(record, incoming, state)
            self.batch.add(record)
        elif verdict is Verdict.DUPLICATE and existing.state is RequestState.SENT:
            self._enter(existing, incoming, state)
        elif envelope.message_type is MessageType.REQUEST:
            self._answer_again(incoming, existing, verdict)

    def _enter(self, record: RequestRecord, incoming: IncomingEnvelope, state: LinkState) -> None:
        envelope = incoming.envelope
        record.seq = envelope.seq
        record.needs_response = envelope.message_type is MessageType.REQUEST
        self.batch.enter(record, state)
        self.received.ready |= record.state is RequestState.RECEIVED

    def _settle(self, response: Envelope) -> None:
        """The outcome of a request that was made here."""
        record = self.batch.requests.get(response.request_id or "")
        if record is not None and may_settle(record, response):
            record.state, record.result, record.error = read_response(response.payload)
            record.finished_at_ms = self.now_ms
            self.batch.finish(record)
            self.received.finished.append(record)

    def _answer_again(
        self, incoming: IncomingEnvelope, existing: RequestRecord, verdict: Verdict
    ) -> None:
        """A request whose id is known, under a number that is not: asked again, or another's."""
        payload = records.answer_again(existing, verdict)
        if payload is not None:
            self.received.responses.append(
                self.batch.respond(
                    incoming.envelope, payload, existing.expires_at_ms, incoming, self.now_ms
                )
            )

    def _acknowledge(self, link: Link, ack: int) -> None:
        settled = acknowledge(self.batch.link(link), ack)
        if settled:
            first, _ = self._acknowledged.get(link, (settled.start, 0))
            self._acknowledged[link] = (first, settled.stop)

    def settle_acknowledged(self) -> None:
        """Write what the acks of the batch have settled, once for each link."""
        for link, (first, end) in self._acknowledged.items():
            where = (
                f"WHERE {IS_OUTBOUND} AND source_agent_id = ? AND target_agent_id = ?"
                " AND seq >= ? AND seq < ?"
            )
            values = (*link, first, end)
            connection = self.batch.connection
            # What is void is gone when its number has passed (AACP-14).
            connection.execute(f"DELETE FROM messages {where} AND state = 'TOMBSTONE'", values)
            rows = connection.execute(
                f"SELECT {MESSAGE} FROM messages {where} ORDER BY seq", values
            ).fetchall()
            connection.execute(
                "UPDATE messages SET state = 'ACKNOWLEDGED', payload = ?,"
                f" next_attempt_at_ms = NULL {where}",
                (VOID_PAYLOAD, *values),
            )
            for message in map(records.message_of, rows):
                message.state = MessageState.ACKNOWLEDGED
                message.payload, message.next_attempt_at_ms = VOID_PAYLOAD, None
                self.received.acknowledged.append(message)
