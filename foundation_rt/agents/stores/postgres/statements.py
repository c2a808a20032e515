"""The SQL of a ledger.

Functions make queries from values; `link_of` and `claim_of` make values from rows, as `records`
does for requests and messages. Statements work on whole batches: each column is an array. Rows are
locked in one order everywhere, so that two transactions seldom wait for each other in a circle:
links, queues and mailboxes by their names, requests by target and position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from attrs import astuple

from ....base.database.postgres import Query, Row
from ...ledger.agent_limits import AgentLimits
from ...ledger.request_options import MAX_PRIORITY
from ...ledger.rules import CLAIMED_AT_HEAD
from ...ledger.session_manager import LinkState
from ...ledger.types import (
    TERMINAL,
    VOID_PAYLOAD,
    Claim,
    Claiming,
    Ending,
    Link,
    MessageRecord,
    MessageState,
    OutboxKey,
    RequestRecord,
)
from ..records import MESSAGE_COLUMNS, MESSAGE_TYPES, REQUEST_COLUMNS
from .arrays import BatchStatement, BatchTable, flags, numbers, texts

_REQUEST = ", ".join(REQUEST_COLUMNS)
_OUTLINE = _REQUEST.replace("payload", "''::bytea AS payload")
"""Of a request that is only put into its queue or gets its outcome the payload is not read."""
_MESSAGE = ", ".join(MESSAGE_COLUMNS)

# -- links and queues -----------------------------------------------------------------------------

_LINKS = BatchTable("given", "source_agent_id, target_agent_id")
_LOCK_LINKS = f"""
SELECT l.source_agent_id, l.target_agent_id, last_seq, acked, contiguous, ahead, series
FROM {{schema}}.link AS l JOIN {_LINKS} USING (source_agent_id, target_agent_id)
ORDER BY 1, 2 FOR UPDATE OF l
"""
_LOCK_QUEUES = """
SELECT agent_id, last_position FROM {schema}.queue WHERE agent_id = ANY (%b)
ORDER BY agent_id FOR UPDATE
"""
NAMES: Query = ("SELECT series, uid FROM {schema}.ledger", ())
"""Read the incarnation and the unique name of the ledger: one row."""
_MAKE_LINKS = f"""
INSERT INTO {{schema}}.link (source_agent_id, target_agent_id)
SELECT * FROM {_LINKS} ORDER BY 1, 2 ON CONFLICT DO NOTHING
"""
_MAKE_AGENTS = """
INSERT INTO {schema}.TABLE (agent_id) SELECT * FROM unnest(%b::text[]) ORDER BY 1
ON CONFLICT DO NOTHING
"""
_WRITE_LINKS = BatchStatement(
    "source_agent_id, target_agent_id, last_seq, acked, contiguous, ahead, series",
    """
UPDATE {schema}.link AS l
SET last_seq = n.last_seq, acked = n.acked, contiguous = n.contiguous, ahead = n.ahead::bigint[],
    series = n.series
FROM {batch}
WHERE l.source_agent_id = n.source_agent_id AND l.target_agent_id = n.target_agent_id
""",
)
WRITE_QUEUES = BatchStatement(
    "agent_id, last_position",
    """
