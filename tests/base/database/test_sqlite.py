"""A SQLite file for applications: groups, reads, journals, and processes that share it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.base.database.errors import (
    CommitUnknownError,
    DatabaseFullError,
    DatabaseReadOnlyError,
    DatabaseUnavailableError,
    TransactionFailedError,
)
from foundation_rt.base.database.sqlite import WAL_VERSION, SqliteDatabase
from foundation_rt.base.database.sqlite.committer import Committer
from foundation_rt.base.database.sqlite.presence import Turn
from foundation_rt.base.files import is_private, open_private
from foundation_rt.errors import UsageError
from tests.lab.places.sqlite import Pause, a_small_disk, inserting, make_table
from tests.lab.programs.program import program
from tests.lab.servers import fork_server
from tests.lab.sizes import size

PATIENCE = 60.0
ROOT = Path(__file__).parents[3]
VERSIONS = [(3, 40, 1), WAL_VERSION]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture(params=VERSIONS, ids=["rollback journal", "WAL"])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[int, ...]:
    """Have both journals: this process alone opens the file, so the bug is no concern."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", request.param)
    found: tuple[int, ...] = request.param
    return found


def run(main: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(PATIENCE):
            return await main

    return asyncio.run(bounded())


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[SqliteDatabase]:
    database = SqliteDatabase(path, prepare=options.pop("prepare", make_table), **options)
    await database.open()
    try:
        yield database
    finally:
        await database.close()


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [n for (n,) in connection.execute("SELECT n FROM t ORDER BY n")]


def asking(sql: str) -> Callable[[sqlite3.Connection], Any]:
    return lambda connection: connection.execute(sql).fetchone()[0]


async def together(database: SqliteDatabase, *operations: Any) -> list[Any]:
    """Return the answers, or errors, of operations that waited together."""
    pause = Pause()
    held = asyncio.ensure_future(database.write(pause))
    await asyncio.to_thread(pause.begun.wait, PATIENCE)
    waiting = [asyncio.ensure_future(operation) for operation in operations]
    await asyncio.sleep(0)  # they are in the queue now
    pause.go_on.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    await held
    return answers


# -- groups of operations, on a connection that fails where it is told to -------------------------


class FakeConnection:
    """Runs nothing; fails where it is told to.

    Attributes:
        faults: errors by statement, each raised once.
        stays: they are raised every time.
    """

    def __init__(self) -> None:
        self.faults: dict[str, sqlite3.Error] = {}
        self.stays = False
        self.in_transaction = False
        self.log: list[str] = []

    def execute(self, sql: str) -> None:
        self.log.append(sql)
        if sql in self.faults:
            raise self.faults[sql] if self.stays else self.faults.pop(sql)
        if sql == "BEGIN IMMEDIATE":
            self.in_transaction = True
        elif sql in ("COMMIT", "ROLLBACK"):
            self.in_transaction = False


def fault(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("on purpose")
    error.sqlite_errorcode = code
    return error


def perform_all(connection: Any, *operations: Any) -> list[Any]:
    """Return the answers of a `Committer` to operations in one group."""

    async def main() -> list[Any]:
        committer = Committer("app.db", lambda: connection, lambda closed: None, 0.0, Turn())
        await committer.start()
        pause = Pause()
        held = asyncio.ensure_future(committer.perform(pause))
        await asyncio.to_thread(pause.begun.wait, PATIENCE)
        waiting = [asyncio.ensure_future(committer.perform(each)) for each in operations]
        await asyncio.sleep(0)
        connection.log.clear()
        pause.go_on.set()
        answers = await asyncio.gather(held, *waiting, return_exceptions=True)
        await committer.stop()
        return list(answers[1:])

    return asyncio.run(main())


def set_fault(statement: str, code: int) -> Callable[[Any], str]:
    """Return an operation that makes a later statement of its transaction fail."""

    def operation(connection: FakeConnection) -> str:
        if "set" not in connection.log:
            connection.log.append("set")
            connection.faults[statement] = fault(code)
        return "done"

    return operation


@pytest.mark.rule("DB-01", "DB-12")
def test_commit_that_failed_fails_every_operation_of_its_group() -> None:
    connection = FakeConnection()
    answers = perform_all(
        connection, set_fault("COMMIT", sqlite3.SQLITE_IOERR), lambda connection: "done"
    )
    assert [type(answer) for answer in answers] == [CommitUnknownError, CommitUnknownError]
    assert connection.log.count("BEGIN IMMEDIATE") == 1  # it may have happened: not again
    assert connection.log[-1] == "ROLLBACK"


@pytest.mark.rule("DB-01")
def test_commit_that_waited_for_readers_in_vain_has_not_happened() -> None:
    connection = FakeConnection()
    connection.stays = True
    answers = perform_all(connection, set_fault("COMMIT", sqlite3.SQLITE_BUSY), lambda c: "done")
    assert [type(answer) for answer in answers] == [DatabaseUnavailableError] * 2
    assert connection.log[-1] == "ROLLBACK"


@pytest.mark.rule("DB-01", "DB-12")
@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE])
def test_commit_for_which_the_disk_has_no_room_is_tried_again_one_by_one(code: int) -> None:
    connection = FakeConnection()
    answers = perform_all(connection, set_fault("COMMIT", code), lambda connection: "done")
    assert answers == ["done", "done"]
    assert connection.log.count("BEGIN IMMEDIATE") == 3


