"""A loop with SKIP LOCKED: jobs are entered, claimed and finished, each step with a commit.

Up to so many units as the third argument says go through the loop together: those that wait.
"""

import asyncio
import sys

import psycopg
from serving import serve

BATCH = int(sys.argv[3])
CONNECTIONS = 16
STATEMENTS = (
    "INSERT INTO job (payload) SELECT '{\"number\": 1}' FROM generate_series(1, %s)",
    "UPDATE job SET state = 'claimed' WHERE id IN (SELECT id FROM job WHERE state = 'new'"
    " ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING id",
    "UPDATE job SET state = 'done', result = payload WHERE id = ANY (%s)",
)
TABLE = """
CREATE TABLE IF NOT EXISTS job (id bigserial PRIMARY KEY, payload jsonb, result jsonb,
    state text NOT NULL DEFAULT 'new');
CREATE INDEX IF NOT EXISTS job_new ON job (id) WHERE state = 'new';
"""
Waiting = list[tuple[float, asyncio.Future[None]]]


async def loop(connection: psycopg.AsyncConnection, waiting: Waiting, more: asyncio.Event) -> None:
    """Do the units that wait, a batch at a time."""
    enter, claim, finish = STATEMENTS
    while True:
        if not waiting:
            more.clear()
            await more.wait()
            continue
        batch, waiting[:] = waiting[:BATCH], waiting[BATCH:]
        await connection.execute(enter, (len(batch),))
        ids: list[int] = []
        while len(ids) < len(batch):  # another may have claimed what was found
            rows = await connection.execute(claim, (len(batch) - len(ids),))
            ids += [number for (number,) in await rows.fetchall()]
        await asyncio.sleep(max(pause for pause, _ in batch))
        await connection.execute(finish, (ids,))
        for _, future in batch:
            future.set_result(None)


async def main() -> None:
    """Serve."""
    waiting: Waiting = []
    more = asyncio.Event()
    loops = []
    for _ in range(CONNECTIONS):
        connection = await psycopg.AsyncConnection.connect(sys.argv[1], autocommit=True)
        connection.prepare_threshold = 0
        if not loops:
            await connection.execute(TABLE, prepare=False)
        loops.append(asyncio.create_task(loop(connection, waiting, more)))

    async def unit(pause: float) -> None:
        future = asyncio.get_running_loop().create_future()
        waiting.append((pause, future))
        more.set()
        await future

    await serve(unit)


asyncio.run(main())
