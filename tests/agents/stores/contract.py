"""What every ledger does, whatever keeps it: the suite that all stores pass.

A test module of a store says where its ledgers are and what its rules are::

    class _Contract(DurableStoreContract):
        @staticmethod
        @contextmanager
        def place() -> Iterator[MakeAdapter]:
            with temporary_directory() as folder:
                yield lambda: SomeAdapter(folder)

    TestContract = pytest.mark.rule("AACP-10", "AACP-11")(_Contract)

`StoreContract` is for all of them, `DurableStoreContract` for those whose ledger outlives the
adapter, `SharedStoreContract` for those that several adapters may have open at once;
`WithinIsRefused` comes beside it where handlers cannot write in the ledger's transaction.

Tests are written without coroutines: a `Ledger` runs each operation of its adapter to its end, on
one event loop for as long as it lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager
from hashlib import blake2b
from itertools import count
from types import TracebackType
from typing import Any, TypeVar
from uuid import UUID

import orjson
import pytest
from attrs import evolve

from foundation_rt.agents.ledger.administration import (
    CANCELLED,
    AgentSummary,
    Changed,
    RequestQuery,
    Verdict,
    key_of,
)
from foundation_rt.agents.ledger.agent_limits import NO_LIMITS, AgentLimits
from foundation_rt.agents.ledger.ownership import owned_id, owner_of
from foundation_rt.agents.ledger.request_options import ExecutionRetries, RequestOptions
from foundation_rt.agents.ledger.rules import PURGE_BATCH, digest_of
from foundation_rt.agents.ledger.session_manager import WINDOW
from foundation_rt.agents.ledger.types import (
    OUTBOX_START,
    VOID_PAYLOAD,
    Appended,
    Claim,
    ClaimCompletion,
    Claimed,
    Claiming,
    Completed,
    Due,
    EntryVerdict,
    Envelope,
    Hastened,
    IncomingEnvelope,
    MessageRecord,
    MessageState,
    MessageType,
    OutboxKey,
    Outcome,
    OutgoingMessage,
    Queued,
    Received,
    Release,
    RequestRecord,
    RequestState,
)
from foundation_rt.agents.persistence import AACPPersistenceAdapter, RetryDecision
from foundation_rt.errors import ErrorCode, StructuredError, UsageError

T = TypeVar("T")

MakeAdapter = Callable[[], AACPPersistenceAdapter]
"""A new adapter, not open yet, on one and the same ledger each time."""

NOW = 1_700_000_000_000
TTL = 3_600_000
LEASE = 30_000
HELD = 18_000
"""So long a claim must still last when others are made behind it on entry."""
FAR_INCARNATION = 1_600_000_000_000
"""That of another ledger, unless a test says otherwise."""
RETRY = 200
"""After how many ms a message is sent a second time."""

ERROR = StructuredError(ErrorCode.INTERNAL, "It failed.")


# -- values ---------------------------------------------------------------------------------------


def uuid_of(name: str) -> str:
    """Return a UUID v4 that is the same for the same name."""
    return str(UUID(bytes=blake2b(name.encode(), digest_size=16).digest(), version=4))


def outgoing(
    request_id: str | None = "r1",
    source: str = "a",
    target: str = "b",
    *,
    local: bool = True,
    payload: bytes = b'{"n":1}',
    message_type: MessageType = MessageType.REQUEST,
    message_id: str | None = None,
    created_at_ms: int = NOW,
    expires_at_ms: int = NOW + TTL,
    next_attempt_at_ms: int = NOW + RETRY,
    options: RequestOptions | None = None,
    batch: str = "",
) -> OutgoingMessage:
    """Return a request of `source` to `target`; its message id follows from its request id."""
    return OutgoingMessage(
        message_id or uuid_of(f"message of {request_id}"),
        request_id,
        source,
        target,
        message_type,
        payload,
        digest_of(source, target, message_type, payload),
        created_at_ms,
        expires_at_ms,
        local,
        next_attempt_at_ms,
        options=options,
        batch=batch,
    )


def event(name: str, source: str = "a", target: str = "b", **more: Any) -> OutgoingMessage:
    """Return an event without a request id."""
    more.setdefault("message_id", uuid_of(name))
    return outgoing(None, source, target, message_type=MessageType.EVENT, **more)


def incoming(
    seq: int,
    request_id: str | None = None,
    source: str = "far",
    target: str = "b",
    *,
    ack: int | None = None,
    payload: bytes = b'{"n":1}',
    message_type: MessageType = MessageType.REQUEST,
    message_id: str | None = None,
    expires_at_ms: int | None = NOW + TTL,
    tombstone: bool = False,
    reply: str = "",
    incarnation: int = FAR_INCARNATION,
    low_watermark: int = 1,
    options: bytes | None = None,
) -> IncomingEnvelope:
    """Return an envelope from `source`, by default a request named after its number."""
    if request_id is None and message_type is MessageType.REQUEST:
        request_id = f"{source}-{target}-{seq}"
    message_id = message_id or uuid_of(f"{source} {target} {seq} {request_id}")
    payload = VOID_PAYLOAD if tombstone else payload
    envelope = Envelope(
        message_id,
        request_id,
        source,
        target,
        seq,
        ack,
        message_type,
        NOW - 5,
        payload,
        expires_at_ms,
        tombstone,
        incarnation,
        None if ack is None else 1,
        low_watermark,
        options,
    )
    digest = digest_of(source, target, message_type, payload)
    return IncomingEnvelope(
        envelope, digest, uuid_of(f"reply {reply} to {message_id}"), NOW + RETRY
    )


def bare_ack(ack: int, source: str = "far", target: str = "a") -> IncomingEnvelope:
    """Return an acknowledgement by `source` of messages of `target`."""
    return incoming(0, None, source, target, ack=ack, message_type=MessageType.EVENT, payload=b"{}")


def response(
    seq: int, request_id: str, outcome: bytes, source: str = "far", target: str = "a", **more: Any
) -> IncomingEnvelope:
    """Return a RESPONSE with this payload."""
    more.update(payload=outcome, message_type=MessageType.RESPONSE)
    return incoming(seq, request_id, source, target, **more)


def completion(
    claim: Claim | tuple[str, int], result: bytes | None = b'"done"', error: bytes | None = None
) -> ClaimCompletion:
    """How a claim ended: COMPLETED with `result`, or FAILED with `error` if there is one."""
    request_id, epoch = claim if isinstance(claim, tuple) else (claim.request_id, claim.epoch)
    state = RequestState.COMPLETED if error is None else RequestState.FAILED
    reply_id = uuid_of(f"reply to {request_id} {epoch}")
    result = result if error is None else None
    return ClaimCompletion(request_id, epoch, state, result, error, reply_id, NOW + RETRY)


def cancellation(request_id: str) -> ClaimCompletion:
    """Return the end of a request that an operator cancels."""
    return completion((request_id, 0), error=CANCELLED)


COMPLETED_PAYLOAD = b'{"outcome":"COMPLETED","result":"done"}'


def record_of(made: OutgoingMessage, state: RequestState, **more: Any) -> RequestRecord:
    """Return the record of the first request of its link, without its position."""
    return RequestRecord(
        made.key,
        made.message_type,
        made.source_agent_id,
        made.target_agent_id,
        1,
        made.digest,
        made.payload,
        state,
        made.created_at_ms,
        made.expires_at_ms,
        **more,
    )


def response_of(message_id: str, seq: int, now: int) -> MessageRecord:
    """Return the record of the response of b to the request r1 of far."""
    return MessageRecord(
        message_id,
        "r1",
        "b",
        "far",
        seq,
        MessageType.RESPONSE,
        COMPLETED_PAYLOAD,
        MessageState.PENDING,
        now,
        NOW + TTL,
        1,
        NOW + RETRY,
    )


# -- a ledger to ask ------------------------------------------------------------------------------


class Ledger:
    """An open adapter, and an event loop to run it on."""

    def __init__(self, make: MakeAdapter) -> None:
        self._make = make
        self._runner = asyncio.Runner()
        self.adapter = make()
        try:
            self.run(self.adapter.open())
        except BaseException:
            self._runner.close()
            raise

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.run(self.adapter.close())
        finally:
            self._runner.close()

    def run(self, operation: Coroutine[Any, Any, T]) -> T:
        """Run to the end."""
        return self._runner.run(operation)

    def together(self, operations: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Run them at once; answers in the order of the operations."""

        async def gather() -> list[T]:
            return list(await asyncio.gather(*operations))

        return self.run(gather())

    def reopen(self) -> None:
        """Close the adapter and open another on the same ledger, on another event loop."""
        self.run(self.adapter.close())
        self._runner.close()
        self._runner = asyncio.Runner()
        self.adapter = self._make()
        self.run(self.adapter.open())

    def append(self, *messages: OutgoingMessage, now: int = NOW) -> list[Appended]:
        return self.run(self.adapter.append(messages, now))

    def append_claiming(
        self, *messages: OutgoingMessage, idle: bool = True, **wanted: int
    ) -> list[Claim | None]:
        """Enter messages and claim for these agents, `idle` or not; return the claims."""
        agents = tuple(wanted) if idle else ()
        claiming = Claiming(wanted, "me", NOW + LEASE, NOW + HELD, agents)
        appended = self.run(self.adapter.append(messages, NOW, claiming))
        return [each.claim for each in appended]

    def receive(self, *arrivals: IncomingEnvelope, now: int = NOW) -> Received:
        return self.run(self.adapter.receive(arrivals, now, TTL))

    def claim(
        self,
        *agents: str,
        owner: str = "me",
        now: int = NOW,
        lease: int = LEASE,
        most: int = 100,
        idle: Sequence[str] = (),
    ) -> Claimed:
        """Claim for each of these agents, or for "b"."""
        wanted = dict.fromkeys(agents or ("b",), most)
        return self.run(self.adapter.claim(Claiming(wanted, owner, now + lease, idle=idle), now))

    def claim_ids(self, *agents: str, **more: Any) -> list[str]:
        """Claim, and return the ids of the requests."""
        return [claim.request_id for claim in self.claim(*agents, **more).claims]

    def limit(self, **limits: AgentLimits) -> dict[str, AgentLimits]:
        return self.run(self.adapter.limit_agents(limits))

    def complete(self, *completions: ClaimCompletion, now: int = NOW) -> list[Completed]:
        return self.run(self.adapter.complete(completions, now))

    def renew(self, *claims: tuple[str, int], until: int) -> list[bool]:
        return self.run(self.adapter.renew(claims, until))

    def queue_delayed(self, now: int, limit: int = 100) -> Queued:
        return self.run(self.adapter.queue_delayed(now, limit))

    def release(self, *releases: Release) -> None:
        self.run(self.adapter.release(releases))

    def take_due(
        self, now: int, limit: int = 100, decide: RetryDecision = lambda message: NOW + TTL
    ) -> Due:
        return self.run(self.adapter.take_due(now, limit, decide))

    def hasten(self, targets: Sequence[str], at_ms: int, after: OutboxKey, limit: int) -> Hastened:
        return self.run(self.adapter.hasten(targets, at_ms, after, limit))

    def request(self, request_id: str) -> RequestRecord:
        """Return a request that must be there."""
        record = self.run(self.adapter.get_request_record(request_id))
        assert record is not None
        return record

    def has_request(self, request_id: str) -> bool:
        return self.run(self.adapter.get_request_record(request_id)) is not None

    def message(self, message_id: str) -> MessageRecord:
        """Return a message that must be there."""
        record = self.run(self.adapter.get_message_record(message_id))
        assert record is not None
        return record

    def messages(self, outcome: Outcome, older_than_ms: int | None = None) -> list[MessageRecord]:
        return self.run(self.adapter.list_messages_in_state(outcome, older_than_ms))

    def pending_ids(self, older_than_ms: int | None = None) -> list[str]:
        records = self.run(self.adapter.list_pending_requests(older_than_ms))
        return [record.request_id for record in records]

    def last_seq(self, source: str, target: str) -> int:
        return self.run(self.adapter.get_last_sequence(source, target))

    def unacknowledged(self, source: str, target: str) -> list[Envelope]:
        return self.run(self.adapter.get_unacknowledged_messages(source, target))

    def reschedule(
        self, message_id: str, at_ms: int, *, give_up: bool = False
    ) -> MessageRecord | None:
        return self.run(self.adapter.reschedule(message_id, at_ms, give_up=give_up))

    def purge(self, now: int) -> int:
        purged = 0
        while batch := self.run(self.adapter.purge_expired(now)):
            purged += batch
        return purged

    def state(self, request_id: str) -> RequestState:
        return self.request(request_id).state

    def list(self, **query: Any) -> list[RequestRecord]:
        return self.run(self.adapter.list_requests(RequestQuery(**query)))

    def listed_ids(self, **query: Any) -> list[str]:
        return [record.request_id for record in self.list(**query)]

    def summaries(self, after: str = "", limit: int = 100) -> list[AgentSummary]:
        return self.run(self.adapter.summarize_agents(after, limit))

    def queues(self, *agent_ids: str) -> list[AgentSummary]:
        return self.run(self.adapter.measure_queues(agent_ids))

    def cancel(self, *request_ids: str, now: int = NOW) -> list[Changed]:
        return self.run(self.adapter.cancel([*map(cancellation, request_ids)], now))

    def requeue(self, *request_ids: str, expires_at_ms: int = NOW + TTL) -> list[Changed]:
        return self.run(self.adapter.requeue(request_ids, expires_at_ms))

    def fail(self, *agents: str) -> list[Claim]:
        """Claim what there is and let it fail."""
        claims = self.claim(*agents).claims
        self.complete(*(completion(claim, error=b'{"code":"X"}') for claim in claims))
        return claims


