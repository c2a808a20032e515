"""The public class of a ledger in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from attrs import define, field

from ....errors import StructuredError, UsageError
from ....shown import Shown
from ...ledger.types import (
    Appended,
    ClaimCompletion,
    Claimed,
    Completed,
    Due,
    Envelope,
    IncomingEnvelope,
    MessageRecord,
    Outcome,
    OutgoingMessage,
    Received,
    Release,
    RequestRecord,
)
from ...persistence import RetryDecision, StoreError
from . import claims as claiming
from . import maintenance, schema
from . import messages as messaging
from .committer import Committer
from .presence import Presence

if TYPE_CHECKING:
    from ....logs.logger import StructuredLogger

P = ParamSpec("P")
T = TypeVar("T")

BUSY_TIMEOUT_S = 5.0
"""The time that an operation waits for another process to end its transaction."""

_SAFE_VERSION = (3, 51, 3)
"""The first SQLite without the bug by which two connections can corrupt a WAL (AACP-32)."""

_WAL_PAGES = 4000
_WAL_BYTES = 64 * 1024 * 1024


def _real_path(path: str | os.PathLike[str]) -> str:
    """Return the one name of a file, which a change of the working directory leaves valid."""
    return os.path.realpath(path)


@define(eq=False, repr=False)
class SqliteAACPPersistenceAdapter(Shown):
    """Keeps everything in one file, through one connection, in a thread of its own.

    Beside the file are ``-wal`` and ``-shm``, which belong to it, and an empty ``-presence``. All
    four must be on a local disk. The WAL is copied into the file when it has reached 4,000 pages
    (16 MiB) at the end of a transaction, and is then written from its beginning again; the part
    beyond 64 MiB that a large transaction needed is then released. When the last process closes
    the ledger, the WAL is removed.

    Several processes may have one file open; a second adapter in one process is refused (AACP-32).
    A process that opens the file alone knows that the owners of all claims are gone, and gives the
    claims back at once. An adapter does not survive a fork: in the child every operation raises
    `UsageError`, so that the file stays intact; the child makes an adapter of its own.

    The adapter may be closed and opened again, also on another event loop. The argument `decide` of
    `take_due` is called in the adapter's thread.

    Args:
        path: of the file; it is made if it is missing, in a folder that exists.
        logger: gets a warning when a second process opens the file on a library with the bug.
    """

    durability = (
        "An acknowledged message survives the end of the process and of the machine (WAL,"
        " synchronous=FULL), as far as the disk keeps what it says it has written."
    )
    shared = True
    takes_writes = False
    immediate = False

    path: str = field(converter=_real_path)
    logger: StructuredLogger | None = None
    incarnation: int = field(default=0, init=False)
    _presence: Presence | None = field(default=None, init=False)
    _committer: Committer | None = field(default=None, init=False)
    _pid: int = field(default=0, init=False)

    async def open(self) -> None:
        """See `AACPPersistenceAdapter`.

        Raises:
            UsageError: there can be no ledger at this path, or it is open already.
            StoreError: the disk is full, or another process keeps the file locked.
        """
        if self._committer is not None and self._pid == os.getpid():
            raise UsageError(f"{self.path} is open in this process already: open it once")
        committer = Committer(self._connect, self._disconnect, partial(_explain, self.path))
        await committer.start()
        self._committer, self._pid = committer, os.getpid()

    async def close(self) -> None:
        """See `AACPPersistenceAdapter`."""
        committer, self._committer = self._committer, None
        if committer is not None and self._pid == os.getpid():
            await committer.stop()

    def on_change(self, callback: Callable[[], object]) -> None:
        """Ignore the callback: SQLite does not notify a process of the changes of another."""

    async def _perform(
        self,
        operation: Callable[Concatenate[sqlite3.Connection, P], T],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """Run `operation(connection, *arguments)` in the thread."""
        if self._committer is None:
            raise StoreError(f"{self.path} is not open")
        if self._pid != os.getpid():
            raise UsageError(
                f"{self.path} was opened before a fork: make an adapter in the child process"
            )
        return await self._committer.perform(
            lambda connection: operation(connection, *arguments, **named)
        )

    # -- in the thread ------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        presence = Presence.enter(self.path)
        try:
            connection = self._connect_present(presence)
            presence.settle()
        except BaseException:
            presence.leave()
            raise
        self._presence = presence
        return connection

    def _connect_present(self, presence: Presence) -> sqlite3.Connection:
        connection = None
        try:
            connection = sqlite3.connect(self.path, BUSY_TIMEOUT_S, isolation_level=None)
            _set_up(connection)
            schema.migrate(connection, self.path)
            self.incarnation = maintenance.get_incarnation(connection)
            if presence.alone:
                claiming.release_all(connection)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, sqlite3.Error):
                raise _explain_open(self.path, error) from error
            raise
        if not presence.alone:
            self._warn_of_bug()
        return connection

    def _disconnect(self, connection: sqlite3.Connection) -> None:
        connection.close()
        if self._presence is not None:
            self._presence.leave()

    def _warn_of_bug(self) -> None:
        if self.logger is not None and sqlite3.sqlite_version_info < _SAFE_VERSION:
            self.logger.warn(
                "A second process has opened a ledger; this SQLite has a bug that can corrupt it:"
                " use PostgreSQL, one process, or a newer SQLite.",
                {
                    "path": self.path,
                    "sqliteVersion": sqlite3.sqlite_version,
                    "safeVersion": ".".join(map(str, _SAFE_VERSION)),
                },
            )

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

    async def complete(
        self, completions: Sequence[ClaimCompletion], now_ms: int
    ) -> list[Completed]:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(claiming.complete, completions, self.incarnation, now_ms)

    async def renew(self, claims: Sequence[tuple[str, int]], lease_until_ms: int) -> list[bool]:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(claiming.renew, claims, lease_until_ms)

    async def release(self, releases: Sequence[Release]) -> None:
        """See `AACPPersistenceAdapter`."""
        await self._perform(claiming.release, releases)

    async def take_due(self, now_ms: int, limit: int, decide: RetryDecision) -> Due:
        """See `AACPPersistenceAdapter`."""
        return await self._perform(messaging.take_due, now_ms, limit, decide)

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
        return await self._perform(maintenance.purge, now_ms)


def _set_up(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
    connection.execute("PRAGMA cache_size = -32768")  # KiB: the index of ids is written all over


def _explain(path: str, error: sqlite3.Error) -> Exception:
    """Return the error to raise for an error of SQLite; one that is a bug here is unchanged."""
    advice = _ADVICE.get(_code(error))
    if advice is None and not isinstance(error, sqlite3.OperationalError):
        return error
    explained = StoreError(f"{path}: {advice or error}")
    explained.__cause__ = error
    return explained


def _explain_open(path: str, error: sqlite3.Error) -> Exception:
    """Return the error to raise when the file cannot be opened: mostly it is the wrong one."""
    reason = _OPEN_ADVICE.get(_code(error))
    return _explain(path, error) if reason is None else UsageError(f"{path} {reason}")


def _code(error: sqlite3.Error) -> int:
    """Return the primary result code, its lowest byte; 0 for an error of the Python module."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


_ADVICE = {
    sqlite3.SQLITE_BUSY: f"another process has been writing for {BUSY_TIMEOUT_S:g} s: try again",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: stop all processes and restore it from a backup",
    sqlite3.SQLITE_FULL: "the disk is full: make room",
    sqlite3.SQLITE_NOTADB: "the file is damaged: stop all processes and restore it from a backup",
    sqlite3.SQLITE_READONLY: "the file may not be written: change its permissions",
}

_OPEN_ADVICE = {
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: a ledger needs a file in a folder that may be"
    " written to",
    sqlite3.SQLITE_NOTADB: "is no SQLite database: choose another file",
    sqlite3.SQLITE_READONLY: "may not be written: change its permissions, or choose another file",
}
