"""A store beside the ledger in memory: whatever is asked of both, both answer alike.

The machine asks in any order what nodes ask, well-behaved or not: it repeats operations whose
answer was lost, completes claims that it has no longer, acknowledges what was never sent, lets time
pass and opens the store anew. Every answer, and after every step every record, must be the same.

What a store may choose freely is left out of the comparison: the value of a position (claims show
the order), the order of what was acknowledged, and hints that come too early.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

from attrs import evolve
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from foundation_rt.agents.ledger.administration import CANCELLED, Changed, RequestQuery
from foundation_rt.agents.ledger.agent_limits import AgentLimits
from foundation_rt.agents.ledger.request_options import ExecutionRetries, RequestOptions
from foundation_rt.agents.ledger.types import (
    Claim,
    Claimed,
    Claiming,
    Completed,
    IncomingEnvelope,
    MessageRecord,
    MessageState,
    MessageType,
    Outcome,
    OutgoingMessage,
    Received,
    Release,
    RequestRecord,
    RequestState,
)
from foundation_rt.agents.persistence import AACPPersistenceAdapter
from foundation_rt.agents.stores.memory import InMemoryAACPPersistenceAdapter
from tests.agents.stores.contract import (
    COMPLETED_PAYLOAD,
    ERROR,
    FAR_INCARNATION,
    HELD,
    NOW,
    Ledger,
    MakeAdapter,
    completion,
    event,
    incoming,
    outgoing,
    record_of,
    response,
    uuid_of,
    without_payload,
)
from tests.lab.sizes import size

Place = Callable[[], AbstractContextManager[MakeAdapter]]
Ask = Callable[[AACPPersistenceAdapter], Coroutine[Any, Any, Any]]

LOCAL = ("a", "b")
FAR = ("far", "away")
REQUEST_IDS = tuple(f"r{n}" for n in range(16))
PAYLOADS = (b"1", b'{"n":2}')
LIFETIMES = (20, 60, 1000)
LEASE = 25
TTL = 70
OWN_RETRIES = ExecutionRetries().to_json()

times = st.sampled_from((0, 1, 10, LEASE, 40))
request_ids = st.sampled_from(REQUEST_IDS)
low_watermarks = st.sampled_from((1, 1, 1, 2, 4, 7))
payloads = st.sampled_from((PAYLOADS[0], PAYLOADS[0], PAYLOADS[1]))


def decide(now_ms: int) -> Callable[[MessageRecord], int | None]:
    """Return a policy of three attempts, each later than the last."""

    def next_attempt(message: MessageRecord) -> int | None:
        if message.attempts >= 3 and message.state is not MessageState.TOMBSTONE:
            return None
        return now_ms + 7 * message.attempts + message.seq % 3

    return next_attempt


class BesideMemory(RuleBasedStateMachine):
    """Asks both, compares what they answer."""

    place: Place

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.names = 0
        self.claims: list[Claim] = []
        self.messages: list[OutgoingMessage] = []
        self.arrivals: list[IncomingEnvelope] = []
        self.last: Ask | None = None
        self.stack = ExitStack()

    @initialize()
    def begin(self) -> None:
        make = self.stack.enter_context(type(self).place())
        self.store = self.stack.enter_context(Ledger(make))
        incarnation = self.store.adapter.incarnation
        self.incarnation = dict.fromkeys(LOCAL, incarnation) | dict.fromkeys(FAR, FAR_INCARNATION)
        model = partial(InMemoryAACPPersistenceAdapter, incarnation=incarnation)
        self.model = self.stack.enter_context(Ledger(model))

    def teardown(self) -> None:
        self.stack.close()

    def ask(self, ask: Ask) -> Any:
        """Ask both; return the model's answer."""
        self.last = ask
        expected, answer = (
            self.model.run(ask(self.model.adapter)),
            self.store.run(ask(self.store.adapter)),
        )
        assert comparable(answer) == comparable(expected)
        if isinstance(answer, Received):
            assert answer.ready or not expected.ready
        return expected

    def new_name(self) -> str:
        self.names += 1
        return f"name {self.names}"

    # -- what nodes ask ---------------------------------------------------------------------------

    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        messages = [self.draw_outgoing(data) for _ in range(data.draw(st.integers(1, 4)))]
        self.messages += messages
        now = self.now
        wanted = data.draw(st.dictionaries(st.sampled_from(LOCAL), st.integers(1, 3)))
        idle = [each for each in wanted if data.draw(st.booleans())]
        claiming = Claiming(wanted, "one", now + LEASE, now + HELD, idle)
        appended = self.ask(lambda store: store.append(messages, now, claiming))
        self.claims += [each.claim for each in appended if each.claim is not None]

    def draw_outgoing(self, data: st.DataObject) -> OutgoingMessage:
        if self.messages and data.draw(st.integers(0, 5)) == 0:
            return data.draw(st.sampled_from(self.messages))
        target = data.draw(st.sampled_from(LOCAL + FAR))
        common = {
            "local": target in LOCAL,
            "payload": data.draw(payloads),
            "created_at_ms": self.now,
            "expires_at_ms": self.now + data.draw(st.sampled_from(LIFETIMES)),
            "next_attempt_at_ms": self.now + data.draw(times) + 1,
            "message_id": uuid_of(self.new_name()),
            "options": self.draw_options(data),
        }
        source = data.draw(st.sampled_from(LOCAL))
        if data.draw(st.booleans()):
            return event(self.new_name(), source, target, **common)
        kind = data.draw(st.sampled_from((MessageType.REQUEST, MessageType.EVENT)))
        return outgoing(data.draw(request_ids), source, target, message_type=kind, **common)

    def draw_options(self, data: st.DataObject) -> RequestOptions | None:
        if data.draw(st.integers(0, 2)):
            return None
        delay = data.draw(st.none() | times)
        return RequestOptions(
            None if delay is None else self.now + delay,
            data.draw(st.sampled_from((0, 1, 9))),
            data.draw(st.sampled_from((None, OWN_RETRIES))),
        )

    @rule(data=st.data())
    def receive(self, data: st.DataObject) -> None:
        arrivals = [self.draw_incoming(data) for _ in range(data.draw(st.integers(1, 5)))]
        self.arrivals += arrivals
        now = self.now
        self.ask(lambda store: store.receive(arrivals, now, TTL))

    def draw_incoming(self, data: st.DataObject) -> IncomingEnvelope:
        if self.arrivals and data.draw(st.integers(0, 5)) == 0:
            return data.draw(st.sampled_from(self.arrivals))
        # Links of this ledger's own agents too: several may share it, and send over a transport.
        source = data.draw(st.sampled_from(FAR + FAR + LOCAL))
        target = data.draw(st.sampled_from(LOCAL))
        seq = data.draw(st.integers(0, 8))
        more: dict[str, Any] = {
            "ack": data.draw(st.none() | st.integers(0, 6)),
            "message_id": uuid_of(self.new_name()),
            "expires_at_ms": data.draw(
                st.none() | st.sampled_from(LIFETIMES).map(lambda lifetime: self.now + lifetime)
            ),
            "reply": self.new_name(),
            "incarnation": self.incarnation[source] - (data.draw(st.integers(0, 15)) == 0),
            "low_watermark": data.draw(low_watermarks),
        }
        kind = data.draw(st.sampled_from(MessageType))
        if seq == 0:
            return incoming(0, None, source, target, message_type=MessageType.EVENT, **more)
        if data.draw(st.integers(0, 7)) == 0:
            return incoming(
                seq,
                data.draw(request_ids),
                source,
                target,
                tombstone=True,
                message_type=kind,
                **more,
            )
        if kind is MessageType.RESPONSE:
            outcome = data.draw(
                st.sampled_from((COMPLETED_PAYLOAD, b'{"error":{"code":"X"},"outcome":"FAILED"}'))
            )
            return response(seq, data.draw(request_ids), outcome, source, target, **more)
        request_id = None
        if kind is MessageType.REQUEST or data.draw(st.booleans()):
            request_id = data.draw(request_ids)
        more["payload"] = data.draw(payloads)
        options = self.draw_options(data)
        more["options"] = None if options is None else options.to_json()
        return incoming(seq, request_id, source, target, message_type=kind, **more)

    @rule(
        agents=st.lists(st.sampled_from((*LOCAL, "far")), min_size=1, max_size=3, unique=True),
        owner=st.sampled_from(("one", "other")),
        limit=st.sampled_from((1, 2, 50)),
    )
    def claim(self, agents: list[str], owner: str, limit: int) -> None:
        now = self.now
        wanted = {agent: limit + n for n, agent in enumerate(agents)}
        idle = agents[1:]
        claimed: Claimed = self.ask(
            lambda store: store.claim(Claiming(wanted, owner, now + LEASE, idle=idle), now)
        )
        self.claims += claimed.claims

    @rule(agent=st.sampled_from(LOCAL), workers=st.sampled_from((1, 2, 3)))
    def limit_agents(self, agent: str, workers: int) -> None:
        self.ask(lambda store: store.limit_agents({agent: AgentLimits(workers)}))

    @rule(limit=st.sampled_from((1, 3, 50)))
    def queue_delayed(self, limit: int) -> None:
        now = self.now
        self.ask(lambda store: store.queue_delayed(now, limit))

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        ended = []
        for request_id, epoch in self.draw_claims(data):
            failed = data.draw(st.booleans())
            end = completion((request_id, epoch), error=b'{"code":"X"}' if failed else None)
            end.reply_id = uuid_of(self.new_name())
            end.reply_next_attempt_at_ms = self.now + 11
            ended.append(end)
        now = self.now
        self.ask(lambda store: store.complete(ended, now))

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        claims = self.draw_claims(data)
        until = self.now + LEASE
        self.ask(lambda store: store.renew(claims, until))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), delay=st.none() | times)
    def release(self, data: st.DataObject, delay: int | None) -> None:
        not_before = None if delay is None else self.now + delay
        executions = 7 if delay is None else 1
        leaves = not_before is not None and data.draw(st.booleans())
        releases = [
            Release(*claim, executions, not_before, leaves) for claim in self.draw_claims(data)
        ]
        self.ask(lambda store: store.release(releases))

    def draw_claims(self, data: st.DataObject) -> list[tuple[str, int]]:
        """Claims that were made lately, and such as never were, or not by then."""
        known = st.sampled_from([(claim.request_id, claim.epoch) for claim in self.claims[-8:]])
        wrong = st.builds(
            lambda claim, by: (claim[0], claim[1] + by), known, st.sampled_from((-1, 1))
        )
        strange = st.tuples(request_ids, st.integers(0, 3))
        return data.draw(st.lists(known | known | wrong | strange, min_size=1, max_size=4))

    @rule(limit=st.sampled_from((1, 3, 50)))
    def take_due(self, limit: int) -> None:
        now = self.now
        self.ask(lambda store: store.take_due(now, limit, decide(now)))

    @rule(
        to=st.lists(st.sampled_from(FAR), unique=True),
        at=st.sampled_from((0, 5, 400)),
        after=st.tuples(st.sampled_from(LOCAL), st.sampled_from(FAR), st.integers(0, 5)),
        limit=st.sampled_from((1, 3, 50)),
    )
    def hasten(self, to: list[str], at: int, after: tuple[str, str, int], limit: int) -> None:
        now = self.now
        self.ask(lambda store: store.hasten(to, now + at, after, limit))

    @precondition(lambda self: self.messages)
    @rule(data=st.data(), delay=st.sampled_from((0, 5, 400)), give_up=st.booleans())
    def reschedule(self, data: st.DataObject, delay: int, give_up: bool) -> None:
        message_id = data.draw(st.sampled_from(self.messages)).message_id
        at_ms = self.now + delay
        self.ask(lambda store: store.reschedule(message_id, at_ms, give_up=give_up))

    @rule(request_id=request_ids, completes=st.booleans())
    def mark(self, request_id: str, completes: bool) -> None:
        now = self.now
        if completes:
            self.ask(lambda store: store.mark_completed(request_id, b"3", now, "there"))
        else:
            self.ask(lambda store: store.mark_failed(request_id, ERROR, now))

    @rule(
        request_id=request_ids, state=st.sampled_from((RequestState.SENT, RequestState.COMPLETED))
    )
    def put_request(self, request_id: str, state: RequestState) -> None:
        times = {"created_at_ms": self.now, "expires_at_ms": self.now + TTL}
        record = record_of(outgoing(request_id, "a", "far", **times), state)
        self.ask(lambda store: store.put_request_record(request_id, record))

    @rule(skipped=st.integers(0, 2))
    def put_message(self, skipped: int) -> None:
        message_id = uuid_of(self.new_name())
        seq = self.model.last_seq("a", "far") + 1 + skipped
        record = MessageRecord(
            message_id,
            None,
            "a",
            "far",
            seq,
            MessageType.EVENT,
            b"{}",
            MessageState.PENDING,
            self.now,
            self.now + TTL,
            2,
            self.now + 3,
        )
        self.ask(lambda store: store.put_message_record(message_id, record))

    @rule(to=st.sampled_from(LOCAL + FAR), seq=st.integers(0, 6))
    def update_last_sequence(self, to: str, seq: int) -> None:
        self.ask(lambda store: store.update_last_sequence("a", to, seq))

    @rule(ids=st.lists(request_ids, min_size=1, max_size=4))
    def cancel(self, ids: list[str]) -> None:
        ended = []
        for request_id in ids:
            end = completion((request_id, 0), error=CANCELLED)
            end.reply_id = uuid_of(self.new_name())
            ended.append(end)
        now = self.now
        self.ask(lambda store: store.cancel(ended, now))

    @rule(ids=st.lists(request_ids, min_size=1, max_size=4), lifetime=st.sampled_from(LIFETIMES))
    def requeue(self, ids: list[str], lifetime: int) -> None:
        expires_at_ms = self.now + lifetime
        self.ask(lambda store: store.requeue(ids, expires_at_ms))

    @rule(
        states=st.lists(st.sampled_from(RequestState), max_size=3, unique=True),
        age=st.none() | times,
        limit=st.sampled_from((1, 3, 50)),
    )
    def list_requests(self, states: list[RequestState], age: int | None, limit: int) -> None:
        before_ms = None if age is None else self.now - age
        query = RequestQuery("b", states, before_ms, limit=limit)
        self.ask(lambda store: store.list_requests(query))
        self.ask(lambda store: store.summarize_agents("", limit))
        self.ask(lambda store: store.measure_queues(["b", *LOCAL, "nobody"]))

    @rule()
    def purge(self) -> None:
        now = self.now
        self.ask(lambda store: store.purge_expired(now))

    # -- what happens to them ---------------------------------------------------------------------

    @precondition(lambda self: len(self.arrivals) > 8)
    @rule(source=st.sampled_from(FAR + LOCAL[:1]))
    def a_ledger_is_lost(self, source: str) -> None:
        self.incarnation[source] += 1

    @rule(ms=times)
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @precondition(lambda self: self.last)
    @rule()
    def the_answer_was_lost(self) -> None:
        assert self.last is not None
        answer = self.ask(self.last)
        if isinstance(answer, Claimed):
            self.claims += answer.claims  # what was claimed behind the first

    @rule()
    def reopen(self) -> None:
        for claim in self.claims:  # so that the store need not find out whose they were
            release = Release(claim.request_id, claim.epoch, claim.executions)
            self.ask(lambda store, release=release: store.release([release]))
        self.claims.clear()
        self.store.reopen()

    # -- what both know ---------------------------------------------------------------------------

    @invariant()
    def records_are_alike(self) -> None:
        if not hasattr(self, "model"):
            return
        last = self.last
        self.ask(lambda store: store.list_pending_requests(self.now))
        self.ask(lambda store: store.list_pending_requests())
        self.ask(requests_by_id)
        for outcome in Outcome:
            self.ask(lambda store, outcome=outcome: store.list_messages_in_state(outcome))
        for source in LOCAL:
            for target in FAR:
                link = (source, target)
                self.ask(lambda store, link=link: store.get_unacknowledged_messages(*link))
                self.ask(lambda store, link=link: store.get_last_sequence(*link))
        self.last = last


