"""The connections of a ledger to PostgreSQL: limits, settings, and the errors that repeat."""

from __future__ import annotations

from typing import Any

import psycopg

from ....database.postgres import PostgresConnections
from .arrays import register

STATEMENT_MS = 5_000
"""The longest that one statement may take, waiting for locks included."""
OPERATION_S = 15.0
"""The longest that one transaction may take, including the writes of handlers."""
CONNECT_S = 5.0
"""Seconds that an operation waits for a connection, for instance while the server restarts."""
ATTEMPTS = 10
"""Most attempts of a transaction that is known not to have happened."""

_RACES = (
    psycopg.errors.UniqueViolation,  # another transaction has entered this key
    psycopg.errors.DivisionByZero,  # `statements.claim`: not all that was chosen is still there
)

# Every statement is meant to use an index. A plan that was made while a table was empty would scan
# it, and would be kept until the table is next analyzed, a minute and 100,000 records later.
_SETTINGS = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}


def connections_of(parameters: dict[str, Any], schema: str, size: int) -> PostgresConnections:
    """Return the connections of a ledger, none of which is made yet."""
    return PostgresConnections(
        parameters,
        schema,
        size,
        statement_ms=STATEMENT_MS,
        operation_s=OPERATION_S,
        connect_s=CONNECT_S,
        attempts=ATTEMPTS,
        settings=_SETTINGS,
        races=_RACES,
        on_connect=register,
    )
