"""Two processes exchange requests while one, and once the other, is killed and restarted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from tests.agents.ledger.test_killed import expected, outcome
from tests.lab.agents.processes import Part, Peers, records_of, wait_for
from tests.lab.places.services import need_nats, postgres_schema, unique_name
from tests.lab.sizes import size

REQUESTS = size(800, 10_000)
IN_FLIGHT = 200
"""What is asked at a time: more is not lost with a process that executes."""
AGENTS = [f"worker-{number}" for number in range(8)]
IDS = [f"r{number}" for number in range(REQUESTS)]
KILL_AT = tuple(REQUESTS * percent // 100 for percent in (15, 30, 55, 80))
"""After so many answers one of the two is killed: the executing one, and once the asking one."""

pytestmark = pytest.mark.rule("AACP-01", "AACP-02", "AACP-12", "AACP-27", "AACP-41", "AACP-42")


@contextmanager
def over_postgres(folder: Path) -> Iterator[tuple[Part, Part]]:
    """One ledger for both."""
    with postgres_schema() as (url, schema):
        store = f"{schema}@{url}"
        yield (
            Part("asker", store, "", [], AGENTS, IDS, IN_FLIGHT),
            Part("executor", store, "", AGENTS),
        )


@contextmanager
def over_nats(folder: Path) -> Iterator[tuple[Part, Part]]:
    """Yield two peers, each with a ledger, joined by NATS."""
    transport = f"{unique_name('aacp')}@{need_nats()}"
    yield (
        Part("asker", f"sqlite:{folder / 'asker.db'}", transport, [], AGENTS, IDS, IN_FLIGHT),
        Part("executor", f"sqlite:{folder / 'executor.db'}", transport, AGENTS),
    )


@pytest.mark.parametrize("between", [over_postgres, over_nats])
def test_two_processes_lose_nothing_and_execute_once(between: Any, tmp_path: Path) -> None:
    executions: Counter[str] = Counter()
    told: dict[str, list[str]] = {}

    def note(lines: list[list[str]]) -> None:
        for word, *rest in lines:
            if word == "executed":
                executions[rest[0]] += 1
            elif word == "told":
                assert told.setdefault(rest[0], rest[1:]) == rest[1:]

    with between(tmp_path) as (asking, executing), Peers() as askers, Peers() as executors:
        executors.start(executing)
        askers.start(asking)
        for number, kill_at in enumerate(KILL_AT):
            answers = kill_at - len(told)
            wait_for(lambda answers=answers: len(askers.said("told")) >= answers, askers, executors)
            killed, part = (askers, asking) if number == 2 else (executors, executing)
            killed.kill()
            note(killed.lines)
            if killed is askers:
                # It has forgotten what it was told, and asks for everything again.
                part = evolve(part, request_ids=IDS)
                told_before, told = told, {}
            killed.start(part)
        wait_for(askers.has_ended, askers, executors)
        askers.wait_for_end()
        note(askers.lines)
        executors.kill()
        note(executors.lines)
        records = asyncio.run(records_of(executing.store, IDS))

    assert told_before.items() <= told.items()
    assert told.keys() == set(IDS), "an answer is missing"
    for number, request_id in enumerate(IDS):
        assert tuple(told[request_id]) == tuple(map(str, expected(number)))
        assert outcome(records[request_id]) == expected(number)
        # What was executed more often than recorded had lost its claim with its process.
        assert 1 <= executions[request_id] <= records[request_id].epoch
    assert sum(executions.values()) <= REQUESTS + (len(KILL_AT) - 1) * IN_FLIGHT
