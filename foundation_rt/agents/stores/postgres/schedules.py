"""Schedules are changed, found and moved on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from ....base.database.postgres import Query
from ...ledger.schedules import (
    Advance,
    DueSchedules,
    EnteredRuns,
    ScheduleChange,
    advance_all,
    change_all,
)
from ...ledger.types import LedgerNews
from .. import records
from .arrays import BatchStatement, texts
from .working_set import Work

_COLUMNS = ", ".join(records.SCHEDULE_COLUMNS)
_LOCK = f"""
SELECT {_COLUMNS} FROM {{schema}}.schedule WHERE name = ANY (%b) ORDER BY name FOR UPDATE
"""
_LIST = f"""
SELECT {_COLUMNS} FROM {{schema}}.schedule WHERE name > %b::text ORDER BY name LIMIT %b::bigint
"""
_DUE = f"""
SELECT {_COLUMNS} FROM {{schema}}.schedule WHERE next_run_at_ms <= %b::bigint
ORDER BY next_run_at_ms, name LIMIT %b::bigint
"""
_NEXT = "SELECT min(next_run_at_ms) FROM {schema}.schedule WHERE next_run_at_ms > %b::bigint"
_DELETE = "DELETE FROM {schema}.schedule WHERE name = ANY (%b)"
_ADD = BatchStatement(
    _COLUMNS, "INSERT INTO {schema}.schedule ({columns}) SELECT * FROM {batch} ORDER BY name"
)
# Whoever holds the lock enters the runs: nobody needs to wait for that.
_TRY_TO_LOCK = f"""
SELECT {_COLUMNS} FROM {{schema}}.schedule WHERE name = ANY (%b)
ORDER BY name FOR UPDATE SKIP LOCKED
"""
_ADVANCE = BatchStatement(
    "name, decided_until_ms, next_run_at_ms, last_run_at_ms",
    """
UPDATE {schema}.schedule AS s SET decided_until_ms = n.decided_until_ms,
    next_run_at_ms = n.next_run_at_ms, last_run_at_ms = n.last_run_at_ms
FROM {batch} WHERE s.name = n.name
""",
)


async def change_schedules(work: Work, changes: Sequence[ScheduleChange]) -> list[bool]:
    """See `AACPPersistenceAdapter`."""
    names = texts(sorted({change.name for change in changes}))
    [rows] = await work.transaction.ask((_LOCK, [names]))
    known = {row[0]: records.schedule_of(row) for row in rows}
    was_there = change_all(known, changes)
    await work.transaction.commit((_DELETE, [names]), _ADD.of_records(known.values()))
    return was_there


def page(after: str, limit: int) -> Query:
    """Read a page of schedules, as rows for `records.schedule_of`."""
    return _LIST, (after, limit)


async def due_schedules(work: Work, now_ms: int, limit: int) -> DueSchedules:
    """See `AACPPersistenceAdapter`."""
    queries = (_DUE, (now_ms, limit)), (_NEXT, (now_ms,))
    rows, [(next_at_ms,)] = await work.transaction.read(*queries)
    return DueSchedules(list(map(records.schedule_of, rows)), next_at_ms)


async def enter_runs(work: Work, advances: Sequence[Advance]) -> list[EnteredRuns]:
    """See `AACPPersistenceAdapter`."""
    [rows] = await work.transaction.ask((_TRY_TO_LOCK, [texts(each.name for each in advances)]))
    known = {row[0]: records.schedule_of(row) for row in rows}
    made = advance_all(known, advances)
    taken = list(compress(advances, made))
    messages = [message for advance in taken for _, message in advance.runs]
    unit = await work.load_to_append(messages)
    appended = iter([unit.append(message) for message in messages])
    entered: list[EnteredRuns] = [
        [next(appended) for _ in advance.runs] if is_made else None
        for advance, is_made in zip(advances, made, strict=True)
    ]
    if taken:
        moved = {advance.name: known[advance.name] for advance in taken}
        await work.transaction.ask(_ADVANCE.of_records(moved.values()))
    queues = {each.target_agent_id for each in messages if each.local}
    await work.flush(unit, LedgerNews(sorted(queues)))
    return entered
