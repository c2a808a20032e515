"""What the application passes on: audit records of its calls, log messages to sessions."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt.testing import SequentialIds, TestClient
from tests.apps.task_server.app.servers import TASK, stored, task_server
from tests.lab.waiting import until


def audited(client: TestClient) -> list[dict[str, Any]]:
    """Return the audit records of the application, in order."""
    return [
        record
        for record in client.logs or []
        if record["message"] == "audit"
        and record["eventType"].startswith(("BATCH_", "TASKS_", "SERVER_"))
    ]


@pytest.mark.rule("TASKS-61", "TASKS-62")
async def test_every_change_has_an_audit_record_with_the_id_of_its_call() -> None:
    async with TestClient(task_server(), ids=SequentialIds()) as client:
        await stored(client, {"title": "a"}, TASK)
        await client.call("mcp-tasks-claim", worker="w")
        await client.call("mcp-tasks-update", updates=[{"id": 1, "status": "DONE"}])
        await client.call("mcp-tasks-delete", ids=[1, 9])
        records = audited(client)

    events = [record["eventType"] for record in records if "SERVER" not in record["eventType"]]
    assert events == [
        *("BATCH_JOB_CREATED", "BATCH_JOB_STARTED", "TASKS_CREATED", "BATCH_JOB_COMPLETED"),
        *("TASKS_CLAIMED", "TASKS_UPDATED", "TASKS_DELETED"),
    ]
    job = [record for record in records if record["eventType"].startswith("BATCH_JOB")]
    assert len({record["correlationId"] for record in job}) == 1
    assert (
        len({record["correlationId"] for record in records if "TASKS" in record["eventType"]}) == 4
    )
    assert not [record for record in records if TASK["title"] in str(record)]


@pytest.mark.rule("TASKS-59")
async def test_session_is_sent_log_messages_about_its_job() -> None:
    async with TestClient(task_server()) as client:
        await client.request("logging/setLevel", {"level": "info"})
        await stored(client, TASK, TASK)
        messages = await until(
            lambda: [
                each["params"]
                for each in client.notifications
                if each["method"] == "notifications/message"
            ],
            "two messages come",
            lambda found: len(found) >= 2,
        )

    assert [each["data"]["progressPercent"] for each in messages] == [0, 100]
    assert [each["data"]["message"] for each in messages] == ["2 tasks accepted", "2 tasks stored"]


@pytest.mark.rule("TASKS-59")
async def test_repeated_call_is_no_new_job() -> None:
    async with TestClient(task_server(), ids=SequentialIds()) as client:
        for _ in range(2):
            await client.call("mcp-tasks", tasks=[TASK], requestKey="k", waitMs=25_000)
        events = [record["eventType"] for record in audited(client)]

    assert events.count("BATCH_JOB_CREATED") == 1
