"""Many tasks at once, as a job: mcp-tasks, mcp-tasks-from-file, mcp-job-status."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt import ToolError
from foundation_rt.apps.task_server.app import create_task_server
from foundation_rt.apps.task_server.jobs import JobClaim
from foundation_rt.features.tasks.support import TaskSupport
from foundation_rt.testing import ProtocolError, TestClient
from tests.apps.task_server.app.servers import TASK, FileStore, stored, task_server
from tests.lab.waiting import until

UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
JOB_MEMBERS = {
    *("jobId", "status", "totalTasks", "processedTasks", "progressPercent", "durationMs"),
    *("tasksPerSecond", "errorMessage", "attempts", "createdAt", "startedAt", "completedAt"),
}
SUBMISSION_MEMBERS = {"success", "jobId", "status", "totalTasks", "message", "duplicate"}


class HeldStore(FileStore):
    """Completes jobs when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_complete = asyncio.Event()
        self.is_running = asyncio.Event()

    async def complete_job(self, claim: JobClaim, tasks: Any) -> Any:
        self.job_id = claim.job.job_id
        self.is_running.set()
        await self.may_complete.wait()
        return await super().complete_job(claim, tasks)


@pytest.mark.rule("TASKS-22")
async def test_batch_is_answered_with_its_job() -> None:
    store = HeldStore()
    async with TestClient(task_server(store)) as client:
        answer = await client.call("mcp-tasks", tasks=[TASK, {"title": "Tag it"}])

        assert answer.keys() == SUBMISSION_MEMBERS
        assert UUID.fullmatch(answer["jobId"])
        assert answer["status"] == "PENDING"
        assert (answer["success"], answer["duplicate"], answer["totalTasks"]) == (True, False, 2)
        assert await store.get_job(answer["jobId"]) is not None
        store.may_complete.set()


@pytest.mark.rule("TASKS-21", "TASKS-22")
async def test_stored_tasks_have_the_given_members_and_the_defaults() -> None:
    async with TestClient(task_server()) as client:
        job_id = await stored(client, TASK, {"title": "Tag it"})
        first, second = (await client.call("mcp-tasks-list"))["tasks"]

    assert {name: first[name] for name in TASK} == TASK
    assert first["jobId"] == job_id
    assert (first["version"], first["createdBy"]) == (1, "local")
    assert {name: second[name] for name in TASK} == {
        "title": "Tag it",
        "description": None,
        "status": "TODO",
        "dueDate": None,
        "project": "default",
        "priority": "NORMAL",
    }


@pytest.mark.rule("TASKS-23", "TASKS-25")
async def test_waiting_call_returns_the_ended_job() -> None:
    async with TestClient(task_server()) as client:
        answer = await client.call("mcp-tasks", tasks=[TASK] * 3, waitMs=25_000)
        job = await client.call("mcp-job-status", jobId=answer["jobId"].upper())

    assert answer.keys() == JOB_MEMBERS | SUBMISSION_MEMBERS
    assert (answer["status"], answer["processedTasks"]) == ("COMPLETED", 3)
    assert answer["message"] == "3 tasks are stored."
    assert {name: answer[name] for name in JOB_MEMBERS} == job
    assert (job["progressPercent"], job["errorMessage"], job["attempts"]) == (100, None, 1)
    assert job["tasksPerSecond"] == round(3000 / max(job["durationMs"], 1), 1)


@pytest.mark.rule("TASKS-25")
async def test_status_of_an_unfinished_job_has_null_for_what_is_not_known() -> None:
    store = HeldStore()
    async with TestClient(task_server(store)) as client:
        job_id = (await client.call("mcp-tasks", tasks=[TASK]))["jobId"]
        await store.is_running.wait()
        job = await client.call("mcp-job-status", jobId=job_id)
        store.may_complete.set()

    assert (job["status"], job["processedTasks"], job["progressPercent"]) == ("RUNNING", 0, 0)
    for name in ("durationMs", "tasksPerSecond", "errorMessage", "completedAt"):
        assert job[name] is None