UPDATE {schema}.queue AS q SET last_position = n.last_position
FROM {batch} WHERE q.agent_id = n.agent_id
""",
)
"""Write the last positions that were given out."""


def lock_links(links: Iterable[Link]) -> Query:
    """Lock links, as rows for `link_of`; a link that has no row yet is missing."""
    return _LOCK_LINKS, _LINKS.of(links)


def lock_queues(agents: Iterable[str]) -> Query:
    """Lock queues, as rows of agent and last position."""
    return _LOCK_QUEUES, [texts(agents)]


def make_rows(links: Iterable[Link], agents: Iterable[str]) -> list[Query]:
    """Make the rows of links and agents."""
    named = texts(agents)
    makers = [_MAKE_AGENTS.replace("TABLE", table) for table in ("queue", "mailbox")]
    return [(_MAKE_LINKS, _LINKS.of(links)), *((make, [named]) for make in makers)]


def link_of(row: Row) -> tuple[Link, LinkState]:
    """Read a row of `lock_links`."""
    return (row[0], row[1]), LinkState(row[2], row[3], row[4], set(row[5]), row[6])


def write_links(links: dict[Link, LinkState]) -> Query:
    """Write the states of links."""
    return _WRITE_LINKS.of(
        (
            *link,
            state.last_seq,
            state.acked,
            state.received_up_to,
            f"{{{','.join(map(str, state.out_of_order))}}}",
            state.incarnation,
        )
        for link, state in links.items()
    )


# -- requests -------------------------------------------------------------------------------------

_REQUESTS = f"SELECT {_REQUEST} FROM {{schema}}.request WHERE request_id = ANY (%b)"
_LOCK_SENT = f"""
SELECT {_REQUEST} FROM {{schema}}.request WHERE request_id = ANY (%b) AND state = 'SENT'
ORDER BY target_agent_id, position, request_id FOR UPDATE
"""
_LOCK_CLAIMS = f"""
SELECT {_OUTLINE} FROM {{schema}}.request WHERE request_id = ANY (%b) AND epoch > 0
ORDER BY target_agent_id, position, request_id FOR UPDATE
"""
_HELD = BatchTable("given", "source_agent_id, target_agent_id, up_to")
_LOCK_HELD = f"""
SELECT {_OUTLINE} FROM {{schema}}.request
JOIN {_HELD} USING (source_agent_id, target_agent_id)
WHERE held AND seq <= up_to ORDER BY target_agent_id, position, request_id FOR UPDATE OF request
"""
ADD_REQUESTS = BatchStatement(
    "request_id, message_type, source_agent_id, target_agent_id, seq, digest, payload, state,"
    " created_at_ms, expires_at_ms, by_message, position, not_before_ms, priority, retry, epoch,"
    " executions, owner, lease_until_ms",
    """
INSERT INTO {schema}.request ({columns}, held, queued, delayed, on_entry)
SELECT n.*, n.state = 'HELD', n.state IN ('RECEIVED', 'CLAIMED'), n.state = 'DELAYED',
    n.state = 'CLAIMED'
FROM {batch} ORDER BY request_id
""",
)
"""Enter requests that have no outcome; fail if one is there."""
_PUT_REQUEST = f"""
INSERT INTO {{schema}}.request (finished, {_REQUEST})
VALUES (%b{", %b" * len(REQUEST_COLUMNS)})
ON CONFLICT DO NOTHING
"""
ENTER = BatchStatement(
    "request_id, state, seq, by_message, position, not_before_ms",
    """
UPDATE {schema}.request AS r
SET state = n.state, seq = n.seq, by_message = n.by_message, position = n.position,
    not_before_ms = n.not_before_ms, held = n.state = 'HELD', queued = n.state = 'RECEIVED',
    delayed = n.state = 'DELAYED'
FROM {batch}
WHERE r.request_id = n.request_id AND r.state IN ('SENT', 'HELD', 'DELAYED')
""",
)
"""Hold or queue requests that are in the ledger."""
FINISH = BatchStatement(
    "request_id, state, result, error, finished_at_ms",
    """
UPDATE {schema}.request AS r
SET state = n.state, result = n.result, error = n.error, finished_at_ms = n.finished_at_ms,
    owner = NULL, lease_until_ms = NULL, queued = false, delayed = false, finished = true
FROM {batch} WHERE r.request_id = n.request_id
""",
)
"""Write outcomes; the rows are locked."""
_MARK = """
UPDATE {schema}.request
SET state = %b, result = %b, error = %b, completion_ref = %b, finished_at_ms = %b::bigint,
    finished = true
