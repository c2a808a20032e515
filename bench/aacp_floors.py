"""The floors of AACP: what its writes cost when nothing but the writes is done.

A request is written three times: it is entered, with the counters of its link and its queue; it is
claimed; its outcome is recorded. A floor does the same statements on the same tables through the
same client library, in groups of the size that was seen above it, and reads, decides and hands over
nothing. Different groups are at different stages at the same time, as they are under load: in
SQLite one transaction has a group at each stage, in PostgreSQL each stage has a connection.

In memory there is no engine: there the floor is what asyncio needs to hand a request to an agent
and the result back.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import psycopg
from attrs import define, field

from bench.aacp_load import (
    AGENTS,
    CLIENTS,
    MESSAGE,
    POSTGRES_URL,
    do_nothing,
    new_name,
    new_schema,
)
from foundation_rt.agents import PostgresAACPPersistenceAdapter, SqliteAACPPersistenceAdapter
from foundation_rt.agents.ledger.session_manager import LinkState
from foundation_rt.agents.ledger.types import Claiming, MessageType, RequestRecord, RequestState
from foundation_rt.agents.stores.postgres import statements
from foundation_rt.agents.stores.postgres.arrays import register
from foundation_rt.base.database.sqlite.files import connect

_SOURCE, _OWNER = "host", "floor"
_PAYLOAD = b'{"payload":{"number":1},"type":"work"}'
_NOW_MS, _LATER_MS = 1_700_000_000_000, 9_000_000_000_000


class Floor(Protocol):
    """One engine, ready."""

    async def one(self) -> None:
        """Write a request alone, one stage after another, each for good before the next."""

    async def many(self, requests: int, group: int) -> None:
        """Write so many requests in groups."""


def _new_requests(first: int, count: int) -> list[RequestRecord]:
    """Make records as they are entered, numbered from `first` on, with their outcome."""
    return [
        RequestRecord(
            str(uuid4()),
            MessageType.REQUEST,
            _SOURCE,
            AGENTS[number % len(AGENTS)],
            number,
            b"0123456789abcdef",
            _PAYLOAD,
            RequestState.RECEIVED,
            _NOW_MS,
            _LATER_MS,
            position=number,
        )
        for number in range(first, first + count)
    ]


# -- in memory ----------------------------------------------------------------------------------


@define(eq=False)
class _Queues:
    """A queue and a task for each agent, a future for each request."""

    queues: list[asyncio.Queue[asyncio.Future[None]]]

    async def one(self) -> None:
        await self._request(0)

    async def many(self, requests: int, group: int) -> None:
        left = iter(range(requests))

        async def client() -> None:
            for number in left:
                await self._request(number)

        await asyncio.gather(*(client() for _ in range(CLIENTS)))

    async def _request(self, number: int) -> None:
        future = asyncio.get_running_loop().create_future()
        self.queues[number % len(self.queues)].put_nowait(future)
        await future


@asynccontextmanager
async def queues(folder: Path) -> AsyncIterator[Floor]:
    """Agents without anything around them."""

    async def agent(queue: asyncio.Queue[asyncio.Future[None]]) -> None:
        while True:
            future = await queue.get()
            await do_nothing(MESSAGE, None)  # type: ignore[arg-type]
            future.set_result(None)

    floor = _Queues([asyncio.Queue() for _ in AGENTS])
    tasks = [asyncio.create_task(agent(queue)) for queue in floor.queues]
    yield floor
    for task in tasks:
        task.cancel()


# -- SQLite -------------------------------------------------------------------------------------

_COLUMNS = (
    "request_id, message_type, source_agent_id, target_agent_id, seq, digest, payload, state,"
    " created_at_ms, expires_at_ms, by_message, position, epoch, executions"
)
_INSERT = f"INSERT INTO requests ({_COLUMNS}) VALUES ({', '.join('?' * 14)})"
_COUNT_LINK = (
    "INSERT INTO links"
    " (source_agent_id, target_agent_id, last_seq, acked, contiguous, ahead,"
    " series)"
    " VALUES (?1, ?2, ?3, ?3, ?3, '[]', 1)"
    " ON CONFLICT (source_agent_id, target_agent_id) DO UPDATE SET last_seq = excluded.last_seq,"
    " acked = excluded.acked, contiguous = excluded.contiguous,"
    " ahead = excluded.ahead"
)
_CLAIM = (
    "UPDATE requests SET state = 'CLAIMED', epoch = epoch + 1,"
    " executions = executions + 1, owner = ?, lease_until_ms = ?,"
    " not_before_ms = NULL WHERE finished_at_ms IS NULL AND target_agent_id = ? AND position = ?"
)
_FINISH = (
    "UPDATE requests SET state = 'COMPLETED', owner = NULL, lease_until_ms = NULL, result = ?,"
    " finished_at_ms = ? WHERE request_id = ?"
)


@define(eq=False)
class _Sqlite:
    connection: sqlite3.Connection
    _last: int = field(default=0, init=False)

    async def one(self) -> None:
        with self._transaction():
            requests = self._enter(1)
        with self._transaction():
            self._claim(requests)
        with self._transaction():
            self._finish(requests)

    async def many(self, requests: int, group: int) -> None:
        entered: list[RequestRecord] = []
        claimed: list[RequestRecord] = []
        while requests > 0 or entered or claimed:
            with self._transaction():
                self._finish(claimed)
                self._claim(entered)
                claimed, entered = entered, self._enter(min(group, requests))
            requests -= group

    @contextmanager
    def _transaction(self) -> Any:
        self.connection.execute("BEGIN IMMEDIATE")
        yield
        self.connection.execute("COMMIT")

    def _enter(self, count: int) -> list[RequestRecord]:
        if count <= 0:
            return []
        requests = _new_requests(self._last + 1, count)
        self._last += count
        rows = [
            (
                *(each.request_id, "REQUEST", each.source_agent_id, each.target_agent_id),
                *(each.seq, each.digest, each.payload, "RECEIVED", each.created_at_ms),
                *(each.expires_at_ms, False, each.position, 0, 0),
            )
            for each in requests
        ]
        self.connection.executemany(_INSERT, rows)
        links = {each.target_agent_id: each.seq for each in requests}
        counters = [(_SOURCE, agent_id, seq) for agent_id, seq in links.items()]
        self.connection.executemany(_COUNT_LINK, counters)
        self.connection.execute("UPDATE positions SET last = ?", (self._last,))
        return requests

    def _claim(self, requests: Sequence[RequestRecord]) -> None:
        rows = [(_OWNER, _LATER_MS, each.target_agent_id, each.position) for each in requests]
        self.connection.executemany(_CLAIM, rows)

    def _finish(self, requests: Sequence[RequestRecord]) -> None:
        rows = [(b"null", _NOW_MS, each.request_id) for each in requests]
        self.connection.executemany(_FINISH, rows)


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[Floor]:
    """Make a file with our tables and settings."""
    path = folder / new_name()
    ledger = SqliteAACPPersistenceAdapter(path)
    await ledger.open()
    await ledger.close()
    connection = connect(str(path), 5.0, alone=True, private=False, exclusive=False)
    yield _Sqlite(connection)
    connection.close()


# -- PostgreSQL ---------------------------------------------------------------------------------

_Query = tuple[str, Any]
_BEGIN, _COMMIT = ("BEGIN", ()), ("COMMIT", ())


@define(eq=False)
class _Postgres:
    schema: str
    connections: list[psycopg.AsyncConnection[Any]]
    _last: int = field(default=0, init=False)

    async def one(self) -> None:
        requests = self._new(1)
        for write in (self._enter, self._claim, self._finish):
            await write(requests)

    async def many(self, requests: int, group: int) -> None:
        sizes = [min(group, requests - done) for done in range(0, requests, group)]
        stages = [asyncio.Queue[list[RequestRecord]]() for _ in range(4)]
        for size in sizes:
            stages[0].put_nowait(self._new(size))

        async def work(write: Callable[[list[RequestRecord]], Awaitable[None]], stage: int) -> None:
            for _ in sizes:
                batch = await stages[stage].get()
                await write(batch)
                stages[stage + 1].put_nowait(batch)

        writes = (self._enter, self._claim, self._finish)
        await asyncio.gather(*(work(write, stage) for stage, write in enumerate(writes)))

    def _new(self, count: int) -> list[RequestRecord]:
        requests = _new_requests(self._last + 1, count)
        self._last += count
        return requests

    async def _enter(self, requests: list[RequestRecord]) -> None:
        last = {each.target_agent_id: each.seq for each in requests}
        links = {(_SOURCE, each): LinkState(seq, seq, seq, set()) for each, seq in last.items()}
        await self._write(
            0,
            statements.ADD_REQUESTS.of_records(requests),
            statements.write_links(links),
            statements.WRITE_QUEUES.of(last.items()),
        )

    async def _claim(self, requests: list[RequestRecord]) -> None:
        place: Counter[str] = Counter()
        chosen = []
        for each in requests:
            place[each.target_agent_id] += 1
            chosen.append((each.request_id, 0, False, place[each.target_agent_id]))
        claiming = Claiming(owner=_OWNER, lease_until_ms=_LATER_MS)
        await self._write(1, statements.claim(chosen, claiming, _NOW_MS, is_quiet=False))

    async def _finish(self, requests: list[RequestRecord]) -> None:
        for each in requests:
            each.state, each.result, each.finished_at_ms = RequestState.COMPLETED, b"null", _NOW_MS
        await self._write(2, statements.FINISH.of_records(requests))

    async def _write(self, stage: int, *queries: _Query) -> None:
        connection = self.connections[stage]
        async with connection.pipeline():
            for statement, parameters in (_BEGIN, *queries, _COMMIT):
                sql = statement.replace("{schema}", self.schema).encode()
                await connection.execute(sql, parameters or None, prepare=True, binary=True)


@asynccontextmanager
async def postgres(folder: Path) -> AsyncIterator[Floor]:
    """Make a schema with our tables, and a connection for each stage."""
    async with new_schema() as schema:
        ledger = PostgresAACPPersistenceAdapter(POSTGRES_URL, schema=schema)
        await ledger.open()
        await ledger.close()
        connections = []
        for _ in range(3):
            connection = await psycopg.AsyncConnection.connect(POSTGRES_URL, autocommit=True)
            await connection.execute("SET plan_cache_mode = force_generic_plan")
            await connection.execute("SET enable_seqscan = off")
            register(connection)
            connections.append(connection)
        floor = _Postgres(schema, connections)
        links = [(_SOURCE, agent_id) for agent_id in AGENTS]
        await floor._write(0, *statements.make_rows(links, AGENTS))
        yield floor
        for connection in connections:
            await connection.close()


# -- measured -----------------------------------------------------------------------------------


async def latencies(floor: Floor, requests: int) -> list[float]:
    """Seconds that each of so many requests took, one after the other."""
    seconds = []
    for _ in range(requests):
        started = time.perf_counter()
        await floor.one()
        seconds.append(time.perf_counter() - started)
    return seconds


async def rate(floor: Floor, requests: int, group: int) -> float:
    """Measure requests per second, in groups."""
    started = time.perf_counter()
    await floor.many(requests, group)
    return requests / (time.perf_counter() - started)
