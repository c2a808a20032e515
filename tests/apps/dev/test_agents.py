"""Agents of a program under development, and their ledger."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from foundation_rt.client import HttpServer, MCPError, connect
from tests.lab.servers.dev_front import dev_front

AGENT_TOOLS = ("getState", "list", "request", "sendMessage", "status")
AGENTS_TOOL = "foundation_rt_dev_agents"

APP = """
import asyncio
from pathlib import Path

from foundation_rt import AgentContext, AgentMessage, Server

server = Server("office")


async def clerk(message: AgentMessage, context: AgentContext) -> dict:
    context.state["asked"] = context.state.get("asked", 0) + 1
    context.state["password"] = "correct-horse"
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return {"asked": context.state["asked"]}


server.agents.register_agent("clerk", clerk)


@server.tool
async def ask(request: str) -> dict:
    message = AgentMessage("form", "A38")
    return await server.agents.send_request("clerk", message, request_id=request, timeout_ms=20_000)
"""


@pytest.mark.rule("DEV-32")
@pytest.mark.parametrize("separator", ["/", "__"])
async def test_agents_and_ledger_are_told_without_secrets(separator: str, tmp_path: Path) -> None:
    (tmp_path / "office.py").write_text(APP)
    variables = {"FOUNDATION_RT_TOOLS__NAME_SEPARATOR": separator}
    with dev_front(tmp_path, "office.py", env=variables) as front:
        await asyncio.to_thread(front.reader.wait_for, "restart", first=True)
        async with connect(HttpServer(front.url, headers=front.headers)) as client:
            assert {each.name for each in await client.list_tools()} == {
                *("ask", "health"),
                *(f"agent{separator}{name}" for name in AGENT_TOOLS),
            }
            asking = asyncio.create_task(client.call("ask", {"request": "order-7"}))
            while True:
                (office,) = (await asyncio.to_thread(front.json, "/dev/agents"))["servers"]
                requests = {each["requestId"]: each for each in office["ledger"]["requests"]}
                if "order-7" in requests and office["agents"][0]["state"]:
                    break
            (tmp_path / "go").touch()
            assert (await asking).value() == {"asked": 1}
            await asyncio.to_thread(front.reader.wait_for, "log", message="tool call completed")
            assert AGENTS_TOOL not in str(front.reader.events)
            with pytest.raises(MCPError, match=AGENTS_TOOL):
                await client.call(AGENTS_TOOL)
    assert (office["server"], office["error"]) == ("office", None)
    (clerk,) = office["agents"]
    assert clerk["id"] == "clerk"
    assert clerk["state"]["asked"] == 1
    assert "correct-horse" not in str(office)
    assert requests["order-7"]["targetAgentId"] == "clerk"
    assert requests["order-7"]["error"] is None


@pytest.mark.rule("DEV-32")
async def test_programs_without_agents_have_none(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("from foundation_rt import Server\nserver = Server('x')\n")
    with dev_front(tmp_path, "tools.py") as front:
        await asyncio.to_thread(front.reader.wait_for, "restart", first=True)
        assert front.json("/dev/agents") == {"servers": []}
        async with connect(HttpServer(front.url, headers=front.headers)) as client:
            assert {each.name for each in await client.list_tools()} == {"health"}