WHERE request_id = %b AND state = 'SENT'
"""
_STATE = "SELECT state FROM {schema}.request WHERE request_id = %b"
_PURGE_REQUESTS = """
DELETE FROM {schema}.request WHERE request_id IN (
    SELECT request_id FROM {schema}.request WHERE request_id IN (
        SELECT request_id FROM {schema}.request WHERE expires_at_ms <= %b::bigint
        ORDER BY expires_at_ms LIMIT %b::bigint
    )
    ORDER BY target_agent_id, position, request_id FOR UPDATE SKIP LOCKED
)
RETURNING true
"""


def requests(request_ids: Iterable[str]) -> Query:
    """Read requests, as rows for `records.request_of`."""
    return _REQUESTS, [texts(request_ids)]


def lock_sent(request_ids: Iterable[str]) -> Query:
    """Lock the requests that were made here and have no outcome."""
    return _LOCK_SENT, [texts(request_ids)]


def lock_claims(request_ids: Iterable[str]) -> Query:
    """Lock the requests that were ever claimed; they come without payloads."""
    return _LOCK_CLAIMS, [texts(request_ids)]


def lock_held(links: Mapping[Link, int]) -> Query:
    """Lock the requests that are held on links up to a number; they come without payloads."""
    return _LOCK_HELD, _HELD.of((*link, up_to) for link, up_to in links.items())


def put_request(request_id: str, record: RequestRecord) -> Query:
    """Keep a record in any state unless its id is known; it enters no queue."""
    return _PUT_REQUEST, [record.state in TERMINAL, *_row_of(record)]


def mark(request_id: str, ending: Ending, now_ms: int, completion_ref: str | None) -> list[Query]:
    """Finish a request that is SENT; the second query has one row, of the state it has now."""
    state, result, error = ending
    values = (str(state), result, error, completion_ref, now_ms, request_id)
    return [(_MARK, values), (_STATE, (request_id,))]


# -- claims ---------------------------------------------------------------------------------------

# `rules.claimability` in SQL: the requests that count, and those of them that stop their queue.
_IS_LIVE = "(state = 'CLAIMED' AND lease_until_ms > %(now)b)"
_COUNTS = "(expires_at_ms > %(now)b AND NOT (state = 'CLAIMED' AND owner = %(owner)b))"
_STOPS = f"({_IS_LIVE} OR coalesce(not_before_ms > %(now)b, false))"
_ORDER = "priority DESC, position"

# Of an agent `a`: the priorities, up to the highest one of its queue, and where each begins. Dead
# index entries below that are not read (AACP-172).
_TOP = """GREATEST(cardinality(a.floors::bigint[]) - 1, (
    SELECT priority FROM {schema}.request
    WHERE target_agent_id = a.agent_id AND queued AND priority >= cardinality(a.floors::bigint[])
    ORDER BY priority DESC LIMIT 1
))"""


_HEAD = """request_id, epoch, priority, position, state, lease_until_ms, not_before_ms,
            expires_at_ms"""


def _first(columns: str, limit: object, top: str = _TOP, counts: str = _COUNTS) -> str:
    """Return the first requests of each priority, in any order, as the table `first`."""
    return f"""generate_series(0, {top}) AS level
    CROSS JOIN LATERAL (
        SELECT {columns} FROM {{schema}}.request
        WHERE target_agent_id = a.agent_id AND queued AND priority = level
            AND position >= coalesce((a.floors::bigint[])[level + 1], 0) AND {counts}
        ORDER BY position LIMIT {limit}
    ) AS first"""


# `rules.executed_elsewhere_until`, for all priorities that are lower than that of `head`; for its
# own too if another has let it lapse. Of the lowest one it otherwise reads nothing.
_BESIDE_HEAD = "head.priority - (head.state <> 'CLAIMED')::integer"
_ELSEWHERE = f"""(
    SELECT min(lease_until_ms) AS until_ms, bool_or(on_entry) AS on_entry
    FROM {_first("state, lease_until_ms, on_entry", CLAIMED_AT_HEAD, _BESIDE_HEAD)}
    WHERE {_IS_LIVE}
)"""

# Agents that have something to claim, and for which no other transaction is claiming now. Those
# with limits that have something at all: what they may claim is decided outside of SQL.
_LOCK_MAILBOXES = f"""
SELECT agent_id, workers, starts, window_ms, started
FROM {{schema}}.mailbox AS m
JOIN unnest(%(agents)b::text[], %(floors)b::text[]) AS a (agent_id, floors) USING (agent_id)
WHERE (
    SELECT m.workers > 1 OR m.starts > 0 OR NOT {_STOPS}
    FROM {_first(_HEAD, 1)} ORDER BY {_ORDER} LIMIT 1
)
ORDER BY agent_id FOR UPDATE OF m SKIP LOCKED
"""
# The agents without limits that have nothing in their queues, whether it may be claimed or not, but
# what this owner has claimed for so long that nobody takes it over before this transaction ends.
_NOT_OWN = "NOT (state = 'CLAIMED' AND owner = %(owner)b AND lease_until_ms >= %(now)b)"
_VACANCY = f"""
SELECT a.agent_id, level, (
    SELECT position FROM {{schema}}.request
    WHERE target_agent_id = a.agent_id AND queued AND priority = level
        AND position >= coalesce((a.floors::bigint[])[level + 1], 0)
    ORDER BY position LIMIT 1
)
FROM unnest(%(agents)b::text[], %(floors)b::text[]) AS a (agent_id, floors)
JOIN {{schema}}.mailbox AS m USING (agent_id)
CROSS JOIN LATERAL generate_series(0, {_TOP}) AS level
WHERE m.workers = 1 AND m.starts = 0
    AND NOT EXISTS (SELECT FROM {_first("state", 1, counts=_NOT_OWN)})
