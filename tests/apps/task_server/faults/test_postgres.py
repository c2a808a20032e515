"""Tasks in PostgreSQL while processes die and stop, connections end, and the server goes away."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from attrs import define, evolve

from foundation_rt.apps.task_server.jobs import NewJob
from foundation_rt.apps.task_server.store import QueueFullError
from foundation_rt.apps.task_server.stores.postgres import PostgresTaskStore
from foundation_rt.base.database.errors import (
    CommitUnknownError,
    DatabaseError,
    DatabaseUnavailableError,
)
from tests.apps.task_server.faults.peer import ATTEMPTS, LEASE_MS, MAX_PENDING, workers_on
from tests.apps.task_server.stores.support import (
    LEASE,
    Observer,
    add,
    claim,
    find,
    job_of,
    new_job,
    submit,
    tasks,
    tasks_of,
)
from tests.lab.places.postgres_proxy import ProxyFault, postgres_proxy
from tests.lab.places.postgres_server import postgres_server
from tests.lab.places.services import postgres_schema
from tests.lab.programs.processes import state
from tests.lab.servers import fork_server
from tests.lab.sizes import size
from tests.lab.waiting import PATIENCE, until

ROOT = Path(__file__).parents[4]
KILLS = size(4, 50)


# -- a place to work in ---------------------------------------------------------------------------


@define
class Peer:
    """A process of `peer`, and what it has said."""

    process: asyncio.subprocess.Process

    async def said(self) -> list[str]:
        """Return the words of its next line, none at its end."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            return (await self.process.stdout.readline()).decode().split()

    async def rest(self) -> list[list[str]]:
        """Return the lines until its end."""
        lines = []
        while words := await self.said():
            lines.append(words)
        return lines

    async def stopped(self) -> None:
        """Wait until it has stopped itself."""
        await until(lambda: state(self.process.pid) == "T", "the peer has stopped itself")


@define
class Place:
    """A schema with its stores and peers, and a look into its tables."""

    url: str
    schema: str

    @asynccontextmanager
    async def opened(self, url: str | None = None, **more: Any) -> AsyncIterator[PostgresTaskStore]:
        """Open a store, by way of another address if one is given."""
        options = {"schema": self.schema, "lease_ms": LEASE_MS, **more}
        store = PostgresTaskStore(url or self.url, **options)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def peer(self, role: str, *arguments: object) -> AsyncIterator[Peer]:
        """Run a peer, which is killed in the end."""
        with fork_server.forking():
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.apps.task_server.faults.peer"),
                *(f"{self.schema}@{self.url}", role, *map(str, arguments)),
                cwd=ROOT,
                stdout=subprocess.PIPE,
            )
        try:
            peer = Peer(process)
            assert await peer.said() == ["ready"]
            yield peer
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return what the tables say."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(query.replace("{schema}", self.schema).encode())
            return cursor.fetchall() if cursor.description else []

    def check(self) -> int:
        """Check that jobs, tasks and counts agree; return how many tasks there are."""
        wrong_jobs = """
            SELECT job_id FROM {schema}.batch_jobs AS j WHERE status = 'COMPLETED' AND total_tasks
                <> (SELECT count(*) FROM {schema}.tasks AS t WHERE t.job_id = j.job_id)
            UNION ALL SELECT job_id FROM {schema}.tasks WHERE job_id NOT IN
                (SELECT job_id FROM {schema}.batch_jobs WHERE status = 'COMPLETED')"""
        assert self.rows(wrong_jobs) == []
        return self.check_counts()

    def check_counts(self) -> int:
        """Check that the counts are right; return how many tasks there are."""
        wrong_counts = """
            WITH real AS (
                SELECT project, status, coalesce(due_date, 'infinity') AS due_date
                FROM {schema}.tasks
            ), both_levels AS (
                SELECT * FROM real UNION ALL SELECT '', status, due_date FROM real
            ), counted AS (
                SELECT project, status, due_date, count(*) AS n FROM both_levels GROUP BY 1, 2, 3
            ), kept AS (SELECT * FROM {schema}.task_counts WHERE count <> 0)
            SELECT * FROM counted FULL JOIN kept USING (project, status, due_date)
            WHERE n IS DISTINCT FROM count"""
        assert self.rows(wrong_counts) == []
        [(number,)] = self.rows("SELECT count(*) FROM {schema}.tasks")
        return int(number)

    def backends(self, where: str = "true") -> list[int]:
        """Return the server processes of stores on this schema."""
        query = (
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'foundation-rt task-server'"
            f" AND position('\"{self.schema}\"' IN query) > 0 AND {where}"
        )
        return [pid for (pid,) in self.rows(query)]

    async def waiting(self, where: str = "wait_event_type = 'Lock'") -> list[int]:
        """Return the server processes that wait for a lock, as soon as there are any."""
        pids: list[int] = await until(lambda: self.backends(where), "a lock is waited for")
        return pids

    def terminate(self, pids: list[int]) -> None:
        """End server processes."""
        self.rows(f"SELECT pg_terminate_backend(pid) FROM unnest(ARRAY{pids}::int[]) AS pid")


