"""A request whose handler kills its process: it does so a few times, and not for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from tests.agents.ledger.test_killed import expected, outcome, place
from tests.lab.agents.processes import Part, Peers, records_of

MAX_STARTS = 3
IDS = [f"r{number}" for number in range(8)]
POISON = "r4"


@pytest.mark.rule("AACP-04", "AACP-22", "AACP-46")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_request_that_kills_its_process_is_abandoned(kind: str, tmp_path: Path) -> None:
    with place(kind, tmp_path) as store, Peers() as peers:
        settings = {"lease_ms": 300, "kills": POISON, "max_starts": MAX_STARTS}
        lives: list[list[str]] = []
        peers.start(Part("host", store, "", [], ["a"], IDS, **settings))
        peers.wait_for(lambda: len(peers.said("entered")) == len(IDS))
        peers.kill()
        while not any(POISON in life for life in lives) or not peers.said("finished"):
            peers.start(Part("host", store, "", ["a"], drain=True, **settings))
            peers.wait_for_end()
            lives.append([request_id for [request_id] in peers.said("executed")])
        # A start behind another request is not counted: it was claimed ahead (AACP-72).
        starts = sum(life.count(POISON) for life in lives)
        first = sum(life[:1] == [POISON] for life in lives)
        assert first <= MAX_STARTS <= starts
        assert list(dict.fromkeys(each for life in lives for each in life)) == IDS
        records = asyncio.run(records_of(store, IDS))
    error = orjson.loads(records.pop(POISON).error or b"")
    assert (error["code"], error["details"]) == ("INTERNAL", {"reason": "abandoned"})
    for request_id, record in records.items():
        assert record.executions <= 2, "what is behind it does not count its deaths"
        assert outcome(record) == expected(IDS.index(request_id))
