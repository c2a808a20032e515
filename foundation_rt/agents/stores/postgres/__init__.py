"""A ledger in PostgreSQL: shared by any number of processes, durable as the server is.

    adapter      the operations, each one transaction
    sheet        what a batch works on: read under locks, changed by the rules, written in sets
    statements   the SQL
    migrations   the tables, version by version
    connections  few connections, transactions that are repeated while that is safe
    listening    hears that others have changed something
    arrays       columns of a batch as PostgreSQL takes them

Needs the extra `postgres` (psycopg 3).
"""

from __future__ import annotations

from ....errors import MissingExtraError

try:
    import psycopg as _psycopg  # noqa: F401 - only to know whether it is there
except ImportError:
    raise MissingExtraError("A ledger in PostgreSQL", "postgres") from None

from .adapter import PostgresAACPPersistenceAdapter

__all__ = ["PostgresAACPPersistenceAdapter"]
