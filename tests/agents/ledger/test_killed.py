"""Processes are killed with SIGKILL wherever they happen to be; the ledger has the truth."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from attrs import define, field

from foundation_rt.agents.ledger.types import TERMINAL, RequestRecord, RequestState
from tests.lab.agents.processes import Part, Peers, answer, make_store
from tests.lab.places.services import postgres_schema
from tests.lab.sizes import size

CYCLES = 3 if sys.platform == "win32" else size(6, 50)  # Wine takes seconds to start a process
REQUESTS = 400
AGENTS = ["a", "b", "c"]

pytestmark = pytest.mark.rule("AACP-01", "AACP-02", "AACP-03", "AACP-10", "AACP-23", "AACP-27")


@define
class History:
    """What the peers said over all their lives, held against what their ledger has.

    Attributes:
        requests: ids by their number.
        executions: how often each request's handler was begun.
    """

    store: str
    requests: dict[str, int] = field(factory=dict)
    entered: set[str] = field(factory=set)
    told: dict[str, list[str]] = field(factory=dict)
    executions: Counter[str] = field(factory=Counter)
    finished: dict[str, RequestRecord] = field(factory=dict)

    def add(self, lines: list[list[str]]) -> None:
        """Take note of what a peer said."""
        for word, *rest in lines:
            if word == "entered":
                self.entered.add(rest[0])
            elif word == "executed":
                self.executions[rest[0]] += 1
            elif word == "told":
                assert self.told.setdefault(rest[0], rest[1:]) == rest[1:]

    def check(self) -> None:
        """Every promise, against the ledger as it is now."""
        records, last_sequences = asyncio.run(self._read())
        assert self.entered <= records.keys(), "entered, and not there"
        self._check_outcomes(records)
        self._check_numbers(records, last_sequences)
        for request_id, count in self.executions.items():
            assert count <= records[request_id].epoch, "executed without a claim of its own"

    def _check_outcomes(self, records: dict[str, RequestRecord]) -> None:
        for request_id, before in self.finished.items():
            assert records[request_id] == before, "a terminal record has changed"
        for request_id, record in records.items():
            if record.state in TERMINAL:
                self.finished[request_id] = record
                assert outcome(record) == expected(self.requests[request_id])
        for request_id, told in self.told.items():
            assert request_id in self.finished, "told, and not recorded"
            assert told == list(map(str, outcome(records[request_id])))

    def _check_numbers(
        self, records: dict[str, RequestRecord], last_sequences: dict[str, int]
    ) -> None:
        for agent_id, last in last_sequences.items():
            numbers = [each.seq for each in records.values() if each.target_agent_id == agent_id]
            assert sorted(numbers) == list(range(1, last + 1)), "a gap, or a number twice"

    async def _read(self) -> tuple[dict[str, RequestRecord], dict[str, int]]:
        store = make_store(self.store)
        await store.open()
        try:
            found = await store.get_request_records(list(self.requests))
            last = {
                agent_id: await store.get_last_sequence("host", agent_id) for agent_id in AGENTS
            }
        finally:
            await store.close()
        return {record.request_id: record for record in found}, last


def outcome(record: RequestRecord) -> tuple[str, object]:
    """Return an outcome as peers report it."""
    if record.state is RequestState.COMPLETED:
        return "COMPLETED", orjson.loads(record.result or b"")
    return "FAILED", orjson.loads(record.error or b"")["code"]


def expected(number: int) -> tuple[str, object]:
    """Return the outcome that a request with this payload must have."""
    result = answer(number)
    return ("FAILED", "NOT_FOUND") if result is None else ("COMPLETED", result)


@contextmanager
def place(kind: str, folder: Path) -> Iterator[str]:
    """Yield the address of a store of that kind, in the form that peers take."""
    if kind == "sqlite":
        yield f"sqlite:{folder / 'ledger.db'}"
    else:
        with postgres_schema() as (url, schema):
            yield f"{schema}@{url}"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_killed_process_loses_and_repeats_nothing(kind: str, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with place(kind, tmp_path) as store, Peers() as peers:
        history = History(store)
        for cycle in range(CYCLES):
            ids = [f"c{cycle}-{number}" for number in range(REQUESTS)]
            history.requests |= {request_id: number for number, request_id in enumerate(ids)}
            peers.start(Part("host", store, "", AGENTS, AGENTS, ids, lease_ms=300))
            lines = chance.randint(0, 400)
            peers.wait_for(lambda lines=lines: len(peers.lines) >= lines)
            peers.kill()
            history.add(peers.lines)
            history.check()
        peers.start(Part("host", store, "", AGENTS, lease_ms=300, drain=True))
        peers.wait_for_end()
        history.add(peers.lines)
        assert peers.said("finished")
        history.check()
        assert history.entered <= history.finished.keys()
        assert history.executions.keys() == history.finished.keys()
