"""Chats in PostgreSQL, for any number of workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from attrs import define, field

from ....base.database.errors import DatabaseError
from ....base.database.migrations import migrate_postgres, read_migrations
from ....base.database.postgres import PostgresConnections, Query, Row, Transaction, read_url
from . import statements
from .interruption import interrupted
from .operations import (
    DatabaseChatStore,
    ForEach,
    LeaseLapsedError,
    StatementStep,
    Steps,
    begin_turn,
    load,
)
from .postgres_workers import WorkerPresence
from .rows import to_blob
from .store import BegunTurn, Command, SessionSettings, StoreEvents

T = TypeVar("T")

MIGRATIONS: Final = read_migrations("foundation_rt.apps.host.sessions", "migrations/postgres")
_APPLICATION: Final = "the chat host"
_STATEMENT_MS = 4_000
_OPERATION_S = 4.0
"""Shorter than a lease: a worker that is stopped keeps nobody from ending its turns for long."""
_CONNECTIONS = 8


def _queries(step: StatementStep) -> list[Query]:
    """Return the statements of a step, with a column of each as an array where there are rows."""
    queries: list[Query] = []
    for query in step.queries:
        if not isinstance(query, ForEach):
            queries.append(query)
        elif query.rows:
            columns = [list(column) for column in zip(*query.rows, strict=True)]
            queries.append((query.statement, columns))
    return queries


def _read_url(url: str) -> dict[str, Any]:
    return read_url(url, "foundation-rt host")


@define(eq=False, repr=False)
class PostgresChatStore(DatabaseChatStore):
    """Keeps chats in the tables of one schema, for any number of workers.

    A turn belongs to the worker that has begun it, whose lease it renews by the clock of the
    database. When that has lapsed another worker ends the turn (CHAT-22).

    Args:
        url: ``postgresql://user:password@host:port/database``, or another form that libpq takes.
        settings: of sessions.
        schema: lower-case letters, digits and ``_``; it is made, and its tables with it.
        connect_s: how long an operation waits for a connection.
        now: the Unix time, in ms.
    """

    _parameters: dict[str, Any] = field(alias="url", converter=_read_url)
    _settings: SessionSettings = field(factory=SessionSettings)
    _schema: str = field(default="host", kw_only=True)
    _connect_s: float = field(default=2.0, kw_only=True)
    _now: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000, kw_only=True)
    _connections: PostgresConnections | None = field(default=None, init=False)
    _workers: WorkerPresence | None = field(default=None, init=False)

    async def open(self, events: StoreEvents) -> None:
        """See `ChatStore`."""
        self._connections = PostgresConnections(
            self._parameters,
            self._schema,
            _CONNECTIONS,
            statement_ms=_STATEMENT_MS,
            operation_s=_OPERATION_S,
            connect_s=self._connect_s,
        )
        try:
            await migrate_postgres(self._connections, MIGRATIONS, application=_APPLICATION)
            self._workers = WorkerPresence(self._connections, events, self._interrupt)
            await self._workers.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """See `ChatStore`."""
        workers, self._workers = self._workers, None
        if workers is not None:
            await workers.close()
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()

    @property
    def _open(self) -> tuple[PostgresConnections, WorkerPresence]:
        if self._connections is None or self._workers is None:
            raise DatabaseError("the store of chats is not open")
        return self._connections, self._workers

    async def read(self, operation: Callable[[], Steps[T]]) -> T:
        """See `DatabaseChatStore`."""
        connections, steps = self._open[0], operation()
        step = next(steps)
        while True:
            rows = await connections.read(*_queries(step))
            try:
                step = steps.send(rows)
            except StopIteration as end:
                answer: T = end.value
                return answer

    async def transact(self, operation: Callable[[], Steps[T]]) -> T:
        """See `DatabaseChatStore`."""
        connections, workers = self._open

        async def work(transaction: Transaction) -> T:
            steps = operation()
            step = next(steps)
            while True:
                rows = await self._take(transaction, workers, step)
                try:
                    step = steps.send(rows)
                except StopIteration as end:
                    await transaction.rollback()  # of what was not committed
                    answer: T = end.value
                    return answer

        return await connections.transact(work)

    async def _take(
        self, transaction: Transaction, workers: WorkerPresence, step: StatementStep
    ) -> list[list[Row]]:
        queries = _queries(step)
        if not step.commits:
            return await transaction.ask(*queries)
        then = [] if step.changed is None else [workers.tell_changed(step.changed)]
        return await transaction.commit(*queries, then=then)

    async def probe(self) -> None:
        """See `ChatStore`."""
        await self._open[1].renew()

    async def having(self, keys: Collection[bytes], words: str) -> Collection[bytes]:
        """See `ChatStore`."""
        [rows] = await self._open[0].read((statements.HAVING, ([*keys], to_blob(words))))
        return [bytes(key) for (key,) in rows]

    async def begin_turn(self, key: bytes) -> BegunTurn | None:
        """See `ChatStore`."""
        workers = self._open[1]
        while True:
            with suppress(LeaseLapsedError):
                return await self.transact(partial(begin_turn, key, workers.id))
            await workers.renew()  # others would end the turn at once

    async def command(self, key: bytes, command: Command) -> bool:
        """See `ChatStore`."""
        return await self._open[1].command(key, command)

    async def is_watched(self, key: bytes, within_ms: int) -> bool:
        """See `ChatStore`."""
        [rows] = await self._open[0].read((statements.IS_WATCHED, (within_ms / 1000, key)))
        return bool(rows and rows[0][0])

    async def _interrupt(self, key: bytes) -> None:
        """End the turn of a worker that has died (CHAT-22)."""
        stored = await self.read(partial(load, key))
        if stored is not None and stored.head.running is not None:
            turn = stored.head.running
            await self.write(key, interrupted(stored, turn, self._settings, self._now()))