@pytest.mark.rule("TASKS-23")
async def test_waiting_call_reports_progress() -> None:
    store = HeldStore()
    async with TestClient(task_server(store)) as client:
        job_id = (await client.call("mcp-tasks", tasks=[TASK]))["jobId"]
        await store.is_running.wait()
        waiting = asyncio.ensure_future(
            client.request(
                "tools/call",
                {
                    "name": "mcp-job-status",
                    "arguments": {"jobId": job_id, "waitMs": 25_000},
                    "_meta": {"progressToken": "p"},
                },
            )
        )
        await until(
            lambda: any("progress" in each["method"] for each in client.notifications),
            "progress is reported",
        )
        store.may_complete.set()
        await waiting
        reports = [each["params"] for each in client.notifications if "progress" in each["method"]]

    assert [(each["progress"], each["total"]) for each in reports] == [(1, 100), (100, 100)]
    assert reports[-1]["message"] == "COMPLETED: 1 tasks"


@pytest.mark.rule("TASKS-23")
async def test_waiting_ends_after_the_given_time() -> None:
    store = HeldStore()
    async with TestClient(task_server(store)) as client:
        answer = await client.call("mcp-tasks", tasks=[TASK], waitMs=20)
        store.may_complete.set()

    assert answer["status"] == "RUNNING"
    assert answer["completedAt"] is None


@pytest.mark.rule("TASKS-23")
async def test_waiting_call_does_not_hold_its_tasks() -> None:
    store = HeldStore()
    server = task_server(store)
    held: list[dict[str, Any]] = []

    @server.middleware
    async def look(call: Any, proceed: Any) -> Any:
        held.append(call.arguments)
        return await proceed()

    async with TestClient(server) as client:
        waiting = asyncio.ensure_future(client.call("mcp-tasks", tasks=[TASK], waitMs=25_000))
        await store.is_running.wait()
        assert [[*arguments] for arguments in held] == [["waitMs"]]
        store.may_complete.set()
        assert (await waiting)["status"] == "COMPLETED"


@pytest.mark.rule("TASKS-24")
async def test_cancelled_call_ends_the_wait_and_not_the_job() -> None:
    store = HeldStore()
    async with TestClient(task_server(store)) as client:
        waiting = asyncio.ensure_future(client.call("mcp-tasks", tasks=[TASK], waitMs=25_000))
        await store.is_running.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        store.may_complete.set()
        job = await client.call("mcp-job-status", jobId=store.job_id, waitMs=25_000)

    assert job["status"] == "COMPLETED"


@pytest.mark.rule("TASKS-22")
async def test_failed_job_is_no_success() -> None:
    class Failing(FileStore):
        async def complete_job(self, claim: JobClaim, tasks: Any) -> Any:
            raise RuntimeError("INSERT INTO secrets")

    async with TestClient(task_server(Failing())) as client:
        answer = await client.call("mcp-tasks", tasks=[TASK], waitMs=25_000)

    assert (answer["success"], answer["status"]) == (False, "FAILED")
    assert answer["message"] == f"No task is stored: {answer['errorMessage']}"
    assert "INSERT" not in answer["errorMessage"]


@pytest.mark.rule("TASKS-11")
async def test_repeated_request_key_is_the_same_job() -> None:
    async with TestClient(task_server()) as client:
        first = await client.call("mcp-tasks", tasks=[TASK], requestKey="k", waitMs=25_000)
        again = await client.call("mcp-tasks", tasks=[TASK], requestKey="k", waitMs=25_000)
        with pytest.raises(ToolError) as refused:
            await client.call("mcp-tasks", tasks=[TASK, TASK], requestKey="k")
        total = (await client.call("mcp-tasks-summary"))["totalCount"]

    assert (again["jobId"], again["duplicate"], total) == (first["jobId"], True, 1)
    assert refused.value.code == "INVALID_ARGUMENT"
    assert refused.value.details is not None
    assert refused.value.details["reason"] == "key_conflict"


