"""A few connections to PostgreSQL, and transactions that are repeated as long as that is safe.

A transaction that fails before its COMMIT was sent has not happened. It is repeated, on another
connection if its own is lost: callers do not see a deadlock, a restart of the server or the end of
a backend. When the connection is lost after that, the result is unknown: the operation raises
`StoreError`, and the caller repeats it (AACP-30).

Every wait is bounded. The server bounds each statement and each pause between two; the kernel
detects that a machine is gone; and a connection that has neither answered nor failed after
`OPERATION_S` is cut. No message contains the URL: only libpq knows its password.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, TypeVar

import psycopg
from attrs import define, field
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from ....errors import UsageError
from ...persistence import StoreError
from .arrays import register

T = TypeVar("T")

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Row = tuple[Any, ...]

Query = tuple[str, Sequence[object] | Mapping[str, object]]
"""A statement, with `{schema}` for the quoted name of the schema, and its parameters."""

STATEMENT_MS = 5_000
"""The longest that one statement may take, waiting for locks included."""
OPERATION_S = 15.0
"""The longest that one transaction may take, including the writes of handlers."""
CONNECT_S = 5.0
"""Seconds that an operation waits for a connection, for instance while the server restarts."""
ATTEMPTS = 10
"""Most attempts of a transaction that is known not to have happened."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0
_FIRST_LISTEN_PAUSE_S, _LONGEST_LISTEN_PAUSE_S = 0.05, 2.0

ROLLED_BACK = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
"""The errors of a transaction that had to give way to another."""


class Raced(Exception):
    """The rows that were read have changed; nothing was written, so the transaction is repeated."""


_RACES = (
    Raced,
    psycopg.errors.UniqueViolation,  # another transaction has entered this key
    psycopg.errors.DivisionByZero,  # `statements.claim`: not all that was chosen is still there
)

# The loss of the peer is detected after 5 to 10 seconds, whichever side is to send.
_NETWORK = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": 8_000,
    "connect_timeout": int(CONNECT_S),
    "application_name": "foundation-rt",
}

# Every statement is meant to use an index. A plan that was made while a table was empty would scan
# it, and would be kept until the table is next analyzed, a minute and 100,000 records later.
_SETTINGS = f"""
SELECT set_config('statement_timeout', '{STATEMENT_MS}', false),
       set_config('idle_in_transaction_session_timeout', '{int(OPERATION_S * 1000)}', false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('plan_cache_mode', 'force_generic_plan', false),
       set_config('enable_seqscan', 'off', false),
       set_config('jit', 'off', false),
       set_config('client_min_messages', 'warning', false)
"""


def read_url(url: str) -> dict[str, Any]:
    """Return the parameters in a URL, or in libpq's ``key=value`` form.

    Raises:
        UsageError: it is neither; the message does not repeat it, as it may contain a password.
    """
    try:
        parameters = conninfo_to_dict(url)
    except psycopg.Error:
        raise UsageError(
            "the address of the PostgreSQL ledger cannot be read: expected"
            " postgresql://user:password@host:port/database"
        ) from None
    return {**_NETWORK, **{key: value for key, value in parameters.items() if value is not None}}


