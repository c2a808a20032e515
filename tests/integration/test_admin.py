"""Administrative tools, and word of other tools, in a server process of its own."""

from __future__ import annotations

import subprocess

import pytest

from tests.lab.servers.fixture import LIST_CHANGED
from tests.lab.servers.process import ServerProcess, serve

REGISTER = "admin/registerTool"
SWITCHES = ("tools.admin_registration_enabled", "security.dynamic_registration_enabled")
ON = dict.fromkeys(SWITCHES, "true")
MODE = "tools.admin_policy.mode"

APP = """
import sys, threading
from foundation_rt import Server, ToolContext, ToolDefinition

server = Server("changing")
go_on = threading.Event()


def add(name):
    server.register(ToolDefinition(name, "", {"type": "object"}), lambda *_: name, inline=True)


@server.tool
def add_in_worker(name: str) -> None:
    add(name)


@server.tool(inline=True)
def add_in_place(name: str) -> None:
    add(name)


@server.tool
def add_later(name: str) -> None:
    def wait_and_add():
        go_on.wait()
        add(name)

    threading.Thread(target=wait_and_add, daemon=True).start()


@server.tool(inline=True)
def now() -> None:
    go_on.set()


@server.tool(inline=True)
def asyncio_is_loaded() -> bool:
    return "asyncio" in sys.modules
"""


def names(server: ServerProcess) -> list[str]:
    """Return the names of the listed tools."""
    return [tool["name"] for tool in server.request("tools/list")["result"]["tools"]]


def register(server: ServerProcess, name: str, tool_type: str = "echo") -> int:
    return server.start(REGISTER, name=name, description="", toolType=tool_type)


def told(server: ServerProcess) -> int:
    """How often the client was told so far that the list has changed."""
    return server.messages.count(LIST_CHANGED)


@pytest.mark.rule("LIFE-10", "PROC-08")
def test_tools_that_come_from_any_thread_are_told_without_asyncio() -> None:
    with serve(APP, start=subprocess.Popen) as server:
        assert server.call("add_in_worker", name="a") is None
        assert server.call("add_in_place", name="b") is None
        server.wait_until(lambda: told(server) == 2, "word of two tools")
        server.call("add_later", name="c")
        assert "c" not in names(server)
        server.call("now")
        server.wait_until(lambda: told(server) == 3, "word of a tool that nobody called for")
        assert {"a", "b", "c"} <= set(names(server))
        assert server.call("c") == "c"
        assert server.call("asyncio_is_loaded") is False
        assert server.finish() == 0


@pytest.mark.rule("ADMIN-05", "PROC-08")
def test_a_proxy_of_an_agent_works_with_agents_and_without() -> None:
    agents = """
async def greet(message, context):
    return {"greeting": message.payload}

server.agents.register_agent("greeter", greet)
"""
    for app, expected in ((APP, None), (APP + agents, {"greeting": "Ada"})):
        with serve(app, {**ON, MODE: "local_stdio_only"}) as server:
            server.outcome(register(server, "ask", "agentProxy"))
            message = {"type": "greet", "payload": "Ada"}
            answer = server.call("ask", targetAgentId="greeter", message=message)
            if expected is None:
                assert answer["code"] == "NOT_FOUND"
            else:
                assert answer == expected
            assert server.finish() == 0
