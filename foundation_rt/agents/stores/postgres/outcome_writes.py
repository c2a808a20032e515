"""The writes of handlers in the transactions that record their outcomes (AACP-05, AACP-07).

Each write has a savepoint of its own. When a write fails, its savepoint is undone, and the rest of
the batch goes on. Rows and outcome must never disagree, so nothing but the write itself may fail
in this way: when SAVEPOINT, RELEASE or ROLLBACK TO fails, the state of the transaction is unknown,
and the whole transaction is undone and repeated.

A write that the database did not carry out is repeated as well. There are two cases:

* The limit ran out while the database owed an answer, and the server has not stopped a statement.
  The database or the network stalled. The write is repeated for as long as that lasts.
* The connection was lost, the server stopped a statement or reported a fault of its own, or the
  write ended the transaction or left savepoints in it. The write may be the cause. It is tried
  `MAX_STRIKES` times, because meanwhile no other outcome of its batch is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

import psycopg
from attrs import define, field
from psycopg.pq import TransactionStatus

from ....base.abort import is_task_cancelled
from ....base.database.postgres import ROLLED_BACK, Connection, Raced
from ...ledger.types import ClaimCompletion
from .connections import STATEMENT_MS

if TYPE_CHECKING:
    from ...messages import OutcomeWrite

WRITE_S = STATEMENT_MS / 1000
"""The longest that one write may take, in seconds."""
MAX_STRIKES = 3
"""Most attempts of a write that may itself cause a fault of the database."""
_IN_TRANSACTION = (TransactionStatus.INTRANS, TransactionStatus.INERROR)


@define(eq=False, repr=False)
class OutcomeWrites:
    """Performs writes, and counts how often each may have been the cause of a fault."""

    # By request id: how often, and the error of the last time.
    _strikes: dict[str, tuple[int, Exception]] = field(factory=dict, init=False)

    async def perform(
        self, connection: Connection, completion: ClaimCompletion
    ) -> Exception | None:
        """Perform the write of an outcome; return its error if it failed and was undone.

        Raises:
            Raced, psycopg.Error: the whole transaction has to be undone and repeated.
        """
        if completion.in_transaction is None:
            return None
        strikes, last_error = self._strikes.get(completion.request_id, (0, None))
        if strikes >= MAX_STRIKES:
            return last_error
        try:
            async with connection.transaction() as savepoint:
                failure = await _failure_of(completion.in_transaction, connection)
                if failure is not None:
                    raise psycopg.Rollback(savepoint)
        except psycopg.Rollback:
            raise Raced("a handler's write could not be undone") from None
        except (_Suspected, psycopg.ProgrammingError, psycopg.InternalError) as suspected:
            # The last two: the write left savepoints of its own behind, or removed this one.
            error = suspected.error if isinstance(suspected, _Suspected) else suspected
            self._strikes[completion.request_id] = (strikes + 1, error)
            raise Raced(str(error)) from None
        return failure

    def forget(self, request_ids: Iterable[str]) -> None:
        """Forget the strikes of requests whose completions were answered."""
        for request_id in request_ids:
            self._strikes.pop(request_id, None)


class _Suspected(Exception):
    """The database did not carry out a write, which may itself be the cause."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


@define(eq=False, repr=False)
class _Limit:
    """Stops a write that takes longer than `WRITE_S`.

    Attributes:
        stalled: the write was waiting for the database when it was stopped.
    """

    connection: Connection
    stalled: bool = field(default=False, init=False)

    async def around(self, write: OutcomeWrite) -> None:
        """Perform a write.

        Raises:
            TimeoutError: it was stopped.
            BaseException: whatever the write raises.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as timeout:

            def stop() -> None:
                # Read here: the cancellation that follows changes it.
                status = self.connection.pgconn.transaction_status
                self.stalled = status == TransactionStatus.ACTIVE
                timeout.reschedule(loop.time())

            timer = loop.call_later(WRITE_S, stop)
            try:
                await write(self.connection)
                # A constraint that is checked at COMMIT would undo the whole batch, every time.
                await self.connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            finally:
                timer.cancel()
        if timeout.expired():  # and the write took no notice
            raise TimeoutError


async def _failure_of(write: OutcomeWrite, connection: Connection) -> Exception | None:
    """Perform a write; return its error if it failed.

    Everything that a write raises is its error, `SystemExit` included.

    Raises:
        Raced, _Suspected, psycopg.Error: the database did not carry it out.
    """
    limit = _Limit(connection)
    error: BaseException | None = None
    try:
        await limit.around(write)
    except ROLLED_BACK:
        raise
    except BaseException as raised:
        if is_task_cancelled():
            raise
        error = raised
    status = connection.pgconn.transaction_status
    if limit.stalled and status != TransactionStatus.INERROR:
        raise Raced("the database did not answer a handler's write")
    if error is None:
        if status == TransactionStatus.INTRANS:
            return None
        error = psycopg.ProgrammingError("the write ended the transaction, or still uses it")
    failure = error if isinstance(error, Exception) else RuntimeError(repr(error))
    is_of_database = isinstance(failure, psycopg.OperationalError)
    if limit.stalled or is_of_database or status not in _IN_TRANSACTION:
        raise _Suspected(failure)
    return failure
