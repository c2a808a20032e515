"""The time of a ledger: whatever the clocks of machines say, nothing lapses early or is lost."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.agents.ledger.coordinator import AgentCoordinatorV2
from foundation_rt.agents.ledger.types import Outcome
from foundation_rt.agents.persistence import StoreError
from foundation_rt.agents.stores.postgres import PostgresAACPPersistenceAdapter
from foundation_rt.agents.stores.sqlite import SqliteAACPPersistenceAdapter
from foundation_rt.agents.stores.sqlite.ledger_clock import MachineClocks
from foundation_rt.base.clock import SystemClock
from tests.lab.agents.coordinators import attach
from tests.lab.places.services import postgres_schema
from tests.lab.waiting import PATIENCE, until

LEASE_MS = 1_500
NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class WrongClock(SystemClock):
    """The clock of a machine, so far ahead of the right one.

    Attributes:
        off: how far.
    """

    def __init__(self, off: timedelta) -> None:
        super().__init__()
        self.off = off

    def now(self) -> datetime:
        return super().now() + self.off


class Process:
    """A coordinator that shares a ledger with others, as a process of its own would.

    Attributes:
        lines: of its log.
    """

    def __init__(self, url: str, schema: str, clock: SystemClock) -> None:
        self.agents = AgentCoordinatorV2(
            store=PostgresAACPPersistenceAdapter(url, schema=schema, lease_ms=LEASE_MS),
            clock=clock,
        )
        self.sink = attach(self.agents, clock=clock, lease_ms=LEASE_MS, store=url)

    def logged(self, part: str) -> bool:
        return any(part in line["message"] for line in self.sink.lines)


@pytest.mark.rule("AACP-33", "AACP-94")
async def test_process_whose_clock_is_far_off_claims_and_purges_nothing_until_it_is_right() -> None:
    clock = WrongClock(timedelta(hours=25))
    with postgres_schema() as (url, schema):
        right, wrong = Process(url, schema, SystemClock()), Process(url, schema, clock)
        handled = asyncio.Event()

        async def clerk(message: Any, context: Any) -> Any:
            handled.set()
            return message.payload

        wrong.agents.register_agent("clerk", clerk)
        async with asyncio.timeout(PATIENCE), right.agents, wrong.agents:
            event = await right.agents.send_reliable_message("clerk", "from a right clock")
            # By its own clock, the wrong process would see the first as expired for an hour.
            own = await wrong.agents.send_reliable_message("clerk", "from a wrong clock")
            statuses = [await right.agents.status(each) for each in (event, own)]
            assert [status and status.outcome for status in statuses] == [Outcome.UNKNOWN] * 2
            await until(lambda: not wrong.agents.is_ready(), "its clock is judged")
            assert wrong.logged("set it right; until then nothing is claimed or purged")
            assert right.agents.is_ready()
            with pytest.raises(StoreError, match="clock of this machine is wrong"):
                await wrong.agents.purge_expired()
            assert await right.agents.purge_expired() == 0
            assert not handled.is_set()

            clock.off = timedelta()
            await handled.wait()
            assert wrong.agents.is_ready()
            assert wrong.logged("the clock is right again")


@pytest.mark.rule("AACP-33")
async def test_times_of_a_ledger_are_those_of_its_database() -> None:
    with postgres_schema() as (url, schema):
        process = Process(url, schema, WrongClock(timedelta(days=-400)))
        store = process.agents.store
        assert store is not None
        async with asyncio.timeout(PATIENCE), process.agents:
            before = await store.read_time()
            sent = await process.agents.send_reliable_message("nobody-yet", "later")
            after = await store.read_time()
            message = await store.get_request_record(sent)
            assert before is not None and after is not None and message is not None
            # A node's time is late by the time that an answer took, and never early.
            assert before - 1_000 <= message.created_at_ms <= after


def store_at(
    folder: Path, wall_ms: int, since_boot_ms: int, boot_id: str
) -> SqliteAACPPersistenceAdapter:
    clocks = MachineClocks(lambda: wall_ms, lambda: since_boot_ms, boot_id)
    return SqliteAACPPersistenceAdapter(folder / "ledger.db", clocks=clocks)


async def time_of(store: SqliteAACPPersistenceAdapter) -> int:
    await store.open()
    try:
        return await store.read_time()
    finally:
        await store.close()


@pytest.mark.rule("AACP-93")
@pytest.mark.parametrize("step_ms", [25 * HOUR_MS, -25 * HOUR_MS])
async def test_a_file_goes_by_no_step_of_the_wall_clock(tmp_path: Path, step_ms: int) -> None:
    assert await time_of(store_at(tmp_path, NOW_MS, 5_000, "a")) == NOW_MS
    again = store_at(tmp_path, NOW_MS + step_ms, 7_000, "a")
    assert await time_of(again) == NOW_MS + 2_000


@pytest.mark.rule("AACP-93")
async def test_after_a_restart_of_the_machine_a_file_goes_by_its_clock_but_never_back(
    tmp_path: Path,
) -> None:
    first = store_at(tmp_path, NOW_MS, 5_000, "a")
    await first.open()
    await first.purge_expired(NOW_MS + HOUR_MS)
    await first.close()
    assert await time_of(store_at(tmp_path, 0, 10, "b")) == NOW_MS + HOUR_MS
    assert await time_of(store_at(tmp_path, NOW_MS + 2 * HOUR_MS, 10, "c")) == NOW_MS + 2 * HOUR_MS


@pytest.mark.rule("AACP-93")
async def test_a_machine_that_names_no_start_is_believed_when_it_opens_a_file_alone(
    tmp_path: Path,
) -> None:
    assert await time_of(store_at(tmp_path, NOW_MS, 5_000, "")) == NOW_MS
    assert await time_of(store_at(tmp_path, NOW_MS + HOUR_MS, 10, "")) == NOW_MS + HOUR_MS
