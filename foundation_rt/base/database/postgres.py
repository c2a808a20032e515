"""A few connections to PostgreSQL, and transactions that are repeated as long as that is safe.

    connections = PostgresConnections(read_url(url), schema="app", size=4)

    async def work(transaction):
        [[(stock,)]] = await transaction.ask(("SELECT n FROM {schema}.stock FOR UPDATE", ()))
        await transaction.commit(("UPDATE {schema}.stock SET n = %b", (stock - 1,)))

    await connections.transact(work)

A transaction that fails before its COMMIT was sent has not happened. It is repeated, on another
connection if its own is lost: callers do not see a deadlock, a restart of the server or the end of
a backend. When the connection is lost after that, the result is unknown: `CommitUnknownError`. So
`work` may be called several times, and changes nothing but the database.

Every wait is bounded. The server bounds each statement and each pause between two; the kernel
detects that a machine is gone; and a connection that has neither answered nor failed after
`operation_s` is cut. No message contains the password: only libpq knows it.

A process that is stopped in a transaction (SIGSTOP, a frozen container) holds its locks. What ends
it, as far as PostgreSQL 15 does:

- Between two statements, `idle_in_transaction_session_timeout`. The server starts this timer when
  it has answered a Sync, and any message stops it. psycopg leaves its pipeline with Sync and then
  Flush, which stops it for good. So a transaction stays in one pipeline, in which each `ask` ends
  with a Sync alone, and leaves it with its COMMIT.
- In the middle of COPY, or of statements whose Sync was not sent yet, nothing: the server waits for
  the client without a timer, `statement_timeout` included. Other processes end such a transaction
  with `end_stalled_transactions`. From PostgreSQL 17 on `transaction_timeout` ends it too.

Needs the extra `postgres` (psycopg 3).
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import count
from typing import Any, TypeVar

from attrs import define, field

from ...errors import MissingExtraError, UsageError
from ..backoff import exponential_delay
from .errors import (
    CommitUnknownError,
    DatabaseError,
    DatabaseFullError,
    DatabaseLockedError,
    DatabaseReadOnlyError,
    DatabaseUnavailableError,
    TransactionFailedError,
)

try:
    import psycopg
except ImportError:
    raise MissingExtraError("A database in PostgreSQL", "postgres") from None

from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus

T = TypeVar("T")

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Row = tuple[Any, ...]

Query = tuple[str, Sequence[object] | Mapping[str, object]]
"""A statement, with `{schema}` for the quoted name of the schema, and its parameters."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0
_FIRST_LISTEN_PAUSE_S, _LONGEST_LISTEN_PAUSE_S = 0.05, 2.0

ROLLED_BACK = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
"""The errors of a transaction that had to give way to another."""


class Raced(Exception):
    """The rows that were read have changed; nothing was written, so the transaction is repeated.

    `work` raises it; the caller of `transact` never sees it.
    """


# The loss of the peer is detected after 5 to 10 seconds, whichever side is to send.
_NETWORK = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": 8_000,
    "connect_timeout": 5,
}

# The same for the server, which otherwise keeps the locks of a machine that is gone for two hours.
# Over a Unix socket the server ignores them.
_SERVER_NETWORK = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "2",
    "tcp_user_timeout": "8000",
}

_WITH_TRANSACTION_TIMEOUT = 170_000
"""The first version of PostgreSQL that has this setting."""

_SET = """
SELECT set_config(name, setting, false) FROM unnest(%s::text[], %s::text[]) AS s (name, setting)
"""

# A transaction of a living process ends within `operation_s`. An older one that waits for its
# client belongs to a process that is stopped.
_END_STALLED = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
  AND application_name = current_setting('application_name')
  AND wait_event = 'ClientRead' AND xact_start < clock_timestamp() - %b::float8 * interval '1 s'
