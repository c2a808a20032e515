"""Where the queue of jobs in PostgreSQL begins: never behind a job, whatever is open elsewhere.

Blocks are counted, never time. The server is the tests' own: the open transaction of another test
would do the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random

import psycopg
import pytest

from foundation_rt.apps.task_server.jobs import JobClaim
from foundation_rt.apps.task_server.stores.postgres import PostgresTaskStore
from tests.apps.task_server.stores.support import MAX_ATTEMPTS, add, submit, task
from tests.lab.places.postgres_server import postgres_server
from tests.lab.places.services import unique_name
from tests.lab.sizes import size

READ = (
    "SELECT sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)"
    " FROM pg_statio_all_tables WHERE schemaname = %s AND relname = 'batch_jobs'"
)
LEASE = 60_000


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Run a server that nobody else uses."""
    with postgres_server() as server:
        yield server.url


@asynccontextmanager
async def opened(url: str, schema: str) -> AsyncIterator[PostgresTaskStore]:
    store = PostgresTaskStore(url, schema=schema, connections=2)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def work(store: PostgresTaskStore, schema: str, jobs: int) -> float:
    """Submit, claim and complete jobs; return the blocks of their table and its indexes for each.

    One job at a time uses one connection, whose counts are told in the end.
    """
    flush = ("SELECT pg_stat_force_next_flush()", ())
    counted = (READ.replace("%s", "%b"), (schema,))
    read = []
    for number in (0, jobs):
        for _ in range(number):
            await add(store, task())
        await store._connections.read(flush)
        await store.ping()
        [[(count,)]] = await store._connections.read(counted)
        read.append(int(count))
    return (read[1] - read[0]) / jobs


@pytest.mark.rule("TASKS-86")
async def test_queue_of_jobs_begins_behind_what_an_open_transaction_keeps(url: str) -> None:
    schema, later = unique_name(), size(300, 3_000)
    async with opened(url, schema) as store, await psycopg.AsyncConnection.connect(url) as dump:
        await dump.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await dump.execute("SELECT 1")
        await work(store, schema, 200)  # until the indexes are as deep as later
        first = await work(store, schema, 100)
        await work(store, schema, later)
        assert await work(store, schema, 100) <= 1.3 * first


@pytest.mark.rule("TASKS-86")
@pytest.mark.parametrize("seed", range(size(3, 30)))
async def test_no_job_is_passed_over(url: str, seed: int) -> None:
    """Two processes do at once, and in any order, what adds to the queue and takes from it."""
    random, schema = Random(seed), unique_name()
    async with opened(url, schema) as one, opened(url, schema) as two:
        stores, claims, left = (one, two), [], 0
        for _ in range(40):
            entered = random.randint(0, 4)
            left += entered
            *_, claim = await asyncio.gather(
                *(submit(random.choice(stores)) for _ in range(entered)),
                random.choice(stores).claim_job("me", LEASE, MAX_ATTEMPTS),
            )
            claims += [] if claim is None else [claim]
            if claims and random.random() < 0.7:
                ended = claims.pop(random.randrange(len(claims)))
                if random.random() < 0.4:
                    assert await random.choice(stores).release_job(ended)
                else:
                    assert await random.choice(stores).fail_job(ended, "failed")
                    left -= 1
        for claim in claims:
            await one.release_job(claim)
        for number in range(left):
            assert await stores[number % 2].claim_job("me", LEASE, MAX_ATTEMPTS) is not None
        assert await one.claim_job("me", LEASE, MAX_ATTEMPTS) is None


# As versions before V4 of the tables do: the job has its position before the queue is locked.
SUBMIT_EARLY = """
INSERT INTO {schema}.batch_jobs (
    job_id, status, attempts, principal, digest, payload, total_tasks, text_bytes, correlation_id
)
SELECT gen_random_uuid(), 'PENDING', 0, principal, digest, payload, total_tasks, text_bytes,
    correlation_id
FROM {schema}.batch_jobs LIMIT 1
"""


@pytest.mark.rule("TASKS-86")
async def test_maintenance_finds_what_an_earlier_version_put_below_the_floor(url: str) -> None:
    schema = unique_name()
    async with opened(url, schema) as store, await psycopg.AsyncConnection.connect(url) as earlier:

        async def claim() -> JobClaim | None:
            return await store.claim_job("me", LEASE, MAX_ATTEMPTS)

        await submit(store)
        ended = await claim()
        assert ended is not None
        await earlier.execute(SUBMIT_EARLY.format(schema=schema).encode())
        await store.fail_job(ended, "failed")
        await submit(store)
        assert await claim() is not None
        await earlier.commit()
        await store.maintain_jobs(MAX_ATTEMPTS, keep_hours=1)
        assert await claim() is not None
