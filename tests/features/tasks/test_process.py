"""Tasks of a real process."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from foundation_rt.features.tasks.support import EXTENSION
from tests.lab.servers.process import ServerProcess, serve

APP = """
from foundation_rt import Server, ToolContext

server = Server("tasks")


@server.tool(task="required")
async def wait_for_abort(ctx: ToolContext):
    ctx.logger.info("started")
    await ctx.abort_signal.wait()
    ctx.abort_signal.raise_if_aborted()


@server.tool(task="optional")
def work(number: int) -> int:
    return number * 2
"""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}},
}


def ask(server: ServerProcess, method: str, **params: Any) -> dict[str, Any]:
    result: dict[str, Any] = server.request(method, {**params, "_meta": META})["result"]
    return result


@pytest.mark.rule("TASK-17", "TASK-06")
def test_task_over_stdio_completes() -> None:
    with serve(APP, handshake=False) as server:
        handle = ask(server, "tools/call", name="work", arguments={"number": 21})
        assert handle["resultType"] == "task"
        server.completion("work")
        task = ask(server, "tasks/get", taskId=handle["taskId"])
        assert task["result"]["content"] == [{"type": "text", "text": "42"}]
        assert server.finish() == 0


@pytest.mark.rule("TASK-13")
def test_process_with_running_task_ends() -> None:
    with serve(APP, handshake=False) as server:
        assert ask(server, "tools/call", name="wait_for_abort")["status"] == "working"
        server.record(message="started")
        server.close_input()
        assert server.wait() == 0
        assert server.completion("wait_for_abort")["outcome"] == "aborted"


@pytest.mark.rule("TASK-13")
def test_signal_aborts_task() -> None:
    with serve(APP, handshake=False) as server:
        assert ask(server, "tools/call", name="wait_for_abort")["status"] == "working"
        server.record(message="started")
        server.signal(signal.SIGTERM)
        assert server.wait() == 143
        assert server.completion("wait_for_abort")["outcome"] == "aborted"


@pytest.mark.rule("TASK-14")
def test_task_is_unknown_to_another_process() -> None:
    with serve(APP, handshake=False) as server:
        task_id = ask(server, "tools/call", name="work", arguments={"number": 1})["taskId"]
        assert ask(server, "tasks/get", taskId=task_id)["taskId"] == task_id
        server.finish()
    with serve(APP, handshake=False) as server:
        answer = server.request("tasks/get", {"taskId": task_id, "_meta": META})
        assert answer["error"]["code"] == -32602
        server.finish()
