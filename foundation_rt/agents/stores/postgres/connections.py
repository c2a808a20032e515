"""The connections of a ledger to PostgreSQL: limits, settings, and the errors that repeat."""

from __future__ import annotations

from typing import Any

import psycopg
from attrs import frozen

from ....base.database.postgres import PostgresConnections
from .arrays import register

STATEMENT_MS = 5_000
"""The longest that one statement may take, waiting for locks included."""
OPERATION_S = 15.0
"""The longest that one transaction may take, including the writes of handlers."""
CONNECT_S = 5.0
"""Seconds that an operation waits for a connection, for instance while the server restarts."""
ATTEMPTS = 10
"""Most attempts of a transaction that is known not to have happened."""

_RACES = (psycopg.errors.UniqueViolation,)  # another transaction has entered this key

# Every statement is meant to use an index. A plan that was made while a table was empty would scan
# it, and would be kept until the table is next analyzed, a minute and 100,000 records later.
_SETTINGS = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}


@frozen
class Limits:
    """The longest waits, which follow from how long a lease is (AACP-91).

    A process that is stopped loses its locks within a lease, so that others are kept waiting for no
    longer than that.

    Attributes:
        operation_s: of one transaction, including the writes of handlers.
        pause_s: of a pause between two statements of a transaction.
        lock_ms: of one wait for a lock.
    """

    operation_s: float
    pause_s: float
    lock_ms: int

    @classmethod
    def of_lease(cls, lease_ms: int) -> Limits:
        """Return the limits for a lease."""
        return cls(
            operation_s=min(max(lease_ms / 1000, 5.0), OPERATION_S),
            pause_s=min(max(lease_ms / 2000, 1.0), OPERATION_S),
            lock_ms=int(min(max(lease_ms / 10, 100), 1_000)),
        )


def connections_of(
    parameters: dict[str, Any], schema: str, size: int, limits: Limits
) -> PostgresConnections:
    """Return the connections of a ledger, none of which is made yet."""
    return PostgresConnections(
        parameters,
        schema,
        size,
        statement_ms=STATEMENT_MS,
        lock_ms=limits.lock_ms,
        operation_s=limits.operation_s,
        pause_s=limits.pause_s,
        connect_s=CONNECT_S,
        attempts=ATTEMPTS,
        settings=_SETTINGS,
        races=_RACES,
        on_connect=register,
    )