"""


def read_url(url: str, application_name: str = "foundation-rt") -> dict[str, Any]:
    """Return the parameters in a URL, or in libpq's ``key=value`` form.

    Args:
        url: ``postgresql://user:password@host:port/database``, for instance.
        application_name: by which operators, and `end_stalled_transactions`, know the connections;
            one in the URL comes first.

    Raises:
        UsageError: it is neither; the message does not repeat it, as it may contain a password.
    """
    try:
        parameters = conninfo_to_dict(url)
    except psycopg.Error:
        raise UsageError(
            "the address of the PostgreSQL database cannot be read: expected"
            " postgresql://user:password@host:port/database"
        ) from None
    given = {key: value for key, value in parameters.items() if value is not None}
    return {**_NETWORK, "application_name": application_name, **given}


def _ignore(connection: Connection) -> None:
    """Do nothing with a new connection."""


@define(eq=False, repr=False)
class PostgresConnections:
    """Lends at most `size` connections at a time, and makes them as they are needed.

    It is used from one event loop.

    Args:
        parameters: of libpq, as `read_url` returns them.
        schema: takes the place of ``{schema}`` in statements, in quotes.
        size: the most connections that transactions use at once.
        statement_ms: the longest that one statement may take, waiting for locks included.
        lock_ms: the longest that a statement waits for one lock; as long as it may take if None.
        operation_s: the longest that one transaction may take.
        pause_s: the longest that a transaction may pause between two statements; as long as it may
            take if None.
        connect_s: how long an operation waits for a connection, as during a server's restart.
        attempts: the most attempts of a transaction that is known not to have happened.
        settings: of the server, for every connection, as ``{"jit": "off"}``.
        races: errors of psycopg, beside deadlocks, after which a transaction is repeated.
        on_connect: called with each new connection, to register types for instance.
    """

    _parameters: dict[str, Any]
    schema: str
    _size: int
    statement_ms: int = field(default=5_000, kw_only=True)
    lock_ms: int | None = field(default=None, kw_only=True)
    operation_s: float = field(default=15.0, kw_only=True)
    pause_s: float | None = field(default=None, kw_only=True)
    connect_s: float = field(default=5.0, kw_only=True)
    attempts: int = field(default=10, kw_only=True)
    settings: Mapping[str, str] = field(factory=dict, kw_only=True)
    races: tuple[type[psycopg.Error], ...] = field(default=(), kw_only=True)
    on_connect: Callable[[Connection], object] = field(default=_ignore, kw_only=True)
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
            UsageError: the event loop is the usual one of Windows.
        """
        if isinstance(asyncio.get_running_loop(), getattr(asyncio, "ProactorEventLoop", ())):
            raise UsageError(
                "PostgreSQL cannot be used on this event loop of Windows, on which psycopg cannot"
                " wait: use SQLite, or a SelectorEventLoop in a program without child processes"
            )
        connection: Connection = await psycopg.AsyncConnection.connect(
            autocommit=True, **self._parameters
        )
        pause_s = self.operation_s if self.pause_s is None else self.pause_s
        settings = {
            "statement_timeout": str(self.statement_ms),
            "lock_timeout": str(self.lock_ms or 0),
            "idle_in_transaction_session_timeout": str(int(pause_s * 1000)),
            "default_transaction_isolation": "read committed",
            "client_min_messages": "warning",
            **_SERVER_NETWORK,
            **self.settings,
        }
        if connection.info.server_version >= _WITH_TRANSACTION_TIMEOUT:
            settings["transaction_timeout"] = str(int(self.operation_s * 1000))
        try:
            await connection.execute(_SET, (list(settings), list(settings.values())))
            self.on_connect(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def transact(
        self,
        work: Callable[[Transaction], Awaitable[T]],
        *,
        operation_s: float | None = None,
        lock_ms: int | None = None,
    ) -> T:
        """Call `work(transaction)`, repeatedly if necessary, until it has committed (DB-03).

        Args:
            work: ends with `Transaction.commit`, `read` or `rollback`.
            operation_s: the longest that it may take, if not as long as others.
            lock_ms: the longest that it may wait for one lock, if not as long as others.

        Raises:
            TransactionFailedError: the transaction did not happen; its class says why.
            CommitUnknownError: it is not known whether it happened.
        """
        loop = asyncio.get_running_loop()
        limit_s = self.operation_s if operation_s is None else operation_s
        deadline = loop.time() + limit_s
        for attempt in count(1):
            async with self._lend(limit_s) as connection:
                transaction = Transaction(connection, self.schema, lock_ms)
                try:
                    return await work(transaction)
                except (psycopg.Error, Raced) as error:
                    if _has_lost_connection(error):
                        await connection.close()
                    await transaction.abandon()
                    over = attempt == self.attempts or loop.time() >= deadline
                    if over or not self._may_be_repeated(transaction, error):
                        raise _failure(transaction, error) from None
                except BaseException:
                    await transaction.abandon()
                    raise
        raise AssertionError("an attempt returns or raises")

    async def read(self, *queries: Query) -> list[list[Row]]:
        """Execute queries that change nothing, in one snapshot; return the rows of each (DB-03).

        Unlike a transaction that commits, they are repeated whenever their connection is lost.

        Raises:
            TransactionFailedError: see its class.
        """

        async def work(transaction: Transaction) -> list[list[Row]]:
            return await transaction.read(*queries)

        return await self.transact(work)

    async def end_stalled_transactions(self, older_than_s: float | None = None) -> int:
        """End transactions of stopped processes; return how many there were (DB-06).

        Those are transactions of the same user, database and `application_name` that are older than
        that and wait for their client. An application in which processes must not wait for each
        other for ever calls this from time to time.

        Args:
            older_than_s: `operation_s` by default; no process may take longer.

        Raises:
            TransactionFailedError: the server was not asked.
        """
        limit = self.operation_s if older_than_s is None else older_than_s
        [rows] = await self.read((_END_STALLED, (float(limit),)))
        return sum(ended for (ended,) in rows)

    def _may_be_repeated(self, transaction: Transaction, error: psycopg.Error | Raced) -> bool:
        """Return whether the failed transaction has not happened, and may succeed next time."""
        if transaction.connection.closed:
            return not transaction.is_committing
        # After a statement that fails the server executes none of the others, COMMIT included.
        return isinstance(error, (*ROLLED_BACK, Raced, *self.races))

    @asynccontextmanager
    async def _lend(self, limit_s: float) -> AsyncIterator[Connection]:
        try:
            async with asyncio.timeout(self.connect_s):
                await self._free.acquire()
        except TimeoutError:
            raise DatabaseUnavailableError("all connections to PostgreSQL are busy") from None
        try:
            connection = await self._take()
            cut = asyncio.get_running_loop().call_later(limit_s, _cut, connection)
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
        deadline = loop.time() + self.connect_s
        for attempt in count(1):
            if self._closed:
                break
            pause = exponential_delay(attempt, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
            try:
                return await self.connect()
            except psycopg.Error as error:
                if loop.time() + pause >= deadline:
                    raise DatabaseUnavailableError(
                        f"PostgreSQL is not reached: {_described(error)}", error.sqlstate
                    ) from None
            await asyncio.sleep(pause)
        raise DatabaseUnavailableError("the connections to PostgreSQL are closed")

    async def _take_back(self, connection: Connection) -> None:
        # One that is in a transaction, after a cancellation for instance, cannot be used again.
        pgconn = connection.pgconn
        if (
            pgconn.transaction_status == TransactionStatus.IDLE
            and pgconn.pipeline_status == PipelineStatus.OFF
        ):
            self._idle.append(connection)
        else:
            await self._give_up(connection)

    async def _give_up(self, connection: Connection) -> None:
        del self._pids[connection]
        await connection.close()


@define(eq=False, repr=False)
class Transaction:
    """One transaction; the statements of one call cost one round trip.

    Attributes:
        schema: that of its connections, without quotes.
        lock_ms: the longest that it may wait for one lock; None: as its connection says.
        is_committing: COMMIT may have been sent.
    """

    connection: Connection
    schema: str
    lock_ms: int | None = None
    is_committing: bool = field(default=False, init=False)
    _begun: bool = field(default=False, init=False)
    _pipeline: AbstractAsyncContextManager[psycopg.AsyncPipeline] | None = field(
        default=None, init=False
    )
    _sync: Callable[[], Awaitable[None]] = field(init=False)  # while there is a pipeline

    async def ask(self, *queries: Query) -> list[list[Row]]:
        """Execute; return the rows of each query.

        Raises:
            psycopg.Error: one of them failed, and nothing but `rollback` may follow.
        """
        begin = self._begin()
        cursors = await self._send((*begin, *queries))
        await self._sync()
        return await _rows(cursors[len(begin) :])

    async def plain(self) -> Connection:
        """Return the connection, in the transaction, for statements by means of psycopg.

        They may use savepoints (``connection.transaction()``), and may neither commit nor roll
        back.
        """
        await self._leave_pipeline()
        for statement, parameters in self._begin():
            await self.connection.execute(statement.encode(), parameters or None, prepare=False)
        return self.connection

    @asynccontextmanager
    async def copy(self, statement: str) -> AsyncIterator[psycopg.AsyncCopy]:
        """Execute ``COPY {schema}.name (...) FROM STDIN`` or ``TO STDOUT``; yield its stream."""
        connection = await self.plain()
        async with connection.cursor() as cursor, cursor.copy(self._sql(statement)) as copy:
            yield copy

    async def run(self, statement: str) -> None:
        """Execute statements without parameters and rows, and without preparing them.

        After ROLLBACK, ALTER and DROP psycopg forgets its prepared statements, and makes the server
        forget them with the next statement, which in a pipeline may prepare a new one.
        """
        connection = await self.plain()
        await connection.execute(self._sql(statement), prepare=False)

    async def read(self, *queries: Query) -> list[list[Row]]:
        """Execute queries that change nothing, as a transaction by itself with one snapshot."""
        if len(queries) == 1:
            return await self._finish(queries)
        return (await self._finish((_BEGIN_READING, *queries, _COMMIT)))[1:-1]

    async def commit(self, *queries: Query, then: Sequence[Query] = ()) -> list[list[Row]]:
        """Execute and commit, or do neither; return the rows of each query.

        The queries in `then` are executed after that, each by itself. They are hints, like NOTIFY:
        when the transaction is known to have happened, their errors are ignored.
        """
        self.is_committing = True
        if not self._begun and len(queries) == 1 and not then and self.lock_ms is None:
            return await self._finish(queries)  # a transaction by itself
        begin = self._begin()
        first, last = len(begin), len(begin) + len(queries)
        cursors: list[psycopg.AsyncCursor[Row]] = []
        try:
            await self._send((*begin, *queries, _COMMIT, *then), cursors)
            await self._leave_pipeline()
        except psycopg.Error:
            if len(cursors) <= last or not _has_committed(cursors[last]):
                raise
        else:
            if not _has_committed(cursors[last]):
                raise psycopg.errors.InFailedSqlTransaction("a statement before COMMIT had failed")
        self._begun = self.is_committing = False
        return await _rows(cursors[first:last])

    async def rollback(self) -> None:
        """Undo everything; the transaction may begin again."""
        if self._begun:
            await self._leave_pipeline()
            await self.connection.execute(b"ROLLBACK", prepare=False)
            self._begun = False

    async def abandon(self) -> None:
        """Undo everything, if the connection is still there."""
        with suppress(psycopg.Error):
            await self._leave_pipeline()
        status = self.connection.pgconn.transaction_status
        if status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            with suppress(psycopg.Error):
                await self.connection.execute(b"ROLLBACK", prepare=False)

    def _begin(self) -> tuple[Query, ...]:
        if self._begun:
            return ()
        self._begun = True
        return (_BEGIN,) if self.lock_ms is None else (_BEGIN, (_WAIT_FOR_LOCK, (self.lock_ms,)))

    async def _finish(self, queries: Sequence[Query]) -> list[list[Row]]:
        """Execute queries after which there is no transaction."""
        cursors = await self._send(queries)
        await self._leave_pipeline()
        return await _rows(cursors)

    async def _send(
        self, queries: Sequence[Query], cursors: list[psycopg.AsyncCursor[Row]] | None = None
    ) -> list[psycopg.AsyncCursor[Row]]:
        """Send queries in the pipeline; return a cursor for each, whose rows come with Sync."""
        cursors = [] if cursors is None else cursors
        if self._pipeline is None:
            self._pipeline = self.connection.pipeline()
            self._sync = (await self._pipeline.__aenter__()).sync
        for statement, parameters in queries:
            cursor = self.connection.cursor(binary=True)
            await cursor.execute(self._sql(statement), parameters or None, prepare=True)
            cursors.append(cursor)
        return cursors

    async def _leave_pipeline(self) -> None:
        """Send Sync and wait for all answers, if statements were sent in a pipeline."""
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            await pipeline.__aexit__(None, None, None)

    def _sql(self, statement: str) -> bytes:
        return statement.replace("{schema}", f'"{self.schema}"').encode()


@define(eq=False, repr=False)
class Listener:
    """Calls `callback` for the notifications of other processes on `channel`, a name in quotes.

    It has a connection of its own, and makes it again after a loss, with growing pauses, until it
    succeeds. Notifications that were sent meanwhile are lost, so it then calls ``callback(None)``.

    Args:
        connections: whose own notifications are left out.
        channel: in double quotes.
        callback: called in the event loop with the payload of a notification.
    """

    _connections: PostgresConnections
    _channel: str
    _callback: Callable[[str | None], object]

    async def run(self) -> None:
        """Listen until cancelled."""
        call_soon = asyncio.get_running_loop().call_soon  # the loop handles errors of the callback
        failures = 0
        while True:
            try:
                connection = await self._connections.connect()
                async with connection:
                    await connection.execute(f"LISTEN {self._channel}".encode())
                    failures = 0
                    call_soon(self._callback, None)
                    async for notify in connection.notifies():
                        if not self._connections.is_own(notify.pid):
                            call_soon(self._callback, notify.payload)
            except psycopg.Error:
                failures += 1
                delay = exponential_delay(failures, _FIRST_LISTEN_PAUSE_S, _LONGEST_LISTEN_PAUSE_S)
                await asyncio.sleep(delay)


_BEGIN: Query = ("BEGIN", ())
_WAIT_FOR_LOCK = "SELECT set_config('lock_timeout', (%b::bigint)::text, true)"
_BEGIN_READING: Query = ("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY", ())
_COMMIT: Query = ("COMMIT", ())


async def _rows(cursors: Sequence[psycopg.AsyncCursor[Row]]) -> list[list[Row]]:
    return [await cursor.fetchall() if _has_rows(cursor) else [] for cursor in cursors]


def _has_rows(cursor: psycopg.AsyncCursor[Row]) -> bool:
    # Not by its `description`, which makes an object of each column.
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0


def _has_committed(cursor: psycopg.AsyncCursor[Row]) -> bool:
    """Return whether COMMIT was answered, and not with a rollback."""
    result = cursor.pgresult
    return (
        result is not None
        and result.status == ExecStatus.COMMAND_OK
        and result.command_status == b"COMMIT"
    )


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


def _has_lost_connection(error: psycopg.Error | Raced) -> bool:
    """Return whether an error means that its connection is of no use any more.

    The server's last word is FATAL. libpq considers the connection open until it has read its end
    too, which may come later. Until then it may replace that word by an error of its own, without
    SQLSTATE: "cannot exit pipeline mode while busy".
    """
    if isinstance(error, Raced | psycopg.errors.PipelineAborted):
        return False
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError)
    return error.diag.severity_nonlocalized in ("FATAL", "PANIC")


def _cut(connection: Connection) -> None:
    """Shut a connection down, so that the task that waits for its answer finds it lost."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


def _failure(transaction: Transaction, error: psycopg.Error | Raced) -> DatabaseError:
    """Return the error to raise for a transaction that is not repeated."""
    described = _described(error)
    if transaction.connection.closed:
        if transaction.is_committing:
            return CommitUnknownError(f"the connection was lost in COMMIT: {described}")
        return DatabaseUnavailableError(f"the connection was lost: {described}")
    sqlstate = getattr(error, "sqlstate", None)
    if isinstance(error, psycopg.errors.DiskFull):
        return DatabaseFullError(f"the disk of the database server is full: {described}", sqlstate)
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return DatabaseReadOnlyError(described, sqlstate)
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return DatabaseLockedError(described, sqlstate)
    if isinstance(error, Raced) or (sqlstate or "")[:2] in _LATER:
        return DatabaseUnavailableError(described, sqlstate)
    return TransactionFailedError(described, sqlstate)


_LATER = {"08", "40", "53", "57"}
"""Classes of codes: connections, transactions that gave way, resources, operators and time-outs."""


def _described(error: Exception) -> str:
    """Return the text of an error, on one line.

    Of an error of the server that is its first line: the others may quote the row (DB-02).
    """
    first = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return " ".join((first or str(error)).split()) or type(error).__name__
