"""The ledger in memory: it passes the suite of all stores, and is the measure of the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from foundation_rt.aacp.stores.memory import InMemoryAACPPersistenceAdapter
from tests.aacp.contract import Ledger, MakeAdapter, StoreContract, draft


class _Contract(StoreContract):
    @staticmethod
    @contextmanager
    def place() -> Iterator[MakeAdapter]:
        yield InMemoryAACPPersistenceAdapter


TestContract = pytest.mark.rule(
    "AACP-01",
    "AACP-03",
    "AACP-04",
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
)(_Contract)


@pytest.mark.rule("AACP-31")
def test_it_says_that_it_forgets() -> None:
    text = InMemoryAACPPersistenceAdapter.durability
    assert "MUST NOT be considered durable across restarts" in text
    assert not InMemoryAACPPersistenceAdapter.shared


def test_what_is_handed_out_is_not_the_ledgers_own() -> None:
    with Ledger(InMemoryAACPPersistenceAdapter) as ledger:
        ledger.append(draft("r1"))
        ledger.request("r1").epoch = 7
        assert ledger.request("r1").epoch == 0
