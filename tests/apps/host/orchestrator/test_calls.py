"""Calls: unknown tools, repeats, progress, abort, results."""

from __future__ import annotations

import asyncio
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from foundation_rt import Server, ToolContext
from foundation_rt.apps.host import texts
from foundation_rt.apps.host.chat import Role
from foundation_rt.apps.host.events import ServerMessage
from tests.lab.host.chat import READS, Desk, ScriptedModel, approving, call, chat, problem, say
from tests.lab.waiting import until

pytestmark = pytest.mark.usefixtures("forked")


@pytest.mark.rule("TURN-30")
async def test_unknown_tool_has_nearest_names_and_the_third_takes_the_tools_away() -> None:
    desk = Desk()
    unknown = [call("desk:fin", word="a")]
    model = ScriptedModel([unknown, unknown, [*unknown, call("desk:find", word="a")], ["Sorry."]])
    async with chat(model, desk) as orchestrator:
        heard = await say(orchestrator)
    assert "Tool not found: desk:fin. Did you mean desk:find" in (model.asked[1].last.content or "")
    assert [bool(asked.tools) for asked in model.asked] == [True, True, True, False]
    assert desk.calls == []
    codes = [each["data"]["error"]["code"] for each in heard.outcomes()]
    assert codes == ["NOT_FOUND"] * 3 + ["NO_MORE_TOOLS"]
    assert heard.text == "Sorry."


@pytest.mark.rule("TURN-31")
async def test_call_with_one_result_too_often_takes_the_tools_away() -> None:
    desk = Desk()
    model = ScriptedModel([[call("desk:find", word="a")] for _ in range(4)] + [["Enough."]])
    async with chat(model, desk, max_repeats=4) as orchestrator:
        await say(orchestrator)
        assert [bool(asked.tools) for asked in model.asked] == [True] * 4 + [False]
        told = [
            "had this result 2 times. At 4" in (each.last.content or "") for each in model.asked
        ]
        assert told == [False, False, True, False, False]
        assert "No tool can be called" in (model.asked[4].last.content or "")
        # The next turn has them again, and counts anew.
        model.answers = [[call("desk:find", word="a")], ["Found."]]
        await say(orchestrator)
        assert model.asked[-1].tools


@pytest.mark.rule("TURN-31")
async def test_calls_that_differ_in_arguments_or_results_go_on() -> None:
    server, count = Server("count"), 0

    @server.tool(annotations=READS)
    def tick(step: int = 0) -> int:
        nonlocal count
        count += 1
        return count

    calls = [[call("count:tick")] for _ in range(4)]
    calls += [[call("count:tick", step=step)] for step in range(4)]
    model = ScriptedModel([*calls, ["done"]])
    async with chat(model, {"count": server}, max_repeats=3) as orchestrator:
        await say(orchestrator)
    assert all(asked.tools for asked in model.asked)


@pytest.mark.rule("TURN-17")
async def test_call_that_cannot_be_read_is_told_to_the_model_once() -> None:
    good = [call("desk:note", text="x")]
    model = ScriptedModel([[problem("no JSON")], good, [problem("unclosed")], [problem("again")]])
    async with chat(model) as orchestrator:
        heard = await say(orchestrator, act=approving(orchestrator))
    assert [asked.last.content for asked in (model.asked[1], model.asked[3])] == [
        "no JSON",
        "unclosed",
    ]
    assert len(model.asked) == 4
    assert model.asked[1].last.role is Role.SYSTEM
    assert heard.text == texts.UNREADABLE_CALL


@pytest.mark.virtual_time
@pytest.mark.rule("TURN-35")
async def test_progress_is_shown_ten_times_a_second_at_most_and_never_late() -> None:
    desk = Desk()
    model = ScriptedModel([[call("desk:report", steps=1000)]])
    times: list[float] = []
    async with chat(model, desk) as orchestrator:

        def note(event: ServerMessage) -> None:
            if event.type == "status" and "progress" in event.payload:
                times.append(asyncio.get_running_loop().time())

        heard = await say(orchestrator, act=note)
    assert all(later - earlier >= 0.099 for earlier, later in pairwise(times))
    assert 5 <= len(times) <= 15
    shown = [each["progress"]["progress"] for each in heard.of("status") if "progress" in each]
    assert shown == sorted(shown)
    assert heard.of("status")[-1]["state"] == "complete"
    first = next(each for each in heard.of("status") if "progress" in each)
    assert first["progress"] == {"progress": 0, "total": 1000, "message": "step 0"}
    assert first["data"] == {"arguments": {"steps": 1000}}


@pytest.mark.rule("TURN-35")
@pytest.mark.parametrize(("length", "repeats"), [(10, True), (5000, False)])
async def test_long_arguments_are_in_the_first_event_of_a_call_alone(
    length: int, repeats: bool
) -> None:
    model = ScriptedModel([[call("desk:note", text="x" * length)]])
    async with chat(model) as orchestrator:
        heard = await say(orchestrator, act=approving(orchestrator))
    first, second, _ = heard.of("status")
    assert "data" in first
    assert ("data" in second) is repeats
    assert heard.of("approval")[0]["arguments"] == {"text": "x" * length}


