"""A ledger in memory: for tests, for simulations, and for agents that may forget.

It is also the measure of the others: what it answers, every store answers.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import orjson
from attrs import Factory, define, evolve, field

from ...errors import StructuredError
from ..ledger.rules import (
    Claimability,
    claimability,
    is_repeated,
    judge,
    may_complete,
    may_settle,
    read_response,
    response_payload,
)
from ..ledger.session_manager import (
    LinkState,
    SequenceStatus,
    acknowledge,
    allocate,
    record_arrival,
    record_local_arrival,
)
from ..ledger.types import (
    TERMINAL,
    VOID_PAYLOAD,
    Appended,
    Claimed,
    Completed,
    Completion,
    Due,
    Envelope,
    IncomingEnvelope,
    Link,
    MessageRecord,
    MessageState,
    MessageType,
    Outcome,
    OutgoingMessage,
    Received,
    Release,
    RequestRecord,
    RequestState,
    Verdict,
)
from ..persistence import RetryDecision
from . import records
from .memory_usage import MemoryLimits, Usage, outcome_size, size_of


@define(eq=False, repr=False)
class InMemoryAACPPersistenceAdapter:
    """Keeps everything in dictionaries.

    Records that can still change are copied on their way out; those that cannot are not. What is
    beyond its limits is not taken (AACP-49).

    Args:
        limits: by default those of the settings' defaults, and no share for principals.
        incarnation: of the ledger; by default the time.
    """

    durability = (
        "The in-memory adapter provides best-effort tracking for a single process lifetime only and"
        " MUST NOT be considered durable across restarts."
    )
    shared = False
    takes_writes = False
    immediate = True

    limits: MemoryLimits = field(factory=MemoryLimits, kw_only=True)
    incarnation: int = field(factory=lambda: time.time_ns() // 1_000_000, kw_only=True)
    _requests: dict[str, RequestRecord] = field(factory=dict, init=False)
    _messages: dict[str, MessageRecord] = field(factory=dict, init=False)
    _links: dict[Link, LinkState] = field(factory=dict, init=False)
    # By link, then by number: what is on its way.
    _outbox: dict[Link, dict[int, MessageRecord]] = field(factory=dict, init=False)
    # By link, then by number: what waits for an earlier message.
    _held: dict[Link, dict[int, RequestRecord]] = field(factory=dict, init=False)
    # By target: what is RECEIVED or CLAIMED, in the order of its positions.
    _queues: dict[str, dict[str, RequestRecord]] = field(factory=dict, init=False)
    # Next attempts; an entry that no longer agrees with its record is void.
    _attempts: list[tuple[int, str]] = field(factory=list, init=False)
    # When requests and messages expire, by id; likewise.
    _expiries: list[tuple[int, str]] = field(factory=list, init=False)
    _position: int = field(default=0, init=False)
    _usage: Usage = field(
        default=Factory(lambda store: Usage(store.limits), takes_self=True), init=False
    )

    async def open(self) -> None:
        """Nothing is needed."""

    async def close(self) -> None:
        """Nothing is given back: what is in memory stays until the adapter is collected."""

    def on_change(self, callback: Callable[[], object]) -> None:
        """Nobody else can change it."""

    # -- append -------------------------------------------------------------------------------

    async def append(self, messages: Sequence[OutgoingMessage], now_ms: int) -> list[Appended]:
        """See `AACPPersistenceAdapter`."""
        return [self._append(outgoing) for outgoing in messages]

    def _append(self, outgoing: OutgoingMessage) -> Appended:
        existing = self._requests.get(outgoing.key)
        verdict = judge(existing, outgoing.digest)
        if existing is not None:
            seq = existing.seq if verdict is Verdict.DUPLICATE else 0
            return Appended(verdict, seq, _snapshot(existing))
        sent = self._messages.get(outgoing.message_id)
        if sent is not None:  # an event to another ledger, entered before
            return Appended(Verdict.DUPLICATE, sent.seq)
        if not self._usage.has_room_for_message(outgoing):
            return Appended(Verdict.FULL, 0)
        link = (outgoing.source_agent_id, outgoing.target_agent_id)
        state = self._link(link)
        seq = allocate(state)
        if outgoing.local:
            incarnation = state.incarnation
            record_local_arrival(state, seq, self.incarnation)
            if state.incarnation != incarnation:
                self._release_held(link, None)
            record = records.outgoing_request(outgoing, seq)
            self._keep(record)
            self._enter(record, link, state)
            self._release_held(link, state.received_up_to)
            return Appended(Verdict.NEW, seq)
        if outgoing.message_type is MessageType.REQUEST:
            self._keep(records.outgoing_request(outgoing, seq))
        message = records.outgoing_message(outgoing, seq)
        self._post(message)
        return Appended(Verdict.NEW, seq, None, evolve(message, low_watermark=state.low_watermark))

    def _keep(self, record: RequestRecord) -> None:
        self._usage.add(record)
        self._requests[record.request_id] = record
        heapq.heappush(self._expiries, (record.expires_at_ms, record.request_id))

    def _post(self, message: MessageRecord) -> None:
        self._usage.add(message)
        self._messages[message.message_id] = message
        heapq.heappush(self._expiries, (message.expires_at_ms, message.message_id))
        if message.state is not MessageState.ACKNOWLEDGED:
            link = (message.source_agent_id, message.target_agent_id)
            self._outbox.setdefault(link, {})[message.seq] = message
            self._plan(message)

    def _plan(self, message: MessageRecord) -> None:
        if message.next_attempt_at_ms is not None:
            heapq.heappush(self._attempts, (message.next_attempt_at_ms, message.message_id))

    def _link(self, link: Link) -> LinkState:
        state = self._links.get(link)
        if state is None:
            state = self._links[link] = LinkState()
        return state

    # -- receive ------------------------------------------------------------------------------

    async def receive(
        self, arrivals: Sequence[IncomingEnvelope], now_ms: int, ttl_ms: int
    ) -> Received:
        """See `AACPPersistenceAdapter`."""
        received = Received({}, [], [], [], [], 0, False)
        for incoming in arrivals:
            self._receive(incoming, now_ms, ttl_ms, received)
        return received

    def _receive(
        self, incoming: IncomingEnvelope, now_ms: int, ttl_ms: int, received: Received
    ) -> None:
        envelope = incoming.envelope
        link = (envelope.source_agent_id, envelope.target_agent_id)
        if envelope.ack is not None:
            self._acknowledge((link[1], link[0]), envelope.ack, received)
        if envelope.seq == 0:
            return
        key = envelope.request_id or envelope.message_id
        if key not in self._requests and not self._usage.has_room_for_envelope(envelope):
            received.refused += 1
            return
        state = self._link(link)
        incarnation, before = state.incarnation, state.received_up_to
        ours = envelope.incarnation == self.incarnation
        found = record_arrival(
            state, envelope.seq, envelope.incarnation, envelope.low_watermark, ours=ours
        )
        if found is SequenceStatus.OUTDATED:
            received.refused += 1
            received.outdated.append(envelope)
            return
        if state.incarnation != incarnation and self._release_held(link, None):
            received.ready = True
        received.acks[link], received.incarnation[link] = state.received_up_to, state.incarnation
        if found is SequenceStatus.BEYOND:
            received.refused += 1
        elif found is SequenceStatus.NEW and not envelope.tombstone:
            passed = min(state.received_up_to, envelope.seq - 1)
            if passed > before and self._release_held(link, passed):
                received.ready = True  # its low watermark filled a gap below it: that comes first
            received.accepted.append(envelope)
            self._take_in(incoming, link, state, now_ms, ttl_ms, received)
        if state.received_up_to > before and self._release_held(link, state.received_up_to):
            received.ready = True

    def _take_in(
        self,
        incoming: IncomingEnvelope,
        link: Link,
        state: LinkState,
        now_ms: int,
        ttl_ms: int,
        received: Received,
    ) -> None:
        """A message that was not here before, whose number has just been noted."""
        envelope = incoming.envelope
        if envelope.message_type is MessageType.RESPONSE:
            self._settle(envelope, now_ms, received)
            return
        key = envelope.request_id or envelope.message_id
        existing = self._requests.get(key)
        verdict = judge(existing, incoming.digest)
        if existing is None or (
            verdict is Verdict.DUPLICATE and existing.state is RequestState.SENT
        ):
            record = existing
            if record is None:
                record = records.received_request(incoming, now_ms, ttl_ms)
                self._keep(record)
            record.seq = envelope.seq
            record.needs_response = envelope.message_type is MessageType.REQUEST
            self._enter(record, link, state)
            received.ready |= record.state is RequestState.RECEIVED
        elif envelope.message_type is MessageType.REQUEST:
            self._answer_again(incoming, existing, verdict, now_ms, received)

    def _settle(self, response: Envelope, now_ms: int, received: Received) -> None:
        """The outcome of a request that was made here."""
        record = self._requests.get(response.request_id or "")
        if record is not None and may_settle(record, response):
            self._usage.finish(record, *read_response(response.payload), now_ms)
            received.finished.append(record)

    def _answer_again(
        self,
        incoming: IncomingEnvelope,
        existing: RequestRecord,
        verdict: Verdict,
        now_ms: int,
        received: Received,
    ) -> None:
        """A request whose id is known, under a number that is not: asked again, or another's."""
        payload = records.answer_again(existing, verdict)
        if payload is not None:
            received.responses.append(
                self._respond(incoming.envelope, payload, existing.expires_at_ms, incoming, now_ms)
            )

    def _respond(
        self,
        request: Envelope | RequestRecord,
        payload: bytes,
        expires_at_ms: int,
        reply: IncomingEnvelope | Completion,
        now_ms: int,
    ) -> MessageRecord:
        """Enter the RESPONSE to a request that came from another ledger."""
        state = self._link((request.target_agent_id, request.source_agent_id))
        seq = allocate(state)
        message = records.response_to(request, payload, expires_at_ms, reply, seq, now_ms)
        self._post(message)
        return evolve(message, low_watermark=state.low_watermark)

    def _acknowledge(self, link: Link, ack: int, received: Received) -> None:
        state = self._links.get(link)
        if state is None:
            return
        outbox = self._outbox.get(link, {})
        for seq in acknowledge(state, ack):
            message = outbox.pop(seq, None)
            if message is not None:
                self._usage.remove(message)
                void = message.state is MessageState.TOMBSTONE
                message.state = MessageState.ACKNOWLEDGED
                message.payload, message.next_attempt_at_ms = VOID_PAYLOAD, None
                if void:
                    del self._messages[message.message_id]
                else:
                    self._usage.add(message)
                    received.acknowledged.append(message)

    def _enter(self, record: RequestRecord, link: Link, state: LinkState) -> None:
        """Queue a request whose number was noted, or hold it until what comes before is there."""
        if record.seq > state.received_up_to:
            record.state = RequestState.HELD
            self._held.setdefault(link, {})[record.seq] = record
        else:
            self._queue(record)

    def _queue(self, record: RequestRecord) -> None:
        self._position += 1
        record.state, record.position = RequestState.RECEIVED, self._position
        self._queues.setdefault(record.target_agent_id, {})[record.request_id] = record

    def _release_held(self, link: Link, up_to: int | None) -> bool:
        """Queue what waited for a gap that is filled now, in the order of its numbers.

        Args:
            up_to: nothing is missing up to this number; None: none will ever come of those missing.
        """
        held = self._held.get(link)
        if not held:
            return False
        ready = sorted(seq for seq in held if up_to is None or seq <= up_to)
        for seq in ready:
            self._queue(held.pop(seq))
        return bool(ready)

    # -- execution ----------------------------------------------------------------------------

    async def claim(
        self,
        wanted: Mapping[str, int],
        owner: str,
        now_ms: int,
        lease_until_ms: int,
        idle: Collection[str] = (),
    ) -> Claimed:
        """See `AACPPersistenceAdapter`."""
        claimed = Claimed([], None)
        for agent_id, left in wanted.items():
            begins = agent_id in idle
            for record in self._queues.get(agent_id, {}).values():
                if left == 0:
                    break
                decision = claimability(record, owner, now_ms)
                if decision is Claimability.STOP:
                    records.note_stop(claimed, record)
                    break
                if decision is Claimability.TAKE:
                    claimed.claims.append(records.claim(record, owner, lease_until_ms, begins))
                    begins, left = False, left - 1
        return claimed

    async def complete(self, completions: Sequence[Completion], now_ms: int) -> list[Completed]:
        """See `AACPPersistenceAdapter`."""
        return [self._complete(completion, now_ms) for completion in completions]

    def _complete(self, completion: Completion, now_ms: int) -> Completed:
        record = self._requests.get(completion.request_id)
        if is_repeated(record, completion):
            return Completed(record, None)
        if record is None or not may_complete(record, completion):
            return Completed(None, None)
        if completion.in_transaction is not None:
            return records.not_within()
        del self._queues[record.target_agent_id][record.request_id]
        self._usage.finish(record, completion.state, completion.result, completion.error, now_ms)
        if not record.needs_response:
            return Completed(record, None)
        payload = response_payload(record.state, record.result, record.error)
        return Completed(
            record, self._respond(record, payload, record.expires_at_ms, completion, now_ms)
        )

    async def renew(self, claims: Sequence[tuple[str, int]], lease_until_ms: int) -> list[bool]:
        """See `AACPPersistenceAdapter`."""
        held = []
        for request_id, epoch in claims:
            record = self._claimed(request_id, epoch)
            if record is not None:
                record.lease_until_ms = lease_until_ms
            held.append(record is not None)
        return held

    async def release(self, releases: Sequence[Release]) -> None:
        """See `AACPPersistenceAdapter`."""
        for release in releases:
            record = self._claimed(release.request_id, release.epoch)
            if record is not None:
                record.state = RequestState.RECEIVED
                record.owner = record.lease_until_ms = None
                record.not_before_ms = release.not_before_ms
                record.executions = release.executions

    def _claimed(self, request_id: str, epoch: int) -> RequestRecord | None:
        record = self._requests.get(request_id)
        if record is None or record.state is not RequestState.CLAIMED or record.epoch != epoch:
            return None
        return record

    # -- retransmission -----------------------------------------------------------------------

    async def take_due(self, now_ms: int, limit: int, decide: RetryDecision) -> Due:
        """See `AACPPersistenceAdapter`."""
        due = Due([], [], None)
        attempts = self._attempts
        while attempts:
            at_ms, message_id = attempts[0]
            message = self._messages.get(message_id)
            if message is None or message.next_attempt_at_ms != at_ms:
                heapq.heappop(attempts)
                continue
            if at_ms > now_ms or len(due.messages) == limit:
                due.next_at_ms = at_ms
                break
            heapq.heappop(attempts)
            state = self._link((message.source_agent_id, message.target_agent_id))
            self._usage.remove(message)
            records.retry(message, state.low_watermark, now_ms, decide, due)
            self._usage.add(message)
            self._plan(message)
        return due

    async def reschedule(
        self, message_id: str, at_ms: int, *, give_up: bool = False
    ) -> MessageRecord | None:
        """See `AACPPersistenceAdapter`."""
        message = self._messages.get(message_id)
        if message is None or message.state is MessageState.ACKNOWLEDGED:
            return None
        if give_up:
            self._make_void(message)
        message.next_attempt_at_ms = at_ms
        self._plan(message)
        return evolve(message)

    def _make_void(self, message: MessageRecord) -> None:
        self._usage.remove(message)
        records.make_void(message)
        self._usage.add(message)

    # -- records ------------------------------------------------------------------------------

    async def put_request_record(self, request_id: str, record: RequestRecord) -> None:
        """See `AACPPersistenceAdapter`."""
        if request_id not in self._requests:
            self._usage.demand(record.request_id, 1, size_of(record))
            self._keep(evolve(record))

    async def put_message_record(self, message_id: str, record: MessageRecord) -> None:
        """See `AACPPersistenceAdapter`."""
        if message_id not in self._messages:
            self._usage.demand(record.request_id, 1, size_of(record))
            await self.update_last_sequence(
                record.source_agent_id, record.target_agent_id, record.seq
            )
            self._post(evolve(record))

    async def get_request_record(self, request_id: str) -> RequestRecord | None:
        """See `AACPPersistenceAdapter`."""
        record = self._requests.get(request_id)
        return None if record is None else _snapshot(record)

    async def get_request_records(self, request_ids: Sequence[str]) -> list[RequestRecord]:
        """See `AACPPersistenceAdapter`."""
        found = (self._requests.get(request_id) for request_id in request_ids)
        return [_snapshot(record) for record in found if record is not None]

    async def get_message_record(self, message_id: str) -> MessageRecord | None:
        """See `AACPPersistenceAdapter`."""
        message = self._messages.get(message_id)
        return None if message is None else evolve(message)

    async def mark_completed(
        self, request_id: str, result: bytes | None, now_ms: int, completion_ref: str | None = None
    ) -> bool:
        """See `AACPPersistenceAdapter`."""
        record = self._requests.get(request_id)
        if record is not None and record.state is RequestState.SENT:
            self._usage.demand(request_id, 0, outcome_size(result))
            self._usage.finish(record, RequestState.COMPLETED, result, None, now_ms)
            record.completion_ref = completion_ref
        return record is not None and record.state is RequestState.COMPLETED

    async def mark_failed(self, request_id: str, error: StructuredError, now_ms: int) -> bool:
        """See `AACPPersistenceAdapter`."""
        record = self._requests.get(request_id)
        if record is not None and record.state is RequestState.SENT:
            encoded = orjson.dumps(error.to_wire())
            self._usage.demand(request_id, 0, outcome_size(encoded))
            self._usage.finish(record, RequestState.FAILED, None, encoded, now_ms)
        return record is not None and record.state is RequestState.FAILED

    # -- numbers ------------------------------------------------------------------------------

    async def get_last_sequence(self, source_agent_id: str, target_agent_id: str) -> int:
        """See `AACPPersistenceAdapter`."""
        state = self._links.get((source_agent_id, target_agent_id))
        return 0 if state is None else state.last_seq

    async def update_last_sequence(
        self, source_agent_id: str, target_agent_id: str, seq: int
    ) -> None:
        """See `AACPPersistenceAdapter`."""
        state = self._link((source_agent_id, target_agent_id))
        state.last_seq = max(state.last_seq, seq)

    # -- recovery and retention ---------------------------------------------------------------

    async def get_unacknowledged_messages(
        self, source_agent_id: str, target_agent_id: str
    ) -> list[Envelope]:
        """See `AACPPersistenceAdapter`."""
        outbox = self._outbox.get((source_agent_id, target_agent_id), {})
        messages = [outbox[seq] for seq in sorted(outbox)]
        return [each.envelope(each.message_id, None, self.incarnation) for each in messages]

    async def list_pending_requests(self, older_than_ms: int | None = None) -> list[RequestRecord]:
        """See `AACPPersistenceAdapter`."""
        found = [
            evolve(record)
            for record in self._requests.values()
            if record.state not in TERMINAL and _is_older(record, older_than_ms)
        ]
        return sorted(found, key=lambda record: (record.created_at_ms, record.request_id))

    async def list_messages_in_state(
        self, outcome: Outcome, older_than_ms: int | None = None
    ) -> list[MessageRecord]:
        """See `AACPPersistenceAdapter`."""
        found = [
            evolve(message)
            for message in self._messages.values()
            if message.outcome is outcome and _is_older(message, older_than_ms)
        ]
        return sorted(found, key=lambda message: (message.created_at_ms, message.message_id))

    async def purge_expired(self, now_ms: int) -> int:
        """See `AACPPersistenceAdapter`."""
        purged = 0
        while self._expiries and self._expiries[0][0] <= now_ms:
            at_ms, key = heapq.heappop(self._expiries)
            purged += self._purge_request(key, at_ms) + self._purge_message(key, at_ms, now_ms)
        return purged

    def _purge_request(self, request_id: str, at_ms: int) -> bool:
        record = self._requests.get(request_id)
        if record is None or record.expires_at_ms != at_ms:
            return False
        self._usage.remove(record)
        del self._requests[request_id]
        self._queues.get(record.target_agent_id, {}).pop(request_id, None)
        held = self._held.get((record.source_agent_id, record.target_agent_id), {})
        if held.get(record.seq) is record:
            del held[record.seq]
        return True

    def _purge_message(self, message_id: str, at_ms: int, now_ms: int) -> bool:
        message = self._messages.get(message_id)
        if message is None or message.expires_at_ms != at_ms:
            return False
        if message.state is MessageState.ACKNOWLEDGED:
            self._usage.remove(message)
            del self._messages[message_id]
        elif message.state is MessageState.PENDING:
            self._make_void(message)
            message.next_attempt_at_ms = now_ms
            self._plan(message)
        else:
            return False
        return True


def _snapshot(record: RequestRecord) -> RequestRecord:
    return record if record.state in TERMINAL else evolve(record)


def _is_older(record: RequestRecord | MessageRecord, than_ms: int | None) -> bool:
    return than_ms is None or record.created_at_ms < than_ms
