"""A process on a store of tasks, for tests that kill it, stop it, or run several at once.

    python -m tests.apps.task_server.faults.peer STORE ROLE [ARGUMENT ...]

STORE is ``SCHEMA@postgresql://...``. A peer opens the store, says "ready", and plays its role. It
says what it has done in lines of words.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any
from uuid import uuid4

from attrs import evolve

from foundation_rt.apps.task_server.jobs import Job
from foundation_rt.apps.task_server.store import QueueFullError, TaskServerStore, TaskUpdate
from foundation_rt.apps.task_server.worker import JobWorkers
from foundation_rt.base.database.errors import CommitUnknownError
from tests.apps.task_server.stores.support import new_job, tasks, tasks_of

LEASE_MS = 2_000
MAX_PENDING = 8
ATTEMPTS = 1_000
"""A killed process costs an attempt, and these tests kill many."""


def make_store(place: str) -> TaskServerStore:
    """Return the store at a place, as it is given to peers."""
    from foundation_rt.apps.task_server.stores.postgres import PostgresTaskStore

    schema, _, url = place.partition("@")
    return PostgresTaskStore(url, schema=schema, lease_ms=LEASE_MS)


def say(*words: object) -> None:
    """Write a line to whoever has started the peer."""
    print(*words, flush=True)


class _NoObserver:
    def job_started(self, job: Job) -> None:
        pass

    def job_ended(self, job: Job) -> None:
        pass

    def database_failed(self, error: BaseException, correlation_id: str | None = None) -> None:
        pass


def workers_on(store: TaskServerStore) -> JobWorkers:
    """Return two workers, which are not started."""
    return JobWorkers(store, _NoObserver(), 2, LEASE_MS, ATTEMPTS, 720)


# -- roles ----------------------------------------------------------------------------------------


async def work(store: TaskServerStore, size: str) -> None:
    """Submit jobs, carry out any, claim and change tasks, until killed."""
    workers = workers_on(store)
    workers.start()
    for n in count(1):
        job = evolve(new_job(tasks(int(size), project=f"p{n % 3}")), job_id=str(uuid4()))
        with suppress(QueueFullError):
            await store.submit_job(job, MAX_PENDING)
            say("accepted", job.job_id)
        for claimed in await store.claim_tasks(3, None, "peer", 1):
            done = {"status": "DONE", "due_date": "2026-11-22", "project": "done"}
            await store.update_tasks([TaskUpdate(claimed.id, None, done)])


async def drain(store: TaskServerStore) -> None:
    """Carry out jobs until none is left."""
    workers = workers_on(store)
    changed = asyncio.Event()
    store.on_change(lambda _: changed.set())
    workers.start()
    while True:
        changed.clear()
        counts = await store.count_jobs()
        if not counts["PENDING"] + counts["RUNNING"]:
            break
        await changed.wait()
    await workers.stop(5)
    say("drained")


async def stop_before_completion(store: TaskServerStore) -> None:
    """Claim a job, stop, and complete it when continued."""
    claimed = await store.claim_job("stopped", 0, ATTEMPTS)
    assert claimed is not None
    os.kill(os.getpid(), signal.SIGSTOP)
    say("completed" if await store.complete_job(claimed, tasks_of(claimed)) else "lost")


async def stop_in_copy(store: TaskServerStore) -> None:
    """Claim a job, and stop in the transaction that completes it, with half its tasks sent."""
    import psycopg

    write = psycopg.AsyncCopy.write

    async def write_half_and_stop(copy: Any, data: bytes) -> None:
        await write(copy, data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGSTOP)
        await write(copy, data[len(data) // 2 :])

    psycopg.AsyncCopy.write = write_half_and_stop  # type: ignore[assignment, method-assign]
    claimed = await store.claim_job("stopped", 0, ATTEMPTS)
    assert claimed is not None
    say("completed" if await store.complete_job(claimed, tasks_of(claimed)) else "lost")


async def stop_before_commit(store: TaskServerStore) -> None:
    """Claim a job, and stop when all that completes it was sent, but for its COMMIT."""
    import psycopg

    claimed = await store.claim_job("stopped", 0, ATTEMPTS)
    assert claimed is not None
    execute = psycopg.AsyncCursor.execute

    async def stop_and_execute(cursor: Any, query: Any, *more: Any, **options: Any) -> Any:
        if query == b"COMMIT":
            os.kill(os.getpid(), signal.SIGSTOP)
        return await execute(cursor, query, *more, **options)

    psycopg.AsyncCursor.execute = stop_and_execute  # type: ignore[method-assign]
    try:
        say("completed" if await store.complete_job(claimed, tasks_of(claimed)) else "lost")
    except CommitUnknownError:
        say("unknown")


ROLES: dict[str, Callable[..., Awaitable[None]]] = {
    each.__name__: each
    for each in (
        *(work, drain),
        *(stop_before_completion, stop_in_copy, stop_before_commit),
    )
}


async def _main(place: str, role: str, *arguments: str) -> None:
    store = make_store(place)
    await store.open()
    say("ready")
    await ROLES[role](store, *arguments)
    await store.close()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
