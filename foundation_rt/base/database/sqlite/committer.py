"""The thread that owns the connection, and commits waiting operations together.

A commit costs an fsync, for any number of writes: 420 commits a second were measured, and 55,000
writes a second in groups of 500. So the thread takes all waiting operations into one transaction
and answers them when it is durable; operations that arrive meanwhile form the next group. Each
operation has a savepoint of its own, so that one that fails does not affect the others (3 us an
operation).

Reads wait for no fsync but the one under way: the thread runs those that wait before it begins the
next group, in one transaction that takes no lock of a writer. An operation that is large gets a
transaction by itself, after the others that wait, so that it can neither delay nor fail them.

A read of one row takes 60 us, and its way to the thread and back 270 us more. So while nobody uses
the connection, a read that is known to be quick runs in the thread of its caller. It never waits
there: if another process has a lock, or if the read takes longer than `QUICK_S`, it goes to the
thread after all.

A group that is lost before its commit, or fills the disk, has certainly not happened. Its
operations are tried again one by one, so that only those fail that cause it. A group whose commit
failed for another reason may have happened: each of its operations fails with
`CommitUnknownError`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from attrs import define, field

from ...abort import call_in_loop
from ..errors import CommitUnknownError, DatabaseUnavailableError
from . import files
from .presence import Turn

T = TypeVar("T")

Operation = Callable[[sqlite3.Connection], Any]
Opener = Callable[[], sqlite3.Connection]
Closer = Callable[[sqlite3.Connection], object]

MAX_GROUP: Final = 512
"""The most operations in one transaction: bounds the wait of the first one."""

QUICK_S: Final = 0.001
"""The longest time for which a quick read may block the thread of its caller."""

_STEPS = 1000
"""The steps of SQLite between two looks at the clock: about 30 us."""


class OperationKind(Enum):
    """The kind of transaction that an operation needs."""

    WRITE = "a transaction, which others may share"
    ALONE = "a transaction by itself"
    READ = "a snapshot"
    LAST = "nothing: the connection is closed, and the thread ends"


@define(eq=False, repr=False)
class _Answer:
    """An operation and its answer, which is a value or an error."""

    operation: Operation
    value: Any = field(default=None, init=False)
    error: BaseException | None = field(default=None, init=False)


@define(eq=False, repr=False)
class _Job(_Answer):
    """An operation for the thread, and the future of its answer."""

    kind: OperationKind
    future: asyncio.Future[Any]

    def resolve(self) -> None:
        """Resolve the future with the answer, in its event loop, unless it was cancelled."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.value)
        else:
            self.future.set_exception(self.error)


class _NotCommitted(Exception):
    """The transaction of a group was lost, and has certainly not happened."""