def without_payload(record: RequestRecord) -> RequestRecord:
    """Return a record as an answer about its outcome has it."""
    return evolve(record, payload=b"")


def sequences(appended: Sequence[Appended]) -> list[int]:
    return [each.seq for each in appended]


# -- the suite ------------------------------------------------------------------------------------


class StoreContract:
    """For every adapter."""

    @staticmethod
    def place() -> AbstractContextManager[MakeAdapter]:
        """Make an empty ledger, removed on exit; the suite of each store says where."""
        raise NotImplementedError

    @pytest.fixture
    def make(self) -> Iterator[MakeAdapter]:
        with self.place() as make:
            yield make

    @pytest.fixture
    def ledger(self, make: MakeAdapter) -> Iterator[Ledger]:
        with Ledger(make) as ledger:
            yield ledger

    # -- append: numbers --------------------------------------------------------------------------

    @pytest.mark.rule("AACP-10")
    def test_each_link_numbers_its_messages_from_1(self, ledger: Ledger) -> None:
        assert sequences(ledger.append(outgoing("r1"), outgoing("r2"), event("e1"))) == [1, 2, 3]
        assert sequences(ledger.append(outgoing("r3", "b", "a"), outgoing("r4"))) == [1, 4]
        away = [outgoing("r5", local=False), event("e2", local=False)]
        assert sequences(ledger.append(*away)) == [5, 6]
        assert ledger.last_seq("a", "b") == 6
        assert ledger.last_seq("b", "a") == 1
        assert ledger.last_seq("b", "c") == 0

    @pytest.mark.rule("AACP-10")
    def test_links_with_similar_names_are_distinct(self, ledger: Ledger) -> None:
        pairs = [("a", "b c"), ("a b", "c"), ("A", "b c"), ("ä", "Ä"), ("Ä", "ä"), ("a'", '"%_\\')]
        appended = ledger.append(*(outgoing(f"r{n}", *pair) for n, pair in enumerate(pairs)))
        assert sequences(appended) == [1] * len(pairs)
        assert ledger.claim_ids("b c") == ["r0", "r2"]

    def test_empty_batch_does_nothing(self, ledger: Ledger) -> None:
        assert ledger.append() == []
        assert ledger.receive() == Received({}, [], [], [], [], 0, False)
        assert ledger.complete() == []
        assert ledger.renew(until=NOW) == []
        ledger.release()
        assert ledger.run(ledger.adapter.claim(Claiming({}, "me", NOW + 1), NOW)) == Claimed([])
        assert ledger.run(ledger.adapter.get_request_records([])) == []

    @pytest.mark.rule("AACP-20")
    def test_local_message_is_received_and_not_sent(self, ledger: Ledger) -> None:
        assert ledger.append(outgoing("r1")) == [Appended(EntryVerdict.NEW, 1)]
        record = ledger.request("r1")
        assert record.position is not None
        made = record_of(outgoing("r1"), RequestState.RECEIVED)
        assert evolve(record, position=None) == made
        assert ledger.messages(Outcome.UNKNOWN) == []
        assert ledger.unacknowledged("a", "b") == []

    @pytest.mark.rule("AACP-20")
    def test_request_to_another_ledger_is_sent_and_kept(self, ledger: Ledger) -> None:
        made = outgoing("r1", "a", "far", local=False)
        [appended] = ledger.append(made)
        message = MessageRecord(
            made.message_id,
            "r1",
            "a",
            "far",
            1,
            MessageType.REQUEST,
            made.payload,
            MessageState.PENDING,
            NOW,
            NOW + TTL,
            1,
            NOW + RETRY,
        )
        assert appended == Appended(EntryVerdict.NEW, 1, None, message)
        assert ledger.message(made.message_id) == message
        assert ledger.state("r1") is RequestState.SENT
        assert ledger.request("r1").position is None
        assert ledger.claim_ids("far") == []
        assert ledger.unacknowledged("a", "far") == [
            message.envelope(made.message_id, None, ledger.adapter.incarnation)
        ]

    def test_local_event_is_identified_by_its_message_id(self, ledger: Ledger) -> None:
        made = event("e1")
        ledger.append(made)
        [claim] = ledger.claim().claims
        assert claim.request_id == made.message_id
        assert claim.message_type is MessageType.EVENT

    @pytest.mark.rule("AACP-12", "AACP-30")
    @pytest.mark.parametrize("local", [True, False])
    def test_entering_a_message_again_takes_no_number(self, ledger: Ledger, local: bool) -> None:
        batch = [outgoing("r1", local=local), event("e1", local=local), outgoing("r2", local=local)]
        first = ledger.append(*batch)
        again = ledger.append(*batch)
        assert sequences(again) == sequences(first) == [1, 2, 3]
        assert [each.verdict for each in again] == [EntryVerdict.DUPLICATE] * 3
        assert again[0].existing == ledger.request("r1")
        assert [each.message for each in again] == [None] * 3
        assert ledger.last_seq("a", "b") == 3
        assert len(ledger.claim_ids()) == (3 if local else 0)
        assert len(ledger.messages(Outcome.UNKNOWN)) == (0 if local else 3)

    @pytest.mark.rule("AACP-12")
    @pytest.mark.parametrize("local", [True, False])
    def test_message_twice_in_one_batch_is_entered_once(self, ledger: Ledger, local: bool) -> None:
        twice = outgoing("r1", local=local)
        appended = ledger.append(twice, event("e", local=local), twice, event("e", local=local))
        assert sequences(appended) == [1, 2, 1, 2]
        assert [each.verdict for each in appended] == [
            EntryVerdict.NEW,
            EntryVerdict.NEW,
            EntryVerdict.DUPLICATE,
            EntryVerdict.DUPLICATE,
        ]
        assert appended[2].existing == ledger.request("r1")

    @pytest.mark.rule("AACP-12")
    @pytest.mark.parametrize(
        "other",
        [
            outgoing("r1", payload=b'{"n":2}'),
            outgoing("r1", "c"),
            outgoing("r1", target="c"),
            outgoing("r1", message_type=MessageType.EVENT),
            outgoing("r1", payload=b'{"n":2}', local=False),
        ],
        ids=["payload", "source", "target", "type", "remote"],
    )
    def test_other_request_with_a_known_id_is_a_conflict(
        self, ledger: Ledger, other: OutgoingMessage
    ) -> None:
        ledger.append(outgoing("r1"))
        before = ledger.request("r1")
        assert ledger.append(other) == [Appended(EntryVerdict.CONFLICT, 0, before)]
        assert ledger.request("r1") == before
        assert ledger.last_seq("a", "b") == 1
        assert ledger.last_seq(other.source_agent_id, other.target_agent_id) <= 1
        assert sequences(ledger.append(outgoing("r2"))) == [2]

    @pytest.mark.rule("AACP-12", "AACP-19")
    @pytest.mark.rule("AACP-169")
    @pytest.mark.parametrize("local", [True, False])
    def test_batch_is_entered_whole_or_not_at_all(self, ledger: Ledger, local: bool) -> None:
        ledger.append(outgoing("r1", local=local))
        two = outgoing("r2", local=local, batch="one")
        again = outgoing("r1", local=local, batch="one")
        appended = ledger.append(two, again, outgoing("r5", local=local))
        assert [each.seq for each in appended] == [2, 1, 3]
        assert sequences(ledger.append(two, again)) == [2, 1]  # the answer was lost
        refused = [
            outgoing("r3", local=local, batch="two"),
            outgoing("r2", payload=b"2", local=local, batch="two"),
        ]
        one, other, single = ledger.append(*refused, outgoing("r4", local=local))
        assert one == other == Appended(EntryVerdict.CONFLICT, 0, ledger.request("r2"))
        assert single.seq == 4
        assert not ledger.has_request("r3")

    def test_conflict_shows_a_record_released_in_its_batch(self, ledger: Ledger) -> None:
        ledger.receive(incoming(2, "r1", "a", "b"))
        assert ledger.state("r1") is RequestState.HELD
        _, conflict = ledger.append(outgoing("r2"), outgoing("r1", payload=b"2"))
        assert conflict == Appended(EntryVerdict.CONFLICT, 0, ledger.request("r1"))
        assert ledger.state("r1") is RequestState.RECEIVED

    def test_records_keep_every_value(self, ledger: Ledger) -> None:
        payload = orjson.dumps({"text": "ä\u0000\U0001f600'\"", "big": 2**63})
        longest = "a" + "._:-Z9" * 21
        made = outgoing(longest, "agent 'ä' \"%\"", "b\\n", payload=payload, expires_at_ms=2**45)
        ledger.append(made)
        record = ledger.request(longest)
        assert (record.payload, record.digest) == (payload, made.digest)
        assert (record.source_agent_id, record.target_agent_id) == ("agent 'ä' \"%\"", "b\\n")
        assert record.expires_at_ms == 2**45

    # -- receive: order, gaps, duplicates ---------------------------------------------------------

    @pytest.mark.rule("AACP-11", "AACP-17")
    def test_received_message_is_entered_and_acknowledged(self, ledger: Ledger) -> None:
        first, second = incoming(1), incoming(2)
        received = ledger.receive(first, second)
        assert received == Received(
            {("far", "b"): 2},
            [first.envelope, second.envelope],
            [],
            [],
            [],
            0,
            True,
            {("far", "b"): FAR_INCARNATION},
        )
        made = outgoing("far-b-1", "far")
        record = record_of(made, RequestState.RECEIVED, needs_response=True)
        assert evolve(ledger.request("far-b-1"), position=None) == record
        assert ledger.claim_ids() == ["far-b-1", "far-b-2"]

    @pytest.mark.rule("AACP-15")
    def test_message_without_lifetime_gets_the_lifetime_of_the_ledger(self, ledger: Ledger) -> None:
        ledger.receive(incoming(1, "r1", expires_at_ms=None), now=NOW + 7)
        assert ledger.request("r1").expires_at_ms == NOW + 7 + TTL

    @pytest.mark.rule("AACP-11", "AACP-12", "AACP-30")
    def test_repeated_message_is_acknowledged_twice_and_entered_once(self, ledger: Ledger) -> None:
        batch = [incoming(1), incoming(2, "e", message_type=MessageType.EVENT), incoming(4)]
        ledger.receive(*batch)
        again = ledger.receive(*batch)
        assert (again.acks, again.accepted, again.refused) == ({("far", "b"): 2}, [], 0)
        assert again.responses == []
        assert ledger.claim_ids() == ["far-b-1", "e"]

    @pytest.mark.rule("AACP-12")
    def test_event_is_identified_by_link_and_number(self, ledger: Ledger) -> None:
        first = incoming(1, message_type=MessageType.EVENT)
        second = incoming(1, message_type=MessageType.EVENT, message_id=uuid_of("another attempt"))
        assert len(ledger.receive(first).accepted) == 1
        assert ledger.receive(second).accepted == []
        assert ledger.claim_ids() == [first.envelope.message_id]

    @pytest.mark.rule("AACP-11", "AACP-18")
    def test_message_beyond_a_gap_is_held_until_the_gap_is_filled(self, ledger: Ledger) -> None:
        received = ledger.receive(incoming(3), incoming(2), incoming(5))
        assert received.acks == {("far", "b"): 0}
        assert len(received.accepted) == 3
        assert [ledger.state(f"far-b-{seq}") for seq in (2, 3, 5)] == [RequestState.HELD] * 3
        assert ledger.claim_ids() == []
        received = ledger.receive(incoming(1))
        assert (received.acks, received.ready) == ({("far", "b"): 3}, True)
        assert ledger.claim_ids() == ["far-b-1", "far-b-2", "far-b-3"]
        assert ledger.state("far-b-5") is RequestState.HELD
        assert ledger.receive(incoming(4)).acks == {("far", "b"): 5}
        assert ledger.claim_ids() == ["far-b-4", "far-b-5"]

    @pytest.mark.rule("AACP-04", "AACP-18")
    def test_gap_on_one_link_does_not_delay_other_links(self, ledger: Ledger) -> None:
        received = ledger.receive(incoming(2), incoming(1, source="near"), incoming(2, target="c"))
        assert received.acks == {("far", "b"): 0, ("near", "b"): 1, ("far", "c"): 0}
        assert ledger.claim_ids("b", "c") == ["near-b-1"]

    @pytest.mark.rule("AACP-11")
    def test_message_too_far_beyond_a_gap_is_not_taken(self, ledger: Ledger) -> None:
        edge, beyond = incoming(1 + WINDOW), incoming(2 + WINDOW)
        received = ledger.receive(edge, beyond)
        assert (received.accepted, received.refused) == ([edge.envelope], 1)
        assert received.acks == {("far", "b"): 0}
        assert not ledger.has_request(f"far-b-{2 + WINDOW}")
        ledger.receive(incoming(1))
        assert ledger.receive(beyond).refused == 0

    @pytest.mark.rule("AACP-11")
    def test_long_gap_is_filled_at_once(self, ledger: Ledger) -> None:
        count = 600
        ledger.receive(*(incoming(seq) for seq in range(count, 1, -1)))
        assert ledger.claim_ids(most=count) == []
        assert ledger.receive(incoming(1)).acks == {("far", "b"): count}
        expected = [f"far-b-{seq}" for seq in range(1, count + 1)]
        assert ledger.claim_ids(most=count) == expected

    @pytest.mark.rule("AACP-14")
    def test_number_of_a_tombstone_fills_its_place(self, ledger: Ledger) -> None:
        ledger.receive(incoming(2))
        received = ledger.receive(incoming(1, tombstone=True))
        assert (received.acks, received.accepted) == ({("far", "b"): 2}, [])
        assert received.ready
        assert ledger.claim_ids() == ["far-b-2"]
        assert ledger.receive(incoming(1)).accepted == []
        assert not ledger.has_request("far-b-1")

    @pytest.mark.rule("AACP-12", "AACP-21")
    def test_finished_request_that_is_asked_again_is_answered_again(self, ledger: Ledger) -> None:
        ledger.receive(incoming(1, "r1"))
        ledger.complete(completion(ledger.claim().claims[0]))
        again = incoming(2, "r1", reply="second")
        received = ledger.receive(again, now=NOW + 9)
        answer = response_of(again.reply_id, 2, NOW + 9)
        assert received.responses == [answer]
        assert ledger.message(again.reply_id) == answer
        assert ledger.claim_ids() == []
        assert ledger.receive(again).responses == []  # the same number is the same envelope

    @pytest.mark.rule("AACP-12")
    def test_conflict_that_comes_in_is_refused_by_a_response(self, ledger: Ledger) -> None:
        ledger.receive(incoming(1, "r1"))
        other = incoming(1, "r1", "near", payload=b'{"n":2}')
        received = ledger.receive(other)
        [refusal] = received.responses
        assert (refusal.source_agent_id, refusal.target_agent_id) == ("b", "near")
        assert (refusal.seq, refusal.request_id) == (1, "r1")
        body = orjson.loads(refusal.payload)
        assert body["outcome"] == "FAILED"
        assert body["error"]["code"] == "INVALID_ARGUMENT"
        assert body["error"]["details"]["reason"] == "request_id_conflict"
        assert received.acks == {("near", "b"): 1}
        assert received.accepted == [other.envelope]
        assert ledger.claim_ids() == ["r1"]

    @pytest.mark.rule("AACP-12")
    def test_request_made_here_may_be_executed_here(self, ledger: Ledger) -> None:
        """Another process on the same ledger received what this one sent."""
        [appended] = ledger.append(outgoing("r1", local=False))
        assert appended.message is not None
        received = ledger.receive(incoming(1, "r1", "a", "b"))
        assert (len(received.accepted), received.ready) == (1, True)
        [claim] = ledger.claim().claims
        [done] = ledger.complete(completion(claim))
        assert done.response is not None
        assert (done.response.source_agent_id, done.response.target_agent_id) == ("b", "a")
        assert ledger.state("r1") is RequestState.COMPLETED

    @pytest.mark.rule("AACP-18", "AACP-42")
    def test_message_held_behind_one_in_another_ledger_is_released(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1", local=False), outgoing("r2", local=False))
        own = ledger.adapter.incarnation
        ledger.receive(incoming(3, source="a", incarnation=own))
        assert ledger.claim_ids() == []
        ledger.receive(bare_ack(2, source="b"))
        received = ledger.receive(incoming(1, source="a", incarnation=own))
        assert (received.acks, received.accepted) == ({("a", "b"): 3}, [])
        assert received.ready
        assert ledger.claim_ids() == ["a-b-3"]

    # -- receive: ledgers that begin anew ---------------------------------------------------------

    @pytest.mark.rule("AACP-19")
    def test_incarnation_is_set_when_the_ledger_is_made(self, ledger: Ledger) -> None:
        assert FAR_INCARNATION < ledger.adapter.incarnation < 2**43

    @pytest.mark.rule("AACP-19")
    def test_numbers_of_a_newer_incarnation_start_over(self, ledger: Ledger) -> None:
        ledger.receive(incoming(1, "old-1"), incoming(2, "old-2"))
        received = ledger.receive(incoming(1, "new-1", incarnation=FAR_INCARNATION + 1))
        assert received.acks == {("far", "b"): 1}
        assert received.incarnation == {("far", "b"): FAR_INCARNATION + 1}
        assert received.ready
        assert ledger.claim_ids() == ["old-1", "old-2", "new-1"]
        again = ledger.receive(incoming(1, "new-1", incarnation=FAR_INCARNATION + 1))
        assert (again.acks, again.accepted) == ({("far", "b"): 1}, [])

    @pytest.mark.rule("AACP-19")
    def test_message_of_an_older_incarnation_is_neither_taken_nor_acknowledged(
        self, ledger: Ledger
    ) -> None:
        ledger.receive(incoming(1, incarnation=FAR_INCARNATION + 1))
        old = [incoming(1, "old-1"), incoming(2, "old-2", low_watermark=2)]
        received = ledger.receive(*old)
        assert (received.acks, received.accepted) == ({}, [])
        assert received.outdated == [each.envelope for each in old]
        assert received.refused == 2
        assert not ledger.has_request("old-1")
        mixed = ledger.receive(old[0], incoming(2, incarnation=FAR_INCARNATION + 1))
        assert (mixed.acks, mixed.refused) == ({("far", "b"): 2}, 1)

    @pytest.mark.rule("AACP-12", "AACP-19")
    def test_request_repeated_by_a_newer_incarnation_is_a_duplicate(self, ledger: Ledger) -> None:
        ledger.receive(incoming(3, "r1"))
        received = ledger.receive(incoming(1, "r1", incarnation=FAR_INCARNATION + 1))
        assert received.accepted != []
        [claim] = ledger.claim().claims
        assert (claim.request_id, claim.seq) == ("r1", 3)
        ledger.complete(completion(claim))
        again = ledger.receive(incoming(2, "r1", incarnation=FAR_INCARNATION + 2))
        assert [each.payload for each in again.responses] == [COMPLETED_PAYLOAD]
        assert ledger.claim_ids() == []

    @pytest.mark.rule("AACP-18", "AACP-19")
    def test_held_message_is_released_when_a_newer_incarnation_appears(
        self, ledger: Ledger
    ) -> None:
        ledger.receive(incoming(5, "old-5"), incoming(3, "old-3"), incoming(4, tombstone=True))
        assert ledger.claim_ids() == []
        new = FAR_INCARNATION + 1
        received = ledger.receive(
            incoming(3, "new-3", incarnation=new),
            incoming(7, "old-7"),
            incoming(1, "new-1", incarnation=new),
        )
        assert received.ready
        assert received.acks == {("far", "b"): 1}
        assert ledger.claim_ids() == ["old-3", "old-5", "new-1"]
        ledger.receive(incoming(2, "new-2", incarnation=new))
        assert ledger.claim_ids() == ["new-2", "new-3"]

    @pytest.mark.rule("AACP-18", "AACP-19")
    def test_held_message_is_released_when_the_source_moves_here(self, ledger: Ledger) -> None:
        newer = ledger.adapter.incarnation + 1
        ledger.receive(incoming(2, "there", source="a", incarnation=newer))
        ledger.append(outgoing("here"))
        assert ledger.claim_ids() == ["there", "here"]
        assert ledger.receive(incoming(9, source="a")).refused == 1

    @pytest.mark.rule("AACP-19")
    def test_new_ledger_begins_at_the_low_watermark(self, ledger: Ledger) -> None:
        ledger.receive(incoming(12, low_watermark=9))
        assert ledger.claim_ids() == []
        received = ledger.receive(incoming(11, low_watermark=11))
        assert received.acks == {("far", "b"): 12}
        assert received.ready
        assert ledger.claim_ids() == ["far-b-11", "far-b-12"]
        assert ledger.receive(incoming(8, low_watermark=8)).accepted == []

    @pytest.mark.rule("AACP-18", "AACP-19")
    def test_low_watermark_of_a_duplicate_releases_held_messages(self, ledger: Ledger) -> None:
        ledger.receive(incoming(5), incoming(6), incoming(9))
        assert ledger.claim_ids() == []
        received = ledger.receive(incoming(6, low_watermark=5))
        assert (received.acks, received.accepted) == ({("far", "b"): 6}, [])
        assert received.ready
        assert ledger.claim_ids() == ["far-b-5", "far-b-6"]

    @pytest.mark.rule("AACP-04", "AACP-19")
    def test_messages_released_by_a_low_watermark_precede_its_own(self, ledger: Ledger) -> None:
        ledger.receive(incoming(3))
        ledger.receive(incoming(5, low_watermark=5))
        assert ledger.claim_ids() == ["far-b-3", "far-b-5"]
        ledger.receive(incoming(8), incoming(9))
        ledger.receive(incoming(10, low_watermark=8))
        assert ledger.claim_ids() == ["far-b-8", "far-b-9", "far-b-10"]

    @pytest.mark.rule("AACP-19")
    def test_sent_message_has_the_low_watermark_of_its_link(self, ledger: Ledger) -> None:
        def low_watermarks() -> list[int]:
            now = NOW + RETRY + next(times)
            [appended] = ledger.append(outgoing(f"r{now}", local=False))
            assert appended.message is not None
            due = ledger.take_due(now, decide=lambda message: now + 1)
            return [appended.message.low_watermark, *(each.low_watermark for each in due.messages)]

        times = count()
        assert low_watermarks() == [1, 1]
        assert low_watermarks() == [1, 1, 1]
        ledger.receive(bare_ack(1, source="b"))
        assert low_watermarks() == [2, 2, 2]
        ledger.receive(bare_ack(3, source="b"))
        assert low_watermarks() == [4, 4]
        assert {each.low_watermark for each in ledger.messages(Outcome.UNKNOWN)} == {1}

    @pytest.mark.rule("AACP-16", "AACP-19")
    def test_response_has_the_low_watermark_of_its_link(self, ledger: Ledger) -> None:
        ledger.receive(incoming(1), incoming(2))
        first, second = ledger.claim().claims
        [done] = ledger.complete(completion(first))
        assert done.response is not None
        assert done.response.low_watermark == 1
        ledger.receive(bare_ack(1, target="b"))
        [done] = ledger.complete(completion(second))
        assert done.response is not None
        assert done.response.low_watermark == 2
        [again] = ledger.receive(incoming(3, "far-b-1"), bare_ack(2, target="b")).responses
        assert again.low_watermark == 2

    # -- receive: acknowledgements and responses --------------------------------------------------

    @pytest.mark.rule("AACP-11", "AACP-30")
    def test_ack_settles_everything_up_to_it(self, ledger: Ledger) -> None:
        messages = [outgoing(f"r{n}", "a", "far", local=False) for n in (1, 2, 3)]
        ledger.append(*messages)
        received = ledger.receive(bare_ack(2))
        assert [each.seq for each in received.acknowledged] == [1, 2]
        assert [each.state for each in received.acknowledged] == [MessageState.ACKNOWLEDGED] * 2
        assert (received.acks, received.accepted) == ({}, [])
        settled = ledger.message(messages[0].message_id)
        assert settled in received.acknowledged
        assert (settled.payload, settled.next_attempt_at_ms) == (VOID_PAYLOAD, None)
        assert [each.seq for each in ledger.unacknowledged("a", "far")] == [3]
        assert ledger.receive(bare_ack(2)).acknowledged == []
        assert ledger.state("r1") is RequestState.SENT  # receipt is not completion

    @pytest.mark.rule("AACP-11")
    def test_ack_that_is_old_or_beyond_what_was_sent_is_ignored(self, ledger: Ledger) -> None:
        ledger.append(*(outgoing(f"r{n}", "a", "far", local=False) for n in (1, 2)))
        assert ledger.receive(bare_ack(3)).acknowledged == []
        assert len(ledger.receive(bare_ack(2)).acknowledged) == 2
        assert ledger.receive(bare_ack(1), bare_ack(0)).acknowledged == []
        assert ledger.receive(bare_ack(1, "nobody")).acknowledged == []

    @pytest.mark.rule("AACP-11")
    def test_ack_of_a_repeated_message_is_applied(self, ledger: Ledger) -> None:
        ledger.receive(incoming(1, target="a"))
        ledger.append(outgoing("r1", "a", "far", local=False))
        again = incoming(1, target="a", ack=1)
        assert [each.seq for each in ledger.receive(again).acknowledged] == [1]

    @pytest.mark.rule("AACP-16")
    @pytest.mark.parametrize(
        ("payload", "state", "result", "error"),
        [
            (COMPLETED_PAYLOAD, RequestState.COMPLETED, b'"done"', None),
            (b'{"outcome":"COMPLETED","result":null}', RequestState.COMPLETED, b"null", None),
            (
                b'{"error":{"code":"INTERNAL","message":"no"},"outcome":"FAILED"}',
                RequestState.FAILED,
                None,
                b'{"code":"INTERNAL","message":"no"}',
            ),
        ],
        ids=["completed", "null", "failed"],
    )
    def test_response_settles_its_request_once(
        self,
        ledger: Ledger,
        payload: bytes,
        state: RequestState,
        result: bytes | None,
        error: bytes | None,
    ) -> None:
        ledger.append(outgoing("r1", "a", "far", local=False))
        received = ledger.receive(response(1, "r1", payload, ack=1), now=NOW + 3)
        [finished] = received.finished
        assert finished == ledger.request("r1")
        assert (finished.state, finished.result, finished.error) == (state, result, error)
        assert finished.finished_at_ms == NOW + 3
        assert len(received.acknowledged) == 1
        assert not received.ready
        late = ledger.receive(response(2, "r1", b'{"outcome":"COMPLETED","result":2}'))
        assert late.finished == []
        assert late.acks == {("far", "a"): 2}
        assert ledger.request("r1") == finished

    @pytest.mark.rule("AACP-16", "AACP-18")
    def test_response_ahead_of_a_gap_settles_at_once(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1", "a", "far", local=False))
        received = ledger.receive(response(2, "r1", COMPLETED_PAYLOAD))
        assert (len(received.finished), received.acks) == (1, {("far", "a"): 0})

    # -- claim ------------------------------------------------------------------------------------

    @pytest.mark.rule("AACP-04", "AACP-22")
    def test_claims_are_made_in_the_order_of_the_queue(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r3"), outgoing("r1", "c"))
        ledger.receive(incoming(1, "r2"))
        ledger.append(outgoing("r0"), outgoing("x", target="c"))
        claimed = ledger.claim("b", most=2)
        made = outgoing("r3")
        assert evolve(claimed.claims[0], is_quiet=False) == Claim(
            "r3", 1, 1, "a", "b", MessageType.REQUEST, made.payload, 1, NOW, NOW + TTL
        )
        assert [claim.request_id for claim in claimed.claims] == ["r3", "r1"]
        assert ledger.claim_ids("b", "c") == ["r2", "r0", "x"]
        record = ledger.request("r3")
        assert (record.state, record.epoch, record.owner, record.lease_until_ms) == (
            RequestState.CLAIMED,
            1,
            "me",
            NOW + LEASE,
        )

    @pytest.mark.rule("AACP-193")
    def test_what_is_entered_in_an_empty_queue_is_claimed_with_it(self, ledger: Ledger) -> None:
        urgent = RequestOptions(priority=1)
        batch = [outgoing("r1"), outgoing("c1", target="c"), outgoing("u", options=urgent)]
        claims = ledger.append_claiming(*batch, outgoing("r2"), outgoing("r1"), b=2)
        assert [each and (each.request_id, each.epoch, each.executions) for each in claims] == [
            ("r1", 1, 1),
            None,
            ("u", 1, 1),
            None,
            None,
        ]
        assert [ledger.request(each).executions for each in ("u", "r1", "r2")] == [1, 0, 0]
        record = ledger.request("r1")
        owned = (record.state, record.owner, record.lease_until_ms)
        assert owned == (RequestState.CLAIMED, "me", NOW + LEASE)
        assert ledger.claim(owner="other").claims == []
        [done, _] = ledger.complete(completion(("u", 1)), completion(("r1", 1)))
        assert done.record is not None
        assert done.record.state is RequestState.COMPLETED
        assert ledger.claim_ids(owner="other") == ["r2"]

    @pytest.mark.rule("AACP-193")
    def test_nothing_is_claimed_behind_what_is_in_the_queue(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1"), outgoing("d1", target="d"))
        ledger.claim("d", owner="other")
        ledger.limit(e=AgentLimits(2))
        delayed = RequestOptions(not_before_ms=NOW + 5)
        again = [
            outgoing("r1"),
            outgoing("r2"),
            outgoing("d2", target="d"),
            outgoing("e1", target="e"),
        ]
        again += [
            outgoing("f1", target="f", options=delayed),
            outgoing("g1", target="g", local=False),
        ]
        assert ledger.append_claiming(*again, b=9, d=9, e=9, f=9, g=9) == [None] * 6
        assert ledger.claim_ids() == ["r1", "r2"]
        ledger.complete(completion(("r1", 1)), completion(("r2", 1)))
        [claim] = ledger.append_claiming(outgoing("r3"), b=1)
        assert claim is not None
        assert claim.request_id == "r3"

    @pytest.mark.rule("AACP-04", "AACP-193", "AACP-196")
    def test_what_is_entered_behind_lasting_claims_of_its_own_is_claimed(
        self, ledger: Ledger
    ) -> None:
        ledger.append(*(outgoing(f"{agent}1", target=agent) for agent in "bcde"))
        ledger.claim("b", idle=["b"])
        ledger.claim("c", owner="other")
        ledger.claim("d", lease=HELD - 1)
        ledger.claim("e")
        ledger.append(outgoing("e2", target="e"))
        batch = [outgoing(f"{agent}3", target=agent) for agent in "bcde"]
        claims = ledger.append_claiming(*batch, outgoing("b4"), idle=False, b=2, c=1, d=1, e=1)
        claimed = [each and (each.request_id, each.executions) for each in claims]
        assert claimed == [("b3", 1), None, None, None, ("b4", 1)]
        assert [ledger.request(each).executions for each in ("b1", "b3", "b4")] == [1, 0, 0]
        assert ledger.claim("b", owner="other").again_at_ms == {"b": NOW + LEASE}
        assert ledger.claim_ids("e") == ["e2", "e3"]

    @pytest.mark.rule("AACP-193")
    def test_nothing_is_claimed_with_what_it_releases(self, ledger: Ledger) -> None:
        ledger.receive(incoming(2, "held", source="a"))
        assert ledger.append_claiming(outgoing("r1"), b=9) == [None]
        assert ledger.claim_ids() == ["held", "r1"]

    @pytest.mark.rule("AACP-193", "AACP-194")
    def test_repeated_entry_shows_the_claim_that_was_made(self, ledger: Ledger) -> None:
        ledger.append_claiming(outgoing("r1"), b=1)
        claiming = Claiming({"b": 1}, "me", NOW + LEASE, NOW + HELD)
        [again] = ledger.run(ledger.adapter.append([outgoing("r1")], NOW, claiming))
        assert again.claim is None
        assert again.existing is not None
        assert (again.existing.owner, again.existing.epoch) == ("me", 1)
        ledger.release(Release("r1", 1, 0))
        [claim] = ledger.claim(owner="other", idle=["b"]).claims
        assert (claim.request_id, claim.epoch, claim.executions) == ("r1", 2, 1)

    @pytest.mark.rule("AACP-22")
    def test_claims_are_limited_for_each_agent(self, ledger: Ledger) -> None:
        ledger.append(
            *(outgoing(f"{target}{n}", target=target) for n in (1, 2, 3) for target in "bcd")
        )
        wanted = {"c": 2, "nobody": 9, "b": 1, "d": 0}
        claimed = ledger.run(ledger.adapter.claim(Claiming(wanted, "me", NOW + LEASE), NOW))
        assert [each.request_id for each in claimed.claims] == ["c1", "c2", "b1"]
        assert claimed.again_at_ms == {}
        assert ledger.claim_ids("b", "c", "d", most=2) == ["b2", "b3", "c3", "d1", "d2"]

    @pytest.mark.rule("AACP-22")
    def test_queues_among_many_without_anything_are_found(self, ledger: Ledger) -> None:
        targets = ["z", "m", "m2"]
        ledger.append(*(outgoing(f"{each}{n}", target=each) for each in targets for n in (1, 2)))
        ledger.claim("m2")
        wanted = {f"idle-{n}": 1 for n in range(40)} | {"m": 1, "z": 2, "m2": 2}
        claimed = ledger.run(ledger.adapter.claim(Claiming(wanted, "me", NOW + LEASE), NOW))
        assert [each.request_id for each in claimed.claims] == ["m1", "z1", "z2"]
        idle = {f"idle-{n}": 1 for n in range(40)}
        assert ledger.run(ledger.adapter.claim(Claiming(idle, "me", NOW + LEASE), NOW)) == Claimed(
            []
        )

    @pytest.mark.rule("AACP-46")
    def test_only_a_request_begun_at_once_counts_as_an_execution(self, ledger: Ledger) -> None:
        ledger.append(*(outgoing(f"{target}{n}", target=target) for target in "bc" for n in (1, 2)))
        claims = ledger.claim("b", "c", idle=["b", "nobody"]).claims
        assert [(each.request_id, each.executions) for each in claims] == [
            ("b1", 1),
            ("b2", 1),
            ("c1", 1),
            ("c2", 1),
        ]
        ids = ["b1", "b2", "c1", "c2"]
        assert [ledger.request(each).executions for each in ids] == [1, 0, 0, 0]
        claims = ledger.claim("b", "c", owner="other", now=NOW + LEASE, idle=["b", "c"]).claims
        assert [(each.request_id, each.executions) for each in claims] == [
            ("b1", 2),
            ("b2", 1),
            ("c1", 1),
            ("c2", 1),
        ]
        assert [ledger.request(each).executions for each in ids] == [2, 0, 1, 0]

    @pytest.mark.rule("AACP-04", "AACP-166")
    def test_lapsed_head_before_a_live_claim_stops_the_queue(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1"), outgoing("r2"), outgoing("r3"))
        ledger.claim(most=1)
        ledger.claim(most=1, now=NOW + 10)
        claimed = ledger.claim(owner="another", now=NOW + LEASE)
        assert claimed == Claimed([], {"b": NOW + LEASE + 10})
        assert ledger.renew(("r1", 1), until=NOW + 2 * LEASE) == [True]
        claims = ledger.claim(owner="another", now=NOW + 2 * LEASE).claims
        assert [(claim.request_id, claim.epoch) for claim in claims] == [
            ("r1", 2),
            ("r2", 2),
            ("r3", 1),
        ]

    @pytest.mark.rule("AACP-04", "AACP-166")
    def test_takeover_fences_every_lapsed_claim_of_the_queue(self, ledger: Ledger) -> None:
        urgent = RequestOptions(priority=1)
        ledger.append(*(outgoing(each) for each in ("r1", "r2")), outgoing("c", target="c"))
        ledger.claim("b", "c")
        ledger.append(outgoing("r0", options=urgent))
        ledger.claim()
        assert ledger.claim_ids(owner="another", now=NOW + LEASE, most=1) == ["r0"]
        late = [("r0", 1), ("r1", 1), ("r2", 1), ("c", 1)]
        assert ledger.renew(*late, until=NOW + 3 * LEASE) == [False, False, False, True]
        done = ledger.complete(*map(completion, late))
        assert [each.record is not None for each in done] == [False, False, False, True]
        assert ledger.claim_ids(owner="another", now=NOW + LEASE) == ["r1", "r2"]
        assert [ledger.request(each).epoch for each in ("r0", "r1", "r2")] == [2, 2, 2]

    @pytest.mark.rule("AACP-190")
    def test_several_workers_are_counted_over_all_owners(self, ledger: Ledger) -> None:
        urgent = RequestOptions(priority=1)
        ledger.append(*(outgoing(f"r{n}") for n in range(5)), outgoing("u", options=urgent))
        assert ledger.limit(b=AgentLimits(3)) == {"b": NO_LIMITS}
        claims = ledger.claim(most=2).claims
        assert [(each.request_id, each.executions, each.workers) for each in claims] == [
            ("u", 1, 3),
            ("r0", 1, 3),
        ]
        assert [ledger.request(each.request_id).executions for each in claims] == [1, 1]
        assert ledger.claim_ids(owner="another") == ["r1"]
        for owner in ("me", "another"):
            claimed = ledger.claim(owner=owner)
            assert claimed.claims == []
            assert NOW < claimed.again_at_ms["b"] < NOW + LEASE
        ledger.complete(completion(("r0", 1)))
        assert ledger.claim_ids(owner="third") == ["r2"]

    @pytest.mark.rule("AACP-190")
    def test_several_workers_pass_over_what_is_tried_again_later(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1"), outgoing("r2"), outgoing("r3"))
        ledger.limit(b=AgentLimits(2))
        ledger.claim(most=1)
        ledger.release(Release("r1", 1, 1, NOW + 50))
        claimed = ledger.claim(owner="another")
        assert [each.request_id for each in claimed.claims] == ["r2", "r3"]
        assert claimed.again_at_ms == {"b": NOW + 50}

    @pytest.mark.rule("AACP-190")
    def test_lapsed_claim_of_several_counts_until_it_is_taken_over(self, ledger: Ledger) -> None:
        ledger.append(*(outgoing(f"r{n}") for n in range(4)))
        ledger.limit(b=AgentLimits(2))
        ledger.claim()
        assert ledger.claim_ids(owner="another", now=NOW + LEASE, most=1) == ["r0"]
        assert ledger.renew(("r0", 1), ("r1", 1), until=NOW + 3 * LEASE) == [False, True]
        assert ledger.claim_ids(owner="another", now=NOW + LEASE) == []
        assert ledger.request("r0").epoch == 2

    @pytest.mark.rule("AACP-04", "AACP-190", "AACP-192")
    def test_the_latest_limits_hold(self, ledger: Ledger) -> None:
        ledger.append(*(outgoing(f"r{n}") for n in range(4)), outgoing("c", target="c"))
        assert ledger.limit(b=AgentLimits(2), c=NO_LIMITS) == {"b": NO_LIMITS}
        assert ledger.limit(b=AgentLimits(2)) == {}
        assert ledger.claim_ids(most=1) == ["r0"]
        assert ledger.claim_ids(owner="another", most=1) == ["r1"]
        assert ledger.limit(b=NO_LIMITS) == {"b": AgentLimits(2)}
        assert ledger.claim("b", "c", owner="another").claims[0].request_id == "c"
        ledger.complete(completion(("r0", 1)))
        claims = ledger.claim(owner="another").claims
        assert [(each.request_id, each.workers) for each in claims] == [("r2", 1), ("r3", 1)]

    @pytest.mark.rule("AACP-04", "AACP-191")
    def test_no_more_begins_in_a_window_than_may(self, ledger: Ledger) -> None:
        ledger.append(*(outgoing(f"r{n}") for n in range(5)))
        ledger.limit(b=AgentLimits(1, 3, 3_600_000))
        assert ledger.claim_ids() == ["r0"]
        assert ledger.claim_ids() == []  # one at a time
        assert ledger.claim_ids(owner="another") == []
        ledger.release(Release("r0", 1, 1))
        assert ledger.claim_ids(owner="another") == ["r0"]
        ledger.complete(completion(("r0", 2)))
        assert ledger.claim_ids() == ["r1"]
        ledger.complete(completion(("r1", 1)))
        for owner in ("me", "another"):
            assert ledger.claim(owner=owner) == Claimed([], {"b": NOW + 1_000})
        ledger.limit(b=AgentLimits(2, 5, 3_600_000))
        assert ledger.claim_ids() == ["r2", "r3"]

    @pytest.mark.rule("AACP-191")
    def test_a_takeover_begins_once_more(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1"), outgoing("r2"))
        ledger.limit(b=AgentLimits(2, 2, 3_600_000))
        assert ledger.claim_ids(most=1) == ["r1"]
        assert ledger.claim_ids(owner="another", now=NOW + LEASE, most=1) == ["r1"]
        assert ledger.claim_ids(owner="another", now=NOW + LEASE) == []

    @pytest.mark.rule("AACP-13", "AACP-22")
    def test_request_that_waits_for_a_retry_stops_the_queue(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1"), outgoing("r2"))
        ledger.claim(most=1)
        ledger.release(Release("r1", 1, 1, NOW + 50))
        claimed = ledger.claim(now=NOW + 49)
        assert claimed == Claimed([], {"b": NOW + 50})
        claims = ledger.claim(now=NOW + 50).claims
        assert [(claim.request_id, claim.epoch) for claim in claims] == [("r1", 2), ("r2", 1)]
        assert ledger.request("r1").not_before_ms is None

    @pytest.mark.rule("AACP-120", "AACP-121")
    def test_delayed_request_is_queued_when_its_time_has_come(self, ledger: Ledger) -> None:
        later = RequestOptions(NOW + 50)
        entered = ledger.append(outgoing("late", options=later), outgoing("r1"))
        assert [each.delayed_until_ms for each in entered] == [NOW + 50, None]
        assert (ledger.state("late"), ledger.request("late").position) == (
            RequestState.DELAYED,
            None,
        )
        assert ledger.queue_delayed(NOW + 49) == Queued([], NOW + 50)
        assert ledger.claim_ids("b", now=NOW + 49) == ["r1"]
        ledger.append(outgoing("r2"))
        assert ledger.queue_delayed(NOW + 50) == Queued(["b"], None)
        assert ledger.request("late").not_before_ms is None
        assert ledger.claim_ids("b", now=NOW + 50) == ["r2", "late"]

    @pytest.mark.rule("AACP-120")
    def test_requests_are_queued_in_the_order_of_their_times(self, ledger: Ledger) -> None:
        delays = {"r1": 30, "r2": 10, "r3": 20}
        ledger.append(
            *(outgoing(name, options=RequestOptions(NOW + ms)) for name, ms in delays.items())
        )
        assert ledger.queue_delayed(NOW + 100, limit=2) == Queued(["b"], NOW + 30)
        assert ledger.queue_delayed(NOW + 100, limit=2) == Queued(["b"], None)
        assert ledger.claim_ids("b") == ["r2", "r3", "r1"]

    @pytest.mark.rule("AACP-120", "AACP-125", "AACP-18")
    def test_options_come_with_a_message_that_is_held_first(self, ledger: Ledger) -> None:
        sent = RequestOptions(NOW + 50, 3, b'{"attempts":1}')
        [entered] = ledger.append(outgoing("there", target="far", local=False, options=sent))
        assert entered.message is not None
        assert entered.message.options == sent.to_json()
        assert ledger.unacknowledged("a", "far")[0].options == sent.to_json()
        options = RequestOptions(NOW + 50, 3, ExecutionRetries().to_json())
        came = ledger.receive(incoming(2, "late", options=options.to_json()))
        assert (ledger.state("late"), came.delayed_until_ms) == (RequestState.HELD, None)
        assert ledger.receive(incoming(1, "first")).delayed_until_ms == NOW + 50
        record = ledger.request("late")
        assert (record.state, record.priority) == (RequestState.DELAYED, 3)
        assert record.retry == options.retry
        ledger.queue_delayed(NOW + 50)
        claims = ledger.claim("b", now=NOW + 50).claims
        assert [(claim.request_id, claim.priority, claim.retry) for claim in claims] == [
            ("late", 3, options.retry),
            ("first", 0, None),
        ]

    @pytest.mark.rule("AACP-122")
    def test_higher_priorities_are_claimed_first(self, ledger: Ledger) -> None:
        priorities = {"r1": 0, "r2": 1, "r3": 9, "r4": 0, "r5": 9}
        ledger.append(
            *(outgoing(name, options=RequestOptions(None, n)) for name, n in priorities.items())
        )
        assert ledger.claim_ids("b", most=2) == ["r3", "r5"]
        assert ledger.claim_ids("b") == ["r2", "r1", "r4"]

    @pytest.mark.rule("AACP-123")
    def test_nothing_urgent_is_claimed_while_another_owner_executes(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1"), outgoing("r2"))
        ledger.claim("b", most=1, owner="other")
        ledger.append(outgoing("urgent", options=RequestOptions(None, 9)))
        assert ledger.claim("b") == Claimed([], {"b": NOW + LEASE})
        assert ledger.claim_ids("b", owner="other") == ["urgent", "r2"]

    @pytest.mark.rule("AACP-124")
    def test_request_that_leaves_its_queue_bars_no_other(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1"), outgoing("r2"))
        [claim] = ledger.claim("b", most=1).claims
        ledger.release(Release("r1", claim.epoch, 1, NOW + 50, leaves_queue=True))
        assert ledger.state("r1") is RequestState.DELAYED
        assert ledger.claim_ids("b") == ["r2"]
        assert ledger.queue_delayed(NOW + 50) == Queued(["b"], None)
        [again] = ledger.claim("b", now=NOW + 50).claims
        assert (again.request_id, again.epoch, again.executions) == ("r1", 2, 2)

    @pytest.mark.rule("AACP-112", "AACP-114", "AACP-120")
    def test_delayed_request_is_cancelled_and_requeued_at_once(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1", options=RequestOptions(NOW + 50)))
        assert ledger.cancel("r1")[0].verdict is Verdict.DONE
        assert ledger.queue_delayed(NOW + 50) == Queued([], None)
        assert ledger.requeue("r1")[0].verdict is Verdict.DONE
        assert ledger.claim_ids("b") == ["r1"]

    @pytest.mark.rule("AACP-22")
    def test_every_queue_that_stops_has_a_hint(self, ledger: Ledger) -> None:
        ledger.append(outgoing("b1"), outgoing("c1", target="c"), outgoing("d1", target="d"))
        ledger.claim("b", lease=300)
        ledger.claim("c", lease=200)
        ledger.claim("d", lease=400)
        assert ledger.claim("b", "c", "d", owner="another") == Claimed(
            [], {"b": NOW + 300, "c": NOW + 200, "d": NOW + 400}
        )

    @pytest.mark.rule("AACP-15", "AACP-98")
    def test_a_purge_takes_a_batch_at_a_time(self, ledger: Ledger) -> None:
        here = [outgoing(f"r{n}") for n in range(PURGE_BATCH + 1)]
        ledger.append(*here, *(outgoing(f"f{n}", target="far", local=False) for n in range(3)))
        counts = [ledger.run(ledger.adapter.purge_expired(NOW + TTL)) for _ in range(4)]
        assert sum(counts) == PURGE_BATCH + 1 + 6 and counts[-1] == 0
        assert max(counts) <= PURGE_BATCH + 6

    @pytest.mark.rule("AACP-15", "AACP-22")
    def test_expired_request_is_passed_over(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1", expires_at_ms=NOW + 10), outgoing("r2"))
        assert ledger.claim_ids(now=NOW + 10) == ["r2"]
        assert ledger.state("r1") is RequestState.RECEIVED

    # -- complete, renew, release -----------------------------------------------------------------

    @pytest.mark.rule("AACP-16", "AACP-20")
    def test_outcome_is_entered_with_its_response(self, ledger: Ledger) -> None:
        ledger.receive(incoming(1, "r1"))
        ended = completion(ledger.claim().claims[0])
        [done] = ledger.complete(ended, now=NOW + 4)
        assert done.record is not None
        assert without_payload(done.record) == without_payload(ledger.request("r1"))
        assert (done.record.state, done.record.result) == (RequestState.COMPLETED, b'"done"')
        assert done.record.finished_at_ms == NOW + 4
        assert (done.record.owner, done.record.lease_until_ms) == (None, None)
        assert done.response == response_of(ended.reply_id, 1, NOW + 4)
        assert ledger.message(ended.reply_id) == done.response
        assert ledger.last_seq("b", "far") == 1

    @pytest.mark.rule("AACP-16")
    def test_local_request_and_event_get_no_response(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1"), event("e1"))
        ledger.receive(incoming(1, "e2", message_type=MessageType.EVENT))
        done = ledger.complete(*map(completion, ledger.claim().claims))
        assert [each.response for each in done] == [None] * 3
        assert all(each.record is not None for each in done)
        assert ledger.messages(Outcome.UNKNOWN) == []

    @pytest.mark.rule("AACP-23", "AACP-30")
    def test_completion_that_is_repeated_changes_nothing(self, ledger: Ledger) -> None:
        ledger.receive(incoming(1, "r1"))
        ended = completion(ledger.claim().claims[0])
        [done] = ledger.complete(ended, now=NOW + 4)
        again = ledger.complete(ended, ended, now=NOW + 9)
        assert done.record is not None
        assert [(each.record, each.response) for each in again] == [(done.record, None)] * 2
        assert without_payload(ledger.request("r1")) == without_payload(done.record)
        assert ledger.last_seq("b", "far") == 1
        assert len(ledger.messages(Outcome.UNKNOWN)) == 1

    @pytest.mark.rule("AACP-01", "AACP-23")
    def test_outcome_of_an_older_claim_is_fenced_off(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1"))
        [old] = ledger.claim().claims
        [new] = ledger.claim(owner="another", now=NOW + LEASE).claims
        assert ledger.complete(completion(old, b'"late"')) == [Completed(None, None)]
        assert ledger.state("r1") is RequestState.CLAIMED
        [done] = ledger.complete(completion(new))
        assert done.record is not None
        assert ledger.complete(completion(old, b'"late"')) == [Completed(None, None)]
        assert ledger.request("r1").result == b'"done"'

    @pytest.mark.rule("AACP-23")
    def test_lapsed_lease_is_valid_until_another_owner_claims(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1"))
        [claim] = ledger.claim().claims
        assert ledger.renew(("r1", 1), until=NOW + 3 * LEASE) == [True]
        [done] = ledger.complete(completion(claim), now=NOW + 9 * LEASE)
        assert done.record is not None

    @pytest.mark.rule("AACP-24", "AACP-30")
    def test_lease_is_renewed_while_its_claim_is_the_newest(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1"), outgoing("r2"), outgoing("r3"))
        claims = ledger.claim().claims
        ledger.complete(completion(claims[2]))
        asked = [("r1", 1), ("r1", 2), ("r2", 1), ("r3", 1), ("nothing", 1)]
        for _ in range(2):
            renewed = ledger.renew(*asked, until=NOW + 2 * LEASE)
            assert renewed == [True, False, True, False, False]
        assert ledger.request("r1").lease_until_ms == NOW + 2 * LEASE
        assert ledger.claim_ids(owner="another", now=NOW + LEASE) == []
        assert ledger.claim_ids(owner="another", now=NOW + 2 * LEASE) == ["r1", "r2"]
        assert ledger.renew(("r1", 1), ("r1", 2), until=NOW + 9 * LEASE) == [False, True]

    @pytest.mark.rule("AACP-25", "AACP-30")
    def test_released_claim_may_be_claimed_at_once(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1"), outgoing("r2"))
        ledger.claim()
        for _ in range(2):
            ledger.release(Release("r1", 1, 1), Release("r2", 2, 1), Release("nothing", 1, 1))
        record = ledger.request("r1")
        assert record.state is RequestState.RECEIVED
        assert (record.owner, record.lease_until_ms, record.epoch) == (None, None, 1)
        claims = ledger.claim(owner="another").claims
        assert [(claim.request_id, claim.epoch) for claim in claims] == [("r1", 2)]
        ledger.release(Release("r1", 1, 1))
        assert ledger.state("r1") is RequestState.CLAIMED
        assert ledger.complete(completion(("r1", 1))) == [Completed(None, None)]

    @pytest.mark.rule("AACP-03", "AACP-21")
    def test_finished_request_is_never_changed(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1"))
        [claim] = ledger.claim().claims
        ledger.complete(completion(claim))
        before = ledger.request("r1")
        ledger.release(Release("r1", 1, 0))
        ledger.renew(("r1", 1), until=NOW + TTL)
        assert ledger.append(outgoing("r1")) == [Appended(EntryVerdict.DUPLICATE, 1, before)]
        ledger.receive(incoming(1, "r1", "a", "b"), response(1, "r1", COMPLETED_PAYLOAD, "b", "a"))
        failed = ledger.run(ledger.adapter.mark_failed("r1", ERROR, NOW))
        completed = ledger.run(ledger.adapter.mark_completed("r1", b"2", NOW + 8))
        assert (failed, completed) == (False, True)
        assert ledger.claim_ids(now=NOW + 2 * LEASE) == []
        assert ledger.request("r1") == before

    # -- retransmission ---------------------------------------------------------------------------

    @pytest.mark.rule("AACP-13")
    def test_due_message_is_taken_and_rescheduled(self, ledger: Ledger) -> None:
        messages = [
            outgoing(f"r{n}", "a", "far", local=False, next_attempt_at_ms=NOW + n)
            for n in (3, 1, 2)
        ]
        ledger.append(*messages)
        assert ledger.take_due(NOW) == Due([], [], NOW + 1)
        seen = []

        def decide(message: MessageRecord) -> int:
            seen.append(message)
            return NOW + 100

        before = [ledger.message(uuid_of(f"message of r{n}")) for n in (1, 2)]
        due = ledger.take_due(NOW + 2, decide=decide)
        assert seen == before
        taken = [evolve(each, attempts=2, next_attempt_at_ms=NOW + 100) for each in before]
        assert due == Due(taken, [], NOW + 3)
        assert [ledger.message(each.message_id) for each in taken] == taken
        assert ledger.take_due(NOW + 2, decide=decide) == Due([], [], NOW + 3)

    @pytest.mark.rule("AACP-14")
    def test_message_that_is_given_up_becomes_a_tombstone(self, ledger: Ledger) -> None:
        made = outgoing("r1", "a", "far", local=False)
        ledger.append(
            made, outgoing("r2", "a", "far", local=False, next_attempt_at_ms=NOW + TTL - 1)
        )

        def decide(message: MessageRecord) -> int | None:
            return NOW + 900 if message.state is MessageState.TOMBSTONE else None

        due = ledger.take_due(NOW + RETRY, decide=decide)
        [void] = due.messages
        assert (void.state, void.payload) == (MessageState.TOMBSTONE, VOID_PAYLOAD)
        assert (void.seq, void.next_attempt_at_ms) == (1, NOW + 900)
        assert [each.message_id for each in due.given_up] == [made.message_id]
        assert ledger.message(made.message_id) == void
        assert [each.message_id for each in ledger.messages(Outcome.FAILED)] == [made.message_id]
        assert [each.tombstone for each in ledger.unacknowledged("a", "far")] == [True, False]
        again = ledger.take_due(NOW + 900, decide=lambda message: NOW + TTL)
        assert (len(again.messages), again.given_up) == (1, [])

    @pytest.mark.rule("AACP-14")
    def test_acknowledged_tombstone_is_deleted(self, ledger: Ledger) -> None:
        made = outgoing("r1", "a", "far", local=False, expires_at_ms=NOW + RETRY)
        ledger.append(made, outgoing("r2", "a", "far", local=False))
        ledger.take_due(NOW + RETRY)
        received = ledger.receive(bare_ack(2))
        assert [each.seq for each in received.acknowledged] == [2]
        assert ledger.run(ledger.adapter.get_message_record(made.message_id)) is None
        assert ledger.unacknowledged("a", "far") == []

    @pytest.mark.rule("AACP-50")
    def test_message_may_be_rescheduled(self, ledger: Ledger) -> None:
        made = [outgoing(name, "a", "far", local=False) for name in ("r1", "r2")]
        ledger.append(*made)
        first = made[0].message_id
        moved = ledger.reschedule(first, NOW + 5)
        assert moved is not None
        assert (moved.message_id, moved.next_attempt_at_ms) == (first, NOW + 5)
        assert (moved.state, moved.attempts, moved.payload) == (
            MessageState.PENDING,
            1,
            made[0].payload,
        )
        due = ledger.take_due(NOW + 5)
        assert [each.message_id for each in due.messages] == [first]
        assert due.next_at_ms == NOW + RETRY  # of the other, which is as it was
        assert ledger.reschedule(first, NOW + 9_000) is not None  # later than it was due
        assert [each.seq for each in ledger.take_due(NOW + RETRY).messages] == [2]

    @pytest.mark.rule("AACP-100")
    def test_pages_of_messages_are_made_due(self, ledger: Ledger) -> None:
        far, near = [
            [
                outgoing(f"{target}{n}", "a", target, local=False, created_at_ms=NOW + 50 * n)
                for n in range(3)
            ]
            for target in ("far", "near")
        ]
        ledger.append(*near, *far)
        ledger.receive(bare_ack(1))  # to a, from far
        ledger.reschedule(near[0].message_id, NOW + 3)  # due earlier than now
        at_ms = NOW + 50  # the third of each is made later
        assert ledger.hasten(["else"], at_ms, OUTBOX_START, 2) == Hastened(0, None)
        assert ledger.hasten(["near", "else"], at_ms, OUTBOX_START, 1).last == ("a", "near", 1)
        first = ledger.hasten([], at_ms, OUTBOX_START, 2)
        assert first == Hastened(1, ("a", "far", 3))
        assert first.last is not None
        second = ledger.hasten([], at_ms, first.last, 2)
        assert second == Hastened(1, ("a", "near", 2))
        assert second.last is not None
        third = ledger.hasten(["near"], at_ms, second.last, 2)
        assert third == Hastened(0, ("a", "near", 3))
        assert ledger.hasten([], at_ms, ("a", "near", 3), 2) == Hastened(0, None)
        made = [far[1], far[2], near[0], near[1], near[2]]
        planned = [ledger.message(each.message_id).next_attempt_at_ms for each in made]
        assert planned == [at_ms, NOW + RETRY, NOW + 3, at_ms, NOW + RETRY]

    # -- records and numbers ----------------------------------------------------------------------

    def test_unknown_record_is_none(self, ledger: Ledger) -> None:
        adapter = ledger.adapter
        assert ledger.run(adapter.get_request_record("nothing")) is None
        assert ledger.run(adapter.get_message_record(uuid_of("nothing"))) is None
        assert ledger.run(adapter.mark_completed("nothing", None, NOW)) is False
        assert ledger.run(adapter.mark_failed("nothing", ERROR, NOW)) is False
        assert ledger.unacknowledged("a", "b") == []

    def test_several_records_are_read_at_once(self, ledger: Ledger) -> None:
        names = [f"r{n}" for n in range(1500)]
        ledger.append(*map(outgoing, names))
        found = ledger.run(ledger.adapter.get_request_records([*names, "nothing"]))
        assert sorted(each.request_id for each in found) == sorted(names)
        assert ledger.request("r7") in found

    @pytest.mark.rule("AACP-30")
    def test_put_does_not_change_a_known_record(self, ledger: Ledger) -> None:
        ledger.append(outgoing("other", "a", "far", local=False))
        request = evolve(
            ledger.request("other"),
            request_id="put",
            state=RequestState.FAILED,
            error=b"{}",
            epoch=3,
            completion_ref="elsewhere",
            finished_at_ms=NOW,
        )
        message = evolve(
            ledger.message(uuid_of("message of other")), message_id=uuid_of("put"), seq=9
        )
        for changed in (request, evolve(request, payload=b"2")):
            ledger.run(ledger.adapter.put_request_record("put", changed))
        for sent in (message, evolve(message, attempts=7)):
            ledger.run(ledger.adapter.put_message_record(message.message_id, sent))
        assert ledger.request("put") == request
        assert ledger.message(message.message_id) == message
        assert ledger.last_seq("a", "far") == 9
        assert sequences(ledger.append(outgoing("next", "a", "far", local=False))) == [10]

    @pytest.mark.rule("AACP-20", "AACP-30")
    def test_request_that_was_sent_may_be_marked(self, ledger: Ledger) -> None:
        for name in ("r1", "r2"):
            ledger.append(outgoing(name, "a", "far", local=False))
        for _ in range(2):
            assert ledger.run(ledger.adapter.mark_completed("r1", b"1", NOW + 1, "there"))
            assert ledger.run(ledger.adapter.mark_failed("r2", ERROR, NOW + 2))
        record = ledger.request("r1")
        assert (record.outcome, record.result) == (Outcome.COMPLETED, b"1")
        assert (record.completion_ref, record.finished_at_ms) == ("there", NOW + 1)
        record = ledger.request("r2")
        assert (record.outcome, record.error) == (Outcome.FAILED, orjson.dumps(ERROR.to_wire()))
        assert not ledger.run(ledger.adapter.mark_failed("r1", ERROR, NOW))
        assert not ledger.run(ledger.adapter.mark_completed("r2", None, NOW))

    @pytest.mark.rule("AACP-20", "AACP-23")
    def test_request_executed_here_is_not_marked(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1"), outgoing("r2"))
        ledger.claim(most=1)
        ledger.receive(incoming(2, "r3"))
        states = [ledger.state(name) for name in ("r1", "r2", "r3")]
        assert states == [RequestState.CLAIMED, RequestState.RECEIVED, RequestState.HELD]
        for name in ("r1", "r2", "r3"):
            assert not ledger.run(ledger.adapter.mark_completed(name, None, NOW))
            assert not ledger.run(ledger.adapter.mark_failed(name, ERROR, NOW))
            assert ledger.request(name).outcome is Outcome.UNKNOWN
        assert [ledger.state(name) for name in ("r1", "r2", "r3")] == states

    @pytest.mark.rule("AACP-10")
    def test_last_number_never_goes_back(self, ledger: Ledger) -> None:
        for seq, last in ((5, 5), (3, 5), (5, 5), (6, 6)):
            ledger.run(ledger.adapter.update_last_sequence("a", "far", seq))
            assert ledger.last_seq("a", "far") == last
        assert sequences(ledger.append(outgoing("r1", "a", "far", local=False))) == [7]

    def test_pending_requests_are_listed_oldest_first(self, ledger: Ledger) -> None:
        ledger.append(
            outgoing("r3", created_at_ms=NOW - 1),
            outgoing("r2", "a", "far", local=False, created_at_ms=NOW - 1),
            outgoing("R4"),
            outgoing("r1", created_at_ms=NOW - 2),
            outgoing("done", "a", "far", local=False, created_at_ms=NOW - 3),
        )
        ledger.receive(incoming(2, "held"))
        ledger.run(ledger.adapter.mark_completed("done", None, NOW))
        assert ledger.pending_ids() == ["r1", "r2", "r3", "R4", "held"]
        assert ledger.pending_ids(NOW) == ["r1", "r2", "r3"]
        assert ledger.pending_ids(NOW - 2) == []

    def test_messages_are_listed_by_outcome_oldest_first(self, ledger: Ledger) -> None:
        messages = [
            event(f"e{n}", "a", "far", local=False, created_at_ms=NOW - n, expires_at_ms=NOW + n)
            for n in (1, 2, 3, 4)
        ]
        ledger.append(*messages)
        ids = [each.message_id for each in messages]
        ledger.receive(bare_ack(1))
        ledger.purge(NOW + 2)

        def listed(outcome: Outcome, older_than_ms: int | None = None) -> list[str]:
            return [each.message_id for each in ledger.messages(outcome, older_than_ms)]

        assert listed(Outcome.UNKNOWN) == [ids[3], ids[2]]
        assert listed(Outcome.UNKNOWN, NOW - 3) == [ids[3]]
        assert listed(Outcome.FAILED) == [ids[1]]
        assert listed(Outcome.COMPLETED) == []

    # -- purge ------------------------------------------------------------------------------------

    @pytest.mark.rule("AACP-15")
    def test_purge_deletes_and_counts_expired_records(self, ledger: Ledger) -> None:
        ledger.append(
            outgoing("r1", expires_at_ms=NOW + 1),
            outgoing("r2", expires_at_ms=NOW + 2),
            outgoing("r3", expires_at_ms=NOW + 3),
        )
        ledger.complete(completion(ledger.claim(most=1).claims[0]))
        assert ledger.purge(NOW) == 0
        assert ledger.purge(NOW + 2) == 2
        assert ledger.purge(NOW + 2) == 0
        assert [ledger.has_request(f"r{n}") for n in (1, 2, 3)] == [False, False, True]
        assert ledger.claim_ids(now=NOW) == ["r3"]

    @pytest.mark.rule("AACP-15", "AACP-18")
    def test_purged_held_request_keeps_its_number(self, ledger: Ledger) -> None:
        ledger.receive(incoming(2, "r2", expires_at_ms=NOW + 1), incoming(3, "r3"))
        assert ledger.purge(NOW + 1) == 1
        assert ledger.receive(incoming(1, "r1")).acks == {("far", "b"): 3}
        assert ledger.claim_ids() == ["r1", "r3"]

    @pytest.mark.rule("AACP-14", "AACP-15")
    def test_unacknowledged_message_leaves_a_tombstone(self, ledger: Ledger) -> None:
        made = event("e1", "a", "far", local=False, expires_at_ms=NOW + 1)
        ledger.append(made)
        assert ledger.purge(NOW + 5) == 1
        assert ledger.purge(NOW + 5) == 0
        void = ledger.message(made.message_id)
        assert (void.state, void.payload) == (MessageState.TOMBSTONE, VOID_PAYLOAD)
        assert void.next_attempt_at_ms == NOW + 5
        due = ledger.take_due(NOW + 5)
        assert ([each.seq for each in due.messages], due.given_up) == ([1], [])
        assert ledger.receive(bare_ack(1)).acknowledged == []
        assert ledger.purge(NOW + TTL) == 0

    @pytest.mark.rule("AACP-10", "AACP-15")
    def test_numbers_outlive_the_records(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1", expires_at_ms=NOW + 1))
        ledger.receive(incoming(1, expires_at_ms=NOW + 1))
        ledger.purge(NOW + 1)
        [appended] = ledger.append(outgoing("r1", payload=b"other"))
        assert (appended.verdict, appended.seq) == (EntryVerdict.NEW, 2)
        assert ledger.receive(incoming(1, expires_at_ms=NOW + 1)).accepted == []

    # -- at once ----------------------------------------------------------------------------------

    @pytest.mark.rule("AACP-10")
    def test_concurrent_appends_leave_no_gap(self, ledger: Ledger) -> None:
        adapter = ledger.adapter
        batches = [
            [outgoing(f"r{batch}-{n}", "ab"[n % 2], "cd"[batch % 2]) for n in range(10)]
            for batch in range(40)
        ]
        answers = ledger.together([adapter.append(batch, NOW) for batch in batches])
        given: dict[tuple[str, str], list[int]] = {}
        for batch, answer in zip(batches, answers, strict=True):
            in_batch: dict[tuple[str, str], list[int]] = {}
            for made, appended in zip(batch, answer, strict=True):
                link = (made.source_agent_id, made.target_agent_id)
                in_batch.setdefault(link, []).append(appended.seq)
            for link, numbers in in_batch.items():
                assert numbers == sorted(numbers)
                given.setdefault(link, []).extend(numbers)
        assert len(given) == 4
        for link, numbers in given.items():
            assert sorted(numbers) == list(range(1, 101))
            assert ledger.last_seq(*link) == 100

    @pytest.mark.rule("AACP-12")
    def test_same_request_appended_concurrently_is_entered_once(self, ledger: Ledger) -> None:
        adapter = ledger.adapter
        answers = ledger.together([adapter.append([outgoing("r1")], NOW) for _ in range(20)])
        verdicts = [appended.verdict for [appended] in answers]
        assert sorted(verdicts) == [EntryVerdict.DUPLICATE] * 19 + [EntryVerdict.NEW]
        assert sequences([appended for [appended] in answers]) == [1] * 20

    @pytest.mark.rule("AACP-01", "AACP-22")
    def test_concurrent_claims_are_disjoint(self, ledger: Ledger) -> None:
        adapter = ledger.adapter
        agents = ["b", "c", "d"]
        ledger.append(
            *(outgoing(f"{agent}{n:02}", "a", agent) for agent in agents for n in range(20))
        )
        answers = ledger.together(
            [
                adapter.claim(
                    Claiming(dict.fromkeys(agents, 1 + n % 7), f"owner{n % 4}", NOW + LEASE), NOW
                )
                for n in range(40)
            ]
        )
        claims = [claim for answer in answers for claim in answer.claims]
        assert len({claim.request_id for claim in claims}) == len(claims) > 0
        for agent in agents:
            mine = [claim.request_id for claim in claims if claim.target_agent_id == agent]
            assert len({ledger.request(each).owner for each in mine}) <= 1
            assert sorted(mine) == [f"{agent}{n:02}" for n in range(len(mine))]

    @pytest.mark.rule("AACP-10", "AACP-11", "AACP-23")
    def test_concurrent_operations_of_all_kinds(self, ledger: Ledger) -> None:
        """Requests go in and out on crossing links, from many tasks."""
        adapter = ledger.adapter

        async def one(n: int) -> None:
            await adapter.append([outgoing(f"out{n}", "b", "far", local=False)], NOW)
            await adapter.receive([incoming(n)], NOW, TTL)
            claimed = await adapter.claim(Claiming({"b": 5}, "me", NOW + LEASE), NOW)
            done = await adapter.complete([completion(claim) for claim in claimed.claims], NOW)
            assert all(each.response is not None for each in done)

        ledger.together([one(n) for n in range(1, 51)])
        for claim in ledger.claim().claims:
            ledger.complete(completion(claim))
        assert ledger.last_seq("b", "far") == 100
        assert [each.seq for each in ledger.unacknowledged("b", "far")] == list(range(1, 101))
        assert ledger.receive(incoming(50)).acks == {("far", "b"): 50}

    # -- open and close ---------------------------------------------------------------------------

    def test_adapter_says_what_an_acknowledgement_means(self, ledger: Ledger) -> None:
        assert ledger.adapter.durability
        assert isinstance(ledger.adapter.shared, bool)

    # -- what operators ask -----------------------------------------------------------------------

    @pytest.mark.rule("AACP-111")
    def test_requests_are_listed_by_agent_state_and_age_in_pages(self, ledger: Ledger) -> None:
        ledger.append(*(outgoing(f"r{n}", created_at_ms=NOW + n // 2) for n in range(6)))
        ledger.append(outgoing("z", target="c", created_at_ms=NOW - 1))
        ledger.append(outgoing("s", target="far", local=False, created_at_ms=NOW + 9))
        claims = ledger.claim("b", most=3).claims
        ledger.complete(completion(claims[0], result=b'"large"'))
        assert ledger.listed_ids() == ["z", *(f"r{n}" for n in range(6)), "s"]
        assert ledger.listed_ids(agent_id="b", before_ms=NOW + 2) == ["r0", "r1", "r2", "r3"]
        assert ledger.listed_ids(states=[RequestState.CLAIMED]) == ["r1", "r2"]
        assert ledger.listed_ids(states=[RequestState.SENT, RequestState.COMPLETED]) == ["r0", "s"]
        first = ledger.list(limit=3)
        assert ledger.listed_ids(after=key_of(first[-1]), limit=3) == ["r2", "r3", "r4"]
        assert [(each.payload, each.result) for each in first] == [(VOID_PAYLOAD, None)] * 3
        owned = owned_id("r1", "alice")
        ledger.append(outgoing(owned))
        assert ledger.listed_ids(id_owner=owner_of(owned)) == [owned]

    @pytest.mark.rule("AACP-111", "AACP-160")
    def test_agents_are_summarized_in_pages(self, ledger: Ledger) -> None:
        ledger.append(*(outgoing(f"r{n}", created_at_ms=NOW + n) for n in range(4)))
        ledger.append(outgoing("z", target="c"), outgoing("s", target="far", local=False))
        claims = ledger.claim("b", "c", most=2).claims
        ledger.complete(completion(claims[0]), completion(claims[2]))
        assert ledger.summaries() == [
            AgentSummary(
                "b",
                {
                    RequestState.CLAIMED: 1,
                    RequestState.COMPLETED: 1,
                    RequestState.RECEIVED: 2,
                },
                NOW + 1,
            ),
            AgentSummary("c", {RequestState.COMPLETED: 1}, None),
            AgentSummary("far", {RequestState.SENT: 1}, NOW),
        ]
        assert [each.agent_id for each in ledger.summaries("b", 1)] == ["c"]
        # Queues are measured without what is finished or elsewhere.
        assert ledger.queues("far", "c", "b", "b", "nobody") == [
            AgentSummary("b", {RequestState.CLAIMED: 1, RequestState.RECEIVED: 2}, NOW + 1)
        ]
        assert ledger.queues() == []

    @pytest.mark.rule("AACP-03", "AACP-21", "AACP-112")
    def test_failed_request_is_requeued_behind_the_others(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1"), event("e1"))
        old = ledger.fail("b")
        ledger.append(outgoing("r2"))
        [changed] = ledger.requeue("r1", expires_at_ms=NOW + 2 * TTL)
        assert changed.verdict is Verdict.DONE
        record = ledger.request("r1")
        assert changed.record == record
        assert (record.state, record.executions) == (RequestState.RECEIVED, 0)
        assert (record.error, record.finished_at_ms) == (None, None)
        assert record.expires_at_ms == NOW + 2 * TTL
        assert record.epoch > old[0].epoch
        assert ledger.complete(completion(old[0])) == [Completed(None, None)]
        assert ledger.purge(NOW + TTL) == 2  # r2 and e1
        assert ledger.claim_ids("b") == ["r1"]

    @pytest.mark.rule("AACP-112")
    def test_requeued_requests_are_executed_in_the_order_asked_for(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1"), outgoing("r2"))
        ledger.fail("b")
        ledger.append(outgoing("r3"))
        assert [each.verdict for each in ledger.requeue("r2", "r1", "r2")] == [
            Verdict.DONE,
            Verdict.DONE,
            Verdict.NOT_FAILED,
        ]
        claims = ledger.claim("b").claims
        assert [claim.request_id for claim in claims] == ["r3", "r2", "r1"]
        ledger.complete(*map(completion, claims))
        assert ledger.state("r2") is RequestState.COMPLETED

    @pytest.mark.rule("AACP-113")
    def test_only_failed_requests_of_this_ledger_are_requeued(self, ledger: Ledger) -> None:
        ledger.append(outgoing("done"), outgoing("there", target="far", local=False))
        ledger.complete(completion(ledger.claim("b").claims[0]))
        ledger.run(ledger.adapter.mark_failed("there", ERROR, NOW))
        ledger.receive(incoming(1, "asked"))
        ledger.fail("b")
        ledger.append(outgoing("new"))
        asked = ("done", "there", "asked", "new", "strange")
        assert [each.verdict for each in ledger.requeue(*asked)] == [
            Verdict.NOT_FAILED,
            Verdict.ELSEWHERE,
            Verdict.ANSWERED,
            Verdict.NOT_FAILED,
            Verdict.UNKNOWN_ID,
        ]
        assert ledger.state("asked") is RequestState.FAILED

    @pytest.mark.rule("AACP-114")
    def test_cancelled_request_is_never_claimed(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1"), outgoing("r2"))
        [changed] = ledger.cancel("r1", now=NOW + 3)
        assert changed.verdict is Verdict.DONE
        record = ledger.request("r1")
        assert (record.state, record.error) == (RequestState.FAILED, CANCELLED)
        assert record.finished_at_ms == NOW + 3
        assert ledger.claim_ids("b") == ["r2"]
        assert ledger.cancel("r1")[0].verdict is Verdict.FINISHED
        assert ledger.requeue("r1")[0].verdict is Verdict.DONE
        assert ledger.claim_ids("b") == ["r1"]

    @pytest.mark.rule("AACP-114", "AACP-23")
    def test_claim_of_a_cancelled_request_is_lost(self, ledger: Ledger) -> None:
        ledger.append(outgoing("r1"))
        [claim] = ledger.claim("b").claims
        ledger.cancel("r1")
        assert ledger.renew((claim.request_id, claim.epoch), until=NOW + LEASE) == [False]
        assert ledger.complete(completion(claim)) == [Completed(None, None)]
        ledger.release(Release(claim.request_id, claim.epoch, 1))
        assert ledger.request("r1").error == CANCELLED

    @pytest.mark.rule("AACP-114", "AACP-16")
    def test_cancelling_answers_the_ledger_that_asked(self, ledger: Ledger) -> None:
        ledger.receive(incoming(1, "first"), incoming(3, "held"))
        assert ledger.state("held") is RequestState.HELD
        answers = ledger.cancel("first", "held")
        assert [each.response.seq for each in answers if each.response] == [1, 2]
        sent = ledger.unacknowledged("b", "far")
        assert [each.request_id for each in sent] == ["first", "held"]
        assert all(CANCELLED in each.payload for each in sent)
        ledger.receive(incoming(2, "late"))  # fills the gap
        assert ledger.claim_ids("b") == ["late"]

    @pytest.mark.rule("AACP-115")
    def test_only_unfinished_requests_of_this_ledger_are_cancelled(self, ledger: Ledger) -> None:
        ledger.append(outgoing("done"), outgoing("there", target="far", local=False))
        ledger.complete(completion(ledger.claim("b").claims[0]))
        assert [each.verdict for each in ledger.cancel("done", "there", "strange")] == [
            Verdict.FINISHED,
            Verdict.ELSEWHERE,
            Verdict.UNKNOWN_ID,
        ]
        assert ledger.state("done") is RequestState.COMPLETED
        assert ledger.state("there") is RequestState.SENT


class WithinIsRefused:
    """For adapters that have no connection in which a handler could write."""

    @pytest.mark.rule("AACP-05")
    def test_write_in_the_transaction_is_refused(self, ledger: Ledger) -> None:
        async def write(connection: object) -> None:
            raise AssertionError("must not be called")

        ledger.append(outgoing("r1"), outgoing("r2"))
        writing, plain = map(completion, ledger.claim().claims)
        writing.in_transaction = write
        refused, done = ledger.complete(writing, plain)
        assert isinstance(refused.failure, UsageError)
        assert (refused.record, refused.response) == (None, None)
        assert done.record is not None
        assert ledger.state("r1") is RequestState.CLAIMED


class DurableStoreContract(StoreContract):
    """For adapters whose ledger is still there when they are closed and opened again."""

    @pytest.mark.rule("AACP-02", "AACP-27")
    def test_entered_records_survive_close_and_open(self, ledger: Ledger) -> None:
        ledger.append(
            outgoing("local"), outgoing("sent", "a", "far", local=False), event("e", local=False)
        )
        ledger.receive(incoming(1, "r1"), incoming(2, "r2"), incoming(4, "held"), bare_ack(0))
        ledger.claim()
        ledger.complete(completion(("r1", 1)))
        ledger.run(ledger.adapter.mark_completed("sent", b"[1]", NOW, "ref"))
        names = ["local", "sent", "r1", "r2", "held"]
        unfinished = {"local", "r2"}
        before = {name: ledger.request(name) for name in names}
        messages = [ledger.messages(outcome) for outcome in Outcome]
        ledger.reopen()
        for name in names:
            record = ledger.request(name)
            if name in unfinished:
                # A store may know that their owner is gone, and release them.
                assert record.epoch == before[name].epoch == 1
                assert record.outcome is Outcome.UNKNOWN
            else:
                assert record == before[name]
        assert [ledger.messages(outcome) for outcome in Outcome] == messages
        assert ledger.last_seq("a", "b") == 2
        assert ledger.receive(incoming(3, "r3")).acks == {("far", "b"): 4}
        claims = ledger.claim(owner="another", now=NOW + LEASE).claims
        assert [(claim.request_id, claim.epoch) for claim in claims] == [
            ("local", 2),
            ("r2", 2),
            ("r3", 1),
            ("held", 1),
        ]
        assert ledger.complete(completion(("r2", 1))) == [Completed(None, None)]

    @pytest.mark.rule("AACP-30")
    def test_repetition_is_harmless_after_close_and_open(self, ledger: Ledger) -> None:
        made = [outgoing("r1"), event("e", "a", "far", local=False)]
        came = [incoming(1, "r2"), incoming(3, "r3")]
        first = ledger.append(*made)
        ledger.receive(*came)
        ended = [completion(claim) for claim in ledger.claim().claims]
        ledger.complete(*ended)
        ledger.reopen()
        assert sequences(ledger.append(*made)) == sequences(first)
        again = ledger.receive(*came)
        assert (again.acks, again.accepted) == ({("far", "b"): 1}, [])
        done = ledger.complete(*ended)
        assert [each.record is not None for each in done] == [True, True]
        assert [each.response for each in done] == [None, None]
        assert ledger.last_seq("b", "far") == 1

    def test_adapter_may_be_closed_and_opened_again(self, make: MakeAdapter) -> None:
        adapter = make()
        for n in (1, 2):
            with asyncio.Runner() as runner:
                runner.run(adapter.open())
                [appended] = runner.run(adapter.append([outgoing(f"r{n}")], NOW))
                runner.run(adapter.close())
            assert appended.seq == n

    @pytest.mark.rule("AACP-30")
    def test_store_answers_as_the_store_in_memory(self) -> None:
        from tests.agents.stores.beside_memory import run_beside_memory

        run_beside_memory(self.place)


class SharedStoreContract(DurableStoreContract):
    """For adapters several of which may have one ledger open."""

    @pytest.fixture
    def other(self, make: MakeAdapter, ledger: Ledger) -> Iterator[Ledger]:
        with Ledger(make) as other:
            yield other

    @pytest.mark.rule("AACP-10", "AACP-12")
    def test_two_adapters_see_one_ledger(self, ledger: Ledger, other: Ledger) -> None:
        ledger.append(outgoing("r1"))
        assert sequences(other.append(outgoing("r1"), outgoing("r2"))) == [1, 2]
        assert sequences(ledger.append(outgoing("r3"))) == [3]
        assert other.request("r3") == ledger.request("r3")
        other.receive(incoming(1))
        assert ledger.receive(incoming(1), incoming(2)).acks == {("far", "b"): 2}

    @pytest.mark.rule("AACP-01", "AACP-22")
    def test_claims_of_one_adapter_stop_the_other(self, ledger: Ledger, other: Ledger) -> None:
        ledger.append(outgoing("r1"), outgoing("r2"), outgoing("r3", target="c"))
        assert ledger.claim_ids("b", owner="first", most=1) == ["r1"]
        claimed = other.claim("b", "c", owner="second")
        assert [claim.request_id for claim in claimed.claims] == ["r3"]
        assert claimed.again_at_ms == {"b": NOW + LEASE}
        [late] = other.claim("b", owner="second", now=NOW + LEASE, most=1).claims
        assert late.epoch == 2
        assert ledger.renew(("r1", 1), until=NOW + 9 * LEASE) == [False]
        assert ledger.complete(completion(("r1", 1))) == [Completed(None, None)]
        [done] = other.complete(completion(late))
        assert done.record is not None
        assert without_payload(ledger.request("r1")) == without_payload(done.record)

    @pytest.mark.rule("AACP-10", "AACP-22")
    def test_two_adapters_work_concurrently(self, make: MakeAdapter) -> None:
        async def work() -> tuple[list[int], list[Claim]]:
            adapters = [make(), make()]
            for adapter in adapters:
                await adapter.open()
            try:
                appended = await asyncio.gather(
                    *(
                        adapters[n % 2].append([outgoing(f"r{n}-{k}") for k in range(5)], NOW)
                        for n in range(40)
                    )
                )
                claimed = await asyncio.gather(
                    *(
                        adapters[n % 2].claim(Claiming({"b": 7}, f"owner{n % 2}", NOW + LEASE), NOW)
                        for n in range(40)
                    )
                )
            finally:
                for adapter in adapters:
                    await adapter.close()
            numbers = [each.seq for batch in appended for each in batch]
            return numbers, [claim for each in claimed for claim in each.claims]

        numbers, claims = asyncio.run(work())
        assert sorted(numbers) == list(range(1, 201))
        assert sorted(claim.seq for claim in claims) == list(range(1, len(claims) + 1))
        assert claims
