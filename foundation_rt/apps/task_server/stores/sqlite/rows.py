"""The form of values in the rows of a file.

Times are text of one length, so that they sort as they are: RFC 3339 in UTC with milliseconds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import orjson

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
