"""The official Python client uses the task server, in both modes, over stdio and HTTP."""

from __future__ import annotations

import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from mcp import Client, StdioServerParameters
from mcp_types import ResourceUpdatedNotification, TextContent, TextResourceContents

from tests.apps.task_server.app.servers import TASK, Database, serving
from tests.lab.servers.process import environment

PATIENCE = 60.0


@asynccontextmanager
async def connected(
    database: Database, transport: str, mode: Any, **options: Any
) -> AsyncIterator[Client]:
    """Yield an official client of a task server."""
    if transport == "stdio":
        words = database.command()
        assert words[0] == sys.executable
        server = StdioServerParameters(command=words[0], args=words[1:], env=environment())
        async with Client(server, mode=mode, **options) as client:
            yield client
    else:
        with serving(database) as (url, _):
            async with Client(url, mode=mode, **options) as client:
                yield client


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    [content] = result.content
    assert isinstance(content, TextContent)
    assert orjson.loads(content.text) == result.structured_content
    value: dict[str, Any] = result.structured_content or {}
    return value


@pytest.mark.rule("TASKS-20", "TASKS-22", "TASKS-36", "TASKS-38")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_official_client_uses_all_of_the_task_server(
    tmp_path: Path, transport: str, mode: str
) -> None:
    database = Database(f"sqlite:{tmp_path / 'tasks.db'}")
    progress: list[float] = []

    async def advance(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    with anyio.fail_after(PATIENCE):
        async with connected(database, transport, mode) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            result = await client.call_tool(
                "mcp-tasks",
                {"tasks": [TASK] * 5000, "requestKey": "k", "waitMs": 25_000},
                progress_callback=advance,
            )
            job = result.structured_content or {}
            again = await call(client, "mcp-tasks", tasks=[TASK] * 5000, requestKey="k")
            page = await call(client, "mcp-tasks-list", pageSize=10)
            [claimed] = (await call(client, "mcp-tasks-claim"))["tasks"] or [None]
            wrong = await client.call_tool("mcp-tasks", {"tasks": [{"title": " "}]})
            [whole] = (await client.read_resource("db://stats")).contents
            prompts = [prompt.name for prompt in (await client.list_prompts()).prompts]
            prompt = await client.get_prompt("task-report-template", {"format": "brief"})

    assert len(tools) == 11
    assert (job["status"], job["processedTasks"]) == ("COMPLETED", 5000)
    assert progress[-1] == 100
    assert (again["jobId"], again["duplicate"]) == (job["jobId"], True)
    assert (page["total"], len(page["tasks"])) == (5000, 10)
    assert claimed is None, "they are IN_PROGRESS by hand, and nobody's"
    assert wrong.is_error
    assert isinstance(whole, TextResourceContents)
    assert orjson.loads(whole.text)["totalCount"] == 5000
    assert len(prompts) == 3
    assert "5000 tasks" in str(prompt.messages)


@pytest.mark.rule("TASKS-36")
async def test_official_client_is_told_of_changes(tmp_path: Path) -> None:
    database = Database(f"sqlite:{tmp_path / 'tasks.db'}")
    updated = anyio.Event()

    async def note(message: object) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            updated.set()

    with anyio.fail_after(PATIENCE):
        async with connected(database, "stdio", "legacy", message_handler=note) as client:
            with warnings.catch_warnings():  # 2026-07-28 has another way
                warnings.simplefilter("ignore")
                await client.session.subscribe_resource("task://all")
            await call(client, "mcp-tasks", tasks=[TASK])
            await updated.wait()
