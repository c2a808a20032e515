"""Records are looked up, put, sent again and purged."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import orjson

from ....errors import StructuredError
from ...ledger.types import (
    MESSAGE_STATES,
    VOID_PAYLOAD,
    Due,
    Envelope,
    Link,
    MessageRecord,
    Outcome,
    RequestRecord,
    RequestState,
)
from ...persistence import RetryDecision
from .. import records
from .rows import (
    INSERT_MESSAGE,
    INSERT_REQUEST,
    IS_OUTBOUND,
    LOW_WATERMARK,
    MESSAGE,
    REQUEST,
    Row,
    message_row,
    read_link,
    read_requests,
    request_row,
)


def take_due(connection: sqlite3.Connection, now_ms: int, limit: int, decide: RetryDecision) -> Due:
    """See `AACPPersistenceAdapter`."""
    due = Due([], [], None)
    rows = connection.execute(
        f"SELECT {MESSAGE}, {LOW_WATERMARK} FROM messages AS m WHERE next_attempt_at_ms <= ?"
        " ORDER BY next_attempt_at_ms, message_id LIMIT ?",
        (now_ms, limit),
    ).fetchall()
    for *row, low_watermark in rows:
        records.retry(records.message_of(row), low_watermark, now_ms, decide, due)
    connection.executemany(
        "UPDATE messages SET state = ?, payload = ?, attempts = ?, next_attempt_at_ms = ?"
        " WHERE message_id = ?",
        [
            (
                message.state._value_,
                message.payload,
                message.attempts,
                message.next_attempt_at_ms,
                message.message_id,
            )
            for message in due.messages
        ],
    )
    [due.next_at_ms] = connection.execute(
        "SELECT min(next_attempt_at_ms) FROM messages WHERE next_attempt_at_ms IS NOT NULL"
    ).fetchone()
    return due


def reschedule(
    connection: sqlite3.Connection, message_id: str, at_ms: int, give_up: bool
) -> MessageRecord | None:
    """See `AACPPersistenceAdapter`."""
    void = ("TOMBSTONE", VOID_PAYLOAD) if give_up else (None, None)
    changed = connection.execute(
        "UPDATE messages SET state = ifnull(?, state), payload = ifnull(?, payload),"
        f" next_attempt_at_ms = ? WHERE message_id = ? AND {IS_OUTBOUND}",
        (*void, at_ms, message_id),
    )
    return get_message(connection, message_id) if changed.rowcount else None


# -- records --------------------------------------------------------------------------------------


def put_request(connection: sqlite3.Connection, record: RequestRecord) -> None:
    """See `AACPPersistenceAdapter.put_request_record`."""
    connection.execute(f"{INSERT_REQUEST} ON CONFLICT DO NOTHING", request_row(record))


def put_message(connection: sqlite3.Connection, record: MessageRecord) -> None:
    """See `AACPPersistenceAdapter.put_message_record`."""
    put = connection.execute(f"{INSERT_MESSAGE} ON CONFLICT DO NOTHING", message_row(record))
    if put.rowcount == 1:
        update_last_seq(connection, (record.source_agent_id, record.target_agent_id), record.seq)


def get_requests(connection: sqlite3.Connection, ids: Sequence[str]) -> list[RequestRecord]:
    """See `AACPPersistenceAdapter.get_request_records`."""
    return list(read_requests(connection, ids).values())


def get_message(connection: sqlite3.Connection, message_id: str) -> MessageRecord | None:
    """See `AACPPersistenceAdapter.get_message_record`."""
    row = connection.execute(
        f"SELECT {MESSAGE} FROM messages WHERE message_id = ?", (message_id,)
    ).fetchone()
    return None if row is None else records.message_of(row)


def mark_completed(
    connection: sqlite3.Connection,
    request_id: str,
    result: bytes | None,
    now_ms: int,
    completion_ref: str | None,
) -> bool:
    """See `AACPPersistenceAdapter`."""
    connection.execute(
        "UPDATE requests SET state = 'COMPLETED', result = ?, completion_ref = ?,"
        " finished_at_ms = ? WHERE request_id = ? AND state = 'SENT'",
        (result, completion_ref, now_ms, request_id),
    )
    return _state(connection, request_id) == RequestState.COMPLETED


def mark_failed(
    connection: sqlite3.Connection, request_id: str, error: StructuredError, now_ms: int
) -> bool:
    """See `AACPPersistenceAdapter`."""
    connection.execute(
        "UPDATE requests SET state = 'FAILED', error = ?, finished_at_ms = ?"
        " WHERE request_id = ? AND state = 'SENT'",
        (orjson.dumps(error.to_wire()), now_ms, request_id),
    )
    return _state(connection, request_id) == RequestState.FAILED


def _state(connection: sqlite3.Connection, request_id: str) -> str | None:
    row = connection.execute(
        "SELECT state FROM requests WHERE request_id = ?", (request_id,)
    ).fetchone()
    return None if row is None else row[0]


# -- numbers --------------------------------------------------------------------------------------


def get_incarnation(connection: sqlite3.Connection) -> int:
    """See `AACPPersistenceAdapter.incarnation`."""
    [incarnation] = connection.execute("SELECT incarnation FROM ledger").fetchone()
    return int(incarnation)


def get_last_seq(connection: sqlite3.Connection, link: Link) -> int:
    """See `AACPPersistenceAdapter.get_last_sequence`."""
    state = read_link(connection, link)
    return 0 if state is None else state.last_seq


def update_last_seq(connection: sqlite3.Connection, link: Link, seq: int) -> None:
    """See `AACPPersistenceAdapter.update_last_sequence`."""
    connection.execute(
        "INSERT INTO links VALUES (?, ?, ?, 0, 0, '[]', 0)"
        " ON CONFLICT (source_agent_id, target_agent_id) DO UPDATE SET"
        " last_seq = max(last_seq, excluded.last_seq)",
        (*link, seq),
    )


# -- recovery and retention -----------------------------------------------------------------------


def get_unacknowledged(connection: sqlite3.Connection, link: Link, own: int) -> list[Envelope]:
    """See `AACPPersistenceAdapter.get_unacknowledged_messages`."""
    rows = connection.execute(
        f"SELECT {MESSAGE} FROM messages WHERE {IS_OUTBOUND}"
        " AND source_agent_id = ? AND target_agent_id = ? ORDER BY seq",
        link,
    )
    messages = map(records.message_of, rows)
    return [message.envelope(message.message_id, None, own) for message in messages]


def list_pending(connection: sqlite3.Connection, older_than_ms: int | None) -> list[RequestRecord]:
    """See `AACPPersistenceAdapter.list_pending_requests`."""
    rows = connection.execute(
        f"SELECT {REQUEST} FROM requests WHERE state NOT IN ('COMPLETED', 'FAILED')"
        " AND (?1 IS NULL OR created_at_ms < ?1) ORDER BY created_at_ms, request_id",
        (older_than_ms,),
    )
    return list(map(records.request_of, rows))


def list_messages(
    connection: sqlite3.Connection, outcome: Outcome, older_than_ms: int | None
) -> list[MessageRecord]:
    """See `AACPPersistenceAdapter.list_messages_in_state`."""
    rows = connection.execute(
        f"SELECT {MESSAGE} FROM messages WHERE state = ?1"
        " AND (?2 IS NULL OR created_at_ms < ?2) ORDER BY created_at_ms, message_id",
        (MESSAGE_STATES[outcome]._value_, older_than_ms),
    )
    return list(map(records.message_of, rows))


def purge(connection: sqlite3.Connection, now_ms: int) -> int:
    """See `AACPPersistenceAdapter.purge_expired`."""
    statements: tuple[tuple[str, Row], ...] = (
        ("DELETE FROM requests WHERE expires_at_ms <= ?", (now_ms,)),
        ("DELETE FROM messages WHERE expires_at_ms <= ? AND state = 'ACKNOWLEDGED'", (now_ms,)),
        (
            "UPDATE messages SET state = 'TOMBSTONE', payload = ?2, next_attempt_at_ms = ?1"
            " WHERE expires_at_ms <= ?1 AND state = 'PENDING'",
            (now_ms, VOID_PAYLOAD),
        ),
    )
    return sum(connection.execute(sql, values).rowcount for sql, values in statements)
