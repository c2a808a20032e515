"""What every store tells of changes, in the process that made them and in others."""

from __future__ import annotations

import pytest

from foundation_rt.apps.task_server.store import TaskUpdate, VersionConflictError
from tests.apps.task_server.stores.places import Make
from tests.apps.task_server.stores.support import (
    LEASE,
    MAX_ATTEMPTS,
    Observer,
    add,
    claim,
    claimed_job,
    find,
    ids_of,
    opened,
    submit,
    task,
    tasks,
)


@pytest.mark.rule("TASKS-84")
async def test_changes_of_jobs_are_told_in_every_process(make: Make, make_other: Make) -> None:
    async with opened(make) as one, opened(make_other) as other:
        seen = []
        for action in ("submit", "claim", "release", "fail", "maintain"):
            if action in ("release", "fail"):
                claimed = await claimed_job(one)
            elif action != "submit":
                await submit(one)
            if action == "maintain":
                await claim(one, lease=0)
            observers = Observer(one), Observer(other)
            if action == "submit":
                job_id = (await submit(one)).job.job_id
            elif action == "claim":
                job_id = (await claim(one)).job.job_id
            elif action == "release":
                job_id = claimed.job.job_id
                assert await one.release_job(claimed)
            elif action == "fail":
                job_id = claimed.job.job_id
                await one.fail_job(claimed, "It failed.")
            else:
                [failed] = (await one.maintain_jobs(1, 720)).failed
                job_id = failed.job_id
            for observer in observers:
                await observer.saw(jobs=[job_id])
                assert not observer.lists()
                assert observer.tasks() == set()
            seen.append(job_id)
            while (left := await one.claim_job("end", LEASE, MAX_ATTEMPTS)) is not None:
                await one.fail_job(left, "Not of this test.")
        assert len(seen) == 5


@pytest.mark.rule("TASKS-84")
async def test_changes_of_tasks_are_told_in_every_process(make: Make, make_other: Make) -> None:
    async with opened(make) as one, opened(make_other) as other:
        observers = Observer(one), Observer(other)
        added = ids_of(await add(one, *tasks(5)))
        for observer in observers:
            await observer.saw(tasks=added)
            assert observer.lists()
        observers = Observer(one), Observer(other)
        claimed = await one.claim_tasks(2, None, "w", 900)
        for observer in observers:
            await observer.saw(tasks=ids_of(claimed))
        await one.update_tasks([TaskUpdate(added[3], None, {"title": "changed"})])
        for observer in observers:
            await observer.saw(tasks=[added[3]])
            assert not observer.lists()
        await one.delete_tasks([added[4]])
        for observer in observers:
            await observer.saw(tasks=[added[4]])
            assert observer.lists()


@pytest.mark.rule("TASKS-84")
async def test_what_has_not_happened_is_not_told(make: Make, make_other: Make) -> None:
    async with opened(make) as one, opened(make_other) as other:
        [first] = await add(one, task())
        await submit(one, key="k")
        lost = await claim(one, lease=0)
        await claim(one)
        early = Observer(one), Observer(other)
        marked = (await submit(one)).job.job_id
        for observer in early:  # all that came before has been told then
            await observer.saw(jobs=[marked])
        observers = Observer(one), Observer(other)
        await submit(one, key="k")
        assert await one.complete_job(lost, tasks(1)) is None
        assert await one.fail_job(lost, "It failed.") is None
        with pytest.raises(VersionConflictError):
            await one.update_tasks([TaskUpdate(first.id, 7, {"title": "x"})])
        await one.delete_tasks([first.id + 100])
        await one.claim_tasks(1, "no project", "w", 900)
        await find(one)
        await one.summarize()
        await one.maintain_jobs(MAX_ATTEMPTS, 720)
        last = (await submit(one)).job.job_id
        for observer in observers:
            await observer.saw(jobs=[last])
            assert observer.jobs() == {last}
            assert observer.tasks() == set()
            assert not observer.lists()
            assert not any(change.everything for change in observer.changes)
