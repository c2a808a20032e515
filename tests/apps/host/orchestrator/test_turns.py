"""Turns: text, rounds, bounds, their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from foundation_rt import Server
from foundation_rt.apps.coordinator import Coordinator
from foundation_rt.apps.host import texts
from foundation_rt.apps.host.chat import THOUGHT, ChatMessage, Role
from foundation_rt.apps.host.events import ServerMessage
from foundation_rt.apps.host.orchestrator import (
    ConversationOrchestrator,
    MemoryHistories,
    answers,
)
from foundation_rt.apps.host.orchestrator.scope import EventBuffer
from foundation_rt.errors import UsageError
from tests.lab.checks.leaks import tasks
from tests.lab.host.chat import Desk, Heard, ScriptedModel, approving, call, chat, say, when_asked
from tests.lab.waiting import until


@pytest.mark.rule("TURN-01", "TURN-10")
async def test_turn_streams_text_and_keeps_it() -> None:
    async with chat(ScriptedModel([["Hel", "lo."]])) as orchestrator:
        heard = await say(orchestrator, "hi", turn="t")
        assert [event.type for event in heard.events] == ["user", "turn", *["text"] * 3, "turn"]
        assert {event.turn_id for event in heard.events} == {"t"}
        assert heard.text == "Hello."
        assert [payload["done"] for payload in heard.of("text")] == [False, False, True]
        usage = {"promptTokens": 10, "completionTokens": 1, "totalTokens": 11, "isEstimated": False}
        assert heard.end == {"state": "finished", "usage": usage}
        assert (await say(orchestrator)).end["usage"] == usage  # of this turn alone
        kept = orchestrator.get_history("session")
        assert [(each.role, each.content) for each in kept[:2]] == [
            (Role.USER, "hi"),
            (Role.ASSISTANT, "Hello."),
        ]
        assert kept[1].id == heard.of("text")[0]["messageId"]


@pytest.mark.rule("TURN-39")
async def test_first_turn_waits_for_servers_that_start() -> None:
    desk, opened = Desk(), asyncio.Event()

    @desk.server.lifespan
    async def late(server: Server) -> AsyncIterator[None]:
        await opened.wait()
        yield

    model = ScriptedModel([["hello"]])
    coordinator = Coordinator({"desk": desk.server})
    coordinator.start()
    try:
        orchestrator = ConversationOrchestrator(model, coordinator, MemoryHistories())
        begun = asyncio.Event()
        saying = asyncio.create_task(say(orchestrator, act=lambda _: begun.set()))
        await begun.wait()
        assert (model.asked, coordinator.states["desk"].state) == ([], "starting")
        opened.set()
        assert (await saying).end["state"] == "finished"
        assert "desk:note" in [tool.name for tool in model.asked[0].tools]
    finally:
        await coordinator.close()


class LoggedHistories(MemoryHistories):
    """Histories that note when what was stored."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[tuple[float, Any]] = []

    async def add_message(self, session_id: str, message: Any) -> None:
        await asyncio.sleep(0)
        self.stored.append((asyncio.get_running_loop().time(), message))
        await super().add_message(session_id, message)


@pytest.mark.virtual_time
@pytest.mark.rule("TURN-11")
async def test_streamed_text_is_stored_within_a_second_and_whole_at_its_end() -> None:
    histories = LoggedHistories()
    steps = ["a", 0.3, "b", 3, "c", 0.1, "d", 5]
    shown: list[tuple[float, str]] = []
    async with chat(ScriptedModel([steps]), {}, histories=histories) as orchestrator:

        def note(event: ServerMessage) -> None:
            if event.type == "text" and event.payload["content"]:
                now = asyncio.get_running_loop().time()
                shown.append((now, event.payload["content"]))

        await say(orchestrator, act=note)
    stored = [(at, each) for at, each in histories.stored if each.role is Role.ASSISTANT]
    assert len({each.id for _, each in stored}) == 1
    text = ""
    for at, piece in shown:
        text += piece
        assert any(each.content.startswith(text) and when - at <= 1 for when, each in stored)
    assert stored[-1][1].content == "abcd"
    assert len(stored) <= 4


def thought(text: str) -> ChatMessage:
    """Return a piece of a thought."""
    return ChatMessage(id="th", role=Role.ASSISTANT, content=text, metadata={THOUGHT: True})