@pytest.mark.rule("TASKS-11")
async def test_full_queue_refuses_a_batch_and_stores_nothing() -> None:
    store = HeldStore()
    async with TestClient(task_server(store, max_pending_jobs=1)) as client:
        await client.call("mcp-tasks", tasks=[TASK])
        with pytest.raises(ToolError, match=r"Server is busy. Please retry later.") as refused:
            await client.call("mcp-tasks", tasks=[TASK])
        assert sum((await store.count_jobs()).values()) == 1
        store.may_complete.set()

    assert refused.value.code == "RESOURCE_EXHAUSTED"
    assert refused.value.details == {"reason": "queue_full", "retryAfterMs": 2000}


@pytest.mark.rule("TASKS-12")
async def test_unknown_job_is_not_found() -> None:
    job_id = "00000000-0000-4000-8000-000000000000"
    async with TestClient(task_server()) as client:
        with pytest.raises(ToolError) as refused:
            await client.call("mcp-job-status", jobId=job_id, waitMs=100)

    assert (refused.value.code, refused.value.details) == (
        "NOT_FOUND",
        {"reason": "job_not_found", "jobId": job_id},
    )


@pytest.mark.rule("TASKS-22")
@pytest.mark.parametrize("content", [[TASK, TASK], {"tasks": [TASK, TASK]}])
async def test_tasks_of_a_file_are_stored(tmp_path: Path, content: Any) -> None:
    (tmp_path / "tasks.json").write_bytes(orjson.dumps(content))
    async with TestClient(task_server(file_root=str(tmp_path))) as client:
        answer = await client.call("mcp-tasks-from-file", filePath="tasks.json", waitMs=25_000)

    assert (answer["status"], answer["totalTasks"]) == ("COMPLETED", 2)


@pytest.mark.rule("TASKS-22", "TASKS-10")
async def test_wrong_tasks_of_a_file_are_refused_as_those_of_a_call(tmp_path: Path) -> None:
    (tmp_path / "tasks.json").write_bytes(orjson.dumps([TASK, {"title": "secret\0"}]))
    (tmp_path / "none.json").write_bytes(b"[]")
    async with TestClient(task_server(file_root=str(tmp_path))) as client:
        with pytest.raises(ToolError) as refused:
            await client.call("mcp-tasks-from-file", filePath="tasks.json")
        with pytest.raises(ToolError) as empty:
            await client.call("mcp-tasks-from-file", filePath="none.json")

    assert refused.value.code == "INVALID_ARGUMENT"
    assert refused.value.details is not None
    [error] = refused.value.details["errors"]
    assert error["path"] == "/tasks/1/title"
    assert "secret" not in str(refused.value) + str(error)
    assert "/tasks must have at least 1" in str(empty.value)


@pytest.mark.rule("TASKS-42")
async def test_names_of_members_in_a_file_are_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_bytes(orjson.dumps([{"secret": 1}, {**TASK, "secret": 1}]))
    async with TestClient(task_server(file_root=str(tmp_path))) as client:
        with pytest.raises(ToolError) as refused:
            await client.call("mcp-tasks-from-file", filePath="keys.json")

    assert refused.value.details is not None
    assert {"path": "/tasks/1", "message": "must not have other properties"} in (
        refused.value.details["errors"]
    )
    assert "secret" not in str(refused.value) + str(refused.value.details)


@pytest.mark.rule("TASKS-23")
async def test_long_wait_becomes_a_task_of_a_client_that_takes_tasks() -> None:
    tool = task_server().get("mcp-tasks")

    assert tool is not None
    support = tool.parts[TaskSupport]
    assert (support.required, support.after_ms) == (False, 2000)


