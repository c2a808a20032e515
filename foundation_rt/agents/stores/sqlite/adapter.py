"""The public class of a ledger in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from attrs import define, field

from ....base.database.errors import DatabaseError
from ....base.database.sqlite import SqliteDatabase
from ....base.shown import Shown
from ...ledger.types import Claimed, LedgerNews
from ...persistence import LeaseRenewer, StoreError
from ..derived_operations import DerivedOperations, WithoutSubmissions
from . import administration, schedules, schema
from . import claims as claiming
from . import messages as messaging
from .ledger_clock import MachineClocks, read_clock, set_clock

P = ParamSpec("P")
T = TypeVar("T")

Method: TypeAlias = Callable[Concatenate["SqliteAACPPersistenceAdapter", P], Coroutine[Any, Any, T]]


def _changing(operation: Callable[Concatenate[sqlite3.Connection, P], T]) -> Method[P, T]:
    """Return the method that performs an operation in a transaction."""

    @wraps(operation)
    async def method(
        adapter: SqliteAACPPersistenceAdapter, /, *arguments: P.args, **named: P.kwargs
    ) -> T:
        return await adapter._perform(adapter._database.write, operation, *arguments, **named)

    return method


def _entering(operation: Callable[Concatenate[sqlite3.Connection, int, P], T]) -> Method[P, T]:
    """Do the same with an operation that needs the incarnation of the ledger."""

    @wraps(operation)
    async def method(
        adapter: SqliteAACPPersistenceAdapter, /, *arguments: P.args, **named: P.kwargs
    ) -> T:
        write, incarnation = adapter._database.write, adapter.incarnation
        return await adapter._perform(write, operation, incarnation, *arguments, **named)

    return method


def _asking(operation: Callable[Concatenate[sqlite3.Connection, P], T]) -> Method[P, T]:
    """Do the same with an operation that changes nothing."""

    @wraps(operation)
    async def method(
        adapter: SqliteAACPPersistenceAdapter, /, *arguments: P.args, **named: P.kwargs
    ) -> T:
        return await adapter._perform(adapter._database.read, operation, *arguments, **named)

    return method


@define(eq=False, repr=False)
class SqliteAACPPersistenceAdapter(DerivedOperations, WithoutSubmissions, Shown):
    """Keeps everything in one file, through one connection, in a thread of its own.

    Beside the file are its journal (``-journal``, or ``-wal`` and ``-shm`` with a SQLite library
    from 3.51.3 on) and an empty ``-presence``, which belong to it. All must be on a local disk. The
    WAL is copied into the file when it has reached 4,000 pages (16 MiB) at the end of a
    transaction, and is then written from its beginning again; the part of a journal beyond 64 MiB
    that a large transaction needed is then released. When the last process closes the ledger, the
    journal is removed.

    Several processes may have one file open; a second adapter in one process is refused (AACP-32).
    A process that opens the file alone knows that the owners of all claims are gone, and gives the
    claims back at once. An adapter does not survive a fork: in the child every operation raises
    `UsageError`, so that the file stays intact; the child makes an adapter of its own.

    The adapter may be closed and opened again, also on another event loop. The argument `decide` of
    `take_due` is called in the adapter's thread.

    Args:
        path: of the file; it is made if it is missing, in a folder that exists.
        exclusive: keep the file for this process, and have a WAL with every SQLite library (DB-26).
        clocks: of this machine.
    """

    durability = (
        "An acknowledged message survives the end of the process and of the machine"
        " (synchronous=FULL), as far as the disk keeps what it says it has written."
    )
    shared = True
    takes_writes = False
    immediate = False
    compares_clocks = False

    uid: str = field(default="", init=False)
    incarnation: int = field(default=0, init=False)
    _path: str | os.PathLike[str]
    _exclusive: bool = field(default=False, kw_only=True)
    _clocks: MachineClocks = field(factory=MachineClocks, kw_only=True)
    _database: SqliteDatabase = field(init=False)

    @_database.default
    def _file_of(self) -> SqliteDatabase:
        return SqliteDatabase(self._path, prepare=self._prepare, exclusive=self._exclusive)

    @property
    def path(self) -> str:
        """The one name of the file."""
        return self._database.path

    async def open(self) -> None:
        """See `AACPPersistenceAdapter`.

        Raises:
            UsageError: there can be no ledger at this path, or it is open already.
            StoreError: the disk is full, or another process keeps the file locked.
        """
        try:
            await self._database.open()
        except DatabaseError as error:
            raise StoreError(str(error)) from error

    async def close(self) -> None:
        """See `AACPPersistenceAdapter`."""
        await self._database.close()

    def on_change(self, callback: Callable[[LedgerNews | None], object]) -> None:
        """Ignore the callback: SQLite does not notify a process of the changes of another."""

    async def _perform(
        self,
        access: Callable[[Callable[[sqlite3.Connection], T]], Awaitable[T]],
        operation: Callable[Concatenate[sqlite3.Connection, P], T],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """Run `operation(connection, *arguments)` in the thread; `access` reads or writes."""
        try:
            return await access(lambda connection: operation(connection, *arguments, **named))
        except DatabaseError as error:
            raise StoreError(str(error)) from error

    # -- in the thread ------------------------------------------------------------------------

    def _prepare(self, connection: sqlite3.Connection, alone: bool) -> None:
        schema.migrate(connection, self.path)
        self.incarnation, self.uid = administration.get_names(connection)
        set_clock(connection, self._clocks, alone)
        if alone:
            claiming.release_all(connection)

    async def read_time(self) -> int:
        """See `AACPPersistenceAdapter`: a time that goes on whatever the wall clock does."""
        read = partial(self._database.read, quick=True)
        return await self._perform(read, read_clock, self._clocks)

    def renewer(self) -> LeaseRenewer:
        """See `AACPPersistenceAdapter`: operations may be asked for in any event loop."""
        return _Renewer(self)

    # -- operations ---------------------------------------------------------------------------

    async def claim(
        self,
        wanted: Mapping[str, int],
        owner: str,
        now_ms: int,
        lease_until_ms: int,
        idle: Collection[str] = (),
    ) -> Claimed:
        """See `AACPPersistenceAdapter`."""
        write, claim = self._database.write, partial(claiming.claim, clocks=self._clocks)
        return await self._perform(write, claim, wanted, owner, now_ms, lease_until_ms, idle)

    append = _entering(messaging.append)
    receive = _entering(messaging.receive)
    limit_agents = _changing(claiming.limit_agents)
    queue_delayed = _entering(claiming.queue_delayed)
    complete = _entering(claiming.complete)
    renew = _changing(claiming.renew)
    release = _changing(claiming.release)
    take_due = _changing(messaging.take_due)
    hasten = _changing(messaging.hasten)
    reschedule = _changing(messaging.reschedule)
    put_request_record = _changing(administration.put_request)
    get_request_records = _changing(administration.get_requests)
    get_message_record = _changing(messaging.get_message)
    _mark = _changing(administration.mark)
    get_last_sequence = _changing(messaging.get_last_seq)
    purge_expired = _changing(administration.purge)
    list_requests = _asking(administration.list_requests)
    summarize_agents = _asking(administration.summarize)
    measure_queues = _asking(administration.measure)
    cancel = _entering(administration.cancel)
    requeue = _entering(administration.requeue)
    change_schedules = _changing(schedules.change_schedules)
    list_schedules = _asking(schedules.list_schedules)
    due_schedules = _asking(schedules.due_schedules)
    enter_runs = _entering(schedules.enter_runs)
    _read_messages = _asking(messaging.read_messages)
    _change_link = _entering(messaging.change_link)


@define(eq=False, repr=False)
class _Renewer:
    """Renews leases in the thread of the file."""

    _adapter: SqliteAACPPersistenceAdapter

    async def renew(self, claims: Sequence[tuple[str, int]], lease_until_ms: int) -> object:
        """See `LeaseRenewer`."""
        return await self._adapter.renew(claims, lease_until_ms)

    async def close(self) -> None:
        """See `LeaseRenewer`."""
