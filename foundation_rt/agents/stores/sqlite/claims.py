"""Requests are claimed, completed and given back.

SQL takes one decision itself: which requests a claimer passes over. Otherwise an agent with a
thousand claims under way would have them all read for every new one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from attrs import astuple, define

from ...ledger.agent_limits import NO_LIMITS, AgentLimits, LimitedAgent, replaced
from ...ledger.types import (
    ClaimCompletion,
    Claimed,
    Claiming,
    Completed,
    Queued,
    Release,
    RequestRecord,
)
from .. import records
from ..agent_queue import claim_for
from .ledger_clock import MachineClocks, read_clock
from .working_set import (
    IS_QUEUED,
    OUTLINE,
    REQUEST,
    flush,
    ids_of,
    load,
    load_to_finish,
)

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
    claiming: Claiming,
    now_ms: int,
    *,
    clocks: MachineClocks,
) -> Claimed:
    """See `AACPPersistenceAdapter`; the clocks are those of the machine."""
    claimed = Claimed([])
    all_limited = _limited_agents(connection)
    time_ms = read_clock(connection, clocks) if all_limited else now_ms
    agents: Collection[str] = claiming.wanted
    if len(agents) > _FEW:
        queued = {agent_id for (agent_id,) in connection.execute(_WITH_A_QUEUE)}
        agents = [agent_id for agent_id in agents if agent_id in queued]
    for agent_id in agents:
        limited, queue = all_limited.get(agent_id), _Queue(connection, agent_id)
        taken = claim_for(queue, limited, claiming, now_ms, time_ms, claimed)
        write_claims(connection, taken)
        if taken and limited is not None and limited.limits.starts:
            connection.execute(
                "UPDATE agents SET started = ? WHERE agent_id = ?", (limited.written(), agent_id)
            )
    return claimed


@define(eq=False, repr=False)
class _Queue:
    """See `AgentQueue`."""

    connection: sqlite3.Connection
    agent_id: str

    def level(self, priority: int, *, whole: bool = False) -> Iterator[RequestRecord]:
        """See `AgentQueue`."""
        rows = self.connection.execute(
            f"SELECT {REQUEST if whole else OUTLINE} FROM requests"
            f" WHERE {IS_QUEUED} AND target_agent_id = ? AND priority = ? ORDER BY position",
            (self.agent_id, priority),
        )
        return map(records.request_of, rows)

    def claimable(self, owner: str, now_ms: int, most: int) -> Iterator[RequestRecord]:
        """See `AgentQueue`; what is claimed by this owner is left out: see the module's head."""
        rows = self.connection.execute(
            f"SELECT {REQUEST} FROM requests WHERE {IS_QUEUED} AND target_agent_id = ?"
            " AND expires_at_ms > ?"
            " AND NOT (state = 'CLAIMED' AND owner = ?)"
            " ORDER BY priority DESC, position LIMIT ?",
            (self.agent_id, now_ms, owner, most),
        )
        return map(records.request_of, rows)

    def give_back(self, lapsed: Sequence[RequestRecord]) -> None:
        """See `AgentQueue`."""
        self.connection.execute(
            f"{_RELEASE} WHERE request_id IN (SELECT value FROM json_each(?))",
            (ids_of(record.request_id for record in lapsed),),
        )


def free_agents(connection: sqlite3.Connection, claiming: Claiming) -> list[str]:
    """Return the agents without limits in whose queues the owner has claimed all there is."""
    limited = _limited_agents(connection) if claiming.wanted else {}
    other = (
        f"SELECT 1 FROM requests WHERE {IS_QUEUED} AND target_agent_id = ?"
        " AND NOT (state = 'CLAIMED' AND owner = ? AND lease_until_ms >= ?) LIMIT 1"
    )
    held = (claiming.owner, claiming.held_until_ms)
    return [
        agent_id
        for agent_id in claiming.wanted
        if agent_id not in limited
        and connection.execute(other, (agent_id, *held)).fetchone() is None
    ]


def write_claims(connection: sqlite3.Connection, taken: Iterable[RequestRecord]) -> None:
    """Write claims that were made."""
    connection.executemany(
        "UPDATE requests SET state = 'CLAIMED', epoch = ?, executions = ?, owner = ?,"
        " lease_until_ms = ?, not_before_ms = NULL WHERE request_id = ?",
        [
            (each.epoch, each.executions, each.owner, each.lease_until_ms, each.request_id)
            for each in taken
        ],
    )


def _limited_agents(connection: sqlite3.Connection) -> dict[str, LimitedAgent]:
    rows = connection.execute("SELECT agent_id, workers, starts, window_ms, started FROM agents")
    return {agent_id: LimitedAgent.of(*columns) for agent_id, *columns in rows}


def limit_agents(
    connection: sqlite3.Connection, limits: Mapping[str, AgentLimits]
) -> dict[str, AgentLimits]:
    """See `AACPPersistenceAdapter`."""
    limited = _limited_agents(connection)
    before = replaced(limits, {each: its.limits for each, its in limited.items()})
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


def queue_delayed(connection: sqlite3.Connection, now_ms: int, limit: int) -> Queued:
    """See `AACPPersistenceAdapter`."""
    rows = connection.execute(
        f"SELECT {OUTLINE} FROM requests WHERE state = 'DELAYED' AND not_before_ms <= ?"
        " ORDER BY not_before_ms, request_id LIMIT ?",
        (now_ms, limit),
    )
    due = list(map(records.request_of, rows))
    agents = sorted({record.target_agent_id for record in due})
    unit = load(connection, agents=agents)
    unit.queue_delayed(due)
    flush(connection, unit)
    [next_at_ms] = connection.execute(
        "SELECT min(not_before_ms) FROM requests WHERE state = 'DELAYED'"
    ).fetchone()
    return Queued(agents, next_at_ms)


def complete(
    connection: sqlite3.Connection,
    completions: Sequence[ClaimCompletion],
    now_ms: int,
) -> list[Completed]:
    """See `AACPPersistenceAdapter`."""
    unit = load_to_finish(connection, completions, OUTLINE)
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
