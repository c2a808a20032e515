"""Faults of processes that share a SQLite file: nothing is lost, doubled or stuck."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from foundation_rt.apps.task_server.stores.sqlite import SqliteTaskStore, change_log, tables
from foundation_rt.base.database.migrations import Migration, migrate_sqlite, read_migrations
from foundation_rt.errors import UsageError
from tests.apps.task_server.faults.storing import ATTEMPTS
from tests.apps.task_server.stores.support import (
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
from tests.lab.servers import fork_server
from tests.lab.sizes import size

ROOT = Path(__file__).parents[4]
PATIENCE = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


def store_at(path: Path, **more: Any) -> SqliteTaskStore:
    return SqliteTaskStore(path, **more)


def look(path: Path, sql: str) -> Any:
    """Return the first value of a statement, past the store."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchone()[0]


# -- the file -------------------------------------------------------------------------------------


@pytest.mark.rule("TASKS-79")
async def test_different_tables_are_refused_with_a_list(path: Path) -> None:
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


# -- kill -9 --------------------------------------------------------------------------------------


@pytest.mark.rule("TASKS-70", "TASKS-79", "TASKS-81")
def test_accepted_jobs_are_done_once_however_often_processes_are_killed(path: Path) -> None:
    accepted: dict[str, int] = {}
    completed: set[str] = set()
    deleting: set[int] = set()
    for cycle in range(size(3, 50)):
        program = [sys.executable, "-m", "tests.apps.task_server.faults.storing"]
        with fork_server.Popen(
            [*program, str(path), f"cycle {cycle}"], stdout=subprocess.PIPE, text=True, cwd=ROOT
        ) as loading:
            assert loading.stdout is not None
            lines = [loading.stdout.readline() for _ in range(20 + 37 * cycle % 60)]
            loading.kill()
            lines += loading.stdout.readlines()
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
