"""Resources and prompts of the task server, and their completions."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from foundation_rt.testing import ProtocolError, TestClient
from tests.apps.task_server.app.servers import TASK, stored, task_server
from tests.lab.waiting import until

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"


async def read(client: TestClient, uri: str) -> Any:
    return orjson.loads(await client.read_resource(uri))


@pytest.mark.rule("TASKS-36")
async def test_resources_are_listed_as_json() -> None:
    async with TestClient(task_server()) as client:
        resources = await client.list_resources()
        templates = await client.list_resource_templates()

    assert [each["uri"] for each in resources] == ["db://stats", "task://all"]
    assert [each["uriTemplate"] for each in templates] == ["task://{id}"]
    assert {each["mimeType"] for each in [*resources, *templates]} == {"application/json"}


@pytest.mark.rule("TASKS-36")
async def test_resources_have_what_the_tools_show() -> None:
    async with TestClient(task_server(resource_max_tasks=2)) as client:
        await stored(client, TASK, TASK, TASK)
        tasks = (await client.call("mcp-tasks-list"))["tasks"]
        summary = await client.call("mcp-tasks-summary")
        figures = await read(client, "db://stats")

        assert await read(client, "task://all") == tasks[:2]
        assert await read(client, "task://3") == tasks[2]
    assert {**figures, "generatedAt": 0} == {**summary, "generatedAt": 0}


@pytest.mark.rule("TASKS-37")
@pytest.mark.parametrize(("revision", "not_found"), [(HANDSHAKE, -32002), (STATELESS, -32602)])
async def test_id_that_is_none_and_id_that_no_task_has(revision: str, not_found: int) -> None:
    async with TestClient(task_server(), revision=revision) as client:
        await stored(client, TASK)
        for uri, code in (
            ("task://abc", -32602),
            ("task://-1", -32602),
            ("task://01", -32602),
            ("task://1.0", -32602),
            ("task://%D9%A1", -32602),
            ("task://0", not_found),
            ("task://2", not_found),
            ("task://99999999999999999999", not_found),
            ("task://" + "9" * 2000, not_found),
        ):
            with pytest.raises(ProtocolError) as refused:
                await client.read_resource(uri)
            assert refused.value.code == code, uri


@pytest.mark.rule("TASKS-36")
async def test_ids_are_completed() -> None:
    async with TestClient(task_server()) as client:
        await stored(client, *[TASK] * 12)

        assert await client.complete("task://{id}", "id", "1") == ["1", "10", "11", "12"]
        assert await client.complete("task://{id}", "id") == [str(n + 1) for n in range(12)]
        for begun in ("x", "0", "99", "9" * 400, "١"):
            assert await client.complete("task://{id}", "id", begun) == []


@pytest.mark.rule("TASKS-36", "TASKS-09")
async def test_subscribers_are_told_of_changes() -> None:
    async with TestClient(task_server()) as client:
        for uri in ("task://all", "db://stats", "task://1", "task://2"):
            await client.request("resources/subscribe", {"uri": uri})
        await stored(client, TASK)
        await until(
            lambda: {
                each["params"]["uri"]
                for each in client.notifications
                if each["method"] == "notifications/resources/updated"
            },
            "all are told of",
            lambda seen: seen == {"task://all", "db://stats", "task://1"},
        )


async def prompt(client: TestClient, name: str, **arguments: str) -> str:
    [message] = await client.get_prompt(name, **arguments)
    assert message["role"] == "user"
    text: str = message["content"]["text"]
    return text


@pytest.mark.rule("TASKS-38")
async def test_prompts_have_the_figures_of_the_moment() -> None:
    async with TestClient(task_server()) as client:
        before = await prompt(client, "summarize-tasks-by-status")
        await stored(
            client, {"title": "a", "dueDate": "2020-01-01"}, {"title": "b", "status": "DONE"}
        )
        texts = [
            await prompt(client, "create-tasks-from-description", description="Paint the house"),
            await prompt(client, "summarize-tasks-by-status"),
            await prompt(client, "summarize-tasks-by-status", status="TODO"),
            await prompt(client, "task-report-template"),
            await prompt(client, "task-report-template", format="detailed"),
        ]

    assert "0 tasks" in before
    for text in texts:
        assert "2 tasks (1 TODO, 0 IN_PROGRESS, 1 DONE)" in text
        assert "1 are overdue" in text
    assert texts[0].endswith("Paint the house")
    assert "mcp-tasks" in texts[0]
    assert "There are 1 of them" in texts[2]
    assert "brief report" in texts[3]
    assert "1. Overview" in texts[4]


@pytest.mark.rule("TASKS-38")
async def test_prompts_are_listed_with_their_arguments() -> None:
    async with TestClient(task_server()) as client:
        listed = {each["name"]: each["arguments"] for each in await client.list_prompts()}

    assert {
        name: [(each["name"], each["required"]) for each in arguments]
        for name, arguments in listed.items()
    } == {
        "create-tasks-from-description": [("description", True)],
        "summarize-tasks-by-status": [("status", False)],
        "task-report-template": [("format", False)],
    }


@pytest.mark.rule("TASKS-38")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("create-tasks-from-description", {}),
        ("create-tasks-from-description", {"description": " "}),
        ("create-tasks-from-description", {"description": "x" * 20_001}),
        ("summarize-tasks-by-status", {"status": "LATE"}),
        ("task-report-template", {"format": "long"}),
        ("task-report-template", {"strange": "x"}),
    ],
)
async def test_wrong_arguments_of_prompts_are_refused(name: str, arguments: dict[str, str]) -> None:
    async with TestClient(task_server()) as client:
        with pytest.raises(ProtocolError) as refused:
            await client.get_prompt(name, **arguments)

    assert refused.value.code == -32602


@pytest.mark.rule("TASKS-38")
async def test_arguments_of_prompts_are_completed() -> None:
    async with TestClient(task_server()) as client:
        assert await client.complete("summarize-tasks-by-status", "status", "") == [
            "TODO",
            "IN_PROGRESS",
            "DONE",
        ]
        assert await client.complete("summarize-tasks-by-status", "status", "d") == ["DONE"]
        assert await client.complete("task-report-template", "format", "de") == ["detailed"]
