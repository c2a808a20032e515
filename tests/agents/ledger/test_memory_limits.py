"""What a ledger in memory holds at most: records, bytes, and of both a share for each principal."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import weakref
from typing import Any

import orjson
import pytest
from attrs import evolve

from foundation_rt.agents.ledger.encoder import encode_payload
from foundation_rt.agents.ledger.errors import RequestFailedError
from foundation_rt.agents.ledger.ownership import owned_id
from foundation_rt.agents.ledger.setup import make_store
from foundation_rt.agents.ledger.types import EntryVerdict, RequestState
from foundation_rt.agents.messages import AgentContext, AgentMessage
from foundation_rt.agents.persistence import LedgerFullError
from foundation_rt.agents.stores.memory import InMemoryAACPPersistenceAdapter
from foundation_rt.agents.stores.memory_usage import (
    RECORD_BYTES,
    SMALL_OUTCOME_BYTES,
    MemoryLimits,
)
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.feature_sections import AacpSection
from foundation_rt.base.config.http_sections import HttpSection
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.base.ids import UuidGenerator
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.errors import ErrorCode, ToolError
from foundation_rt.protocol.principal import Principal
from tests.agents.stores.contract import (
    ERROR,
    NOW,
    TTL,
    Ledger,
    completion,
    event,
    incoming,
    outgoing,
)
from tests.lab.agents.coordinators import CoordinatorHarness
from tests.lab.agents.faulty_store import FaultyStore

pytestmark = pytest.mark.rule("AACP-49")

ALICE, BOB = Principal("key:alice"), Principal("key:bob")


def counted(store: InMemoryAACPPersistenceAdapter) -> tuple[int, int]:
    return store.ledger.usage.records, store.ledger.usage.size


def ledger_of(**limits: Any) -> Ledger:
    return Ledger(lambda: InMemoryAACPPersistenceAdapter(limits=MemoryLimits(**limits)))


def verdicts(ledger: Ledger, *messages: Any) -> list[EntryVerdict]:
    return [each.verdict for each in ledger.append(*messages)]


@pytest.mark.rule("AACP-88")
@pytest.mark.parametrize(
    "limits", [{"records": 2}, {"bytes": 2 * (RECORD_BYTES + 7)}], ids=["records", "bytes"]
)
def test_message_beyond_limit_is_not_entered(limits: dict[str, int]) -> None:
    with ledger_of(**limits) as ledger:
        new, full = EntryVerdict.NEW, EntryVerdict.FULL
        assert verdicts(ledger, outgoing("r1"), outgoing("r2"), outgoing("r3")) == [new, new, full]
        assert verdicts(ledger, event("e1"), outgoing("r4", local=False)) == [full, full]
        assert verdicts(ledger, outgoing("r1")) == [
            EntryVerdict.DUPLICATE
        ]  # what is known stays known
        assert ledger.last_seq("a", "b") == 2  # so there is no gap
        ledger.purge(NOW + TTL)
        assert verdicts(ledger, outgoing("r3", expires_at_ms=NOW + 2 * TTL)) == [new]


@pytest.mark.rule("AACP-88", "AACP-169")
def test_batch_without_room_for_all_is_not_entered() -> None:
    with ledger_of(records=3) as ledger:
        batch = [outgoing(f"r{n}", batch="one") for n in range(3)]
        assert verdicts(ledger, *batch[:2]) == [EntryVerdict.NEW] * 2
        assert verdicts(ledger, *batch) == [EntryVerdict.DUPLICATE] * 2 + [EntryVerdict.NEW]
        ledger.purge(NOW + TTL)
        ledger.append(outgoing("s1"))
        assert verdicts(ledger, *batch) == [EntryVerdict.FULL] * 3


@pytest.mark.rule("AACP-87")
def test_a_request_to_another_ledger_counts_as_what_is_awaited_and_what_is_sent() -> None:
    with ledger_of(records=3) as ledger:
        away = [outgoing(name, local=False) for name in ("r1", "r2")]
        assert verdicts(ledger, *away) == [EntryVerdict.NEW, EntryVerdict.FULL]
        assert verdicts(ledger, event("e1", local=False)) == [EntryVerdict.NEW]


@pytest.mark.parametrize(
    "limits",
    [{"principal_records": 1}, {"principal_bytes": RECORD_BYTES + 100}],
    ids=["records", "bytes"],
)
def test_owner_has_its_share_and_no_more(limits: dict[str, int]) -> None:
    alice = [owned_id(f"r{n}", "alice") for n in range(3)]
    with ledger_of(**limits) as ledger:
        big = outgoing(alice[0], payload=b'"' + b"x" * 100 + b'"')
        assert ("principal_bytes" in limits) is (verdicts(ledger, big) == [EntryVerdict.FULL])
        ledger.purge(NOW + TTL)
        mine = [outgoing(each, expires_at_ms=NOW + 2 * TTL) for each in alice[1:]]
        assert verdicts(ledger, *mine) == [EntryVerdict.NEW, EntryVerdict.FULL]
        others = [outgoing(owned_id("r2", "bob")), outgoing("r2"), outgoing("r3")]
        assert verdicts(ledger, *others) == [EntryVerdict.NEW] * 3


@pytest.mark.rule("AACP-89")
def test_an_outcome_without_room_is_failed_and_a_small_one_always_has_room() -> None:
    small, large = b'"' + b"x" * (SMALL_OUTCOME_BYTES - 2) + b'"', b'"' + b"x" * 1000 + b'"'
    with ledger_of(bytes=2 * (RECORD_BYTES + 7)) as ledger:
        ledger.append(outgoing("r1"), outgoing("r2"))
        first, second = ledger.claim().claims
        kept, lost = ledger.complete(completion(first, small), completion(second, large))
        assert kept.record is not None
        assert lost.record is not None
        assert kept.record.result == small
        assert (lost.record.state, lost.record.result) == (RequestState.FAILED, None)
        error = orjson.loads(lost.record.error or b"")
        assert error["code"] == "RESOURCE_EXHAUSTED"
        assert error["details"] == {"reason": "ledger_full"}
        assert ledger.complete(completion(second, large))[0].record == lost.record


@pytest.mark.rule("AACP-88")
def test_envelope_without_room_is_not_acknowledged_until_there_is_room() -> None:
    with ledger_of(records=1) as ledger:
        received = ledger.receive(incoming(1, "r1"), incoming(2, "r2"))
        assert list(received.acks.values()) == [1]
        assert received.refused == 1
        assert ledger.receive(incoming(2, "r2")).refused == 1
        ledger.purge(NOW + TTL)
        again = ledger.receive(incoming(2, "r2"))
        assert list(again.acks.values()) == [2]
        assert [each.request_id for each in again.accepted] == ["r2"]


@pytest.mark.rule("AACP-89")
def test_a_record_that_is_put_without_room_is_refused() -> None:
    with ledger_of(bytes=RECORD_BYTES + 7, records=5) as ledger:
        ledger.append(outgoing("r1"))
        record = evolve(ledger.request("r1"), request_id="r2", state=RequestState.SENT)
        with pytest.raises(LedgerFullError):
            ledger.run(ledger.adapter.put_request_record("r2", record))
        ledger.purge(NOW + TTL)
        ledger.run(ledger.adapter.put_request_record("r2", record))
        with pytest.raises(LedgerFullError):
            ledger.run(ledger.adapter.mark_completed("r2", b'"' + b"x" * 1000 + b'"', NOW))
        long = evolve(ERROR, message="x" * 1000)
        with pytest.raises(LedgerFullError):
            ledger.run(ledger.adapter.mark_failed("r2", long, NOW))
        assert ledger.request("r2").state is RequestState.SENT
        assert ledger.run(ledger.adapter.mark_completed("r2", None, NOW))


@pytest.mark.rule("AACP-87")
def test_a_record_takes_no_more_memory_than_it_counts_for() -> None:
    n = 100
    with ledger_of() as ledger:
        ledger.append(outgoing("warm"))
        before = counted(ledger.adapter)[1]  # type: ignore[arg-type]
        gc.collect()
        tracemalloc.start()
        try:
            for number in range(n):
                ledger.append(outgoing(f"{owned_id(f'{number:0128}', 'alice')}"))
            for claim in ledger.claim(most=n).claims:
                ledger.complete(completion(claim, orjson.dumps("x" * 200)))
            gc.collect()
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert taken <= counted(ledger.adapter)[1] - before  # type: ignore[arg-type]


# -- callers --------------------------------------------------------------------------------------


async def repeat(message: AgentMessage, context: AgentContext) -> Any:
    return "x" * message.payload


@pytest.mark.rule("AACP-88")
async def test_a_caller_without_room_is_refused_and_others_go_on(
    harness: CoordinatorHarness,
) -> None:
    store = FaultyStore(limits=MemoryLimits(principal_bytes=3 * RECORD_BYTES))
    async with harness.coordinator(store=store) as agents:
        agents.register_agent("a", repeat)
        with pytest.raises(RequestFailedError) as failed:
            await agents.send_request("a", 4000, principal=ALICE)
        assert failed.value.code is ErrorCode.RESOURCE_EXHAUSTED
        await agents.send_request("a", 1, principal=ALICE)
        for send in (agents.send_request, agents.send_reliable_message):
            with pytest.raises(ToolError) as refused:
                await send("a", AgentMessage("x" * 1000, 1), principal=ALICE)
            assert refused.value.code is ErrorCode.RESOURCE_EXHAUSTED
            assert refused.value.details == {"reason": "ledger_full"}
        assert await agents.send_request("a", 1000, principal=BOB) == "x" * 1000
        assert await agents.send_request("a", 4000) == "x" * 4000


@pytest.mark.rule("AACP-88")
@pytest.mark.rule("RES-13")
async def test_a_refused_request_keeps_nothing_of_its_message(harness: CoordinatorHarness) -> None:
    async def refused(agents: Any) -> weakref.ref[AgentMessage]:
        message = AgentMessage("x" * 1000, 1)
        try:
            await agents.send_request("a", message, principal=ALICE)
        except ToolError:
            return weakref.ref(message)
        raise AssertionError("it was not refused")

    store = FaultyStore(limits=MemoryLimits(principal_bytes=RECORD_BYTES))
    async with harness.coordinator(store=store) as agents:
        agents.register_agent("a", repeat)
        gc.collect()
        gc.disable()  # what reference counting does not free is in a cycle, and stays
        try:
            message = await refused(agents)
            await asyncio.sleep(0)
            assert message() is None
        finally:
            gc.enable()


@pytest.mark.rule("RES-12")
def test_the_limits_are_those_of_the_settings_and_of_the_share() -> None:
    logger = StructuredLogger(MemorySink(), ManualClock())
    aacp = AacpSection(max_memory_records=101, max_memory_bytes=4096)
    one = ServerConfig(aacp=aacp)
    two = ServerConfig(aacp=aacp, http=HttpSection(api_keys=("a" * 32, "b" * 32)))
    for shares, expected in (
        (None, MemoryLimits(101, 4096)),
        (one, MemoryLimits(101, 4096, 101, 4096)),
        (two, MemoryLimits(101, 4096, 26, 1024)),
    ):
        store = make_store(aacp, logger, shares)
        assert isinstance(store, InMemoryAACPPersistenceAdapter)
        assert store.limits == expected


@pytest.mark.rule("AACP-51")
@pytest.mark.parametrize("who", [None, ALICE], ids=["the host", "a principal"])
async def test_backlog_of_slow_ledger_is_bounded_in_bytes(
    who: Principal | None, harness: CoordinatorHarness
) -> None:
    store, gate = FaultyStore(), asyncio.Event()
    agents = harness.coordinator(store=store)
    keys = HttpSection(api_keys=("a" * 32, "b" * 32))
    logger = StructuredLogger(harness.sink, harness.clock)
    agents.attach(logger, ServerConfig(http=keys), UuidGenerator())
    async with agents:
        agents.register_agent("a", repeat)
        store.gates["append"] = gate
        room = (64 if who is None else 16) * 1024 * 1024
        large = AgentMessage("x" * (512 * 1024 - 100), 1)
        fit = room // (512 * 1024)
        tasks = [
            asyncio.ensure_future(agents.send_reliable_message("a", large, principal=who))
            for _ in range(fit + 1)
        ]
        await asyncio.sleep(0.1)
        refused = [task for task in tasks if task.done()]
        assert len(refused) == 1
        error = refused[0].exception()
        assert isinstance(error, ToolError)
        assert error.details == {"reason": "ledger_backlog"}
        if who is not None:  # and nobody else is refused for it
            tasks.append(asyncio.ensure_future(agents.send_reliable_message("a", large)))
            tasks.append(asyncio.ensure_future(agents.send_reliable_message("a", 1, principal=BOB)))
        await asyncio.sleep(0.1)
        gate.set()
        await asyncio.gather(*(task for task in tasks if task is not refused[0]))
        assert await agents.send_reliable_message("a", large, principal=who)


@pytest.mark.rule("AACP-87")
@pytest.mark.parametrize("length", [10, 5_000, 500_000])
def test_a_payload_takes_as_much_memory_as_it_is_long(length: int) -> None:
    value = {"payload": "x" * length}
    encode_payload(value)
    tracemalloc.start()
    try:
        payload = encode_payload(value)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(payload) <= taken <= len(payload) + 200
