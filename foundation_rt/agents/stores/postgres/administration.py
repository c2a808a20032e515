"""Operators list requests, cancel them and put them into their queues again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ....base.database.postgres import Query
from ...ledger.administration import (
    MAX_MEASURED,
    Changed,
    RequestQuery,
    Verdict,
    is_executed_here,
)
from ...ledger.types import TERMINAL, ClaimCompletion, LedgerNews, RequestRecord
from ...ledger.unit_of_work import UnitOfWork
from .. import records
from . import statements
from .arrays import BatchStatement, texts
from .working_set import Work

_LEFT_OUT = {"payload": "'null'::bytea", "result": "NULL::bytea"}
_WHOLE = ", ".join(records.REQUEST_COLUMNS)
_OUTLINE = ", ".join(_LEFT_OUT.get(name, name) for name in records.REQUEST_COLUMNS)
_LIST = """
 FROM {schema}.request
WHERE (created_at_ms, request_id) > (%(after_ms)b::bigint, %(after_id)b::text)
    AND created_at_ms < %(before_ms)b::bigint
"""
_LIST_END = "ORDER BY created_at_ms, request_id LIMIT %(limit)b::bigint"
_SUMMARIZE = """
SELECT target_agent_id, state, count(*), min(created_at_ms) FROM {schema}.request
WHERE target_agent_id IN (
    SELECT DISTINCT target_agent_id FROM {schema}.request WHERE target_agent_id > %b::text
    ORDER BY 1 LIMIT %b::bigint
)
GROUP BY 1, 2 ORDER BY 1, 2
"""
_MEASURE = """
SELECT a.id, q.state, count(*), min(q.created_at_ms)
FROM unnest(%b::text[]) AS a (id), LATERAL (
    SELECT state, created_at_ms FROM {schema}.request
    WHERE target_agent_id = a.id AND queued
    ORDER BY priority DESC, position LIMIT %b::bigint
) AS q
GROUP BY 1, 2
"""
_LOCK = f"""
SELECT {_WHOLE} FROM {{schema}}.request WHERE request_id = ANY (%b)
ORDER BY target_agent_id, position, request_id FOR UPDATE
"""
_FENCE = """
UPDATE {schema}.request SET epoch = epoch + 1, held = false WHERE request_id = ANY (%b)
"""
_REQUEUE = BatchStatement(
    "request_id, position, epoch",
    """
UPDATE {schema}.request AS r
SET state = 'RECEIVED', position = n.position, epoch = n.epoch, executions = 0,
    not_before_ms = NULL, result = NULL, error = NULL, completion_ref = NULL,
    finished_at_ms = NULL, expires_at_ms = %b::bigint, queued = true, finished = false
FROM {batch} WHERE r.request_id = n.request_id
""",
)


def page(query: RequestQuery) -> Query:
    """Read a page of requests, as rows for `records.request_of`."""
    columns = _WHOLE if query.whole else _OUTLINE
    conditions = [f"SELECT {columns}{_LIST}"]
    if query.agent_id is not None:
        conditions.append("AND target_agent_id = %(agent)b::text")
    if query.states:
        conditions.append("AND state = ANY (%(states)b)")
        if TERMINAL.isdisjoint(query.states):
            conditions.append("AND NOT finished")  # an index has these
    if query.id_owner is not None:
        conditions.append("AND request_id LIKE %(owner)b::text")
    values = {
        "after_ms": query.after[0],
        "after_id": query.after[1],
        "before_ms": 2**63 - 1 if query.before_ms is None else query.before_ms,
        "agent": query.agent_id,
        "states": texts(query.states),
        "owner": f"%@{query.id_owner}",
        "limit": query.limit,
    }
    sql = "\n".join([*conditions, _LIST_END])
    return sql, {name: value for name, value in values.items() if f"%({name})" in sql}


def summary(after: str, limit: int) -> Query:
    """Read agent, state, count and oldest creation time, of a page of agents."""
    return _SUMMARIZE, (after, limit)


def queues(agent_ids: Collection[str]) -> Query:
    """Read agent, state, count and oldest creation time, of the queues of these agents."""
    return _MEASURE, (texts(set(agent_ids)), MAX_MEASURED)


async def cancel(
    work: Work, cancellations: Sequence[ClaimCompletion], now_ms: int
) -> list[Changed]:
    """See `AACPPersistenceAdapter`."""
    requests = await _lock(work, (each.request_id for each in cancellations))
    unit = UnitOfWork(work.incarnation, requests=requests)
    answers = [unit.cancel(cancellation, now_ms) for cancellation in cancellations]
    await work.load_response_links(unit)
    for changed, cancellation in zip(answers, cancellations, strict=True):
        unit.answer_cancelled(changed, cancellation, now_ms)
    if unit.finished:
        await work.transaction.ask((_FENCE, [texts(unit.finished)]))
    agents = {record.target_agent_id for record in unit.finished.values()}
    await work.flush(unit, LedgerNews(sorted(agents), list(unit.finished)))
    return answers


async def requeue(work: Work, request_ids: Sequence[str], expires_at_ms: int) -> list[Changed]:
    """See `AACPPersistenceAdapter`."""
    [rows] = await work.transaction.ask(statements.requests(request_ids))
    known = map(records.request_of, rows)
    agents = {record.target_agent_id for record in known if is_executed_here(record)}
    # Queues before requests, as everywhere.
    unit = await work.load(agents=agents)
    unit.requests = await _lock(work, request_ids)
    answers = [unit.requeue(request_id, expires_at_ms) for request_id in request_ids]
    again = [
        changed.record
        for changed in answers
        if changed.verdict is Verdict.DONE and changed.record is not None
    ]
    if again:
        await work.transaction.ask(_REQUEUE.of_records(again, expires_at_ms))
    await work.flush(unit, LedgerNews(sorted(agents) if again else ()))
    return answers


async def _lock(work: Work, request_ids: Iterable[str]) -> dict[str, RequestRecord]:
    [rows] = await work.transaction.ask((_LOCK, [texts(request_ids)]))
    return {row[0]: records.request_of(row) for row in rows}
