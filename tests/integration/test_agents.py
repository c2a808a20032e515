"""Agents in a real process: what a client that knows the agent tools sees of them."""

from __future__ import annotations

import pytest

from tests.lab.servers.process import serve

APP = '''
from foundation_rt import AgentContext, AgentMessage, Server

server = Server("agents")
agents = server.agents


async def counter(message: AgentMessage, context: AgentContext) -> int:
    """Adds up what it is sent."""
    context.state["count"] = context.state.get("count", 0) + message.payload
    context.state["apiKey"] = "s3cret"
    return context.state["count"]


async def clerk(message: AgentMessage, context: AgentContext) -> object:
    """Has the counter count, or waits for nothing until nobody waits for it."""
    if message.type == "count":
        return await agents.send_message("counter", AgentMessage("add", message.payload))
    if message.type == "circle":
        return await agents.send_message("clerk", message)
    context.logger.info("waiting")
    reason = await context.abort_signal.wait()
    context.logger.info("told", {"reason": reason})
    context.abort_signal.raise_if_aborted()


agents.register_agent("counter", counter)
agents.register_agent("clerk", clerk)
'''


def message(agent_id: str, kind: str, payload: object = None) -> dict[str, object]:
    return {"targetAgentId": agent_id, "message": {"type": kind, "payload": payload}}


@pytest.mark.rule("AGENT-05", "AGENT-09", "AGENT-14", "AGENT-15", "AGENT-16", "AGENT-18")
def test_a_client_lists_agents_talks_to_them_and_looks_into_one() -> None:
    with serve(APP) as server:
        listed = server.request("tools/list")["result"]["tools"]
        assert [tool["name"] for tool in listed] == [
            "agent/getState",
            "agent/list",
            "agent/request",
            "agent/sendMessage",
            "agent/status",
            "health",
        ]
        assert server.call("agent/list") == {"agentIds": ["clerk", "counter"], "truncated": False}
        waiting = [
            server.start("agent/sendMessage", **message("clerk", "count", number))
            for number in (1, 2, 3)
        ]
        assert [server.outcome(each) for each in waiting] == [1, 3, 6]
        assert server.call("agent/getState", agentId="counter") == {
            "agentId": "counter",
            "state": {"apiKey": "[REDACTED]", "count": 6},
            "truncated": False,
        }
        circle = server.call("agent/sendMessage", **message("clerk", "circle"))
        assert circle["code"] == "INVALID_ARGUMENT"
        assert circle["details"]["cycle"] == ["clerk", "clerk"]
        assert server.call("agent/sendMessage", **message("x", "y"))["code"] == "NOT_FOUND"
        assert server.finish() == 0
        assert "s3cret" not in server.stderr


@pytest.mark.rule("AGENT-02", "AGENT-11", "PROC-04")
def test_at_the_end_of_input_what_waits_for_an_agent_is_withdrawn() -> None:
    with serve(APP, {"server.eof_grace_ms": 0}) as server:
        for _ in range(3):
            server.start("agent/sendMessage", **message("clerk", "wait"))
        server.record(message="waiting")
        assert server.finish() == 0
        assert len(server.records_with(message="waiting")) == 1
        assert [each["reason"] for each in server.records_with(message="told")] == ["disconnected"]
        completed = server.records_with(message="tool call completed")
        assert [each["outcome"] for each in completed] == ["aborted"] * 3
