"""The section on AACP: requests through every ledger, beside what its engine does with the writes.

Each round measures a ledger and its floor one after the other, both new; a ratio is the median of
the rounds' ratios. Clients, coordinator and agents share one process and one event loop, so a rate
is what one process does all in all. Over NATS there are two coordinators, each with a SQLite file
and both in this process; that path has no floor of its own.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from itertools import chain
from pathlib import Path
from statistics import median

from attrs import define, field

from bench import aacp_floors as floors
from bench import aacp_growth
from bench import aacp_load as places
from bench.aacp_load import CLIENTS, Place, Run, load
from bench.report import head, note, percentiles, row, say
from bench.sizes import Sizes

OpenPlace = Callable[[Path], AbstractAsyncContextManager[Place]]
OpenFloor = Callable[[Path], AbstractAsyncContextManager[floors.Floor]]


@define(eq=False)
class _Case:
    """A ledger to measure, and what was measured.

    Attributes:
        alone, many: how many requests one client makes in a round, and all `CLIENTS` together.
        url: of the service that it needs.
    """

    name: str
    place: OpenPlace
    floor: OpenFloor | None
    alone: int
    many: int
    url: str | None = None
    latencies: list[list[float]] = field(factory=list, init=False)
    floor_latencies: list[list[float]] = field(factory=list, init=False)
    runs: list[Run] = field(factory=list, init=False)
    floor_rates: list[float] = field(factory=list, init=False)

    async def measure(self, folder: Path, sizes: Sizes) -> None:
        """One round."""
        alone, many = (max(2, int(each * sizes.aacp_share)) for each in (self.alone, self.many))
        async with self.place(folder) as place:
            await load(place, CLIENTS, sizes.warm_up)
            gc.collect()
            self.latencies.append((await load(place, 1, alone)).latencies)
            run = await load(place, CLIENTS, many)
            self.runs.append(run)
        if self.floor is None:
            return
        async with self.floor(folder) as floor:
            await floor.many(sizes.warm_up, run.group)
            gc.collect()
            self.floor_latencies.append(await floors.latencies(floor, alone))
            self.floor_rates.append(await floors.rate(floor, many, run.group))


def _cases() -> list[_Case]:
    return [
        _Case("in memory", places.in_memory, floors.queues, 2000, 20_000),
        _Case("SQLite", places.on_sqlite, floors.sqlite, 200, 10_000),
        _Case(
            "PostgreSQL",
            places.on_postgres,
            floors.postgres,
            200,
            10_000,
            places.POSTGRES_URL,
        ),
        _Case("SQLite, NATS, SQLite", places.over_nats, None, 100, 5_000, places.NATS_URL),
    ]


def report(sizes: Sizes) -> None:
    """Measure and print everything about AACP; say which service is not there."""
    cases = []
    missing = []
    for case in _cases():
        problem = None if case.url is None else places.why_not_reachable(case.url)
        if problem is None:
            cases.append(case)
        else:
            missing.append(f"  {case.name:30}not measured: its server is not reachable ({problem})")
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(sizes.aacp):
            for case in cases:
                asyncio.run(case.measure(Path(folder), sizes))
    _report_alone(cases)
    _report_many(cases)
    for line in missing:
        say(line)
    has_postgres = any(case.url == places.POSTGRES_URL for case in cases)
    with tempfile.TemporaryDirectory() as folder:
        growth = aacp_growth.report(Path(folder), *sizes.growth, postgres=has_postgres)
        asyncio.run(growth)
    _report_simulator(*sizes.seeds)


def _report_alone(cases: list[_Case]) -> None:
    head("AACP, one request after another", "us")
    for case in cases:
        ratio = None
        if case.floor_latencies:
            pairs = zip(case.latencies, case.floor_latencies, strict=True)
            ratio = median(median(mine) / median(floor) for mine, floor in pairs)
            row(f"floor: {case.name}", [*chain(*case.floor_latencies)], 1e6, None)
        row(case.name, [*chain(*case.latencies)], 1e6, ratio)


def _report_many(cases: list[_Case]) -> None:
    title = f"AACP, {CLIENTS} clients"
    say(f"\n{title:32}{'requests/s':>12}{'p50 ms':>10}{'p95 ms':>10}{'cpu us':>10}{'ratio':>10}")
    for case in cases:
        if case.floor_rates:
            group = round(median(run.group for run in case.runs))
            name = f"floor: {case.name}, by {group}"
            say(f"  {name:30}{median(case.floor_rates):12.0f}")
        cuts = percentiles([seconds for run in case.runs for seconds in run.latencies])
        cpu = median(run.cpu / len(run.latencies) for run in case.runs)
        figures = f"{cuts[50] * 1e3:10.1f}{cuts[95] * 1e3:10.1f}{cpu * 1e6:10.1f}"
        rates = [run.rate for run in case.runs]
        ratio = ""
        if case.floor_rates:
            pairs = zip(rates, case.floor_rates, strict=True)
            to_floor = median(mine / floor for mine, floor in pairs)
            note(title, case.name, to_floor)
            ratio = f"{to_floor:.2f}"
        say(f"  {case.name:30}{median(rates):12.0f}{figures}{ratio:>10}")


def _report_simulator(seeds: int, requests: int) -> None:
    """Measure simulated histories per second of processor time, on one core."""
    from tests.simulation.simulator import Simulator

    started = time.process_time()
    for seed in range(seeds):
        Simulator(seed, requests).run()
    rate = seeds / (time.process_time() - started)
    say(f"\n{'AACP, simulator':32}{'seeds/s':>12}")
    say(f"  {f'of {requests} requests, a core':30}{rate:12.0f}")
