"""The public class of a ledger in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from attrs import define, field

from ....base.database.errors import DatabaseError
from ....base.database.sqlite import SqliteDatabase
from ....base.shown import Shown
from ...ledger.types import Claimed, Claiming, LedgerNews
from ...persistence import LeaseRenewer, StoreError
from ..derived_operations import DerivedOperations, WithoutSubmissions
from . import administration, claims, messages, schedules, schema
from .ledger_clock import MachineClocks, read_clock, set_clock
from .working_set import read_names

P = ParamSpec("P")
T = TypeVar("T")

Method: TypeAlias = Callable[Concatenate["SqliteAACPPersistenceAdapter", P], Coroutine[Any, Any, T]]


def _performing(
    operation: Callable[Concatenate[sqlite3.Connection, P], T], *, reads: bool = False
) -> Method[P, T]:
    """Return the method that performs an operation, which changes nothing if it only reads."""

    @wraps(operation)
    async def method(
        adapter: SqliteAACPPersistenceAdapter, /, *arguments: P.args, **named: P.kwargs
    ) -> T:
        access = adapter._database.read if reads else adapter._database.write
        return await adapter._perform(access, operation, *arguments, **named)

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
        self.incarnation, self.uid = read_names(connection)
        set_clock(connection, self._clocks, alone)
        if alone:
            claims.release_all(connection)

    async def read_time(self) -> int:
        """See `AACPPersistenceAdapter`: a time that goes on whatever the wall clock does."""
        read = partial(self._database.read, quick=True)
        return await self._perform(read, read_clock, self._clocks)

    def renewer(self) -> LeaseRenewer:
        """See `AACPPersistenceAdapter`: operations may be asked for in any event loop."""
        return _Renewer(self)

    # -- operations ---------------------------------------------------------------------------

    async def claim(self, claiming: Claiming, now_ms: int) -> Claimed:
        """See `AACPPersistenceAdapter`."""
        claim = partial(claims.claim, clocks=self._clocks)
        return await self._perform(self._database.write, claim, claiming, now_ms)

    append = _performing(messages.append)
    receive = _performing(messages.receive)
    limit_agents = _performing(claims.limit_agents)
    queue_delayed = _performing(claims.queue_delayed)
    complete = _performing(claims.complete)
    renew = _performing(claims.renew)
    release = _performing(claims.release)
    take_due = _performing(messages.take_due)
    hasten = _performing(messages.hasten)
    reschedule = _performing(messages.reschedule)
    put_request_record = _performing(administration.put_request)
    get_request_records = _performing(administration.get_requests)
    get_message_record = _performing(messages.get_message)
    _mark = _performing(administration.mark)
    purge_expired = _performing(administration.purge)
    list_requests = _performing(administration.list_requests, reads=True)
    summarize_agents = _performing(administration.summarize, reads=True)
    measure_queues = _performing(administration.measure, reads=True)
    cancel = _performing(administration.cancel)
    requeue = _performing(administration.requeue)
    change_schedules = _performing(schedules.change_schedules)
    list_schedules = _performing(schedules.list_schedules, reads=True)
    due_schedules = _performing(schedules.due_schedules, reads=True)
    enter_runs = _performing(schedules.enter_runs)
    _read_messages = _performing(messages.read_messages, reads=True)
    _change_link = _performing(messages.change_link)


@define(eq=False, repr=False)
class _Renewer:
    """Renews leases in the thread of the file."""

    _adapter: SqliteAACPPersistenceAdapter

    async def renew(self, claims: Sequence[tuple[str, int]], lease_until_ms: int) -> object:
        """See `LeaseRenewer`."""
        return await self._adapter.renew(claims, lease_until_ms)

    async def close(self) -> None:
        """See `LeaseRenewer`."""
