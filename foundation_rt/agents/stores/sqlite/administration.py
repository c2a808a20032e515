"""Records are looked up, put, marked and purged; operators list, cancel and requeue requests."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import orjson

from ...ledger.administration import (
    MAX_MEASURED,
    AgentSummary,
    Changed,
    RequestQuery,
    Verdict,
    summaries,
)
from ...ledger.rules import PURGE_BATCH
from ...ledger.types import VOID_PAYLOAD, ClaimCompletion, Ending, RequestRecord
from .. import records
from .ledger_clock import note_time
from .working_set import (
    INSERT_REQUEST,
    REQUEST,
    Row,
    flush,
    load,
    load_to_finish,
    read_queues,
    read_requests,
    request_row,
)


def put_request(connection: sqlite3.Connection, request_id: str, record: RequestRecord) -> None:
    """See `AACPPersistenceAdapter.put_request_record`."""
    connection.execute(f"{INSERT_REQUEST} ON CONFLICT DO NOTHING", request_row(record))


def get_requests(connection: sqlite3.Connection, request_ids: Sequence[str]) -> list[RequestRecord]:
    """See `AACPPersistenceAdapter.get_request_records`."""
    return list(read_requests(connection, request_ids).values())


def mark(
    connection: sqlite3.Connection,
    request_id: str,
    ending: Ending,
    now_ms: int,
    completion_ref: str | None,
) -> bool:
    """See `DerivedOperations`."""
    connection.execute(
        "UPDATE requests SET state = ?, result = ?, error = ?, completion_ref = ?,"
        " finished_at_ms = ? WHERE request_id = ? AND state = 'SENT'",
        (*ending, completion_ref, now_ms, request_id),
    )
    row = connection.execute("SELECT state FROM requests WHERE request_id = ?", (request_id,))
    return bool(row.fetchone() == (ending.state,))


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


_LEFT_OUT = {"payload": "CAST('null' AS BLOB)", "result": "NULL"}
_OUTLINE = ", ".join(_LEFT_OUT.get(name, name) for name in records.REQUEST_COLUMNS)


def list_requests(connection: sqlite3.Connection, query: RequestQuery) -> list[RequestRecord]:
    """See `AACPPersistenceAdapter`."""
    conditions, values = ["(created_at_ms, request_id) > (?, ?)"], [*query.after]
    if query.agent_id is not None:
        conditions.append("target_agent_id = ?")
        values.append(query.agent_id)
    if query.states:
        conditions.append("state IN (SELECT value FROM json_each(?))")
        values.append(orjson.dumps([*query.states]).decode())
    if query.before_ms is not None:
        conditions.append("created_at_ms < ?")
        values.append(query.before_ms)
    if query.id_owner is not None:
        conditions.append("request_id LIKE ?")
        values.append(f"%@{query.id_owner}")
    rows = connection.execute(
        f"SELECT {REQUEST if query.whole else _OUTLINE} FROM requests"
        f" WHERE {' AND '.join(conditions)} ORDER BY created_at_ms, request_id LIMIT ?",
        (*values, query.limit),
    )
    return list(map(records.request_of, rows))


def summarize(connection: sqlite3.Connection, after: str, limit: int) -> list[AgentSummary]:
    """See `AACPPersistenceAdapter.summarize_agents`."""
    rows = connection.execute(
        "SELECT target_agent_id, state, count(*), min(created_at_ms) FROM requests"
        " WHERE target_agent_id IN (SELECT DISTINCT target_agent_id FROM requests"
        " WHERE target_agent_id > ? ORDER BY target_agent_id LIMIT ?)"
        " GROUP BY target_agent_id, state ORDER BY target_agent_id, state",
        (after, limit),
    )
    return summaries(rows.fetchall())


def measure(connection: sqlite3.Connection, agent_ids: Sequence[str]) -> list[AgentSummary]:
    """See `AACPPersistenceAdapter.measure_queues`."""
    rows: list[tuple[str, str, int, int]] = []
    for agent_id in sorted(set(agent_ids)):
        # The terms are those of the index `queues`.
        rows += connection.execute(
            "SELECT ?1, state, count(*), min(created_at_ms) FROM (SELECT state, created_at_ms"
            " FROM requests WHERE target_agent_id = ?1 AND position IS NOT NULL"
            " AND finished_at_ms IS NULL ORDER BY priority DESC, position LIMIT ?2)"
            " GROUP BY state ORDER BY state",
            (agent_id, MAX_MEASURED),
        )
    return summaries(rows)


def cancel(
    connection: sqlite3.Connection,
    cancellations: Sequence[ClaimCompletion],
    now_ms: int,
) -> list[Changed]:
    """See `AACPPersistenceAdapter`."""
    unit = load_to_finish(connection, cancellations)
    answers = unit.cancel_all(cancellations, now_ms)
    flush(connection, unit)
    connection.executemany(
        "UPDATE requests SET epoch = ? WHERE request_id = ?",
        [(record.epoch, record.request_id) for record in unit.finished.values()],
    )
    return answers


def requeue(
    connection: sqlite3.Connection,
    request_ids: Sequence[str],
    expires_at_ms: int,
) -> list[Changed]:
    """See `AACPPersistenceAdapter`."""
    unit = load(connection, request_ids=request_ids)
    agents = {record.target_agent_id for record in unit.requests.values()}
    unit.queues.update(read_queues(connection, agents))
    answers = [unit.requeue(request_id, expires_at_ms) for request_id in request_ids]
    flush(connection, unit)
    connection.executemany(
        "UPDATE requests SET epoch = ?, executions = 0, not_before_ms = NULL, result = NULL,"
        " error = NULL, completion_ref = NULL, finished_at_ms = NULL, expires_at_ms = ?"
        " WHERE request_id = ?",
        [
            (changed.record.epoch, expires_at_ms, changed.record.request_id)
            for changed in answers
            if changed.verdict is Verdict.DONE and changed.record is not None
        ],
    )
    return answers
