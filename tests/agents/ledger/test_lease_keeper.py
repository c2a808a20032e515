"""A handler that blocks its event loop: its leases are renewed all the same, and it is named."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.agents.ledger.coordinator import AgentCoordinatorV2
from foundation_rt.agents.ledger.lease_keeper import LeaseKeeper
from foundation_rt.agents.persistence import AACPPersistenceAdapter
from foundation_rt.agents.stores.postgres import PostgresAACPPersistenceAdapter
from foundation_rt.agents.stores.sqlite import SqliteAACPPersistenceAdapter
from foundation_rt.base.clock import SystemClock
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from tests.lab.agents.coordinators import attach
from tests.lab.places.services import postgres_schema
from tests.lab.waiting import PATIENCE, block_until

LEASE_MS = 2_000


def coordinator(store: AACPPersistenceAdapter, sink: MemorySink) -> AgentCoordinatorV2:
    agents = AgentCoordinatorV2(store=store)
    attach(agents, sink, lease_ms=LEASE_MS)
    return agents


class OtherProcess:
    """A coordinator in a loop of its own, which takes over what others lose.

    Attributes:
        executed: the payloads that it handled.
    """

    def __init__(self, store: AACPPersistenceAdapter) -> None:
        self.store = store
        self.executed: list[Any] = []
        self.started = threading.Event()
        self.over = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.live()))

    async def live(self) -> None:
        agents = coordinator(self.store, MemorySink())
        agents.register_agent("clerk", self.handle)
        async with agents:
            self.started.set()
            await asyncio.to_thread(self.over.wait)

    async def handle(self, message: Any, context: Any) -> None:
        self.executed.append(message.payload)


@pytest.mark.rule("AACP-95", "AACP-24")
async def test_request_of_a_handler_that_blocks_for_leases_is_executed_once() -> None:
    sink, begun = MemorySink(), asyncio.Event()

    async def clerk(message: Any, context: Any) -> str:
        begun.set()
        await asyncio.to_thread(other.started.wait)  # until somebody could take it over
        time.sleep(2 * LEASE_MS / 1000)
        return "done"

    with postgres_schema() as (url, schema):
        stores = [
            PostgresAACPPersistenceAdapter(url, schema=schema, lease_ms=LEASE_MS) for _ in range(2)
        ]
        agents, other = coordinator(stores[0], sink), OtherProcess(stores[1])
        agents.register_agent("clerk", clerk)
        async with asyncio.timeout(PATIENCE), agents:
            asking = asyncio.create_task(agents.send_request("clerk", "slow"))
            await begun.wait()
            other.thread.start()
            try:
                assert await asking == "done"
            finally:
                other.over.set()
                await asyncio.to_thread(other.thread.join)
        assert other.executed == []
    [warning] = [line for line in sink.lines if "blocks the event loop" in line["message"]]
    assert warning["agentId"] == "clerk"
    assert f"{__file__}:" in warning["at"] and warning["at"].endswith("in clerk")


@pytest.mark.rule("AACP-95")
async def test_lease_in_a_file_is_renewed_while_the_loop_is_blocked(tmp_path: Path) -> None:
    path, sink = tmp_path / "ledger.db", MemorySink()

    def lease_until_ms() -> int:
        with closing(sqlite3.connect(path)) as connection:
            [until] = connection.execute("SELECT lease_until_ms FROM requests").fetchone()
        return int(until)

    async def clerk(message: Any, context: Any) -> int:
        first = lease_until_ms()
        renewed = block_until(
            lease_until_ms, "the lease is renewed", lambda until: until - first >= LEASE_MS
        )
        return int(renewed - first)

    agents = coordinator(SqliteAACPPersistenceAdapter(path), sink)
    agents.register_agent("clerk", clerk)
    async with asyncio.timeout(2 * PATIENCE), agents:
        assert await agents.send_request("clerk", "slow", timeout_ms=60_000) >= LEASE_MS
    assert any("blocks the event loop" in line["message"] for line in sink.lines)


@pytest.mark.rule("AACP-95")
async def test_nothing_is_left_of_the_thread(tmp_path: Path) -> None:
    async def clerk(message: Any, context: Any) -> None:
        return None

    before = set(threading.enumerate())
    sink = MemorySink()
    agents = coordinator(SqliteAACPPersistenceAdapter(tmp_path / "ledger.db"), sink)
    agents.register_agent("clerk", clerk)
    async with asyncio.timeout(PATIENCE), agents:
        for _ in range(3):
            await agents.send_request("clerk", "quick")
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("foundation-rt-leases") == 1
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert "foundation-rt-leases" not in left
    assert not any("blocks the event loop" in line["message"] for line in sink.lines)


@pytest.mark.rule("AACP-95")
def test_loop_in_which_no_task_runs_is_late_and_not_blocked(tmp_path: Path) -> None:
    sink, renewer = MemorySink(), SqliteAACPPersistenceAdapter(tmp_path / "ledger.db").renewer()
    assert renewer is not None
    logger = StructuredLogger(sink, SystemClock())

    async def watched() -> LeaseKeeper:
        return LeaseKeeper(list, lambda task: None, renewer, lambda: 0, LEASE_MS, logger)

    assert not asyncio.run(watched())._name_what_blocks()
    assert sink.lines == []
