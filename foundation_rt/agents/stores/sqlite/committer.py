"""The thread that owns the connection: what waits for it is committed together.

A commit costs an fsync, whatever it holds: 420 of them a second were measured, and 55,000 writes a
second in groups of 500. So the thread takes all operations that wait into one transaction, answers
them when it is durable, and finds those that came up meanwhile waiting. Each operation has a
savepoint of its own: one that fails takes nothing along (3 us an operation).

A group that is lost before its commit, or fills the disk, is certain not to have happened: its
operations are tried again one by one, so that those fail that have to. One whose commit failed for
another reason may have happened, and every one of its operations fails with `StoreError` (AACP-30).
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
"""Operations in one transaction: what comes first need not wait for any number of others."""


@define(eq=False, repr=False)
class _Job:
    """An operation, and who waits for it; its answer is a value or an error.

    Without an operation it is the last one: it is answered when the connection is closed.
    """

    operation: Operation | None
    future: asyncio.Future[Any]
    value: Any = None
    error: BaseException | None = None

    def tell(self) -> None:
        """In the event loop: hand over the answer, unless nobody waits any longer."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.value)
        else:
            self.future.set_exception(self.error)


class _NotCommitted(Exception):
    """The transaction of a group is gone, and certain not to have happened."""


@define(eq=False, repr=False)
class Committer:
    """Performs operations on a connection of its own, in a thread of its own.

    Args:
        opener: makes the connection, in the thread; what it raises, `start` raises.
        closer: ends it, in the thread.
        explain: an error of SQLite as one that says what to do.
    """

    _opener: Opener
    _closer: Closer
    _explain: Callable[[sqlite3.Error], Exception]
    _jobs: SimpleQueue[_Job] = field(factory=SimpleQueue, init=False)
    _thread: threading.Thread = field(init=False)

    async def start(self) -> None:
        """Open the connection.

        Raises:
            Exception: what the opener raises; there is no thread then.
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
        """Have an operation done; return its answer when it is durable.

        Raises:
            StoreError: it was not done, or may have been done.
            Exception: what the operation raised; it was not done.
        """
        job = _new_job(operation)
        self._jobs.put(job)
        value: T = await job.future
        return value

    async def stop(self) -> None:
        """Do what waits, then close the connection and end the thread; nothing may come after."""
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
        """What waits; waits itself while there is nothing."""
        group = [self._jobs.get()]
        try:
            while len(group) < MAX_GROUP and group[-1].operation is not None:
                group.append(self._jobs.get_nowait())
        except Empty:
            pass
        return group

    def _perform_group(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        """Perform and commit; whatever happens, every job has an answer, and the thread goes on."""
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
        _roll_back(connection)  # what a failed rollback may have left
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
            # Without its last frame it is not in the WAL, whatever else is.
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
    """The operation of a job that only waits for something else."""


def _answer(jobs: list[_Job]) -> None:
    """Answer those who wait: one call for each event loop, mostly one."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.future.get_loop(), []).append(job)
    for loop, waiting in by_loop.items():
        # A loop that is closed has nobody who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_tell, waiting)


def _tell(jobs: list[_Job]) -> None:
    for job in jobs:
        job.tell()
