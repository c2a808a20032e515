"""The ledger in a SQLite file: the suite of all stores, and what only a file can do."""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.agents.ledger.types import Claimed, Outcome, Release, RequestState
from foundation_rt.agents.persistence import StoreError
from foundation_rt.agents.stores.sqlite import SqliteAACPPersistenceAdapter, schema
from foundation_rt.base.database.migrations import migrations_of
from foundation_rt.base.database.sqlite import WAL_VERSION
from tests.agents.stores.contract import (
    LEASE,
    NOW,
    DurableStoreContract,
    Ledger,
    MakeAdapter,
    WithinIsRefused,
    bare_ack,
    completion,
    event,
    incoming,
    outgoing,
    sequences,
)
from tests.agents.stores.schedule_contract import DurableScheduleContract
from tests.lab.programs.program import program

PATIENCE = 60.0
ROOT = Path(__file__).parents[3]

JOURNAL = "wal" if sqlite3.sqlite_version_info >= WAL_VERSION else "persist"


class _Contract(WithinIsRefused, DurableScheduleContract, DurableStoreContract):
    @staticmethod
    @contextmanager
    def place() -> Iterator[MakeAdapter]:
        with tempfile.TemporaryDirectory() as folder:
            yield lambda: SqliteAACPPersistenceAdapter(Path(folder) / "ledger.db")


TestContract = pytest.mark.rule("AACP-02", "AACP-27", "AACP-30")(_Contract)


# -- helpers --------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def opened(path: Path) -> Ledger:
    return Ledger(lambda: SqliteAACPPersistenceAdapter(path))


def inside(ledger: Ledger, operation: Callable[[sqlite3.Connection], Any]) -> Any:
    """Return the result of `operation` in the adapter's thread, on its connection."""
    return ledger.run(ledger.adapter._perform(ledger.adapter._database.write, operation))


def query(ledger: Ledger, sql: str) -> Any:
    """Return the first value of a statement."""
    return inside(ledger, lambda connection: connection.execute(sql).fetchone()[0])


# Holds the ledger open with a claim of its own, until its input ends.
HOLDER = """
import sys
from foundation_rt.agents.stores.sqlite import SqliteAACPPersistenceAdapter
from tests.agents.stores.contract import Ledger, outgoing
with Ledger(lambda: SqliteAACPPersistenceAdapter(sys.argv[1])) as ledger:
    ledger.append(outgoing("theirs"))
    print(len(ledger.claim(owner="them", idle=["b"]).claims), flush=True)
    sys.stdin.read()
"""


# -- what an acknowledgement means ----------------------------------------------------------------


@pytest.mark.rule("AACP-02", "AACP-31", "AACP-32")
def test_acknowledged_operation_was_synced(path: Path) -> None:
    with opened(path) as ledger:
        assert query(ledger, "PRAGMA journal_mode") == JOURNAL
        assert query(ledger, "PRAGMA synchronous") == 2  # FULL
        assert "synchronous=FULL" in ledger.adapter.durability
        assert ledger.adapter.shared


# -- files of earlier releases, and errors --------------------------------------------------------


@pytest.mark.rule("DB-22")
def test_ledger_of_an_earlier_release_is_opened(path: Path) -> None:
    first = schema.MIGRATIONS[0]
    with closing(sqlite3.connect(path)) as connection:  # as that release made it
        connection.executescript(first.text)
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
        [series] = connection.execute("SELECT series FROM ledger").fetchone()
    uids = set()
    for _ in range(2):
        with opened(path) as ledger:
            assert ledger.adapter.incarnation == series
            uids.add(ledger.adapter.uid)
            assert (
                query(ledger, "SELECT checksum FROM migration WHERE version = 1") == first.checksum
            )
            ledger.append(outgoing("r1"))
    [uid] = uids
    assert re.fullmatch("[0-9a-f]{32}", uid)


def test_error_of_the_database_is_a_store_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("on purpose")

    with opened(path) as ledger:
        with pytest.raises(StoreError, match="on purpose"):
            inside(ledger, fail)
        assert sequences(ledger.append(outgoing("r1"))) == [1]
    wrong = migrations_of((*(each.text for each in schema.MIGRATIONS), "nonsense"))
    monkeypatch.setattr(schema, "MIGRATIONS", wrong)
    with pytest.raises(StoreError, match="nonsense"):
        opened(path)


@pytest.mark.rule("AACP-101")
def test_two_files_have_two_names(tmp_path: Path) -> None:
    with opened(tmp_path / "one.db") as one, opened(tmp_path / "other.db") as other:
        assert one.adapter.uid != other.adapter.uid


# -- processes ------------------------------------------------------------------------------------


@pytest.mark.rule("AACP-25", "AACP-27", "AACP-32", "AACP-72")
def test_claims_of_dead_processes_are_given_back(path: Path) -> None:
    with program(HOLDER, path, says="1") as process:
        process.kill()
        process.wait(PATIENCE)
    with opened(path) as ledger:
        record = ledger.request("theirs")
        assert (record.state, record.owner, record.epoch) == (RequestState.RECEIVED, None, 1)
        assert record.executions == 1
        [claim] = ledger.claim().claims
        assert (claim.epoch, claim.executions) == (2, 2)


@pytest.mark.rule("AACP-01", "AACP-70", "AACP-32")
def test_claims_of_another_process_are_respected(path: Path) -> None:
    with program(HOLDER, path, says="1"), opened(path) as ledger:
        ledger.append(outgoing("ours"))
        assert ledger.state("theirs") is RequestState.CLAIMED
        claimed = ledger.claim()
        assert claimed == Claimed([], {"b": NOW + LEASE})
        assert [claim.epoch for claim in ledger.claim(now=NOW + LEASE).claims] == [2, 1]


# -- speed ---------------------------------------------------------------------------------------


def test_queries_of_nodes_scan_no_table(path: Path) -> None:
    statements: set[str] = set()
    with opened(path) as ledger:
        inside(ledger, lambda connection: connection.set_trace_callback(statements.add))
        ledger.append(
            outgoing("r1"), outgoing("r2", "a", "far", local=False), event("e", local=False)
        )
        ledger.receive(incoming(2), bare_ack(1))
        ledger.receive(incoming(1, ack=0))
        claims = ledger.claim().claims
        ledger.renew((claims[0].request_id, 1), until=NOW + LEASE)
        ledger.release(Release(claims[0].request_id, 1, 1))
        ledger.complete(*map(completion, claims))
        ledger.take_due(NOW + 10**6)
        ledger.unacknowledged("b", "far")
        ledger.last_seq("a", "b")
        ledger.run(ledger.adapter.mark_completed("r2", None, NOW))
        ledger.purge(NOW)
        inside(ledger, lambda connection: connection.set_trace_callback(None))
        for statement in statements:
            if statement.startswith(("SELECT", "UPDATE", "DELETE")):
                plan = inside(
                    ledger,
                    lambda connection, statement=statement: connection.execute(
                        f"EXPLAIN QUERY PLAN {statement}"
                    ).fetchall(),
                )
                steps = [row[-1] for row in plan]
                assert not any(
                    step.startswith(("SCAN requests", "SCAN messages", "SCAN links"))
                    for step in steps
                ), (statement, steps)
                if statement.startswith("UPDATE") and "position IN" in statement:
                    assert "position=?" in steps[0]
        assert ledger.messages(Outcome.FAILED) == []