async def requests_by_id(store: AACPPersistenceAdapter) -> list[RequestRecord]:
    """Return the requests of all ids in one order, since a store may choose any."""
    records = await store.get_request_records(REQUEST_IDS)
    return sorted(records, key=lambda record: record.request_id)


def comparable(answer: Any) -> Any:
    """Return an answer without the values that a store may choose."""
    if isinstance(answer, RequestRecord):
        return evolve(answer, position=None if answer.position is None else 0)
    if isinstance(answer, Claim):
        return evolve(answer, is_quiet=False)
    if isinstance(answer, Claimed):
        return comparable(answer.claims), answer.again_at_ms
    if isinstance(answer, Completed):
        record = None if answer.record is None else without_payload(answer.record)
        return comparable(record), answer.response
    if isinstance(answer, Changed):
        return answer.verdict, comparable(answer.record), answer.response
    if isinstance(answer, Received):
        return evolve(
            answer,
            finished=[comparable(record) for record in answer.finished],
            acknowledged=sorted(answer.acknowledged, key=lambda message: message.message_id),
            ready=False,
        )
    if isinstance(answer, list):
        return [comparable(each) for each in answer]
    if hasattr(answer, "existing"):
        return evolve(answer, existing=comparable(answer.existing), claim=comparable(answer.claim))
    return answer


def run_beside_memory(
    place: Place, examples: int = size(10, 30), steps: int = 40, base: settings | None = None
) -> None:
    """Try to find a difference."""
    machine = type("BesideMemory", (BesideMemory,), {"place": staticmethod(place)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            base,
            max_examples=examples,
            stateful_step_count=steps,
            suppress_health_check=list(HealthCheck),
        ),
    )
