"""The tools as clients see them: names, arguments, annotations, scopes, schemas."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from foundation_rt import ToolError
from foundation_rt.testing import TestClient
from tests.apps.task_server.app.servers import TASK, task_server

WRITING = {
    "mcp-tasks",
    "mcp-tasks-from-file",
    "mcp-tasks-claim",
    "mcp-tasks-update",
    "mcp-tasks-delete",
}
ARGUMENTS = {
    "health": set(),
    "mcp-tasks": {"tasks", "requestKey", "waitMs"},
    "mcp-tasks-from-file": {"filePath", "requestKey", "waitMs"},
    "mcp-job-status": {"jobId", "waitMs"},
    "mcp-tasks-list": {
        *("page", "pageSize", "cursor", "status", "project", "jobId", "ids", "claimedBy"),
        *("query", "dueBefore", "dueAfter", "updatedAfter", "sort", "fields"),
    },
    "mcp-tasks-summary": {"project"},
    "mcp-schema-tasks": set(),
    "mcp-help": {"tool"},
    "mcp-tasks-claim": {"count", "project", "worker", "leaseSeconds"},
    "mcp-tasks-update": {"updates"},
    "mcp-tasks-delete": {"ids", "jobId"},
}
DEFAULTS = {
    "mcp-tasks": {"waitMs": 0},
    "mcp-tasks-from-file": {"waitMs": 0},
    "mcp-job-status": {"waitMs": 0},
    "mcp-tasks-list": {"page": 0, "pageSize": 100, "sort": "id"},
    "mcp-tasks-claim": {"count": 1, "leaseSeconds": 900},
}


async def listed() -> dict[str, dict[str, Any]]:
    async with TestClient(task_server()) as client:
        return {tool["name"]: tool for tool in await client.list_tools()}


@pytest.mark.rule("TASKS-20")
async def test_every_tool_of_the_table_is_there_with_its_arguments_and_defaults() -> None:
    tools = await listed()

    properties = {name: tool["inputSchema"].get("properties", {}) for name, tool in tools.items()}
    assert {name: set(each) for name, each in properties.items()} == ARGUMENTS
    found = {
        name: {key: one["default"] for key, one in each.items() if "default" in one}
        for name, each in properties.items()
    }
    assert {name: each for name, each in found.items() if each} == DEFAULTS


@pytest.mark.rule("TASKS-20")
async def test_every_tool_has_title_annotations_and_the_schema_of_its_answer() -> None:
    tools = await listed()
    del tools["health"]

    for name, tool in tools.items():
        assert tool["title"], name
        assert tool["outputSchema"]["type"] == "object", name
        assert tool["inputSchema"]["additionalProperties"] is False, name
        assert tool["annotations"]["readOnlyHint"] is (name not in WRITING), name
        assert tool["annotations"]["openWorldHint"] is False, name
    destructive = {name for name in tools if tools[name]["annotations"]["destructiveHint"]}
    assert destructive == {"mcp-tasks-update", "mcp-tasks-delete"}


@pytest.mark.rule("TASKS-20")
async def test_unknown_arguments_are_refused() -> None:
    async with TestClient(task_server()) as client:
        for name in ARGUMENTS:
            with pytest.raises(ToolError) as refused:
                await client.call_tool(name, {"strange": 1})
            assert refused.value.code == "INVALID_ARGUMENT"


@pytest.mark.rule("TASKS-04")
async def test_read_only_server_has_no_tool_that_writes() -> None:
    async with TestClient(task_server(read_only=True)) as client:
        names = {tool["name"] for tool in await client.list_tools()}

    assert names == ARGUMENTS.keys() - WRITING


@pytest.mark.rule("TASKS-04", "TASKS-35")
async def test_read_only_server_does_not_speak_of_tools_that_write() -> None:
    async with TestClient(task_server(read_only=True)) as client:
        answer = await client.call("mcp-help")
        prompts = {each["name"] for each in await client.list_prompts()}

    named = {
        word.strip(".,;:") for text in answer["workflow"] + answer["tips"] for word in text.split()
    }
    assert {each["name"] for each in answer["tools"]} == ARGUMENTS.keys() - WRITING
    assert not named & WRITING
    assert "mcp-tasks-list" in named
    assert prompts == {"summarize-tasks-by-status", "task-report-template"}


@pytest.mark.rule("TASKS-34")
async def test_schema_of_a_task_is_the_one_that_is_enforced() -> None:
    tools = await listed()
    async with TestClient(task_server()) as client:
        schema = await client.call("mcp-schema-tasks")

    assert schema.pop("$schema") == "https://json-schema.org/draft/2020-12/schema"
    assert schema == tools["mcp-tasks"]["inputSchema"]["properties"]["tasks"]["items"]


@pytest.mark.rule("TASKS-34")
@pytest.mark.parametrize(
    "draft", [jsonschema_rs.Draft7Validator, jsonschema_rs.Draft202012Validator]
)
async def test_schema_of_a_task_means_the_same_in_both_dialects(draft: Any) -> None:
    async with TestClient(task_server()) as client:
        schema = await client.call("mcp-schema-tasks")
    del schema["$schema"]
    validator = draft(schema, validate_formats=True)

    assert validator.is_valid(TASK)
    assert validator.is_valid({"title": "x", "description": None, "dueDate": None})
    for wrong in (
        {},
        {"title": ""},
        {"title": " \t"},
        {"title": "x" * 256},
        {"title": "a\0"},
        {"title": "x", "dueDate": "2026-02-30"},
        {"title": "x", "dueDate": "0000-01-01"},
        {"title": "x", "priority": "high"},
        {"title": "x", "status": None},
        {"title": "x", "project": ""},
        {"title": "x", "owner": "me"},
    ):
        assert not validator.is_valid(wrong), wrong


@pytest.mark.rule("TASKS-35")
async def test_help_describes_every_tool_from_the_registry() -> None:
    tools = await listed()
    async with TestClient(task_server()) as client:
        answer = await client.call("mcp-help")
        one = await client.call("mcp-help", tool="mcp-job-status")
        with pytest.raises(ToolError, match="There is no tool 'rm'"):
            await client.call("mcp-help", tool="rm")

    assert [each["name"] for each in answer["tools"]] == list(tools)
    assert answer["protocolRevisions"][-1] == "2026-07-28"
    assert answer["server"] == "foundation-rt-tasks"
    for each in answer["tools"]:
        schema = tools[each["name"]]["inputSchema"]
        assert jsonschema_rs.is_valid(schema, each["example"]), each["name"]
        assert each["usage"].startswith(each["name"] + "(")
    assert [each["usage"] for each in one["tools"]] == ["mcp-job-status(jobId, waitMs=0)"]
    assert answer["workflow"] and answer["tips"]


@pytest.mark.rule("TASKS-09")
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
async def test_capabilities_name_asynchronous_batches_and_subscriptions(revision: str) -> None:
    async with TestClient(task_server(), handshake=False) as client:
        params = {
            "protocolVersion": revision,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        capabilities = (await client.request("initialize", params))["capabilities"]

    assert capabilities["experimental"] == {
        "asyncBatch": {"name": "asyncBatch", "version": "1.0.0"}
    }
    assert capabilities["resources"] == {"subscribe": True, "listChanged": True}
    assert capabilities.keys() >= {"tools", "prompts", "completions"}
