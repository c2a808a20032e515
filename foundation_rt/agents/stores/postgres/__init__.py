"""A ledger in PostgreSQL, shared by any number of processes and as durable as the server.

    adapter         the operations, each one transaction
    working_set     loading a unit of work under locks, and flushing it in sets
    outcome_writes  the writes of handlers in the transaction of their outcomes
    statements      the SQL
    queue_floors    the positions from which claims read a queue
    migrations      the tables, version by version
    connections     the limits and settings of its connections
    arrays          columns of a batch as PostgreSQL takes them

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
