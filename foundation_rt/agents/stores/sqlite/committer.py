"""The thread that owns the connection, and commits waiting operations together.

A commit costs an fsync, for any number of writes: 420 commits a second were measured, and 55,000
writes a second in groups of 500. So the thread takes all waiting operations into one transaction
and answers them when it is durable; operations that arrive meanwhile form the next group. Each
operation has a savepoint of its own, so that one that fails does not affect the others (3 us an
operation).

A group that is lost before its commit, or fills the disk, has certainly not happened. Its
operations are tried again one by one, so that only those fail that cause it. A group whose commit
failed for another reason may have happened: each of its operations fails with `StoreError`
(AACP-30).
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from attrs import define, field

T = TypeVar("T")

Operation = Callable[[sqlite3.Connection], Any]
Opener = Callable[[], sqlite3.Connection]
Closer = Callable[[sqlite3.Connection], object]

MAX_GROUP = 512
"""The most operations in one transaction: bounds the wait of the first one."""


@define(eq=False, repr=False)
class _Job:
    """An operation and the future of its answer, which is a value or an error.

    A job without an operation is the last one: it is answered when the connection is closed.
    """

    operation: Operation | None
    future: asyncio.Future[Any]
    value: Any = None
    error: BaseException | None = None

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
        opener: makes the connection, in the thread; `start` raises its errors.
        closer: closes the connection, in the thread.
        explain: turns an error of SQLite into one with advice.
    """

    _opener: Opener
    _closer: Closer
    _explain: Callable[[sqlite3.Error], Exception]
    _jobs: SimpleQueue[_Job] = field(factory=SimpleQueue, init=False)
    _thread: threading.Thread = field(init=False)

    async def start(self) -> None:
        """Open the connection.

        Raises:
            Exception: the error of the opener; the thread has ended then.
        """
        opened = _new_job(_nothing)
        self._thread = threading.Thread(
            target=self._run, args=(opened,), name="foundation-rt-sqlite", daemon=True
        )
        self._thread.start()
        try:
            await opened.future
        except asyncio.CancelledError:
            self._jobs.put(_new_job(None))
            raise
        except BaseException:
            self._thread.join()  # it has nothing left to do
            raise

    async def perform(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run an operation; return its answer when it is durable.

        Raises:
            StoreError: the operation did not happen, or it is not known whether it did.
            Exception: the error of the operation, which did not happen.
        """
        job = _new_job(operation)
        self._jobs.put(job)
        value: T = await job.future
        return value

    async def stop(self) -> None:
        """Run the waiting operations, close the connection and end the thread, for good."""
        last = _new_job(None)
        self._jobs.put(last)
        await last.future
        self._thread.join()  # it has nothing left to do

    # -- in the thread ------------------------------------------------------------------------

    def _run(self, opened: _Job) -> None:
        try:
            connection = self._opener()
        except BaseException as error:
            opened.error = error
            _answer([opened])
            return
        _answer([opened])
        while True:
            jobs = self._next_group()
            last = jobs.pop() if jobs[-1].operation is None else None
            if jobs:
                self._perform_group(connection, jobs)
                _answer(jobs)
            if last is not None:
                break
        self._closer(connection)
        _answer([last])

    def _next_group(self) -> list[_Job]:
        """Return the waiting jobs; wait while there are none."""
        group = [self._jobs.get()]
        try:
            while len(group) < MAX_GROUP and group[-1].operation is not None:
                group.append(self._jobs.get_nowait())
        except Empty:
            pass
        return group

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
        connection.execute("BEGIN IMMEDIATE")
        try:
            for job in jobs:
                job.error = None
                self._perform(connection, job)
        except sqlite3.Error as error:
            _roll_back(connection)
            raise _NotCommitted from error
        try:
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            # Without its last frame the transaction is not in the WAL.
            raise _NotCommitted from error
        finally:
            _roll_back(connection)

    def _perform(self, connection: sqlite3.Connection, job: _Job) -> None:
        connection.execute("SAVEPOINT operation")
        try:
            assert job.operation is not None
            job.value = job.operation(connection)
        except BaseException as error:
            if not connection.in_transaction:  # SQLite has rolled back everything
                raise
            connection.execute("ROLLBACK TO operation")
            job.error = self._explained(error)
        connection.execute("RELEASE operation")

    def _explained(self, error: BaseException | None) -> BaseException | None:
        return self._explain(error) if isinstance(error, sqlite3.Error) else error


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _new_job(operation: Operation | None) -> _Job:
    return _Job(operation, asyncio.get_running_loop().create_future())


def _nothing(connection: sqlite3.Connection) -> None:
    """Do nothing: the operation of a job that waits for the connection."""


def _answer(jobs: list[_Job]) -> None:
    """Resolve the futures of jobs: one call for each event loop, mostly one."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.future.get_loop(), []).append(job)
    for loop, waiting in by_loop.items():
        # In a closed loop no task waits for an answer.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, waiting)


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        job.resolve()
