"""Real processes on one ledger, one of which is sick again and again: what the others do meanwhile.

On PostgreSQL they go on. Nothing there is a time: while one process is stopped or cut off, and
stays so, the other has to execute requests of every agent, those included whose rows the sick one
keeps locked. On SQLite, where a transaction locks the file, they go on when the sick one does.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from foundation_rt.agents.ledger.types import RequestRecord
from tests.agents.ledger.test_killed import expected, outcome
from tests.lab.agents.processes import PATIENCE, Part, Peers, records_of, wait_for
from tests.lab.places.cable import cable_in_thread
from tests.lab.places.services import postgres_schema
from tests.lab.programs.processes import state
from tests.lab.sizes import size
from tests.lab.waiting import block_until

REQUESTS = size(900, 8_000)
FILE_REQUESTS = size(400, 1_500)
"""Fewer: processes on a file look for changes of the others once a second."""
SPELLS = size(3, 12)
HOLES = size(4, 14)
AGENTS = [f"worker-{number}" for number in range(6)]
IDS = [f"r{number}" for number in range(REQUESTS)]
LEASE_MS = 1_500

Sickness = tuple[Callable[[], None], Callable[[], None]]
"""Begins and ends a spell."""


@contextmanager
def stopped(url: str, sick: Peers) -> Iterator[tuple[str, Sickness]]:
    """SIGSTOP, wherever it strikes; within a transaction too."""
    yield url, (sick.stop, sick.go_on)


@contextmanager
def in_a_black_hole(url: str, sick: Peers) -> Iterator[tuple[str, Sickness]]:
    """Have the network swallow everything, and bring it after all."""
    with cable_in_thread(url) as (line, do):
        yield line.url, (lambda: do(line.swallow()), lambda: do(line.let_go()))


@pytest.mark.parametrize("sickness", [stopped, in_a_black_hole])
@pytest.mark.rule("AACP-90", "AACP-91", "AACP-01", "AACP-04")
def test_others_serve_every_agent_while_one_process_is_sick(
    sickness: Callable[[str, Peers], Iterator[tuple[str, Sickness]]],
) -> None:
    random = Random(REQUESTS)
    with (
        postgres_schema() as (url, schema),
        Peers() as askers,
        Peers() as healthy,
        Peers() as sick,
        sickness(url, sick) as (its_url, (begin, end)),  # type: ignore[attr-defined]
    ):
        store = f"{schema}@{url}"
        healthy.start(Part("healthy", store, "", AGENTS, lease_ms=LEASE_MS))
        sick.start(Part("sick", f"{schema}@{its_url}", "", AGENTS, lease_ms=LEASE_MS))
        everybody = (askers, healthy, sick)
        wait_for(lambda: bool(healthy.said("started") and sick.said("started")), *everybody)
        askers.start(Part("asker", store, "", [], AGENTS, IDS, 60, lease_ms=LEASE_MS))
        for spell in range(SPELLS):
            # Not while the last ones are answered, and at another place of its work each time.
            answers = REQUESTS * spell // (2 * SPELLS) + random.randrange(40)
            wait_for(lambda answers=answers: len(askers.said("told")) >= answers, *everybody)
            begin()
            known = len(healthy.said("executed"))

            def serves_all(known: int = known) -> bool:
                since = healthy.said("executed")[known:]
                return len({int(each[1:]) % len(AGENTS) for [each] in since}) == len(AGENTS)

            wait_for(serves_all, askers, healthy)
            end()
        told, executions = end_all(askers, healthy, sick)
        records = asyncio.run(records_of(store, IDS))

    assert records.keys() == set(IDS)
    check(told, records, executions)


@pytest.mark.rule("AACP-99", "AACP-01", "AACP-23")
def test_processes_on_a_file_go_on_when_the_one_that_was_stopped_in_a_transaction_does(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    with Peers() as askers, Peers() as healthy, Peers() as sick:
        everybody = (askers, healthy, sick)
        for peers in (healthy, sick):
            peers.start(Part("worker", f"sqlite:{path}", "", AGENTS, lease_ms=LEASE_MS))
            wait_for(lambda peers=peers: bool(peers.said("started")), *everybody)
        ids = IDS[:FILE_REQUESTS]
        askers.start(Part("asker", f"sqlite:{path}", "", [], AGENTS, ids, 100, lease_ms=LEASE_MS))
        wait_for(lambda: bool(askers.said("started")), *everybody)
        for _ in range(size(1, 3)):
            stop_in_transaction(sick, path)
            time.sleep(2 * LEASE_MS / 1000)  # meanwhile every lease lapses
            assert writer_of(path) == sick.pid
            sick.go_on()
        told, executions = end_all(askers, healthy, sick)
        records = asyncio.run(records_of(f"sqlite:{path}", IDS))
    assert records.keys() == set(ids)
    check(told, records, executions)


@contextmanager
def on_postgres(folder: Path, sick: Peers) -> Iterator[tuple[str, str, Sickness]]:
    """Have one process cut off from its database."""
    with postgres_schema() as (url, schema), in_a_black_hole(url, sick) as (its_url, sickness):
        yield f"{schema}@{url}", f"{schema}@{its_url}", sickness


@contextmanager
def on_a_file(folder: Path, sick: Peers) -> Iterator[tuple[str, str, Sickness]]:
    """Have one process stopped, since nothing stands between it and its file."""
    store = f"sqlite:{folder / 'ledger.db'}"
    yield store, store, (sick.stop, sick.go_on)


@pytest.mark.rule("AACP-04", "AACP-166")
@pytest.mark.parametrize("stand", [on_postgres, on_a_file])
def test_order_is_kept_when_holes_are_as_long_as_a_lease(
    stand: Callable[..., Iterator[tuple[str, str, Sickness]]], tmp_path: Path
) -> None:
    """The executions that count began in the order of the messages, in whichever process."""
    random = Random(HOLES)
    lease_ms, ids = 600, [f"h{number}" for number in range(HOLES * 40)]
    with (
        Peers() as askers,
        Peers() as healthy,
        Peers() as sick,
        stand(tmp_path, sick) as (store, its_store, (begin, end)),  # type: ignore[attr-defined]
    ):
        everybody = (askers, healthy, sick)
        for peers, its in ((healthy, store), (sick, its_store)):
            peers.start(Part("worker", its, "", AGENTS[:1], lease_ms=lease_ms, handler_ms=5))
        wait_for(lambda: bool(healthy.said("started") and sick.said("started")), *everybody)
        askers.start(Part("asker", store, "", [], AGENTS[:1], ids, 60, lease_ms=lease_ms))
        for hole in range(HOLES):
            wait_for(lambda hole=hole: len(askers.said("told")) >= 20 * hole, *everybody)
            begin()
            time.sleep(lease_ms * random.uniform(0.6, 1.4) / 1000)
            end()
        end_all(askers, healthy, sick)
        records = asyncio.run(records_of(store, ids))
    in_order = sorted(records.values(), key=lambda record: record.seq)
    began = [int(record.result or b"") for record in in_order]
    assert len(began) == len(ids)
    assert began == sorted(began)


def end_all(
    askers: Peers, healthy: Peers, sick: Peers
) -> tuple[dict[str, tuple[str, ...]], Counter[str]]:
    """Wait until all is asked, and end the others; return what was told, and the executions."""
    wait_for(askers.has_ended, askers, healthy, sick)
    told = {request_id: tuple(rest) for request_id, *rest in askers.said("told")}
    askers.wait_for_end()
    executions: Counter[str] = Counter()
    for peers in (healthy, sick):
        peers.kill()
        executions.update(request_id for [request_id] in peers.said("executed"))
    return told, executions


def stop_in_transaction(sick: Peers, path: Path) -> None:
    """Stop a peer while it writes, which it does at least once a second."""
    deadline = time.monotonic() + PATIENCE
    while True:
        while writer_of(path) != sick.pid:
            assert time.monotonic() < deadline, "it never writes"
        sick.stop()
        block_until(lambda: state(sick.pid) == "T", "the peer is stopped")
        if writer_of(path) == sick.pid:
            return
        sick.go_on()


def writer_of(path: Path) -> int:
    """Return the process that writes to a SQLite file now, or 0: that has SQLite's lock for it."""
    index = Path(f"{path}-shm")  # with a WAL
    place, byte = (index, _WAL_WRITE_LOCK) if index.exists() else (path, _RESERVED)
    lock = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    with place.open("r+b") as file:
        kind, *_, pid = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, lock))
    return 0 if kind == fcntl.F_UNLCK else pid


_FLOCK = "hhqqi4x"
"""The struct `flock` of Linux: type, whence, start, length, process."""

_RESERVED, _WAL_WRITE_LOCK = 0x40000001, 120
"""The byte that a writer locks, of the file or of the index of a WAL: SQLite's file formats."""


def check(
    told: dict[str, tuple[str, ...]], records: dict[str, RequestRecord], executions: Counter[str]
) -> None:
    """Check that every request has one outcome, which its sender was told."""
    assert told.keys() == records.keys()
    for number, request_id in enumerate(records):
        assert told[request_id] == tuple(map(str, expected(number)))
        assert outcome(records[request_id]) == expected(number)
        # What was executed more often than recorded had lost its claim with a spell.
        assert 1 <= executions[request_id] <= records[request_id].epoch
