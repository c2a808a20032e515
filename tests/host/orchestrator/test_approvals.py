"""Approvals: which calls need one, how they end, what they are bound to."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from foundation_rt import Server
from foundation_rt.coordinator import Coordinator
from foundation_rt.host.events import ServerMessage
from foundation_rt.host.orchestrator import (
    ConversationOrchestrator,
    MemoryHistories,
)
from tests.support.host_chat import Desk, ScriptedModel, approving, call, chat, say


def notes(count: int) -> ScriptedModel:
    """Return a model that takes a note in each of so many turns."""
    model = ScriptedModel()
    for number in range(count):
        model.answers += [[call("desk:note", text=str(number))], ["done"]]
    return model


@pytest.mark.rule("TURN-20", "TURN-22", "TURN-27")
async def test_tool_that_writes_waits_for_its_approval() -> None:
    desk, model = Desk(), notes(1)
    async with chat(model, desk, more={"now_ms": lambda: 1000}) as orchestrator:
        heard = await say(orchestrator, act=approving(orchestrator))
    decisions = [each.metadata.get("decision") for each in model.asked[-1].history]
    assert decisions == [None, None, "once"]
    asked, decided = heard.of("approval")
    call_id = asked["callId"]
    assert asked == {
        "callId": call_id,
        "tool": "desk:note",
        "server": "desk",
        "arguments": {"text": "0"},
        "annotations": asked["annotations"],
        "description": "Take a note.",
        "expiresAt": 301_000,
    }
    assert decided == {"callId": call_id, "decision": "once"}
    waiting, calling, complete = heard.of("status")
    assert waiting["awaiting"] == "approval"
    assert "awaiting" not in calling
    assert {waiting["callId"], calling["callId"], complete["callId"]} == {call_id}
    assert desk.calls == [("note", "0")]


@pytest.mark.rule("TURN-20")
async def test_tool_that_reads_and_approve_all_need_none() -> None:
    model = ScriptedModel([[call("desk:find", word="a")]])
    async with chat(model) as orchestrator:
        assert (await say(orchestrator)).of("approval") == []
    async with chat(notes(1), approve_all=True) as orchestrator:
        assert (await say(orchestrator)).of("approval") == []


@pytest.mark.rule("TURN-21")
async def test_patterns_of_the_entry_need_none(tmp_path: Any) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        "from foundation_rt import Server\n"
        "server = Server('desk')\n"
        "@server.tool\ndef note(text: str) -> str:\n    return text\n"
        "@server.tool\ndef drop(text: str) -> str:\n    return text\n"
    )
    model = ScriptedModel([[call("desk:note", text="a"), call("desk:drop", text="b")]])
    entry = {
        "command": sys.executable,
        "args": ["-m", "foundation_rt", "serve", str(app)],
        "alwaysAllow": ["no*"],
    }
    async with chat(model, {"desk": entry}) as orchestrator:
        heard = await say(orchestrator, act=approving(orchestrator))
    assert [each["tool"] for each in heard.of("approval") if "tool" in each] == ["desk:drop"]
    assert [each["isError"] for each in heard.outcomes()] == [False, False]


@pytest.mark.rule("TURN-23")
async def test_refused_call_does_not_run_and_the_model_reads_why() -> None:
    desk, model = Desk(), notes(1)
    async with chat(model, desk) as orchestrator:
        heard = await say(orchestrator, act=approving(orchestrator, "deny"))
    assert desk.calls == []
    assert heard.outcomes()[0]["data"]["error"]["code"] == "DENY"
    assert "The user refused this call" in (model.asked[1].last.content or "")
    assert heard.end["state"] == "finished"


@pytest.mark.virtual_time
@pytest.mark.rule("TURN-23")
async def test_call_that_nobody_approves_in_time_does_not_run() -> None:
    desk, model = Desk(), notes(1)
    async with chat(model, desk) as orchestrator:
        loop = asyncio.get_running_loop()
        began = loop.time()
        heard = await say(orchestrator)
        assert 300 <= loop.time() - began < 310
        asked, ended = heard.of("approval")
        assert ended["decision"] == "expired"
        assert not orchestrator.approve("session", asked["callId"], "once")
    assert desk.calls == []
    assert "Nobody approved" in (model.asked[1].last.content or "")


@pytest.mark.rule("TURN-24")
async def test_first_decision_counts_and_only_that_of_the_session() -> None:
    desk = Desk()
    async with chat(notes(1), desk) as orchestrator:

        def act(event: ServerMessage) -> None:
            if event.type == "approval" and "expiresAt" in event.payload:
                call_id = event.payload["callId"]
                assert not orchestrator.approve("another", call_id, "once")
                assert not orchestrator.approve("session", "another", "once")
                assert orchestrator.approve("session", call_id, "deny")
                assert not orchestrator.approve("session", call_id, "once")

        heard = await say(orchestrator, act=act)
    assert heard.of("approval")[1]["decision"] == "deny"
    assert desk.calls == []


class SharedHistories(MemoryHistories):
    """Histories of one user, who allows for all sessions."""

    async def always_allowed(self, session_id: str) -> Any:
        return await super().always_allowed("user")

    async def allow_always(self, session_id: str, digest: str) -> None:
        await super().allow_always("user", digest)


@pytest.mark.rule("TURN-25")
@pytest.mark.parametrize(("decision", "asked"), [("once", 3), ("session", 2), ("always", 1)])
async def test_decision_counts_for_calls_to_come(decision: str, asked: int) -> None:
    histories = SharedHistories()
    model, desk = notes(3), Desk()
    shown = 0
    async with chat(model, desk, histories=histories) as orchestrator:
        for session in ("one", "one", "two"):
            act = approving(orchestrator, decision, session)
            heard = await say(orchestrator, session=session, act=act)
            shown += len(heard.of("approval")) // 2
    assert shown == asked
    assert len(desk.calls) == 3


@pytest.mark.rule("TURN-25")
async def test_sessions_that_have_ended_allow_nothing() -> None:
    async with chat(notes(2)) as orchestrator:
        await say(orchestrator, act=approving(orchestrator, "session"))
        await orchestrator.forget("session")
        heard = await say(orchestrator, act=approving(orchestrator, "session"))
        assert heard.of("approval")


def described(text: str, kept: list[str]) -> Server:
    """Return a server whose tool has this description."""
    server = Server("desk")
    server.override("logging", level="error")

    @server.tool(description=text)
    def note(text: str) -> str:
        kept.append(text)
        return text

    return server


@pytest.mark.rule("TURN-25")
async def test_always_ends_when_the_definition_changes() -> None:
    kept: list[str] = []
    model, histories = notes(3), MemoryHistories()
    async with Coordinator({"desk": described("one", kept)}) as coordinator:
        orchestrator = ConversationOrchestrator(model, coordinator, histories)
        act = approving(orchestrator, "always")
        assert (await say(orchestrator, act=act)).of("approval")
        assert not (await say(orchestrator, act=act)).of("approval")
        await coordinator.reload({"desk": described("two", kept)})
        while (entry := coordinator.entry("note")) is None or entry.description != "two":
            await asyncio.sleep(0.001)
        heard = await say(orchestrator, act=act)
        assert heard.of("approval")[0]["description"] == "two"


@pytest.mark.rule("TURN-26")
async def test_definition_that_changes_while_people_are_asked_does_not_run() -> None:
    kept: list[str] = []
    model = notes(1)
    async with Coordinator({"desk": described("harmless", kept)}) as coordinator:
        orchestrator = ConversationOrchestrator(model, coordinator, MemoryHistories())

        async def change(call_id: str) -> None:
            await coordinator.reload({"desk": described("harmful", kept)})
            while (entry := coordinator.entry("note")) is None or entry.description != "harmful":
                await asyncio.sleep(0.001)
            assert orchestrator.approve("session", call_id, "once")

        changing: list[asyncio.Task[None]] = []

        def act(event: ServerMessage) -> None:
            if event.type == "approval" and "expiresAt" in event.payload:
                changing.append(asyncio.create_task(change(event.payload["callId"])))

        heard = await say(orchestrator, act=act)
        await changing[0]
    assert kept == []
    assert heard.outcomes()[0]["data"]["error"]["code"] == "CHANGED"


@pytest.mark.rule("TURN-19")
async def test_arguments_that_do_not_fit_are_nobody_s_question() -> None:
    model = ScriptedModel([[call("desk:note", wrong=1)]])
    async with chat(model) as orchestrator:
        heard = await say(orchestrator)
    assert heard.of("approval") == []
    assert heard.outcomes()[0]["data"]["error"]["code"] == "INVALID_ARGUMENT"
    assert "Invalid arguments for tool: desk:note" in (model.asked[1].last.content or "")