@pytest.mark.rule("TURN-90")
async def test_thought_is_shown_as_such_and_read_by_no_model() -> None:
    histories = MemoryHistories()
    steps = [thought("No"), thought("ise."), "Look", "ing.", call("desk:find", "c1", word="a")]
    model = ScriptedModel([steps, [thought("Only this.")]])
    async with chat(model, histories=histories) as orchestrator:

        def check(event: ServerMessage) -> None:
            if event.type == "text" and event.payload.get(THOUGHT):
                kept = {each.id: each for each in histories.get_history("session")}
                assert kept[event.payload["messageId"]].metadata[THOUGHT] is True

        heard = await say(orchestrator, act=check)
    kept = histories.get_history("session")
    said = [each["content"] for each in heard.of("text") if THOUGHT not in each]
    assert said == ["Look", "ing.", "", texts.NO_ANSWER]
    assert [each.content for each in kept if THOUGHT in each.metadata] == ["Noise.", "Only this."]
    assert "Noise" not in str(model.asked[1].history)
    histories.forget("session")
    assert not histories.get_history("session")


@pytest.mark.rule("TURN-01", "TURN-18")
async def test_everything_but_streamed_text_is_stored_before_it_is_shown() -> None:
    histories = MemoryHistories()
    model = ScriptedModel([[call("desk:find", "c1", word="a")], ["done"]])
    async with chat(model, histories=histories) as orchestrator:

        def check(event: ServerMessage) -> None:
            kept = histories.get_history("session")
            if event.type == "user":
                assert kept[0].id == event.payload["messageId"]
            elif event.type == "status":
                about = [each for each in kept if each.call_id == event.payload["callId"]]
                assert len(about) >= (1 if event.payload["state"] == "processing" else 2)

        heard = await say(orchestrator, act=check)
        assert [payload["state"] for payload in heard.of("status")] == ["processing", "complete"]


@pytest.mark.rule("TURN-02", "TURN-18", "LLM-50")
async def test_call_runs_and_its_result_goes_back() -> None:
    model = ScriptedModel([["Looking. ", call("desk:find", "c1", word="a")], ["Nothing."]])
    async with chat(model) as orchestrator:
        heard = await say(orchestrator)
        assert heard.text == "Looking. Nothing."
        processing, complete = heard.of("status")
        assert processing["data"] == {"arguments": {"word": "a"}}
        assert (complete["isError"], complete["tool"]) == (False, "desk:find")
        assert complete["data"]["result"]["content"][0]["type"] == "text"
        first, second = model.asked
        assert [each.role for each in second.history] == ["user", "assistant", "assistant", "tool"]
        assert "found a" in (second.last.content or "")
        assert {each.name: each.is_read_only for each in first.tools}["desk:find"]
        assert first.tools[0].outside_name.startswith("desk__")
        assert first.prompts == {}  # it has no guidance, and its tools are declared


@pytest.mark.rule("TURN-03")
async def test_after_the_last_round_the_model_answers_without_tools() -> None:
    model = ScriptedModel([[call("desk:find", word=str(n))] for n in range(3)] + [["That is it."]])
    async with chat(model, max_rounds=3) as orchestrator:
        heard = await say(orchestrator)
    assert heard.text == "That is it."
    assert [bool(asked.tools) for asked in model.asked] == [True, True, True, False]
    assert "No tool can be called" in (model.asked[3].last.content or "")
    assert "No tool can be called" not in (model.asked[2].last.content or "")


@pytest.mark.rule("TURN-34")
async def test_model_that_calls_without_tools_is_refused_and_the_turn_ends() -> None:
    desk = Desk()
    model = ScriptedModel([[call("desk:find", word="a")] for _ in range(10)])
    async with chat(model, desk, max_rounds=1) as orchestrator:
        heard = await say(orchestrator)
    assert len(model.asked) == 3
    assert [each["isError"] for each in heard.outcomes()] == [False, True, True]
    assert desk.calls == [("find", "a")]
    assert heard.end["state"] == "finished"


@pytest.mark.rule("TURN-05")
async def test_calls_beyond_the_most_are_left_out_and_the_model_is_told() -> None:
    desk = Desk()
    model = ScriptedModel([[call("desk:find", word=str(n)) for n in range(20)]])
    async with chat(model, desk) as orchestrator:
        heard = await say(orchestrator)
    assert len(desk.calls) == len(heard.outcomes()) == 16
    told = model.asked[1].last
    assert (told.role, told.content) == (
        Role.SYSTEM,
        "At most 16 calls of one answer run: 4 were left out.",
    )


