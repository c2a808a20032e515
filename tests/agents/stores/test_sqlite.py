"""The ledger in a SQLite file: the suite of all stores, and what only a file can do."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.agents.ledger.types import Claimed, Outcome, Release, RequestState
from foundation_rt.agents.persistence import StoreError
from foundation_rt.agents.stores.sqlite import SqliteAACPPersistenceAdapter, schema
from foundation_rt.base.database.migrations import Migration, migrations_of
from foundation_rt.base.database.sqlite import WAL_VERSION
from foundation_rt.errors import UsageError
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
from tests.support import fork_server
from tests.support.sizes import size
from tests.support.sqlite import Pause, a_small_disk

PATIENCE = 60.0

JOURNAL = "wal" if sqlite3.sqlite_version_info >= WAL_VERSION else "persist"


class _Contract(WithinIsRefused, DurableScheduleContract, DurableStoreContract):
    @staticmethod
    @contextmanager
    def place() -> Iterator[MakeAdapter]:
        with tempfile.TemporaryDirectory() as folder:
            yield lambda: SqliteAACPPersistenceAdapter(Path(folder) / "ledger.db")


TestContract = pytest.mark.rule(
    "AACP-01",
    "AACP-02",
    "AACP-03",
    "AACP-04",
    "AACP-05",
    "AACP-10",
    "AACP-11",
    "AACP-12",
    "AACP-13",
    "AACP-14",
    "AACP-15",
    "AACP-16",
    "AACP-17",
    "AACP-18",
    "AACP-20",
    "AACP-21",
    "AACP-22",
    "AACP-23",
    "AACP-24",
    "AACP-25",
    "AACP-27",
    "AACP-30",
    "AACP-111",
    "AACP-112",
    "AACP-113",
    "AACP-114",
    "AACP-115",
)(_Contract)


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


def refused(path: Path) -> str:
    """Return the `UsageError` with which the file is refused."""
    with pytest.raises(UsageError) as caught:
        asyncio.run(SqliteAACPPersistenceAdapter(path).open())
    return str(caught.value)


def a_process(source: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a Python process with pipes; `source` finds its arguments in `sys.argv`."""
    return fork_server.Popen(
        [sys.executable, "-c", source, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )


def run_process(source: str, *arguments: object) -> str:
    """Return the output of a process, which must succeed."""
    with a_process(source, *arguments) as process:
        output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return output


# Holds the ledger open with a claim of its own, until its input ends.
HOLDER = """
import os, sqlite3, sys
if os.environ.get("JOURNAL") == "WAL":
    sqlite3.sqlite_version_info = (3, 51, 3)
from foundation_rt.agents.stores.sqlite import SqliteAACPPersistenceAdapter
from tests.agents.stores.contract import Ledger, outgoing
with Ledger(lambda: SqliteAACPPersistenceAdapter(sys.argv[1])) as ledger:
    ledger.append(outgoing("theirs"))
    print(len(ledger.claim(owner="them", idle=["b"]).claims), flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the ledger open, and the request `theirs` claimed."""
    with a_process(HOLDER, path) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "1\n"
            yield process
        finally:
            process.kill()
            process.communicate()


# -- what an acknowledgement means ----------------------------------------------------------------


@pytest.mark.rule("AACP-02", "AACP-31")
def test_acknowledged_operation_was_synced(path: Path) -> None:
    with opened(path) as ledger:
        assert query(ledger, "PRAGMA journal_mode") == JOURNAL
        assert query(ledger, "PRAGMA synchronous") == 2  # FULL
        assert "synchronous=FULL" in ledger.adapter.durability
        assert ledger.adapter.shared


# Enters, claims and completes as fast as it can, and says what was acknowledged.
WORKER = """
import asyncio, sys
from foundation_rt.agents.ledger.types import Claiming
from foundation_rt.agents.stores.sqlite import SqliteAACPPersistenceAdapter
from tests.agents.stores.contract import LEASE, NOW, completion, outgoing
cycle = sys.argv[2]

def say(*words):
    print(*words, flush=True)

async def enter(store, task):
    for n in range(100_000):
        name = f"c{cycle}-{task}-{n}"
        [appended] = await store.append([outgoing(name)], NOW)
        say("entered", name, appended.seq)

async def execute(store):
    while True:
        claimed = await store.claim(Claiming({"b": 7}, f"owner{cycle}", NOW + LEASE), NOW)
        ended = [completion(claim, f'"{cycle}"'.encode()) for claim in claimed.claims]
        for completed, claim in zip(await store.complete(ended, NOW), claimed.claims):
            assert completed.record is not None
            say("completed", claim.request_id, claim.epoch)

async def main():
    store = SqliteAACPPersistenceAdapter(sys.argv[1])
    await store.open()
    await asyncio.gather(*(enter(store, task) for task in range(4)), execute(store))

asyncio.run(main())
"""


@pytest.mark.rule("AACP-01", "AACP-02", "AACP-10", "AACP-27")
def test_acknowledged_operation_survives_a_kill(path: Path) -> None:
    entered: dict[str, int] = {}
    completed: dict[str, int] = {}
    for cycle in range(size(2, 4)):
        with a_process(WORKER, path, cycle) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(60 + 70 * cycle)]
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read()
            assert process.stderr is not None
            assert all(lines), process.stderr.read()
        # The last line may have been cut by the kill.
        for line in [*lines, *rest.splitlines(keepends=True)]:
            if line.endswith("\n"):
                what, name, number = line.split()
                known = entered if what == "entered" else completed
                assert name not in known
                known[name] = int(number)
    assert completed
    with opened(path) as ledger:
        last = ledger.last_seq("a", "b")
        assert len(set(entered.values())) == len(entered)
        assert last >= max(entered.values()) >= len(entered)
        for name, seq in entered.items():
            assert ledger.request(name).seq == seq
        for name, epoch in completed.items():
            record = ledger.request(name)
            assert (record.state, record.epoch) == (RequestState.COMPLETED, epoch)
        # Of what was not acknowledged, some is there: whole, and with numbers of its own.
        numbers = inside(ledger, lambda db: db.execute("SELECT seq FROM requests").fetchall())
        assert sorted(number for (number,) in numbers) == list(range(1, last + 1))
        assert query(ledger, "PRAGMA integrity_check") == "ok"