"""
# For `LimitedAgent.admit`, without payloads.
_LIMITED_HEADS = f"""
SELECT h.*
FROM unnest(%(agents)b::text[], %(most)b::bigint[], %(floors)b::text[])
    AS a (agent_id, most, floors)
CROSS JOIN LATERAL (
    SELECT first.* FROM {_first(_OUTLINE, "a.most", counts="expires_at_ms > %(now)b")}
) AS h
ORDER BY target_agent_id, {_ORDER}
"""
_LIMITS = """
SELECT agent_id, workers, starts, window_ms FROM {schema}.mailbox WHERE agent_id = ANY (%b)
"""
_SET_LIMITS = BatchStatement(
    "agent_id, workers, starts, window_ms",
    """
INSERT INTO {schema}.mailbox AS m ({columns}) SELECT * FROM {batch} ORDER BY 1
ON CONFLICT (agent_id) DO UPDATE SET workers = EXCLUDED.workers, starts = EXCLUDED.starts,
    window_ms = EXCLUDED.window_ms
""",
)
NOTE_STARTS = BatchStatement(
    "agent_id, started",
    """
UPDATE {schema}.mailbox AS m SET started = n.started FROM {batch} WHERE m.agent_id = n.agent_id
""",
)
"""Write what `LimitedAgent.written` gives; the mailboxes are locked."""
# The heads of the queues, up to and including the request that stops each.
_HEADS = f"""
SELECT h.request_id, a.agent_id, h.epoch, h.stops, h.until_ms, h.is_claimed, h.priority, h.position,
    h.on_entry
FROM unnest(%(agents)b::text[], %(most)b::bigint[], %(floors)b::text[])
    WITH ORDINALITY AS a (agent_id, most, floors, place)
CROSS JOIN LATERAL (
    SELECT *, count(*) FILTER (WHERE stops) OVER (ORDER BY {_ORDER}) AS stopped
    FROM (
        SELECT request_id, epoch, priority, position,
            {_STOPS} OR elsewhere.until_ms IS NOT NULL AS stops,
            coalesce(
                elsewhere.until_ms,
                LEAST(
                    CASE WHEN state = 'CLAIMED' THEN lease_until_ms ELSE not_before_ms END,
                    expires_at_ms
                )
            ) AS until_ms,
            state = 'CLAIMED' AS is_claimed,
            coalesce(elsewhere.on_entry, false) AS on_entry
        FROM (
            SELECT first.* FROM {_first(_HEAD, "a.most")} ORDER BY {_ORDER} LIMIT a.most
        ) AS head
        CROSS JOIN LATERAL {_ELSEWHERE} AS elsewhere
    ) AS waiting
) AS h
WHERE h.stopped = 0 OR h.stopped = 1 AND h.stops
ORDER BY a.place, h.priority DESC, h.position
"""
# Of whoever claims, and of what has expired, too.
LOWEST = BatchStatement(
    "agent_id, priority, floor",
    """