@pytest.mark.rule("TASKS-10")
async def test_every_wrong_task_is_named_by_its_pointer() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"title": " "}, "/title"),
        ({"title": "x" * 256}, "/title"),
        ({"title": "a\0b"}, "/title"),
        ({"title": "x", "description": "x" * 2001}, "/description"),
        ({"title": "x", "description": "\0"}, "/description"),
        ({"title": "x", "dueDate": "2026-02-30"}, "/dueDate"),
        ({"title": "x", "dueDate": "0000-01-01"}, "/dueDate"),
        ({"title": "x", "project": "x" * 101}, "/project"),
        ({"title": "x", "owner": 1}, ""),
        ({}, ""),
    ]
    async with TestClient(task_server()) as client:
        with pytest.raises(ToolError) as refused:
            await client.call("mcp-tasks", tasks=[task for task, _ in wrong])
        with pytest.raises(ToolError) as many:
            await client.call("mcp-tasks", tasks=[{"title": ""}] * 100)

    assert refused.value.code == "INVALID_ARGUMENT"
    assert refused.value.details is not None and many.value.details is not None
    found = [each["path"] for each in refused.value.details["errors"]]
    assert found == [f"/tasks/{index}{place}" for index, (_, place) in enumerate(wrong)]
    plain = "must not be blank, nor contain U+0000"
    assert [each["message"] for each in refused.value.details["errors"]][:3:2] == [plain] * 2
    assert len(many.value.details["errors"]) == 20


@pytest.mark.rule("TASKS-10")
@pytest.mark.parametrize("count", [0, 5001])
async def test_batch_of_another_size_is_refused(count: int) -> None:
    async with TestClient(task_server()) as client:
        with pytest.raises(ToolError) as refused:
            await client.call("mcp-tasks", tasks=[{"title": "x"}] * count)

    assert refused.value.code == "INVALID_ARGUMENT"
    assert "/tasks must have at" in str(refused.value)


@pytest.mark.rule("TASKS-10")
async def test_half_a_surrogate_is_no_json() -> None:
    params = '{"name":"mcp-tasks","arguments":{"tasks":[{"title":"\\ud800"}]}}'
    async with TestClient(task_server()) as client:
        request = f'{{"jsonrpc":"2.0","id":"half","method":"tools/call","params":{params}}}'
        client.connection.feed(request.encode() + b"\n")
        with pytest.raises(ProtocolError, match="-32700"):  # it answers no request in particular
            await client.call("mcp-help")


@pytest.mark.rule("TASKS-06")
async def test_arguments_beyond_16_mib_are_too_large() -> None:
    tasks = [{"title": "x", "description": "\U0001f600" * 2000}] * 2200
    async with TestClient(task_server()) as client:
        with pytest.raises(ToolError) as refused:
            await client.call("mcp-tasks", tasks=tasks)

    assert refused.value.code == "RESOURCE_EXHAUSTED"
    assert refused.value.details is not None
    assert refused.value.details["reason"] == "payload_too_large"


@pytest.mark.rule("TASKS-99")
async def test_full_quota_is_refused_with_what_to_do(tmp_path: Path) -> None:
    settings = {"database": f"sqlite:{tmp_path / 'tasks.db'}", "max_tasks_per_key": 1}
    async with TestClient(create_task_server({"task_server": settings})) as client:
        await client.call("mcp-tasks", tasks=[TASK], waitMs=25_000)
        with pytest.raises(ToolError, match=r"mcp-tasks-delete.*max_tasks_per_key") as refused:
            await client.call("mcp-tasks", tasks=[TASK])
        [stored] = (await client.call("mcp-tasks-list"))["tasks"]
        await client.call("mcp-tasks-delete", ids=[stored["id"]])
        again = await client.call("mcp-tasks", tasks=[TASK], waitMs=25_000)

    assert again["status"] == "COMPLETED"
    assert refused.value.code == "RESOURCE_EXHAUSTED"
    figures = {"stored": 1, "requested": 1, "most": 1}
    assert refused.value.details == {"reason": "quota_exceeded", "limit": "tasks", **figures}
