"""More tools than the vendor of the model takes: the best ones, and one that finds others."""

from __future__ import annotations

import json

import pytest

from foundation_rt import Server
from foundation_rt.apps.host.chat import ChatMessage
from foundation_rt.apps.host.orchestrator import MemoryHistories
from foundation_rt.apps.host.orchestrator.tool_choice import FIND_TOOLS, NOTHING
from tests.lab.host.chat import READS, Asked, ScriptedModel, call, chat, say


def server_of_many() -> Server:
    """Return a server with 31 tools, of which one is about the weather."""
    server = Server("many")
    server.override("logging", level="error")
    for number in range(30):
        about = "forecast the weather of a city" if number == 20 else f"do number {number}"
        made = server.tool(f"tool_{number}", description=f"Tool to {about}.", annotations=READS)
        made(lambda: "done")
    return server


def names(asked: Asked) -> list[str]:
    return [each.name for each in asked.tools]


@pytest.mark.rule("TURN-85")
async def test_request_has_the_tools_that_fit_what_is_said_and_what_was_used() -> None:
    model = ScriptedModel([[call("many:tool_29")], ["a"], ["b"], ["c"]], max_tools=6)
    async with chat(model, {"many": server_of_many()}) as orchestrator:
        await say(orchestrator, "What is the weather?")
        await say(orchestrator, "And 17?")
    first, second, third = model.asked
    assert "many:tool_20" in names(first)
    assert {"many:tool_20", "many:tool_29"} <= {*names(second)}
    assert {"many:tool_20", "many:tool_29", "many:tool_17"} <= {*names(third)}
    for asked in model.asked:
        assert len(asked.tools) == 6
        assert names(asked)[-1] == FIND_TOOLS
    assert "there are 31" in first.tools[-1].description
    few = ScriptedModel(max_tools=31)
    async with chat(few, {"many": server_of_many()}) as orchestrator:
        await say(orchestrator)
    assert FIND_TOOLS not in names(few.asked[0])


@pytest.mark.rule("TURN-86", "TURN-85")
async def test_model_finds_further_tools_and_calls_them_after_a_restart_too() -> None:
    answers = [
        [call(FIND_TOOLS, query="forecast weather")],
        [call("many:tool_20"), call(FIND_TOOLS, query="xyzzy")],
        ["done"],
    ]
    model = ScriptedModel(answers, max_tools=4)
    histories = MemoryHistories()
    server = {"many": server_of_many()}
    async with chat(model, server, histories=histories) as orchestrator:
        heard = await say(orchestrator, "hello")
        found, *_ = heard.outcomes()
        assert heard.of("approval") == []
    assert found["data"]["result"]["structuredContent"]["tools"][0] == "many:tool_20"
    first, second, *_ = model.asked
    assert "many:tool_20" not in names(first)
    assert "many:tool_20" in names(second)
    assert "many:tool_20: Tool to forecast" in (second.last.content or "")
    assert any(NOTHING in (each.content or "") for each in histories.get_history("session"))
    restored = MemoryHistories()
    for message in histories.get_history("session"):
        kept = ChatMessage.from_json(json.loads(json.dumps(message.to_json())))
        await restored.add_message("session", kept)
    again = ScriptedModel(max_tools=4)
    async with chat(again, {"many": server_of_many()}, histories=restored) as orchestrator:
        await say(orchestrator, "hello")
    assert "many:tool_20" in names(again.asked[0])