SELECT n.agent_id, n.priority, (
    SELECT position FROM {schema}.request
    WHERE target_agent_id = n.agent_id AND queued AND priority = n.priority AND position >= n.floor
    ORDER BY position LIMIT 1
)
FROM {batch}
""",
)
"""Read agent, priority, and the lowest position from a floor on, or NULL."""

# `rules.give_back_lapsed`: all claims of others in a queue, or none if one of them is live by now
# or locked. It returns the agents of which it gave none back.
_GIVE_BACK_LAPSED = f"""
WITH theirs AS MATERIALIZED (
    SELECT agent_id, request_id
    FROM unnest(%(agents)b::text[], %(floors)b::text[]) AS a (agent_id, floors)
    CROSS JOIN {_first("request_id, state", CLAIMED_AT_HEAD, str(MAX_PRIORITY))}
    WHERE state = 'CLAIMED'
),
free AS MATERIALIZED (
    SELECT r.request_id FROM {{schema}}.request AS r JOIN theirs USING (request_id)
    WHERE state = 'CLAIMED' AND owner <> %(owner)b AND NOT {_IS_LIVE}
    ORDER BY target_agent_id, position FOR UPDATE OF r SKIP LOCKED
),
busy AS MATERIALIZED (
    SELECT DISTINCT agent_id FROM theirs LEFT JOIN free USING (request_id)
    WHERE free.request_id IS NULL
),
given_back AS (
    UPDATE {{schema}}.request AS r SET state = 'RECEIVED', owner = NULL, lease_until_ms = NULL
    FROM free WHERE r.request_id = free.request_id
        AND r.target_agent_id NOT IN (SELECT agent_id FROM busy)
)
SELECT agent_id FROM busy
"""

# The owner of an earlier claim may have renewed it, completed it, or given it back; or a process
# that is stopped keeps it locked. What is behind such a request in its queue waits for it.
# No statement that has ids names what a partial index is of (AACP-168): `state` is in no index.
_CLAIM = f"""
WITH free AS MATERIALIZED (
    SELECT r.request_id, target_agent_id, priority, position, given.begins, given.number
    FROM {{schema}}.request AS r
    JOIN unnest(
        %(request_ids)b::text[], %(epochs)b::bigint[], %(begins)b::boolean[], %(numbers)b::bigint[]
    ) AS given (request_id, epoch, begins, number) USING (request_id, epoch)
    WHERE state IN ('RECEIVED', 'CLAIMED') AND NOT {_STOPS}
    ORDER BY target_agent_id, position FOR UPDATE OF r SKIP LOCKED
),
taken AS (
    SELECT request_id, begins FROM (
        SELECT *, row_number() OVER (PARTITION BY target_agent_id ORDER BY {_ORDER}) AS place
        FROM free
    ) AS placed
    WHERE place = number
)
UPDATE {{schema}}.request AS r
SET state = 'CLAIMED', epoch = r.epoch + 1, owner = %(owner)b, lease_until_ms = %(until)b,
    not_before_ms = NULL, executions = r.executions + taken.begins::integer, on_entry = %(is_quiet)b
FROM taken WHERE r.request_id = taken.request_id
RETURNING r.request_id, r.epoch, executions + (NOT taken.begins)::integer, source_agent_id,
    target_agent_id, message_type, payload, seq, created_at_ms, expires_at_ms, priority, retry
"""
_RENEW = BatchStatement(
    "request_id, epoch",
    """
WITH kept AS MATERIALIZED (
    SELECT r.request_id, %b::bigint AS until_ms
    FROM {schema}.request AS r JOIN {batch} USING (request_id, epoch)
    WHERE state = 'CLAIMED' ORDER BY target_agent_id, position FOR UPDATE OF r
)
UPDATE {schema}.request AS r SET lease_until_ms = kept.until_ms FROM kept
WHERE r.request_id = kept.request_id RETURNING r.request_id, r.epoch
""",
)
RELEASE = BatchStatement(
    "request_id, epoch, executions, not_before_ms, leaves_queue",
    """
WITH kept AS MATERIALIZED (
    SELECT r.request_id, n.executions, n.not_before_ms, n.leaves_queue
    FROM {schema}.request AS r JOIN {batch} USING (request_id, epoch)
    WHERE state = 'CLAIMED' ORDER BY target_agent_id, position FOR UPDATE OF r
)
UPDATE {schema}.request AS r
SET state = CASE WHEN kept.leaves_queue THEN 'DELAYED' ELSE 'RECEIVED' END,
    position = CASE WHEN kept.leaves_queue THEN NULL ELSE r.position END,
    queued = NOT kept.leaves_queue, delayed = kept.leaves_queue, owner = NULL,
    lease_until_ms = NULL, not_before_ms = kept.not_before_ms, executions = kept.executions
