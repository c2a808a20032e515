"""Values for tests of stores, and operations that several of them need."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from itertools import count
from typing import Any
from uuid import UUID

import orjson

from foundation_rt.apps.task_server.jobs import Job, JobClaim, NewJob, Submission
from foundation_rt.apps.task_server.queries import TaskFilter, TaskPage, TaskQuery
from foundation_rt.apps.task_server.store import Change, TaskServerStore, TaskUpdate
from foundation_rt.apps.task_server.tasks import NewTask, Task, text_bytes
from tests.apps.task_server.stores.places import Make
from tests.lab.waiting import Changing

LEASE = 600_000
"""Milliseconds: a lease that does not end in a test."""

MAX_ATTEMPTS = 3
MAX_PENDING = 100

PAST, FUTURE = "2000-01-01", "2999-01-01"

_numbers = count(1)


def task(title: str = "a task", **more: Any) -> NewTask:
    """Return a task with the given members, and the defaults of the tool."""
    members = {
        "description": None,
        "status": "TODO",
        "due_date": None,
        "project": "default",
        "priority": 1,
    }
    return NewTask(title, **{**members, **more})


def tasks(n: int, **more: Any) -> list[NewTask]:
    """Return `n` tasks with different titles."""
    return [task(f"task {number}", **more) for number in range(1, n + 1)]


def new_job(
    tasks: Sequence[NewTask] = (task(),), *, key: str | None = None, principal: str = "ann"
) -> NewJob:
    """Return a job with an id of its own."""
    payload = orjson.dumps([list(each) for each in tasks])
    job_id = str(UUID(int=next(_numbers) << 64 | 0x8000_0000_0000_0000, version=4))
    return NewJob(
        job_id,
        principal,
        key,
        sha256(payload).digest(),
        payload,
        len(tasks),
        sum(text_bytes(each.title, each.description, each.project) for each in tasks),
        f"for {job_id}",
    )


@asynccontextmanager
async def opened(make: Make) -> AsyncIterator[TaskServerStore]:
    """Open a store, and close it in the end."""
    store = make()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def submit(store: TaskServerStore, *, pending: int = MAX_PENDING, **more: Any) -> Submission:
    """Submit a job made by `new_job`."""
    return await store.submit_job(new_job(**more), pending)


async def claim(
    store: TaskServerStore, owner: str = "me", lease: int = LEASE, attempts: int = MAX_ATTEMPTS
) -> JobClaim:
    """Claim a job, which there must be."""
    claimed = await store.claim_job(owner, lease, attempts)
    assert claimed is not None
    return claimed


async def claimed_job(store: TaskServerStore, **more: Any) -> JobClaim:
    """Submit a job and claim it."""
    await submit(store)
    return await claim(store, **more)


def tasks_of(claimed: JobClaim) -> list[NewTask]:
    """Return the tasks of a payload."""
    return [NewTask(*each) for each in orjson.loads(claimed.payload)]


async def add(store: TaskServerStore, *tasks: NewTask, principal: str = "ann") -> list[Task]:
    """Store tasks by a job; return them as they are stored."""
    await store.submit_job(new_job(tasks, principal=principal), MAX_PENDING)
    claimed = await claim(store)
    job = await store.complete_job(claimed, tasks_of(claimed))
    assert job is not None
    page = await store.list_tasks(TaskQuery(TaskFilter(job_id=job.job_id), limit=5000))
    return page.tasks


async def find(store: TaskServerStore, **where: Any) -> list[int]:
    """Return the ids of the tasks that meet the conditions, by id."""
    return ids_of(await store.list_tasks(TaskQuery(TaskFilter(**where), limit=5000)))


async def change(store: TaskServerStore, task_id: int, **members: Any) -> None:
    """Change a task, whatever its version."""
    await store.update_tasks([TaskUpdate(task_id, None, members)])


async def stored(store: TaskServerStore, task_id: int) -> Task:
    """Return a task, which there must be."""
    found = await store.get_task(task_id)
    assert found is not None
    return found


async def job_of(store: TaskServerStore, job_id: str) -> Job:
    """Return a job, which there must be."""
    found = await store.get_job(job_id)
    assert found is not None
    return found


def ids_of(page: TaskPage | Sequence[Task]) -> list[int]:
    """Return the ids of tasks, in their order."""
    return [each.id for each in (page.tasks if isinstance(page, TaskPage) else page)]


async def recount(store: TaskServerStore) -> dict[tuple[str, str], int]:
    """Return how many tasks each project has in each status, by looking at all of them."""
    page = await store.list_tasks(TaskQuery(TaskFilter(), limit=100_000, count=False))
    counts: dict[tuple[str, str], int] = {}
    for each in page.tasks:
        counts[each.project, each.status] = counts.get((each.project, each.status), 0) + 1
    return counts


class Observer(Changing):
    """Gathers what a store says has changed.

    Attributes:
        changes: in their order.
    """

    def __init__(self, store: TaskServerStore) -> None:
        super().__init__()
        self.changes: list[Change] = []
        store.on_change(self._take)

    def _take(self, change: Change) -> None:
        self.changes.append(change)
        self.has_changed()

    def jobs(self) -> set[str]:
        """Return the ids of the jobs that have changed."""
        return {job for change in self.changes for job in change.jobs}

    def tasks(self) -> set[int]:
        """Return the ids in the ranges of tasks that have changed."""
        return {
            task_id
            for change in self.changes
            for first, last in change.tasks
            for task_id in range(first, last + 1)
        }

    def lists(self) -> bool:
        """Whether tasks were added or removed."""
        return any(change.lists for change in self.changes)

    async def saw(self, *, jobs: Sequence[str] = (), tasks: Sequence[int] = ()) -> None:
        """Wait until these jobs and tasks are among what has changed."""
        await self.until(lambda: self.jobs() >= set(jobs) and self.tasks() >= set(tasks))
