"""Turns with a scripted model and real servers of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from foundation_rt import Server, ToolAnnotations
from foundation_rt.coordinator import Coordinator
from foundation_rt.host.chat import Role
from foundation_rt.host.orchestrator import (
    ConversationOrchestrator,
    MemoryHistories,
    OrchestratorSettings,
    connection_options,
)
from tests.support.host_chat import Heard, ScriptedModel, call, say


def notes() -> Server:
    """Return a server with a tool that reads, and one that writes."""
    server = Server("notes")
    kept: list[str] = []

    @server.tool(annotations=ToolAnnotations(read_only=True))
    def find(word: str) -> list[str]:
        """Find notes."""
        return [each for each in kept if word in each]

    @server.tool
    def add(text: str) -> str:
        """Add a note."""
        kept.append(text)
        return f"added {text}"

    return server


@asynccontextmanager
async def chat(
    model: ScriptedModel, servers: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[ConversationOrchestrator]:
    given = servers or {"notes": notes()}
    async with Coordinator(given, connections=connection_options()) as coordinator:
        yield ConversationOrchestrator(
            model, coordinator, MemoryHistories(), OrchestratorSettings(**settings)
        )


@pytest.mark.rule("TURN-01", "TURN-10")
async def test_a_turn_streams_text_and_is_kept() -> None:
    async with chat(ScriptedModel([["Hel", "lo."]])) as orchestrator:
        heard = await say(orchestrator, "hi", turn="t")
        assert [event.type for event in heard.events] == ["user", "turn", *["text"] * 3, "turn"]
        assert {event.turn_id for event in heard.events} == {"t"}
        assert heard.text == "Hello."
        assert [payload["done"] for payload in heard.of("text")] == [False, False, True]
        assert heard.end["state"] == "finished"
        usage = {"promptTokens": 10, "completionTokens": 1, "totalTokens": 11}
        assert heard.end["usage"] == {**usage, "isEstimated": False}
        kept = orchestrator.get_history("session")
        assert [(each.role, each.content) for each in kept] == [
            (Role.USER, "hi"),
            (Role.ASSISTANT, "Hello."),
        ]
        assert kept[1].id == heard.of("text")[0]["messageId"]


@pytest.mark.rule("TURN-02", "TURN-18")
async def test_a_call_runs_and_its_result_goes_back() -> None:
    model = ScriptedModel([["Looking. ", call("notes:find", "c1", word="a")], ["Nothing."]])
    async with chat(model) as orchestrator:
        heard = await say(orchestrator)
        assert heard.text == "Looking. Nothing."
        processing, complete = heard.of("status")
        assert processing["data"] == {"arguments": {"word": "a"}}
        assert (complete["isError"], complete["tool"]) == (False, "notes:find")
        assert model.asked[1].last.role is Role.TOOL
        assert model.asked[1].last.content == "[]"
        assert [each.name for each in model.asked[0].tools] == [
            "notes:add",
            "notes:find",
            "notes:health",
        ]


@pytest.mark.rule("TURN-20", "TURN-22")
async def test_a_tool_that_writes_waits_for_its_approval() -> None:
    model = ScriptedModel([[call("notes:add", "c1", text="milk")], ["Done."]])
    async with chat(model) as orchestrator:

        def approve(event: Any) -> None:
            if event.type == "approval" and "expiresAt" in event.payload:
                assert orchestrator.approve("session", event.payload["callId"], "once")
                assert not orchestrator.approve("session", event.payload["callId"], "deny")

        heard = await say(orchestrator, act=approve)
        asked, decided = heard.of("approval")
        assert asked["arguments"] == {"text": "milk"}
        assert (asked["tool"], asked["server"]) == ("notes:add", "notes")
        assert decided == {"callId": asked["callId"], "decision": "once"}
        assert "added milk" in (model.asked[1].last.content or "")


@pytest.mark.rule("TURN-07")
async def test_stop_ends_the_model() -> None:
    model = ScriptedModel([["I think ", asyncio.Event()]])
    async with chat(model) as orchestrator:

        def stop(event: Any) -> None:
            if event.type == "text" and not event.payload["done"]:
                assert orchestrator.stop("session")

        heard: Heard = await say(orchestrator, act=stop)
        assert heard.end["state"] == "stopped"
        assert model.running == 0
        assert orchestrator.get_history("session")[-1].content == "I think "
        assert not orchestrator.stop("session")
