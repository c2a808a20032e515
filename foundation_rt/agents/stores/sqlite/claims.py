"""Requests are claimed, completed and given back.

SQL takes one decision itself: which requests a claimer passes over. Otherwise an agent with a
thousand claims under way would have them all read for every new one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence

import orjson

from ...ledger.rules import claim_from
from ...ledger.types import ClaimCompletion, Claimed, Completed, Release
from .. import records
from .rows import IS_QUEUED, REQUEST
from .working_set import flush, load, read_links

_FEW = 16
"""Up to so many queues are looked into one by one, which costs 13 us for each."""

# Goes from the first entry of each agent in the index to that of the next agent.
_WITH_A_QUEUE = f"""
WITH RECURSIVE queued (agent_id) AS (
    SELECT min(target_agent_id) FROM requests INDEXED BY queues WHERE {IS_QUEUED}
    UNION ALL
    SELECT (
        SELECT min(target_agent_id) FROM requests INDEXED BY queues
        WHERE {IS_QUEUED} AND target_agent_id > agent_id
    ) FROM queued WHERE agent_id IS NOT NULL
)
SELECT agent_id FROM queued WHERE agent_id IS NOT NULL
"""


def claim(
    connection: sqlite3.Connection,
    wanted: Mapping[str, int],
    owner: str,
    now_ms: int,
    lease_until_ms: int,
    idle: Collection[str],
) -> Claimed:
    """See `AACPPersistenceAdapter`."""
    claimed = Claimed([])
    if len(wanted) > _FEW:
        queued = {agent_id for (agent_id,) in connection.execute(_WITH_A_QUEUE)}
        wanted = {agent_id: most for agent_id, most in wanted.items() if agent_id in queued}
    for agent_id, most in wanted.items():
        # `claimability` passes over the requests that are left out here: see the module's head.
        rows = connection.execute(
            f"SELECT {REQUEST} FROM requests WHERE {IS_QUEUED} AND target_agent_id = ?"
            " AND expires_at_ms > ?"
            " AND NOT (state = 'CLAIMED' AND owner = ? AND lease_until_ms > ?)"
            " ORDER BY position LIMIT ?",
            (agent_id, now_ms, owner, now_ms, most),
        )
        begins = agent_id in idle
        queue = map(records.request_of, rows)
        taken = claim_from(queue, most, owner, now_ms, lease_until_ms, begins, claimed)
        rows.close()
        if taken:
            connection.execute(
                "UPDATE requests SET state = 'CLAIMED', epoch = epoch + 1, owner = ?,"
                " executions = executions + (position IS ?),"
                " lease_until_ms = ?, not_before_ms = NULL WHERE finished_at_ms IS NULL"
                " AND target_agent_id = ? AND position IN (SELECT value FROM json_each(?))",
                (
                    owner,
                    taken[0].position if begins else None,
                    lease_until_ms,
                    agent_id,
                    orjson.dumps([record.position for record in taken]).decode(),
                ),
            )
    return claimed


def complete(
    connection: sqlite3.Connection,
    completions: Sequence[ClaimCompletion],
    incarnation: int,
    now_ms: int,
) -> list[Completed]:
    """See `AACPPersistenceAdapter`; the incarnation is that of this ledger."""
    unit = load(connection, incarnation, request_ids=[each.request_id for each in completions])
    answered = [record for record in unit.requests.values() if record.needs_response]
    unit.links = read_links(
        connection, ((each.target_agent_id, each.source_agent_id) for each in answered)
    )
    completed = [unit.complete(completion, now_ms) for completion in completions]
    flush(connection, unit)
    return completed


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
    """Give back all claims, whose owners are gone; return how many (AACP-32)."""
    return connection.execute(f"{_RELEASE} WHERE {IS_QUEUED} AND state = 'CLAIMED'").rowcount
