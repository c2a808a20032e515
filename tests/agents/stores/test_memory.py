"""The ledger in memory: it passes the suite of all stores, and is the measure of the others.

Here is also shown that the machine that compares a store with it finds what a store does wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
from attrs import evolve
from hypothesis import Phase, settings
from hypothesis import strategies as st

from foundation_rt.agents.ledger.types import MessageType
from foundation_rt.agents.stores.memory import InMemoryAACPPersistenceAdapter
from foundation_rt.agents.stores.memory_usage import Usage
from tests.agents.stores.beside_memory import BesideMemory, run_beside_memory
from tests.agents.stores.contract import (
    Ledger,
    MakeAdapter,
    StoreContract,
    WithinIsRefused,
    outgoing,
    uuid_of,
)
from tests.agents.stores.schedule_contract import ScheduleContract


class _Contract(WithinIsRefused, ScheduleContract, StoreContract):
    @staticmethod
    @contextmanager
    def place() -> Iterator[MakeAdapter]:
        yield _Counted


class _Counted(InMemoryAACPPersistenceAdapter):
    """When it is closed, what it counted is counted anew (AACP-49)."""

    async def close(self) -> None:
        fresh = Usage(self.limits)
        for record in [*self.ledger.requests.values(), *self.ledger.messages.values()]:
            fresh.add(record)
        usage = self.ledger.usage
        assert (usage.records, usage.size) == (fresh.records, fresh.size)


TestContract = pytest.mark.rule(
    "AACP-01",
    "AACP-03",
    "AACP-04",
    "AACP-05",
    "AACP-10",
    "AACP-11",
    "AACP-12",
    "AACP-13",
    "AACP-14",
    "AACP-15",
    "AACP-16",
    "AACP-17",
    "AACP-18",
    "AACP-20",
    "AACP-21",
    "AACP-22",
    "AACP-23",
    "AACP-24",
    "AACP-25",
    "AACP-30",
    "AACP-49",
    "AACP-111",
    "AACP-112",
    "AACP-113",
    "AACP-114",
    "AACP-115",
)(_Contract)


@pytest.mark.rule("AACP-31")
def test_memory_adapter_documents_that_it_is_not_durable() -> None:
    text = InMemoryAACPPersistenceAdapter.durability
    assert "MUST NOT be considered durable across restarts" in text
    assert not InMemoryAACPPersistenceAdapter.shared


def test_returned_record_is_a_copy() -> None:
    with Ledger(InMemoryAACPPersistenceAdapter) as ledger:
        ledger.append(outgoing("r1"))
        ledger.request("r1").epoch = 7
        assert ledger.request("r1").epoch == 0


# -- the machine finds what is wrong --------------------------------------------------------------


class _AcknowledgesOverGaps(InMemoryAACPPersistenceAdapter):
    async def receive(self, arrivals: Any, now_ms: int, ttl_ms: int) -> Any:
        for each in arrivals:
            envelope = each.envelope
            state = self.ledger.links[envelope.source_agent_id, envelope.target_agent_id]
            state.received_up_to = max(state.received_up_to, envelope.seq - 2)
        return await super().receive(arrivals, now_ms, ttl_ms)


class _EntersTwice(InMemoryAACPPersistenceAdapter):
    async def append(self, messages: Any, now_ms: int, *claiming: Any) -> Any:
        renamed = [evolve(each, message_id=uuid_of(f"{id(each)}")) for each in messages]
        return await super().append(renamed, now_ms, *claiming)


class _ForgetsOnReopen(InMemoryAACPPersistenceAdapter):
    async def open(self) -> None:
        self.ledger.messages.clear()


@pytest.mark.rule("AACP-30")
@pytest.mark.parametrize(
    "kind",
    [
        _AcknowledgesOverGaps,
        _EntersTwice,
        _ForgetsOnReopen,
    ],
)
def test_comparison_finds_a_planted_bug(kind: type[InMemoryAACPPersistenceAdapter]) -> None:
    @contextmanager
    def place() -> Iterator[MakeAdapter]:
        adapter = kind()
        yield lambda: adapter

    hunt = settings(database=None, derandomize=True, phases=[Phase.generate], print_blob=False)
    with pytest.raises(BaseException) as caught:
        run_beside_memory(place, examples=400, base=hunt)
    found = caught.value
    errors = found.exceptions if isinstance(found, BaseExceptionGroup) else [found]
    assert all(isinstance(error, AssertionError) for error in errors)


# -- too rare for a hunt: recorded histories ------------------------------------------------------


class _ClaimsTheLastFirst(InMemoryAACPPersistenceAdapter):
    async def claim(self, claiming: Any, now_ms: int) -> Any:
        for levels in self.ledger.waiting.values():
            for queue in levels.values():
                for request_id in sorted(queue, reverse=True):
                    queue[request_id] = queue.pop(request_id)
        return await super().claim(claiming, now_ms)


class _TakesLateOutcomes(InMemoryAACPPersistenceAdapter):
    async def complete(self, completions: Any, now_ms: int) -> Any:
        records = (self.ledger.requests.get(each.request_id) for each in completions)
        newest = [
            each if record is None else evolve(each, epoch=record.epoch)
            for each, record in zip(completions, records, strict=True)
        ]
        return await super().complete(newest, now_ms)


class _Recorded(st.DataObject):
    """Gives what was drawn, in order."""

    def __init__(self, *values: Any) -> None:
        self.values = iter(values)

    def draw(self, strategy: Any, label: Any = None) -> Any:
        return next(self.values)


def request(name: str) -> tuple[Any, ...]:
    return ("b", b"1", 1000, 0, 1, "a", False, MessageType.REQUEST, name)


@contextmanager
def beside_memory(kind: type[InMemoryAACPPersistenceAdapter]) -> Iterator[BesideMemory]:
    class Machine(BesideMemory):
        @staticmethod
        @contextmanager
        def place() -> Iterator[MakeAdapter]:
            yield kind

    machine = Machine()
    try:
        machine.begin()
        yield machine
    finally:
        machine.teardown()


def differs(kind: type[InMemoryAACPPersistenceAdapter]) -> AbstractContextManager[object]:
    """Return what holds that a store with a bug is told from the one that is right."""
    is_right = kind is InMemoryAACPPersistenceAdapter
    return nullcontext() if is_right else pytest.raises(AssertionError)


@pytest.mark.rule("AACP-30")
@pytest.mark.parametrize("kind", [InMemoryAACPPersistenceAdapter, _ClaimsTheLastFirst])
def test_comparison_finds_a_claim_out_of_turn(kind: type[InMemoryAACPPersistenceAdapter]) -> None:
    with beside_memory(kind) as machine:
        machine.append(_Recorded(2, *request("r0"), *request("r1"), {}))
        with differs(kind):
            machine.claim(["b"], "one", 1)
            machine.records_are_alike()


@pytest.mark.rule("AACP-30")
@pytest.mark.parametrize("kind", [InMemoryAACPPersistenceAdapter, _TakesLateOutcomes])
def test_comparison_finds_an_outcome_that_is_taken_late(
    kind: type[InMemoryAACPPersistenceAdapter],
) -> None:
    with beside_memory(kind) as machine:
        machine.append(_Recorded(1, *request("r0"), {}))
        machine.claim(["b"], "one", 1)
        machine.time_passes(40)
        machine.claim(["b"], "other", 1)
        first = machine.claims[0]
        assert len(machine.claims) == 2
        with differs(kind):
            machine.complete(_Recorded([(first.request_id, first.epoch)], False))
            machine.records_are_alike()
