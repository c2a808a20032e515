"""Faults of processes that share a SQLite file: nothing is lost, doubled or stuck."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from foundation_rt.apps.task_server.stores.sqlite import SqliteTaskStore, change_log, tables
from foundation_rt.base.database.errors import DatabaseFullError, DatabaseUnavailableError
from foundation_rt.base.database.migrations import Migration, migrate_sqlite, read_migrations
from foundation_rt.errors import UsageError
from tests.support import fork_server
from tests.support.sizes import size
from tests.task_server.faults.storing import ATTEMPTS
from tests.task_server.stores.support import (
    MAX_ATTEMPTS,
    MAX_PENDING,
    Observer,
    add,
    claim,
    find,
    job_of,
    new_job,
    opened,
    recount,
    task,
    tasks,
    tasks_of,
)

ROOT = Path(__file__).parents[3]
PATIENCE = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@contextmanager
def process(what: str, path: Path, *arguments: object) -> Iterator[Process]:
    """Start a process that uses a store, and kill it in the end if it is still there."""
    started = Process(what, path, *arguments)
    try:
        yield started
    finally:
        started.child.kill()
        started.child.communicate()


class Process:
    """A process of `storing`."""

    def __init__(self, what: str, path: Path, *arguments: object) -> None:
        self.child = fork_server.Popen(
            [
                *(sys.executable, "-m", "tests.task_server.faults.storing"),
                *(what, str(path), *map(str, arguments)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    @property
    def output(self) -> IO[str]:
        assert self.child.stdout is not None
        return self.child.stdout

    def hear(self, *words: str) -> list[str]:
        """Return the words of the next line, which begins with these."""
        line = self.output.readline().split()
        assert tuple(line[: len(words)]) == words, line
        return line

    def tell(self) -> None:
        """Let the process go on."""
        assert self.child.stdin is not None
        self.child.stdin.write("\n")
        self.child.stdin.flush()

    def rest(self) -> list[list[str]]:
        """Return the words of the remaining lines of a process that ends well."""
        lines = self.output.readlines()  # not `communicate`, which skips what was read ahead
        assert self.child.wait(PATIENCE) == 0
        return [line.split() for line in lines]


def store_at(path: Path, **more: Any) -> SqliteTaskStore:
    return SqliteTaskStore(path, **more)


def look(path: Path, sql: str) -> Any:
    """Return the first value of a statement, past the store."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchone()[0]


# -- the file -------------------------------------------------------------------------------------


@pytest.mark.rule("TASKS-79")
async def test_file_and_folder_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "share" / "foundation-rt" / "tasks.db"
    async with opened(lambda: store_at(path)) as store:
        await add(store, task())
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert set(modes.values()) == {0o600}
    assert "tasks.db" in modes
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.rule("TASKS-79")
async def test_file_of_another_application_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(UsageError, match="another application"):
        await store_at(path).open()
    path.unlink()
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(UsageError):
        await store_at(path).open()


@pytest.mark.rule("TASKS-79")
async def test_different_tables_and_newer_ones_are_refused_with_a_list(path: Path) -> None:
    async with opened(lambda: store_at(path)) as store:
        await add(store, task())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP INDEX tasks_by_job")
        connection.execute("ALTER TABLE tasks ADD COLUMN colour TEXT")
    for migrate in (True, False):
        with pytest.raises(UsageError) as refused:
            await store_at(path, migrate=migrate).open()
        assert "tasks_by_job" in str(refused.value)
        assert "colour" in str(refused.value)
    assert len(tables.check(path).differences) >= 2
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 999")
    with pytest.raises(UsageError, match="999"):
        await store_at(path).open()