@pytest.fixture
def place() -> Iterator[Place]:
    """Yield a place whose schema is made by the first store."""
    with postgres_schema() as (url, schema):
        yield Place(url, schema)


async def completed(store: PostgresTaskStore, job: NewJob) -> None:
    """Carry out every job until this one is completed, as a worker does that hears no answer."""
    while (await job_of(store, job.job_id)).status != "COMPLETED":
        claimed = await store.claim_job("me", 0, ATTEMPTS)
        assert claimed is not None
        with suppress(DatabaseError):
            await store.complete_job(claimed, tasks_of(claimed))


# -- processes that end or stop -------------------------------------------------------------------


@pytest.mark.rule("TASKS-90")
async def test_killed_processes_lose_and_double_nothing(place: Place) -> None:
    chance = random.Random(1)
    accepted: set[str] = set()

    async def live_and_die() -> None:
        async with place.peer("work", 200) as peer:
            for _ in range(chance.randrange(1, 12)):
                word, job_id = await peer.said()
                assert word == "accepted"
                accepted.add(job_id)
            peer.process.kill()
            # The last line may have been cut off.
            lines = [line for line in await peer.rest() if len(line) == 2]
            accepted.update(job_id for _, job_id in lines if len(job_id) == 36)

    async def live() -> None:
        for _ in range(KILLS // 2):
            await live_and_die()

    await asyncio.gather(live(), live())
    async with place.peer("drain") as peer:
        assert await peer.said() == ["drained"]
    assert place.check() > 0
    jobs = dict(place.rows("SELECT job_id::text, status FROM {schema}.batch_jobs"))
    assert accepted <= jobs.keys()
    assert set(jobs.values()) == {"COMPLETED"}


@pytest.mark.rule("TASKS-90")
@pytest.mark.parametrize("role", ["stop_before_completion", "stop_in_copy"])
async def test_process_that_was_stopped_beyond_its_lease_stores_nothing(
    place: Place, role: str
) -> None:
    async with place.opened() as store:
        job = new_job(tasks(3000))
        await store.submit_job(job, MAX_PENDING)
        async with place.peer(role) as peer:
            await peer.stopped()
            await completed(store, job)
            peer.process.send_signal(signal.SIGCONT)
            assert await peer.rest() == [["lost"]]
        assert (await job_of(store, job.job_id)).attempts == 2
    assert place.check() == 3000


@pytest.mark.rule("TASKS-93")
async def test_maintenance_ends_the_transactions_of_stopped_processes(place: Place) -> None:
    async with place.opened() as store:
        await store.submit_job(new_job(tasks(3000)), MAX_PENDING)
        copying = "wait_event = 'ClientRead' AND state = 'active' AND query LIKE 'COPY%'"
        async with place.peer("stop_in_copy") as peer:
            await peer.stopped()
            assert await place.waiting(copying)
            async with asyncio.timeout(PATIENCE):
                while place.backends(copying):
                    await store.maintain_jobs(ATTEMPTS, 720)
    assert place.check() == 0


@pytest.mark.rule("TASKS-90", "TASKS-93")
async def test_process_that_is_stopped_before_its_commit_holds_up_others_until_maintenance(
    place: Place,
) -> None:
    async with place.opened() as store:
        job = new_job(tasks(100))
        await store.submit_job(job, MAX_PENDING)
        async with place.peer("stop_before_commit") as peer:
            await peer.stopped()
            await place.waiting("wait_event = 'ClientRead' AND query LIKE '%task_counts%'")
            other = new_job(tasks(100))
            await store.submit_job(other, MAX_PENDING)
            adding = asyncio.create_task(completed(store, other))  # the counts are locked
            assert await place.waiting()
            async with asyncio.timeout(PATIENCE):
                while not adding.done():
                    await store.maintain_jobs(ATTEMPTS, 720)
            await adding
            await completed(store, job)
            peer.process.send_signal(signal.SIGCONT)
            assert await peer.rest() == [["unknown"]]
    assert place.check() == 200


# -- connections that end -------------------------------------------------------------------------


@pytest.mark.rule("TASKS-90", "TASKS-92")
async def test_jobs_are_done_once_while_server_processes_end_at_random(place: Place) -> None:
    chance = random.Random(2)
    jobs = [new_job(tasks(100), key=f"k{n}") for n in range(size(20, 200))]
    async with place.opened() as one, place.opened() as other:
        workers = [workers_on(store) for store in (one, other)]
        for each in workers:
            each.start()

        async def submit_all() -> None:
            for job in jobs:
                while True:
                    try:
                        await chance.choice((one, other)).submit_job(job, MAX_PENDING)
                        break
                    except (DatabaseError, QueueFullError):
                        await asyncio.sleep(0.01)

        submitting = asyncio.create_task(submit_all())
        while not submitting.done() or await unfinished(one):
            pids = place.backends()
            place.terminate(pids and [chance.choice(pids)])
            await asyncio.sleep(0.02)
        await submitting
        for each in workers:
            await each.stop(5)
    assert place.check() == 100 * len(jobs)
    assert place.rows("SELECT count(*) FROM {schema}.batch_jobs") == [(len(jobs),)]


async def unfinished(store: PostgresTaskStore) -> int:
    """Return how many jobs have not ended; all, as long as nobody can say."""
    try:
        counts = await store.count_jobs()
    except DatabaseError:
        return 1
    return counts["PENDING"] + counts["RUNNING"]


@pytest.mark.rule("TASKS-92")
@pytest.mark.parametrize("fault", sorted(set(ProxyFault) - {ProxyFault.ENDED}))  # it answers COMMIT
async def test_submission_whose_commit_was_cut_is_repeated_by_its_key(
    place: Place, fault: ProxyFault
) -> None:
    async with (
        postgres_proxy(place.url) as proxy,
        place.opened() as direct,
        place.opened(proxy.url) as store,
    ):
        job = new_job(tasks(50), key="key")
        proxy.plan("INSERT INTO", fault)
        happened = fault is not ProxyFault.CUT_BEFORE
        with pytest.raises(CommitUnknownError):
            await store.submit_job(job, MAX_PENDING)
        assert proxy.struck == 1
        again = await store.submit_job(evolve(job, job_id=new_job().job_id), MAX_PENDING)
        assert again.duplicate is happened
        await completed(direct, evolve(job, job_id=again.job.job_id))
        assert (await direct.count_jobs()) == {
            "PENDING": 0,
            "RUNNING": 0,
            "COMPLETED": 1,
            "FAILED": 0,
        }
    assert place.check() == 50


@pytest.mark.rule("TASKS-90", "TASKS-92")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("COPY", ProxyFault.CUT_BEFORE),
        *(("SET status = 'COMPLETED'", fault) for fault in ProxyFault),
        *(("INTO {schema}.task_counts", fault) for fault in ProxyFault),
    ],
)
async def test_completion_that_was_cut_happens_once(
    place: Place, text: str, fault: ProxyFault
) -> None:
    async with (
        postgres_proxy(place.url) as proxy,
        place.opened() as direct,
        place.opened(proxy.url) as store,
    ):
        job = new_job(tasks(50))
        await direct.submit_job(job, MAX_PENDING)
        claimed = await store.claim_job("me", LEASE, ATTEMPTS)
        assert claimed is not None
        proxy.plan(text.replace("{schema}", f'"{place.schema}"'), fault)
        with suppress(CommitUnknownError):
            await store.complete_job(claimed, tasks_of(claimed))
        assert proxy.struck == 1
        await store.complete_job(claimed, tasks_of(claimed))
        ended = await job_of(direct, job.job_id)
        assert (ended.status, ended.attempts) == ("COMPLETED", 1)
    assert place.check() == 50


