"""Working tasks off: mcp-tasks-claim, mcp-tasks-update, mcp-tasks-delete."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from foundation_rt import ToolError
from foundation_rt.testing import TestClient
from tests.apps.task_server.app.servers import TASK, stored, task_server


@pytest.mark.rule("TASKS-31")
async def test_claimed_tasks_are_in_progress_and_belong_to_the_worker() -> None:
    async with TestClient(task_server()) as client:
        await stored(client, {"title": "a"}, {"title": "b", "priority": "URGENT"}, {"title": "c"})
        named = await client.call("mcp-tasks-claim", worker="agent-7", leaseSeconds=30)
        others = await client.call("mcp-tasks-claim", count=50)
        none = await client.call("mcp-tasks-claim")

    [task] = named["tasks"]
    assert (task["title"], task["status"], task["claimedBy"]) == ("b", "IN_PROGRESS", "agent-7")
    assert (task["version"], task["claimExpiresAt"] > task["updatedAt"]) == (2, True)
    assert [each["claimedBy"] for each in others["tasks"]] == ["local", "local"]
    assert none == {"tasks": [], "truncated": False, "moreIds": []}


@pytest.mark.rule("TASKS-31")
async def test_claimed_tasks_that_do_not_fit_are_named() -> None:
    tasks = [{"title": f"{n}", "description": "x" * 2000} for n in range(10)]
    async with TestClient(task_server(max_answer_bytes=8192)) as client:
        await stored(client, *tasks)
        answer = await client.call("mcp-tasks-claim", count=10, worker="w")
        rest = await client.call("mcp-tasks-list", ids=answer["moreIds"], fields=["claimedBy"])

    shown = [task["id"] for task in answer["tasks"]]
    assert answer["truncated"] is True
    assert shown + answer["moreIds"] == list(range(1, 11))
    assert len(orjson.dumps(answer)) <= 8192
    assert rest["tasks"] == [{"claimedBy": "w"}] * len(answer["moreIds"])


@pytest.mark.rule("TASKS-32")
async def test_update_changes_members_and_null_clears_them() -> None:
    async with TestClient(task_server()) as client:
        await stored(client, TASK, TASK)
        changed = await client.call(
            "mcp-tasks-update",
            updates=[
                {"id": 2, "title": "New", "priority": "LOW", "dueDate": "2027-01-01"},
                {
                    "id": 1.0,
                    "ifVersion": 1.0,
                    "description": None,
                    "dueDate": None,
                    "priority": None,
                    "project": None,
                    "status": None,
                },
            ],
        )
        first, second = (await client.call("mcp-tasks-list"))["tasks"]

    assert changed == {"updated": [{"id": 2, "version": 2}, {"id": 1, "version": 2}]}
    assert {name: first[name] for name in TASK} == {
        "title": TASK["title"],
        "description": None,
        "status": "TODO",
        "dueDate": None,
        "project": "default",
        "priority": "NORMAL",
    }
    assert {name: second[name] for name in TASK} == {
        **TASK,
        "title": "New",
        "priority": "LOW",
        "dueDate": "2027-01-01",
    }


@pytest.mark.rule("TASKS-12")
async def test_stale_version_is_refused_with_the_current_ones() -> None:
    async with TestClient(task_server()) as client:
        await stored(client, TASK, TASK)
        await client.call("mcp-tasks-update", updates=[{"id": 2, "status": "DONE"}])
        with pytest.raises(ToolError) as refused:
            await client.call(
                "mcp-tasks-update",
                updates=[
                    {"id": 1, "ifVersion": 1, "title": "x"},
                    {"id": 2, "ifVersion": 1, "title": "x"},
                ],
            )
        titles = [task["title"] for task in (await client.call("mcp-tasks-list"))["tasks"]]

    assert refused.value.code == "INVALID_ARGUMENT"
    assert refused.value.details == {
        "reason": "version_conflict",
        "current": [{"id": 2, "version": 2}],
        "errors": [{"path": "/updates/1/ifVersion", "message": "must be the current version"}],
    }
    assert titles == [TASK["title"]] * 2


@pytest.mark.rule("TASKS-12")
async def test_unknown_tasks_of_an_update_are_not_found() -> None:
    async with TestClient(task_server()) as client:
        await stored(client, TASK)
        with pytest.raises(ToolError) as refused:
            updates = [{"id": number, "title": "x"} for number in (9, 1, 8)]
            await client.call("mcp-tasks-update", updates=updates)

    assert (refused.value.code, refused.value.details) == (
        "NOT_FOUND",
        {"reason": "tasks_not_found", "ids": [8, 9]},
    )


@pytest.mark.rule("TASKS-13")
@pytest.mark.parametrize(
    ("tool", "arguments", "reason", "path"),
    [
        (
            "mcp-tasks-update",
            {"updates": [{"id": 1, "title": "a"}, {"id": 1, "title": "b"}]},
            "repeated_id",
            "/updates/1/id",
        ),
        ("mcp-tasks-update", {"updates": [{"id": 1}]}, "nothing_to_change", "/updates/0"),
        (
            "mcp-tasks-update",
            {"updates": [{"id": 1, "ifVersion": 1}]},
            "nothing_to_change",
            "/updates/0",
        ),
        ("mcp-tasks-delete", {}, "ids_or_job", ""),
        (
            "mcp-tasks-delete",
            {"ids": [1], "jobId": "00000000-0000-4000-8000-000000000000"},
            "ids_or_job",
            "",
        ),
    ],
)
async def test_change_that_the_schema_allows_and_the_tool_does_not(
    tool: str, arguments: dict[str, Any], reason: str, path: str
) -> None:
    async with TestClient(task_server()) as client:
        await stored(client, TASK)
        with pytest.raises(ToolError) as refused:
            await client.call_tool(tool, arguments)

    assert refused.value.details is not None
    assert (refused.value.code, refused.value.details["reason"]) == ("INVALID_ARGUMENT", reason)
    assert [each["path"] for each in refused.value.details["errors"]] == [path]


LEASED = {"id": 1, "leaseSeconds": 29}


@pytest.mark.rule("TASKS-32", "TASKS-33", "TASKS-31")
@pytest.mark.parametrize(
    ("tool", "arguments", "path"),
    [
        ("mcp-tasks-update", {"updates": []}, "/updates"),
        ("mcp-tasks-update", {"updates": [{"id": 1, "title": "x"}] * 501}, "/updates"),
        ("mcp-tasks-update", {"updates": [{"id": 1, "title": None}]}, "/updates/0/title"),
        ("mcp-tasks-update", {"updates": [{"id": 1, "title": " "}]}, "/updates/0/title"),
        ("mcp-tasks-update", {"updates": [LEASED]}, "/updates/0/leaseSeconds"),
        ("mcp-tasks-update", {"updates": [{"id": 0, "title": "x"}]}, "/updates/0/id"),
        ("mcp-tasks-delete", {"ids": [1] * 501}, "/ids"),
        ("mcp-tasks-delete", {"ids": [2**63]}, "/ids/0"),
        ("mcp-tasks-claim", {"count": 51}, "/count"),
        ("mcp-tasks-claim", {"leaseSeconds": 86_401}, "/leaseSeconds"),
        ("mcp-tasks-claim", {"worker": "\0"}, "/worker"),
    ],
)
async def test_arguments_beyond_their_limits_are_refused(
    tool: str, arguments: dict[str, Any], path: str
) -> None:
    async with TestClient(task_server()) as client:
        with pytest.raises(ToolError) as refused:
            await client.call_tool(tool, arguments)

    assert refused.value.details is not None
    assert refused.value.details["errors"][0]["path"] == path


@pytest.mark.rule("TASKS-33")
async def test_tasks_are_deleted_by_id_and_by_job() -> None:
    async with TestClient(task_server()) as client:
        job_id = await stored(client, TASK, TASK, TASK)
        await stored(client, TASK)
        by_id = await client.call("mcp-tasks-delete", ids=[2, 99, 2, 77.0])
        by_job = await client.call("mcp-tasks-delete", jobId=job_id.upper())
        left = [task["id"] for task in (await client.call("mcp-tasks-list"))["tasks"]]

    assert by_id == {"deleted": 1, "missing": [77, 99]}
    assert by_job == {"deleted": 2, "missing": []}
    assert left == [4]
