"""A process that uses a store: `python -m tests.task_server.faults.storing WHAT PATH ...`.

It prints a line for everything that has happened, after it has happened.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

from attrs import evolve

from foundation_rt.apps.task_server.store import QueueFullError, TaskServerStore, TaskUpdate
from foundation_rt.apps.task_server.stores.sqlite import SqliteTaskStore
from foundation_rt.base.database.errors import DatabaseError
from tests.task_server.stores.support import (
    MAX_PENDING,
    claim,
    new_job,
    task,
    tasks_of,
)

ATTEMPTS = 1_000_000
PENDING = 10


def say(*words: object) -> None:
    print(*words, flush=True)


async def listen() -> str:
    """Return the next line of the input."""
    return (await asyncio.to_thread(sys.stdin.readline)).strip()


async def submit(store: TaskServerStore, name: str, jobs: int) -> None:
    """Submit jobs of different sizes, as long as the queue has place; say which were accepted."""
    for n in range(jobs):
        tasks = [task(f"{name} {n} {k}", project=f"p{k % 3}") for k in range(1 + n % 40)]
        job = evolve(new_job(tasks), job_id=str(uuid4()))
        while True:
            try:
                await store.submit_job(job, PENDING)
                break
            except QueueFullError:
                await asyncio.sleep(0.001)
        say("accepted", job.job_id, len(tasks))


async def work(store: TaskServerStore, owner: str, lease_ms: int) -> None:
    """Carry out jobs for ever; say which were completed."""
    while True:
        claimed = await store.claim_job(owner, lease_ms, ATTEMPTS)
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


async def load(store: TaskServerStore, name: str) -> None:
    """Use the store until the process is killed."""
    await asyncio.gather(
        *(submit(store, f"{name} {n}", ATTEMPTS) for n in range(2)),
        *(work(store, f"{name} {n}", 50) for n in range(2)),
        change_tasks(store),
    )


async def share(store: TaskServerStore, name: str, jobs: str) -> None:
    """Submit so many jobs while others do, and carry out any; end when told."""
    workers = [asyncio.create_task(work(store, f"{name} {n}", 600_000)) for n in range(2)]
    await listen()
    await asyncio.gather(*(submit(store, f"{name} {n}", int(jobs)) for n in range(2)))
    say("submitted")
    await listen()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


async def claim_all(store: TaskServerStore, name: str) -> None:
    """Claim tasks until there are none; say which."""
    say("ready")
    await listen()
    while claimed := await store.claim_tasks(7, None, name, 900):
        for each in claimed:
            say("claimed", each.id)


async def stop_with_a_job(store: TaskServerStore, lease_ms: str) -> None:
    """Claim a job, and complete it when told; say whether it was still its own."""
    claimed = await claim(store, "stopped", int(lease_ms))
    say("claimed")
    await listen()
    done = await store.complete_job(claimed, tasks_of(claimed))
    say("late" if done is None else "completed")


async def stop_in_a_transaction(store: Any) -> None:
    """Hold the lock of writers until told."""

    def hold(connection: Any) -> None:
        say("holding")
        sys.stdin.readline()

    await store._database.write(hold)
    say("released")


async def fill(store: TaskServerStore, limit: str) -> None:
    """Store jobs until files of this process may not grow; say what happened to each."""
    import resource  # not above: Windows has none

    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    failed = 0
    while failed < 3:
        try:
            tasks = [task("x" * 200, description="y" * 1000) for _ in range(50)]
            await store.submit_job(evolve(new_job(tasks), job_id=str(uuid4())), MAX_PENDING)
            claimed = await claim(store)
            await store.complete_job(claimed, tasks_of(claimed))
            say("completed", claimed.job.job_id)
        except DatabaseError as error:
            say("failed", type(error).__name__)
            failed += 1
            with suppress(DatabaseError):
                await store.fail_job(claimed, "The disk is full.")
    say("reads", (await store.summarize()).count_by_status["TODO"])


async def open_only(store: TaskServerStore) -> None:
    """Open when told; say so."""


WHAT: dict[str, Callable[..., Awaitable[None]]] = {
    each.__name__: each
    for each in (
        load,
        share,
        claim_all,
        stop_with_a_job,
        stop_in_a_transaction,
        fill,
        open_only,
    )
}


async def main(what: str, path: str, *arguments: str) -> None:
    if what == "open_only":
        say("ready")
        await listen()
    store = SqliteTaskStore(path)
    await store.open()
    say("open")
    await WHAT[what](store, *arguments)
    await store.close()
    say("closed")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
