"""Carrying out jobs: claim, renew the lease, store the tasks, and say how it ended.

A job is done once because the store completes it only for the attempt and the owner that hold its
lease. So a worker may be stopped, frozen or cut off at any point: it finds out when it completes
the job, and another worker, in any process, has the job by then, or takes it when the lease ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import orjson
from attrs import define, field

from ...base.backoff import exponential_delay
from ...base.database.errors import (
    CommitUnknownError,
    DatabaseError,
    DatabaseFullError,
    DatabaseReadOnlyError,
    DatabaseUnavailableError,
)
from .tasks import NewTask

if TYPE_CHECKING:
    from .jobs import Job, JobClaim
    from .store import TaskServerStore

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
_LONGEST_POLL_S = 5.0
_MOST_UNKNOWN = 10
"""The most COMMITs of an attempt whose outcome is unknown; their pauses add up to 9 seconds."""
_RELEASE_S = 1.0
"""The longest that a stopping worker waits for its job to be given back."""

FULL = (
    "The disk of the database is full. Ask the operator to make room, then submit the tasks again,"
    " with a new requestKey."
)
READ_ONLY = (
    "The database cannot be written. Ask the operator to change that, then submit the tasks again,"
    " with a new requestKey."
)
INTERNAL = "The tasks could not be stored. Ask the operator to look for the job in the log."


def _pause(failures: int) -> float:
    """Return the seconds to wait after so many failures in a row."""
    return exponential_delay(failures, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)


class JobObserver(Protocol):
    """Notes what workers do; it never raises."""

    def job_started(self, job: Job) -> None:
        """Note that an attempt begins."""

    def job_ended(self, job: Job) -> None:
        """Note that a job is COMPLETED or FAILED."""

    def database_failed(self, error: BaseException, correlation_id: str | None = None) -> None:
        """Note that an operation on the database has failed."""


@define(eq=False)
class JobWorkers:
    """Workers on the running event loop, which take jobs of any process.

    Args:
        store: has the jobs.
        observer: is told of attempts and errors.
        count: how many jobs are carried out at once.
        lease_ms: how long a claim lasts unless it is renewed.
        max_attempts: how often a job is tried.
        keep_hours: how long an ended job is kept.
    """

    _store: TaskServerStore
    _observer: JobObserver
    count: int
    lease_ms: int
    max_attempts: int
    keep_hours: int
    _tasks: list[asyncio.Task[None]] = field(factory=list, init=False)
    _work_is_there: asyncio.Event = field(factory=asyncio.Event, init=False)
    _stopping: asyncio.Event = field(factory=asyncio.Event, init=False)

    def start(self) -> None:
        """Begin to take jobs."""
        working = [self._repeat(self._work, self._work_is_there) for _ in range(self.count)]
        loops = [*working, self._repeat(self._maintain, self._stopping)]
        self._tasks = [asyncio.create_task(each) for each in loops]

    def wake(self) -> None:
        """Look for a job now, instead of at the next poll."""
        self._work_is_there.set()

    async def stop(self, timeout: float) -> None:
        """Take no more jobs; after `timeout` seconds give back those not completed by then."""
        self._stopping.set()
        self.wake()
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=timeout)
        for task in late:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    # -- loops -----------------------------------------------------------------------------------

    async def _repeat(self, step: Callable[[], Awaitable[float]], wake_up: asyncio.Event) -> None:
        """Repeat `step`, which returns the seconds to rest before the next, until workers stop."""
        failures = 0
        while not self._stopping.is_set():
            try:
                rest = await step()
                failures = 0
            except Exception as error:  # whatever it was, the next job may be another matter
                self._observer.database_failed(error)
                failures += 1
                rest = _pause(failures)
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await wake_up.wait()

    async def _work(self) -> float:
        """Carry out one job; return how long to rest."""
        self._work_is_there.clear()
        claim = await self._store.claim_job(uuid4().hex, self.lease_ms, self.max_attempts)
        if claim is None:
            return min(self.lease_ms / 3000, _LONGEST_POLL_S)
        self._observer.job_started(claim.job)
        renewal = asyncio.create_task(self._renew(claim))
        try:
            job = await self._carry_out(claim)
        except asyncio.CancelledError:
            with suppress(DatabaseError, TimeoutError):
                async with asyncio.timeout(_RELEASE_S):
                    await self._store.release_job(claim)
            raise
        finally:
            renewal.cancel()
            await asyncio.wait([renewal])
        if job is not None:
            self._observer.job_ended(job)
        self.wake()  # there may be another
        return 0

    async def _maintain(self) -> float:
        done = await self._store.maintain_jobs(self.max_attempts, self.keep_hours)
        for job in done.failed:
            self._observer.job_ended(job)
        return self.lease_ms / 1000

    async def _renew(self, claim: JobClaim) -> None:
        """Extend the lease of a claim until it is lost; failures are tried again in time."""
        held = True
        while held:
            await asyncio.sleep(self.lease_ms / 3000)
            with suppress(DatabaseError):  # its work reports the same database
                held = await self._store.renew_job(claim, self.lease_ms)

    # -- one attempt -----------------------------------------------------------------------------

    async def _carry_out(self, claim: JobClaim) -> Job | None:
        """Return the ended job; None if the lease was lost or left, for another attempt."""
        try:
            tasks = read_payload(claim.payload)
            job = await self._insist(claim, lambda: self._store.complete_job(claim, tasks))
        except DatabaseFullError as error:
            return await self._fail(claim, FULL, error)
        except DatabaseReadOnlyError as error:
            return await self._fail(claim, READ_ONLY, error)
        except Exception as error:
            return await self._fail(claim, INTERNAL, error)
        return job or await self._completed_unheard(claim)

    async def _fail(self, claim: JobClaim, message: str, error: Exception) -> Job | None:
        self._observer.database_failed(error, claim.job.correlation_id)
        return await self._insist(claim, lambda: self._store.fail_job(claim, message))

    async def _insist(
        self, claim: JobClaim, operation: Callable[[], Awaitable[Job | None]]
    ) -> Job | None:
        """Repeat an operation while the database is away; what has happened is not done twice.

        Return None also when too many COMMITs had no known outcome, as on a defective disk. Then
        the lease is left to end, which costs an attempt, so that the job is not tried for ever.
        """
        unknown = 0
        for attempt in count(1):
            try:
                return await operation()
            except (DatabaseUnavailableError, CommitUnknownError) as error:
                self._observer.database_failed(error, claim.job.correlation_id)
                unknown += isinstance(error, CommitUnknownError)
            if unknown == _MOST_UNKNOWN:
                return None
            await asyncio.sleep(_pause(attempt))
        raise AssertionError("it is repeated until it returns or raises")

    async def _completed_unheard(self, claim: JobClaim) -> Job | None:
        """Return the job if this attempt has completed it, and only the answer was lost."""
        job = await self._store.get_job(claim.job.job_id)
        if job is None or job.status != "COMPLETED" or job.attempts != claim.job.attempts:
            return None
        return job


def read_payload(payload: bytes) -> list[NewTask]:
    """Return the tasks of a payload.

    Raises:
        ValueError: it is damaged.
    """
    rows: list[Any] = orjson.loads(payload)
    return [*map(NewTask._make, rows)]
