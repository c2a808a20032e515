"""Approvals: which calls need one, how they end, what they are bound to."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from foundation_rt import Server, ToolAnnotations
from foundation_rt.apps.coordinator import Coordinator, ServerPlan
from foundation_rt.apps.host.orchestrator import (
    ConversationOrchestrator,
    MemoryHistories,
)
from tests.lab.host.chat import (
    Desk,
    ScriptedModel,
    approving,
    call,
    chat,
    plans_with,
    say,
    when_asked,
)
from tests.lab.waiting import until

pytestmark = pytest.mark.usefixtures("forked")


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
        "kind": "tool",
        "decisions": ("once", "session", "always", "deny"),
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
async def test_first_decision_counts_if_it_is_of_the_session_and_offered() -> None:
    desk = Desk()
    async with chat(notes(1), desk) as orchestrator:

        def decide(call_id: str) -> None:
            assert not orchestrator.approve("another", call_id, "once")
            assert not orchestrator.approve("session", "another", "once")
            assert not orchestrator.approve("session", call_id, "trust")
            assert orchestrator.approve("session", call_id, "deny")
            assert not orchestrator.approve("session", call_id, "once")

        heard = await say(orchestrator, act=when_asked(decide))
    assert heard.of("approval")[1]["decision"] == "deny"
    assert desk.calls == []


class SharedHistories(MemoryHistories):
    """Histories of one user, who decides for all sessions."""

    async def decisions(self, session_id: str) -> Any:
        return await super().decisions("user")

    async def decide(self, session_id: str, subject: str, word: str) -> None:
        await super().decide("user", subject, word)


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


class Shop:
    """A server whose tool `note` a test redefines while a chat uses it; `drop` stays."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self._plans: dict[str, ServerPlan] = {}
        self.coordinator = Coordinator.from_plans(lambda: self._plans)

    async def define(self, description: str, *, reads: bool = False, trust: bool = True) -> None:
        """List the tool `note` with another definition."""
        server = Server("desk")
        server.override("logging", level="error")

        @server.tool(description=description, annotations=ToolAnnotations(read_only=reads))
        def note(text: str) -> str:
            self.kept.append(text)
            return text

        @server.tool
        def drop() -> None:
            self.kept.clear()

        self._plans = plans_with({"desk": server}, trust=trust)
        await self.coordinator.reload()
        entry = self.coordinator.entry
        await until(
            lambda: getattr(entry("desk:note"), "description", None) == description,
            "the new definition is read",
        )

    async def remove(self) -> None:
        """Have no server any more."""
        self._plans = {}
        await self.coordinator.reload()


@asynccontextmanager
async def shop(
    model: ScriptedModel | int,
) -> AsyncIterator[tuple[Shop, ConversationOrchestrator]]:
    desk = Shop()
    async with desk.coordinator as coordinator:
        llm = notes(model) if isinstance(model, int) else model
        yield desk, ConversationOrchestrator(llm, coordinator, MemoryHistories())


async def asked_about(orchestrator: ConversationOrchestrator, decision: Any = "once") -> int:
    """Run a turn; return how often people were asked."""
    heard = await say(orchestrator, act=approving(orchestrator, decision))
    return len(heard.of("approval")) // 2


@pytest.mark.rule("TURN-25")
@pytest.mark.parametrize("decision", ["session", "always"])
async def test_a_decision_ends_when_the_definition_changes(decision: str) -> None:
    async with shop(4) as (desk, orchestrator):
        await desk.define("one")
        assert [await asked_about(orchestrator, decision) for _ in "ab"] == [1, 0]
        await desk.define("two")
        assert await asked_about(orchestrator, "once") == 1
        assert len(desk.kept) == 3


