"""Requests are claimed, completed and given back.

SQL takes one decision itself: which requests a claimer passes over. Otherwise an agent with a
thousand claims under way would have them all read for every new one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

from attrs import astuple

from ...ledger.agent_limits import NO_LIMITS, Admitted, AgentLimits, LimitedAgent
from ...ledger.request_options import MAX_PRIORITY
from ...ledger.rules import (
    claim_from,
    executed_elsewhere_until,
    give_back_lapsed,
)
from ...ledger.types import ClaimCompletion, Claimed, Completed, Queued, Release, RequestRecord
from .. import records
from .ledger_clock import MachineClocks, read_clock
from .working_set import IS_QUEUED, REQUEST, flush, ids_of, load, read_links

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
    idle: Collection[str] = (),
    *,
    clocks: MachineClocks,
) -> Claimed:
    """See `AACPPersistenceAdapter`; the clocks are those of the machine."""
    claimed = Claimed([])
    all_limited = _limited_agents(connection)
    time_ms = read_clock(connection, clocks) if all_limited else now_ms
    if len(wanted) > _FEW:
        queued = {agent_id for (agent_id,) in connection.execute(_WITH_A_QUEUE)}
        wanted = {agent_id: most for agent_id, most in wanted.items() if agent_id in queued}
    for agent_id, most in wanted.items():
        limited = all_limited.get(agent_id)
        if limited is not None:
            admitted = _admit(connection, agent_id, limited, most, owner, now_ms, time_ms)
            if admitted.again_at_ms is not None:
                claimed.again_at_ms[agent_id] = admitted.again_at_ms
            if admitted.requests is not None:
                for record in admitted.requests:
                    write_claims(connection, [record], owner, lease_until_ms, begins=True)
                    claimed.claims.append(limited.claim(record, owner, lease_until_ms))
                _note_starts(connection, agent_id, limited, admitted.most, time_ms)
                continue
            most = admitted.most
            if not most:
                continue
        # `claimability` passes over the requests that are left out here: see the module's head.
        rows = connection.execute(
            f"SELECT {REQUEST} FROM requests WHERE {IS_QUEUED} AND target_agent_id = ?"
            " AND expires_at_ms > ?"
            " AND NOT (state = 'CLAIMED' AND owner = ?)"
            " ORDER BY priority DESC, position LIMIT ?",
            (agent_id, now_ms, owner, most),
        )
        begins = agent_id in idle or limited is not None
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
            chain([first], queue),
            most,
            owner,
            now_ms,
            lease_until_ms,
            begins,
            claimed,
            lambda lapsed: _take_over(connection, lapsed, owner, now_ms),
        )
        rows.close()
        if taken:
            write_claims(connection, taken, owner, lease_until_ms, begins=begins)
            if limited is not None:
                _note_starts(connection, agent_id, limited, len(taken), time_ms)
    return claimed


def free_agents(connection: sqlite3.Connection, agents: Collection[str]) -> list[str]:
    """Return the agents whose queues are empty, and that have no limits."""
    limited = _limited_agents(connection) if agents else {}
    queued = f"SELECT 1 FROM requests WHERE {IS_QUEUED} AND target_agent_id = ? LIMIT 1"
    return [
        agent_id
        for agent_id in agents
        if agent_id not in limited and connection.execute(queued, (agent_id,)).fetchone() is None
    ]


def write_claims(
    connection: sqlite3.Connection,
    taken: Sequence[RequestRecord],
    owner: str,
    lease_until_ms: int,
    *,
    begins: bool,
) -> None:
    """Write claims of one agent; `begins`: the execution of the first one does."""
    if not taken:
        return
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


def _limited_agents(connection: sqlite3.Connection) -> dict[str, LimitedAgent]:
    rows = connection.execute("SELECT agent_id, workers, starts, window_ms, started FROM agents")
    return {agent_id: LimitedAgent.of(*columns) for agent_id, *columns in rows}


def _admit(
    connection: sqlite3.Connection,
    agent_id: str,
    limited: LimitedAgent,
    most: int,
    owner: str,
    now_ms: int,
    time_ms: int,
) -> Admitted:
    head: list[RequestRecord] = []
    for priority in range(MAX_PRIORITY, -1, -1):
        rows = connection.execute(
            f"SELECT {REQUEST} FROM requests WHERE {IS_QUEUED} AND target_agent_id = ?"
            " AND priority = ? AND expires_at_ms > ? ORDER BY position LIMIT ?",
            (agent_id, priority, now_ms, limited.read_ahead),
        )
        head += map(records.request_of, rows)
    return limited.admit(head, most, owner, now_ms, time_ms)


def _note_starts(
    connection: sqlite3.Connection, agent_id: str, limited: LimitedAgent, count: int, time_ms: int
) -> None:
    if limited.limits.starts and count:
        limited.note_starts(count, time_ms)
        connection.execute(
            "UPDATE agents SET started = ? WHERE agent_id = ?", (limited.written(), agent_id)
        )


def limit_agents(
    connection: sqlite3.Connection, limits: Mapping[str, AgentLimits]
) -> dict[str, AgentLimits]:
    """See `AACPPersistenceAdapter`."""
    known = {each: limited.limits for each, limited in _limited_agents(connection).items()}
    before = {each: known.get(each, NO_LIMITS) for each in limits}
    before = {each: its for each, its in before.items() if its != limits[each]}
    for agent_id in before:
        if limits[agent_id] == NO_LIMITS:
            connection.execute("DELETE FROM agents WHERE agent_id = ?", (agent_id,))
        else:
            connection.execute(
                "INSERT INTO agents (agent_id, workers, starts, window_ms) VALUES (?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET workers = excluded.workers,"
                " starts = excluded.starts, window_ms = excluded.window_ms",
                (agent_id, *astuple(limits[agent_id])),
            )
    return before


def _executed_elsewhere_until(
    connection: sqlite3.Connection, head: RequestRecord, owner: str, now_ms: int
) -> int | None:
    """Return when to ask again since another owner executes requests of a lower priority."""
    lower = (_level(connection, head, priority) for priority in range(head.priority))
    ends = (executed_elsewhere_until(level, owner, now_ms) for level in lower)
    return min((end for end in ends if end is not None), default=None)


def _take_over(
    connection: sqlite3.Connection, lapsed: RequestRecord, owner: str, now_ms: int
) -> int | None:
    level = _level(connection, lapsed, lapsed.priority)
    until_ms = executed_elsewhere_until(level, owner, now_ms)
    if until_ms is None:
        levels = (_level(connection, lapsed, each) for each in range(MAX_PRIORITY + 1))
        for level in levels:
            given_back = give_back_lapsed(level, owner, now_ms)
            connection.execute(
                f"{_RELEASE} WHERE request_id IN (SELECT value FROM json_each(?))",
                (ids_of(record.request_id for record in given_back),),
            )
    return until_ms


def _level(
    connection: sqlite3.Connection, beside: RequestRecord, priority: int
) -> Iterator[RequestRecord]:
    """Return the requests of a priority in the queue of a request, without payloads."""
    rows = connection.execute(
        f"SELECT {_WITHOUT_PAYLOAD} FROM requests WHERE {IS_QUEUED} AND target_agent_id = ?"
        " AND priority = ? ORDER BY position",
        (beside.target_agent_id, priority),
    )
    return map(records.request_of, rows)


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
    incarnation: int,
    completions: Sequence[ClaimCompletion],
    now_ms: int,
) -> list[Completed]:
    """See `AACPPersistenceAdapter`; the incarnation is that of this ledger."""
    unit = load(connection, incarnation, request_ids=[each.request_id for each in completions])
    answered = [record for record in unit.requests.values() if record.needs_response]
    links = ((each.target_agent_id, each.source_agent_id) for each in answered)
    unit.links.update(read_links(connection, links))
    completed = [unit.complete(completion, now_ms) for completion in completions]
    flush(connection, unit)
    agents = {each.record.target_agent_id for each in completed if each.record is not None}
    waiting = {agent_id for agent_id in agents if _waits(connection, agent_id)}
    for each in completed:
        each.waits = each.record is None or each.record.target_agent_id in waiting
    return completed


def _waits(connection: sqlite3.Connection, agent_id: str) -> bool:
    """Return whether a request may be claimed in the queue of an agent."""
    row = connection.execute(
        f"SELECT 1 FROM requests WHERE {IS_QUEUED} AND target_agent_id = ?"
        " AND state = 'RECEIVED' LIMIT 1",
        (agent_id,),
    ).fetchone()
    return row is not None


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


def release(connection: sqlite3.Connection, releases: Sequence[Release]) -> list[Release]:
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
    return []


def release_all(connection: sqlite3.Connection) -> int:
    """Give back all claims, whose owners are gone; return how many (AACP-32)."""
    return connection.execute(f"{_RELEASE} WHERE {IS_QUEUED} AND state = 'CLAIMED'").rowcount