@pytest.mark.rule("TURN-04")
async def test_tools_that_read_run_side_by_side() -> None:
    desk = Desk()
    model = ScriptedModel([[call("desk:peek", f"c{n}", text=str(n)) for n in range(3)]])
    async with chat(model, desk) as orchestrator:

        async def watch() -> None:
            await until(lambda: desk.running >= 3, "three calls run")
            desk.gate.set()

        watching = asyncio.create_task(watch())
        await say(orchestrator)
        await watching
    assert desk.most_running == 3
    assert [each.call_id for each in model.asked[1].history[-3:]] == ["c0", "c1", "c2"]


@pytest.mark.rule("TURN-04")
async def test_calls_run_in_order_if_one_of_them_writes() -> None:
    desk = Desk()
    desk.gate.set()
    calls = [call("desk:peek", text="1"), call("desk:note", text="2"), call("desk:peek", text="3")]
    async with chat(ScriptedModel([calls]), desk, approve_all=True) as orchestrator:
        await say(orchestrator)
    assert desk.calls == [("peek", "1"), ("note", "2"), ("peek", "3")]
    assert desk.most_running == 1


@pytest.mark.virtual_time
@pytest.mark.rule("TURN-06")
async def test_turn_that_takes_too_long_fails() -> None:
    async with chat(ScriptedModel([["a", asyncio.Event()]])) as orchestrator:
        heard = await say(orchestrator)
    assert (heard.end["state"], heard.end["code"]) == ("failed", "TURN_TIMEOUT")
    assert (heard.text, heard.end["message"]) == ("a", texts.turn_timeout(600))
    assert heard.end["message"] == texts.turn_timeout(600)


@pytest.mark.virtual_time
@pytest.mark.rule("TURN-06")
async def test_waiting_for_people_is_no_time_of_the_turn() -> None:
    model = ScriptedModel([[call("desk:note", text=str(n))] for n in range(3)])
    async with chat(model) as orchestrator:
        loop = asyncio.get_running_loop()
        began = loop.time()

        def later(call_id: str) -> None:
            loop.call_later(290, orchestrator.approve, "session", call_id, "once")

        heard = await say(orchestrator, act=when_asked(later))
        assert heard.end["state"] == "finished"
        assert loop.time() - began > 600


@pytest.mark.rule("TURN-07")
async def test_stop_ends_the_model_and_keeps_what_it_said() -> None:
    model = ScriptedModel([["I think ", call("desk:find", word="a"), asyncio.Event()]])
    async with chat(model) as orchestrator:

        def stop(event: ServerMessage) -> None:
            if event.type == "text" and not event.payload["done"]:
                assert orchestrator.stop("session")
                assert not orchestrator.stop("session")

        heard: Heard = await say(orchestrator, act=stop)
        assert heard.end["state"] == "stopped"
        assert heard.of("text")[-1]["done"]
        assert model.running == 0
        # A call of an answer that did not end was never made.
        assert [each.content for each in orchestrator.get_history("session")] == [
            "hello",
            "I think ",
        ]
        assert not orchestrator.stop("session")


@pytest.mark.rule("TURN-07")
async def test_stop_ends_calls_and_their_servers_are_notified() -> None:
    desk = Desk()
    model = ScriptedModel([[call("desk:peek", "c1", text="a"), call("desk:peek", "c2", text="b")]])
    async with chat(model, desk) as orchestrator:

        async def stop_when_running() -> None:
            await until(lambda: desk.running >= 2, "two calls run")
            orchestrator.stop("session")

        stopping = asyncio.create_task(stop_when_running())
        heard = await say(orchestrator)
        await stopping
        assert heard.end["state"] == "stopped"
        errors = [each["data"]["error"]["code"] for each in heard.outcomes()]
        assert errors == ["STOPPED", "STOPPED"]
        await until(lambda: len(desk.aborted) >= 2, "both calls are aborted")
        # The next turn goes on: the history is whole.
        desk.gate.set()
        heard = await say(orchestrator, "go on")
        assert heard.end["state"] == "finished"
        outcomes = [each for each in model.asked[-1].history if each.role is Role.TOOL]
        assert ["It may have run" in (each.content or "") for each in outcomes] == [True, True]