@pytest.mark.rule("DB-01", "DB-12")
def test_transaction_that_is_lost_is_tried_again_one_by_one() -> None:
    def loses(connection: FakeConnection) -> None:
        connection.in_transaction = False
        raise fault(sqlite3.SQLITE_FULL)

    answers = perform_all(FakeConnection(), lambda connection: 1, loses, lambda connection: 3)
    assert answers[0] == 1
    assert isinstance(answers[1], DatabaseFullError)
    assert answers[2] == 3


def test_thread_survives_every_error() -> None:
    connection = FakeConnection()
    connection.faults["RELEASE operation"] = fault(sqlite3.SQLITE_ERROR)

    def bug(connection: FakeConnection) -> None:
        raise MemoryError

    answers = perform_all(connection, bug, lambda connection: 2)
    assert isinstance(answers[0], MemoryError)
    assert answers[1] == 2


# -- operations -----------------------------------------------------------------------------------


@pytest.mark.rule("DB-12")
def test_operations_share_a_transaction_and_fail_alone(
    path: Path, version: tuple[int, ...]
) -> None:
    statements: list[str] = []

    async def main() -> None:
        async with opened(path) as database:
            await database.read(lambda connection: connection.set_trace_callback(statements.append))
            answers = await together(
                database,
                database.write(inserting(1)),
                database.write(inserting(1)),
                database.write(inserting(2), alone=True),
                database.write(inserting(3)),
            )
            await database.read(lambda connection: connection.set_trace_callback(None))
            assert isinstance(answers[1], sqlite3.IntegrityError)
            assert [answers[0], *answers[2:]] == [1, 2, 3]
            assert await database.read(numbers) == [1, 2, 3]

    run(main())
    # Of what held the thread, of those that share one, and of the one that has its own.
    assert statements.count("BEGIN IMMEDIATE") == 3
    inserts = [each for each in statements if each.startswith(("INSERT", "BEGIN I"))]
    assert inserts[-2:] == ["BEGIN IMMEDIATE", "INSERT INTO t VALUES (2, zeroblob(0))"]


@pytest.mark.rule("DB-13")
def test_reads_come_before_the_writes_that_wait(path: Path, version: tuple[int, ...]) -> None:
    statements: list[str] = []

    async def main() -> None:
        async with opened(path) as database:
            await database.write(inserting(1))
            await database.read(lambda connection: connection.set_trace_callback(statements.append))
            answers = await together(database, database.write(inserting(2)), database.read(numbers))
            assert answers == [2, [1]]
            await database.read(lambda connection: connection.set_trace_callback(None))

    run(main())
    found = [each for each in statements if each in ("BEGIN", "BEGIN IMMEDIATE")]
    assert found == ["BEGIN IMMEDIATE", "BEGIN", "BEGIN IMMEDIATE", "BEGIN"]