@define(eq=False, repr=False)
class Committer:
    """Performs operations on a connection of its own, in a thread of its own.

    Args:
        path: of the file, for messages.
        opener: makes the connection, in the thread; `start` raises its errors.
        closer: closes the connection, in the thread.
        patience_s: how long an operation waits for the locks of other processes.
        turn: that of this process among them.
    """

    _path: str
    _opener: Opener
    _closer: Closer
    _patience_s: float
    _turn: Turn
    _jobs: SimpleQueue[_Job] = field(factory=SimpleQueue, init=False)
    _alone: deque[_Job] = field(factory=deque, init=False)
    _thread: threading.Thread = field(init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _stopping: bool = field(default=False, init=False)
    # While it is open. The thread that uses it holds `_in_use`.
    _connection: sqlite3.Connection | None = field(default=None, init=False)
    _in_use: threading.Lock = field(factory=threading.Lock, init=False)

    async def start(self) -> None:
        """Open the connection.

        Raises:
            Exception: the error of the opener; the thread has ended then.
        """
        opened = _new_job(OperationKind.READ, _nothing)
        self._thread = threading.Thread(
            target=self._run, args=(opened,), name="foundation-rt-sqlite", daemon=True
        )
        self._thread.start()
        try:
            await opened.future
        except asyncio.CancelledError:
            self._put(_new_job(OperationKind.LAST, _nothing))
            raise
        except BaseException:
            self._thread.join()  # it has nothing left to do
            raise

    async def perform(
        self,
        operation: Callable[[sqlite3.Connection], T],
        kind: OperationKind = OperationKind.WRITE,
    ) -> T:
        """Run an operation; return its answer when it is durable.

        Raises:
            TransactionFailedError: the operation did not happen; the class says why.
            CommitUnknownError: it is not known whether it happened.
            Exception: the error of the operation, which did not happen.
        """
        job = _new_job(kind, operation)
        self._put(job)
        value: T = await job.future
        return value

    async def read_quickly(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run a read in this thread if that is possible at once, else as `perform` does.

        Raises:
            TransactionFailedError: the file could not be read; the class says why.
            Exception: the error of the operation.
        """
        read = self._read_here(operation)
        if read is None:
            return await self.perform(operation, OperationKind.READ)
        if read.error is not None:
            raise read.error
        value: T = read.value
        return value

    def _read_here(self, operation: Operation) -> _Answer | None:
        """Return the answer of a read; None if it would have to wait, or takes too long."""
        if not self._jobs.empty() or not self._in_use.acquire(blocking=False):
            return None
        try:
            if self._connection is None:
                return None
            return self._read_in_time(self._connection, operation)
        finally:
            self._in_use.release()

    def _read_in_time(self, connection: sqlite3.Connection, operation: Operation) -> _Answer | None:
        clock, interrupted = time.monotonic, False
        deadline = clock() + QUICK_S

        def is_late() -> bool:
            nonlocal interrupted
            interrupted = clock() > deadline
            return interrupted

        read = _Answer(operation)
        connection.set_progress_handler(is_late, _STEPS)
        try:
            _roll_back(connection)  # a transaction that a failed rollback may have left
            if not files.try_reading(connection):
                return None
            _read(connection, read)
        except BaseException as error:
            read.error = read.error or error
        finally:
            connection.set_progress_handler(None, _STEPS)
            with suppress(sqlite3.Error):
                _roll_back(connection)
        read.error = self._explained(read.error)
        return None if interrupted else read

    async def stop(self) -> None:
        """Run the waiting operations, close the connection and end the thread, for good."""
        last = _new_job(OperationKind.LAST, _nothing)
        self._put(last)
        await last.future
        self._thread.join()  # it has nothing left to do

    def _put(self, job: _Job) -> None:
        with self._lock:  # nothing comes after the last one
            if self._stopping:
                raise DatabaseUnavailableError(f"{self._path} is not open")
            self._stopping = job.kind is OperationKind.LAST
            self._jobs.put(job)

    # -- in the thread ------------------------------------------------------------------------

    def _run(self, opened: _Job) -> None:
        try:
            connection = self._opener()
        except BaseException as error:
            opened.error = error
            _answer([opened])
            return
        self._connection = connection
        _answer([opened])
        last = None
        while last is None or self._alone:
            jobs = self._next_jobs(wait=not self._alone and last is None)
            last = jobs.pop() if jobs and jobs[-1].kind is OperationKind.LAST else last
            reads = [job for job in jobs if job.kind is OperationKind.READ]
            if reads:
                with self._in_use:
                    self._read_all(connection, reads)
                _answer(reads)
            group = [job for job in jobs if job.kind is OperationKind.WRITE]
            self._alone.extend(job for job in jobs if job.kind is OperationKind.ALONE)
            if not group and self._alone:
                group.append(self._alone.popleft())
            if group:
                with self._in_use:
                    self._perform_group(connection, group)
                _answer(group)
        with self._in_use:
            self._connection = None
            self._closer(connection)
        _answer([last])

    def _next_jobs(self, wait: bool) -> list[_Job]:
        """Return the waiting jobs."""
        jobs = [self._jobs.get()] if wait else []
        try:
            while len(jobs) < MAX_GROUP and not (jobs and jobs[-1].kind is OperationKind.LAST):
                jobs.append(self._jobs.get_nowait())
        except Empty:
            pass
        return jobs

    def _read_all(self, connection: sqlite3.Connection, jobs: Sequence[_Job]) -> None:
        """Perform reads on one snapshot; in every case each has an answer."""
        try:
            _roll_back(connection)  # a transaction that a failed rollback may have left
            files.begin_reading(connection, self._turn, self._patience_s)
            for job in jobs:
                _read(connection, job)
                job.error = self._explained(job.error)
        except BaseException as error:
            for job in jobs:
                job.error = job.error or self._explained(error)
        finally:
            with suppress(sqlite3.Error):
                _roll_back(connection)

    def _perform_group(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        """Perform and commit jobs; in every case each has an answer and the thread goes on."""
        try:
            self._commit(connection, jobs)
        except _NotCommitted as lost:
            if len(jobs) > 1:
                for job in jobs:
                    self._perform_group(connection, [job])
            else:
                jobs[0].error = self._explained(lost.__cause__)
        except BaseException as error:
            for job in jobs:
                job.error = job.error or self._explained(error)

    def _commit(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        _roll_back(connection)  # a transaction that a failed rollback may have left
        files.begin_writing(connection, self._turn, self._patience_s)
        try:
            for job in jobs:
                job.error = None
                self._perform(connection, job)
        except sqlite3.Error as error:
            _roll_back(connection)
            raise _NotCommitted from error
        try:
            files.commit(connection, self._patience_s)
        except sqlite3.OperationalError as error:
            code = files.code_of(error)
            if code == sqlite3.SQLITE_FULL or files.is_refused_write(error):
                # Without its last page the transaction is in no WAL, and its journal undoes it.
                raise _NotCommitted from error
            if code == sqlite3.SQLITE_BUSY:  # it still waits for readers
                raise
            raise CommitUnknownError(f"{self._path}: the disk failed in COMMIT: {error}") from error
        finally:
            _roll_back(connection)

    def _perform(self, connection: sqlite3.Connection, job: _Job) -> None:
        connection.execute("SAVEPOINT operation")
        try:
            job.value = job.operation(connection)
        except BaseException as error:
            if not connection.in_transaction:  # SQLite has rolled back everything
                raise
            connection.execute("ROLLBACK TO operation")
            job.error = self._explained(error)
        connection.execute("RELEASE operation")

    def _explained(self, error: BaseException | None) -> BaseException | None:
        return files.explained(self._path, error) if isinstance(error, sqlite3.Error) else error


def _read(connection: sqlite3.Connection, job: _Answer) -> None:
    changes = connection.total_changes
    try:
        job.value = job.operation(connection)
    except BaseException as error:
        job.error = error
    else:
        if connection.total_changes != changes:
            job.error = TypeError("an operation that only reads has written: it was undone")


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _new_job(kind: OperationKind, operation: Operation) -> _Job:
    return _Job(operation, kind, asyncio.get_running_loop().create_future())


def _nothing(connection: sqlite3.Connection) -> None:
    """Do nothing: the operation of a job that waits for the connection, or for its end."""


def _answer(jobs: Sequence[_Job]) -> None:
    """Resolve the futures of jobs: one call for each event loop, mostly one."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.future.get_loop(), []).append(job)
    for loop, waiting in by_loop.items():
        call_in_loop(loop, _resolve, waiting)


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        job.resolve()
