"""What clients see of a database that fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from foundation_rt import ToolError
from foundation_rt.base.database.errors import (
    CommitUnknownError,
    DatabaseError,
    DatabaseFullError,
    DatabaseReadOnlyError,
    DatabaseUnavailableError,
    TransactionFailedError,
)
from foundation_rt.base.database.sqlite import SqliteDatabase
from foundation_rt.testing import ProtocolError, TestClient
from tests.apps.task_server.app.servers import TASK, task_server

CALLS = {
    "mcp-tasks": {"tasks": [TASK]},
    "mcp-job-status": {"jobId": "00000000-0000-4000-8000-000000000000"},
    "mcp-tasks-list": {},
    "mcp-tasks-summary": {},
    "mcp-tasks-claim": {},
    "mcp-tasks-update": {"updates": [{"id": 1, "title": "x"}]},
    "mcp-tasks-delete": {"ids": [1]},
}
SECRET = "INSERT INTO tasks at 10.0.0.7"


@contextmanager
def failing(error: DatabaseError) -> Iterator[None]:
    """Have every operation of a store fail."""

    async def fail(*_: object, **__: object) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        for name in ("read", "write"):
            patch.setattr(SqliteDatabase, name, fail)
        yield


@pytest.mark.rule("TASKS-14")
@pytest.mark.parametrize("tool", CALLS)
@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (DatabaseUnavailableError(SECRET), "RESOURCE_EXHAUSTED", "database_unavailable"),
        (DatabaseFullError(SECRET), "RESOURCE_EXHAUSTED", "disk_full"),
        (DatabaseReadOnlyError(SECRET), "INTERNAL", "database_read_only"),
        (CommitUnknownError(SECRET), "INTERNAL", "outcome_unknown"),
        (TransactionFailedError(SECRET, "23505"), "INTERNAL", "database_error"),
    ],
)
async def test_error_of_the_database_is_a_tool_error(
    error: DatabaseError, code: str, reason: str, tool: str
) -> None:
    async with TestClient(task_server()) as client:
        with failing(error), pytest.raises(ToolError) as refused:
            await client.call_tool(tool, CALLS[tool])

    details = refused.value.details
    assert details is not None
    assert (refused.value.code, details["reason"]) == (code, reason)
    assert ("retryAfterMs" in details) == (code == "RESOURCE_EXHAUSTED")
    assert SECRET not in str(refused.value) + str(details)


@pytest.mark.rule("TASKS-14")
async def test_resources_and_prompts_say_that_the_database_is_away() -> None:
    async with TestClient(task_server()) as client:
        for request in (
            client.read_resource("task://all"),
            client.read_resource("task://1"),
            client.read_resource("db://stats"),
            client.get_prompt("task-report-template"),
            client.complete("task://{id}", "id", "1"),
        ):
            with failing(DatabaseUnavailableError(SECRET)), pytest.raises(ProtocolError) as refused:
                await request
            assert refused.value.code == -32603
            assert refused.value.data["details"]["reason"] == "database_unavailable"
            assert SECRET not in str(refused.value)


@pytest.mark.rule("TASKS-15")
async def test_health_asks_the_database() -> None:
    async with TestClient(task_server()) as client:
        with failing(DatabaseUnavailableError(SECRET)):
            away = await client.call("health")
        summary = await client.call("mcp-tasks-summary")

    assert away["status"] == "unhealthy"
    assert SECRET not in str(away)
    assert summary["totalCount"] == 0
