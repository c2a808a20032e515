"""Logins in a SQLite file, for the workers of one machine."""

from __future__ import annotations

import sqlite3
import time

from attrs import define, field

from ...base.database.errors import DatabaseError
from ...base.database.sqlite import SqliteDatabase
from .store import unavailable_after

_TABLE = """
CREATE TABLE IF NOT EXISTS logins (
    key TEXT PRIMARY KEY, value TEXT NOT NULL, ends_ms INTEGER NOT NULL
) WITHOUT ROWID, STRICT
"""
_INDEX = "CREATE INDEX IF NOT EXISTS logins_ends ON logins (ends_ms)"
_GET = "SELECT value FROM logins WHERE key = ? AND ends_ms > ?"
_DELETE = "DELETE FROM logins WHERE key = ?"
_PURGE = (
    "DELETE FROM logins WHERE key IN (SELECT key FROM logins WHERE ends_ms <= ? "
    "ORDER BY ends_ms LIMIT 100)"
)
_PUT = "INSERT OR REPLACE INTO logins (key, value, ends_ms) VALUES (?, ?, ?)"


@define(eq=False, repr=False)
class SqliteStore:
    """A `LoginStore` in a file that only its owner may read."""

    _path: str
    _database: SqliteDatabase = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._database = SqliteDatabase(self._path, private=True, prepare=_prepare)

    async def start(self) -> None:
        """See `LoginStore`."""
        await self._database.open()

    async def close(self) -> None:
        """See `LoginStore`."""
        await self._database.close()

    async def get(self, key: str) -> str | None:
        """See `LoginStore`."""
        with unavailable_after(DatabaseError):
            return await self._database.read(lambda it: _value(it, key), quick=True)

    async def swap(self, key: str, old: str | None, new: str, ttl_ms: int) -> bool:
        """See `LoginStore`."""

        def run(connection: sqlite3.Connection) -> bool:
            if _value(connection, key) != old:
                return False
            now = _now_ms()
            connection.execute(_PURGE, (now,))
            connection.execute(_PUT, (key, new, now + ttl_ms))
            return True

        with unavailable_after(DatabaseError):
            return await self._database.write(run)

    async def delete(self, key: str) -> None:
        """See `LoginStore`."""
        with unavailable_after(DatabaseError):
            await self._database.write(lambda it: it.execute(_DELETE, (key,)).rowcount)


def _prepare(connection: sqlite3.Connection, alone: bool) -> None:
    connection.execute(_TABLE)
    connection.execute(_INDEX)


def _value(connection: sqlite3.Connection, key: str) -> str | None:
    row = connection.execute(_GET, (key, _now_ms())).fetchone()
    return None if row is None else str(row[0])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
