"""Workers that carry out jobs, on every store, with faults put between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from attrs import evolve

from foundation_rt.apps.task_server import worker as working
from foundation_rt.apps.task_server.jobs import Job
from foundation_rt.apps.task_server.store import TaskServerStore
from foundation_rt.apps.task_server.worker import JobWorkers
from foundation_rt.base.database.errors import (
    CommitUnknownError,
    DatabaseFullError,
    DatabaseReadOnlyError,
    DatabaseUnavailableError,
)
from tests.apps.task_server.stores.places import Make
from tests.apps.task_server.stores.support import (
    LEASE,
    MAX_ATTEMPTS,
    MAX_PENDING,
    claim,
    find,
    job_of,
    new_job,
    opened,
    submit,
    tasks,
)
from tests.lab.waiting import PATIENCE, Changing, until

Step = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Stands for one call of an operation; it is given the operation."""


class ScriptedStore:
    """A store, of whose operations the next calls go as the script says."""

    def __init__(self, store: TaskServerStore, **script: list[Step]) -> None:
        self._store = store
        self._script = script

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._store, name)

        async def perform(*arguments: Any) -> Any:
            steps = self._script.get(name)
            if not steps:
                return await operation(*arguments)
            return await steps.pop(0)(lambda: operation(*arguments))

        return perform if name in self._script else operation


def raising(error: Exception, *, happened: bool = False) -> Step:
    """Fail, before or after the operation."""

    async def step(operation: Callable[[], Awaitable[Any]]) -> Any:
        if happened:
            await operation()
        raise error

    return step


