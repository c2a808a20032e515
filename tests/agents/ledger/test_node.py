"""What a node decides, effect by effect: nothing runs here but the node and a ledger in memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from foundation_rt.agents.ledger.effects import (
    Abandon,
    Effect,
    Execute,
    NoticeReceived,
    NoticeSettled,
    Operation,
    Persist,
    ResolveWaiter,
    SendEnvelopes,
    WriteLog,
)
from foundation_rt.agents.ledger.node import Node
from foundation_rt.agents.ledger.operations import NodeSettings
from foundation_rt.agents.ledger.retransmitter import RetransmissionPolicy, Retransmitter
from foundation_rt.agents.ledger.rules import digest_of
from foundation_rt.agents.ledger.types import (
    LOCKED,
    Appended,
    Claim,
    EntryVerdict,
    Envelope,
    Executed,
    MessageType,
    Release,
    RequestRecord,
    RequestState,
)
from foundation_rt.agents.persistence import StoreError
from foundation_rt.agents.stores.memory import InMemoryAACPPersistenceAdapter
from foundation_rt.errors import ErrorCode, StructuredError
from tests.agents.stores.contract import FAR_INCARNATION, NOW, TTL, event, outgoing, uuid_of

INCARNATION = NOW
BUSY = StructuredError(ErrorCode.RESOURCE_EXHAUSTED, "busy")
POLICY = RetransmissionPolicy(jitter=0, should_retry_error=lambda error: error == BUSY)


HOUR_MS = 3_600_000
HOURLY = RetransmissionPolicy(base_delay_ms=HOUR_MS, max_delay_ms=HOUR_MS, jitter=0)


class Bench:
    """A node, its ledger, and the effects that the test has not performed yet.

    Attributes:
        now: the time, in ms.
        effects: what is to be done, in order.
        calls: the operations of the ledger that were performed.
    """

    def __init__(self, store: InMemoryAACPPersistenceAdapter | None = None, **more: Any) -> None:
        ids = itertools.count()
        notices = more.pop("notices", False)
        settings = NodeSettings(**{"owner": "me", **more})
        self.node = Node(
            settings,
            lambda: uuid_of(f"id {id(self)} {next(ids)}"),
            Retransmitter(POLICY, lambda: 0.0),
            notices=notices,
        )
        self.store = store or InMemoryAACPPersistenceAdapter(incarnation=INCARNATION)
        self.node.exchange.incarnation = INCARNATION
        self.now = NOW
        self.effects: list[Effect] = []
        self.calls: list[Operation] = []
        self.node.start()

    def add_busy_agent(self, agent_id: str) -> None:
        """Register an agent with the largest capacity."""
        self.node.claims.add_agent(agent_id)
        self.node.claims._agents[agent_id].capacity = self.node.settings.max_held_by_agent

    def look(self) -> list[Effect]:
        """Return the pending effects, with those that the node has decided since."""
        self.effects += self.node.take_effects(self.now)
        return self.effects

    def take(self, kind: type[Any]) -> list[Any]:
        """Remove and return the effects of one kind."""
        self.look()
        taken = [each for each in self.effects if type(each) is kind]
        self.effects = [each for each in self.effects if type(each) is not kind]
        return taken

    def answer(self, persist: Persist) -> Any:
        """Return the result of the ledger without reporting it to the node."""
        self.calls.append(persist.operation)
        performing = getattr(self.store, persist.operation.value)(*persist.arguments)
        try:
            performing.send(None)
        except StopIteration as stop:
            return stop.value
        raise AssertionError("the ledger in memory never waits")

    def perform(self, *operations: Operation) -> None:
        """Perform the operations of the ledger that wait, or those named, and what they lead to."""
        while waiting := [each for each in self.take(Persist) if not self._keep(each, operations)]:
            for persist in waiting:
                self.node.persisted(persist, self.answer(persist), self.now)

    def _keep(self, persist: Persist, operations: Sequence[Operation]) -> bool:
        if not operations or persist.operation in operations:
            return False
        self.effects.append(persist)
        return True

    def waiting(self, operation: Operation) -> Persist:
        """Return the one pending operation of that name."""
        self.look()
        [persist] = [
            each
            for each in self.effects
            if isinstance(each, Persist) and each.operation is operation
        ]
        self.effects.remove(persist)
        return persist

    def let_another_enter(self, request_id: str) -> None:
        """Have another process on the ledger enter a request."""
        other = Bench(self.store)
        other.node.exchange.send([outgoing(request_id)], request_id)
        other.perform()

    def fail(self, persist: Persist) -> None:
        self.node.failed(persist, StoreError("simulated"), self.now)

    def pass_time(self, ms: int) -> None:
        """Let time pass as a runner would: the node is woken whenever it wants to be."""
        until = self.now + ms
        while (due := self.node.operations.wake_at_ms) is not None and due <= until:
            self.now = max(self.now, due)
            self.node.operations.tick(self.now)
            self.perform()
        self.now = until

    def claims(self) -> list[Claim]:
        return [each.claim for each in self.take(Execute)]

    def sent(self) -> list[Envelope]:
        return [envelope for send in self.take(SendEnvelopes) for envelope in send.envelopes]

    def resolved(self) -> dict[Any, Any]:
        return {each.waiter: each.answer for each in self.take(ResolveWaiter)}

    def finish(self, claim: Claim, result: bytes | None = b"1", error: Any = None) -> None:
        self.node.claims.executed(claim, Executed(result, error), self.now)


def arrived(
    seq: int, request_id: str | None = None, *, source: str = "far", target: str = "b", **more: Any
) -> Envelope:
    """Return an envelope from another ledger; by default a REQUEST."""
    message_type = more.pop("message_type", MessageType.REQUEST)
    return Envelope(
        uuid_of(f"{source} {target} {seq}"),
        request_id or (f"q{seq}" if message_type is MessageType.REQUEST else None),
        source,
        target,
        seq,
        more.pop("ack", None),
        message_type,
        NOW,
        more.pop("payload", b"1"),
        NOW + TTL,
        incarnation=more.pop("incarnation", FAR_INCARNATION),
        ack_incarnation=more.pop("ack_incarnation", INCARNATION),
        **more,
    )


# -- the order of work ----------------------------------------------------------------------------


@pytest.mark.rule("AACP-17")
def test_sender_enters_message_then_sends_then_resolves() -> None:
    bench = Bench(has_transport=True)
    bench.perform()
    bench.node.exchange.send([outgoing("r1", local=False)], "waiter")
    [persist] = bench.look()
    assert isinstance(persist, Persist)
    assert persist.operation is Operation.APPEND
    bench.effects.clear()
    answer = bench.answer(persist)
    assert bench.look() == []
    bench.node.persisted(persist, answer, bench.now)
    [envelope] = bench.sent()
    assert (envelope.request_id, envelope.seq, envelope.message_id) == (
        "r1",
        1,
        outgoing("r1").message_id,
    )
    resolved = bench.resolved()["waiter"]
    assert isinstance(resolved, Appended)
    assert resolved.verdict is EntryVerdict.NEW


@pytest.mark.rule("AACP-16", "AACP-17")
def test_receiver_enters_acknowledges_executes_records_answers_in_order() -> None:
    bench = Bench(has_transport=True)
    bench.node.claims.add_agent("b")
    bench.perform()
    bench.node.exchange.deliver([arrived(1)], "waiter", bench.now)
    receive = bench.waiting(Operation.RECEIVE)
    assert bench.look() == []
    bench.node.persisted(receive, bench.answer(receive), bench.now)
    [ack] = bench.sent()
    assert (ack.seq, ack.ack, ack.source_agent_id, ack.target_agent_id) == (0, 1, "b", "far")
    assert bench.resolved() == {"waiter": None}
    bench.perform()
    [claim] = bench.claims()
    assert bench.sent() == []
    bench.finish(claim)
    complete = bench.waiting(Operation.COMPLETE)
    assert bench.look() == []
    bench.node.persisted(complete, bench.answer(complete), bench.now)
    [response] = bench.sent()
    assert (response.message_type, response.request_id, response.ack) == (
        MessageType.RESPONSE,
        "q1",
        1,
    )
    assert bench.node.claims.held == {}


@pytest.mark.rule("AACP-17", "AACP-41")
def test_envelope_that_cannot_be_entered_is_not_acknowledged() -> None:
    bench = Bench(has_transport=True)
    bench.perform()
    bench.node.exchange.deliver([arrived(1)], "waiter", bench.now)
    bench.fail(bench.waiting(Operation.RECEIVE))
    assert bench.sent() == []
    assert isinstance(bench.resolved()["waiter"], StoreError)
    bench.node.exchange.deliver([arrived(1)], "again", bench.now)
    assert bench.take(Persist) == []  # not at once
    bench.pass_time(500)
    assert bench.resolved() == {"again": None}
    assert [each.ack for each in bench.sent()] == [1]


@pytest.mark.rule("AACP-17")
def test_one_operation_of_each_kind_runs_and_next_is_a_batch() -> None:
    bench = Bench(max_batch=3)
    bench.perform()
    for number in range(8):
        bench.node.exchange.send([outgoing(f"r{number}")], number)
    sizes = []
    for _ in range(3):
        persist = bench.waiting(Operation.APPEND)
        assert bench.take(Persist) == []
        sizes.append(len(persist.arguments[0]))
        bench.node.persisted(persist, bench.answer(persist), bench.now)
    assert sizes == [3, 3, 2]
    assert list(bench.resolved()) == list(range(8))
    assert (bench.node.backlog.records, bench.node.backlog.size) == (0, 0)
    assert bench.node.operations.is_quiet


@pytest.mark.rule("AACP-169")
def test_operation_takes_whole_batches_of_messages() -> None:
    bench = Bench(max_batch=3)
    for batch in ([1, 2], [3, 4], [5]):
        messages = [outgoing(f"r{n}", batch=str(batch)) for n in batch]
        bench.node.exchange.send(messages, batch)
    bench.look()
    begun = [each for each in bench.take(Persist) if each.operation is Operation.APPEND]
    assert [each.key for each in begun[0].arguments[0]] == ["r1", "r2", "r3", "r4"]


# -- executing ------------------------------------------------------------------------------------


def idle(**more: Any) -> Bench:
    """Return a bench whose agent "b" waits for requests."""
    bench = Bench(**more)
    bench.add_busy_agent("b")
    bench.perform()
    return bench


def claiming() -> tuple[Bench, Persist]:
    """Return a bench whose agent "b" has two requests, and the pending operation for them."""
    bench = Bench(lease_ms=3000)
    bench.perform()
    bench.add_busy_agent("b")
    for number in range(2):
        bench.node.exchange.send([outgoing(f"r{number}")], number)
    bench.perform(Operation.APPEND)
    return bench, bench.waiting(Operation.CLAIM)


def executing(count: int = 3, **more: Any) -> tuple[Bench, list[Claim]]:
    """Return a bench whose agent "b" has so many claims."""
    bench = Bench(**more)
    bench.add_busy_agent("b")
    for number in range(count):
        bench.node.exchange.send([outgoing(f"r{number}")], number)
    bench.perform()
    return bench, bench.claims()


@pytest.mark.rule("AACP-22")
def test_claims_are_for_registered_agents_up_to_capacity() -> None:
    bench = Bench(max_held_by_agent=2)
    for target, number in itertools.product("bcd", range(4)):
        bench.node.exchange.send([outgoing(f"{target}{number}", target=target)], target)
    bench.perform()
    assert bench.claims() == []
    bench.add_busy_agent("b")
    bench.add_busy_agent("c")
    bench.perform()
    claims = bench.claims()
    assert [each.request_id for each in claims] == ["b0", "b1", "c0", "c1"]
    bench.add_busy_agent("d")
    bench.finish(claims[0])
    bench.perform()
    assert sorted(each.request_id for each in bench.claims()) == ["b2", "d0", "d1"]


@pytest.mark.rule("AACP-71")
def test_idle_agent_gets_claim_beside_busy_agents() -> None:
    bench = Bench()
    for number in range(10):
        bench.add_busy_agent(f"busy{number}")
        for n in range(200):
            bench.node.exchange.send([outgoing(f"{number}-{n}", target=f"busy{number}")], n)
    bench.perform()
    assert len(bench.claims()) == 1000
    bench.node.claims.add_agent("idle")
    bench.node.exchange.send([outgoing("r1", target="idle")], "waiter")
    bench.perform()
    assert [each.request_id for each in bench.claims()] == ["r1"]


@pytest.mark.rule("AACP-71")
def test_capacity_doubles_with_outcomes_and_resets_after_loss() -> None:
    bench = Bench(max_held_by_agent=5, lease_ms=3000)
    bench.node.claims.add_agent("b")
    for number in range(20):
        bench.node.exchange.send([outgoing(f"r{number}")], number)
    bench.perform()
    held = bench.claims()
    sizes = [len(held)]
    for _ in range(4):
        bench.finish(held.pop(0))
        bench.perform()
        held += bench.claims()
        sizes.append(len(held))
    assert sizes == [1, 2, 4, 5, 5]
    bench.store.ledger.requests[held[0].request_id].epoch += 1  # another has it
    bench.store.ledger.requests[held[0].request_id].owner = "another"
    bench.pass_time(1000)
    assert bench.claims() == []  # all that was claimed is behind what another has
    bench.pass_time(3000)
    assert [each.request_id for each in bench.claims()] == [held[0].request_id]


@pytest.mark.rule("AACP-64", "AACP-72")
def test_only_executions_that_were_begun_count() -> None:
    bench, claims = executing(3)
    for execution in range(1, POLICY.max_executions):
        assert [each.executions for each in claims] == [execution, 1, 1]
        bench.finish(claims[0], None, BUSY)
        bench.pass_time(60_000)
        claims = bench.claims()
    for _ in range(20):  # it is given back unbegun, and counts as often as before
        for claim in claims:
            bench.node.claims.give_back(claim)
        bench.perform()
        claims = bench.claims()
    assert [each.executions for each in claims] == [POLICY.max_executions, 1, 1]
    for claim in claims:
        bench.finish(claim, None, BUSY if claim is claims[0] else None)
    bench.perform()
    assert bench.store.ledger.requests["r0"].state is RequestState.FAILED
    assert bench.store.ledger.requests["r2"].state is RequestState.COMPLETED


@pytest.mark.rule("AACP-24")
def test_leases_are_renewed_until_outcome_is_recorded() -> None:
    bench, claims = executing(2, lease_ms=3000)
    bench.calls.clear()
    bench.pass_time(10_000)
    assert bench.calls.count(Operation.RENEW) == 10
    for claim in claims:
        bench.finish(claim)
    bench.perform()
    bench.calls.clear()
    bench.pass_time(10_000)
    assert bench.calls == []
    assert bench.take(Abandon) == []


@pytest.mark.rule("AACP-04", "AACP-23", "AACP-24")
def test_lost_claim_is_abandoned_and_its_outcome_ignored() -> None:
    bench, claims = executing(3, lease_ms=3000)
    record = bench.store.ledger.requests["r0"]
    record.epoch += 1  # another has it
    bench.pass_time(1000)
    assert claims[0] in [each.claim for each in bench.take(Abandon)]
    assert not bench.node.claims.holds(claims[0])
    bench.finish(claims[0])
    bench.calls.clear()
    bench.pass_time(500)
    assert Operation.COMPLETE not in bench.calls
    # What is behind it waits with it.
    assert [bench.node.claims.holds(each) for each in claims[1:]] == [False, False]


@pytest.mark.rule("AACP-23", "AACP-24")
def test_ended_claim_is_not_lost_by_failed_renewal() -> None:
    bench, claims = executing(2, lease_ms=3000)
    bench.finish(claims[0])
    complete = bench.waiting(Operation.COMPLETE)
    answer = bench.answer(complete)
    bench.now += 1000
    bench.node.operations.tick(bench.now)
    renew = bench.waiting(Operation.RENEW)
    bench.node.persisted(renew, bench.answer(renew), bench.now)
    bench.node.persisted(complete, answer, bench.now)
    assert bench.take(Abandon) == []
    assert bench.node.claims.holds(claims[1])


@pytest.mark.rule("AACP-63", "AACP-20")
def test_permanent_error_and_last_temporary_one_are_outcomes() -> None:
    bench, claims = executing(2)
    bench.finish(claims[0], None, StructuredError(ErrorCode.NOT_FOUND, "no"))
    bench.perform()
    assert bench.store.ledger.requests["r0"].state is RequestState.FAILED
    [claim] = claims[1:]
    for _ in range(POLICY.max_executions - 1):
        bench.finish(claim, None, BUSY)
        bench.pass_time(60_000)
        [claim] = bench.claims()
    bench.finish(claim, None, BUSY)
    bench.perform()
    record = bench.store.ledger.requests["r1"]
    assert (record.state, record.epoch) == (RequestState.FAILED, POLICY.max_executions)


@pytest.mark.rule("AACP-04", "AACP-30")
def test_claims_of_failed_claim_operation_block_until_they_lapse() -> None:
    bench, claim = claiming()
    bench.answer(claim)
    bench.fail(claim)
    bench.node.exchange.send([outgoing("r2")], 2)
    bench.perform()
    bench.pass_time(2900)
    assert bench.claims() == []
    bench.pass_time(200)
    assert [each.request_id for each in bench.claims()] == ["r0", "r1", "r2"]


@pytest.mark.rule("AACP-164")
def test_claims_that_are_known_only_after_their_lease_are_given_back_unexecuted() -> None:
    bench, claim = claiming()
    claimed = bench.answer(claim)
    bench.now += 3000  # the process was stopped
    bench.node.persisted(claim, claimed, bench.now)
    release = bench.waiting(Operation.RELEASE)
    assert bench.take(Execute) == [] and not bench.node.claims.held
    bench.node.persisted(release, bench.answer(release), bench.now)
    bench.perform()
    assert [each.request_id for each in bench.claims()] == ["r0", "r1"]


# -- what another process keeps locked ------------------------------------------------------------


@pytest.mark.rule("AACP-193", "AACP-195")
def test_request_to_an_agent_without_others_takes_two_operations() -> None:
    bench = idle(shared=True)
    bench.calls.clear()
    for name in ("r1", "r2"):
        bench.node.exchange.send([outgoing(name)], name)
        bench.perform()
        [claim] = bench.claims()
        bench.finish(claim)
        bench.perform()
    assert bench.calls == [Operation.APPEND, Operation.COMPLETE] * 2


@pytest.mark.rule("AACP-193", "AACP-195")
def test_what_others_enter_meanwhile_is_claimed_with_the_outcome() -> None:
    bench = idle()
    bench.node.exchange.send([outgoing("r1")], 1)
    bench.perform()
    bench.let_another_enter("r2")
    [claim] = bench.claims()
    bench.finish(claim)
    bench.perform()
    assert [each.request_id for each in bench.claims()] == ["r2"]


@pytest.mark.rule("AACP-193")
def test_nothing_else_is_claimed_for_an_agent_while_a_message_is_entered() -> None:
    bench = idle()
    bench.node.exchange.send([outgoing("r1")], 1)
    append = bench.waiting(Operation.APPEND)
    assert append.arguments[2].wanted == {"b": 100}
    answer = bench.answer(append)
    bench.let_another_enter("r2")
    bench.node.look_around(None)
    bench.perform()
    assert bench.claims() == []
    bench.node.persisted(append, answer, bench.now)
    bench.perform()
    assert [each.request_id for each in bench.claims()] == ["r1", "r2"]


@pytest.mark.rule("AACP-04", "AACP-193")
@pytest.mark.parametrize("is_given_back", [False, True])
def test_message_is_claimed_behind_what_its_agent_has_unless_that_is_given_back(
    is_given_back: bool,
) -> None:
    bench, claims = executing(1)
    bench.node.exchange.send([outgoing("behind")], 2)
    append = bench.waiting(Operation.APPEND)
    claiming = append.arguments[2]
    assert (claiming.wanted, claiming.idle, claiming.serves) == ({"b": 99}, [], [])
    answer = bench.answer(append)
    if is_given_back:
        bench.node.claims.give_back(claims[0])
    bench.node.persisted(append, answer, bench.now)
    bench.perform()
    again = [each.request_id for each in bench.claims()]
    assert again == (["r0", "behind"] if is_given_back else ["behind"])


@pytest.mark.rule("AACP-04")
def test_claims_that_were_made_before_a_release_are_given_back() -> None:
    bench, claims = executing(1)
    bench.let_another_enter("behind")
    bench.node.look_around(None)
    claim = bench.waiting(Operation.CLAIM)
    answer = bench.answer(claim)
    bench.node.claims.give_back(claims[0])
    bench.node.persisted(claim, answer, bench.now)
    bench.perform()
    assert [each.request_id for each in bench.claims()] == ["r0", "behind"]


@pytest.mark.rule("AACP-193")
def test_message_is_not_claimed_for_an_agent_that_may_have_others() -> None:
    bench, claims = executing(100)
    bench.node.exchange.send([outgoing("held")], 2)
    append = bench.waiting(Operation.APPEND)
    assert (append.arguments[2].wanted, append.arguments[2].serves) == ({}, ["b"])
    bench.node.persisted(append, bench.answer(append), bench.now)
    bench.node.claims.give_back(claims[0])
    bench.waiting(Operation.RELEASE)
    for name in ("released", "asked"):
        bench.node.exchange.send([outgoing(name)], name)
        append = bench.waiting(Operation.APPEND)
        assert append.arguments[2].wanted == {}
        bench.node.persisted(append, bench.answer(append), bench.now)


@pytest.mark.rule("AACP-194")
@pytest.mark.parametrize("happened", [False, True])
def test_claim_of_a_lost_entry_is_given_back_and_nothing_is_claimed_before(
    happened: bool,
) -> None:
    bench = idle()
    bench.node.exchange.send([outgoing("r1")], 1)
    append = bench.waiting(Operation.APPEND)
    if happened:
        bench.answer(append)
    bench.fail(append)
    bench.let_another_enter("r2")
    bench.node.look_around(None)
    bench.perform()
    assert bench.claims() == []
    bench.pass_time(500)
    expected = [("r1", 2), ("r2", 1)] if happened else [("r2", 1), ("r1", 1)]
    assert [(each.request_id, each.epoch) for each in bench.claims()] == expected
    assert bench.node.operations.is_quiet


@pytest.mark.rule("AACP-164", "AACP-193")
def test_claim_of_an_entry_that_is_learned_of_late_is_given_back() -> None:
    bench = idle()
    bench.node.exchange.send([outgoing("r1")], 1)
    append = bench.waiting(Operation.APPEND)
    answer = bench.answer(append)
    bench.now += bench.node.settings.lease_ms
    bench.node.persisted(append, answer, bench.now)
    bench.perform()
    assert [(each.request_id, each.epoch) for each in bench.claims()] == [("r1", 2)]


class LockedStore(InMemoryAACPPersistenceAdapter):
    """Answers for some agents and requests as if another process kept their rows locked."""

    def __init__(self) -> None:
        super().__init__(incarnation=INCARNATION)
        self.locked: set[str] = set()

    async def append(self, messages: Any, now_ms: int, *claiming: Any) -> Any:
        free = [each for each in messages if each.target_agent_id not in self.locked]
        entered = iter(await super().append(free, now_ms, *claiming))
        return [LOCKED if each not in free else next(entered) for each in messages]

    async def receive(self, arrivals: Any, now_ms: int, ttl_ms: int) -> Any:
        locked = [each for each in arrivals if each.envelope.target_agent_id in self.locked]
        free = [each for each in arrivals if each not in locked]
        received = await super().receive(free, now_ms, ttl_ms)
        received.locked = [each.envelope for each in locked]
        return received

    async def complete(self, completions: Any, now_ms: int) -> Any:
        return [
            LOCKED if each.request_id in self.locked else self.ledger.complete(each, now_ms)
            for each in completions
        ]

    async def release(self, releases: Any) -> list[Release]:
        locked = [each for each in releases if each.request_id in self.locked]
        await super().release([each for each in releases if each not in locked])
        return locked


@pytest.mark.rule("AACP-90")
def test_locked_message_is_entered_later_and_before_those_that_follow_it() -> None:
    store = LockedStore()
    bench = Bench(store)
    bench.perform()
    store.locked = {"b"}
    bench.node.exchange.send([outgoing("r1")], 1)
    bench.node.exchange.send([outgoing("r2", target="c")], 2)
    append = bench.waiting(Operation.APPEND)
    bench.node.exchange.send([outgoing("r3")], 3)  # waits while r1 is being entered
    bench.node.persisted(append, bench.answer(append), bench.now)
    bench.perform()
    assert list(bench.resolved()) == [2]
    store.locked = set()
    bench.node.exchange.send([outgoing("r4")], 4)
    bench.perform()
    assert bench.resolved() == {}
    assert not bench.node.operations.is_quiet
    bench.pass_time(500)
    assert [(key, answer.seq) for key, answer in bench.resolved().items()] == [
        (1, 1),
        (3, 2),
        (4, 3),
    ]
    assert bench.node.operations.is_quiet


@pytest.mark.rule("AACP-90")
def test_locked_envelope_is_not_acknowledged_and_comes_again() -> None:
    store = LockedStore()
    bench = Bench(store, has_transport=True)
    bench.perform()
    store.locked = {"b"}
    bench.node.exchange.deliver([arrived(1)], "locked", bench.now)
    bench.node.exchange.deliver([arrived(1, "q", target="c")], "free", bench.now)
    bench.perform()
    resolved = bench.resolved()
    assert isinstance(resolved["locked"], StoreError)
    assert resolved["free"] is None
    assert [each.source_agent_id for each in bench.sent()] == ["c"]


@pytest.mark.rule("AACP-90")
def test_locked_outcome_is_recorded_later() -> None:
    store = LockedStore()
    bench, claims = executing(2, store=store)
    store.locked = {"r0"}
    for claim in claims:
        bench.finish(claim)
    bench.perform()
    assert list(bench.node.claims.held) == ["r0"]
    store.locked = set()
    bench.pass_time(500)
    assert bench.node.claims.held == {}
    assert store.ledger.requests["r0"].state is RequestState.COMPLETED


@pytest.mark.rule("AACP-90", "AACP-92")
def test_locked_release_bars_only_its_agent() -> None:
    store = LockedStore()
    bench, claims = executing(1, store=store)
    bench.add_busy_agent("c")
    bench.node.exchange.send([outgoing("r2", target="c")], 2)
    store.locked = {"r0"}
    bench.node.claims.give_back(claims[0])
    bench.perform()
    assert [each.request_id for each in bench.claims()] == ["r2"]
    store.locked = set()
    bench.pass_time(500)
    assert [(each.request_id, each.epoch) for each in bench.claims()] == [("r0", 2)]


# -- who waits ------------------------------------------------------------------------------------


@pytest.mark.rule("AACP-22", "AACP-26")
def test_shared_ledger_is_polled_for_claims_and_outcomes() -> None:
    bench = Bench(shared=True)
    bench.node.claims.add_agent("c")
    bench.node.exchange.send([outgoing("r1")], "entry")
    bench.node.outcomes.wait_for("r1", "waiter", bench.now)
    bench.perform()
    bench.calls.clear()
    bench.pass_time(5000)
    assert (bench.calls.count(Operation.CLAIM), bench.calls.count(Operation.LOOK_UP)) == (5, 5)
    other = Bench(bench.store)
    other.node.claims.add_agent("b")
    other.perform()
    [claim] = other.claims()
    other.finish(claim)
    other.perform()
    bench.take(ResolveWaiter)
    bench.pass_time(1000)
    record = bench.resolved()["waiter"]
    assert isinstance(record, RequestRecord)
    assert record.state is RequestState.COMPLETED
    bench.calls.clear()
    bench.pass_time(5000)
    assert Operation.LOOK_UP not in bench.calls[1:]


@pytest.mark.rule("AACP-26")
def test_idle_node_on_own_ledger_only_purges() -> None:
    bench, claims = executing(1)
    bench.finish(claims[0])
    bench.node.outcomes.wait_for("elsewhere", "waiter", bench.now)
    bench.perform()
    bench.pass_time(1)
    bench.calls.clear()
    bench.pass_time(600_000)
    assert set(bench.calls) <= {Operation.PURGE, Operation.CLAIM, Operation.RENEW}
    assert bench.calls.count(Operation.PURGE) == 10
    assert len(bench.calls) <= 12
    bench.node.outcomes.stop_waiting("elsewhere", "waiter")
    bench.node.outcomes.stop_waiting("elsewhere", "waiter")
    assert bench.node.outcomes.waiting == {}


@pytest.mark.rule("AACP-16", "AACP-26", "AACP-30")
def test_outcome_of_failed_receive_is_found() -> None:
    bench = Bench(has_transport=True)
    bench.node.exchange.send([outgoing("r1", target="far", local=False)], "entry")
    bench.node.outcomes.wait_for("r1", "waiter", bench.now)
    bench.perform()
    response = arrived(
        1,
        "r1",
        target="a",
        ack=1,
        message_type=MessageType.RESPONSE,
        payload=b'{"outcome":"COMPLETED","result":1}',
    )
    bench.node.exchange.deliver([response], "delivery", bench.now)
    receive = bench.waiting(Operation.RECEIVE)
    bench.answer(receive)
    bench.fail(receive)
    assert "waiter" not in bench.resolved()
    bench.node.exchange.deliver([response], "again", bench.now)
    bench.pass_time(500)
    assert bench.resolved()["waiter"].result == b"1"


# -- sending again --------------------------------------------------------------------------------


@pytest.mark.rule("AACP-10", "AACP-13", "AACP-14")
def test_unacknowledged_message_is_resent_with_growing_delay() -> None:
    bench = Bench(has_transport=True, notices=True)
    message = outgoing("r1", local=False, expires_at_ms=NOW + 2000)
    bench.node.exchange.send([message], "waiter")
    bench.perform()
    assert len(bench.sent()) == 1
    times = []
    for _ in range(4000):
        bench.pass_time(1)
        times += [(bench.now - NOW, each.seq, each.tombstone) for each in bench.sent()]
    assert times == [(200, 1, False), (600, 1, False), (1400, 1, False), (3000, 1, True)]
    [settled] = bench.take(NoticeSettled)
    assert settled.message_id == message.message_id
    assert settled.error.code is ErrorCode.TIMEOUT


@pytest.mark.rule("AACP-19")
def test_envelopes_name_incarnations_of_seq_and_ack() -> None:
    bench = Bench(has_transport=True)
    bench.node.exchange.deliver([arrived(1), arrived(2)], "waiter", bench.now)
    bench.perform()
    [ack] = bench.sent()
    assert (ack.seq, ack.incarnation, ack.ack, ack.ack_incarnation) == (
        0,
        INCARNATION,
        2,
        FAR_INCARNATION,
    )
    bench.node.exchange.send([outgoing("r1", "b", "far", local=False)], "waiter")
    bench.perform()
    [first] = bench.sent()
    assert (first.incarnation, first.ack, first.ack_incarnation, first.low_watermark) == (
        INCARNATION,
        2,
        FAR_INCARNATION,
        1,
    )
    bench.node.exchange.deliver(
        [arrived(1, "new", incarnation=FAR_INCARNATION + 1)], "waiter", bench.now
    )
    bench.perform()
    [ack] = bench.sent()
    assert (ack.ack, ack.ack_incarnation) == (1, FAR_INCARNATION + 1)


@pytest.mark.rule("AACP-67")
def test_an_acknowledgement_of_numbers_of_another_ledger_settles_nothing() -> None:
    bench = Bench(has_transport=True)
    bench.node.exchange.send([outgoing("r1", target="far", local=False)], "waiter")
    bench.perform()
    for incarnation in (INCARNATION - 1, INCARNATION + 1):
        old = arrived(1, target="a", ack=1, ack_incarnation=incarnation)
        bench.node.exchange.deliver([old], "waiter", bench.now)
    bench.perform()
    assert [each.seq for each in bench.store.ledger.outbox["a", "far"].values()] == [1]
    bench.node.exchange.deliver([arrived(1, target="a", ack=1)], "waiter", bench.now)
    bench.perform()
    assert bench.store.ledger.outbox["a", "far"] == {}


@pytest.mark.rule("AACP-66")
def test_outdated_ledger_is_noticed_once_for_each_link() -> None:
    bench = Bench(has_transport=True)
    bench.node.exchange.deliver([arrived(1)], "waiter", bench.now)
    bench.perform()
    bench.sent()
    old = [arrived(seq, incarnation=FAR_INCARNATION - 1) for seq in (2, 3)]
    for each in old:
        bench.node.exchange.deliver([each], "waiter", bench.now)
        bench.perform()
    [logged] = bench.take(WriteLog)
    assert logged.fields["incarnation"] == FAR_INCARNATION - 1
    assert bench.sent() == []


@pytest.mark.rule("AACP-118")
def test_message_that_another_process_has_entered_is_sent() -> None:
    bench = Bench(has_transport=True, shared=True)
    bench.perform()
    bench.pass_time(60_000)
    other = Bench(bench.store, has_transport=True)
    other.node.exchange.send([outgoing("r1", local=False)], "waiter")
    other.perform()
    bench.pass_time(10_000)
    [envelope] = bench.sent()
    assert envelope.request_id == "r1"


@pytest.mark.rule("AACP-29")
def test_notice_is_given_once_and_forgotten() -> None:
    bench = Bench(notices=True)
    bench.node.claims.add_agent("b")
    request, message = outgoing("r1", expires_at_ms=NOW + 1000), event("e1")
    for each in (request, request, message):
        bench.node.exchange.send([each], each)
    bench.perform()
    received = [each.envelope.message_id for each in bench.take(NoticeReceived)]
    assert received == [request.message_id, message.message_id]
    assert [each.message_id for each in bench.take(NoticeSettled)] == [message.message_id]
    bench.pass_time(130_000)  # it expires, and nobody has executed it
    assert bench.node.outcomes._unsettled == {}


def test_the_digest_of_what_comes_in_is_that_of_what_is_sent() -> None:
    bench = Bench(has_transport=True)
    bench.node.exchange.deliver([arrived(1, payload=b"7")], "waiter", bench.now)
    bench.perform()
    assert bench.store.ledger.requests["q1"].digest == digest_of(
        "far", "b", MessageType.REQUEST, b"7"
    )


# -- a transport that loses what was sent ----------------------------------------------------------


@pytest.mark.rule("AACP-100")
def test_lost_messages_are_sent_again_page_by_page() -> None:
    bench = Bench(has_transport=True, max_batch=10, resend_pause_ms=50)
    for number in range(25):
        bench.node.exchange.send([outgoing(f"r{number:02}", target="far", local=False)], None)
    bench.perform()
    bench.take(SendEnvelopes)
    pages = []
    bench.node.exchange.resend(None)
    bench.perform()
    for _ in range(4):
        envelopes = [each for sent in bench.take(SendEnvelopes) for each in sent.envelopes]
        pages.append(sorted(each.seq for each in envelopes))
        bench.pass_time(50)
    assert pages == [[*range(1, 11)], [*range(11, 21)], [*range(21, 26)], []]
    assert bench.calls.count(Operation.HASTEN) == 4


@pytest.mark.rule("AACP-100")
def test_agents_that_listen_anew_get_their_messages_in_one_round_a_second() -> None:
    bench = Bench(has_transport=True)
    bench.node.exchange.retransmitter = Retransmitter(HOURLY, lambda: 0.0)
    for target in ("one", "two", "three"):
        message = outgoing(target, target=target, local=False, next_attempt_at_ms=NOW + HOUR_MS)
        bench.node.exchange.send([message], None)
    bench.perform()
    bench.take(SendEnvelopes)

    def sent() -> list[str]:
        bench.perform()
        envelopes = [each for sent in bench.take(SendEnvelopes) for each in sent.envelopes]
        return sorted(each.target_agent_id for each in envelopes)

    bench.node.exchange.resend("one")
    assert sent() == ["one"]
    for agent_id in ("two", "nobody", "three", "two"):
        bench.node.exchange.resend(agent_id)
        assert sent() == []
    bench.pass_time(1_200)
    assert sent() == ["three", "two"]
    assert bench.calls.count(Operation.HASTEN) == 4  # two rounds, of a page and an empty one


@pytest.mark.rule("AACP-100")
def test_second_loss_has_a_round_of_its_own_and_a_fault_of_the_ledger_loses_no_page() -> None:
    bench = Bench(has_transport=True, max_batch=10, store_retry_ms=5, resend_pause_ms=10)
    bench.node.exchange.retransmitter = Retransmitter(HOURLY, lambda: 0.0)
    for number in range(15):
        message = outgoing(f"r{number:02}", local=False, next_attempt_at_ms=NOW + HOUR_MS)
        bench.node.exchange.send([message], None)
    bench.perform()
    bench.take(SendEnvelopes)
    bench.node.exchange.resend(None)
    bench.fail(bench.waiting(Operation.HASTEN))
    bench.pass_time(5)
    first_page = [each.seq for sent in bench.take(SendEnvelopes) for each in sent.envelopes]
    assert sorted(first_page) == [*range(1, 11)]
    bench.node.exchange.resend(None)
    bench.perform()
    bench.pass_time(1_100)
    again = [each.seq for sent in bench.take(SendEnvelopes) for each in sent.envelopes]
    assert sorted(again) == sorted([*range(11, 16), *range(1, 16)])
