"""The metrics of the task server; imported where metrics are on.

Their names are those that operators of task servers know, as Prometheus spells them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.methods import PROMPTS_GET, RESOURCES_READ, TOOLS_CALL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ...features.observers import CompletedCall
    from ...server import Server
    from .jobs import Job, JobStatus


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
