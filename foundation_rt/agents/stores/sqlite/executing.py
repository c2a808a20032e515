"""Requests are claimed and come to an end.

The one decision that SQL takes itself is what a claimer passes over: an agent with a thousand
claims under way would else have them all read for every new one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence

import orjson

from ...ledger.rules import (
    Claimability,
    claimability,
    is_repeated,
    may_complete,
    response_payload,
)
from ...ledger.types import Claimed, Completed, Completion, Release
from .. import records
from .batch import Batch
from .rows import IS_QUEUED, REQUEST, read_requests


def claim(
    connection: sqlite3.Connection,
    wanted: Mapping[str, int],
    owner: str,
    now_ms: int,
    lease_until_ms: int,
    idle: Collection[str],
) -> Claimed:
    """See `AACPPersistenceAdapter`."""
    claimed = Claimed([], None)
    for agent_id, most in wanted.items():
        # What `claimability` passes over is left out here: see the head of the module.
        rows = connection.execute(
            f"SELECT {REQUEST} FROM requests WHERE {IS_QUEUED} AND target_agent_id = ?"
            " AND expires_at_ms > ?"
            " AND NOT (state = 'CLAIMED' AND owner = ? AND lease_until_ms > ?)"
            " ORDER BY position LIMIT ?",
            (agent_id, now_ms, owner, now_ms, most),
        )
        positions: list[int | None] = []
        first = None  # the place of what is begun at once
        for record in map(records.request_of, rows):
            if claimability(record, owner, now_ms) is Claimability.STOP:
                records.note_stop(claimed, record)
                break
            begins = not positions and agent_id in idle
            if begins:
                first = record.position
            positions.append(record.position)
            claimed.claims.append(records.claim(record, owner, lease_until_ms, begins))
        rows.close()
        if positions:
            connection.execute(
                "UPDATE requests SET state = 'CLAIMED', epoch = epoch + 1, owner = ?,"
                " executions = executions + (position IS ?),"
                " lease_until_ms = ?, not_before_ms = NULL WHERE finished_at_ms IS NULL"
                " AND target_agent_id = ? AND position IN (SELECT value FROM json_each(?))",
                (owner, first, lease_until_ms, agent_id, orjson.dumps(positions).decode()),
            )
    return claimed


def complete(
    connection: sqlite3.Connection, completions: Sequence[Completion], now_ms: int
) -> list[Completed]:
    """See `AACPPersistenceAdapter`."""
    found = read_requests(connection, [completion.request_id for completion in completions])
    batch = Batch(connection, found)
    completed = [_complete(batch, completion, now_ms) for completion in completions]
    batch.flush()
    return completed


def _complete(batch: Batch, completion: Completion, now_ms: int) -> Completed:
    record = batch.requests.get(completion.request_id)
    if is_repeated(record, completion):
        return Completed(record, None)
    if record is None or not may_complete(record, completion):
        return Completed(None, None)
    if completion.in_transaction is not None:
        return records.not_within()
    records.finish(record, completion, now_ms)
    batch.finish(record)
    if not record.needs_response:
        return Completed(record, None)
    payload = response_payload(record.state, record.result, record.error)
    response = batch.respond(record, payload, record.expires_at_ms, completion, now_ms)
    return Completed(record, response)


def renew(
    connection: sqlite3.Connection, claims: Sequence[tuple[str, int]], lease_until_ms: int
) -> list[bool]:
    """See `AACPPersistenceAdapter`."""
    return [
        connection.execute(
            "UPDATE requests SET lease_until_ms = ?"
            " WHERE request_id = ? AND epoch = ? AND state = 'CLAIMED'",
            (lease_until_ms, request_id, epoch),
        ).rowcount
        == 1
        for request_id, epoch in claims
    ]


_RELEASE = "UPDATE requests SET state = 'RECEIVED', owner = NULL, lease_until_ms = NULL"


def release(connection: sqlite3.Connection, releases: Sequence[Release]) -> None:
    """See `AACPPersistenceAdapter`."""
    connection.executemany(
        f"{_RELEASE}, not_before_ms = ?, executions = ?"
        " WHERE request_id = ? AND epoch = ? AND state = 'CLAIMED'",
        [(each.not_before_ms, each.executions, each.request_id, each.epoch) for each in releases],
    )


def release_all(connection: sqlite3.Connection) -> int:
    """Give back the claims of owners that are gone, all of them; return how many (AACP-32)."""
    return connection.execute(f"{_RELEASE} WHERE {IS_QUEUED} AND state = 'CLAIMED'").rowcount