@pytest.mark.rule("TASKS-79")
async def test_start_without_migrating_wants_a_migrated_file(path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        await store_at(path, migrate=False).open()
    path.touch()
    with pytest.raises(UsageError, match="V1__create_tasks_table"):
        await store_at(path, migrate=False).open()
    assert len(tables.check(path).pending) == len(migrations())
    async with opened(lambda: store_at(path)) as store:
        await add(store, task())
    async with opened(lambda: store_at(path, migrate=False)) as store:
        assert await find(store) == [1]
    assert tables.check(path).pending == ()


# -- migrations -----------------------------------------------------------------------------------


def migrations() -> tuple[Migration, ...]:
    return read_migrations("foundation_rt.apps.task_server.stores", "migrations/sqlite")


_TASKS = """
INSERT INTO tasks (status, due_date, project, priority, job_id, created_by, created_at, updated_at,
                   title, description, search_text)
VALUES (?, ?, ?, ?, '00000000-0000-4000-8000-000000000001', 'ann', '2026-01-01T00:00:00.000Z',
        '2026-01-01T00:00:00.000Z', ?, NULL, ?)
"""
_ROWS = [
    ("TODO", "2000-01-01", "p", 1, "one", "one"),
    ("TODO", None, "p", 3, "two", "two"),
    ("DONE", "2000-01-01", "q", 1, "three", "three"),
]
_JOB = """
INSERT INTO batch_jobs (job_id, principal, digest, status, total_tasks, created_at, updated_at,
                        correlation_id)
VALUES (?, 'ann', zeroblob(32), 'PENDING', 1, '2026-01-01T00:00:00.000Z',
        '2026-01-01T00:00:00.000Z', 'c')
"""


def make_version(path: Path, version: int) -> None:
    """Make a file as a release with so many migrations did, with data; none with none."""
    if version == 0:
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate_sqlite(
            connection,
            str(path),
            migrations()[:version],
            application=tables.APPLICATION,
            application_id=tables.APPLICATION_ID,
        )
        if version < 3:  # later ones have counts, which would not agree with these rows
            connection.executemany(_TASKS, _ROWS)
        if version >= 2:
            for n in range(2):
                connection.execute(_JOB, (f"00000000-0000-4000-8000-00000000000{n}",))
            payload = b'[["from before",null,"TODO",null,"p",1]]'
            connection.execute("INSERT INTO batch_job_payloads VALUES (1, ?)", (payload,))


@pytest.mark.rule("TASKS-79", "TASKS-73")
@pytest.mark.parametrize("version", range(6))
async def test_file_of_every_version_is_migrated_with_its_data(path: Path, version: int) -> None:
    assert len(migrations()) == 5
    make_version(path, version)
    async with opened(lambda: store_at(path)) as store:
        before = 3 if version in (1, 2) else 0
        assert len(await find(store)) == before
        summary = await store.summarize()
        assert sum(summary.count_by_status.values()) == before
        if before:
            assert (summary.overdue, summary.earliest_due_date) == (1, "2000-01-01")
            assert (await store.summarize("p")).count_by_status["TODO"] == 2
            assert [each.title for each in await store.claim_tasks(1, None, "w", 0)] == ["two"]
        if version >= 2:
            # One job has its payload, and is carried out; the other has lost it, and fails.
            [lost] = (await store.maintain_jobs(MAX_ATTEMPTS, 720)).failed
            assert lost.error_message == "Server restarted during processing"
            claimed = await claim(store)
            assert await store.complete_job(claimed, tasks_of(claimed)) is not None
        await add(store, task("after"))
    assert tables.check(path).differences == ()


@pytest.mark.rule("TASKS-79")
@pytest.mark.parametrize("version", [0, 1])
async def test_many_processes_migrate_one_file_at_once(path: Path, version: int) -> None:
    if version:
        make_version(path, version)
    with ExitStack() as stack:
        processes = [stack.enter_context(process("open_only", path)) for _ in range(size(4, 8))]
        for each in processes:
            each.hear("ready")
        for each in processes:
            each.tell()
        for each in processes:
            assert each.rest() == [["open"], ["closed"]]
    assert tables.check(path).pending == ()
    assert look(path, "SELECT group_concat(version) FROM migration") == "1,2,3,4,5"
    async with opened(lambda: store_at(path)) as store:
        assert len(await find(store)) == 3 * version


# -- kill -9 --------------------------------------------------------------------------------------


@pytest.mark.rule("TASKS-70", "TASKS-79", "TASKS-81")
def test_accepted_jobs_are_done_once_however_often_processes_are_killed(path: Path) -> None:
    accepted: dict[str, int] = {}
    completed: set[str] = set()
    deleting: set[int] = set()
    for cycle in range(size(3, 50)):
        with process("load", path, f"cycle {cycle}") as loading:
            lines = [loading.output.readline() for _ in range(20 + 37 * cycle % 60)]
            loading.child.kill()
            lines += loading.output.readlines()
        # The last line may have been cut by the kill.
        for line in lines:
            if line.endswith("\n"):
                _note(line.split(), accepted, completed, deleting)
    assert accepted
    assert completed
    asyncio.run(_are_done_once(path, accepted, deleting))  # not as long as the test


async def _are_done_once(path: Path, accepted: dict[str, int], deleting: set[int]) -> None:
    """Carry out what is left, then compare what was accepted with what there is."""
    async with opened(lambda: store_at(path)) as store:
        await _complete_all(store)
        for job_id, total in accepted.items():
            job = await job_of(store, job_id)
            assert (job.status, job.processed_tasks) == ("COMPLETED", total)
        counts = await store.count_jobs()
        assert counts["COMPLETED"] == sum(counts.values()) >= len(accepted)
    await _hold_each_task_once(path, deleting)


async def _complete_all(store: SqliteTaskStore) -> None:
    """Carry out what is left, also what the last process has claimed, when its leases end."""
    async with asyncio.timeout(PATIENCE):
        while (counts := await store.count_jobs())["PENDING"] + counts["RUNNING"]:
            claimed = await store.claim_job("end", 600_000, ATTEMPTS)
            if claimed is None:
                await asyncio.sleep(0.02)
            else:
                assert await store.complete_job(claimed, tasks_of(claimed)) is not None


def _note(
    words: list[str], accepted: dict[str, int], completed: set[str], deleting: set[int]
) -> None:
    if words[0] == "accepted":
        accepted[words[1]] = int(words[2])
    elif words[0] == "completed":
        assert words[1] not in completed, "done twice"
        completed.add(words[1])
    elif words[0] == "deleting":
        deleting.add(int(words[1]))


async def _hold_each_task_once(path: Path, deleting: set[int]) -> None:
    """Compare tasks, jobs and counts with each other; some tasks may have been deleted."""
    total = look(path, "SELECT sum(total_tasks) FROM batch_jobs WHERE status = 'COMPLETED'")
    with closing(sqlite3.connect(path)) as connection:
        ids = {row[0] for row in connection.execute("SELECT id FROM tasks")}
    assert look(path, "SELECT max(seq) FROM sqlite_sequence WHERE name = 'tasks'") == total
    assert set(range(1, total + 1)) - ids <= deleting
    assert look(path, "SELECT count(*) - count(DISTINCT title) FROM tasks") == 0
    assert look(path, "PRAGMA integrity_check") == "ok"
    async with opened(lambda: store_at(path)) as store:
        counted = await recount(store)
        for project in ("p0", "p1", "p2"):
            summary = await store.summarize(project)
            assert dict(summary.count_by_status) == {
                status: counted.get((project, status), 0) for status in summary.count_by_status
            }
        assert sum((await store.summarize()).count_by_status.values()) == len(ids)


# -- several processes ----------------------------------------------------------------------------


@pytest.mark.rule("TASKS-79", "TASKS-81")
async def test_two_processes_on_one_file_lose_nothing(path: Path) -> None:
    jobs = size(15, 80)
    with ExitStack() as stack:
        processes = [stack.enter_context(process("share", path, n, jobs)) for n in "ab"]
        for each in processes:
            each.hear("open")
        for each in processes:
            each.tell()
        lines: list[list[str]] = []
        for each in processes:
            while (line := each.output.readline().split()) != ["submitted"]:
                lines.append(line)
        async with opened(lambda: store_at(path)) as store:
            async with asyncio.timeout(PATIENCE):
                while (await store.count_jobs())["COMPLETED"] < 4 * jobs:
                    await asyncio.sleep(0.02)
        for each in processes:
            each.tell()
            lines += each.rest()
    kinds = Counter(words[0] for words in lines)
    assert (kinds["accepted"], kinds["closed"]) == (4 * jobs, 2)
    # The last ones may have been completed when their worker was told to stop.
    completed = [words[1] for words in lines if words[0] == "completed"]
    assert 4 * jobs - 4 <= len(set(completed)) == len(completed)
    await _hold_each_task_once(path, set())


@pytest.mark.rule("TASKS-77", "TASKS-79")
async def test_four_processes_claim_each_task_once(path: Path) -> None:
    n = size(200, 1000)
    async with opened(lambda: store_at(path)) as store:
        await add(store, *tasks(n))
    with ExitStack() as stack:
        processes = [stack.enter_context(process("claim_all", path, name)) for name in "abcd"]
        for each in processes:
            each.hear("open")
            each.hear("ready")
        for each in processes:
            each.tell()
        lines = [line for each in processes for line in each.rest()]
    claimed = Counter(line[1] for line in lines if line[0] == "claimed")
    assert len(claimed) == n
    assert set(claimed.values()) == {1}


# -- processes that are stopped -------------------------------------------------------------------


@pytest.mark.rule("TASKS-80", "TASKS-81")
async def test_job_of_a_process_that_is_stopped_beyond_its_lease_is_done_once(
    path: Path,
) -> None:
    async with opened(lambda: store_at(path)) as store:
        await store.submit_job(new_job(tasks(3)), MAX_PENDING)
        with process("stop_with_a_job", path, 300) as stopped:
            stopped.hear("open")
            stopped.hear("claimed")
            stopped.child.send_signal(signal.SIGSTOP)
            async with asyncio.timeout(PATIENCE):
                while (taken := await store.claim_job("other", 600_000, MAX_ATTEMPTS)) is None:
                    await asyncio.sleep(0.02)
            assert taken.job.attempts == 2
            assert await store.complete_job(taken, tasks_of(taken)) is not None
            stopped.child.send_signal(signal.SIGCONT)
            stopped.tell()
            assert stopped.rest() == [["late"], ["closed"]]
        assert len(await find(store)) == 3
        assert (await job_of(store, taken.job.job_id)).attempts == 2


@pytest.mark.rule("TASKS-79")
async def test_process_that_is_stopped_in_a_transaction_holds_up_others_until_it_goes_on(
    path: Path,
) -> None:
    async with opened(lambda: store_at(path)) as store:
        await add(store, task())
        store._database.patience_s = 0.2
    async with opened(lambda: _impatient(path)) as store:
        with process("stop_in_a_transaction", path) as stopped:
            stopped.hear("open")
            stopped.hear("holding")
            stopped.child.send_signal(signal.SIGSTOP)
            with pytest.raises(DatabaseUnavailableError):
                await add(store, task())
            assert await find(store) == [1]  # reading goes on
            stopped.child.send_signal(signal.SIGCONT)
            stopped.tell()
            assert stopped.rest() == [["released"], ["closed"]]
        await add(store, task())
        assert await find(store) == [1, 2]


def _impatient(path: Path) -> SqliteTaskStore:
    store = store_at(path)
    store._database.patience_s = 0.2
    return store


# -- disks ----------------------------------------------------------------------------------------


@pytest.mark.rule("TASKS-70", "TASKS-79")
async def test_full_disk_is_named_and_nothing_is_half_written(path: Path) -> None:
    async with opened(lambda: store_at(path)) as store:
        kept = await add(store, *tasks(10))
        await store.submit_job(new_job(tasks(500, description="x" * 2000)), MAX_PENDING)
        claimed = await claim(store)
        pages = await store._database.read(_first("PRAGMA page_count"))
        await store._database.read(_first(f"PRAGMA max_page_count = {pages + 5}"))
        with pytest.raises(DatabaseFullError):
            await store.complete_job(claimed, tasks_of(claimed))
        assert len(await find(store)) == len(kept)
        assert (await store.summarize()).count_by_status["TODO"] == len(kept)
        assert (await job_of(store, claimed.job.job_id)).status == "RUNNING"
        await store._database.read(_first("PRAGMA max_page_count = 1000000"))
        assert await store.complete_job(claimed, tasks_of(claimed)) is not None
        assert len(await find(store)) == len(kept) + 500


def _first(sql: str) -> Any:
    return lambda connection: connection.execute(sql).fetchone()[0]


@pytest.mark.rule("TASKS-70", "TASKS-79")
async def test_file_that_cannot_grow_has_only_whole_jobs(path: Path) -> None:
    async with opened(lambda: store_at(path)) as store:
        await add(store, task("before"))
    with process("fill", path, path.stat().st_size + 1_000_000) as filling:
        lines = filling.rest()
    failed = [line[1] for line in lines if line[0] == "failed"]
    assert failed == ["DatabaseFullError"] * 3
    assert lines[-1] == ["closed"]
    completed = [line[1] for line in lines if line[0] == "completed"]
    assert completed
    async with opened(lambda: store_at(path)) as store:
        counted = await store.count_jobs()
        done = counted["COMPLETED"] - 1
        assert done == len(completed)
        assert len(await find(store)) == 1 + 50 * done
        assert (await store.summarize()).count_by_status["TODO"] == 1 + 50 * done
        for job_id in completed:
            assert (await job_of(store, job_id)).status == "COMPLETED"
        await add(store, task("after"))
    assert look(path, "PRAGMA integrity_check") == "ok"


@pytest.mark.rule("TASKS-79")
def test_file_that_may_not_be_written_ends_the_start() -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        path = folder / "tasks.db"

        async def make() -> None:
            async with opened(lambda: store_at(path)) as store:
                await add(store, task())

        asyncio.run(make())
        for each in folder.iterdir():
            each.chmod(0o444)
        folder.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, path],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        assert "UsageError" in done.stdout
        assert str(path) in done.stdout
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