FROM kept WHERE r.request_id = kept.request_id
""",
)
"""Give claims back."""
_DELAYED_AGENTS = """
SELECT DISTINCT target_agent_id FROM (
    SELECT target_agent_id FROM {schema}.request
    WHERE delayed AND not_before_ms <= %b::bigint ORDER BY not_before_ms LIMIT %b::bigint
) AS due
"""
_LOCK_DELAYED = f"""
SELECT {_OUTLINE} FROM {{schema}}.request
WHERE delayed AND not_before_ms <= %b::bigint AND target_agent_id = ANY (%b)
ORDER BY not_before_ms, request_id LIMIT %b::bigint FOR UPDATE SKIP LOCKED
"""
NEXT_DELAYED: Query = ("SELECT min(not_before_ms) FROM {schema}.request WHERE delayed", ())
"""Read when the time of the next request comes, or NULL."""


Floors = Sequence[int]
"""Of one queue, by priority: no request of it is at a lower position."""

Choice = tuple[str, int, bool, int]
"""A request that is to be claimed, the epoch that it has, whether it is begun at once, and its
number among the chosen ones of its agent."""


def lock_mailboxes(
    agents: Sequence[str], floors: Sequence[Floors], owner: str, now_ms: int
) -> Query:
    """Lock agents, so that only this transaction claims for them; one row for each."""
    return _LOCK_MAILBOXES, _queues(agents, floors, owner, now_ms)


def vacancy(agents: Sequence[str], floors: Sequence[Floors], owner: str, until_ms: int) -> Query:
    """Read which agents are free (AACP-193); their queues are locked.

    There is a row for each priority, with its lowest position or NULL. What the owner has claimed
    at least until then does not count.
    """
    return _VACANCY, _queues(agents, floors, owner, until_ms)


def heads(wanted: Mapping[str, int], floors: Sequence[Floors], owner: str, now_ms: int) -> Query:
    """Read request, agent, epoch, whether it stops, until when, if claimed, priority, position.

    The last column says whether a quiet claim stops the queue (AACP-195). The rows are in the order
    of the agents and their queues; for each agent at most as many as are wanted.
    """
    most = numbers(wanted.values())
    return _HEADS, {"most": most, **_queues(list(wanted), floors, owner, now_ms)}


def limited_heads(limited: Mapping[str, int], floors: Sequence[Floors], now_ms: int) -> Query:
    """Read the first requests of each priority, of whoever claims them; so many for each agent."""
    most = numbers(limited.values())
    return _LIMITED_HEADS, {"most": most, **_queues(list(limited), floors, "", now_ms)}


def limits_of(agents: Sequence[str]) -> Query:
    """Read agent, workers, starts and window of the agents that are known."""
    return _LIMITS, (texts(agents),)


def set_limits(limits: Mapping[str, AgentLimits]) -> Query:
    """Set the limits of agents."""
    return _SET_LIMITS.of((name, *astuple(its)) for name, its in limits.items())


def give_back_lapsed(
    agents: Sequence[str], floors: Sequence[Floors], owner: str, now_ms: int
) -> Query:
    """Give back the lapsed claims of others, as `rules.give_back_lapsed`.

    One row for each agent of which none were given back, since not all of them are lapsed and free.
    """
    return _GIVE_BACK_LAPSED, _queues(agents, floors, owner, now_ms)


def _queues(
    agents: Sequence[str], floors: Sequence[Floors], owner: str, now_ms: int
) -> dict[str, object]:
    return {
        "agents": texts(agents),
        "floors": texts([f"{{{','.join(map(str, each))}}}" for each in floors]),
        "owner": owner,
        "now": now_ms,
    }


def claim(chosen: Sequence[Choice], claiming: Claiming, now_ms: int, *, is_quiet: bool) -> Query:
    """Claim what still may be claimed, with rows for `claim_of` in any order."""
    return _CLAIM, {
        "request_ids": texts([each[0] for each in chosen]),
        "epochs": numbers([each[1] for each in chosen]),
        "begins": flags([each[2] for each in chosen]),
        "numbers": numbers([each[3] for each in chosen]),
        "owner": claiming.owner,
        "now": now_ms,
        "until": claiming.lease_until_ms,
        "is_quiet": is_quiet,
    }


def claim_of(row: Row) -> Claim:
    """Read a row of `claim`."""
    values = list(row)
    values[5] = MESSAGE_TYPES[row[5]]
    return Claim(*values)


def renew(claims: Sequence[tuple[str, int]], until_ms: int) -> Query:
    """Extend leases; one row of request and epoch for each claim that still holds."""
    return _RENEW.of(claims, until_ms)


def delayed_agents(now_ms: int, limit: int) -> Query:
    """Read the agents of requests whose time has come."""
    return _DELAYED_AGENTS, (now_ms, limit)


def lock_delayed(agents: Iterable[str], now_ms: int, limit: int) -> Query:
    """Lock requests whose time has come; they come without payloads."""
    return _LOCK_DELAYED, (now_ms, texts(agents), limit)


# -- messages -------------------------------------------------------------------------------------

_MESSAGES = f"SELECT {_MESSAGE} FROM {{schema}}.message WHERE message_id = ANY (%b)"
ADD_MESSAGES = BatchStatement(
    _MESSAGE,
    """