# -- groups ---------------------------------------------------------------------------------------


@pytest.mark.rule("AACP-30")
def test_batch_that_fails_is_undone_as_a_whole(path: Path) -> None:
    with opened(path) as ledger:
        with pytest.raises(OverflowError):
            ledger.append(outgoing("r1"), outgoing("r2", created_at_ms=2**80))
        assert not ledger.has_request("r1")
        assert sequences(ledger.append(outgoing("r1"))) == [1]


def test_programming_error_is_raised_unchanged(path: Path) -> None:
    def wrong(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO positions VALUES (NULL)")

    with opened(path) as ledger, pytest.raises(sqlite3.IntegrityError):
        inside(ledger, wrong)


def fault(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("on purpose")
    error.sqlite_errorcode = code
    return error


# -- a file that cannot be a ledger ---------------------------------------------------------------


@pytest.mark.parametrize("content", [b"no database " * 100, b"short"])
def test_file_that_is_no_database_is_refused_and_unchanged(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert "is no SQLite database" in refused(path)
    assert path.read_bytes() == content


def test_database_of_another_application_is_refused_and_unchanged(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    assert "is the database of another application" in refused(path)
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert tables == [("theirs",)]


def test_ledger_of_a_newer_version_is_refused(path: Path) -> None:
    with opened(path) as ledger:
        ledger.append(outgoing("r1"))
    newer = len(schema.MIGRATIONS) + 1
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {newer}")
    message = refused(path)
    assert f"version {newer}" in message
    assert "use the newer version" in message


def with_another(text: str) -> tuple[Migration, ...]:
    """Return the migrations with one more."""
    return migrations_of((*(each.text for each in schema.MIGRATIONS), text))


def test_older_ledger_is_migrated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path) as ledger:
        ledger.append(outgoing("r1"))
        assert query(ledger, "PRAGMA user_version") == len(schema.MIGRATIONS)
        assert query(ledger, "PRAGMA application_id") == schema.APPLICATION_ID
    further = "CREATE TABLE more (x); INSERT INTO more VALUES (7)"
    monkeypatch.setattr(schema, "MIGRATIONS", with_another(further))
    for _ in range(2):
        with opened(path) as ledger:
            assert query(ledger, "SELECT sum(x) FROM more") == 7
            assert ledger.has_request("r1")


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


@pytest.mark.rule("AACP-101")
def test_two_files_have_two_names(tmp_path: Path) -> None:
    with opened(tmp_path / "one.db") as one, opened(tmp_path / "other.db") as other:
        assert one.adapter.uid != other.adapter.uid


def test_migration_that_fails_leaves_the_ledger_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as ledger:
        ledger.append(outgoing("r1"))
    known = schema.MIGRATIONS
    further = with_another("CREATE TABLE more (x); nonsense")
    monkeypatch.setattr(schema, "MIGRATIONS", further)
    with pytest.raises(StoreError):
        opened(path)
    monkeypatch.setattr(schema, "MIGRATIONS", known)
    with opened(path) as ledger:
        assert query(ledger, "SELECT count(*) FROM sqlite_master WHERE name = 'more'") == 0
        assert ledger.has_request("r1")


def test_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    message = refused(tmp_path / "nowhere" / "ledger.db")
    assert str(tmp_path / "nowhere" / "ledger.db") in message
    assert "a folder that exists" in message


def test_folder_is_no_ledger(path: Path) -> None:
    path.mkdir()
    assert "cannot be opened" in refused(path)


def test_read_only_disk_is_refused(tmp_path: Path) -> None:
    with a_small_disk(tmp_path) as folder:
        with opened(folder / "ledger.db") as ledger:
            ledger.append(outgoing("r1"))
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        assert "may be written to" in refused(folder / "ledger.db")
        subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
        with opened(folder / "ledger.db") as ledger:
            assert ledger.has_request("r1")


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (sqlite3.SQLITE_READONLY, "change its permissions"),
        (sqlite3.SQLITE_READONLY | 5 << 8, "change its permissions"),
        (sqlite3.SQLITE_FULL, "make room"),
        (sqlite3.SQLITE_CORRUPT, "restore it from a backup"),
        (sqlite3.SQLITE_IOERR, "on purpose"),
    ],
)
def test_error_of_a_file_in_use_says_what_to_do(path: Path, code: int, advice: str) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        raise fault(code)

    with opened(path) as ledger:
        with pytest.raises(StoreError) as caught:
            inside(ledger, fail)
        assert str(caught.value).startswith(f"{path}: ")
        assert advice in str(caught.value)
        assert sequences(ledger.append(outgoing("r1"))) == [1]


def test_ledger_that_another_writes_says_so(path: Path) -> None:
    with opened(path) as ledger, closing(sqlite3.connect(path, isolation_level=None)) as another:
        another.execute("BEGIN IMMEDIATE")
        store = ledger.adapter
        store._database._committer._patience_s = 0.01
        answers = ledger.run(
            errors_of(store.append([outgoing("r1")], NOW), store.append([outgoing("r2")], NOW))
        )
        assert ["another process has been using it" in str(error) for error in answers] == [
            True
        ] * 2
        another.execute("ROLLBACK")
        assert sequences(ledger.append(outgoing("r1"))) == [1]


async def errors_of(*operations: Any) -> list[Any]:
    return list(await asyncio.gather(*operations, return_exceptions=True))


# -- processes ------------------------------------------------------------------------------------


@pytest.mark.rule("AACP-32")
def test_process_opens_a_file_once(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(path)
    with opened(path) as ledger:
        for name in ("ledger.db", "link.db"):
            assert "is open in this process already" in refused(tmp_path / name)
        with pytest.raises(UsageError, match="open it once"):
            ledger.run(ledger.adapter.open())
        ledger.append(outgoing("r1"))
    with opened(tmp_path / "link.db") as ledger:
        assert ledger.has_request("r1")


@pytest.mark.rule("AACP-25", "AACP-27", "AACP-32", "AACP-72")
def test_claims_of_dead_processes_are_given_back(path: Path) -> None:
    with another_process(path) as process:
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
    with another_process(path), opened(path) as ledger:
        ledger.append(outgoing("ours"))
        assert ledger.state("theirs") is RequestState.CLAIMED
        claimed = ledger.claim()
        assert claimed == Claimed([], {"b": NOW + LEASE})
        assert [claim.epoch for claim in ledger.claim(now=NOW + LEASE).claims] == [2, 1]


@pytest.mark.rule("AACP-32")
@pytest.mark.parametrize("version", [(3, 40, 1), WAL_VERSION])
def test_ledger_of_an_earlier_release_in_a_wal_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int]
) -> None:
    with opened(path) as ledger:
        ledger.append(outgoing("r1"))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    with opened(path) as ledger:
        journal = "wal" if version >= WAL_VERSION else "persist"
        assert query(ledger, "PRAGMA journal_mode") == journal
        assert ledger.has_request("r1")