@pytest.mark.rule("DB-13")
@pytest.mark.parametrize("quick", [False, True])
def test_read_that_writes_is_undone(path: Path, version: tuple[int, ...], quick: bool) -> None:
    async def main() -> None:
        async with opened(path) as database:
            with pytest.raises(TypeError, match="it was undone"):
                await database.read(inserting(1), quick=quick)
            with pytest.raises(ZeroDivisionError):
                await database.read(lambda connection: 1 / 0, quick=quick)
            with pytest.raises(TransactionFailedError, match="no such table"):
                await database.read(asking("SELECT 1 FROM missing"), quick=quick)
            assert await database.read(numbers, quick=quick) == []
        with pytest.raises(DatabaseUnavailableError, match="is not open"):
            await database.read(numbers, quick=quick)

    run(main())


LONG = (
    "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT {}) SELECT max(n) FROM c"
)


def in_thread(found: list[int], sql: str) -> Callable[[sqlite3.Connection], Any]:
    """Return an operation that notes the thread in which it runs."""

    def operation(connection: sqlite3.Connection) -> Any:
        found.append(threading.get_ident())
        return asking(sql)(connection)

    return operation


@pytest.mark.rule("DB-17")
def test_quick_read_runs_where_it_is_called_while_the_connection_is_free(
    path: Path, version: tuple[int, ...]
) -> None:
    async def main() -> None:
        found: list[int] = []
        count = in_thread(found, "SELECT count(*) FROM t")
        async with opened(path) as database:
            assert await database.read(count, quick=True) == 0
            answers = await together(
                database, database.read(count, quick=True), database.write(inserting(1))
            )
            assert answers == [0, 1]
            assert await database.read(count, quick=True) == 1
        here = threading.get_ident()
        assert [each == here for each in found] == [True, False, True]

    run(main())


@pytest.mark.rule("DB-17")
def test_quick_read_that_takes_long_is_run_again_in_the_thread(
    path: Path, version: tuple[int, ...]
) -> None:
    async def main() -> None:
        found: list[int] = []
        async with opened(path) as database:
            long = in_thread(found, LONG.format(300_000))
            assert await database.read(long, quick=True) == 300_000
            assert await database.read(numbers, quick=True) == []
        here = threading.get_ident()
        assert [each == here for each in found] == [True, False]

    run(main())


@pytest.mark.rule("DB-17")
def test_quick_read_does_not_wait_for_another_process_where_it_is_called(
    path: Path, version: tuple[int, ...]
) -> None:
    async def main() -> None:
        async with opened(path) as database:
            with closing(sqlite3.connect(path, isolation_level=None)) as another:
                another.execute("BEGIN EXCLUSIVE")
                another.execute("INSERT INTO t VALUES (1, NULL)")
                reading = asyncio.ensure_future(database.read(numbers, quick=True))
                await asyncio.sleep(0)  # its first step has been taken
                in_wal = version >= WAL_VERSION
                assert reading.done() == in_wal
                another.execute("COMMIT")
            assert await reading == ([] if in_wal else [1])

    run(main())


@pytest.mark.rule("DB-01")
@pytest.mark.parametrize("alone", [False, True])
def test_operation_too_large_for_the_disk_fails_alone(
    path: Path, version: tuple[int, ...], alone: bool
) -> None:
    async def main() -> None:
        async with opened(path) as database:
            pages = await database.read(asking("PRAGMA page_count")) + 20
            await database.read(asking(f"PRAGMA max_page_count = {pages}"))
            answers = await together(
                database,
                database.write(inserting(1)),
                database.write(inserting(2, 1_000_000), alone=alone),
                database.write(inserting(3)),
            )
            assert isinstance(answers[1], DatabaseFullError)
            assert str(answers[1]) == f"{path}: the disk is full: make room"
            assert await database.read(numbers) == [1, 3]

    run(main())


@pytest.mark.rule("DB-01", "DB-12")
def test_full_disk_loses_nothing(tmp_path: Path, version: tuple[int, ...]) -> None:
    async def main(folder: Path) -> None:
        async with opened(folder / "app.db") as database:
            done: list[int] = []
            with pytest.raises(DatabaseFullError):
                while True:
                    done.append(await database.write(inserting(len(done), 10_000)))
            assert done
            assert await database.read(numbers) == done
            subprocess.run(["mount", "-o", "remount,size=16m", folder], check=True)
            await database.write(inserting(5000))
            assert await database.read(numbers) == [*done, 5000]

    with a_small_disk(tmp_path) as folder:
        run(main(folder))