@pytest.mark.rule("TURN-35")
async def test_log_messages_of_a_call_are_shown() -> None:
    server = Server("talks")

    @server.tool(annotations=READS)
    def talk(ctx: ToolContext) -> None:
        ctx.log("warning", "low on paper")

    model = ScriptedModel([[call("talks:talk")]])
    async with chat(model, {"talks": server}, revision="2025-11-25") as orchestrator:
        heard = await say(orchestrator)
    assert "warning: low on paper" in [each["message"] for each in heard.of("status")]


@pytest.mark.rule("TURN-36")
async def test_one_call_can_be_ended_and_the_model_reads_it() -> None:
    desk = Desk()
    model = ScriptedModel([[call("desk:peek", "c1", text="a"), call("desk:peek", "c2", text="b")]])
    async with chat(model, desk) as orchestrator:

        async def abort() -> None:
            await until(lambda: desk.running >= 2, "two calls run")
            assert not orchestrator.abort_active_tool_execution("other", "c1")
            assert orchestrator.abort_active_tool_execution("session", "c1")
            desk.gate.set()

        aborting = asyncio.create_task(abort())
        heard = await say(orchestrator)
        await aborting
    ended = {each["callId"]: each["isError"] for each in heard.outcomes()}
    assert ended == {"c1": True, "c2": False}
    outcomes = {each.call_id: each.content or "" for each in model.asked[1].history}
    assert "the call was aborted" in outcomes["c1"]


@pytest.mark.rule("TURN-43")
async def test_server_that_dies_in_a_call_is_an_error_and_the_chat_goes_on() -> None:
    app = str(Path(__file__).parents[3] / "lab" / "apps" / "coordinated_app.py")
    entry = {"command": sys.executable, "args": [app, "fragile"]}
    model = ScriptedModel([[call("a:die"), call("a:nothing")], ["Sorry."], ["Still here."]])
    async with chat(model, {"a": entry}, approve_all=True) as orchestrator:
        heard = await say(orchestrator)
        assert [each["isError"] for each in heard.outcomes()] == [True, True]
        assert "It may have run" in (model.asked[1].history[-2].content or "")
        assert heard.text == "Sorry."
        assert (await say(orchestrator)).text == "Still here."


@pytest.mark.rule("TURN-37")
async def test_calls_have_the_turn_as_their_correlation_id() -> None:
    server, seen = Server("see"), list[str]()

    @server.tool(annotations=READS)
    def look(ctx: ToolContext) -> None:
        seen.append(ctx.correlation_id)

    async with chat(ScriptedModel([[call("see:look")]]), {"see": server}) as orchestrator:
        await say(orchestrator, turn="turn-7")
    assert seen == ["turn-7"]


@pytest.mark.rule("TURN-38")
@pytest.mark.parametrize(("isolation", "processes"), [(None, 1), ("session", 2)])
async def test_server_may_be_isolated_by_session(isolation: str | None, processes: int) -> None:
    app = str(Path(__file__).parents[3] / "lab" / "apps" / "coordinated_app.py")
    entry = {"command": sys.executable, "args": [app, "a"], "isolation": isolation}
    model = ScriptedModel()
    model.choose = lambda asked: ["done"] if len(asked.history) > 1 else [call("a:pid")]
    async with chat(model, {"a": entry}, approve_all=True) as orchestrator:
        heard = [await say(orchestrator, session=each) for each in ("one", "two")]
        found = {each.outcomes()[0]["data"]["result"]["content"][0]["text"] for each in heard}
        assert len(found) == processes
        await orchestrator.forget("one")
        await orchestrator.forget("two")
        again = await say(orchestrator, session="three")
        pid = again.outcomes()[0]["data"]["result"]["content"][0]["text"]
        assert (pid in found) is (processes == 1)


async def seen_of(tool: str, *, pictures: bool = False, **settings: Any) -> tuple[Any, Any]:
    """Return the outcome of a tool of `odd`, as the model and as people see it."""
    server = Server("odd")

    @server.tool(annotations=READS, output_schema=True)
    def table() -> dict[str, int]:
        return {"a": 1}

    @server.tool(annotations=READS)
    def nothing() -> None:
        return None

    @server.tool(annotations=READS)
    def long() -> str:
        return "word " * 100_000

    model = ScriptedModel([[call(tool)]], takes_pictures=pictures)
    async with chat(model, {"odd": server, "desk": Desk().server}, **settings) as orchestrator:
        heard = await say(orchestrator)
        assert orchestrator.get_history("session")[2].data["result"]
        return model.asked[1].last, heard.outcomes()[0]


@pytest.mark.rule("TURN-41")
async def test_pictures_are_pictures_where_the_model_takes_them() -> None:
    read, shown = await seen_of("desk:draw", pictures=True)
    assert read.metadata["pictures"] == [{"mimeType": "image/png", "data": "cG5n"}]
    read, shown = await seen_of("desk:draw")
    assert read.content == "[picture, image/png, 3 bytes: only people see it]"
    assert shown["data"]["result"]["content"][0]["data"] == "cG5n"


@pytest.mark.rule("TURN-42", "TURN-44")
async def test_long_result_is_cut_for_the_model_and_for_events() -> None:
    read, shown = await seen_of("odd:long")
    assert 7000 * 4 < len(read.content) <= 8000 * 4
    assert read.content.endswith("[cut here: the result is longer than what fits]")
    assert shown["data"]["isCut"]
    assert shown["data"]["bytes"] > 500_000
    assert len(str(shown["data"])) < 300_000