INSERT INTO {schema}.message ({columns}) SELECT * FROM {batch} ON CONFLICT DO NOTHING RETURNING true
""",
)
"""Enter messages that are not there; one row for each."""
_RANGES = "source, target, low, high"
_IN_RANGE = """
WHERE source_agent_id = source AND target_agent_id = target AND seq BETWEEN low AND high
"""
_ACKNOWLEDGE = BatchStatement(
    _RANGES,
    f"""
UPDATE {{schema}}.message SET state = 'ACKNOWLEDGED', payload = %b, next_attempt_at_ms = NULL
FROM {{batch}} {_IN_RANGE} AND state = 'PENDING' RETURNING {_MESSAGE}
""",
)
_FORGET_TOMBSTONES = BatchStatement(
    _RANGES,
    f"DELETE FROM {{schema}}.message USING {{batch}} {_IN_RANGE} AND state = 'TOMBSTONE'",
)
_LOCK_DUE = f"""
SELECT {_MESSAGE}, (
    SELECT acked + 1 FROM {{schema}}.link AS l
    WHERE l.source_agent_id = m.source_agent_id AND l.target_agent_id = m.target_agent_id
)
FROM {{schema}}.message AS m WHERE next_attempt_at_ms <= %b::bigint
ORDER BY next_attempt_at_ms, message_id LIMIT %b::bigint FOR UPDATE SKIP LOCKED
"""
_PLAN = BatchStatement(
    "message_id, state, attempts, next_attempt_at_ms",
    """
UPDATE {schema}.message AS m
SET state = n.state, attempts = n.attempts, next_attempt_at_ms = n.next_attempt_at_ms,
    payload = CASE n.state WHEN 'TOMBSTONE' THEN %b ELSE m.payload END
FROM {batch} WHERE m.message_id = n.message_id
""",
)
_HASTEN = """
WITH page AS (
    SELECT message_id, source_agent_id, target_agent_id, seq FROM {schema}.message
    WHERE state <> 'ACKNOWLEDGED'
        AND (source_agent_id, target_agent_id, seq) > (%b, %b, %b::bigint)
        AND (%b::boolean OR target_agent_id = ANY (%b::text[]))
    ORDER BY source_agent_id, target_agent_id, seq LIMIT %b::bigint
), early AS (
    SELECT message_id FROM {schema}.message JOIN page USING (message_id)
    WHERE created_at_ms <= %b::bigint AND coalesce(next_attempt_at_ms, 0) > %b::bigint
    FOR UPDATE OF message SKIP LOCKED
), hastened AS (
    UPDATE {schema}.message AS m SET next_attempt_at_ms = %b::bigint FROM early
    WHERE m.message_id = early.message_id RETURNING true
)
SELECT (SELECT count(*) FROM hastened), source_agent_id, target_agent_id, seq FROM page
ORDER BY source_agent_id DESC, target_agent_id DESC, seq DESC LIMIT 1
"""
_RESCHEDULE = f"""
UPDATE {{schema}}.message
SET state = coalesce(%b::text, state), payload = coalesce(%b::bytea, payload),
    next_attempt_at_ms = %b::bigint
WHERE message_id = %b AND state <> 'ACKNOWLEDGED' RETURNING {_MESSAGE}
"""
NEXT_DUE: Query = ("SELECT min(next_attempt_at_ms) FROM {schema}.message", ())
"""Read when the next attempt of all is due, or NULL."""
_OUTBOX = f"""
SELECT {_MESSAGE} FROM {{schema}}.message
WHERE source_agent_id = %b AND target_agent_id = %b AND state <> 'ACKNOWLEDGED'
    AND created_at_ms < %b::bigint
