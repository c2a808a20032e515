"""What one principal may store, in every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from foundation_rt.apps.task_server.store import QuotaExceededError, TaskQuota, TaskServerStore
from tests.apps.task_server.stores.places import Make
from tests.apps.task_server.stores.support import (
    MAX_ATTEMPTS,
    add,
    change,
    claim,
    find,
    opened,
    submit,
    task,
    tasks,
)

pytestmark = pytest.mark.rule("TASKS-98")


def limited(make: Make, **quota: int) -> Callable[[], TaskServerStore]:
    def make_limited() -> TaskServerStore:
        store: Any = make()
        store.quota = TaskQuota(**quota)
        return store

    return make_limited


async def refused(operation: Any) -> tuple[Any, ...]:
    with pytest.raises(QuotaExceededError) as error:
        await operation
    return error.value.args


async def test_tasks_and_those_of_unfinished_jobs_are_bounded_for_each_principal(
    make: Make,
) -> None:
    async with opened(limited(make, tasks=5)) as store:
        stored = await add(store, *tasks(3))
        await submit(store, tasks=tasks(2), key="k")
        assert await refused(submit(store)) == ("tasks", 5, 1, 5)
        assert (await submit(store, tasks=tasks(2), key="k")).duplicate
        await submit(store, tasks=tasks(5), principal="bob")

        await store.delete_tasks(ids=[stored[0].id])
        await store.delete_tasks(job_id=stored[0].job_id)
        await submit(store, tasks=tasks(3))
        assert await refused(submit(store)) == ("tasks", 5, 1, 5)


async def test_failed_jobs_and_those_that_are_given_up_give_their_tasks_back(make: Make) -> None:
    async with opened(limited(make, tasks=2)) as store:
        await submit(store, tasks=tasks(2))
        await store.fail_job(await claim(store), "It failed.")
        await submit(store, tasks=tasks(2))
        for _ in range(MAX_ATTEMPTS):
            await claim(store, lease=0)
        assert await refused(submit(store)) == ("tasks", 2, 1, 2)
        assert len((await store.maintain_jobs(MAX_ATTEMPTS, 1)).failed) == 1
        await submit(store, tasks=tasks(2))


async def test_bytes_of_texts_are_bounded_when_tasks_are_added_and_changed(make: Make) -> None:
    async with opened(limited(make, bytes=30)) as store:
        [one] = await add(store, task("äö", description="1234567890", project="p"))  # 15 bytes
        assert await refused(submit(store, tasks=[task("x" * 15, project="p")])) == (
            *("bytes", 15, 16, 30),
        )
        [two] = await add(store, task("x" * 14, project="p"))
        assert await refused(change(store, two.id, description="!")) == ("bytes", 30, 1, 30)
        await change(store, one.id, description=None)
        await change(store, two.id, description="!" * 10)
        await change(store, two.id, status="DONE")
        await store.delete_tasks(ids=[one.id])
        assert await refused(submit(store, tasks=[task("123456", project="")])) == (
            *("bytes", 25, 6, 30),
        )
        await submit(store, tasks=[task("1234", project="p")])


async def test_quota_holds_for_processes_that_submit_at_once(make: Make, make_other: Make) -> None:
    async with opened(limited(make, tasks=7)) as one, opened(make_other) as other:
        await submit(other, tasks=tasks(3))
        answers = await asyncio.gather(
            *(submit(one, tasks=tasks(2)) for _ in range(8)), return_exceptions=True
        )
        lost = [each for each in answers if isinstance(each, BaseException)]
        assert [type(each) for each in lost] == [QuotaExceededError] * 6
        assert (await one.count_jobs())["PENDING"] == 3
        for _ in range(3):
            claimed = await claim(other)
            await other.complete_job(claimed, tasks(claimed.job.total_tasks))
        assert len(await find(one)) == 7
        assert await refused(submit(one)) == ("tasks", 7, 1, 7)