# Permissions do not bind root, so the process gives that up when everything is imported.
_AS_NOBODY = """
import asyncio, os, sys
from foundation_rt.apps.task_server.stores.sqlite import SqliteTaskStore, tables
store = SqliteTaskStore(sys.argv[1])
if os.geteuid() == 0:
    os.setuid(65534)
try:
    asyncio.run(store.open())
except Exception as error:
    print(type(error).__name__, error)
"""


# -- changes --------------------------------------------------------------------------------------


@pytest.mark.rule("TASKS-84")
async def test_process_that_has_missed_changes_is_told_that_anything_may_differ(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, "KEPT", 3)
    async with opened(lambda: store_at(path)) as store:
        await add(store, *tasks(1))
        last = await store._database.read(change_log.last)
        for _ in range(5):
            await add(store, task())

        def look(connection: sqlite3.Connection) -> Any:
            return change_log.look(connection, last, change_log.UNREAD)

        number, _, changes = await store._database.read(look)
        assert number == last + 15
        assert changes[0].everything
        assert changes[0].lists
        assert len(changes) == 1 + 3


@pytest.mark.rule("TASKS-84")
async def test_change_of_a_caller_that_was_cancelled_is_told(path: Path) -> None:
    async with opened(lambda: store_at(path)) as store:
        observer = Observer(store)
        job = new_job()
        submitting = asyncio.create_task(store.submit_job(job, MAX_PENDING))
        await asyncio.sleep(0)
        submitting.cancel()
        await observer.saw(jobs=[job.job_id])
        assert (await job_of(store, job.job_id)).status == "PENDING"
