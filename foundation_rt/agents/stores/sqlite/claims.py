"""Requests are claimed, completed and given back.

SQL takes one decision itself: which requests a claimer passes over. Otherwise an agent with a
thousand claims under way would have them all read for every new one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from ...ledger.rules import claim_from, executed_elsewhere_until
from ...ledger.types import ClaimCompletion, Claimed, Completed, Queued, Release, RequestRecord
from .. import records
from .rows import IS_QUEUED, REQUEST, ids_of
from .working_set import flush, load, read_links

_WITHOUT_PAYLOAD = REQUEST.replace("payload", "x''")

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
            " ORDER BY priority DESC, position LIMIT ?",
            (agent_id, now_ms, owner, now_ms, most),
        )
        begins = agent_id in idle
        queue = map(records.request_of, rows)
        first = next(queue, None)
        if first is None:
            continue
        until_ms = _executed_elsewhere_until(connection, first, owner, now_ms)
        if until_ms is not None:
            rows.close()
            claimed.again_at_ms[agent_id] = until_ms
            continue
        taken = claim_from(
            chain([first], queue), most, owner, now_ms, lease_until_ms, begins, claimed
        )
        rows.close()
        if taken:
            connection.execute(
                "UPDATE requests SET state = 'CLAIMED', epoch = epoch + 1, owner = ?,"
                " executions = executions + (request_id IS ?),"
                " lease_until_ms = ?, not_before_ms = NULL"
                " WHERE request_id IN (SELECT value FROM json_each(?))",
                (
                    owner,
                    taken[0].request_id if begins else None,
                    lease_until_ms,
                    ids_of(record.request_id for record in taken),
                ),
            )
    return claimed


def _executed_elsewhere_until(
    connection: sqlite3.Connection, head: RequestRecord, owner: str, now_ms: int
) -> int | None:
    """Return when to ask again since another owner executes requests of a lower priority."""
    ends = []
    for priority in range(head.priority):
        rows = connection.execute(
            f"SELECT {REQUEST} FROM requests WHERE {IS_QUEUED} AND target_agent_id = ?"
            " AND priority = ? ORDER BY position",
            (head.target_agent_id, priority),
        )
        end = executed_elsewhere_until(map(records.request_of, rows), owner, now_ms)
        rows.close()
        if end is not None:
            ends.append(end)
    return min(ends, default=None)


def queue_delayed(
    connection: sqlite3.Connection, incarnation: int, now_ms: int, limit: int
) -> Queued:
    """See `AACPPersistenceAdapter`; the incarnation is that of this ledger."""
    rows = connection.execute(
        f"SELECT {_WITHOUT_PAYLOAD} FROM requests WHERE state = 'DELAYED' AND not_before_ms <= ?"
        " ORDER BY not_before_ms, request_id LIMIT ?",
        (now_ms, limit),
    )
    due = list(map(records.request_of, rows))
    agents = sorted({record.target_agent_id for record in due})
    unit = load(connection, incarnation, agents=agents)
    unit.queue_delayed(due)
    flush(connection, unit)
    [next_at_ms] = connection.execute(
        "SELECT min(not_before_ms) FROM requests WHERE state = 'DELAYED'"
    ).fetchone()
    return Queued(agents, next_at_ms)


def complete(
    connection: sqlite3.Connection,
    completions: Sequence[ClaimCompletion],
    incarnation: int,
    now_ms: int,
) -> list[Completed]:
    """See `AACPPersistenceAdapter`; the incarnation is that of this ledger."""
    unit = load(connection, incarnation, request_ids=[each.request_id for each in completions])
    answered = [record for record in unit.requests.values() if record.needs_response]
    links = ((each.target_agent_id, each.source_agent_id) for each in answered)
    unit.links.update(read_links(connection, links))
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
_DELAY = _RELEASE.replace("'RECEIVED'", "'DELAYED', position = NULL")


def release(connection: sqlite3.Connection, releases: Sequence[Release]) -> None:
    """See `AACPPersistenceAdapter`."""
    for released, leaves_queue in ((_RELEASE, False), (_DELAY, True)):
        connection.executemany(
            f"{released}, not_before_ms = ?, executions = ?"
            " WHERE request_id = ? AND epoch = ? AND state = 'CLAIMED'",
            [
                (each.not_before_ms, each.executions, each.request_id, each.epoch)
                for each in releases
                if each.leaves_queue == leaves_queue
            ],
        )


def release_all(connection: sqlite3.Connection) -> int:
    """Give back all claims, whose owners are gone; return how many (AACP-32)."""
    return connection.execute(f"{_RELEASE} WHERE {IS_QUEUED} AND state = 'CLAIMED'").rowcount