"""
_IN_STATE = f"""
SELECT {_MESSAGE} FROM {{schema}}.message WHERE state = %b AND created_at_ms < %b::bigint
"""
_PURGE_ACKNOWLEDGED = """
DELETE FROM {schema}.message WHERE message_id IN (
    SELECT message_id FROM {schema}.message
    WHERE expires_at_ms <= %b::bigint AND state = 'ACKNOWLEDGED'
    ORDER BY expires_at_ms LIMIT %b::bigint FOR UPDATE SKIP LOCKED
)
RETURNING true
"""
_VOID_EXPIRED = """
UPDATE {schema}.message SET state = 'TOMBSTONE', payload = %b, next_attempt_at_ms = %b::bigint
WHERE message_id IN (
    SELECT message_id FROM {schema}.message
    WHERE expires_at_ms <= %b::bigint AND state = 'PENDING'
    ORDER BY expires_at_ms LIMIT %b::bigint FOR UPDATE SKIP LOCKED
)
RETURNING true
"""

Settled = dict[Link, tuple[int, int]]
"""For each link the first and the last of the numbers that were acknowledged."""


def messages(message_ids: Iterable[str]) -> Query:
    """Read messages, as rows for `records.message_of`."""
    return _MESSAGES, [texts(message_ids)]


def message(message_id: str) -> Query:
    """Read one message."""
    return messages([message_id])


def acknowledge(settled: Settled) -> list[Query]:
    """Delete the tombstones among them, and acknowledge the messages that are pending.

    Their numbers need not be sent again. The second query has rows for `records.message_of`.
    """
    ranges = [(*link, *ends) for link, ends in settled.items()]
    return [_FORGET_TOMBSTONES.of(ranges), _ACKNOWLEDGE.of(ranges, VOID_PAYLOAD)]


def lock_due(now_ms: int, limit: int) -> Query:
    """Lock due messages that no other transaction has locked; their low watermarks come last."""
    return _LOCK_DUE, (now_ms, limit)


def plan(records: Sequence[MessageRecord]) -> Query:
    """Write state, attempts and next attempt."""
    return _PLAN.of_records(records, VOID_PAYLOAD)


def hasten(targets: Sequence[str], at_ms: int, after: OutboxKey, limit: int) -> Query:
    """Make a page of messages due: one row, of how many and the last one's key, or none."""
    return _HASTEN, (*after, not targets, texts(targets), limit, at_ms, at_ms, at_ms)


def reschedule(message_id: str, at_ms: int, *, give_up: bool = False) -> Query:
    """Return a row for `records.message_of`, unless it is acknowledged or not there."""
    void = (str(MessageState.TOMBSTONE), VOID_PAYLOAD) if give_up else (None, None)
    return _RESCHEDULE, (*void, at_ms, message_id)


def messages_of(of: Link | MessageState, before_ms: int) -> Query:
    """Read the messages of a link that are not acknowledged, or those with a state."""
    if isinstance(of, MessageState):
        return _IN_STATE, (str(of), before_ms)
    return _OUTBOX, (*of, before_ms)


# -- others ---------------------------------------------------------------------------------------

_NOTIFY = "SELECT pg_notify(%b, %b)"
_SERVER_SETTINGS = """
SELECT name, setting FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') ORDER BY name
"""
SERVER_SETTINGS: Query = (_SERVER_SETTINGS, ())
"""Read the settings on which durability depends; rows of name and setting."""


def notify(channel: str, payload: str) -> Query:
    """Notify all processes that listen."""
    return _NOTIFY, (channel, payload)


def purges(now_ms: int, limit: int) -> list[Query]:
    """Delete or void expired records, at most `limit` by each query; one row for each record."""
    return [
        (_PURGE_REQUESTS, (now_ms, limit)),
        (_PURGE_ACKNOWLEDGED, (now_ms, limit)),
        (_VOID_EXPIRED, (VOID_PAYLOAD, now_ms, now_ms, limit)),
    ]


SERVER_TIME: Query = ("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8", ())
"""Read the time of the database server, in ms since 1970."""


def _row_of(record: RequestRecord) -> list[object]:
    values = astuple(record, recurse=False)
    return [str(each) if isinstance(each, StrEnum) else each for each in values]
