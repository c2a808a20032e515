"""A process that uses a store until it is killed; its arguments are a path and a name.

It prints a line for everything that has happened, after it has happened.
"""

from __future__ import annotations

import asyncio
import sys
from itertools import count
from uuid import uuid4

from attrs import evolve

from foundation_rt.apps.task_server.store import QueueFullError, TaskServerStore, TaskUpdate
from foundation_rt.apps.task_server.stores.sqlite import SqliteTaskStore
from tests.apps.task_server.stores.support import (
    new_job,
    task,
    tasks_of,
)

ATTEMPTS = 1_000_000
PENDING = 10
LEASE_MS = 50


def say(*words: object) -> None:
    print(*words, flush=True)


async def submit(store: TaskServerStore, name: str) -> None:
    """Submit jobs of different sizes, as long as the queue has place; say which were accepted."""
    for n in count():
        tasks = [task(f"{name} {n} {k}", project=f"p{k % 3}") for k in range(1 + n % 40)]
        job = evolve(new_job(tasks), job_id=str(uuid4()))
        while True:
            try:
                await store.submit_job(job, PENDING)
                break
            except QueueFullError:
                await asyncio.sleep(0.001)
        say("accepted", job.job_id, len(tasks))


async def work(store: TaskServerStore, owner: str) -> None:
    """Carry out jobs for ever; say which were completed."""
    while True:
        claimed = await store.claim_job(owner, LEASE_MS, ATTEMPTS)
        if claimed is None:
            await asyncio.sleep(0.001)
            continue
        done = await store.complete_job(claimed, tasks_of(claimed))
        if done is not None:
            say("completed", done.job_id, done.processed_tasks)


async def change_tasks(store: TaskServerStore) -> None:
    """Claim, change and delete tasks for ever; say which were deleted."""
    while True:
        for claimed in await store.claim_tasks(3, None, "w", 0):
            await store.update_tasks([TaskUpdate(claimed.id, None, {"status": "DONE"})])
            if claimed.id % 5 == 0:
                say("deleting", claimed.id)
                await store.delete_tasks([claimed.id])
        await asyncio.sleep(0)


async def main(path: str, name: str) -> None:
    store = SqliteTaskStore(path)
    await store.open()
    say("open")
    await asyncio.gather(
        *(submit(store, f"{name} {n}") for n in range(2)),
        *(work(store, f"{name} {n}") for n in range(2)),
        change_tasks(store),
    )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
