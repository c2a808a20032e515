"""Jobs are submitted, claimed, completed and removed."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ...jobs import (
    JOB_STATUSES,
    Job,
    JobClaim,
    JobStatus,
    NewJob,
    Submission,
    lost_message,
)
from ...queries import casefold_text
from ...store import (
    Change,
    JobMaintenance,
    KeyConflictError,
    QueueFullError,
    TaskQuota,
    TaskUsage,
)
from ...tasks import NewTask
from . import change_log, counts
from .tables import later, now

_JOB = (
    "job_id, principal, status, total_tasks, processed_tasks, error_message, duration_ms,"
    " attempts, created_at, updated_at, started_at, completed_at, correlation_id"
)
_UNFINISHED = "status IN ('PENDING', 'RUNNING')"
_HAS_PAYLOAD = "EXISTS (SELECT 1 FROM batch_job_payloads AS p WHERE p.number = batch_jobs.number)"
_HELD = "job_id = ? AND status = 'RUNNING' AND attempts = ? AND lease_owner = ?"
_MS_SINCE_START = "CAST(round((julianday(?) - julianday(started_at)) * 86400000) AS INTEGER)"
# A clock that was set back makes no negative duration.
_DURATION = f"max(0, {_MS_SINCE_START})"

_INSERT_TASK = (
    "INSERT INTO tasks (status, due_date, project, priority, job_id, created_by, created_at,"
    " updated_at, title, description, search_text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def submit(
    connection: sqlite3.Connection, job: NewJob, max_pending: int, quota: TaskQuota
) -> Submission:
    """See `TaskServerStore.submit_job`."""
    if job.request_key is not None:
        row = connection.execute(
            f"SELECT digest, {_JOB} FROM batch_jobs WHERE principal = ? AND request_key = ?",
            (job.principal, job.request_key),
        ).fetchone()
        if row is not None:
            if row[0] != job.digest:
                raise KeyConflictError
            return Submission(Job(*row[1:]), duplicate=True)
    [unfinished] = connection.execute(
        f"SELECT count(*) FROM batch_jobs WHERE {_UNFINISHED}"
    ).fetchone()
    if unfinished >= max_pending:
        raise QueueFullError
    counts.add_usage(connection, {job.principal: TaskUsage(job.total_tasks, job.text_bytes)}, quota)
    time = now(connection)
    number = connection.execute(
        "INSERT INTO batch_jobs (job_id, principal, request_key, digest, status, total_tasks,"
        " text_bytes, created_at, updated_at, correlation_id)"
        " VALUES (?, ?, ?, ?, 'PENDING', ?, ?, ?, ?, ?)",
        (
            job.job_id,
            job.principal,
            job.request_key,
            job.digest,
            job.total_tasks,
            job.text_bytes,
            time,
            time,
            job.correlation_id,
        ),
    ).lastrowid
    connection.execute("INSERT INTO batch_job_payloads VALUES (?, ?)", (number, job.payload))
    return Submission(_changed(connection, job.job_id), duplicate=False)


def get(connection: sqlite3.Connection, job_id: str) -> Job | None:
    """See `TaskServerStore.get_job`."""
    row = connection.execute(f"SELECT {_JOB} FROM batch_jobs WHERE job_id = ?", (job_id,))
    found = row.fetchone()
    return None if found is None else Job(*found)


def _changed(connection: sqlite3.Connection, job_id: str) -> Job:
    """Return a job whose status was changed, and record that."""
    change_log.record(connection, Change(jobs=(job_id,)))
    job = get(connection, job_id)
    assert job is not None
    return job


def claim(
    connection: sqlite3.Connection, owner: str, lease_ms: int, max_attempts: int
) -> JobClaim | None:
    """See `TaskServerStore.claim_job`."""
    time = now(connection)
    row = _find_claimable(connection, max_attempts, time)
    if row is None:
        return None
    number, job_id = row
    connection.execute(
        "UPDATE batch_jobs SET status = 'RUNNING', attempts = attempts + 1, lease_owner = ?,"
        " lease_until = ?, started_at = ifnull(started_at, ?), updated_at = ? WHERE number = ?",
        (owner, later(connection, time, lease_ms / 1000), time, time, number),
    )
    [payload] = connection.execute(
        "SELECT payload FROM batch_job_payloads WHERE number = ?", (number,)
    ).fetchone()
    return JobClaim(_changed(connection, job_id), owner, payload)


def has_claimable(connection: sqlite3.Connection, max_attempts: int) -> bool:
    """Return whether there is a job to claim."""
    return _find_claimable(connection, max_attempts, now(connection)) is not None


def _find_claimable(
    connection: sqlite3.Connection, max_attempts: int, time: str
) -> tuple[int, str] | None:
    """Return number and id of the oldest job that can be claimed."""
    row: tuple[int, str] | None = connection.execute(
        "SELECT number, job_id FROM batch_jobs INDEXED BY batch_jobs_unfinished"
        f" WHERE {_UNFINISHED} AND attempts < ?"
        f" AND (lease_until IS NULL OR lease_until <= ?) AND {_HAS_PAYLOAD}"
        " ORDER BY number LIMIT 1",
        (max_attempts, time),
    ).fetchone()
    return row


def renew(connection: sqlite3.Connection, claim: JobClaim, lease_ms: int) -> bool:
    """See `TaskServerStore.renew_job`."""
    time = now(connection)
    changed = connection.execute(
        f"UPDATE batch_jobs SET lease_until = ?, updated_at = ? WHERE {_HELD}",
        (later(connection, time, lease_ms / 1000), time, *_holder(claim)),
    )
    return changed.rowcount == 1


def release(connection: sqlite3.Connection, claim: JobClaim) -> bool:
    """See `TaskServerStore.release_job`."""
    changed = connection.execute(
        "UPDATE batch_jobs SET status = 'PENDING', attempts = attempts - 1, lease_owner = NULL,"
        " lease_until = NULL, started_at = CASE WHEN attempts > 1 THEN started_at END,"
        f" updated_at = ? WHERE {_HELD}",
        (now(connection), *_holder(claim)),
    )
    if changed.rowcount == 0:
        return False
    _changed(connection, claim.job.job_id)
    return True


def complete(
    connection: sqlite3.Connection, claim: JobClaim, tasks: Sequence[NewTask]
) -> Job | None:
    """See `TaskServerStore.complete_job`."""
    held = connection.execute(f"SELECT 1 FROM batch_jobs WHERE {_HELD}", _holder(claim)).fetchone()
    if held is None:
        return None
    job_id = claim.job.job_id
    _delete_payload(connection, job_id)
    added = _insert(connection, tasks, claim.job, now(connection))
    # After the tasks: what they took is part of the duration.
    at = now(connection)
    connection.execute(
        "UPDATE batch_jobs SET status = 'COMPLETED', processed_tasks = ?, updated_at = ?,"
        f" completed_at = ?, duration_ms = {_DURATION}, lease_owner = NULL, lease_until = NULL"
        " WHERE job_id = ?",
        (len(tasks), at, at, at, job_id),
    )
    change_log.record(connection, Change(tasks=added, jobs=(job_id,), lists=bool(tasks)))
    return get(connection, job_id)


def _insert(
    connection: sqlite3.Connection, tasks: Sequence[NewTask], job: Job, time: str
) -> tuple[tuple[int, int], ...]:
    """Store the tasks of a job; return the range of their ids."""
    if not tasks:
        return ()
    connection.executemany(_INSERT_TASK, _task_rows(tasks, job, time))
    [last] = connection.execute("SELECT last_insert_rowid()").fetchone()
    counts.apply(connection, Counter((each.project, each.status, each.due_date) for each in tasks))
    # No other transaction adds tasks meanwhile, so the ids follow each other.
    return ((last - len(tasks) + 1, last),)


def _task_rows(tasks: Sequence[NewTask], job: Job, time: str) -> Iterator[tuple[Any, ...]]:
    job_id, principal = job.job_id, job.principal
    for title, description, status, due_date, project, priority in tasks:
        yield (
            status,
            due_date,
            project,
            priority,
            job_id,
            principal,
            time,
            time,
            title,
            description,
            casefold_text(title, description),
        )


def fail(connection: sqlite3.Connection, claim: JobClaim, error_message: str) -> Job | None:
    """See `TaskServerStore.fail_job`."""
    held = connection.execute(f"SELECT 1 FROM batch_jobs WHERE {_HELD}", _holder(claim)).fetchone()
    return None if held is None else _fail(connection, claim.job.job_id, error_message)


def _fail(connection: sqlite3.Connection, job_id: str, error_message: str) -> Job:
    at = now(connection)
    connection.execute(
        "UPDATE batch_jobs SET status = 'FAILED', error_message = ?, updated_at = ?,"
        f" completed_at = ?, duration_ms = {_DURATION}, lease_owner = NULL, lease_until = NULL"
        " WHERE job_id = ?",
        (error_message, at, at, at, job_id),
    )
    _delete_payload(connection, job_id)
    principal, tasks, size = connection.execute(
        "SELECT principal, total_tasks, text_bytes FROM batch_jobs WHERE job_id = ?", (job_id,)
    ).fetchone()
    counts.add_usage(connection, {principal: TaskUsage(-tasks, -size)})
    return _changed(connection, job_id)


def maintain(connection: sqlite3.Connection, max_attempts: int, keep_hours: int) -> JobMaintenance:
    """See `TaskServerStore.maintain_jobs`."""
    time = now(connection)
    removed = connection.execute(
        "DELETE FROM batch_jobs WHERE completed_at <= ?",
        (later(connection, time, -3600 * keep_hours),),
    ).rowcount
    lost = connection.execute(
        f"SELECT job_id, attempts, {_HAS_PAYLOAD} FROM batch_jobs WHERE {_UNFINISHED}"
        f" AND (NOT {_HAS_PAYLOAD}"
        " OR (attempts >= ? AND (lease_until IS NULL OR lease_until <= ?))) ORDER BY number",
        (max_attempts, time),
    ).fetchall()
    failed = [
        _fail(connection, job_id, lost_message(attempts, has_payload))
        for job_id, attempts, has_payload in lost
    ]
    return JobMaintenance(failed, removed)


def count(connection: sqlite3.Connection) -> dict[JobStatus, int]:
    """See `TaskServerStore.count_jobs`."""
    counted: dict[JobStatus, int] = dict.fromkeys(JOB_STATUSES, 0)
    counted.update(connection.execute("SELECT status, count(*) FROM batch_jobs GROUP BY status"))
    return counted


def _delete_payload(connection: sqlite3.Connection, job_id: str) -> None:
    connection.execute(
        "DELETE FROM batch_job_payloads"
        " WHERE number = (SELECT number FROM batch_jobs WHERE job_id = ?)",
        (job_id,),
    )


def _holder(claim: JobClaim) -> tuple[str, int, str]:
    """Return the parameters of `_HELD`."""
    return claim.job.job_id, claim.job.attempts, claim.owner
