"""A store in memory, to test the tools by themselves: the simplest that can be right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from attrs import evolve

from foundation_rt.apps.task_server.jobs import Job, JobClaim, JobStatus, NewJob, Submission
from foundation_rt.apps.task_server.queries import (
    Summary,
    TaskFilter,
    TaskPage,
    TaskQuery,
    casefold_text,
)
from foundation_rt.apps.task_server.store import (
    Change,
    Deletion,
    JobMaintenance,
    KeyConflictError,
    QueueFullError,
    TasksNotFoundError,
    TaskUpdate,
    VersionConflictError,
    ranges_of,
)
from foundation_rt.apps.task_server.tasks import NewTask, Task

STATUSES = ("TODO", "IN_PROGRESS", "DONE")


def written(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


class MemoryStore:
    """Keeps everything in dicts.

    Attributes:
        failure: raised by the next operation, if it is set.
    """

    def __init__(self) -> None:
        self.tasks: dict[int, Task] = {}
        self.jobs: dict[str, Job] = {}
        self.payloads: dict[str, bytes] = {}
        self.keys: dict[tuple[str, str], tuple[str, bytes]] = {}
        self.failure: Exception | None = None
        self._callback: Callable[[Change], object] = lambda change: None
        self._next = 1

    def _begin(self) -> str:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return written(datetime.now(UTC))

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def ping(self) -> None:
        self._begin()

    def on_change(self, callback: Callable[[Change], object]) -> None:
        self._callback = callback

    async def submit_job(self, job: NewJob, max_pending: int) -> Submission:
        now = self._begin()
        key = (job.principal, job.request_key or "")
        if job.request_key and key in self.keys:
            job_id, digest = self.keys[key]
            if digest != job.digest:
                raise KeyConflictError
            return Submission(self.jobs[job_id], True)
        if sum(each.status in ("PENDING", "RUNNING") for each in self.jobs.values()) >= max_pending:
            raise QueueFullError
        stored = Job(
            job_id=job.job_id,
            principal=job.principal,
            status="PENDING",
            total_tasks=job.total_tasks,
            processed_tasks=0,
            error_message=None,
            duration_ms=None,
            attempts=0,
            created_at=now,
            updated_at=now,
            started_at=None,
            completed_at=None,
            correlation_id=job.correlation_id,
        )
        self.jobs[job.job_id], self.payloads[job.job_id] = stored, job.payload
        if job.request_key:
            self.keys[key] = job.job_id, job.digest
        self._callback(Change(jobs=(job.job_id,)))
        return Submission(stored, False)

    async def get_job(self, job_id: str) -> Job | None:
        self._begin()
        return self.jobs.get(job_id)

    def _change_job(self, job_id: str, **members: Any) -> Job:
        job = evolve(self.jobs[job_id], updated_at=written(datetime.now(UTC)), **members)
        self.jobs[job_id] = job
        self._callback(Change(jobs=(job_id,)))
        return job

    async def claim_job(self, owner: str, lease_ms: int, max_attempts: int) -> JobClaim | None:
        now = self._begin()
        for job in self.jobs.values():
            if job.status == "PENDING":
                running = self._change_job(
                    job.job_id, status="RUNNING", attempts=job.attempts + 1, started_at=now
                )
                return JobClaim(running, owner, self.payloads[job.job_id])
        return None

    async def renew_job(self, claim: JobClaim, lease_ms: int) -> bool:
        return True

    async def release_job(self, claim: JobClaim) -> bool:
        self._change_job(claim.job.job_id, status="PENDING", attempts=claim.job.attempts - 1)
        return True

    async def complete_job(self, claim: JobClaim, tasks: Sequence[NewTask]) -> Job | None:
        now = self._begin()
        ids = []
        for task in tasks:
            ids.append(self._next)
            self.tasks[self._next] = Task(
                self._next,
                *task,
                version=1,
                claimed_by=None,
                claim_expires_at=None,
                job_id=claim.job.job_id,
                created_by=claim.job.principal,
                created_at=now,
                updated_at=now,
            )
            self._next += 1
        job = self._change_job(
            claim.job.job_id,
            status="COMPLETED",
            processed_tasks=len(tasks),
            duration_ms=1,
            completed_at=now,
        )
        self._callback(Change(tasks=ranges_of(ids), lists=True))
        return job

    async def fail_job(self, claim: JobClaim, error_message: str) -> Job | None:
        now = self._begin()
        return self._change_job(
            claim.job.job_id, status="FAILED", error_message=error_message, completed_at=now
        )

    async def maintain_jobs(self, max_attempts: int, keep_hours: int) -> JobMaintenance:
        return JobMaintenance()

    async def count_jobs(self) -> Mapping[JobStatus, int]:
        statuses: tuple[JobStatus, ...] = ("PENDING", "RUNNING", "COMPLETED", "FAILED")
        found = [job.status for job in self.jobs.values()]
        return {status: found.count(status) for status in statuses}

    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        self._begin()
        members = {"dueDate": "due_date", "priority": "priority", "updatedAt": "updated_at"}
        member = members.get(query.sort)
        found = sorted(task for task in self.tasks.values() if _matches(task, query.where))
        if member is None:
            found.sort(key=lambda task: task.id, reverse=query.descending)
        else:
            keyed = [task for task in found if getattr(task, member) is not None]
            keyed.sort(key=lambda task: getattr(task, member), reverse=query.descending)
            found = keyed + [task for task in found if getattr(task, member) is None]
        total = len(found)
        if query.after is not None:
            ids = [task.id for task in found]
            found = found[ids.index(query.after.id) + 1 :]
        found = found[query.offset :]
        count = total if query.count else None
        return TaskPage(found[: query.limit], len(found) > query.limit, count, False)

    async def get_task(self, task_id: int) -> Task | None:
        self._begin()
        return self.tasks.get(task_id)

    async def summarize(self, project: str | None = None) -> Summary:
        now = self._begin()
        tasks = [task for task in self.tasks.values() if project in (None, task.project)]
        dates = sorted(task.due_date for task in tasks if task.due_date)
        jobs = await self.count_jobs()
        return Summary(
            {status: sum(task.status == status for task in tasks) for status in STATUSES},  # type: ignore[arg-type]
            dates[0] if dates else None,
            dates[-1] if dates else None,
            sum(task.status != "DONE" and (task.due_date or now[:10]) < now[:10] for task in tasks),
            jobs["PENDING"],
            jobs["RUNNING"],
            now,
        )

    async def claim_tasks(
        self, count: int, project: str | None, worker: str, lease_seconds: int
    ) -> list[Task]:
        now = self._begin()
        end = written(datetime.now(UTC) + timedelta(seconds=lease_seconds))
        free = [
            task
            for task in self.tasks.values()
            if project in (None, task.project)
            and (
                task.status == "TODO"
                or (task.claim_expires_at is not None and task.claim_expires_at < now)
            )
        ]
        free.sort(key=lambda task: (-task.priority, task.due_date or "9999-99-99", task.id))
        claimed = [
            task._replace(
                status="IN_PROGRESS",
                version=task.version + 1,
                claimed_by=worker,
                claim_expires_at=end,
                updated_at=now,
            )
            for task in free[:count]
        ]
        self._store(claimed)
        return claimed

    def _store(self, tasks: Sequence[Task]) -> None:
        self.tasks.update((task.id, task) for task in tasks)
        self._callback(Change(tasks=ranges_of(task.id for task in tasks)))

    async def update_tasks(self, updates: Sequence[TaskUpdate]) -> list[tuple[int, int]]:
        self._begin()
        missing = sorted(each.id for each in updates if each.id not in self.tasks)
        if missing:
            raise TasksNotFoundError(missing)
        stale = {
            each.id: self.tasks[each.id].version
            for each in updates
            if each.if_version not in (None, self.tasks[each.id].version)
        }
        if stale:
            raise VersionConflictError(stale)
        changed = []
        for each in updates:
            task = self.tasks[each.id]
            task = task._replace(version=task.version + 1, **each.members)
            if each.members.get("status") in ("TODO", "DONE"):
                task = task._replace(claimed_by=None, claim_expires_at=None)
            changed.append(task)
        self._store(changed)
        return [(task.id, task.version) for task in changed]

    async def delete_tasks(
        self, ids: Sequence[int] | None = None, job_id: str | None = None
    ) -> Deletion:
        self._begin()
        if ids is None:
            ids = [task.id for task in self.tasks.values() if task.job_id == job_id]
        missing = sorted(set(ids) - self.tasks.keys())
        for task_id in ids:
            self.tasks.pop(task_id, None)
        self._callback(Change(tasks=ranges_of(ids), lists=True))
        return Deletion(len(ids) - len(missing), missing)


def _matches(task: Task, where: TaskFilter) -> bool:
    text = casefold_text(task.title, task.description)
    due = task.due_date
    return (
        where.status in (None, task.status)
        and where.project in (None, task.project)
        and where.job_id in (None, task.job_id)
        and (where.ids is None or task.id in where.ids)
        and where.claimed_by in (None, task.claimed_by)
        and all(word in text for word in where.words)
        and (where.due_before is None or (due is not None and due < where.due_before))
        and (where.due_after is None or (due is not None and due > where.due_after))
        and (where.updated_after is None or task.updated_at > where.updated_after)
    )
