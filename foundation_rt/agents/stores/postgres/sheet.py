"""What a batch works on: read under locks, changed by the rules, written in sets.

A batch locks the links and queues that it touches, reads what is known of its requests, decides
item by item with the functions of `session_manager` and `ledger`, as the ledger in memory does, and
writes everything at once. That is two round trips for a batch of any size, and the rules stand in
one place.

While the links are locked no other transaction enters anything on them. That another link brings
the same request in the same instant is found out by the database, whose key it violates; the
transaction is done again and then sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    Appended,
    Completion,
    Envelope,
    IncomingEnvelope,
    Link,
    MessageRecord,
    MessageType,
    OutgoingMessage,
    Received,
    RequestRecord,
    RequestState,
    Verdict,
)
from .. import records
from . import statements
from .connections import Query, Raced, Transaction


@define(eq=False, repr=False)
class Sheet:
    """Links, queues, requests and messages, as they are within one transaction.

    Attributes:
        own: the incarnation of this ledger.
        requests: what is known, by id.
        numbers: of messages to other ledgers that were there already, by message id.
    """

    own: int
    _links: dict[Link, LinkState] = field(factory=dict)
    _queues: dict[str, int] = field(factory=dict)
    requests: dict[str, RequestRecord] = field(factory=dict)
    numbers: dict[str, int] = field(factory=dict)
    # What waits for a gap, by link and number.
    _held: dict[Link, dict[int, RequestRecord]] = field(factory=dict, init=False)
    _touched: set[Link] = field(factory=set, init=False)
    _moved: set[str] = field(factory=set, init=False)
    # What is to be written: by id, for a request is written once however often it was changed.
    _added: dict[str, RequestRecord] = field(factory=dict, init=False)
    _entered: dict[str, RequestRecord] = field(factory=dict, init=False)
    _finished: dict[str, RequestRecord] = field(factory=dict, init=False)
    _messages: list[MessageRecord] = field(factory=list, init=False)
    _settled: statements.Settled = field(factory=dict, init=False)

    @classmethod
    async def read(
        cls,
        transaction: Transaction,
        own: int,
        on_links: Iterable[Link],
        agents: Iterable[str] = (),
        request_ids: Sequence[str] = (),
        message_ids: Sequence[str] = (),
        sent: Sequence[str] = (),
    ) -> Sheet:
        """Lock links and queues, which are made if they are not there, and read the rest.

        Args:
            request_ids, message_ids: what may be there already.
            sent: requests that may be settled.
        """
        names, targets = set(on_links), set(agents)
        # A statement costs about 0.1 ms, whether it finds something or not.
        queries = [
            statements.lock_links(names) if names else None,
            statements.lock_queues(targets) if targets else None,
            statements.lock_sent(sent) if sent else None,
            statements.requests(request_ids) if request_ids else None,
            statements.messages(message_ids) if message_ids else None,
        ]
        rows = iter(await transaction.ask(*(query for query in queries if query)))
        links, queues, settling, known, messages = (next(rows) if each else [] for each in queries)
        if len(links) < len(names) or len(queues) < len(targets):
            # In a transaction of their own: made in this one, they would be locked out of order.
            await transaction.rollback()
            await transaction.commit(*statements.make_rows(names, targets))
            raise Raced
        requests = map(records.request_of, [*settling, *known])
        return cls(
            own,
            dict(map(statements.link_of, links)),
            dict(queues),
            {record.request_id: record for record in requests},
            {row[0]: row[4] for row in messages},
        )

    async def read_held(self, transaction: Transaction, envelopes: Iterable[Envelope]) -> None:
        """Read what may wait no longer when these have come in."""
        links = set()
        for envelope in envelopes:
            link = (envelope.source_agent_id, envelope.target_agent_id)
            state = self._links[link]
            if (
                state.last_seq  # and perhaps acknowledged, which `arrive` takes for received
                or envelope.incarnation != state.incarnation
                or envelope.seq == state.received_up_to + 1
                or envelope.low_watermark > state.received_up_to + 1
            ):
                links.add(link)
        await self._read_held(transaction, links)

    async def _read_held(self, transaction: Transaction, links: Iterable[Link]) -> None:
        with_gaps = [link for link in links if self._links[link].out_of_order]
        if with_gaps:
            [rows] = await transaction.ask(statements.lock_held(with_gaps))
            for found in map(records.request_of, rows):
                # The one that `requests` has, so that its answer shows what is changed here.
                record = self.requests.setdefault(found.request_id, found)
                link = (record.source_agent_id, record.target_agent_id)
                self._held.setdefault(link, {})[record.seq] = record

    async def read_held_before(
        self, transaction: Transaction, messages: Sequence[OutgoingMessage]
    ) -> None:
        """The same for what is made here."""
        local = {(each.source_agent_id, each.target_agent_id) for each in messages if each.local}
        await self._read_held(transaction, local)

    async def write(
        self, transaction: Transaction, then: Sequence[Query] = ()
    ) -> list[MessageRecord]:
        """Write everything and commit; return the messages that have been acknowledged."""
        queries = []
        if self._added:
            queries.append(statements.add_requests(list(self._added.values())))
        if self._entered:
            queries.append(statements.enter(list(self._entered.values())))
        if self._finished:
            queries.append(statements.finish(list(self._finished.values())))
        if self._messages:
            queries.append(statements.add_messages(self._messages))
        if self._touched:
            queries.append(statements.write_links({k: self._links[k] for k in self._touched}))
        if self._moved:
            queries.append(statements.write_queues({k: self._queues[k] for k in self._moved}))
        if not self._settled:
            await transaction.commit(*queries, then=then)
            return []
        queries.append(statements.forget_tombstones(self._settled))
        queries.append(statements.acknowledge(self._settled))
        rows = await transaction.commit(*queries, then=then)
        return [records.message_of(row) for row in rows[-1]]

    # -- what is sent -------------------------------------------------------------------------

    def append(self, outgoing: OutgoingMessage) -> Appended:
        """Enter what is made here."""
        existing = self.requests.get(outgoing.key)
        verdict = judge(existing, outgoing.digest)
        if existing is not None:
            seq = existing.seq if verdict is Verdict.DUPLICATE else 0
            return Appended(verdict, seq, evolve(existing))
        if outgoing.message_id in self.numbers:  # an event to another ledger, entered before
            return Appended(Verdict.DUPLICATE, self.numbers[outgoing.message_id])
        link = (outgoing.source_agent_id, outgoing.target_agent_id)
        state = self._touch(link)
        seq = allocate(state)
        if outgoing.local:
            incarnation = state.incarnation
            record_local_arrival(state, seq, self.own)
            if state.incarnation != incarnation:
                self._release_held(link, None)
            self._enter(self._add(records.outgoing_request(outgoing, seq)), link, state)
            self._release_held(link, state.received_up_to)
            return Appended(Verdict.NEW, seq)
        if outgoing.message_type is MessageType.REQUEST:
            self._add(records.outgoing_request(outgoing, seq))
        message = records.outgoing_message(outgoing, seq)
        self.post(message)
        message.low_watermark = state.low_watermark
        return Appended(Verdict.NEW, seq, None, message)

    def respond(
        self,
        request: Envelope | RequestRecord,
        payload: bytes,
        expires_at_ms: int,
        reply: IncomingEnvelope | Completion,
        now_ms: int,
    ) -> MessageRecord:
        """Enter the RESPONSE to a request that came from another ledger (AACP-16)."""
        state = self._touch((request.target_agent_id, request.source_agent_id))
        seq = allocate(state)
        message = records.response_to(request, payload, expires_at_ms, reply, seq, now_ms)
        self.post(message)
        message.low_watermark = state.low_watermark
        return message

    def advance(self, link: Link, seq: int) -> None:
        """Make `seq` the last number given out, unless a larger one was."""
        if seq > self._links[link].last_seq:
            self._touch(link).last_seq = seq

    def finish(self, record: RequestRecord) -> None:
        """Write the outcome of a request."""
        self._finished[record.request_id] = record

    def _add(self, record: RequestRecord) -> RequestRecord:
        self.requests[record.request_id] = self._added[record.request_id] = record
        return record

    def post(self, message: MessageRecord) -> None:
        self._messages.append(message)
        self.numbers[message.message_id] = message.seq

    def _touch(self, link: Link) -> LinkState:
        self._touched.add(link)
        return self._links[link]

    # -- what comes in ------------------------------------------------------------------------

    def receive(
        self, incoming: IncomingEnvelope, now_ms: int, ttl_ms: int, received: Received
    ) -> None:
        """Take note of an envelope, and of the acknowledgement in it."""
        envelope = incoming.envelope
        link = (envelope.source_agent_id, envelope.target_agent_id)
        if envelope.ack is not None:
            self._acknowledge((link[1], link[0]), envelope.ack)
        if envelope.seq == 0:
            return
        state = self._links[link]
        incarnation, before = state.incarnation, state.received_up_to
        ours = envelope.incarnation == self.own
        found = record_arrival(
            state, envelope.seq, envelope.incarnation, envelope.low_watermark, ours=ours
        )
        if found is SequenceStatus.OUTDATED:
            received.refused += 1
            received.outdated.append(envelope)
            return
        if state.incarnation != incarnation:
            self._touch(link)
            if self._release_held(link, None):
                received.ready = True
        received.acks[link], received.incarnation[link] = state.received_up_to, state.incarnation
        if found is SequenceStatus.BEYOND:
            received.refused += 1
        elif found is SequenceStatus.NEW and not envelope.tombstone:
            passed = min(state.received_up_to, envelope.seq - 1)
            if passed > before and self._release_held(link, passed):
                received.ready = True  # its low watermark filled a gap below it: that comes first
            received.accepted.append(envelope)
            self._take_in(incoming, link, now_ms, ttl_ms, received)
        if found is SequenceStatus.NEW or state.received_up_to > before:
            self._touch(link)
        if state.received_up_to > before and self._release_held(link, state.received_up_to):
            received.ready = True

    def _acknowledge(self, link: Link, ack: int) -> None:
        settled = acknowledge(self._links[link], ack)
        if settled:
            self._touch(link)
            first, _ = self._settled.get(link, (settled[0], 0))
            self._settled[link] = (first, settled[-1])

    def _take_in(
        self, incoming: IncomingEnvelope, link: Link, now_ms: int, ttl_ms: int, received: Received
    ) -> None:
        """A message that was not here before, whose number has just been noted."""
        envelope = incoming.envelope
        if envelope.message_type is MessageType.RESPONSE:
            self._settle(envelope, now_ms, received)
            return
        key = envelope.request_id or envelope.message_id
        existing = self.requests.get(key)
        verdict = judge(existing, incoming.digest)
        if existing is None or (
            verdict is Verdict.DUPLICATE and existing.state is RequestState.SENT
        ):
            record = existing
            if record is None:
                record = self._add(records.received_request(incoming, now_ms, ttl_ms))
            record.seq = envelope.seq
            record.needs_response = envelope.message_type is MessageType.REQUEST
            self._enter(record, link, self._links[link])
            received.ready = True
        elif envelope.message_type is MessageType.REQUEST:
            self._answer_again(incoming, existing, verdict, now_ms, received)

    def _settle(self, response: Envelope, now_ms: int, received: Received) -> None:
        """The outcome of a request that was made here."""
        record = self.requests.get(response.request_id or "")
        if record is not None and may_settle(record, response):
            record.state, record.result, record.error = read_response(response.payload)
            record.finished_at_ms = now_ms
            self.finish(record)
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
                self.respond(incoming.envelope, payload, existing.expires_at_ms, incoming, now_ms)
            )

    # -- what waits to be executed ------------------------------------------------------------

    def _enter(self, record: RequestRecord, link: Link, state: LinkState) -> None:
        """Queue a request whose number was noted, or hold it until what comes before is there."""
        if record.request_id not in self._added:
            self._entered[record.request_id] = record
        if record.seq > state.received_up_to:
            record.state = RequestState.HELD
            self._held.setdefault(link, {})[record.seq] = record
        else:
            self._queue(record)

    def _queue(self, record: RequestRecord) -> None:
        self._moved.add(record.target_agent_id)
        self._queues[record.target_agent_id] += 1
        record.state = RequestState.RECEIVED
        record.position = self._queues[record.target_agent_id]

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
            record = held.pop(seq)
            if record.request_id not in self._added:
                self._entered[record.request_id] = record
            self._queue(record)
        return bool(ready)