class Recorder(Changing):
    """Keeps what workers do."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[Job] = []
        self.ended: list[Job] = []
        self.errors: list[BaseException] = []

    def job_started(self, job: Job) -> None:
        self.started.append(job)
        self.has_changed()

    def job_ended(self, job: Job) -> None:
        self.ended.append(job)
        self.has_changed()

    def database_failed(self, error: BaseException, correlation_id: str | None = None) -> None:
        self.errors.append(error)
        self.has_changed()


@asynccontextmanager
async def working_on(
    store: Any, *, count: int = 1, lease_ms: int = LEASE
) -> AsyncIterator[tuple[JobWorkers, Recorder]]:
    """Let workers run."""
    recorder = Recorder()
    workers = JobWorkers(store, recorder, count, lease_ms, MAX_ATTEMPTS, 720)
    workers.start()
    try:
        yield workers, recorder
    finally:
        await workers.stop(PATIENCE)


@pytest.mark.rule("TASKS-50", "TASKS-52")
async def test_jobs_of_any_process_are_carried_out_once(make: Make, make_other: Make) -> None:
    async with opened(make) as one, opened(make_other) as other:
        ids = [(await submit(store, tasks=tasks(3))).job.job_id for store in [one, other] * 4]
        async with (
            working_on(one, count=2) as (_, first),
            working_on(other, count=2) as (workers, second),
        ):
            ids.append((await submit(one, tasks=tasks(3))).job.job_id)
            workers.wake()

            await until(lambda: len(first.ended + second.ended) == len(ids), "all jobs have ended")
        done = [*first.ended, *second.ended]
        assert sorted(job.job_id for job in done) == sorted(ids)
        assert {(job.status, job.attempts, job.processed_tasks) for job in done} == {
            ("COMPLETED", 1, 3)
        }
        assert len(await find(one)) == 3 * len(ids)
        assert not first.errors + second.errors


@pytest.mark.rule("TASKS-53")
@pytest.mark.parametrize(
    "errors",
    [
        [raising(DatabaseUnavailableError("away"))] * 3,
        [raising(CommitUnknownError("lost"))] * 2,
        [raising(CommitUnknownError("lost"), happened=True)],
        [
            raising(DatabaseUnavailableError("away")),
            raising(CommitUnknownError("lost"), happened=True),
        ],
    ],
)
async def test_lost_connection_costs_no_attempt(
    make: Make, errors: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "_FIRST_PAUSE_S", 0.0)
    async with opened(make) as store:
        await submit(store, tasks=tasks(3))
        async with working_on(ScriptedStore(store, complete_job=[*errors])) as (_, recorder):
            await recorder.until(lambda: recorder.ended)
        [job] = recorder.ended
        assert (job.status, job.attempts, job.processed_tasks) == ("COMPLETED", 1, 3)
        assert len(recorder.errors) == len(errors)
        assert len(await find(store)) == 3


@pytest.mark.rule("TASKS-53", "TASKS-55")
async def test_commits_of_unknown_outcome_end_an_attempt_in_the_end(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "_FIRST_PAUSE_S", 0.0)
    async with opened(make) as store:
        await submit(store, tasks=tasks(3))
        errors = [raising(CommitUnknownError("lost"))] * working._MOST_UNKNOWN * MAX_ATTEMPTS
        scripted = ScriptedStore(store, complete_job=[*errors])
        async with working_on(scripted, lease_ms=1) as (_, recorder):
            await recorder.until(lambda: recorder.ended)
        [job] = recorder.ended
        assert (job.status, job.attempts) == ("FAILED", MAX_ATTEMPTS)
        assert await find(store) == []


@pytest.mark.rule("TASKS-54")
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DatabaseFullError("full"), working.FULL),
        (DatabaseReadOnlyError("read-only"), working.READ_ONLY),
        (RuntimeError("SELECT secret"), working.INTERNAL),
    ],
)
async def test_job_that_cannot_be_stored_is_failed(
    make: Make, error: Exception, message: str
) -> None:
    async with opened(make) as store:
        submitted = await submit(store, tasks=tasks(3))
        scripted = ScriptedStore(store, complete_job=[raising(error)])
        async with working_on(scripted) as (_, recorder):
            await recorder.until(lambda: recorder.ended)
        job = await job_of(store, submitted.job.job_id)
        assert recorder.ended == [job]
        assert (job.status, job.error_message) == ("FAILED", message)
        assert len(message) <= 500
        assert await find(store) == []


@pytest.mark.rule("TASKS-54")
async def test_job_with_a_damaged_payload_is_failed(make: Make) -> None:
    async with opened(make) as store:
        await store.submit_job(evolve(new_job(), payload=b"[["), MAX_PENDING)
        async with working_on(store) as (_, recorder):
            await recorder.until(lambda: recorder.ended)
        assert [job.error_message for job in recorder.ended] == [working.INTERNAL]


@pytest.mark.rule("TASKS-52")
async def test_worker_that_has_lost_its_lease_stores_nothing(make: Make) -> None:
    async with opened(make) as store:
        submitted = await submit(store, tasks=tasks(3))
        taken = asyncio.Event()

        async def refuse(operation: Callable[[], Awaitable[Any]]) -> bool:
            return False

        async def be_too_late(operation: Callable[[], Awaitable[Any]]) -> Any:
            await until(
                lambda: store.claim_job("other", LEASE, MAX_ATTEMPTS), "another takes the job"
            )
            result = await operation()
            taken.set()
            return result

        scripted = ScriptedStore(store, renew_job=[refuse], complete_job=[be_too_late])
        async with working_on(scripted, lease_ms=1) as (_, recorder):
            await taken.wait()
        job = await job_of(store, submitted.job.job_id)
        assert (job.status, job.attempts) == ("RUNNING", 2)
        assert recorder.ended == []
        assert await find(store) == []


@pytest.mark.rule("TASKS-51")
async def test_lease_is_renewed_while_a_job_takes_long(make: Make) -> None:
    async with opened(make) as store:
        submitted = await submit(store, tasks=tasks(3))
        renewals: list[bool] = []
        renewed = asyncio.Event()

        async def renew(operation: Callable[[], Awaitable[Any]]) -> Any:
            renewals.append(await operation())
            if len(renewals) == 3:
                renewed.set()
            return renewals[-1]

        async def take_long(operation: Callable[[], Awaitable[Any]]) -> Any:
            job = await job_of(store, submitted.job.job_id)
            assert (job.status, job.attempts) == ("RUNNING", 1)
            await renewed.wait()
            return await operation()

        scripted = ScriptedStore(
            store,
            renew_job=[renew, raising(DatabaseUnavailableError("away")), *[renew] * 100],
            complete_job=[take_long],
        )
        async with working_on(scripted, lease_ms=300) as (_, recorder):
            await recorder.until(lambda: recorder.ended)
        assert all(renewals)
        assert [job.status for job in recorder.ended] == ["COMPLETED"]


@pytest.mark.rule("TASKS-56")
async def test_stopping_worker_gives_its_job_back(make: Make) -> None:
    async with opened(make) as store:
        submitted = await submit(store, tasks=tasks(3))
        begun = asyncio.Event()

        async def hang(operation: Callable[[], Awaitable[Any]]) -> Any:
            begun.set()
            await asyncio.Event().wait()

        async with working_on(ScriptedStore(store, complete_job=[hang])) as (workers, _):
            await begun.wait()
            await workers.stop(0)
        job = await job_of(store, submitted.job.job_id)
        assert (job.status, job.attempts) == ("PENDING", 0)
        assert (await claim(store)).job.attempts == 1


@pytest.mark.rule("TASKS-55")
async def test_job_without_attempts_left_is_failed_and_told(make: Make) -> None:
    async with opened(make) as store:
        submitted = await submit(store, tasks=tasks(3))
        for _ in range(MAX_ATTEMPTS):
            await claim(store, lease=0)
        async with working_on(store) as (_, recorder):
            await recorder.until(lambda: recorder.ended)
        assert recorder.ended == [await job_of(store, submitted.job.job_id)]
        assert recorder.ended[0].status == "FAILED"
        assert recorder.started == []


@pytest.mark.rule("TASKS-53")
async def test_worker_outlives_any_error_of_its_store(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "_FIRST_PAUSE_S", 0.0)
    async with opened(make) as store:
        await submit(store, tasks=tasks(3))
        errors = [raising(DatabaseUnavailableError("away")), raising(RuntimeError("bug"))]
        async with working_on(ScriptedStore(store, claim_job=errors)) as (_, recorder):
            await recorder.until(lambda: recorder.ended)
        assert [type(each) for each in recorder.errors] == [DatabaseUnavailableError, RuntimeError]
