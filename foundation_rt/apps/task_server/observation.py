"""The audit records and log records of the task server.

Everything here may be called on the event loop, returns at once and raises nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...base.database.errors import DatabaseError
from ...protocol.methods import PROMPTS_GET, RESOURCES_READ, TOOLS_CALL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ...features.context import ToolContext
    from ...features.observers import CompletedCall
    from ...server import Server
    from .jobs import Job, JobStatus


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


class TaskServerMetrics:
    """Counts calls, and jobs and what they have stored.

    Args:
        server: has the metrics.
        count_jobs: a coroutine function, called when the metrics are read.
    """

    def __init__(
        self, server: Server, count_jobs: Callable[[], Awaitable[Mapping[JobStatus, int]]]
    ) -> None:
        metrics = server.metrics
        self._tool_seconds = metrics.histogram(
            "mcp_tool_execution_seconds", "How long tools ran.", labels=["tool"]
        )
        self._tool_calls = metrics.counter(
            "mcp_tool_invocations_total", "Calls of tools.", labels=["tool", "result"]
        )
        self._resource_seconds = metrics.histogram(
            "mcp_resource_read_seconds", "How long resources were read."
        )
        self._resource_results = {
            "success": metrics.counter("mcp_resource_success_total", "Resources read."),
            "error": metrics.counter("mcp_resource_error_total", "Resources not read."),
            "notfound": metrics.counter("mcp_resource_notfound_total", "Resources not there."),
        }
        self._prompt_seconds = metrics.histogram(
            "mcp_prompt_get_seconds", "How long prompts were filled in."
        )
        self._prompt_results = {
            "success": metrics.counter("mcp_prompt_success_total", "Prompts filled in."),
            "error": metrics.counter("mcp_prompt_error_total", "Prompts not filled in."),
        }
        self._inserted = metrics.counter(
            "mcp_tasks_inserted_total", "Tasks stored, counted when they are committed."
        )
        self._job_seconds = metrics.histogram(
            "mcp_job_seconds", "From the submission of a job to its end."
        )
        metrics.gauge("mcp_jobs", "Stored jobs.", labels=["status"], read=count_jobs)
        server.call_observer(self._call_ended)

    def _call_ended(self, call: CompletedCall) -> None:
        """Count a call of a tool, a resource or a prompt, refused ones included."""
        result = "success" if call.succeeded else "error"
        was_run = call.refusal is None
        if call.method == TOOLS_CALL:
            self._tool_calls.add(tool=call.label, result=result)
            if was_run:
                self._tool_seconds.observe(call.seconds, tool=call.label)
        elif call.method == RESOURCES_READ:
            missing = call.error_code == "NOT_FOUND"
            self._resource_results["notfound" if missing else result].add()
            if was_run:
                self._resource_seconds.observe(call.seconds)
        elif call.method == PROMPTS_GET:
            self._prompt_results[result].add()
            if was_run:
                self._prompt_seconds.observe(call.seconds)

    def job_ended(self, job: Job) -> None:
        """Count a job that is COMPLETED or FAILED, and its tasks."""
        if job.duration_ms is not None:
            self._job_seconds.observe(job.duration_ms / 1000)
        if job.status == "COMPLETED":
            self._inserted.add(job.total_tasks)
