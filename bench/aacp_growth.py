"""What a request costs when there is more that it has nothing to do with.

That is agents which have nothing to do, processes which do not execute it, and records that have
expired. Each figure is beside the one without them, of the same run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

from attrs import define

from bench.aacp_load import (
    AGENTS,
    MESSAGE,
    POSTGRES_URL,
    Place,
    do_nothing,
    in_memory,
    load,
    new_schema,
    on_postgres,
    on_sqlite,
)
from bench.report import note, say
from foundation_rt.agents import AgentCoordinatorV2, PostgresAACPPersistenceAdapter
from foundation_rt.agents.ledger.effects import Operation

OpenPlace = Callable[[Path], AbstractAsyncContextManager[Place]]

PROCESSES = 8
_OPERATIONS = frozenset(operation.value for operation in Operation)


async def report(folder: Path, requests: int, idle: int, expired: int, *, postgres: bool) -> None:
    """Measure and print how much a request costs with more around it.

    Args:
        folder: for files.
        requests: how many are measured, each after the one before.
        idle: agents without anything to do.
        expired: records that are deleted meanwhile.
        postgres: whether the server is there.
    """
    places: dict[str, OpenPlace] = {"in memory": in_memory, "SQLite": on_sqlite}
    title = "AACP, idle agents"
    say(f"\n{title:32}{'p50 us, 0':>14}{f'{idle:,}':>14}{'ratio':>10}")
    for name, place in (places | ({"PostgreSQL": on_postgres} if postgres else {})).items():
        none, many = await _idle(place, folder, requests, idle)
        say(f"  {name:30}{none * 1e6:14.1f}{many * 1e6:14.1f}{many / none:10.2f}")
        note(title, name, many / none)
    title = f"AACP, {expired:,} expired records"
    say(f"\n{title:32}{'longest ms, before':>20}{'meanwhile':>12}")
    for name, place in places.items():
        before, meanwhile = await _longest(place, folder, requests, expired)
        say(f"  {name:30}{before * 1e3:20.1f}{meanwhile * 1e3:12.1f}")
    if postgres:
        one, many = [await _operations(count, requests) for count in (1, PROCESSES)]
        say(f"\n{'AACP, processes':32}{'operations, 1':>14}{PROCESSES:>14}{'ratio':>10}")
        say(f"  {'PostgreSQL':30}{one:14.1f}{many:14.1f}{many / one:10.2f}")


async def _idle(place: OpenPlace, folder: Path, requests: int, idle: int) -> tuple[float, float]:
    """Return the median of a request without and with agents that have nothing to do."""
    async with place(folder) as without, place(folder) as among:
        for number in range(idle):
            among.coordinator.register_agent(f"idle-{number}", do_nothing)
        latencies: tuple[list[float], list[float]] = ([], [])
        for _ in range(4):
            for each, found in zip((without, among), latencies, strict=True):
                found += (await load(each, 1, max(1, requests // 4))).latencies
        return median(latencies[0]), median(latencies[1])


async def _longest(
    place: OpenPlace, folder: Path, requests: int, expired: int
) -> tuple[float, float]:
    """Return the longest request before expired records are deleted, and meanwhile."""
    async with place(folder) as one:
        ledger: Any = one.ledger.ledger
        agents = one.coordinator
        await load(one, 1, requests)
        before = max((await load(one, 1, requests)).latencies)
        for first in range(0, expired, 500):
            count = min(500, expired - first)
            await asyncio.gather(
                *(agents.send_request(AGENTS[0], MESSAGE, ttl_ms=600_000) for _ in range(count))
            )
        over = asyncio.create_task(_purge(ledger, int((time.time() + 3_600) * 1000)))
        latencies: list[float] = []
        while not over.done():
            latencies += (await load(one, 1, 1)).latencies
        return before, max(latencies, default=0.0)


async def _purge(ledger: Any, now_ms: int) -> None:
    """Delete what will have expired, as a node does: others get their turn in between."""
    while await ledger.purge_expired(now_ms):
        await asyncio.sleep(0.001)


@define(eq=False)
class _Counted:
    """A ledger that counts its operations."""

    ledger: Any
    operations: int = 0

    def __getattr__(self, name: str) -> Any:
        if name in _OPERATIONS:
            self.operations += 1
        return getattr(self.ledger, name)


async def _operations(processes: int, requests: int) -> float:
    """Return the operations of all coordinators on one ledger, for each request of the first."""
    async with new_schema() as schema, AsyncExitStack() as stack:
        ledgers = []
        coordinators = []
        for _ in range(processes):
            ledgers.append(_Counted(PostgresAACPPersistenceAdapter(POSTGRES_URL, schema=schema)))
            coordinators.append(AgentCoordinatorV2(store=ledgers[-1]))
            coordinators[-1].register_agent(AGENTS[0], do_nothing)
            await stack.enter_async_context(coordinators[-1])
        await asyncio.sleep(0.5)  # they listen
        before = sum(each.operations for each in ledgers)
        for _ in range(requests):
            await coordinators[0].send_request(AGENTS[0], MESSAGE)
        return (sum(each.operations for each in ledgers) - before) / requests
