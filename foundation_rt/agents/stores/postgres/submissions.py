"""Requests are entered in transactions of applications, and taken over after their commits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import psycopg
from attrs import astuple
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from ....base.database.postgres import Query, Row
from ....errors import UsageError
from ...ledger.submissions import SubmittedRequest, in_order
from ...ledger.types import Appended, LedgerNews, OutgoingMessage
from . import news
from .arrays import BatchTable, numbers
from .working_set import Work

Outgoing = Callable[[SubmittedRequest], OutgoingMessage]

_COLUMNS = (
    "message_id, request_id, source_agent_id, target_agent_id, payload, ttl_ms, local, options,"
    " number, transaction"
)

# It finds out, without an error that would end the transaction, whether the next one can do.
_CHECK = """
SELECT current_database(),
    current_setting('transaction_read_only') = 'on',
    CASE WHEN has_schema_privilege(n.oid, 'USAGE') THEN (
        SELECT count(*) FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = n.oid AND (
            c.relname IN ('ledger', 'submission') AND has_table_privilege(c.oid, 'SELECT')
            AND (c.relname = 'ledger' OR has_table_privilege(c.oid, 'INSERT'))
        )
    ) = 2 END
FROM (SELECT 1) AS one LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = %s
"""
_UID = 'SELECT uid FROM "{schema}".ledger'
_SUBMIT = """
WITH added AS (
    INSERT INTO "{schema}".submission (
        message_id, request_id, source_agent_id, target_agent_id, payload, ttl_ms, local,
        options
    )
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s) RETURNING transaction
)
SELECT pg_catalog.pg_notify(%s, replace(%s, %s, transaction::text)) FROM added
"""
_TRANSACTION = 2**62 + 12345
"""Stands in the news for the number of the transaction, which the server puts there."""

_SEE = f"""
SELECT {_COLUMNS} FROM {{schema}}.submission
ORDER BY transaction, target_agent_id, number LIMIT %b::bigint
"""
_SEE_SOME = f"""
SELECT {_COLUMNS} FROM {{schema}}.submission WHERE transaction = ANY (%b)
ORDER BY transaction, target_agent_id, number LIMIT %b::bigint
"""
_GIVEN = BatchTable("given", "transaction, target_agent_id, number")
_TAKE = f"""
SELECT s.number FROM {{schema}}.submission AS s JOIN {_GIVEN} USING ({_GIVEN.columns})
ORDER BY number FOR UPDATE OF s SKIP LOCKED
"""
_FORGET = f"""
DELETE FROM {{schema}}.submission AS s USING {_GIVEN}
WHERE s.transaction = given.transaction AND s.target_agent_id = given.target_agent_id
    AND s.number = given.number
"""
_TARGET = "SELECT target_agent_id FROM {schema}.submission WHERE request_id = %b LIMIT 1"


# -- in the transaction of an application ---------------------------------------------------------


async def submit(connection: Any, schema: str, uid: str, submission: SubmittedRequest) -> None:
    """See `AACPPersistenceAdapter`.

    Args:
        connection: that of the application.
        schema: that of the ledger.
        uid: the unique name of the ledger.
        submission: the request.
    """
    _check_state(connection)
    # Whatever rows and placeholders the application has chosen for its connection.
    cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
    async with cursor:
        await cursor.execute(_CHECK, (schema,))
        _check_place(await cursor.fetchone(), schema)
        await cursor.execute(_named(_UID, schema))
        if await cursor.fetchone() != (uid,):
            raise UsageError(
                f"request_in: the schema {schema!r} in the database of this connection has another"
                " ledger than this coordinator: connect to the database of aacp.store"
            )
        target = submission.target_agent_id if submission.local else ""
        told = news.write(LedgerNews(submitted=[(target, _TRANSACTION)]))
        *values, _, _ = astuple(submission)  # number and transaction come from the server
        notification = (schema, told, str(_TRANSACTION))
        await cursor.execute(_named(_SUBMIT, schema), (*values, *notification))


def _check_state(connection: Any) -> None:
    """Raise `UsageError` unless a transaction is open, or begins with the next statement."""
    if not isinstance(connection, psycopg.AsyncConnection):
        raise UsageError("request_in needs an open psycopg.AsyncConnection (psycopg 3)")
    if connection.closed:
        raise UsageError("request_in: this connection is closed")
    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        raise UsageError("request_in: leave the pipeline of this connection first")
    status = connection.pgconn.transaction_status
    if status == TransactionStatus.IDLE and connection.autocommit:
        raise UsageError(
            "request_in needs a transaction, and this connection is in autocommit: call it within"
            " `async with connection.transaction():`"
        )
    if status == TransactionStatus.INERROR:
        raise UsageError("request_in: this transaction has failed: roll it back first")
    if status not in (TransactionStatus.IDLE, TransactionStatus.INTRANS):
        raise UsageError("request_in: this connection is executing something else")


def _check_place(found: Row | None, schema: str) -> None:
    """Raise `UsageError` unless the transaction can add to the ledger."""
    database, is_read_only, is_allowed = found or (None, False, None)
    if not is_allowed:
        raise UsageError(
            f"request_in: the database {database!r} of this connection has no ledger in a schema"
            f" {schema!r}, or its user may not use it: connect to the database of aacp.store, and"
            f" GRANT USAGE ON SCHEMA {schema}, SELECT ON {schema}.ledger, and SELECT, INSERT ON"
            f" {schema}.submission to the user"
        )
    if is_read_only:
        raise UsageError("request_in: this transaction is read-only")


def _named(statement: str, schema: str) -> bytes:
    return statement.replace("{schema}", schema).encode()


# -- after its commit -----------------------------------------------------------------------------


def see(transactions: Collection[int] | None, limit: int) -> Query:
    """Read submissions in their order, as rows for `submission_of`."""
    if transactions is None:
        return _SEE, (limit,)
    return _SEE_SOME, (numbers(transactions), limit)


def submission_of(row: Row) -> SubmittedRequest:
    """Return the submission in a row."""
    return SubmittedRequest(*row)


def target_of(request_id: str) -> Query:
    """Read the target of the submission of this id, if there is one."""
    return _TARGET, (request_id,)


async def take_over(
    work: Work, seen: Sequence[SubmittedRequest], outgoing: Outgoing
) -> list[tuple[OutgoingMessage, Appended] | None]:
    """Enter submissions and forget them; return None for each that another process has."""
    [rows] = await work.transaction.ask((_TAKE, _GIVEN.of_records(seen)))
    taken = in_order(seen, {number for (number,) in rows})
    messages = [outgoing(each) for each in taken]
    unit = await work.load_to_append(messages)
    entered = {
        each.number: (message, unit.append(message))
        for each, message in zip(taken, messages, strict=True)
    }
    if taken:
        await work.transaction.ask((_FORGET, _GIVEN.of_records(taken)))
    queues = {each.target_agent_id for each in messages if each.local}
    await work.flush(unit, LedgerNews(sorted(queues)))
    return [entered.get(each.number) for each in seen]
