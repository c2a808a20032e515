"""The public class of a SQLite file."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

from attrs import define, field

from ....errors import UsageError
from ...shown import Shown
from ..errors import DatabaseUnavailableError
from . import files
from .committer import Committer, OperationKind
from .presence import Presence, Turn

T = TypeVar("T")


def _real_path(path: str | os.PathLike[str]) -> str:
    """Return the one name of a file, which a change of the working directory leaves valid."""
    return os.path.realpath(path)


def _ignore(connection: sqlite3.Connection, alone: bool) -> None:
    """Do nothing with a new connection."""


@define(eq=False, repr=False)
class SqliteDatabase(Shown):
    """One file, used through one connection, in a thread of its own.

    Operations are functions of a `sqlite3.Connection`. They run in the thread, one after another,
    in a transaction, and neither begin nor end one; reads that are quick run in the thread of their
    caller. What they return is the answer of `write` or `read`. Callers may be on any event loop.

    Several processes may have one file open; a process opens it once (DB-14). Beside the file are
    its journal (``-journal``, or ``-wal`` and ``-shm``) and an empty ``-presence``. All must be on
    a local disk. The last process that closes the file leaves no journal. A database does not
    survive a fork: in the child every operation raises `UsageError`, so that the file stays intact.

    Args:
        path: of the file; it is made if it is missing.
        prepare: called in the thread as ``prepare(connection, alone)``, outside of a transaction,
            when the file is opened: the place for migrations. `alone` tells that no other process
            has the file open, and then none can open it before this returns.
        private: make the file for its owner only, and its folder too, if they are missing; else the
            folder must exist.
        exclusive: keep the file for this process: no other can open it, and the journal is a WAL
            with every SQLite library (DB-26).
        patience_s: how long an operation waits for other processes.
    """

    path: str = field(converter=_real_path)
    prepare: Callable[[sqlite3.Connection, bool], object] = field(default=_ignore, kw_only=True)
    private: bool = field(default=False, kw_only=True)
    exclusive: bool = field(default=False, kw_only=True)
    patience_s: float = field(default=5.0, kw_only=True)
    _presence: Presence | None = field(default=None, init=False)
    _turn: Turn = field(factory=Turn, init=False)
    _committer: Committer | None = field(default=None, init=False)
    _pid: int = field(default=0, init=False)

    async def open(self) -> None:
        """Open the file; after `close` again, also on another event loop.

        Raises:
            UsageError: there can be no database at this path, or it is open already.
            DatabaseError: the disk is full, or another process keeps the file locked.
            Exception: an error of `prepare`.
        """
        if self._committer is not None and self._pid == os.getpid():
            raise UsageError(f"{self.path} is open in this process already: open it once")
        self._turn = Turn()
        committer = Committer(
            self.path, self._connect, self._disconnect, self.patience_s, self._turn
        )
        await committer.start()
        self._committer, self._pid = committer, os.getpid()

    async def close(self) -> None:
        """Do what was asked for, then close the file; a second call does nothing."""
        committer, self._committer = self._committer, None
        if committer is not None and self._pid == os.getpid():
            await committer.stop()

    async def write(
        self, operation: Callable[[sqlite3.Connection], T], *, alone: bool = False
    ) -> T:
        """Run an operation; return its answer when it is durable (DB-12).

        It shares a transaction, and the fsync, with others that wait. It is undone alone if it
        fails, and may be run twice, so it changes nothing but the database. A caller that is
        cancelled does not cancel it.

        Args:
            operation: runs in the thread, in a transaction that may write.
            alone: give it a transaction by itself, after others that wait: for what takes long.

        Raises:
            TransactionFailedError: the operation did not happen; the class says why.
            CommitUnknownError: it is not known whether it happened.
            Exception: the error of the operation, which did not happen.
        """
        return await self._open_committer().perform(
            operation, OperationKind.ALONE if alone else OperationKind.WRITE
        )

    async def read(self, operation: Callable[[sqlite3.Connection], T], *, quick: bool = False) -> T:
        """Run an operation that changes nothing; return its answer (DB-13).

        It sees one snapshot, and waits for no fsync but the one under way.

        Args:
            operation: runs in the thread, or where this is called.
            quick: it mostly takes less than a millisecond, as a few rows by their key: run it where
                this is called if the connection is free, which saves the way to the thread (DB-17).
                If it takes longer it is run again in the thread.

        Raises:
            TransactionFailedError: the file could not be read; the class says why.
            TypeError: it has written, which was undone.
            Exception: the error of the operation.
        """
        committer = self._open_committer()
        if quick:
            return await committer.read_quickly(operation)
        return await committer.perform(operation, OperationKind.READ)

    async def data_version(self) -> int:
        """Return a number that is another one when another process has changed the file (DB-15).

        Own changes leave it as it is. Reading it takes about as long as one row.

        Raises:
            TransactionFailedError: the file could not be read; the class says why.
        """
        return await self.read(_data_version, quick=True)

    def _open_committer(self) -> Committer:
        if self._committer is None:
            raise DatabaseUnavailableError(f"{self.path} is not open")
        if self._pid != os.getpid():
            raise UsageError(
                f"{self.path} was opened before a fork: the child process must open it by itself"
            )
        return self._committer

    # -- in the thread ------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        if self.private:
            files.make_folder(self.path)
        presence = Presence.enter(self.path, self.patience_s)
        turn = self._turn
        turn.fd = presence.fd
        turn.take(time.monotonic() + self.patience_s)  # others wait meanwhile
        try:
            if self.exclusive and not presence.alone:
                raise DatabaseUnavailableError(
                    f"{self.path}: another process has it open: close it there, or open it without"
                    " exclusive here"
                )
            connection = self._connect_present(presence.alone)
            if not self.exclusive:
                presence.settle()
        except BaseException:
            presence.leave()
            raise
        turn.end()
        self._presence = presence
        return connection

    def _connect_present(self, alone: bool) -> sqlite3.Connection:
        try:
            connection = files.connect(
                self.path,
                self.patience_s,
                alone=alone,
                private=self.private,
                exclusive=self.exclusive,
            )
            try:
                self.prepare(connection, alone)
                files.wait_here(connection)
            except BaseException:
                files.close(connection)
                raise
        except sqlite3.Error as error:
            explained = files.explained_at_open(self.path, error)
            if explained is error:
                raise
            raise explained from error
        return connection

    def _disconnect(self, connection: sqlite3.Connection) -> None:
        files.close(connection)
        if self._presence is not None:
            self._presence.leave()


def _data_version(connection: sqlite3.Connection) -> int:
    [version] = connection.execute("PRAGMA data_version").fetchone()
    return int(version)
