"""The demo tools."""

from __future__ import annotations

import asyncio

import pytest

from foundation_rt import ErrorCode, ToolError
from foundation_rt.cli.demo import demo_server
from foundation_rt.cli.showing_server import showing_server
from foundation_rt.testing import SequentialIds, TestClient
from tests.lab.waiting import until


@pytest.fixture
def client() -> TestClient:
    """Return a client of a fresh server."""
    return TestClient(demo_server(), ids=SequentialIds())  # and so the log is kept in memory


@pytest.mark.rule("CLI-01", "REG-02")
async def test_the_tools_are_echo_health_and_sleep(client: TestClient) -> None:
    tools = {tool["name"]: tool for tool in await client.list_tools()}
    assert list(tools) == ["echo", "health", "sleep"]
    assert all(tool["description"] for tool in tools.values())
    message = tools["echo"]["inputSchema"]["properties"]["message"]
    assert message == {"type": "string", "description": "What to send back."}
    assert set(tools["sleep"]["inputSchema"]["properties"]) == {"ms"}


@pytest.mark.rule("CLI-01")
async def test_echo_sends_back_and_sleep_sleeps(client: TestClient) -> None:
    assert await client.call("echo", message="hello") == {"message": "hello"}
    assert await client.call("sleep", ms=0) == {"sleptMs": 0}
    assert await client.call("sleep", ms=1) == {"sleptMs": 1}


@pytest.mark.rule("CALL-08")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("echo", {}), ("echo", {"message": 5}), ("echo", {"message": "x", "y": 1}), ("sleep", {})],
)
async def test_wrong_arguments_are_refused(
    tool: str, arguments: dict[str, object], client: TestClient
) -> None:
    with pytest.raises(ToolError) as raised:
        await client.call_tool(tool, arguments)
    assert raised.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.rule("TIME-05")
async def test_sleep_ends_when_the_call_is_aborted(client: TestClient) -> None:
    sleeping = asyncio.create_task(client.call("sleep", ms=3_600_000))
    await until(lambda: client.connection.engine.running, "the call runs")
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    await until(lambda: not client.connection.engine.running, "the call ends")
    assert client.notifications == []


@pytest.mark.rule("HOST-17")
@pytest.mark.virtual_time
async def test_demo_of_pages_has_progress_rows_and_one_tool_that_is_asked_about() -> None:
    async with TestClient(showing_server(), ids=SequentialIds()) as client:
        tools = {tool["name"]: tool for tool in await client.list_tools()}
        asked = [name for name, tool in tools.items() if "annotations" not in tool]
        assert asked == ["echo", "health"]
        call = {"name": "countdown", "arguments": {"start": 3}, "_meta": {"progressToken": 1}}
        assert not (await client.request("tools/call", call))["isError"]
        assert [each["params"]["progress"] for each in client.notifications] == [0, 1, 2]
        [saturn] = (await client.call("planets", moons=100))["planets"]
        assert saturn["planet"] == "Saturn"
