"""A job: the durable request to store a batch of tasks, and its states."""

from __future__ import annotations

from typing import Literal, get_args

from attrs import frozen

JobStatus = Literal["PENDING", "RUNNING", "COMPLETED", "FAILED"]

JOB_STATUSES: tuple[JobStatus, ...] = get_args(JobStatus)

PAYLOAD_LOST_MESSAGE = "Server restarted during processing"
"""The error message of a job that cannot be carried out, as its payload is gone."""


def out_of_attempts_message(attempts: int) -> str:
    """Return the error message of a job whose last attempt was not finished either."""
    return (
        f"The job was not finished in {attempts} attempts. Submit its tasks with a new requestKey."
    )


def lost_message(attempts: int, has_payload: bool) -> str:
    """Return the error message of a job that nobody can carry out any more."""
    return out_of_attempts_message(attempts) if has_payload else PAYLOAD_LOST_MESSAGE


@frozen
class NewJob:
    """A job that a caller submits.

    Attributes:
        job_id: a UUID, made by the caller.
        principal: the caller; a request key belongs to it.
        request_key: 1 to 128 characters; the same key and digest is the same job.
        digest: SHA-256 of `payload`, 32 bytes.
        payload: the tasks: a JSON array of arrays in the order of `NewTask`.
        total_tasks: how many tasks the payload has.
        text_bytes: the bytes of these tasks that count against a quota.
        correlation_id: goes with the job into every record of a log and of the audit log.
    """

    job_id: str
    principal: str
    request_key: str | None
    digest: bytes
    payload: bytes
    total_tasks: int
    text_bytes: int
    correlation_id: str


@frozen
class Job:
    """A stored job, without its payload.

    Times are RFC 3339 in UTC with milliseconds, from the clock of the database.
    """

    job_id: str
    principal: str
    status: JobStatus
    total_tasks: int
    processed_tasks: int
    error_message: str | None
    duration_ms: int | None
    attempts: int
    created_at: str
    updated_at: str
    started_at: str | None
    completed_at: str | None
    correlation_id: str

    @property
    def is_ended(self) -> bool:
        """Return whether its status is final."""
        return self.status in ("COMPLETED", "FAILED")


@frozen
class Submission:
    """The result of `TaskServerStore.submit_job`.

    Attributes:
        job: the new job, or the one that has the request key already.
        duplicate: it is the latter.
    """

    job: Job
    duplicate: bool


@frozen
class JobClaim:
    """The right of one process to carry out one attempt of a job, until its lease ends.

    Attributes:
        job: as it is now: RUNNING, with this attempt counted.
        owner: of the lease.
        payload: see `NewJob`.
    """

    job: Job
    owner: str
    payload: bytes
