"""The ledger in memory: it passes the suite of all stores, and is the measure of the others.

Here is also shown that the machine that compares a store with it finds what a store does wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from attrs import evolve
from hypothesis import Phase, settings

from foundation_rt.agents.stores.memory import InMemoryAACPPersistenceAdapter
from foundation_rt.agents.stores.memory_usage import Usage
from tests.agents.stores.beside_memory import run_beside_memory
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