@pytest.mark.rule("TURN-07", "TURN-22")
async def test_stop_ends_an_approval_and_the_call_did_not_run() -> None:
    desk = Desk()
    async with chat(ScriptedModel([[call("desk:note", text="a")]]), desk) as orchestrator:
        heard = await say(orchestrator, act=when_asked(lambda _: orchestrator.stop("session")))
        asked, ended = heard.of("approval")
        assert ended == {"callId": asked["callId"], "decision": "stopped"}
        assert "It did not run" in (orchestrator.get_history("session")[-1].content or "")
        assert not orchestrator.approve("session", asked["callId"], "once")
    assert desk.calls == []


@pytest.mark.rule("TURN-08")
@pytest.mark.parametrize("at", ["user", "text", "approval", "status"])
async def test_closing_the_generator_ends_everything(at: str) -> None:
    desk, histories = Desk(), MemoryHistories()
    model = ScriptedModel([["text", call("desk:hold", text="a")]])
    async with chat(model, desk, histories=histories) as orchestrator:
        before = set(tasks())
        events = orchestrator.handle_input("session", "hello", turn_id="t", message_id="m")
        async for event in events:
            if event.type == at:
                break
        await events.aclose()
        assert set(tasks()) <= before
        assert model.running == desk.running == 0
        kept = histories.get_history("session")
        assert kept[0].id == "m"
        assert len([each for each in kept if each.is_call]) == len(
            outcomes := [each for each in kept if each.role is Role.TOOL]
        )
        assert {each.data["error"]["code"] for each in outcomes} <= {"INTERRUPTED"}
        desk.gate.set()
        assert (await say(orchestrator, act=approving(orchestrator))).end["state"] == "finished"


@pytest.mark.rule("TURN-08")
async def test_cancelled_reader_ends_everything() -> None:
    model = ScriptedModel([["text", asyncio.Event()]])
    async with chat(model) as orchestrator:
        started = asyncio.Event()

        def note(event: ServerMessage) -> None:
            if event.type == "text":
                started.set()

        reading = asyncio.create_task(say(orchestrator, act=note))
        await started.wait()
        before = len(asyncio.all_tasks())
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert len(asyncio.all_tasks()) < before
        assert model.running == 0
        assert orchestrator.get_history("session")[-1].content == "text"


class SlowHistories(MemoryHistories):
    """Histories that take 8 s to keep an outcome, and 8 s to leave that."""

    async def add_message(self, session_id: str, message: Any) -> None:
        if message.role is Role.TOOL:
            try:
                await asyncio.sleep(8)
            except asyncio.CancelledError:
                await asyncio.sleep(8)
        await super().add_message(session_id, message)


@pytest.mark.virtual_time
@pytest.mark.rule("TURN-08")
async def test_turn_is_left_when_its_end_cannot_be_stored_in_time() -> None:
    model, loop = ScriptedModel([[call("desk:hold", text="a")]]), asyncio.get_running_loop()
    async with chat(model, histories=SlowHistories(), approve_all=True) as orchestrator:
        started = asyncio.Event()

        def note(event: ServerMessage) -> None:
            if event.payload.get("message") == "Calling desk:hold":
                started.set()

        reading = asyncio.create_task(say(orchestrator, act=note))
        await started.wait()
        began = loop.time()
        reading.cancel()
        await asyncio.sleep(1)
        reading.cancel()  # whoever waits for the end goes on waiting
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert 5 <= loop.time() - began < 8
        assert not orchestrator.stop("session")


@pytest.mark.rule("TURN-10")
async def test_pieces_without_text_are_not_shown_and_what_they_have_is_kept() -> None:
    signed = ChatMessage(id="s", role=Role.ASSISTANT, content="", metadata={"test": "signature"})
    model = ScriptedModel([["", "a", ""], [signed], [""]])
    async with chat(model) as orchestrator:
        heard = [await say(orchestrator) for _ in range(3)]
        kept = [each for each in orchestrator.get_history("session") if each.role is not Role.USER]
    assert [each["content"] for each in heard[0].of("text")] == ["a", ""]
    assert [each.text for each in heard[1:]] == [texts.NO_ANSWER] * 2
    assert [each.content for each in kept] == ["a", "", texts.NO_ANSWER, texts.NO_ANSWER]
    assert kept[1].metadata["test"] == "signature"


@pytest.mark.rule("TURN-10")
async def test_model_that_does_not_stop_is_read_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "MAX_ANSWER_CHARACTERS", 10)
    model = ScriptedModel([["four"] * 20])
    async with chat(model) as orchestrator:
        assert (await say(orchestrator)).text == "four" * 3


