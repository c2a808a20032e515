"""The rules of a ledger, applied to the records that one transaction works on.

A `UnitOfWork` is a working set of links, queues, requests and messages. `append`, `receive` and
`complete` change it item by item, with the functions of `session_manager` and `rules`, and note
the rows that a store has to write. The stores differ only in the origin of the working set:

* SQLite and PostgreSQL load the rows that a batch touches, run the batch, and flush the changes.
* The store in memory is one working set that is never flushed. It overrides the methods under
  "changes", and so updates its indexes at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import orjson
from attrs import define, evolve, field, setters

from ...base.shown import Shown
from ...errors import UsageError
from .administration import Changed, Verdict, judge_cancelling, judge_requeueing
from .request_options import NO_OPTIONS, RequestOptions
from .rules import (
    claim_from,
    conflict_error,
    copy_of_request,
    is_repeated,
    judge,
    may_complete,
    may_settle,
    read_response,
    response_payload,
)
from .session_manager import (
    LinkState,
    SequenceStatus,
    acknowledge,
    allocate,
    record_arrival,
    record_local_arrival,
)
from .types import (
    TERMINAL,
    Appended,
    ClaimCompletion,
    Claimed,
    Claiming,
    Completed,
    Ending,
    EntryVerdict,
    Envelope,
    IncomingEnvelope,
    Link,
    MessageRecord,
    MessageState,
    MessageType,
    OutgoingMessage,
    Received,
    RequestRecord,
    RequestState,
)

if TYPE_CHECKING:
    from ..stores.memory_usage import Usage

ALL = 2**63 - 1
"""A number that no message of a link exceeds."""

_NO_WRITES = "this ledger takes no writes of a handler: use PostgreSQL for them"


def _links(known: dict[Link, LinkState]) -> dict[Link, LinkState]:
    return defaultdict(LinkState, known)


def _queues(known: dict[str, int]) -> dict[str, int]:
    return defaultdict(int, known)


# Converting what is assigned later, too, would take 1 us of every assignment.
@define(eq=False, repr=False, on_setattr=setters.NO_OP)
class UnitOfWork(Shown):
    """Links, queues, requests and messages, as they are within one transaction.

    Attributes:
        incarnation: of this ledger.
        usage: bounds the records that are held (AACP-49); None if there is no bound.
        links: both ends of every link that the batch touches; a missing one is made when needed.
        queues: the last position given out in the queue of each agent.
        requests: by id, every request that the batch names and the ledger has.
        messages: by message id, every message that the batch names and the ledger has.
        held: the requests that wait for an earlier message, by link and number.
        added: requests that are not in the store yet.
        entered: requests of the store that were queued or held.
        finished: requests of the store that have an outcome now.
        posted: messages that are not in the store yet.
        acknowledged: for each link the first and the last number that were acknowledged.
        touched: links that were changed.
        moved: agents in whose queues positions were given out.
        delayed_until_ms: when the first of the requests is due that the last message that was
            made here, or the last batch that came in, has made DELAYED.
        free: agents without limits in whose queues there was nothing, or nothing but what the
            claimer has claimed.
    """

    incarnation: int
    usage: Usage | None = field(default=None, kw_only=True)
    links: dict[Link, LinkState] = field(factory=dict, converter=_links, kw_only=True)
    queues: dict[str, int] = field(factory=dict, converter=_queues, kw_only=True)
    requests: dict[str, RequestRecord] = field(factory=dict, kw_only=True)
    messages: dict[str, MessageRecord] = field(factory=dict, kw_only=True)
    held: dict[Link, dict[int, RequestRecord]] = field(factory=dict, init=False)
    added: dict[str, RequestRecord] = field(factory=dict, init=False)
    entered: dict[str, RequestRecord] = field(factory=dict, init=False)
    finished: dict[str, RequestRecord] = field(factory=dict, init=False)
    posted: list[MessageRecord] = field(factory=list, init=False)
    acknowledged: dict[Link, tuple[int, int]] = field(factory=dict, init=False)
    touched: set[Link] = field(factory=set, init=False)
    moved: set[str] = field(factory=set, init=False)
    delayed_until_ms: int | None = field(default=None, init=False)
    free: Collection[str] = field(default=(), init=False)

    # -- messages that are made here ----------------------------------------------------------

    def append_all(self, messages: Iterable[OutgoingMessage]) -> list[Appended]:
        """Enter messages that are made here, those of one batch together or not at all."""
        appended: list[Appended] = []
        for batch, group in groupby(messages, lambda outgoing: outgoing.batch):
            members = list(group)
            refused = self._refuse_batch(members) if batch else None
            if refused is None:
                appended += map(self.append, members)
            else:
                appended += [refused] * len(members)
        return appended

    def _refuse_batch(self, batch: Sequence[OutgoingMessage]) -> Appended | None:
        """Return the answer to each message of a batch that cannot be entered whole."""
        for outgoing in batch:
            existing = self.requests.get(outgoing.key)
            if judge(existing, outgoing.digest) is EntryVerdict.CONFLICT and existing is not None:
                return Appended(EntryVerdict.CONFLICT, 0, snapshot(existing))
        new = [outgoing for outgoing in batch if outgoing.key not in self.requests]
        if self.usage is not None and new and not self.usage.has_room_for_messages(new):
            return Appended(EntryVerdict.FULL, 0)
        return None

    def claim_added(
        self,
        messages: Iterable[OutgoingMessage],
        appended: Iterable[Appended],
        claiming: Claiming,
        now_ms: int,
    ) -> list[list[RequestRecord]]:
        """Claim what was entered for agents that are free; return the records of each (AACP-193).

        Args:
            messages: those that were entered.
            appended: what came of it; it gets the claims.
            claiming: what is claimed.
            now_ms: the time.
        """
        made = {
            message.key: answer
            for message, answer in zip(messages, appended, strict=True)
            if answer.verdict is EntryVerdict.NEW
        }
        released = {record.target_agent_id for record in self.entered.values()}
        queues: dict[str, list[RequestRecord]] = {
            agent_id: []
            for agent_id in self.free
            if agent_id in claiming.wanted and agent_id not in released
        }
        for record in self.added.values():
            if record.state is RequestState.RECEIVED and record.target_agent_id in queues:
                queues[record.target_agent_id].append(record)
        claimed, taken = Claimed([]), []
        for agent_id, queue in queues.items():
            queue.sort(key=lambda record: (-record.priority, record.position))
            most, begins = claiming.wanted[agent_id], agent_id in claiming.idle
            taken.append(claim_from(queue, most, claiming, now_ms, begins, claimed, lambda _: None))
        for claim in claimed.claims:
            made[claim.request_id].claim = claim
        return taken

    def append(self, outgoing: OutgoingMessage) -> Appended:
        """Enter a message that is made here."""
        existing = self.requests.get(outgoing.key)
        if existing is not None:
            verdict = judge(existing, outgoing.digest)
            seq = existing.seq if verdict is EntryVerdict.DUPLICATE else 0
            return Appended(verdict, seq, snapshot(existing))
        sent = self.messages.get(outgoing.message_id)
        if sent is not None:  # an event to another ledger, entered before
            return Appended(EntryVerdict.DUPLICATE, sent.seq)
        if self.usage is not None and not self.usage.has_room_for_messages([outgoing]):
            return Appended(EntryVerdict.FULL, 0)
        link = (outgoing.source_agent_id, outgoing.target_agent_id)
        state = self.links[link]
        seq = allocate(state)
        self.touched.add(link)
        if outgoing.local:
            self.delayed_until_ms = None
            self._append_local(outgoing, link, state, seq)
            return Appended(EntryVerdict.NEW, seq, delayed_until_ms=self.delayed_until_ms)
        if outgoing.message_type is MessageType.REQUEST:
            self._add(new_request(outgoing, seq))
        return Appended(EntryVerdict.NEW, seq, None, self._send(new_message(outgoing, seq), state))

    def _append_local(
        self, outgoing: OutgoingMessage, link: Link, state: LinkState, seq: int
    ) -> None:
        """Enter a message that is sent and received in one."""
        incarnation = state.incarnation
        record_local_arrival(state, seq, self.incarnation)
        if state.incarnation != incarnation:
            self._release_held(link, ALL)
        record = new_request(outgoing, seq)
        self._add(record)
        self._enter(record, link, state)
        if link in self.held:
            self._release_held(link, state.received_up_to)

    def respond(
        self,
        request: Envelope | RequestRecord,
        payload: bytes,
        expires_at_ms: int,
        reply: IncomingEnvelope | ClaimCompletion,
        now_ms: int,
    ) -> MessageRecord:
        """Enter the RESPONSE to a request that came from another ledger (AACP-16).

        `reply` gives the RESPONSE its id, and the time of its second attempt.
        """
        link = (request.target_agent_id, request.source_agent_id)
        state = self.links[link]
        self.touched.add(link)
        message = MessageRecord(
            reply.reply_id,
            request.request_id,
            request.target_agent_id,
            request.source_agent_id,
            allocate(state),
            MessageType.RESPONSE,
            payload,
            MessageState.PENDING,
            now_ms,
            expires_at_ms,
            1,
            reply.reply_next_attempt_at_ms,
        )
        return self._send(message, state)

    def put_message(self, message: MessageRecord) -> None:
        """Keep a message that is not there, and give out no number up to its own any more."""
        if message.message_id not in self.messages:
            self.advance((message.source_agent_id, message.target_agent_id), message.seq)
            self._post(message)

    def last_seq(self, link: Link) -> int:
        """Return the last number given out; 0 before the first."""
        return self.links[link].last_seq if link in self.links else 0

    def advance(self, link: Link, seq: int) -> None:
        """Make `seq` the last number given out, unless a larger one was."""
        state = self.links[link]
        state.last_seq = max(state.last_seq, seq)
        self.touched.add(link)

    def _send(self, message: MessageRecord, state: LinkState) -> MessageRecord:
        self._post(message)
        message.low_watermark = state.low_watermark
        return message

    # -- envelopes that come in ---------------------------------------------------------------

    def releases(self, envelopes: Iterable[Envelope]) -> dict[Link, int]:
        """Return the links whose held requests these envelopes may release, with the last number.

        A store loads these requests by `hold` before it calls `receive`.
        """
        links: dict[Link, int] = {}
        tried: dict[Link, LinkState] = {}
        for each in envelopes:
            link = (each.source_agent_id, each.target_agent_id)
            state = self.links.get(link)
            if state is None or not state.out_of_order:
                continue
            if each.incarnation != state.incarnation or each.incarnation == self.incarnation:
                links[link] = ALL
            elif each.seq and links.get(link) != ALL:
                if link not in tried:
                    tried[link] = evolve(state, out_of_order=set(state.out_of_order))
                record_arrival(tried[link], each.seq, each.incarnation, each.low_watermark)
                if tried[link].received_up_to > state.received_up_to:
                    links[link] = tried[link].received_up_to
        return links

    def releases_here(self, messages: Iterable[OutgoingMessage]) -> dict[Link, int]:
        """Return the same for messages that are made here, before `append` is called."""
        links = {(each.source_agent_id, each.target_agent_id) for each in messages if each.local}
        return {link: ALL for link in links if link in self.links and self.links[link].out_of_order}

    def hold(self, records: Iterable[RequestRecord]) -> None:
        """Take requests that wait for an earlier message into the working set."""
        for found in records:
            # The one that is there already, so that its answer shows what is changed here.
            record = self.requests.setdefault(found.request_id, found)
            link = (record.source_agent_id, record.target_agent_id)
            self.held.setdefault(link, {})[record.seq] = record

    def receive(self, arrivals: Sequence[IncomingEnvelope], now_ms: int, ttl_ms: int) -> Received:
        """Enter received messages, and apply the acknowledgements in their envelopes."""
        received = Received({}, [], [], [], [], 0, False)
        self.delayed_until_ms = None
        for incoming in arrivals:
            self._receive(incoming, now_ms, ttl_ms, received)
        received.delayed_until_ms = self.delayed_until_ms
        return received

    def _receive(
        self, incoming: IncomingEnvelope, now_ms: int, ttl_ms: int, received: Received
    ) -> None:
        envelope = incoming.envelope
        link = (envelope.source_agent_id, envelope.target_agent_id)
        if envelope.ack is not None:
            self._take_ack((link[1], link[0]), envelope.ack, received)
        if envelope.seq == 0:  # a bare acknowledgement
            return
        if (
            self.usage is not None
            and (envelope.request_id or envelope.message_id) not in self.requests
            and not self.usage.has_room_for_envelope(envelope)
        ):
            received.refused += 1
            return
        state = self.links[link]
        incarnation, before = state.incarnation, state.received_up_to
        ours = envelope.incarnation == self.incarnation
        found = record_arrival(
            state, envelope.seq, envelope.incarnation, envelope.low_watermark, ours=ours
        )
        if found is SequenceStatus.OUTDATED:
            received.refused += 1
            received.outdated.append(envelope)
            return
        advanced = state.received_up_to > before
        if state.incarnation != incarnation:
            self.touched.add(link)
            received.ready |= self._release_held(link, ALL)
        elif advanced or found is SequenceStatus.NEW:
            self.touched.add(link)
        received.acks[link], received.incarnation[link] = state.received_up_to, state.incarnation
        if found is SequenceStatus.BEYOND:
            received.refused += 1
        elif found is SequenceStatus.NEW and not envelope.tombstone:
            passed = min(state.received_up_to, envelope.seq - 1)
            if passed > before:  # its low watermark filled a gap below it: that comes first
                received.ready |= self._release_held(link, passed)
            received.accepted.append(envelope)
            self._take_in(incoming, link, state, now_ms, ttl_ms, received)
        if advanced and link in self.held:
            received.ready |= self._release_held(link, state.received_up_to)

    def _take_ack(self, link: Link, ack: int, received: Received) -> None:
        state = self.links.get(link)
        settled = acknowledge(state, ack) if state is not None else None
        if settled:
            self.touched.add(link)
            self._acknowledge(link, settled, received)

    def _take_in(
        self,
        incoming: IncomingEnvelope,
        link: Link,
        state: LinkState,
        now_ms: int,
        ttl_ms: int,
        received: Received,
    ) -> None:
        """Enter a message that was not here before, whose number has just been noted."""
        envelope = incoming.envelope
        if envelope.message_type is MessageType.RESPONSE:
            self._settle(envelope, now_ms, received)
            return
        record = self.requests.get(envelope.request_id or envelope.message_id)
        verdict = judge(record, incoming.digest)
        if record is None:
            record = _received_request(incoming, now_ms, ttl_ms)
            self._add(record)
        elif verdict is not EntryVerdict.DUPLICATE or record.state is not RequestState.SENT:
            if envelope.message_type is MessageType.REQUEST:
                self._answer_again(incoming, record, verdict, now_ms, received)
            return
        record.seq = envelope.seq
        record.needs_response = envelope.message_type is MessageType.REQUEST
        self._enter(record, link, state)
        received.ready |= record.state is RequestState.RECEIVED

    def _settle(self, response: Envelope, now_ms: int, received: Received) -> None:
        """Enter the outcome of a request that was made here (AACP-16)."""
        record = self.requests.get(response.request_id or "")
        if record is not None and may_settle(record, response):
            self._finish(record, read_response(response.payload), now_ms)
            received.finished.append(record)

    def _answer_again(
        self,
        incoming: IncomingEnvelope,
        existing: RequestRecord,
        verdict: EntryVerdict,
        now_ms: int,
        received: Received,
    ) -> None:
        """Answer a request whose id is known, under a number that is not, unless it is in progress.

        It is asked again, or another request has its id (AACP-12, AACP-22).
        """
        if verdict is EntryVerdict.CONFLICT:
            error = orjson.dumps(conflict_error(existing.request_id).to_wire())
            payload = response_payload(RequestState.FAILED, None, error)
        elif existing.state in TERMINAL:
            payload = response_payload(existing.state, existing.result, existing.error)
        else:
            return
        received.responses.append(
            self.respond(incoming.envelope, payload, existing.expires_at_ms, incoming, now_ms)
        )

    # -- requests that wait to be executed ----------------------------------------------------

    def _enter(self, record: RequestRecord, link: Link, state: LinkState) -> None:
        """Queue a request whose number was noted, or hold it until the earlier ones are there."""
        if record.seq > state.received_up_to:
            record.state = RequestState.HELD
            self.held.setdefault(link, {})[record.seq] = record
            self._note_entry(record)
        else:
            self._queue(record)

    def _queue(self, record: RequestRecord) -> None:
        """Give a request its place, or keep it until its time has come (AACP-120)."""
        not_before_ms = record.not_before_ms
        if not_before_ms is not None:
            record.state = RequestState.DELAYED
            self.delayed_until_ms = min(self.delayed_until_ms or not_before_ms, not_before_ms)
            self._note_entry(record)
        else:
            self._give_place(record)

    def queue_delayed(self, records: Iterable[RequestRecord]) -> None:
        """Queue requests that are DELAYED and whose time has come, in this order."""
        for record in records:
            record.not_before_ms = None
            self._give_place(record)

    def _give_place(self, record: RequestRecord) -> None:
        agent_id = record.target_agent_id
        self.moved.add(agent_id)
        self.queues[agent_id] += 1
        record.position = self.queues[agent_id]
        record.state = RequestState.RECEIVED
        self._note_entry(record)

    def _release_held(self, link: Link, up_to: int) -> bool:
        """Queue the requests that waited for a gap, in the order of numbers.

        No number is missing up to `up_to`; with `ALL`, those that are missing will never come.
        """
        held = self.held.get(link)
        if not held:
            return False
        ready = sorted(seq for seq in held if seq <= up_to)
        for seq in ready:
            self._queue(held.pop(seq))
        return bool(ready)

    # -- outcomes -----------------------------------------------------------------------------

    def complete(self, completion: ClaimCompletion, now_ms: int) -> Completed:
        """Enter an outcome if its claim is still the newest; with it, the RESPONSE (AACP-23)."""
        refused = self.refuse(completion)
        if refused is not None:
            return refused
        if completion.in_transaction is not None:
            return Completed(None, None, UsageError(_NO_WRITES))
        return self.answer(self.finish(completion, now_ms), completion, now_ms)

    def refuse(self, completion: ClaimCompletion) -> Completed | None:
        """Return the answer to an outcome that is not taken, or was taken before."""
        record = self.requests.get(completion.request_id)
        if is_repeated(record, completion):
            return Completed(record, None)
        return None if may_complete(record, completion) else Completed(None, None)

    def finish(self, completion: ClaimCompletion, now_ms: int) -> RequestRecord:
        """Enter an outcome that is taken."""
        record = self.requests[completion.request_id]
        self._finish(record, completion, now_ms)
        return record

    def answer(self, record: RequestRecord, completion: ClaimCompletion, now_ms: int) -> Completed:
        """Enter the RESPONSE to a request that was just finished, if it came by a message."""
        if not record.needs_response:
            return Completed(record, None)
        payload = response_payload(record.state, record.result, record.error)
        return Completed(
            record, self.respond(record, payload, record.expires_at_ms, completion, now_ms)
        )

    # -- what an operator changes -------------------------------------------------------------

    def cancel_all(self, cancellations: Iterable[ClaimCompletion], now_ms: int) -> list[Changed]:
        """Cancel requests, and enter their RESPONSEs; their links are in the working set."""
        answers = []
        for cancellation in cancellations:
            changed = self.cancel(cancellation, now_ms)
            self.answer_cancelled(changed, cancellation, now_ms)
            answers.append(changed)
        return answers

    def cancel(self, cancellation: ClaimCompletion, now_ms: int) -> Changed:
        """Give a request that is not finished its outcome, whoever has claimed it (AACP-114).

        Its RESPONSE is entered by `answer_cancelled`.
        """
        record = self.requests.get(cancellation.request_id)
        verdict = judge_cancelling(record)
        if record is None or verdict is not Verdict.DONE:
            return Changed(verdict, None if record is None else snapshot(record))
        held = self.held.get((record.source_agent_id, record.target_agent_id), {})
        if held.get(record.seq) is record:
            del held[record.seq]
        record.epoch += 1  # the claim that there may be is fenced off (AACP-23)
        self._finish(record, cancellation, now_ms)
        return Changed(verdict, record)

    def answer_cancelled(
        self, changed: Changed, cancellation: ClaimCompletion, now_ms: int
    ) -> None:
        """Enter the RESPONSE to a request that was just cancelled, if it came by a message."""
        if changed.verdict is Verdict.DONE and changed.record is not None:
            changed.response = self.answer(changed.record, cancellation, now_ms).response

    def requeue(self, request_id: str, expires_at_ms: int) -> Changed:
        """Put a request that FAILED at the end of its queue, as if it were new (AACP-112)."""
        found = self.requests.get(request_id)
        verdict = judge_requeueing(found)
        if found is None or verdict is not Verdict.DONE:
            return Changed(verdict, None if found is None else snapshot(found))
        # A copy: a record with an outcome is given out as it is.
        record = self.requests[request_id] = copy_of_request(found)
        self._reopen(record, expires_at_ms)
        self._queue(record)
        return Changed(verdict, snapshot(record))

    # -- changes ------------------------------------------------------------------------------

    def _add(self, record: RequestRecord) -> None:
        """Take a request into the ledger."""
        self.requests[record.request_id] = self.added[record.request_id] = record

    def _note_entry(self, record: RequestRecord) -> None:
        """Note that a request of the ledger was queued or held."""
        if record.request_id not in self.added:
            self.entered[record.request_id] = record

    def _finish(self, record: RequestRecord, ending: Ending | ClaimCompletion, now_ms: int) -> None:
        """Give a request its outcome."""
        record.state, record.result, record.error = ending.state, ending.result, ending.error
        record.owner = record.lease_until_ms = None
        record.finished_at_ms = now_ms
        self.finished[record.request_id] = record

    def _reopen(self, record: RequestRecord, expires_at_ms: int) -> None:
        """Take the outcome of a request away."""
        record.epoch += 1
        record.executions = 0
        record.error = record.result = record.completion_ref = None
        record.finished_at_ms = record.not_before_ms = None
        record.expires_at_ms = expires_at_ms

    def _post(self, message: MessageRecord) -> None:
        """Take a message into the ledger; its fields may be changed later by the caller."""
        self.messages[message.message_id] = message
        self.posted.append(message)

    def _acknowledge(self, link: Link, settled: range, received: Received) -> None:
        """Make messages ACKNOWLEDGED; tombstones among them are deleted."""
        first, _ = self.acknowledged.get(link, (settled[0], 0))
        self.acknowledged[link] = (first, settled[-1])


def touched_by(
    messages: Sequence[OutgoingMessage],
) -> tuple[list[Link], list[str], list[str], list[str]]:
    """Return links, queues, request ids and message ids that messages made here touch."""
    return (
        [(each.source_agent_id, each.target_agent_id) for each in messages],
        [each.target_agent_id for each in messages if each.local],
        [each.key for each in messages],
        # A request that is executed here has no message.
        [each.message_id for each in messages if not each.local or each.request_id is None],
    )


# -- new records ----------------------------------------------------------------------------------


def new_request(outgoing: OutgoingMessage, seq: int) -> RequestRecord:
    """Return the record of a request in the ledger of its maker."""
    options = outgoing.options or NO_OPTIONS
    return RequestRecord(
        outgoing.key,
        outgoing.message_type,
        outgoing.source_agent_id,
        outgoing.target_agent_id,
        seq,
        outgoing.digest,
        outgoing.payload,
        RequestState.SENT,
        outgoing.created_at_ms,
        outgoing.expires_at_ms,
        not_before_ms=options.not_before_ms,
        priority=options.priority,
        retry=options.retry,
    )


def new_message(outgoing: OutgoingMessage, seq: int) -> MessageRecord:
    """Return the message that carries an outgoing message to another ledger."""
    return MessageRecord(
        outgoing.message_id,
        outgoing.request_id,
        outgoing.source_agent_id,
        outgoing.target_agent_id,
        seq,
        outgoing.message_type,
        outgoing.payload,
        MessageState.PENDING,
        outgoing.created_at_ms,
        outgoing.expires_at_ms,
        1,
        outgoing.next_attempt_at_ms,
        None if outgoing.options is None else outgoing.options.to_json(),
    )


def _received_request(incoming: IncomingEnvelope, now_ms: int, ttl_ms: int) -> RequestRecord:
    """Return the record of a request, or an event, in the ledger that executes it."""
    envelope = incoming.envelope
    expires_at_ms = envelope.expires_at_ms
    options = RequestOptions.from_json(envelope.options)
    return RequestRecord(
        envelope.request_id or envelope.message_id,
        envelope.message_type,
        envelope.source_agent_id,
        envelope.target_agent_id,
        envelope.seq,
        incoming.digest,
        envelope.payload,
        RequestState.RECEIVED,
        now_ms,
        now_ms + ttl_ms if expires_at_ms is None else expires_at_ms,
        not_before_ms=options.not_before_ms,
        priority=options.priority,
        retry=options.retry,
    )


def snapshot(record: RequestRecord) -> RequestRecord:
    """Return a record that will not change: a copy, unless it has its outcome."""
    return record if record.state in TERMINAL else copy_of_request(record)