@define(eq=False, repr=False)
class PostgresConnections:
    """Lends at most `size` connections at a time, and makes them as they are needed."""

    _parameters: dict[str, Any]
    _schema: str
    _size: int
    # With the server process behind each.
    _pids: dict[Connection, int] = field(factory=dict, init=False)
    _idle: list[Connection] = field(factory=list, init=False)
    _free: asyncio.Semaphore = field(init=False)
    _closed: bool = field(default=False, init=False)

    @_free.default
    def _all_of_them(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self._size)

    async def close(self) -> None:
        """Wait for the transactions under way, then close every connection."""
        self._closed = True
        for _ in range(self._size):
            await self._free.acquire()
        for connection in self._idle:
            await connection.close()
        self._idle.clear()
        self._pids.clear()

    def is_own(self, pid: int) -> bool:
        """Return whether a server process serves one of these connections."""
        return pid in self._pids.values()

    async def connect(self) -> Connection:
        """Return a new connection, in `autocommit`, since `Transaction` sends BEGIN itself.

        Raises:
            psycopg.Error: no connection can be made.
        """
        connection: Connection = await psycopg.AsyncConnection.connect(
            autocommit=True, **self._parameters
        )
        try:
            await connection.execute(_SETTINGS)
            register(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def transact(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Call `work(transaction)`, repeatedly if necessary, until it has committed.

        Raises:
            StoreError: the transaction did not happen, or it is not known whether it did.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + OPERATION_S
        for attempt in count(1):
            async with self._lend() as connection:
                transaction = Transaction(connection, self._schema)
                try:
                    return await work(transaction)
                except (psycopg.Error, Raced) as error:
                    await transaction.abandon()
                    over = attempt == ATTEMPTS or loop.time() >= deadline
                    if over or not transaction.may_be_repeated(error):
                        raise StoreError(_described(error)) from None
                except BaseException:
                    await transaction.abandon()
                    raise
        raise AssertionError("an attempt returns or raises")

    @asynccontextmanager
    async def _lend(self) -> AsyncIterator[Connection]:
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._free.acquire()
        except TimeoutError:
            raise StoreError("all connections to PostgreSQL are busy") from None
        try:
            connection = await self._take()
            cut = asyncio.get_running_loop().call_later(OPERATION_S, _cut, connection)
            try:
                yield connection
            finally:
                cut.cancel()
                await self._take_back(connection)
        finally:
            self._free.release()

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not _has_ended(connection):
                return connection
            await self._give_up(connection)
        connection = await self._connect_patiently()
        self._pids[connection] = connection.pgconn.backend_pid
        return connection

    async def _connect_patiently(self) -> Connection:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CONNECT_S
        pause = _FIRST_PAUSE_S
        while not self._closed:
            try:
                return await self.connect()
            except psycopg.Error as error:
                if loop.time() + pause >= deadline:
                    raise StoreError(f"PostgreSQL is not reached: {_described(error)}") from None
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        raise StoreError("the ledger is closed")

    async def _take_back(self, connection: Connection) -> None:
        # One that is in a transaction, after a cancellation for instance, cannot be used again.
        if connection.pgconn.transaction_status == TransactionStatus.IDLE:
            self._idle.append(connection)
        else:
            await self._give_up(connection)

    async def _give_up(self, connection: Connection) -> None:
        del self._pids[connection]
        await connection.close()


@define(eq=False, repr=False)
class Transaction:
    """One transaction; the statements of one call cost one round trip."""

    connection: Connection
    schema: str
    _begun: bool = field(default=False, init=False)
    _committing: bool = field(default=False, init=False)

    async def ask(self, *queries: Query) -> list[list[Row]]:
        """Execute; return the rows of each query."""
        if not self._begun:
            self._begun = True
            return (await self._execute((_BEGIN, *queries)))[1:]
        return await self._execute(queries)

    async def run(self, statement: str) -> None:
        """Execute one statement without rows, and without preparing it.

        After ROLLBACK, ALTER and DROP psycopg forgets its prepared statements, and makes the server
        forget them with the next statement, which in a pipeline may prepare a new one.
        """
        await self.connection.execute(self._sql(statement), prepare=False)

    async def commit(self, *queries: Query, then: Sequence[Query] = ()) -> list[list[Row]]:
        """Execute and commit, or do neither; return the rows of each query.

        The queries in `then` are executed after that, each by itself.
        """
        self._committing = True
        if not self._begun and len(queries) == 1 and not then:
            return await self._execute(queries)  # a transaction by itself
        begin = () if self._begun else (_BEGIN,)
        rows = await self._execute((*begin, *queries, _COMMIT, *then))
        self._begun = self._committing = False
        return rows[len(begin) : len(begin) + len(queries)]

    async def rollback(self) -> None:
        """Undo everything; the transaction may begin again."""
        if self._begun:
            await self.run("ROLLBACK")
            self._begun = False

    async def abandon(self) -> None:
        """Undo everything, if the connection is still there."""
        status = self.connection.pgconn.transaction_status
        if status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            with suppress(psycopg.Error):
                await self.run("ROLLBACK")

    def may_be_repeated(self, error: psycopg.Error | Raced) -> bool:
        """Return whether the failed transaction has not happened, and may succeed the next time."""
        if self.connection.closed:
            return not self._committing
        # After a statement that fails the server executes none of the others, COMMIT included.
        return isinstance(error, (*ROLLED_BACK, *_RACES))

    async def _execute(self, queries: Sequence[Query]) -> list[list[Row]]:
        cursors = []
        async with self.connection.pipeline():
            for statement, parameters in queries:
                cursor = self.connection.cursor(binary=True)
                await cursor.execute(self._sql(statement), parameters or None, prepare=True)
                cursors.append(cursor)
        return [await cursor.fetchall() if _has_rows(cursor) else [] for cursor in cursors]

    def _sql(self, statement: str) -> bytes:
        return statement.replace("{schema}", f'"{self.schema}"').encode()


@define(eq=False, repr=False)
class Listener:
    """Calls `callback` for the notifications of other processes on `channel`, a name in quotes.

    It has a connection of its own, and makes it again after a loss, with growing pauses, until it
    succeeds. Notifications that were sent meanwhile are lost, so it then calls the callback once.
    """

    _connections: PostgresConnections
    _channel: str
    _callback: Callable[[], object]

    async def run(self) -> None:
        """Listen until cancelled."""
        call_soon = asyncio.get_running_loop().call_soon  # the loop handles errors of the callback
        pause = _FIRST_LISTEN_PAUSE_S
        while True:
            try:
                connection = await self._connections.connect()
                async with connection:
                    await connection.execute(f"LISTEN {self._channel}".encode())
                    pause = _FIRST_LISTEN_PAUSE_S
                    call_soon(self._callback)
                    async for notify in connection.notifies():
                        if not self._connections.is_own(notify.pid):
                            call_soon(self._callback)
            except psycopg.Error:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_LISTEN_PAUSE_S)


def _has_rows(cursor: psycopg.AsyncCursor[Row]) -> bool:
    # Not by its `description`, which makes an object of each column.
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0


_BEGIN: Query = ("BEGIN", ())
_COMMIT: Query = ("COMMIT", ())


def _has_ended(connection: Connection) -> bool:
    """Return whether an idle connection has ended: unasked, the server sends only its end.

    This is checked before the connection is used, because statements sent over it might have
    happened.
    """
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _cut(connection: Connection) -> None:
    """Shut a connection down, so that the task that waits for its answer finds it lost."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


def _described(error: Exception) -> str:
    """Return the text of an error, on one line."""
    return " ".join(str(error).split()) or type(error).__name__