@pytest.mark.rule("AACP-32")
def test_ledger_that_another_process_has_in_a_wal_is_refused_by_an_old_library(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL", "WAL")
    with another_process(path):
        monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 2))
        with pytest.raises(StoreError, match=r"with a WAL, which this SQLite .* may damage"):
            opened(path)
    with opened(path) as ledger:
        assert query(ledger, "PRAGMA journal_mode") == "persist"
        assert ledger.has_request("theirs")


FORKER = """
import asyncio, os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from foundation_rt.agents.stores.sqlite import SqliteAACPPersistenceAdapter
from foundation_rt.errors import UsageError
from tests.agents.stores.contract import Ledger, outgoing

def child(ledger, path):
    try:
        asyncio.run(ledger.adapter.append([outgoing("r2")], 0))
    except UsageError as error:
        assert "the child process must open it by itself" in str(error)
    else:
        raise AssertionError
    asyncio.run(ledger.adapter.close())
    with Ledger(lambda: SqliteAACPPersistenceAdapter(path)) as own:
        own.append(outgoing("r2"))

with Ledger(lambda: SqliteAACPPersistenceAdapter(sys.argv[1])) as ledger:
    ledger.append(outgoing("r1"))
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            child(ledger, sys.argv[1])
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    print([ledger.request(name).seq for name in ("r1", "r2")])
"""


