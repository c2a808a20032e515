"""What a unit of work reads, whenever PostgreSQL last looked at the tables.

The statistics are those of the worst moments: of a ledger at rest, before a backlog comes, so that
the queue counts as empty; and of a backlog that is gone. Or a transaction is open elsewhere, which
keeps the entries of what is gone. Blocks are counted, never time. The server is the tests' own: the
open transaction of another test would do the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from foundation_rt.agents.ledger.request_options import RequestOptions
from foundation_rt.agents.ledger.types import Claiming
from foundation_rt.agents.stores.postgres import PostgresAACPPersistenceAdapter
from tests.agents.stores.contract import LEASE, NOW, completion, outgoing
from tests.lab.places.postgres_server import postgres_server
from tests.lab.places.services import unique_name
from tests.lab.sizes import size
from tests.lab.waiting import until

BACKLOG = size(1_500, 20_000)
DRAINED = 300
PAYLOAD = b'"' + b"x" * 1_000 + b'"'
MOST_BLOCKS = 50
"""Of the table of requests and its indexes, for one request that is claimed and completed."""
PRIORITIES = (0, 0, 7)

KEPT = """
INSERT INTO SCHEMA.request (
    request_id, message_type, source_agent_id, target_agent_id, seq, digest, payload, state,
    created_at_ms, expires_at_ms, position, epoch, finished
)
SELECT 'kept' || n, 'REQUEST', 'a', 'b', n, '', '1', 'COMPLETED', n, 9000000000000, n, 1, true
FROM generate_series(1, 20000) AS n
"""


class Bench:
    """A ledger whose connections plan in one way, and the blocks that they have read."""

    def __init__(self, url: str, schema: str, mode: str) -> None:
        self.url, self.schema = url, schema
        self._options = quote(f"-c plan_cache_mode={mode}")

    async def ask(self, sql: str) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as direct:
            cursor = await direct.execute(sql.replace("SCHEMA", self.schema).encode())
            return await cursor.fetchall() if cursor.description else []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[PostgresAACPPersistenceAdapter]:
        """Yield the ledger; what its connections have read counts when they have ended."""
        join = "&" if "?" in self.url else "?"
        name = f"application_name={self.schema}"
        store = PostgresAACPPersistenceAdapter(
            f"{self.url}{join}{name}&options={self._options}", schema=self.schema
        )
        await store.open()
        try:
            yield store
        finally:
            await store.close()
        left = f"SELECT FROM pg_stat_activity WHERE application_name = '{self.schema}'"
        gone = f"SELECT 1 WHERE NOT EXISTS ({left})"
        await until(lambda: self.ask(gone), "its connections have ended")

    async def blocks(self) -> int:
        """Return the blocks of the requests and their indexes that were read so far."""
        [[count]] = await self.ask(
            "SELECT coalesce(sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read), 0)"
            " FROM pg_statio_all_tables WHERE schemaname = 'SCHEMA' AND relname = 'request'"
        )
        return int(count)

    async def enter(self) -> None:
        async with self.open() as store:
            for first in range(0, BACKLOG, 100):
                ids = range(first, first + 100)
                await store.append([outgoing(f"r{each}", payload=PAYLOAD) for each in ids], NOW)

    async def drain(self) -> None:
        async with self.open() as store:
            for _ in range(0, DRAINED, 5):
                claims = (await store.claim(Claiming({"b": 5}, "me", NOW + LEASE), NOW)).claims
                assert len(claims) == 5
                await store.complete([completion(each) for each in claims], NOW)

    async def work(self, store: PostgresAACPPersistenceAdapter, units: range) -> float:
        """Enter, claim and complete; return the blocks for each request."""
        before = await self.blocks()
        for first in range(units.start, units.stop, len(PRIORITIES)):
            entered = [
                outgoing(f"r{first + n}", options=RequestOptions(None, priority, None))
                for n, priority in enumerate(PRIORITIES)
            ]
            await store.append(entered, NOW)
            for _ in PRIORITIES:
                [claim] = (await store.claim(Claiming({"b": 1}, "me", NOW + LEASE), NOW)).claims
                await store.complete([completion(claim)], NOW)
        await store._ask(("SELECT pg_stat_force_next_flush()", ()))
        await store.read_time()
        return (await self.blocks() - before) / len(units)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Run a server that nobody else uses."""
    with postgres_server() as server:
        yield server.url


@pytest.mark.rule("AACP-168")
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("analyzed", ["empty", "at rest", "with a backlog"])
async def test_unit_of_work_reads_a_few_blocks(url: str, mode: str, analyzed: str) -> None:
    bench = Bench(url, unique_name(), mode)
    async with bench.open():
        pass
    await bench.ask("ALTER TABLE SCHEMA.request SET (autovacuum_enabled = off)")
    if analyzed == "at rest":
        await bench.ask(KEPT)
    if analyzed == "with a backlog":
        await bench.enter()
    await bench.ask("VACUUM ANALYZE SCHEMA.request")
    if analyzed != "with a backlog":
        await bench.enter()
    before = await bench.blocks()
    await bench.drain()
    blocks = await bench.blocks() - before
    assert blocks / DRAINED <= MOST_BLOCKS


@pytest.mark.rule("AACP-172")
async def test_queue_begins_behind_what_an_open_transaction_keeps(url: str) -> None:
    bench = Bench(url, unique_name(), "force_generic_plan")
    async with bench.open() as store, await psycopg.AsyncConnection.connect(url) as dump:
        await dump.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await dump.execute("SELECT 1")
        later = size(600, 18_000)
        await bench.work(store, range(600))  # until the indexes are as deep as later
        first = await bench.work(store, range(600, 900))
        await bench.work(store, range(900, 900 + later))
        last = await bench.work(store, range(900 + later, 1_200 + later))
        assert last <= 1.3 * first
