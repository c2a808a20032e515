"""Records are looked up, put, marked and purged."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from ...ledger.rules import PURGE_BATCH
from ...ledger.types import VOID_PAYLOAD, RequestRecord, RequestState
from .ledger_clock import note_time
from .rows import INSERT_REQUEST, Row, read_requests, request_row


def get_names(connection: sqlite3.Connection) -> tuple[int, str]:
    """Return `incarnation` and `uid` of `AACPPersistenceAdapter`."""
    incarnation, uid = connection.execute("SELECT series, uid FROM ledger").fetchone()
    return int(incarnation), str(uid)


def put_request(connection: sqlite3.Connection, request_id: str, record: RequestRecord) -> None:
    """See `AACPPersistenceAdapter.put_request_record`."""
    connection.execute(f"{INSERT_REQUEST} ON CONFLICT DO NOTHING", request_row(record))


def get_requests(connection: sqlite3.Connection, request_ids: Sequence[str]) -> list[RequestRecord]:
    """See `AACPPersistenceAdapter.get_request_records`."""
    return list(read_requests(connection, request_ids).values())


def mark(
    connection: sqlite3.Connection,
    request_id: str,
    state: RequestState,
    result: bytes | None,
    error: bytes | None,
    now_ms: int,
    completion_ref: str | None,
) -> bool:
    """See `DerivedOperations`."""
    connection.execute(
        "UPDATE requests SET state = ?, result = ?, error = ?, completion_ref = ?,"
        " finished_at_ms = ? WHERE request_id = ? AND state = 'SENT'",
        (state, result, error, completion_ref, now_ms, request_id),
    )
    row = connection.execute("SELECT state FROM requests WHERE request_id = ?", (request_id,))
    return bool(row.fetchone() == (state,))


def purge(connection: sqlite3.Connection, now_ms: int) -> int:
    """See `AACPPersistenceAdapter.purge_expired`."""
    note_time(connection, now_ms)
    expired = (now_ms, PURGE_BATCH)
    statements: tuple[tuple[str, Row], ...] = (
        (
            "DELETE FROM requests WHERE id IN"
            " (SELECT id FROM requests WHERE expires_at_ms <= ? LIMIT ?)",
            expired,
        ),
        (
            "DELETE FROM messages WHERE id IN (SELECT id FROM messages"
            " WHERE expires_at_ms <= ? AND state = 'ACKNOWLEDGED' LIMIT ?)",
            expired,
        ),
        (
            "UPDATE messages SET state = 'TOMBSTONE', payload = ?, next_attempt_at_ms = ?"
            " WHERE id IN (SELECT id FROM messages"
            " WHERE expires_at_ms <= ? AND state = 'PENDING' LIMIT ?)",
            (VOID_PAYLOAD, now_ms, *expired),
        ),
    )
    return sum(connection.execute(sql, values).rowcount for sql, values in statements)
