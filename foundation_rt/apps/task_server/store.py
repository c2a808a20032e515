"""The interface of a store of tasks and jobs; SQLite and PostgreSQL each have one.

Every operation is one transaction, but where it says otherwise, and has happened when it returns.
An operation that raises has not happened, unless the error says that its outcome is unknown
(StoreError). Times and leases are by the clock of the database: a lease, or a claim, has ended as
soon as its end is not after that clock, so one of 0 ms ends at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from attrs import field, frozen

if TYPE_CHECKING:
    from .jobs import Job, JobClaim, JobStatus, NewJob, Submission
    from .queries import Summary, TaskPage, TaskQuery
    from .tasks import NewTask, Task


class QueueFullError(Exception):
    """As many unfinished jobs are stored as may be; the new one is not."""


class KeyConflictError(Exception):
    """The request key of this principal belongs to a job with other tasks."""


@frozen
class TaskQuota:
    """The most that one principal may store: its tasks, and those of its unfinished jobs.

    Attributes:
        tasks: how many.
        bytes: of their titles, descriptions and projects, in UTF-8.
    """

    tasks: int = 2**63 - 1
    bytes: int = 2**63 - 1

    def check(self, stored: TaskUsage, added: TaskUsage) -> None:
        """Raise `QuotaExceededError` if so much more is too much; what takes no more never is."""
        for limit in ("tasks", "bytes"):
            before, more = getattr(stored, limit), getattr(added, limit)
            if more > 0 and before + more > getattr(self, limit):
                raise QuotaExceededError(limit, before, more, getattr(self, limit))


class TaskUsage(NamedTuple):
    """The tasks and bytes that a principal stores, or a change of them; see `TaskQuota`."""

    tasks: int = 0
    bytes: int = 0


class QuotaExceededError(Exception):
    """A principal would store more than `TaskQuota` lets it; nothing was changed.

    Attributes:
        limit: `tasks` or `bytes`.
        stored: how much of it the principal stores.
        added: how much more it would be.
        most: the quota.
    """

    def __init__(self, limit: str, stored: int, added: int, most: int) -> None:
        super().__init__(limit, stored, added, most)
        self.limit, self.stored, self.added, self.most = limit, stored, added, most


class TasksNotFoundError(Exception):
    """Some tasks of an update do not exist; nothing was changed.

    Attributes:
        ids: theirs, ascending.
    """

    def __init__(self, ids: Sequence[int]) -> None:
        super().__init__(f"no such tasks: {list(ids)}")
        self.ids = ids


class VersionConflictError(Exception):
    """Some tasks of an update have another version than it expects; nothing was changed.

    Attributes:
        versions: the current version of each of these tasks, by id.
    """

    def __init__(self, versions: Mapping[int, int]) -> None:
        super().__init__(f"other versions: {dict(versions)}")
        self.versions = versions


@frozen
class TaskUpdate:
    """The change of one task.

    Attributes:
        id: of the task.
        if_version: the version that the task must have; None is any.
        members: the new values, by the names of the columns: `title`, `description`, `status`,
            `due_date`, `project`, `priority` (an index).
        lease_seconds: the claim ends that many seconds from now; the task stays with its worker,
            and has no effect on a task that is not claimed.
    """

    id: int
    if_version: int | None
    members: Mapping[str, Any]
    lease_seconds: int | None = None


def check_versions(updates: Sequence[TaskUpdate], versions: Mapping[int, int]) -> None:
    """Raise unless all the tasks exist and have the versions that the updates expect.

    Args:
        updates: of these tasks.
        versions: of those that exist, by id.

    Raises:
        TasksNotFoundError: some do not exist.
        VersionConflictError: some have other versions.
    """
    missing = sorted(each.id for each in updates if each.id not in versions)
    if missing:
        raise TasksNotFoundError(missing)
    others = {
        each.id: versions[each.id]
        for each in updates
        if each.if_version not in (None, versions[each.id])
    }
    if others:
        raise VersionConflictError(others)


@frozen
class Deletion:
    """The result of `TaskServerStore.delete_tasks`.

    Attributes:
        deleted: how many there were.
        missing: the ids that did not exist, ascending.
    """

    deleted: int
    missing: list[int]


@frozen
class Change:
    """The changes of a committed transaction, of this process or another.

    Attributes:
        tasks: ranges of ids, both ends included; not every id in a range need have changed.
        jobs: the ids of jobs that have changed their status.
        everything: the changes are not known: notifications were lost, or there were too many.
        lists: tasks were added or removed.
    """

    tasks: tuple[tuple[int, int], ...] = ()
    jobs: tuple[str, ...] = ()
    everything: bool = False
    lists: bool = False


MAX_RANGES = 100
"""The most ranges of ids in one `Change`."""


def ranges_of(ids: Iterable[int], most: int = MAX_RANGES) -> tuple[tuple[int, int], ...]:
    """Return the ranges that hold these ids, ascending; beyond `most` the narrowest gaps go.

    So every id is in a range, though not every number of a range need be an id.
    """
    ordered = sorted(set(ids))
    if not ordered:
        return ()
    gaps = [n for n, (one, next_) in enumerate(pairwise(ordered), 1) if next_ > one + 1]
    if len(gaps) >= most:
        widest = sorted(gaps, key=lambda n: ordered[n - 1] - ordered[n])[: most - 1]
        gaps = sorted(widest)
    starts, ends = [0, *gaps], [*gaps, len(ordered)]
    return tuple(
        (ordered[start], ordered[end - 1]) for start, end in zip(starts, ends, strict=True)
    )


@frozen
class JobMaintenance:
    """The result of `TaskServerStore.maintain_jobs`.

    Attributes:
        failed: jobs that have failed now: out of attempts, or without a payload.
        removed: how many ended jobs were deleted.
    """

    failed: list[Job] = field(factory=list)
    removed: int = 0


class TaskServerStore(Protocol):
    """Keeps tasks and jobs for any number of processes."""

    async def open(self) -> None:
        """Connect, migrate unless told not to, and compare the tables with what they should be.

        Raises:
            UsageError: the database is another's, newer, not migrated, or differs; lists how.
        """

    async def close(self) -> None:
        """Wait for the operations under way, and release the database."""

    async def ping(self) -> None:
        """Ask the database anything; raise what an operation would raise."""

    def on_change(self, callback: Callable[[Change], object]) -> None:
        """Call `callback` on the event loop after each commit, of this process or another."""

    # -- jobs ----------------------------------------------------------------------------------

    async def submit_job(self, job: NewJob, max_pending: int) -> Submission:
        """Store a job as PENDING, with its payload.

        A request key that the principal has used for the same digest returns that job; this needs
        no place in the queue, and a key with another digest is refused whether there is one or not.

        Raises:
            QueueFullError: there are `max_pending` unfinished jobs, of all processes.
            QuotaExceededError: with these tasks the principal would store too much.
            KeyConflictError: the key was used with another digest.
        """

    async def get_job(self, job_id: str) -> Job | None:
        """Return a job, or None if there is none of this id, or no more."""

    async def claim_job(self, owner: str, lease_ms: int, max_attempts: int) -> JobClaim | None:
        """Take the oldest job that is PENDING, or RUNNING with an ended lease; make it RUNNING.

        Its attempts rise by one; one that has had `max_attempts` is left to `maintain_jobs`.
        `started_at` is the time of the first attempt.
        """

    async def renew_job(self, claim: JobClaim, lease_ms: int) -> bool:
        """Extend the lease; return False if attempt or owner are no longer these.

        A lease that has ended can be extended as long as nobody else has claimed the job; it can
        also be completed, failed and released until then.
        """

    async def release_job(self, claim: JobClaim) -> bool:
        """Make the job PENDING again without counting the attempt, as this process stops.

        Without an earlier attempt its `started_at` is None again. Returns False as `renew_job`.
        """

    async def complete_job(self, claim: JobClaim, tasks: Sequence[NewTask]) -> Job | None:
        """Store the tasks and make the job COMPLETED, or do neither.

        The payload is removed. Deadlocks and lost connections are repeated.

        Returns:
            The job; None if attempt or owner are no longer these, and then nothing has happened.
        """

    async def fail_job(self, claim: JobClaim, error_message: str) -> Job | None:
        """Make the job FAILED and remove its payload; return None as `complete_job` does."""

    async def maintain_jobs(self, max_attempts: int, keep_hours: int) -> JobMaintenance:
        """Delete jobs that ended `keep_hours` ago; fail unfinished ones that cannot be carried out.

        The latter are those without a payload (`PAYLOAD_LOST_MESSAGE`), and those out of attempts
        (`out_of_attempts_message`) with an ended lease or none. They are kept from now on.
        """

    async def count_jobs(self) -> Mapping[JobStatus, int]:
        """Return how many jobs have each status."""

    # -- tasks ---------------------------------------------------------------------------------

    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        """Return a page of tasks."""

    async def get_task(self, task_id: int) -> Task | None:
        """Return a task."""

    async def summarize(self, project: str | None = None) -> Summary:
        """Return the counts, from those that each transaction keeps; it reads no task."""

    async def claim_tasks(
        self, count: int, project: str | None, worker: str, lease_seconds: int
    ) -> list[Task]:
        """Give up to `count` tasks to `worker`, as they are then: IN_PROGRESS, versions raised.

        Those are tasks that are TODO, or IN_PROGRESS with an ended claim; the most urgent first,
        then by due date (none last), then by id. Tasks that another transaction is claiming are
        passed over, so no task goes to two workers.
        """

    async def update_tasks(self, updates: Sequence[TaskUpdate]) -> list[tuple[int, int]]:
        """Change all these tasks or none; return the id and version of each, in the given order.

        A new status TODO or DONE ends a claim. IN_PROGRESS set by hand is no claim. The ids are
        distinct. Every update raises the version, also one that sets what was set before.

        Raises:
            QuotaExceededError: with longer texts a principal that created some would store too
                much.
            TasksNotFoundError: some do not exist, whatever versions the others have.
            VersionConflictError: some have other versions.
        """

    async def delete_tasks(
        self, ids: Sequence[int] | None = None, job_id: str | None = None
    ) -> Deletion:
        """Delete these tasks, or all that a job has stored; one of the two is given.

        Of a job nothing is missing.
        """