@pytest.mark.rule("TURN-01")
async def test_events_wait_for_a_slow_reader() -> None:
    buffer = EventBuffer("t")
    while buffer.has_room:
        await buffer.put("text", {})
    putting = asyncio.create_task(buffer.put("user", {}))
    closed = asyncio.create_task(buffer.put("turn", {}))
    await asyncio.sleep(0)
    assert not putting.done()
    assert await buffer.next()
    await putting
    buffer.close()
    await closed  # nobody reads it any more
    kinds = [event.type async for event in _all(buffer)]
    assert (kinds[-1], "turn" in kinds) == ("user", False)


async def _all(buffer: EventBuffer) -> AsyncIterator[ServerMessage]:
    while (event := await buffer.next()) is not None:
        yield event


@pytest.mark.rule("TURN-09")
async def test_session_has_one_turn_at_a_time_and_sessions_have_theirs_at_once() -> None:
    model = ScriptedModel()
    gates = {"a": asyncio.Event(), "b": asyncio.Event()}
    model.choose = lambda asked: [asked.options.session_id, gates[asked.options.session_id]]
    async with chat(model) as orchestrator:
        turns = {each: asyncio.create_task(say(orchestrator, session=each)) for each in gates}
        await until(lambda: model.running >= 2, "two turns run")
        with pytest.raises(UsageError, match="a turn of this session is running"):
            await say(orchestrator, session="a")
        assert not orchestrator.stop("c")
        assert orchestrator.stop("a")
        gates["b"].set()
        assert (await turns["a"]).end["state"] == "stopped"
        assert (await turns["b"]).end["state"] == "finished"
        assert (await turns["b"]).text == "b"


@pytest.mark.rule("TURN-12")
@pytest.mark.parametrize("error", [ValueError("secret"), TimeoutError("secret")])
async def test_unexpected_error_ends_the_turn_and_is_not_shown(error: Exception) -> None:
    model = ScriptedModel([[error], ["fine"]])
    async with chat(model) as orchestrator:
        heard = await say(orchestrator)
        assert (heard.end["state"], heard.end["code"]) == ("failed", "INTERNAL")
        assert (heard.text, heard.end["message"]) == ("", texts.INTERNAL_ERROR)
        assert (await say(orchestrator)).text == "fine"


@pytest.mark.rule("TURN-14")
async def test_ids_that_a_model_repeats_are_replaced() -> None:
    again = [call("desk:find", "call_0", word="a"), call("desk:find", "call_0", word="b")]
    model = ScriptedModel([again, [call("desk:find", "call_0", word="c")]])
    async with chat(model) as orchestrator:
        heard = await say(orchestrator)
        kept = orchestrator.get_history("session")
    assert len({each["callId"] for each in heard.outcomes()}) == 3
    assert len({each.id for each in kept}) == len(kept)
    for each in [message for message in kept if message.is_call]:
        (outcome,) = [m for m in kept if m.call_id == each.call_id and m.role is Role.TOOL]
        assert f"found {each.data['arguments']['word']}" in (outcome.content or "")


@pytest.mark.rule("TURN-32", "TURN-33")
async def test_host_says_something_if_the_model_does_not() -> None:
    model = ScriptedModel([[], [call("desk:fail", message="broken")], [], ["ok"]])
    async with chat(model) as orchestrator:
        assert (await say(orchestrator)).text == texts.NO_ANSWER
        heard = await say(orchestrator)
        assert heard.text.startswith("I encountered an error when using the desk:fail tool: ")
        assert "broken" in heard.text
        await say(orchestrator)
        said = [each.content for each in model.asked[-1].history if each.role is Role.ASSISTANT]
        assert said == [None]  # the call alone


class FailingHistories(MemoryHistories):
    """Histories that cannot keep outcomes."""

    async def add_message(self, session_id: str, message: Any) -> None:
        if message.role is Role.TOOL:
            raise OSError("secret path")
        await super().add_message(session_id, message)


@pytest.mark.rule("TURN-12")
async def test_history_that_fails_ends_the_turn() -> None:
    calls = [call("desk:find", word="a"), call("desk:peek", text="b")]
    model, desk = ScriptedModel([calls]), Desk()
    async with chat(model, desk, histories=FailingHistories()) as orchestrator:
        heard = await say(orchestrator)
        assert (heard.end["state"], heard.end["code"]) == ("failed", "INTERNAL")
        assert "secret" not in str(heard.events)
        assert model.running == 0
        assert not orchestrator.stop("session")
        desk.gate.set()
