"""A loop with SKIP LOCKED: a job is entered, claimed and finished, each with a commit."""

import asyncio
import sys

import psycopg
from serving import serve

CONNECTIONS = 16
STATEMENTS = (
    "INSERT INTO job (payload) VALUES ('{\"number\": 1}')",
    "UPDATE job SET state = 'claimed' WHERE id = (SELECT id FROM job WHERE state = 'new'"
    " ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id",
    "UPDATE job SET state = 'done', result = payload WHERE id = %s",
)
TABLE = """
CREATE TABLE IF NOT EXISTS job (id bigserial PRIMARY KEY, payload jsonb, result jsonb,
    state text NOT NULL DEFAULT 'new');
CREATE INDEX IF NOT EXISTS job_new ON job (id) WHERE state = 'new';
"""


async def main() -> None:
    """Serve."""
    free: asyncio.Queue[psycopg.AsyncConnection] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        connection = await psycopg.AsyncConnection.connect(sys.argv[1], autocommit=True)
        connection.prepare_threshold = 0
        free.put_nowait(connection)
    await connection.execute(TABLE, prepare=False)
    enter, claim, finish = STATEMENTS

    async def unit() -> None:
        connection = await free.get()
        await connection.execute(enter)
        row = None
        while row is None:  # another may have claimed what was found
            row = await (await connection.execute(claim)).fetchone()
        await connection.execute(finish, row)
        free.put_nowait(connection)

    await serve(unit)


asyncio.run(main())
