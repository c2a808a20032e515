"""The tables of a file: made by its migrations, and compared with what those make.

Times in their rows are text of one length, so that they sort as they are: RFC 3339 in UTC with
milliseconds.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import orjson

from .....base.database.migrations import (
    MigrationReport,
    check_sqlite,
    migrate_sqlite,
    read_migrations,
)
from .....errors import UsageError

APPLICATION = "the task server"
APPLICATION_ID = 0x4D545352  # "MTSR"

_CACHE_KIB = 16_384
"""Pages that the connection keeps: more than the inner pages of every index of a million tasks."""


def prepare(connection: sqlite3.Connection, path: str, migrate: bool) -> None:
    """Bring the tables to the newest version, or see that they have it.

    Raises:
        UsageError: the file is another's, newer, not migrated, or its tables differ.
        sqlite3.Error: a migration failed, and nothing of it has happened.
    """
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    if not migrate:
        verify(path)
        return
    migrate_sqlite(
        connection,
        path,
        read_migrations(__package__.rpartition(".")[0], "migrations/sqlite"),
        application=APPLICATION,
        application_id=APPLICATION_ID,
    )


def verify(path: str) -> None:
    """Raise unless the tables are those of the newest version; change nothing.

    Raises:
        UsageError: the file is missing, another's, newer, not migrated, or its tables differ; or it
            cannot be read.
    """
    if not Path(path).exists():
        raise UsageError(f"there is no file {path}: migrate makes it")
    try:
        report = check(path)
    except sqlite3.Error as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    if report.pending:
        raise UsageError(f"{path} is not migrated: it lacks {', '.join(report.pending)}")
    if report.differences:
        raise UsageError(f"{path} has other tables: {'; '.join(report.differences)}")


def check(path: str | os.PathLike[str]) -> MigrationReport:
    """Report what `prepare` would migrate, and how the tables differ; change nothing.

    Raises:
        UsageError: the file is another's or newer, or a migration was changed.
        sqlite3.Error: the file cannot be read.
    """
    return check_sqlite(
        os.fspath(path),
        read_migrations(__package__.rpartition(".")[0], "migrations/sqlite"),
        application=APPLICATION,
        application_id=APPLICATION_ID,
    )


# -- values -------------------------------------------------------------------------------------

MAX_ID = 2**63 - 1

_TIME = "%Y-%m-%dT%H:%M:%fZ"


def now(connection: sqlite3.Connection) -> str:
    """Return the time of the database."""
    [time] = connection.execute(f"SELECT strftime('{_TIME}', 'now')").fetchone()
    return str(time)


def later(connection: sqlite3.Connection, time: str, seconds: float) -> str:
    """Return the time that is `seconds` after another one; they may be negative."""
    [moved] = connection.execute(
        f"SELECT strftime('{_TIME}', ?, ?)", (time, f"{seconds:+.3f} seconds")
    ).fetchone()
    return str(moved)


def ids_json(ids: Iterable[int]) -> str:
    """Return ids as ``json_each`` takes them, without those that no row can have."""
    return orjson.dumps([each for each in ids if 0 < each <= MAX_ID]).decode()
