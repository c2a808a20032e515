"""The audit records and log records of the task server.

Everything here may be called on the event loop, returns at once and raises nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...base.database.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...features.context import ToolContext
    from ...server import Server
    from .jobs import Job
    from .metrics import TaskServerMetrics

_SHOWN_IDS = 16
"""The most ids of one record, as a log shows no more."""

_SHOWN_FRAMES = 10

_ERROR_PAUSE_S = 1.0
"""The shortest time between two records of failing databases: each waiting operation fails."""


class Observation:
    """Records what the task server does, and has it counted.

    Args:
        server: has the audit log and the log.

    Attributes:
        metrics: count ended jobs; None where metrics are off.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self.metrics: TaskServerMetrics | None = None
        self._next_error_s = 0.0
        self._errors_left_out = 0

    # -- jobs ------------------------------------------------------------------------------------

    def job_created(self, job: Job, context: ToolContext) -> None:
        """Note a job that a call has submitted."""
        self._server.audit("BATCH_JOB_CREATED", "DATA", context=context, metadata=_facts(job))

    def job_started(self, job: Job) -> None:
        """Note that an attempt begins."""
        self._record_job("BATCH_JOB_STARTED", job)

    def job_ended(self, job: Job) -> None:
        """Note that a job is COMPLETED or FAILED."""
        if self.metrics is not None:
            self.metrics.job_ended(job)
        if job.status == "FAILED":
            self._record_job("BATCH_JOB_FAILED", job)
            return
        self._record_job("TASKS_CREATED", job)
        self._record_job("BATCH_JOB_COMPLETED", job)

    def _record_job(self, event_type: str, job: Job) -> None:
        failed = job.error_message is not None
        fields = {"event": event_type, "correlationId": job.correlation_id, **_facts(job)}
        if failed:
            fields["error"] = job.error_message
        log = self._server.runtime.logger
        (log.warn if failed else log.info)("job", fields)
        self._server.audit(
            event_type,
            "DATA",
            success=not failed,
            correlation_id=job.correlation_id,
            error_message=job.error_message,
            metadata=_facts(job),
        )

    # -- tasks -----------------------------------------------------------------------------------

    def tasks_claimed(self, ids: Sequence[int], worker: str, context: ToolContext) -> None:
        """Note the tasks that a worker has got."""
        metadata = {**_ids(ids), "worker": worker}
        self._server.audit("TASKS_CLAIMED", "DATA", context=context, metadata=metadata)

    def tasks_updated(self, ids: Sequence[int], context: ToolContext) -> None:
        """Note the tasks that a call has changed."""
        self._server.audit("TASKS_UPDATED", "DATA", context=context, metadata=_ids(ids))

    def tasks_deleted(
        self, count: int, ids: Sequence[int] | None, job_id: str | None, context: ToolContext
    ) -> None:
        """Note how many tasks a call has deleted, of the ids or the job that it named."""
        named = {"jobId": job_id} if ids is None else _ids(ids)
        metadata = {**named, "count": count}
        self._server.audit("TASKS_DELETED", "DATA", context=context, metadata=metadata)

    # -- the server ------------------------------------------------------------------------------

    def started(self) -> None:
        """Note that the server serves from now on."""
        self._server.audit("SERVER_STARTUP", "ADMIN")

    def stopping(self) -> None:
        """Note that the server ends."""
        self._server.audit("SERVER_SHUTDOWN", "ADMIN")

    def database_failed(self, error: BaseException, correlation_id: str | None = None) -> None:
        """Record that an operation on the database has failed, once a second at most."""
        now = time.monotonic()
        if now < self._next_error_s:
            self._errors_left_out += 1
            return
        left_out, self._errors_left_out = self._errors_left_out, 0
        self._next_error_s = now + _ERROR_PAUSE_S
        kind = type(error).__name__
        # Only the errors of the database package promise to quote no password and no row.
        known = isinstance(error, DatabaseError)
        message = f"{kind}: {error}" if known else kind
        fields: dict[str, Any] = {"error": message if known else _described(error)}
        if correlation_id is not None:
            fields["correlationId"] = correlation_id
        if left_out:
            fields["leftOut"] = left_out
        log = self._server.runtime.logger
        (log.warn if known else log.error)("an operation on the database has failed", fields)
        self._server.audit(
            "DATABASE_ERROR",
            "ERROR",
            success=False,
            correlation_id=correlation_id,
            error_message=message,
            metadata={"leftOut": left_out} if left_out else None,
        )


def _described(error: BaseException) -> dict[str, Any]:
    """Return an unexpected error for the log: its type, its text and where it was raised."""
    import traceback

    raised = traceback.extract_tb(error.__traceback__)[-_SHOWN_FRAMES:]
    frames = [f"{each.filename}:{each.lineno} {each.name}" for each in raised]
    return {"type": type(error).__name__, "message": str(error), "frames": frames}


def _facts(job: Job) -> dict[str, Any]:
    facts = {
        "jobId": job.job_id,
        "status": job.status,
        "totalTasks": job.total_tasks,
        "attempts": job.attempts,
        "principal": job.principal,
        "durationMs": job.duration_ms,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _ids(ids: Sequence[int]) -> dict[str, Any]:
    return {"count": len(ids), "ids": [*ids[:_SHOWN_IDS]]}