@pytest.mark.rule("DB-01")
@pytest.mark.parametrize(
    ("code", "expected", "advice"),
    [
        (sqlite3.SQLITE_READONLY, DatabaseReadOnlyError, "change its permissions"),
        (sqlite3.SQLITE_READONLY | 5 << 8, DatabaseReadOnlyError, "change its permissions"),
        (sqlite3.SQLITE_CANTOPEN, DatabaseReadOnlyError, "let its folder be written to"),
        (sqlite3.SQLITE_FULL, DatabaseFullError, "make room"),
        (sqlite3.SQLITE_BUSY, DatabaseUnavailableError, "try again"),
        (sqlite3.SQLITE_CORRUPT, TransactionFailedError, "restore it from a backup"),
        (sqlite3.SQLITE_IOERR_WRITE, DatabaseFullError, "raise the quota"),
        (sqlite3.SQLITE_IOERR, TransactionFailedError, "on purpose"),
    ],
)
def test_error_of_the_file_has_the_class_of_what_would_help(
    path: Path, code: int, expected: type[Exception], advice: str
) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        raise fault(code)

    async def main() -> None:
        async with opened(path) as database:
            for failing in (database.write(fail), database.read(fail)):
                with pytest.raises(TransactionFailedError) as caught:
                    await failing
                assert type(caught.value) is expected
                assert str(caught.value).startswith(f"{path}: ")
                assert advice in str(caught.value)
            await database.write(inserting(1))

    run(main())


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.rule("DB-11")
def test_journal_follows_the_version_of_the_library(path: Path, version: tuple[int, ...]) -> None:
    expected = "wal" if version >= WAL_VERSION else "persist"

    async def main() -> None:
        for before in ("WAL", "DELETE"):
            with closing(sqlite3.connect(path)) as connection:
                connection.execute(f"PRAGMA journal_mode = {before}")
            async with opened(path) as database:
                assert await database.read(asking("PRAGMA journal_mode")) == expected
                assert await database.read(asking("PRAGMA synchronous")) == 2  # FULL
                await database.write(inserting(1 if before == "WAL" else 2))
        assert {each.name for each in path.parent.iterdir()} == {"app.db", "app.db-presence"}

    run(main())


@pytest.mark.rule("DB-11")
def test_process_that_joins_keeps_the_rollback_journal(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(path) as database:
            assert await database.read(asking("PRAGMA journal_mode")) == "persist"

    with another_process(path, "old"):
        monkeypatch.setattr(sqlite3, "sqlite_version_info", WAL_VERSION)
        run(main())


@pytest.mark.rule("DB-11")
def test_old_library_refuses_a_wal_of_another_process(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 2))

    async def main() -> None:
        with pytest.raises(DatabaseUnavailableError, match=r"may damage: .* SQLite 3\.51\.3"):
            await SqliteDatabase(path).open()

    with another_process(path, "new"):
        run(main())


OPENING = """
import asyncio, sys
from foundation_rt.base.database.sqlite import SqliteDatabase

asyncio.run(SqliteDatabase(sys.argv[1], patience_s=0.1).open())
"""


@pytest.mark.rule("DB-26")
def test_exclusive_file_has_a_wal_and_lets_nobody_in(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 40, 1))

    async def main() -> None:
        async with opened(path, exclusive=True) as database:
            assert await database.read(asking("PRAGMA journal_mode")) == "wal"
            await database.write(inserting(1))
            assert not Path(f"{path}-shm").exists()
            words = [sys.executable, "-c", OPENING, str(path)]
            other = await asyncio.to_thread(
                fork_server.run, words, cwd=ROOT, capture_output=True, text=True
            )
            assert "or keeps it for itself (exclusive)" in other.stderr
            locked = pytest.raises(sqlite3.OperationalError, match="locked")
            with closing(sqlite3.connect(path, timeout=0)) as foreign, locked:
                foreign.execute("SELECT * FROM t")
            await database.write(inserting(2))
        async with opened(path) as database:
            assert await database.read(asking("PRAGMA journal_mode")) == "persist"
            assert await database.read(numbers) == [1, 2]

    run(main())


@pytest.mark.rule("DB-26")
def test_exclusive_file_is_refused_while_another_process_has_it(path: Path) -> None:
    refused = pytest.raises(DatabaseUnavailableError, match="another process has it open")
    with another_process(path), refused:
        run(SqliteDatabase(path, exclusive=True).open())


