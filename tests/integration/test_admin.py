"""Administrative tools, and word of other tools, in a server process of its own."""

from __future__ import annotations

import pytest

from tests.support.process import ServerProcess, serve
from tests.support.server_fixture import LIST_CHANGED

REGISTER, UNREGISTER = "admin/registerTool", "admin/unregisterTool"
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


@pytest.mark.rule("ADMIN-01", "ADMIN-04", "ADMIN-08", "ADMIN-09", "LIFE-10", "LIFE-02")
def test_an_operator_who_allows_it_can_register_call_and_unregister_over_stdio() -> None:
    with serve(settings={**ON, MODE: "local_stdio_only"}, handshake=False) as server:
        capabilities = server.handshake()["result"]["capabilities"]
        assert capabilities == {"logging": {}, "tools": {"listChanged": True}}
        before = names(server)
        assert {REGISTER, UNREGISTER} <= set(before)
        answer = server.outcome(register(server, "shout"))
        assert answer == {"registered": "shout", "toolType": "echo"}
        server.wait_until(lambda: told(server) == 1, "word of the new tool")
        assert names(server) == sorted([*before, "shout"])
        assert server.call("shout", message="hi") == {"message": "hi"}
        assert server.call(UNREGISTER, name="shout") == {"unregistered": "shout"}
        server.wait_until(lambda: told(server) == 2, "word that it is gone")
        assert server.call("shout", message="hi")["code"] == "NOT_FOUND"
        assert names(server) == before
        for message in ("Dynamic tool registered: shout (type: echo)", "Tool unregistered: shout"):
            record = server.record(message=message)
            assert (record["level"], record["toolName"], record["toolType"]) == (
                "warn",
                "shout",
                "echo",
            )
        assert server.finish() == 0
        assert told(server) == 2


@pytest.mark.rule("ADMIN-03")
@pytest.mark.parametrize("mode", ["deny_all", "token"])
def test_everything_is_refused_unless_the_policy_allows_it(mode: str) -> None:
    settings = {**ON, MODE: mode, "tools.admin_policy.token_env_var": "SOME_TOKEN"}
    with serve(settings=settings) as server:
        before = names(server)
        assert {REGISTER, UNREGISTER} <= set(before)
        refused = [register(server, "shout"), server.start(UNREGISTER, name="echo")]
        for request_id in refused:
            error = server.outcome(request_id)
            assert (error["code"], error["details"]) == ("UNAUTHORIZED", {"reason": mode})
        assert names(server) == before
        assert server.finish() == 0
        assert told(server) == 0


@pytest.mark.rule("ADMIN-01")
@pytest.mark.parametrize("switch", SWITCHES)
def test_with_one_switch_alone_the_tools_are_hidden(switch: str) -> None:
    with serve(settings={switch: "true", MODE: "local_stdio_only"}) as server:
        assert not {REGISTER, UNREGISTER} & set(names(server))
        assert server.outcome(register(server, "shout"))["code"] == "NOT_FOUND"
        assert server.call(UNREGISTER, name="echo")["code"] == "NOT_FOUND"
        assert server.finish() == 0


@pytest.mark.rule("LIFE-10", "PROC-08")
def test_tools_that_come_from_any_thread_are_told_without_asyncio() -> None:
    with serve(APP) as server:
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
