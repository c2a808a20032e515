"""Tasks of servers through a gateway: handles, outcomes, questions and notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from foundation_rt.client import MCPError, connect
from foundation_rt.features.tasks.support import EXTENSION
from tests.apps.gateway.test_through import NEW, OLD, Answers, speaking
from tests.lab.servers.http_server import HttpServerProcess, serve_gateway, serve_http
from tests.lab.waiting import until

TASK_APP = """
import asyncio
from foundation_rt import Server, ToolContext

server = Server("jobs")


@server.tool(task="required")
async def job() -> str:
    await asyncio.sleep(0.05)
    return "done"


@server.tool(task="required")
async def ask(ctx: ToolContext) -> str:
    asked = await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return f"hello {asked.content['name']}"


@server.tool(task="required")
async def endless(ctx: ToolContext) -> str:
    return await ctx.abort_signal.wait()
"""
KEY = {"FOUNDATION_RT_SECURITY__STATE_KEY": "ab" * 32, **speaking(NEW)}


class TaskAnswers(Answers):
    """A client that can have tasks, and be asked."""

    def __init__(self) -> None:
        super().__init__(extensions={EXTENSION: {}}, elicitation={"form": {}})


@pytest.fixture
def jobs() -> Iterator[HttpServerProcess]:
    with serve_http(TASK_APP) as server:
        yield server


async def start(client: Any, tool: str) -> dict[str, Any]:
    """Return the handle of a call that has become a task."""
    task = await client.request("tools/call", {"name": tool, "arguments": {}})
    assert task["resultType"] == "task"
    return dict(task)


async def until_status(client: Any, task_id: str, status: str) -> dict[str, Any]:
    """Return what `tasks/get` shows, once the task has this status."""
    shown = await until(
        lambda: client.request("tasks/get", {"taskId": task_id}),
        f"the task is {status}",
        lambda found: found["status"] == status,
    )
    assert shown["taskId"] == task_id
    return dict(shown)


@pytest.mark.rule("GATE-14")
async def test_task_of_a_server_is_known_to_both_gateways(jobs: HttpServerProcess) -> None:
    with (
        serve_gateway(jobs.url, env=KEY) as left,
        serve_gateway(jobs.url, env=KEY) as right,
    ):
        async with (
            connect(left.url, revision=NEW, handlers=TaskAnswers()) as one,
            connect(right.url, revision=NEW, handlers=TaskAnswers()) as other,
        ):
            task = await start(one, "job")
            found = await until_status(other, task["taskId"], "completed")
            assert found["result"]["content"][0]["text"] == "done"


@pytest.mark.rule("GATE-14", "GATE-15", "CLIENT-62", "FWD-24", "FWD-27")
async def test_task_is_asked_about_answered_cancelled_and_listened_to(
    jobs: HttpServerProcess,
) -> None:
    noted = asyncio.Queue[Any]()

    def note(method: str, params: Any) -> None:
        if method == "notifications/tasks":
            noted.put_nowait(params)

    with serve_gateway(jobs.url, env=KEY) as gateway:
        async with connect(
            gateway.url, revision=NEW, handlers=TaskAnswers(), on_notification=note
        ) as client:
            task_id = (await start(client, "ask"))["taskId"]
            asking = await until_status(client, task_id, "input_required")
            [key] = asking["inputRequests"]
            async with client.subscribe(tasks=[task_id]) as changes:
                answer = {"action": "accept", "content": {"name": "Ann"}}
                responses = {"taskId": task_id, "inputResponses": {key: answer}}
                await client.request("tasks/update", responses)
                assert await anext(aiter(changes)) == task_id
                while (params := await noted.get())["status"] != "completed":
                    assert params["taskId"] == task_id
                assert params["taskId"] == task_id
                assert params["result"]["content"][0]["text"] == "hello Ann"
            endless = (await start(client, "endless"))["taskId"]
            await client.request("tasks/cancel", {"taskId": endless})
            assert (await until_status(client, endless, "cancelled"))["taskId"] == endless
            with pytest.raises(MCPError) as unknown:
                await client.request("tasks/get", {"taskId": endless[:-1]})
            assert unknown.value.wire is not None and unknown.value.wire["code"] == -32602
            with pytest.raises(MCPError) as refused:
                async with client.subscribe(tasks=["nobody"]):
                    pass
            assert refused.value.code == "E204"


@pytest.mark.rule("GATE-14", "FWD-07")
async def test_client_without_tasks_is_refused_as_the_server_refuses(
    jobs: HttpServerProcess,
) -> None:
    """What a tool that has to be a task is, for clients that cannot have one."""
    with serve_gateway(jobs.url, env=KEY) as gateway:
        for revision in (NEW, OLD):
            async with (
                connect(gateway.url, revision=revision) as through,
                connect(jobs.url, revision=revision) as direct,
            ):
                errors = []
                for client in (through, direct):
                    with pytest.raises(MCPError) as raised:
                        await client.request("tools/call", {"name": "job", "arguments": {}})
                    assert raised.value.wire is not None
                    errors.append(raised.value.wire["code"])
                assert errors[0] == errors[1]
