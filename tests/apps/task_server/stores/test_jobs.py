"""What every store does with jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from attrs import evolve

from foundation_rt.apps.task_server.jobs import PAYLOAD_LOST_MESSAGE
from foundation_rt.apps.task_server.store import QueueFullError
from foundation_rt.apps.task_server.tasks import NewTask
from tests.apps.task_server.stores.places import Make
from tests.apps.task_server.stores.support import (
    LEASE,
    MAX_ATTEMPTS,
    MAX_PENDING,
    claim,
    claimed_job,
    find,
    job_of,
    new_job,
    opened,
    submit,
    task,
    tasks,
    tasks_of,
)

UNKNOWN_JOB = "00000000-0000-4000-8000-00000000ffff"


# -- submitting -----------------------------------------------------------------------------------


@pytest.mark.rule("TASKS-70", "TASKS-80")
async def test_submitted_job_is_pending_and_survives_the_process(make: Make) -> None:
    job = new_job(tasks(3))
    async with opened(make) as store:
        submission = await store.submit_job(job, MAX_PENDING)
        assert not submission.duplicate
        assert await store.get_job(UNKNOWN_JOB) is None
    async with opened(make) as store:
        found = await job_of(store, job.job_id)
        assert found == submission.job
        assert (found.status, found.attempts, found.processed_tasks) == ("PENDING", 0, 0)
        assert (found.total_tasks, found.principal) == (3, "ann")
        assert found.correlation_id == job.correlation_id
        assert found.created_at == found.updated_at
        assert (found.started_at, found.completed_at, found.duration_ms) == (None, None, None)
        assert found.error_message is None
        claimed = await claim(store)
        assert (claimed.payload, tasks_of(claimed)) == (job.payload, tasks(3))


@pytest.mark.rule("TASKS-80")
async def test_times_are_utc_with_milliseconds(make: Make) -> None:
    async with opened(make) as store:
        job = (await submit(store)).job
        assert len(job.created_at) == len("2026-11-22T10:00:00.000Z")
        assert job.created_at[10] == "T"
        assert job.created_at.endswith("Z")


@pytest.mark.rule("TASKS-82")
async def test_queue_is_bounded_over_all_stores(make: Make, make_other: Make) -> None:
    async with opened(make) as one, opened(make_other) as other:
        for store in (one, other, one):
            await submit(store, pending=3)
        claimed = await claim(other)  # a running job counts too
        refused = new_job()
        for store in (one, other):
            with pytest.raises(QueueFullError):
                await store.submit_job(refused, 3)
        assert await one.get_job(refused.job_id) is None
        await one.fail_job(claimed, "It failed.")
        await submit(other, pending=3)
        with pytest.raises(QueueFullError):
            await submit(one, pending=3)


@pytest.mark.rule("TASKS-82")
async def test_queue_is_bounded_for_submissions_at_once(make: Make, make_other: Make) -> None:
    async with opened(make) as one, opened(make_other) as other:
        answers = await asyncio.gather(
            *(submit(store, pending=4) for store in (one, other) * 5), return_exceptions=True
        )
        refused = [answer for answer in answers if isinstance(answer, BaseException)]
        assert all(isinstance(answer, QueueFullError) for answer in refused)
        assert len(refused) == 6
        assert (await one.count_jobs())["PENDING"] == 4


@pytest.mark.rule("TASKS-82")
async def test_request_key_of_submissions_at_once_makes_one_job(
    make: Make, make_other: Make
) -> None:
    async with opened(make) as one, opened(make_other) as other:
        answers = await asyncio.gather(*(submit(store, key="k") for store in (one, other) * 4))
        assert len({answer.job.job_id for answer in answers}) == 1
        assert sum(not answer.duplicate for answer in answers) == 1
        assert (await one.count_jobs())["PENDING"] == 1


# -- claiming -------------------------------------------------------------------------------------


@pytest.mark.rule("TASKS-80")
async def test_jobs_claimed_at_once_go_to_one_owner_each(make: Make, make_other: Make) -> None:
    async with opened(make) as one, opened(make_other) as other:
        for _ in range(6):
            await submit(one)
        claims = await asyncio.gather(
            *(store.claim_job(f"o{n}", LEASE, 3) for n in range(5) for store in (one, other))
        )
        ids = [each.job.job_id for each in claims if each is not None]
        assert len(ids) == len(set(ids)) == 6


# -- the end of a job -----------------------------------------------------------------------------


@pytest.mark.rule("TASKS-81", "TASKS-70")
async def test_completed_job_has_stored_its_tasks(make: Make) -> None:
    given = [
        task("a", description="text", status="DONE", due_date=None, project="p", priority=3),
        task("b", due_date="2026-11-22", priority=0),
    ]
    async with opened(make) as store:
        await store.submit_job(new_job(given, principal="eve"), MAX_PENDING)
        claimed = await claim(store)
        job = await store.complete_job(claimed, tasks_of(claimed))
        assert job is not None
        assert (job.status, job.processed_tasks, job.attempts) == ("COMPLETED", 2, 1)
        assert job.completed_at is not None
        assert job.duration_ms is not None
        assert job.duration_ms >= 0
        assert job == await job_of(store, job.job_id)
    async with opened(make) as store:
        assert job == await job_of(store, job.job_id)
        found = [await store.get_task(task_id) for task_id in await find(store)]
        assert [each[1:7] for each in found if each] == [tuple(each) for each in given]
        for each in found:
            assert each is not None
            assert (each.version, each.claimed_by, each.claim_expires_at) == (1, None, None)
            assert (each.job_id, each.created_by) == (job.job_id, "eve")
            assert each.created_at == each.updated_at
            assert len(each.created_at) == 24
        assert (await store.maintain_jobs(MAX_ATTEMPTS, 720)).failed == []


@pytest.mark.rule("TASKS-81")
async def test_job_is_done_once_however_many_believe_it_theirs(
    make: Make, make_other: Make
) -> None:
    async with opened(make) as one, opened(make_other) as other:
        lost = await claimed_job(one, owner="a", lease=0)
        taken = await claim(other, "a")  # the same owner, another attempt
        assert await one.complete_job(lost, tasks(1)) is None
        assert await one.fail_job(lost, "It failed.") is None
        assert not await one.renew_job(lost, LEASE)
        assert not await one.release_job(lost)
        assert await find(one) == []
        stranger = evolve(taken, owner="b")
        assert await one.complete_job(stranger, tasks(1)) is None
        assert await other.complete_job(taken, tasks(1)) is not None
        for store in (one, other):
            assert await store.complete_job(taken, tasks(1)) is None
            assert await store.fail_job(taken, "It failed.") is None
            assert not await store.release_job(taken)
            assert not await store.renew_job(taken, LEASE)
            assert len(await find(store)) == 1  # its id need not be the first


@pytest.mark.rule("TASKS-81", "TASKS-70")
async def test_tasks_of_a_job_appear_together_or_never(make: Make) -> None:
    async with opened(make) as store:
        claimed = await claimed_job(store)
        with pytest.raises(Exception):  # noqa: B017 - whatever the database says
            await store.complete_job(claimed, [*tasks(3), task("x" * 256)])
        assert await find(store) == []
        assert (await job_of(store, claimed.job.job_id)).status == "RUNNING"
        assert (await store.summarize()).count_by_status["TODO"] == 0
        assert await store.complete_job(claimed, tasks(1)) is not None


class SlowTasks(list[NewTask]):
    """Tasks that take a while to be stored."""

    SECONDS = 0.05

    def __iter__(self) -> Iterator[NewTask]:
        time.sleep(self.SECONDS)
        return super().__iter__()


@pytest.mark.rule("TASKS-80")
async def test_duration_of_a_job_includes_the_storing_of_its_tasks(make: Make) -> None:
    async with opened(make) as store:
        claimed = await claimed_job(store)
        job = await store.complete_job(claimed, SlowTasks(tasks_of(claimed)))
        assert job is not None
        assert job.duration_ms is not None
        assert job.duration_ms >= SlowTasks.SECONDS * 1000


# -- maintenance ----------------------------------------------------------------------------------


def test_message_of_a_lost_payload_is_that_of_the_specification() -> None:
    assert PAYLOAD_LOST_MESSAGE == "Server restarted during processing"
