"""Metrics and records of the task server."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from prometheus_client.parser import text_string_to_metric_families

from foundation_rt import Server, ServerOptions, ToolContext, ToolError
from foundation_rt.apps.task_server import observation as observing
from foundation_rt.apps.task_server.jobs import Job, JobStatus
from foundation_rt.apps.task_server.observation import Observation, TaskServerMetrics
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.feature_sections import AuditSection, TelemetrySection
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.base.database.errors import DatabaseUnavailableError
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.testing import TestClient

JOB = Job(
    job_id="5b3f4a04-0000-4000-8000-000000000001",
    principal="ann",
    status="COMPLETED",
    total_tasks=3,
    processed_tasks=3,
    error_message=None,
    duration_ms=1500,
    attempts=1,
    created_at="2026-11-22T10:00:00.000Z",
    updated_at="2026-11-22T10:00:01.500Z",
    started_at="2026-11-22T10:00:00.000Z",
    completed_at="2026-11-22T10:00:01.500Z",
    correlation_id="corr",
)


async def count_jobs() -> dict[JobStatus, int]:
    """Stand for the store whose jobs are counted."""
    return {"PENDING": 2, "FAILED": 1}


class Observed:
    """A server under observation.

    Attributes:
        log: what it logs.
    """

    def __init__(self) -> None:
        self._sink = MemorySink()
        config = ServerConfig(
            telemetry=TelemetrySection(metrics=True), audit=AuditSection(enabled=True)
        )
        logger = StructuredLogger(self._sink, ManualClock())
        self.server = Server(options=ServerOptions(config=config, logger=logger))
        self.observation = Observation(self.server)
        self.observation.metrics = TaskServerMetrics(self.server, count_jobs)

    @property
    def audit(self) -> list[dict[str, Any]]:
        """The audit records of the application."""
        return [
            {name: value for name, value in line.items() if name not in ("timestamp", "message")}
            for line in self._sink.lines
            if line["message"] == "audit" and line["category"] in ("DATA", "ADMIN", "ERROR")
        ]

    @property
    def log(self) -> list[dict[str, Any]]:
        """The records of the log, without those of the audit log."""
        return [line for line in self._sink.lines if line["message"] != "audit"]

    async def samples(self) -> dict[str, float]:
        """Return the samples of the application: ``name,label=value``."""
        assert self.server.runtime.metrics is not None
        _, text = await self.server.runtime.metrics.read()
        return {
            ",".join([sample.name, *(f"{k}={v}" for k, v in sorted(sample.labels.items()))]): (
                sample.value
            )
            for family in text_string_to_metric_families(text.decode())
            for sample in family.samples
            if sample.name.startswith("mcp_") and not sample.name.endswith(("_bucket", "_sum"))
        }


@pytest.fixture
def observed() -> Observed:
    made = Observed()
    assert made.server.runtime is not None
    return made


@pytest.mark.rule("TASKS-60")
async def test_metrics_of_calls_and_jobs() -> None:
    observed = Observed()
    server = observed.server

    @server.tool
    def work() -> None:
        return None

    @server.resource("task://{id}")
    def show(id: int) -> str:
        if id > 1:
            raise ToolError("NOT_FOUND", "There is no such task.")
        return "a task"

    @server.prompt
    def report() -> str:
        return "Report."

    async with TestClient(server) as client:
        await client.call_tool("work", {})
        for method, params in (
            ("tools/call", {"name": "work", "arguments": {"unknown": 1}}),
            ("resources/read", {"uri": "task://1"}),
            ("resources/read", {"uri": "task://2"}),
            ("resources/read", {"uri": "task://x"}),
            ("prompts/get", {"name": "report"}),
        ):
            try:
                await client.request(method, params)
            except Exception as error:
                assert "-32" in str(error)
    observed.observation.job_ended(JOB)
    observed.observation.job_ended(evolve(JOB, status="FAILED", error_message="No."))
    found = await observed.samples()
    assert found == {
        "mcp_tool_execution_seconds_count,tool=work": 1,
        "mcp_tool_invocations_total,result=error,tool=work": 1,
        "mcp_tool_invocations_total,result=success,tool=work": 1,
        "mcp_tasks_inserted_total": 3,
        "mcp_resource_read_seconds_count": 3,
        "mcp_resource_success_total": 1,
        "mcp_resource_error_total": 1,
        "mcp_resource_notfound_total": 1,
        "mcp_prompt_get_seconds_count": 1,
        "mcp_prompt_success_total": 1,
        "mcp_job_seconds_count": 2,
        "mcp_jobs,status=PENDING": 2,
        "mcp_jobs,status=FAILED": 1,
    }


@pytest.mark.rule("TASKS-61", "TASKS-62")
def test_records_of_a_job_have_its_correlation_id(observed: Observed) -> None:
    observed.observation.job_started(evolve(JOB, status="RUNNING", duration_ms=None))
    observed.observation.job_ended(JOB)
    observed.observation.job_ended(
        evolve(JOB, status="FAILED", error_message="No.", processed_tasks=0)
    )
    events = ["BATCH_JOB_STARTED", "TASKS_CREATED", "BATCH_JOB_COMPLETED", "BATCH_JOB_FAILED"]
    assert [record["eventType"] for record in observed.audit] == events
    assert [line["event"] for line in observed.log] == events
    records = [*observed.audit, *observed.log]
    assert {record["correlationId"] for record in records} == {"corr"}
    failed = observed.audit[-1]
    assert (failed["success"], failed["errorMessage"], failed["category"]) == (False, "No.", "DATA")
    assert failed["metadata"] == {
        "jobId": JOB.job_id,
        "status": "FAILED",
        "totalTasks": 3,
        "attempts": 1,
        "principal": "ann",
        "durationMs": 1500,
    }


@pytest.mark.rule("TASKS-61")
async def test_records_of_calls_and_of_the_server() -> None:
    observed = Observed()
    observation = observed.observation

    @observed.server.tool
    def work(*, ctx: ToolContext) -> None:
        observation.job_created(JOB, ctx)
        observation.tasks_claimed([*range(100)], "worker", ctx)
        observation.tasks_updated([5], ctx)
        observation.tasks_deleted(1, [5, 6], None, ctx)
        observation.tasks_deleted(3, None, JOB.job_id, ctx)

    async with TestClient(observed.server) as client:
        observation.started()
        await client.call_tool("work", {})
        observation.stopping()
    records = [(each["eventType"], each["category"]) for each in observed.audit]
    assert records == [
        ("SERVER_STARTUP", "ADMIN"),
        ("BATCH_JOB_CREATED", "DATA"),
        ("TASKS_CLAIMED", "DATA"),
        ("TASKS_UPDATED", "DATA"),
        ("TASKS_DELETED", "DATA"),
        ("TASKS_DELETED", "DATA"),
        ("SERVER_SHUTDOWN", "ADMIN"),
    ]
    claimed, _, deleted, of_job = (each["metadata"] for each in observed.audit[2:6])
    assert (claimed["count"], len(claimed["ids"]), claimed["worker"]) == (100, 16, "worker")
    assert (deleted, of_job) == ({"count": 1, "ids": [5, 6]}, {"jobId": JOB.job_id, "count": 3})
    assert {each["toolName"] for each in observed.audit[1:6]} == {"work"}


@pytest.mark.rule("TASKS-61", "TASKS-63")
def test_failing_database_is_recorded_once_a_second(
    observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(observing.time, "monotonic", lambda: now)
    for _ in range(5):
        observed.observation.database_failed(DatabaseUnavailableError("it is away"), "corr")
    now = 101.0
    observed.observation.database_failed(RuntimeError("password=secret"))
    audit = observed.audit
    assert [each["eventType"] for each in audit] == ["DATABASE_ERROR"] * 2
    assert [each["errorMessage"] for each in audit] == [
        "DatabaseUnavailableError: it is away",
        "RuntimeError",
    ]
    assert audit[0]["correlationId"] == "corr"
    assert [each.get("metadata") for each in audit] == [None, {"leftOut": 4}]
    assert [line["level"] for line in observed.log] == ["warn", "error"]
    assert "secret" not in str(audit)
