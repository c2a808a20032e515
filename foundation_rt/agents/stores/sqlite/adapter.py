"""The public class of a ledger in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from attrs import define, field

from ....database.errors import DatabaseError
from ....database.sqlite import SqliteDatabase
from ....errors import StructuredError
from ....shown import Shown
from ...ledger.administration import AgentSummary, Changed, RequestQuery
from ...ledger.schedules import Advance, DueSchedules, EnteredRuns, Schedule, ScheduleChange
from ...ledger.types import (
    Appended,
    ClaimCompletion,
    Claimed,
    Completed,
    Due,
    Envelope,
    Hastened,
    IncomingEnvelope,
    LedgerNews,
    MessageRecord,
    OutboxKey,
    Outcome,
    OutgoingMessage,
    Queued,
    Received,
    Release,
    RequestRecord,
)
from ...persistence import LeaseRenewer, RetryDecision, StoreError
from ..without_submissions import WithoutSubmissions
from . import administration, maintenance, schedules, schema
from . import claims as claiming
from . import messages as messaging
from .ledger_clock import MachineClocks, note_time, read_clock, set_clock

P = ParamSpec("P")
T = TypeVar("T")


@define(eq=False, repr=False)
class SqliteAACPPersistenceAdapter(WithoutSubmissions, Shown):
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
    _clocks: MachineClocks = field(factory=MachineClocks, kw_only=True)
    _database: SqliteDatabase = field(init=False)

    @_database.default
    def _file_of(self) -> SqliteDatabase:
        return SqliteDatabase(self._path, prepare=self._prepare)

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
        operation: Callable[Concatenate[sqlite3.Connection, P], T],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """Run `operation(connection, *arguments)` in the thread."""
        try:
            return await self._database.write(
                lambda connection: operation(connection, *arguments, **named)
            )
        except DatabaseError as error:
            raise StoreError(str(error)) from error

    async def _look(
        self,
        operation: Callable[Concatenate[sqlite3.Connection, P], T],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """Do the same with an operation that changes nothing."""
        try:
            return await self._database.read(
                lambda connection: operation(connection, *arguments, **named)
            )
        except DatabaseError as error:
            raise StoreError(str(error)) from error

    # -- in the thread ------------------------------------------------------------------------

    def _prepare(self, connection: sqlite3.Connection, alone: bool) -> None:
        schema.migrate(connection, self.path)
        self.incarnation, self.uid = maintenance.get_names(connection)
        set_clock(connection, self._clocks, alone)
        if alone:
            claiming.release_all(connection)

    async def read_time(self) -> int:
        """See `AACPPersistenceAdapter`: a time that goes on whatever the wall clock does."""
        try:
            return await self._database.read(
                lambda connection: read_clock(connection, self._clocks), quick=True
            )
        except DatabaseError as error:
            raise StoreError(str(error)) from error

    def renewer(self) -> LeaseRenewer:
        """See `AACPPersistenceAdapter`: operations may be asked for in any event loop."""
        return _Renewer(self)

    # -- operations ---------------------------------------------------------------------------

    async def append(self, messages: Sequence[OutgoingMessage], now_ms: int) -> list[Appended]:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(messaging.append, messages, self.incarnation)

    async def receive(
        self, arrivals: Sequence[IncomingEnvelope], now_ms: int, ttl_ms: int
    ) -> Received:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(messaging.receive, arrivals, self.incarnation, now_ms, ttl_ms)

    async def claim(
        self,
        wanted: Mapping[str, int],
        owner: str,
        now_ms: int,
        lease_until_ms: int,
        idle: Collection[str] = (),
    ) -> Claimed:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(claiming.claim, wanted, owner, now_ms, lease_until_ms, idle)

    async def queue_delayed(self, now_ms: int, limit: int) -> Queued:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(claiming.queue_delayed, self.incarnation, now_ms, limit)

    async def complete(
        self, completions: Sequence[ClaimCompletion], now_ms: int
    ) -> list[Completed]:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(claiming.complete, completions, self.incarnation, now_ms)

    async def renew(self, claims: Sequence[tuple[str, int]], lease_until_ms: int) -> list[bool]:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(claiming.renew, claims, lease_until_ms)

    async def release(self, releases: Sequence[Release]) -> list[Release]:
        """See `AACPPersistenceAdapter`."""
        await self._perform(claiming.release, releases)
        return []

    async def take_due(self, now_ms: int, limit: int, decide: RetryDecision) -> Due:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(messaging.take_due, now_ms, limit, decide)

    async def hasten(self, before_ms: int, at_ms: int, after: OutboxKey, limit: int) -> Hastened:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(messaging.hasten, before_ms, at_ms, after, limit)

    async def reschedule(
        self, message_id: str, at_ms: int, *, give_up: bool = False
    ) -> MessageRecord | None:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(messaging.reschedule, message_id, at_ms, give_up)

    async def put_request_record(self, request_id: str, record: RequestRecord) -> None:
        """See `AACPPersistenceAdapter`."""
        await self._perform(maintenance.put_request, record)

    async def put_message_record(self, message_id: str, record: MessageRecord) -> None:
        """See `AACPPersistenceAdapter`."""
        await self._perform(messaging.put_message, record, self.incarnation)

    async def get_request_record(self, request_id: str) -> RequestRecord | None:
        """See `AACPPersistenceAdapter`."""
        found = await self.get_request_records([request_id])
        return found[0] if found else None

    async def get_request_records(self, request_ids: Sequence[str]) -> list[RequestRecord]:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(maintenance.get_requests, request_ids)

    async def get_message_record(self, message_id: str) -> MessageRecord | None:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(messaging.get_message, message_id)

    async def mark_completed(
        self, request_id: str, result: bytes | None, now_ms: int, completion_ref: str | None = None
    ) -> bool:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(
            maintenance.mark_completed, request_id, result, now_ms, completion_ref
        )

    async def mark_failed(self, request_id: str, error: StructuredError, now_ms: int) -> bool:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(maintenance.mark_failed, request_id, error, now_ms)

    async def get_last_sequence(self, source_agent_id: str, target_agent_id: str) -> int:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(messaging.get_last_seq, (source_agent_id, target_agent_id))

    async def update_last_sequence(
        self, source_agent_id: str, target_agent_id: str, seq: int
    ) -> None:
        """See `AACPPersistenceAdapter`."""
        await self._perform(
            messaging.update_last_seq, (source_agent_id, target_agent_id), seq, self.incarnation
        )

    async def get_unacknowledged_messages(
        self, source_agent_id: str, target_agent_id: str
    ) -> list[Envelope]:
        """See `AACPPersistenceAdapter`."""
        link = (source_agent_id, target_agent_id)
        return await self._perform(maintenance.get_unacknowledged, link, self.incarnation)

    async def list_pending_requests(self, older_than_ms: int | None = None) -> list[RequestRecord]:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(maintenance.list_pending, older_than_ms)

    async def list_messages_in_state(
        self, outcome: Outcome, older_than_ms: int | None = None
    ) -> list[MessageRecord]:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(maintenance.list_messages, outcome, older_than_ms)

    async def purge_expired(self, now_ms: int) -> int:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(_purge, now_ms)

    async def list_requests(self, query: RequestQuery) -> list[RequestRecord]:
        """See `AACPPersistenceAdapter`."""
        return await self._look(administration.list_requests, query)

    async def summarize_agents(self, after: str, limit: int) -> list[AgentSummary]:
        """See `AACPPersistenceAdapter`."""
        return await self._look(administration.summarize, after, limit)

    async def measure_queues(self, agent_ids: Sequence[str]) -> list[AgentSummary]:
        """See `AACPPersistenceAdapter`."""
        return await self._look(administration.measure, agent_ids)

    async def cancel(self, cancellations: Sequence[ClaimCompletion], now_ms: int) -> list[Changed]:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(administration.cancel, cancellations, self.incarnation, now_ms)

    async def requeue(self, request_ids: Sequence[str], expires_at_ms: int) -> list[Changed]:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(
            administration.requeue, request_ids, self.incarnation, expires_at_ms
        )

    # -- schedules ----------------------------------------------------------------------------

    async def change_schedules(self, changes: Sequence[ScheduleChange]) -> list[bool]:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(schedules.change_schedules, changes)

    async def list_schedules(self, after: str, limit: int) -> list[Schedule]:
        """See `AACPPersistenceAdapter`."""
        return await self._look(schedules.list_schedules, after, limit)

    async def due_schedules(self, now_ms: int, limit: int) -> DueSchedules:
        """See `AACPPersistenceAdapter`."""
        return await self._look(schedules.due_schedules, now_ms, limit)

    async def enter_runs(self, advances: Sequence[Advance], now_ms: int) -> list[EnteredRuns]:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(schedules.enter_runs, advances, self.incarnation)


@define(eq=False, repr=False)
class _Renewer:
    """Renews leases in the thread of the file."""

    _adapter: SqliteAACPPersistenceAdapter

    async def renew(self, claims: Sequence[tuple[str, int]], lease_until_ms: int) -> object:
        """See `LeaseRenewer`."""
        return await self._adapter.renew(claims, lease_until_ms)

    async def close(self) -> None:
        """See `LeaseRenewer`."""


def _purge(connection: sqlite3.Connection, now_ms: int) -> int:
    note_time(connection, now_ms)
    return maintenance.purge(connection, now_ms)