@pytest.mark.rule("TURN-25", "COORD-79")
async def test_always_ends_when_the_command_changes(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("from foundation_rt import Server\nserver = Server('desk')\n"
                   "@server.tool\ndef note(text: str) -> str:\n    return text\n")  # fmt: skip
    entry = {"command": sys.executable, "args": ["-m", "foundation_rt", "serve", str(app)]}
    histories = MemoryHistories()
    async with Coordinator({"desk": entry}) as coordinator:
        orchestrator = ConversationOrchestrator(notes(4), coordinator, histories)
        assert [await asked_about(orchestrator, "always") for _ in "ab"] == [1, 0]
        # The same tool, and the same name of the server: another program.
        entry["args"] = ["-P", *entry["args"]]
        await coordinator.reload({"desk": entry})
        assert [await asked_about(orchestrator, "always") for _ in "ab"] == [1, 0]


@pytest.mark.rule("TURN-20", "TURN-29")
async def test_readonly_hint_counts_for_a_trusted_server_alone() -> None:
    async with shop(5) as (desk, orchestrator):
        await desk.define("one", reads=True, trust=False)
        heard = await say(orchestrator, act=approving(orchestrator, "once"))
        assert "trust" in heard.of("approval")[0]["decisions"]
        assert [await asked_about(orchestrator, "trust") for _ in "ab"] == [1, 0]
        # What people trust is the server: its tools may change.
        await desk.define("two", reads=True, trust=False)
        assert await asked_about(orchestrator) == 0
        await desk.define("three", reads=True, trust=True)
        assert await asked_about(orchestrator) == 0


@pytest.mark.rule("TURN-28")
async def test_refused_tool_that_says_it_only_reads_is_asked_about() -> None:
    async with shop(6) as (desk, orchestrator):
        await desk.define("one", reads=True, trust=False)
        assert await asked_about(orchestrator, "deny") == 1
        await desk.define("two", reads=True, trust=True)
        assert [await asked_about(orchestrator, "deny") for _ in "ab"] == [1, 1]
        assert desk.kept == []
        assert [await asked_about(orchestrator, "always") for _ in "ab"] == [1, 0]
        await desk.define("three", reads=True, trust=True)
        assert await asked_about(orchestrator, "deny") == 1
        assert len(desk.kept) == 2


@pytest.mark.rule("TURN-28", "COORD-78")
async def test_tool_that_was_listed_as_writing_goes_on_asking() -> None:
    async with shop(2) as (desk, orchestrator):
        await desk.define("writes", reads=False)
        await desk.define("reads", reads=True)
        assert [await asked_about(orchestrator) for _ in "ab"] == [1, 1]


@pytest.mark.rule("TURN-28")
async def test_refusal_ends_what_other_sessions_of_the_user_allow() -> None:
    desk, histories = Desk(), SharedHistories()
    async with chat(notes(4), desk, histories=histories) as orchestrator:
        shown = []
        for session, decision in (("one", "session"), ("two", "deny"), ("one", "once")):
            act = approving(orchestrator, decision, session)
            shown.append(len((await say(orchestrator, session=session, act=act)).of("approval")))
    assert shown == [2, 2, 2]
    assert len(desk.calls) == 2


@pytest.mark.rule("TURN-28")
async def test_hints_decide_nothing_while_decisions_are_not_known() -> None:
    class Away(MemoryHistories):
        async def decisions(self, session_id: str) -> Any:
            return None

    class Full(MemoryHistories):
        async def decisions(self, session_id: str) -> Any:
            return dict.fromkeys(map(str, range(1000)), "")

    for histories in (Away(), Full()):
        model = ScriptedModel([[call("desk:find", word="a")]])
        async with chat(model, histories=histories) as orchestrator:
            assert await asked_about(orchestrator) == 1


@pytest.mark.rule("TURN-20", "TURN-26")
async def test_call_that_waited_for_another_one_is_asked_about_as_it_is_now() -> None:
    model = ScriptedModel([[call("desk:drop"), call("desk:note", text="a")]])
    async with shop(model) as (desk, orchestrator):
        await desk.define("reads", reads=True)

        async def change(call_id: str) -> None:
            await desk.define("writes")
            assert orchestrator.approve("session", call_id, "deny")

        changing: list[asyncio.Task[None]] = []

        def begin(call_id: str) -> None:
            changing.append(asyncio.create_task(change(call_id)))

        await say(orchestrator, act=when_asked(begin))
        assert (len(changing), desk.kept) == (2, [])


@pytest.mark.rule("TURN-26")
async def test_call_whose_tool_has_gone_while_it_waited_does_not_run() -> None:
    model = ScriptedModel([[call("desk:note", text=each) for each in "ab"]])
    async with shop(model) as (desk, orchestrator):
        await desk.define("reads", reads=True, trust=False)

        async def change(call_id: str) -> None:
            await desk.remove()
            assert orchestrator.approve("session", call_id, "deny")

        changing: list[asyncio.Task[None]] = []

        def begin(call_id: str) -> None:
            changing.append(asyncio.create_task(change(call_id)))

        heard = await say(orchestrator, act=when_asked(begin))
        assert (len(changing), desk.kept) == (1, [])
    assert heard.outcomes()[1]["data"]["error"]["code"] == "CHANGED"


@pytest.mark.rule("TURN-26")
async def test_tool_that_changes_while_a_decision_is_kept_does_not_run() -> None:
    async with shop(1) as (desk, _):

        class Keeping(MemoryHistories):
            async def decide(self, session_id: str, subject: str, word: str) -> None:
                await desk.define("harmful")

        orchestrator = ConversationOrchestrator(notes(1), desk.coordinator, Keeping())
        await desk.define("harmless")
        heard = await say(orchestrator, act=approving(orchestrator, "always"))
        assert desk.kept == []
    assert heard.outcomes()[0]["data"]["error"]["code"] == "CHANGED"


@pytest.mark.rule("TURN-26")
async def test_definition_that_changes_while_people_are_asked_does_not_run() -> None:
    async with shop(1) as (desk, orchestrator):
        await desk.define("harmless")

        async def change(call_id: str) -> None:
            await desk.define("harmful")
            assert orchestrator.approve("session", call_id, "once")

        changing: list[asyncio.Task[None]] = []

        def begin(call_id: str) -> None:
            changing.append(asyncio.create_task(change(call_id)))

        heard = await say(orchestrator, act=when_asked(begin))
        await changing[0]
        assert desk.kept == []
    assert heard.outcomes()[0]["data"]["error"]["code"] == "CHANGED"


@pytest.mark.rule("TURN-19")
async def test_arguments_that_do_not_fit_are_nobody_s_question() -> None:
    model = ScriptedModel([[call("desk:note", wrong=1)]])
    async with chat(model) as orchestrator:
        heard = await say(orchestrator)
    assert heard.of("approval") == []
    assert heard.outcomes()[0]["data"]["error"]["code"] == "INVALID_ARGUMENT"
    assert "Invalid arguments for tool: desk:note" in (model.asked[1].last.content or "")
