"""Messages enter the ledger, are sent again, and are acknowledged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from ...ledger.rules import retry
from ...ledger.types import (
    NO_CLAIMING,
    VOID_PAYLOAD,
    Appended,
    Claiming,
    Due,
    Hastened,
    IncomingEnvelope,
    Link,
    MessageRecord,
    MessageState,
    OutboxKey,
    OutgoingMessage,
    Received,
)
from ...ledger.unit_of_work import UnitOfWork, touched_by
from ...persistence import RetryDecision
from .. import records
from .claims import free_agents, write_claims
from .working_set import (
    IS_OUTBOUND,
    LOW_WATERMARK,
    MESSAGE,
    flush,
    ids_of,
    load,
    load_held,
    planned_row,
    read_messages_by_id,
)


def append(
    connection: sqlite3.Connection,
    messages: Sequence[OutgoingMessage],
    now_ms: int,
    claiming: Claiming = NO_CLAIMING,
) -> list[Appended]:
    """See `AACPPersistenceAdapter`."""
    unit = load(connection, *touched_by(messages))
    load_held(connection, unit, unit.releases_here(messages))
    unit.free = free_agents(connection, claiming)
    appended = unit.append_all(messages)
    flush(connection, unit)
    for taken in unit.claim_added(messages, appended, claiming, now_ms):
        write_claims(connection, taken)
    return appended


def receive(
    connection: sqlite3.Connection,
    arrivals: Sequence[IncomingEnvelope],
    now_ms: int,
    ttl_ms: int,
) -> Received:
    """See `AACPPersistenceAdapter`."""
    envelopes = [incoming.envelope for incoming in arrivals]
    numbered = [each for each in envelopes if each.seq]
    there = [(each.source_agent_id, each.target_agent_id) for each in numbered]
    # For acknowledgements, and for answers that are known already.
    back = [(each.target_agent_id, each.source_agent_id) for each in envelopes]
    unit = load(
        connection,
        links=[*there, *back],
        # Of RESPONSEs too: one may fill the gap for which a request waits.
        agents=[each.target_agent_id for each in numbered],
        request_ids=[each.request_id or each.message_id for each in numbered],
    )
    load_held(connection, unit, unit.releases(numbered))
    received = unit.receive(arrivals, now_ms, ttl_ms)
    received.acknowledged = flush(connection, unit)
    return received


def take_due(connection: sqlite3.Connection, now_ms: int, limit: int, decide: RetryDecision) -> Due:
    """See `AACPPersistenceAdapter`."""
    due = Due([], [], None)
    rows = connection.execute(
        f"SELECT {MESSAGE}, {LOW_WATERMARK} FROM messages AS m WHERE next_attempt_at_ms <= ?"
        " ORDER BY next_attempt_at_ms, message_id LIMIT ?",
        (now_ms, limit),
    ).fetchall()
    for *row, low_watermark in rows:
        retry(records.message_of(row), low_watermark, now_ms, decide, due)
    connection.executemany(
        "UPDATE messages SET state = ?, payload = ?, attempts = ?, next_attempt_at_ms = ?"
        " WHERE message_id = ?",
        map(planned_row, due.messages),
    )
    [due.next_at_ms] = connection.execute(
        "SELECT min(next_attempt_at_ms) FROM messages WHERE next_attempt_at_ms IS NOT NULL"
    ).fetchone()
    return due


def hasten(
    connection: sqlite3.Connection,
    targets: Sequence[str],
    at_ms: int,
    after: OutboxKey,
    limit: int,
) -> Hastened:
    """See `AACPPersistenceAdapter`."""
    page = connection.execute(
        "SELECT source_agent_id, target_agent_id, seq, id, created_at_ms, next_attempt_at_ms"
        f" FROM messages WHERE {IS_OUTBOUND}"
        " AND (source_agent_id, target_agent_id, seq) > (?, ?, ?)"
        " AND (? OR target_agent_id IN (SELECT value FROM json_each(?)))"
        " ORDER BY source_agent_id, target_agent_id, seq LIMIT ?",
        (*after, not targets, ids_of(targets), limit),
    ).fetchall()
    early = [(at_ms, row[3]) for row in page if row[4] <= at_ms < (row[5] or 0)]
    connection.executemany("UPDATE messages SET next_attempt_at_ms = ? WHERE id = ?", early)
    return Hastened(len(early), page[-1][:3] if page else None)


def reschedule(
    connection: sqlite3.Connection, message_id: str, at_ms: int, *, give_up: bool = False
) -> MessageRecord | None:
    """See `AACPPersistenceAdapter`."""
    void = ("TOMBSTONE", VOID_PAYLOAD) if give_up else (None, None)
    changed = connection.execute(
        "UPDATE messages SET state = ifnull(?, state), payload = ifnull(?, payload),"
        f" next_attempt_at_ms = ? WHERE message_id = ? AND {IS_OUTBOUND}",
        (*void, at_ms, message_id),
    )
    return get_message(connection, message_id) if changed.rowcount else None


def change_link(
    connection: sqlite3.Connection,
    link: Link,
    message_id: str,
    change: Callable[[UnitOfWork], Any],
) -> Any:
    """See `DerivedOperations`."""
    unit = load(connection, [link], message_ids=[message_id])
    answer = change(unit)
    flush(connection, unit)
    return answer


def read_messages(
    connection: sqlite3.Connection, of: Link | MessageState, before_ms: int
) -> list[MessageRecord]:
    """See `DerivedOperations`."""
    if isinstance(of, MessageState):
        where, values = "state = ?", [str(of)]
    else:
        where, values = f"{IS_OUTBOUND} AND source_agent_id = ? AND target_agent_id = ?", [*of]
    rows = connection.execute(
        f"SELECT {MESSAGE} FROM messages WHERE {where} AND created_at_ms < ?", (*values, before_ms)
    )
    return list(map(records.message_of, rows))


def get_message(connection: sqlite3.Connection, message_id: str) -> MessageRecord | None:
    """See `AACPPersistenceAdapter.get_message_record`."""
    return read_messages_by_id(connection, [message_id]).get(message_id)
