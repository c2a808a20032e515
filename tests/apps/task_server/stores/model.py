"""A store in memory, in plain Python: what the real ones have to answer.

It has no clock. A lease, or a claim, has either ended (it was given for 0 ms) or has not, and times
are left out of its answers. Where an order depends on times, the caller says what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field

from foundation_rt.apps.task_server.jobs import (
    JOB_STATUSES,
    PAYLOAD_LOST_MESSAGE,
    NewJob,
    out_of_attempts_message,
)
from foundation_rt.apps.task_server.queries import TaskFilter, TaskQuery, fold
from foundation_rt.apps.task_server.store import (
    KeyConflictError,
    QueueFullError,
    TasksNotFoundError,
    TaskUpdate,
    VersionConflictError,
)
from foundation_rt.apps.task_server.tasks import STATUSES, NewTask

TODAY = "2026-06-15"
"""Stands for the day of the tests: their dates are far before it or far behind it."""

Times = Callable[[int], str]
"""When a task was changed last."""


@define
class ModelTask:
    """A task without times; `claim_ended` is None unless it is claimed."""

    id: int
    title: str
    description: str | None
    status: str
    due_date: str | None
    project: str
    priority: int
    job_id: str
    created_by: str
    version: int = 1
    claimed_by: str | None = None
    claim_ended: bool | None = None

    @property
    def text(self) -> str:
        return fold(f"{self.title}\n{self.description or ''}")

    @property
    def is_claimable(self) -> bool:
        return self.status == "TODO" or self.claim_ended is True


@define
class ModelJob:
    """A job without times; `lease_ended` is None unless it is leased."""

    new: NewJob
    status: str = "PENDING"
    processed: int = 0
    error_message: str | None = None
    attempts: int = 0
    started: bool = False
    owner: str | None = None
    lease_ended: bool | None = None
    has_payload: bool = True

    @property
    def is_unfinished(self) -> bool:
        return self.status in ("PENDING", "RUNNING")

    def end(self, status: str, error_message: str | None = None) -> None:
        self.status, self.error_message = status, error_message
        self.owner = self.lease_ended = None
        self.has_payload = False


@define(frozen=True)
class ModelClaim:
    """An attempt of a job, and who makes it."""

    job_id: str
    attempt: int
    owner: str


@define
class ModelStore:
    """See the module's head."""

    jobs: dict[str, ModelJob] = field(factory=dict)
    tasks: dict[int, ModelTask] = field(factory=dict)
    last_id: int = 0

    # -- jobs ---------------------------------------------------------------------------------

    def submit(self, new: NewJob, max_pending: int) -> tuple[ModelJob, bool]:
        for job in self.jobs.values():
            key = (job.new.principal, job.new.request_key)
            if new.request_key is not None and key == (new.principal, new.request_key):
                if job.new.digest != new.digest:
                    raise KeyConflictError
                return evolve(job), True
        if sum(job.is_unfinished for job in self.jobs.values()) >= max_pending:
            raise QueueFullError
        self.jobs[new.job_id] = ModelJob(new)
        return evolve(self.jobs[new.job_id]), False

    def claim(self, owner: str, ends: bool, max_attempts: int) -> ModelClaim | None:
        for job in self.jobs.values():
            free = job.status == "PENDING" or (job.status == "RUNNING" and job.lease_ended)
            if free and job.attempts < max_attempts and job.has_payload:
                job.status, job.started = "RUNNING", True
                job.attempts += 1
                job.owner, job.lease_ended = owner, ends
                return ModelClaim(job.new.job_id, job.attempts, owner)
        return None

    def held(self, claim: ModelClaim) -> ModelJob | None:
        """Return the job of a claim that is still that of its owner and attempt."""
        job = self.jobs.get(claim.job_id)
        if job is None or job.status != "RUNNING":
            return None
        return job if (job.attempts, job.owner) == (claim.attempt, claim.owner) else None

    def renew(self, claim: ModelClaim, ends: bool) -> bool:
        job = self.held(claim)
        if job is not None:
            job.lease_ended = ends
        return job is not None

    def release(self, claim: ModelClaim) -> bool:
        job = self.held(claim)
        if job is not None:
            job.status, job.owner, job.lease_ended = "PENDING", None, None
            job.attempts -= 1
            job.started = job.attempts > 0
        return job is not None

    def complete(self, claim: ModelClaim, tasks: Sequence[NewTask]) -> ModelJob | None:
        job = self.held(claim)
        if job is None:
            return None
        for each in tasks:
            self.last_id += 1
            self.tasks[self.last_id] = ModelTask(
                self.last_id, *each, job.new.job_id, job.new.principal
            )
        job.end("COMPLETED")
        job.processed = len(tasks)
        return evolve(job)

    def fail(self, claim: ModelClaim, error_message: str) -> ModelJob | None:
        job = self.held(claim)
        if job is None:
            return None
        job.end("FAILED", error_message)
        return evolve(job)

    def maintain(self, max_attempts: int, removes: bool) -> tuple[list[ModelJob], int]:
        ended = [job_id for job_id, job in self.jobs.items() if not job.is_unfinished]
        for job_id in ended if removes else ():
            del self.jobs[job_id]
        failed = []
        for job in self.jobs.values():
            spent = job.attempts >= max_attempts and job.lease_ended is not False
            if job.is_unfinished and (spent or not job.has_payload):
                message = out_of_attempts_message(job.attempts)
                job.end("FAILED", message if job.has_payload else PAYLOAD_LOST_MESSAGE)
                failed.append(evolve(job))
        return failed, len(ended) if removes else 0

    def count_jobs(self) -> dict[str, int]:
        statuses = [job.status for job in self.jobs.values()]
        return {status: statuses.count(status) for status in JOB_STATUSES}

    # -- tasks --------------------------------------------------------------------------------

    def claim_tasks(
        self, count: int, project: str | None, worker: str, ends: bool
    ) -> list[ModelTask]:
        claimable = [
            each
            for each in self.tasks.values()
            if each.is_claimable and project in (None, each.project)
        ]
        claimable.sort(key=lambda each: (-each.priority, each.due_date or "~", each.id))
        for each in claimable[:count]:
            each.status, each.claimed_by, each.claim_ended = "IN_PROGRESS", worker, ends
            each.version += 1
        return [evolve(each) for each in claimable[:count]]

    def update(self, updates: Sequence[TaskUpdate]) -> list[tuple[int, int]]:
        missing = sorted(each.id for each in updates if each.id not in self.tasks)
        if missing:
            raise TasksNotFoundError(missing)
        versions = {each.id: self.tasks[each.id].version for each in updates}
        stale = [each.id for each in updates if each.if_version not in (None, versions[each.id])]
        if stale:
            raise VersionConflictError({each: versions[each] for each in stale})
        for each in updates:
            self._update(self.tasks[each.id], each)
        return [(each.id, self.tasks[each.id].version) for each in updates]

    def _update(self, task: ModelTask, update: TaskUpdate) -> None:
        for name, value in update.members.items():
            setattr(task, name, value)
        task.version += 1
        if update.members.get("status") in ("TODO", "DONE"):
            task.claimed_by = task.claim_ended = None
        elif update.lease_seconds is not None and task.claimed_by is not None:
            task.claim_ended = update.lease_seconds == 0

    def delete(self, ids: Sequence[int] | None, job_id: str | None) -> tuple[int, list[int]]:
        if ids is None:
            ids = [each.id for each in self.tasks.values() if each.job_id == job_id]
        gone = [self.tasks.pop(each) for each in set(ids) & self.tasks.keys()]
        return len(gone), sorted(set(ids) - {each.id for each in gone})

    # -- lists and counts ---------------------------------------------------------------------

    def matching(self, where: TaskFilter, times: Times) -> list[ModelTask]:
        """Return the tasks that meet all conditions, by id."""

        def meets(task: ModelTask) -> bool:
            due = task.due_date
            return (
                where.status in (None, task.status)
                and where.project in (None, task.project)
                and where.job_id in (None, task.job_id)
                and where.claimed_by in (None, task.claimed_by)
                and (where.ids is None or task.id in where.ids)
                and all(fold(word) in task.text for word in where.words)
                and (where.due_before is None or (due is not None and due < where.due_before))
                and (where.due_after is None or (due is not None and due > where.due_after))
                and (where.updated_after is None or times(task.id) > where.updated_after)
            )

        return [task for _, task in sorted(self.tasks.items()) if meets(task)]

    def page(self, query: TaskQuery, times: Times) -> tuple[list[ModelTask], bool, int]:
        """Return the tasks of a page, whether there are more behind it, and the total."""
        matching = self.matching(query.where, times)

        def key(task: ModelTask) -> Any:
            if query.sort == "updatedAt":
                return times(task.id)
            return {"id": task.id, "dueDate": task.due_date, "priority": task.priority}[query.sort]

        sign = -1 if query.descending and query.sort == "id" else 1
        keyed = [(key(task), sign * task.id, task) for task in matching if key(task) is not None]
        keyed.sort(key=lambda each: each[1])
        if query.sort != "id":
            keyed.sort(key=lambda each: each[0], reverse=query.descending)
        place = [(value, task) for value, _, task in keyed]
        place += [(None, task) for task in matching if key(task) is None]
        if query.after is not None:
            place = [each for each in place if _is_behind(query, *each)]
        end = query.offset + query.limit
        page = [evolve(task) for _, task in place[query.offset : end]]
        return page, len(place) > end, len(matching)

    def summarize(self, project: str | None) -> dict[str, Any]:
        tasks = [each for each in self.tasks.values() if project in (None, each.project)]
        dates = sorted(each.due_date for each in tasks if each.due_date is not None)
        jobs = self.count_jobs()
        return {
            "count_by_status": {
                status: sum(each.status == status for each in tasks) for status in STATUSES
            },
            "earliest_due_date": dates[0] if dates else None,
            "latest_due_date": dates[-1] if dates else None,
            "overdue": sum(
                each.status != "DONE" and (each.due_date or "~") < TODAY for each in tasks
            ),
            "jobs_pending": jobs["PENDING"],
            "jobs_running": jobs["RUNNING"],
        }


def _is_behind(query: TaskQuery, key: Any, task: ModelTask) -> bool:
    """Whether a task comes behind the cursor of a list."""
    after = query.after
    assert after is not None
    if query.sort == "id":
        return task.id < after.id if query.descending else task.id > after.id
    if key is None or after.key is None:
        return key is None and (after.key is not None or task.id > after.id)
    if key == after.key:
        return task.id > after.id
    return bool(key < after.key if query.descending else key > after.key)


def figures(job: ModelJob | None) -> Mapping[str, Any] | None:
    """Return what a real job has of this one."""
    if job is None:
        return None
    return {
        "job_id": job.new.job_id,
        "principal": job.new.principal,
        "status": job.status,
        "total_tasks": job.new.total_tasks,
        "processed_tasks": job.processed,
        "error_message": job.error_message,
        "attempts": job.attempts,
        "correlation_id": job.new.correlation_id,
        "started": job.started,
        "ended": not job.is_unfinished,
    }