@pytest.mark.rule("DB-26")
def test_kill_of_an_exclusive_process_loses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 40, 1))
    for first in (0, 10**7):
        alone = KILLED.replace("make_table)", "make_table, exclusive=True)")
        with program(alone, path, first) as process:
            assert process.stdout is not None
            written = [int(process.stdout.readline()) for _ in range(size(20, 200))]

        async def main(written: list[int] = written) -> None:
            async with opened(path) as database:  # which has it alone, with the rollback journal
                assert await database.read(asking("PRAGMA journal_mode")) == "persist"
                assert await database.read(asking("PRAGMA integrity_check")) == "ok"
                assert set(written) <= set(await database.read(numbers))

        run(main())


@pytest.mark.skipif(sys.platform == "win32", reason="Wine does not show rights of folders")
@pytest.mark.rule("DB-08")
def test_private_file_has_a_private_folder(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "app.db"

    async def main() -> None:
        with pytest.raises(UsageError, match="a folder that exists"):
            await SqliteDatabase(path).open()
        async with opened(path, private=True):
            for each in (path.parent.parent, path.parent):
                assert stat.S_IMODE(each.stat().st_mode) == 0o700

    before = os.umask(0)
    try:
        run(main())
    finally:
        os.umask(before)


@pytest.mark.rule("DB-08", "WIN-21")
@pytest.mark.parametrize("exclusive", [False, True])
def test_private_file_and_its_journal_are_for_their_owner_only(path: Path, exclusive: bool) -> None:
    async def main() -> None:
        async with opened(path, private=True, exclusive=exclusive) as database:
            await database.write(inserting(1))
            is_private_by_name = {}
            for each in path.parent.iterdir():
                descriptor = open_private(each, os.O_RDONLY)
                is_private_by_name[each.name] = is_private(descriptor)
                os.close(descriptor)
        assert len(is_private_by_name) >= 4
        assert [name for name, private in is_private_by_name.items() if not private] == ["public"]

    before = os.umask(0)
    try:
        (path.parent / "public").touch()
        run(main())
    finally:
        os.umask(before)
    left = {each.name for each in path.parent.iterdir()}
    assert left == {"public", path.name, f"{path.name}-presence"}


def test_error_of_prepare_leaves_nothing_open(path: Path) -> None:
    def violate(connection: sqlite3.Connection, alone: bool) -> None:
        connection.execute("CREATE TABLE u (n NOT NULL)")
        connection.execute("INSERT INTO u VALUES (NULL)")

    def fail(connection: sqlite3.Connection, alone: bool) -> None:
        raise UsageError("not this one")

    async def main() -> None:
        with pytest.raises(UsageError, match="not this one"):
            await SqliteDatabase(path, prepare=fail).open()
        with pytest.raises(sqlite3.IntegrityError) as caught:
            await SqliteDatabase(path, prepare=violate).open()
        assert caught.value.__cause__ is None
        async with opened(path) as database:
            with pytest.raises(UsageError, match="open it once"):
                await SqliteDatabase(path).open()
            with pytest.raises(UsageError, match="open it once"):
                await database.open()
        for _ in range(2):
            await database.close()
            with pytest.raises(DatabaseUnavailableError, match="is not open"):
                await database.read(numbers)

    run(main())


@pytest.mark.parametrize("name", ["nowhere/app.db", "folder"])
def test_path_of_no_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=str(tmp_path / name)):
        run(SqliteDatabase(tmp_path / name, prepare=make_table).open())


