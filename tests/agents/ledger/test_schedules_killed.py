"""Two processes on one ledger have the same schedules, and are killed in turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from foundation_rt.agents.ledger.types import Outcome
from tests.agents.ledger.test_killed import place
from tests.lab.agents.processes import Part, Peers, records_of, wait_for
from tests.lab.sizes import size

KILLS = size(2, 20)
RUNS = size(2, 4)
"""So many runs are executed between two kills."""
EXPRESSIONS = ["* * * * * *", "*/2 * * * * *"]
"""Every second, and every other one."""


@pytest.mark.rule("AACP-140")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_each_run_is_entered_and_executed_once(kind: str, tmp_path: Path) -> None:
    executions: Counter[str] = Counter()
    with place(kind, tmp_path) as store, Peers() as one, Peers() as other:
        parts = [
            Part(name, store, "", ["clerk"], lease_ms=600, schedules=EXPRESSIONS)
            for name in ("one", "other")
        ]
        both = (one, other)
        for peers, part in zip(both, parts, strict=True):
            peers.start(part)
        for number in range(KILLS):
            wait_for(lambda: sum(len(each.said("executed")) for each in both) >= RUNS, *both)
            killed, part = both[number % 2], parts[number % 2]
            for peers in both:
                if peers is killed:
                    peers.kill()
                executions.update(line[0] for line in peers.said("executed"))
                peers.lines = []
            killed.start(part)
        wait_for(lambda: sum(len(each.said("executed")) for each in both) >= RUNS, *both)
        for peers in both:
            peers.kill()
            executions.update(line[0] for line in peers.said("executed"))
        with Peers() as last:
            last.start(Part("one", store, "", ["clerk"], lease_ms=600, drain=True))
            last.wait_for_end()
            executions.update(line[0] for line in last.said("executed"))
        records = asyncio.run(records_of(store))
    for name, seconds in (("s0", 1), ("s1", 2)):
        times = sorted(
            datetime.fromisoformat(each.removeprefix(f"every:{name}:"))
            for each in records
            if each.startswith(f"every:{name}:")
        )
        expected = [times[0] + timedelta(seconds=seconds * n) for n in range(len(times))]
        assert times == expected, "a run is missing"
    assert records.keys() == executions.keys()
    for request_id, record in records.items():
        assert record.outcome is Outcome.COMPLETED
        # What was executed more often than recorded had lost its claim with its process.
        assert executions[request_id] <= record.epoch