@pytest.mark.rule("TASKS-96")
async def test_listener_that_was_cut_off_assumes_that_everything_has_changed(place: Place) -> None:
    async with place.opened() as one, place.opened() as two:
        observer = Observer(one)
        place.terminate(place.backends("query LIKE 'LISTEN%'"))
        await until(
            lambda: any(change.everything for change in observer.changes),
            "everything counts as changed",
        )
        job_id = (await submit(two)).job.job_id
        await observer.saw(jobs=[job_id])


# -- the server -----------------------------------------------------------------------------------


@pytest.mark.rule("TASKS-97")
async def test_store_heals_when_the_server_is_back() -> None:
    with postgres_server() as server:
        place = Place(server.url, "away")
        async with place.opened(connect_s=0.5) as store:
            given = await add(store, *tasks(3))
            await submit(store)
            for mode in ("fast", "immediate"):
                server.stop(mode)
                for operation in (store.ping, store.summarize, lambda: submit(store)):
                    with pytest.raises(DatabaseUnavailableError):
                        await operation()  # type: ignore[operator]
                server.start()
                await store.ping()
                assert await find(store) == [task.id for task in given]
            claimed = await claim(store)
            assert await store.complete_job(claimed, tasks_of(claimed)) is not None
        assert place.check() == 4
