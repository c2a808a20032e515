"""Chats in a SQLite file, for one process."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable, Collection
from functools import lru_cache, partial
from typing import Final, TypeVar

from attrs import define, field

from ....base.database.migrations import migrate_sqlite, read_migrations
from ....base.database.sqlite import SqliteDatabase
from ....errors import UsageError
from . import statements
from .interruption import interrupted
from .operations import (
    DatabaseChatStore,
    ForEach,
    Query,
    Steps,
    ask,
    begin_turn,
    load,
    write,
)
from .rows import read_turn, to_blob
from .store import BegunTurn, SessionSettings, StoreEvents

T = TypeVar("T")

MIGRATIONS: Final = read_migrations("foundation_rt.apps.host.sessions", "migrations/sqlite")
_APPLICATION: Final = "the chat host"
_APPLICATION_ID: Final = 0x46524348  # "FRCH"
# As ON DELETE CASCADE does in PostgreSQL.
_CASCADE = """
CREATE TEMP TRIGGER chat_deleted AFTER DELETE ON main.chat BEGIN
    DELETE FROM chat_message WHERE chat = old.id;
    DELETE FROM chat_event WHERE chat = old.id;
    DELETE FROM chat_turn WHERE chat = old.id;
END
"""
_TRANSLATED = re.compile(r"\{schema\}\.|%\((\w+)\)b|%b|::\w+| FOR UPDATE( SKIP LOCKED)?")


@lru_cache
def _sql(statement: str) -> str:
    """Return a statement of `statements` as SQLite takes it."""

    def translated(part: re.Match[str]) -> str:
        return f":{part[1]}" if part[1] else "?" if part[0] == "%b" else ""

    return statements.SQLITE.get(statement) or _TRANSLATED.sub(translated, statement)


def _execute(connection: sqlite3.Connection, query: Query | ForEach) -> list[tuple[object, ...]]:
    if isinstance(query, ForEach):
        connection.executemany(_sql(query.statement), query.rows)
        return []
    statement, parameters = query
    return connection.execute(_sql(statement), parameters).fetchall()


def _perform(operation: Callable[[], Steps[T]], connection: sqlite3.Connection) -> T:
    """Perform an operation in the thread of the database, in the transaction that it has there."""
    steps = operation()
    step = next(steps)
    while True:
        try:
            step = steps.send([_execute(connection, query) for query in step.queries])
        except StopIteration as end:
            answer: T = end.value
            return answer


def _turn_id(body: bytes | None) -> str | None:
    return None if body is None else read_turn(body).turn_id


def _probe(connection: sqlite3.Connection, now: int) -> None:
    connection.execute("INSERT OR REPLACE INTO probe (id, at) VALUES (1, ?)", (now,))


def _has(key: bytes, words: bytes) -> Steps[bool]:
    [rows] = yield ask((statements.HAS, (key, words)))
    return bool(rows)


def _interrupt_one(settings: SessionSettings, now: int) -> Steps[bool]:
    """End the turn of one chat in which one runs; return whether there was one."""
    [rows] = yield ask((statements.RUNNING, ()))
    if not rows:
        return False
    [(key,)] = rows
    stored = yield from load(key)
    assert stored is not None
    turn = stored.head.running
    assert turn is not None
    yield from write(key, interrupted(stored, turn, settings, now))
    return True


@define(eq=False)
class SqliteChatStore(DatabaseChatStore):
    """Keeps chats in one file, with mode 0600, in a folder with mode 0700.

    One process uses it. Turns that ran when the one before it died are ended when it is opened.

    Args:
        path: of the file.
        settings: of sessions.
        now: the Unix time, in ms.
    """

    path: str | os.PathLike[str]
    _settings: SessionSettings = field(factory=SessionSettings)
    _now: Callable[[], int] = field(default=lambda: time.time_ns() // 1_000_000, kw_only=True)
    database: SqliteDatabase = field(init=False)

    @database.default
    def _its_database(self) -> SqliteDatabase:
        return SqliteDatabase(self.path, private=True, prepare=self._prepare)

    def _prepare(self, connection: sqlite3.Connection, alone: bool) -> None:
        if not alone:
            raise UsageError(
                f"{self.database.path} is used by another process: stop it, or let several"
                " workers use PostgreSQL"
            )
        migrate_sqlite(
            connection,
            self.database.path,
            MIGRATIONS,
            application=_APPLICATION,
            application_id=_APPLICATION_ID,
        )
        connection.execute(_CASCADE)
        connection.create_function("turn_id", 1, _turn_id, deterministic=True)

    async def open(self, events: StoreEvents) -> None:
        """See `ChatStore`."""
        await self.database.open()
        interrupt = partial(_perform, lambda: _interrupt_one(self._settings, self._now()))
        try:
            while await self.database.write(interrupt, alone=True):
                pass
        except BaseException:
            await self.database.close()
            raise

    async def close(self) -> None:
        """See `ChatStore`."""
        await self.database.close()

    async def read(self, operation: Callable[[], Steps[T]]) -> T:
        """See `DatabaseChatStore`."""
        return await self.database.read(partial(_perform, operation))

    async def transact(self, operation: Callable[[], Steps[T]]) -> T:
        """See `DatabaseChatStore`."""
        return await self.database.write(partial(_perform, operation))

    async def probe(self) -> None:
        """See `ChatStore`."""
        await self.database.write(partial(_probe, now=self._now()))

    async def begin_turn(self, key: bytes) -> BegunTurn | None:
        """See `ChatStore`."""
        return await self.transact(lambda: begin_turn(key, None))

    async def having(self, keys: Collection[bytes], words: str) -> Collection[bytes]:
        """See `ChatStore`; one at a time, so that others wait for none of them for long."""
        blob = to_blob(words)
        return [key for key in keys if await self.read(partial(_has, key, blob))]
