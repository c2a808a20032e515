"""The public class of a store in a SQLite file."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from attrs import define, field

from .....base.database.errors import DatabaseError
from .....base.database.sqlite import SqliteDatabase
from .....errors import UsageError
from ...jobs import Job, JobClaim, NewJob, Submission
from ...queries import TaskPage, TaskQuery
from ...store import Change, TaskQuota, TaskUpdate
from ...tasks import NewTask
from . import change_log, counts, jobs, listing, tables, tasks

P = ParamSpec("P")
T = TypeVar("T")

Operation = Callable[Concatenate[sqlite3.Connection, P], T]
Method = Callable[Concatenate["SqliteTaskStore", P], Coroutine[Any, Any, T]]

LOOK_EVERY_S = 0.1
"""The interval at which a process looks for changes of others: 0.6 % of a processor."""


def _reading(operation: Operation[P, T], *, quick: bool = True) -> Method[P, T]:
    """Return the method of `TaskServerStore` that performs an operation that only reads."""

    async def method(self: SqliteTaskStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.read(
            lambda connection: operation(connection, *args, **kwargs), quick=quick
        )

    return method


def _changing(operation: Operation[P, T]) -> Method[P, T]:
    """Return the method of `TaskServerStore` that performs an operation that may change a file."""

    async def method(self: SqliteTaskStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._change(lambda connection: operation(connection, *args, **kwargs))

    return method


@define(eq=False)
class SqliteTaskStore:
    """Keeps tasks and jobs in one file, for any number of processes (TASKS-79).

    The file is made with mode 0600, in a folder that is made with mode 0700. A process opens it
    once.

    Args:
        path: of the file.
        migrate: bring the tables to the newest version, instead of refusing those of another.
        quota: the most that a principal may store.

    Attributes:
        few: the most tasks that are read and sorted for a page of a list; pages of longer lists are
            read along an index.
    """

    path: str | os.PathLike[str]
    migrate: bool = field(default=True, kw_only=True)
    quota: TaskQuota = field(factory=TaskQuota, kw_only=True)
    few: int = field(default=listing.FEW, init=False)
    _database: SqliteDatabase = field(init=False)
    _callbacks: list[Callable[[Change], object]] = field(factory=list, init=False)
    _last_change: int = field(default=0, init=False)
    _changed: asyncio.Event | None = field(default=None, init=False)  # while it is open
    _watcher: asyncio.Task[None] | None = field(default=None, init=False)

    @_database.default
    def _its_database(self) -> SqliteDatabase:
        return SqliteDatabase(self.path, private=True, prepare=self._prepare)

    def _prepare(self, connection: sqlite3.Connection, alone: bool) -> None:
        tables.prepare(connection, self._database.path, self.migrate)

    async def open(self) -> None:
        """See `TaskServerStore`; after `close` again, also on another event loop."""
        if not self.migrate and not Path(self._database.path).exists():
            raise UsageError(f"there is no file {self._database.path}: migrate makes it")
        await self._database.open()
        self._changed = asyncio.Event()
        self._last_change = await self._database.read(change_log.last)
        self._start_watcher()

    async def close(self) -> None:
        """See `TaskServerStore`; a second call does nothing."""
        watcher, self._watcher, self._changed = self._watcher, None, None
        if watcher is not None:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher
        await self._database.close()

    async def ping(self) -> None:
        """See `TaskServerStore`."""
        await self._database.read(change_log.last, quick=True)

    # -- changes ------------------------------------------------------------------------------

    def on_change(self, callback: Callable[[Change], object]) -> None:
        """See `TaskServerStore`."""
        self._callbacks.append(callback)
        self._start_watcher()

    def _start_watcher(self) -> None:
        if self._callbacks and self._changed is not None and self._watcher is None:
            watching = self._watch(self._changed)
            self._watcher = asyncio.get_running_loop().create_task(watching)

    async def _watch(self, changed: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        version = change_log.UNREAD
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await changed.wait()
            changed.clear()
            look = partial(change_log.look, behind=self._last_change, version=version)
            try:
                self._last_change, version, changes = await self._database.read(look, quick=True)
            except DatabaseError:  # it is away: look again the next time
                continue
            for change in changes:
                for callback in self._callbacks:
                    loop.call_soon(callback, change)  # the loop handles errors of callbacks

    async def _change(
        self, operation: Callable[[sqlite3.Connection], T], *, alone: bool = False
    ) -> T:
        """Perform an operation that may change something."""
        answer = await self._database.write(operation, alone=alone)
        if self._changed is not None:
            self._changed.set()
        return answer

    # -- jobs ---------------------------------------------------------------------------------

    async def submit_job(self, job: NewJob, max_pending: int) -> Submission:
        """See `TaskServerStore`."""
        submit = partial(jobs.submit, job=job, max_pending=max_pending, quota=self.quota)
        return await self._change(submit)

    async def claim_job(self, owner: str, lease_ms: int, max_attempts: int) -> JobClaim | None:
        """See `TaskServerStore`."""
        is_there = partial(jobs.has_claimable, max_attempts=max_attempts)
        if not await self._database.read(is_there, quick=True):
            return None  # workers ask often; this takes no lock that writers need
        claim = partial(jobs.claim, owner=owner, lease_ms=lease_ms, max_attempts=max_attempts)
        return await self._change(claim)

    async def complete_job(self, claim: JobClaim, tasks: Sequence[NewTask]) -> Job | None:
        """See `TaskServerStore`."""
        return await self._change(partial(jobs.complete, claim=claim, tasks=tasks), alone=True)

    get_job = _reading(jobs.get)
    count_jobs = _reading(jobs.count, quick=False)
    renew_job = _changing(jobs.renew)
    release_job = _changing(jobs.release)
    fail_job = _changing(jobs.fail)
    maintain_jobs = _changing(jobs.maintain)

    # -- tasks --------------------------------------------------------------------------------

    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        """See `TaskServerStore`."""
        read = partial(listing.list_tasks, query=query, few=self.few)
        return await self._database.read(read, quick=listing.is_quick(query))

    async def update_tasks(self, updates: Sequence[TaskUpdate]) -> list[tuple[int, int]]:
        """See `TaskServerStore`."""
        return await self._change(partial(tasks.update, updates=updates, quota=self.quota))

    get_task = _reading(tasks.get)
    summarize = _reading(counts.summarize)
    claim_tasks = _changing(tasks.claim)
    delete_tasks = _changing(tasks.delete)
