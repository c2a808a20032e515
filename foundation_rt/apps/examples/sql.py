"""SQL over a SQLite file: read only, with parameters, at most 200 rows.

::

    SHOP_DATABASE=shop.db foundation-rt serve foundation_rt.examples.sql

The model writes the SQL, so the database does not trust it: the file is opened read only, SQLite
itself refuses everything but reading, and a query is interrupted when its time is over.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from attrs import frozen

from foundation_rt import ErrorCode, Server, ToolContext, ToolError

MAX_ROWS = 200
_STEPS = 10_000
"""Steps of SQLite's machine between two looks at the deadline."""

Cell = str | int | float | None

server = Server("sql", version="1.0.0", instructions="Look at the tables before you query them.")


@frozen
class Rows:
    """The result of a query.

    Attributes:
        columns: their names.
        rows: at most 200.
        is_cut: whether the query has more rows.
    """

    columns: list[str]
    rows: list[list[Cell]]
    is_cut: bool


@contextmanager
def opened(context: ToolContext | None = None) -> Generator[sqlite3.Connection, None, None]:
    """Open the file read only; stop queries of a call that is over."""
    path = Path(os.environ.get("SHOP_DATABASE", "shop.db")).resolve()
    try:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    except sqlite3.OperationalError as error:
        raise ToolError(ErrorCode.NOT_FOUND, f"The database cannot be opened: {error}.") from error
    with closing(connection):
        connection.execute("PRAGMA query_only = ON")
        if context is not None:
            signal = context.abort_signal
            connection.set_progress_handler(lambda: int(signal.aborted), _STEPS)
        yield connection


@server.resource("sql://tables")
def tables() -> dict[str, str]:
    """Return the tables, and the SQL that made them."""
    with opened() as connection:
        found = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        return dict(found.fetchall())


@server.tool
def list_tables() -> dict[str, str]:
    """List the tables, and the SQL that made them."""
    return tables()


@server.tool(output_schema=True, timeout_ms=5000)
def query(
    sql: str, context: ToolContext, parameters: list[str | int | float] | None = None
) -> Rows:
    """Run one SELECT.

    Args:
        sql: One statement, with ? for each value.
        parameters: The values, in order.
    """
    with opened(context) as connection:
        try:
            cursor = connection.execute(sql, parameters or [])
            found = cursor.fetchmany(MAX_ROWS + 1)
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise ToolError(ErrorCode.INVALID_ARGUMENT, f"SQLite: {error}.") from error
        columns = [each[0] for each in cursor.description or ()]
        return Rows(columns, [readable(row) for row in found[:MAX_ROWS]], len(found) > MAX_ROWS)


def readable(row: Sequence[Any]) -> list[Cell]:
    """Return a row without bytes, which have no form in JSON."""
    return [f"<{len(each)} bytes>" if isinstance(each, bytes) else each for each in row]


if __name__ == "__main__":
    server.run()