@pytest.mark.rule("DB-11")
def test_file_with_a_wal_is_converted_for_an_older_library(
    path: Path, version: tuple[int, ...]
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        make_table(connection, True)
        connection.execute("PRAGMA journal_mode = WAL")
        inserting(1)(connection)
        connection.commit()

    async def main() -> None:
        async with opened(path) as database:
            journal = "wal" if version >= WAL_VERSION else "persist"
            assert await database.read(asking("PRAGMA journal_mode")) == journal
            assert await database.read(numbers) == [1]

    run(main())


def test_close_waits_for_operations_and_leaves_no_thread(path: Path) -> None:
    async def main() -> list[Any]:
        database = SqliteDatabase(path, prepare=make_table)
        await database.open()
        asked = [asyncio.ensure_future(database.write(inserting(n))) for n in range(50)]
        await asyncio.sleep(0)
        await database.close()
        return [task.result() for task in asked]

    before = {thread.name for thread in threading.enumerate()}
    assert run(main()) == list(range(50))
    assert {thread.name for thread in threading.enumerate()} == before
    left = {each.name for each in path.parent.iterdir()}
    assert left == {path.name, f"{path.name}-presence"}


def test_operation_of_a_cancelled_caller_is_done(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as database:
            pause = Pause()
            held = asyncio.ensure_future(database.write(pause))
            left = asyncio.ensure_future(database.write(inserting(1)))
            await asyncio.to_thread(pause.begun.wait, PATIENCE)
            left.cancel()
            pause.go_on.set()
            await held
            assert await database.read(numbers) == [1]

    run(main())


def test_open_of_a_cancelled_caller_is_undone(path: Path) -> None:
    async def cancelled() -> None:
        opening = asyncio.ensure_future(SqliteDatabase(path, prepare=make_table).open())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    async def again() -> None:
        async with opened(path) as database:
            await database.write(inserting(1))

    run(cancelled())
    for thread in threading.enumerate():
        if thread.name == "foundation-rt-sqlite":
            thread.join(PATIENCE)
    run(again())


def test_answer_to_a_closed_loop_is_dropped(path: Path) -> None:
    pause, database = Pause(), SqliteDatabase(path, prepare=make_table)

    async def ask() -> None:
        await database.open()
        asyncio.ensure_future(database.write(pause))  # noqa: RUF006 - nobody waits for it
        await asyncio.to_thread(pause.begun.wait, PATIENCE)

    async def go_on() -> None:
        assert await database.write(inserting(1)) == 1
        await database.close()

    run(ask())
    pause.go_on.set()
    run(go_on())


def test_journal_does_not_grow_without_bound(path: Path, version: tuple[int, ...]) -> None:
    journal = Path(f"{path}-{'wal' if version >= WAL_VERSION else 'journal'}")
    sizes = []

    async def main() -> None:
        async with opened(path) as database:
            for n in range(40):
                await database.write(inserting(n, 800_000))
                sizes.append(journal.stat().st_size)
            await database.write(inserting(100, 80_000_000))
            await database.write(inserting(101))
            assert journal.stat().st_size <= 64 * 2**20

    run(main())
    assert max(sizes) < 24 * 2**20  # 16 MiB and a transaction; twice as much was written
    assert not journal.exists()


# -- processes ------------------------------------------------------------------------------------

WRITER = """
import asyncio, sqlite3, sys
from foundation_rt.base.database.sqlite import SqliteDatabase
from tests.lab.places.sqlite import inserting, make_table
path, library, first = sys.argv[1:]
sqlite3.sqlite_version_info = (3, 51, 3) if library == "new" else (3, 40, 1)

async def main():
    database = SqliteDatabase(path, prepare=make_table)
    await database.open()
    print("open", flush=True)
    n = int(first)
    while n and sys.stdin.readline():
        await database.write(inserting(n))
        print(n, flush=True)
        n += 1
    sys.stdin.read()
    await database.close()

asyncio.run(main())
"""


def another_process(
    path: Path, library: str = "old", first: int = 0
) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run a process that has the file open, and inserts a number for each line it is sent."""
    return program(WRITER, path, library, first, says="open")


@pytest.mark.rule("DB-15")
def test_data_version_shows_changes_of_other_processes_only(path: Path) -> None:
    async def main(process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        async with opened(path) as database:
            first = await database.data_version()
            await database.write(inserting(1))
            assert await database.data_version() == first
            process.stdin.write("\n")
            process.stdin.flush()
            process.stdout.readline()
            assert await database.data_version() != first
            assert await database.read(numbers) == [1, 7]

    with another_process(path, first=7) as process:
        run(main(process))


@pytest.mark.rule("DB-14")
def test_process_knows_whether_it_is_alone(path: Path) -> None:
    alone: list[bool] = []

    async def main() -> None:
        async with opened(path, prepare=lambda connection, found: alone.append(found)):
            pass

    with another_process(path) as process:
        run(main())
        process.kill()
        process.wait(PATIENCE)
    run(main())
    assert alone == [False, True]


@pytest.mark.rule("DB-16")
def test_wait_for_another_process_is_bounded(path: Path, version: tuple[int, ...]) -> None:
    async def main() -> None:
        async with opened(path, patience_s=0.05) as database:
            with closing(sqlite3.connect(path, isolation_level=None)) as another:
                another.execute("BEGIN IMMEDIATE")
                for alone in (False, True):
                    with pytest.raises(DatabaseUnavailableError, match="for too long"):
                        await database.write(inserting(1), alone=alone)
                assert await database.read(numbers) == []
                another.execute("ROLLBACK")
            await database.write(inserting(1))

    run(main())


KILLED = """
import asyncio, sqlite3, sys
from foundation_rt.base.database.sqlite import SqliteDatabase
from tests.lab.places.sqlite import inserting, make_table
path, first = sys.argv[1], int(sys.argv[2])

async def write(database, first, alone):
    for n in range(first, first + 10**6):
        await database.write(inserting(n, 3000), alone=alone)
        print(n, flush=True)

async def main():
    database = SqliteDatabase(path, prepare=make_table)
    await database.open()
    await asyncio.gather(
        *(write(database, first + task * 10**6, task == 0) for task in range(4))
    )

asyncio.run(main())
"""


@pytest.mark.rule("DB-11", "DB-12", "WIN-24")
def test_kill_of_one_process_loses_nothing_and_leaves_the_others_working(path: Path) -> None:
    """Both write to one file; one is killed and started again, most often in a transaction."""
    written: set[int] = set()

    def start(first: int) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", KILLED, str(path), str(first)]
        return fork_server.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def read(process: subprocess.Popen[str], lines: int) -> None:
        assert process.stdout is not None
        for _ in range(lines):
            written.add(int(process.stdout.readline()))

    def kill(process: subprocess.Popen[str]) -> None:
        process.kill()
        assert process.stdout is not None
        # The last line may have been cut.
        complete, _, _ = process.stdout.read().rpartition("\n")
        written.update(map(int, complete.split()))
        process.stdout.close()
        process.wait()

    survivor = start(1)
    for cycle in range(1, size(4, 50)):
        process = start(cycle * 10**8)
        read(process, 20 + 7 * cycle)
        kill(process)
        read(survivor, 20)
    kill(survivor)

    async def main() -> None:
        async with opened(path) as database:
            assert written <= set(await database.read(numbers))
            assert await database.read(asking("PRAGMA integrity_check")) == "ok"

    run(main())


STUCK = """
import fcntl, sys
with open(sys.argv[1] + "-presence", "r+") as file:
    fcntl.lockf(file, fcntl.LOCK_EX, 1)
    print("has the turn", flush=True)
    sys.stdin.read()
"""


@pytest.mark.rule("DB-16")
def test_process_that_is_stopped_with_the_turn_delays_others_once(path: Path) -> None:
    async def main() -> None:
        async with opened(path, patience_s=0.1) as database:
            with program(STUCK, path, says="has the turn"):
                for n in range(3):
                    await database.write(inserting(n))
                assert database._turn._is_stuck
            await database.write(inserting(3))
            assert not database._turn._is_stuck
            assert await database.read(numbers) == [0, 1, 2, 3]

    run(main())


HOG = """
import asyncio, sys
from foundation_rt.base.database.sqlite import SqliteDatabase
from tests.lab.places.sqlite import inserting

async def write(database, first):
    for n in range(first, first + 10**6):
        await database.write(inserting(n))
        if n == first + 10:
            print("busy", flush=True)

async def main():
    database = SqliteDatabase(sys.argv[1])
    await database.open()
    await asyncio.gather(*(write(database, task * 10**7) for task in range(1, 9)))

asyncio.run(main())
"""


@pytest.mark.rule("DB-16")
def test_process_that_writes_without_pause_does_not_keep_others_out(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as database:
            with program(HOG, path, says="busy"):
                for n in range(20):
                    await database.write(inserting(n))
                    assert await database.read(asking("SELECT count(*) FROM t")) > n

    run(main())


def test_fork_needs_a_database_of_its_own(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as database:
            pid, database._pid = database._pid, -1
            with pytest.raises(UsageError, match="the child process must open it by itself"):
                await database.read(numbers)
            database._pid = pid

    run(main())