@pytest.mark.rule("AACP-32")
def test_child_process_needs_an_adapter_of_its_own(path: Path) -> None:
    assert run_process(FORKER, path) == "[1, 2]\n"


RACER = """
import sys
from foundation_rt.agents.stores.sqlite import SqliteAACPPersistenceAdapter
from tests.agents.stores.contract import Ledger, outgoing
sys.stdin.readline()
with Ledger(lambda: SqliteAACPPersistenceAdapter(sys.argv[1])) as ledger:
    for n in range(20):
        [appended] = ledger.append(outgoing(f"{sys.argv[2]}-{n}"))
        print(appended.seq)
"""


@pytest.mark.rule("AACP-10", "AACP-32")
def test_processes_that_open_a_new_file_at_once_share_one_ledger(path: Path) -> None:
    processes = [a_process(RACER, path, name) for name in "abc"]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    numbers = []
    for process in processes:
        with process:
            output, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        numbers += map(int, output.split())
    assert sorted(numbers) == list(range(1, 61))


# -- open and close -------------------------------------------------------------------------------


def resources() -> tuple[set[str], set[str]]:
    """Threads and open files of this process."""
    descriptors = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            descriptors.add(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
        except FileNotFoundError:
            continue  # that of the listing itself
    return {thread.name for thread in threading.enumerate()}, descriptors


def test_close_leaves_no_journal_and_no_thread(path: Path, tmp_path: Path) -> None:
    before = resources()
    for _ in range(3):
        with opened(path) as ledger:
            ledger.append(outgoing("r1"))
            assert resources() != before
        refused(tmp_path / "nowhere" / "ledger.db")
        assert resources() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ledger.db", "ledger.db-presence"]


def test_operation_before_close_is_done(path: Path) -> None:
    async def main() -> list[Any]:
        store = SqliteAACPPersistenceAdapter(path)
        await store.open()
        asked = [asyncio.ensure_future(store.append([outgoing(f"r{n}")], NOW)) for n in range(50)]
        await asyncio.sleep(0)
        await store.close()
        return [task.result()[0].seq for task in asked]

    assert asyncio.run(main()) == list(range(1, 51))


def test_operation_before_open_raises(path: Path) -> None:
    store = SqliteAACPPersistenceAdapter(path)
    with pytest.raises(StoreError, match="is not open"):
        asyncio.run(store.append([outgoing()], NOW))
    with opened(path) as ledger:
        pass
    with pytest.raises(StoreError, match="is not open"):
        asyncio.run(ledger.adapter.append([outgoing()], NOW))


@pytest.mark.rule("AACP-30")
def test_operation_of_a_cancelled_caller_is_done(path: Path) -> None:
    async def main(store: Any) -> None:
        pause = Pause()
        held = asyncio.ensure_future(store._database.write(pause))
        left = asyncio.ensure_future(store.append([outgoing("r1")], NOW))
        await asyncio.to_thread(pause.begun.wait, PATIENCE)
        left.cancel()
        pause.go_on.set()
        await held

    with opened(path) as ledger:
        ledger.run(main(ledger.adapter))
        assert ledger.has_request("r1")


def test_open_of_a_cancelled_caller_is_undone(path: Path) -> None:
    async def main() -> None:
        opening = asyncio.ensure_future(SqliteAACPPersistenceAdapter(path).open())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    asyncio.run(main())
    for thread in threading.enumerate():
        if thread.name == "foundation-rt-sqlite":
            thread.join(PATIENCE)
    with opened(path) as ledger:
        ledger.append(outgoing("r1"))


def test_answer_to_a_closed_loop_is_dropped(path: Path) -> None:
    pause = Pause()
    store = SqliteAACPPersistenceAdapter(path)
    with asyncio.Runner() as runner:
        runner.run(store.open())

        async def ask() -> None:
            asyncio.ensure_future(store._database.write(pause))  # noqa: RUF006 - nobody waits for it
            await asyncio.to_thread(pause.begun.wait, PATIENCE)

        runner.run(ask())
    pause.go_on.set()
    with asyncio.Runner() as runner:
        [appended] = runner.run(store.append([outgoing("r1")], NOW))
        runner.run(store.close())
    assert appended.seq == 1


# -- size and speed -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [(3, 40, 1), WAL_VERSION])
def test_journal_does_not_grow_without_bound(
    path: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int]
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    journal = Path(f"{path}-{'wal' if version >= WAL_VERSION else 'journal'}")
    payload = b'"' + b"x" * 20_000 + b'"'
    sizes = []
    with opened(path) as ledger:
        for batch in range(40):
            ledger.append(*(outgoing(f"r{batch}-{n}", payload=payload) for n in range(40)))
            sizes.append(journal.stat().st_size)
        ledger.append(outgoing("large", payload=b'"' + b"x" * 80_000_000 + b'"'))
        ledger.append(outgoing("after"))
        given_back = journal.stat().st_size
    # 16 MiB and a transaction; twice as much was written.
    assert max(sizes) < 24 * 2**20
    assert given_back <= 64 * 2**20
    assert not journal.exists()


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
