"""Requests to the model that fail; summaries; what fits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from foundation_rt.apps.host import texts
from foundation_rt.apps.host.chat import ChatMessage, Role
from foundation_rt.apps.host.llm.failures import FAILURES
from foundation_rt.apps.host.llm.service import LLMFailure, LLMServiceError
from foundation_rt.apps.host.orchestrator import HistoryManagementOptions
from foundation_rt.apps.host.orchestrator.turn import older_part
from tests.lab.host.chat import ScriptedModel, call, chat, say


def failing(failure: LLMFailure = LLMFailure.TRANSIENT, **more: Any) -> LLMServiceError:
    return LLMServiceError("503", failure=failure, model="m", **more)


async def waits(model: ScriptedModel, draw: float = 1.0) -> tuple[Any, float]:
    """Return how a turn ended, and how long it took."""
    async with chat(model, {}, more={"draw": lambda: draw}) as orchestrator:
        loop = asyncio.get_running_loop()
        began = loop.time()
        heard = await say(orchestrator)
        return heard, round(loop.time() - began, 2)


@pytest.mark.virtual_time
@pytest.mark.rule("TURN-15")
async def test_transient_failures_are_tried_again_three_times() -> None:
    heard, took = await waits(ScriptedModel([[failing()]] * 3 + [["Here."]]))
    assert (heard.text, heard.end["state"], took) == ("Here.", "finished", 7.0)
    heard, took = await waits(ScriptedModel([[failing()]] * 3 + [["Here."]]), draw=0.0)
    assert took == 3.5  # each is drawn from the upper half
    heard, took = await waits(ScriptedModel([[failing()]] * 9))
    assert (heard.text, took) == ("", 7.0)
    assert (heard.end["state"], heard.end["code"]) == ("failed", "LLM_ERROR")
    assert heard.end["message"] == "503"


@pytest.mark.virtual_time
@pytest.mark.rule("TURN-81")
async def test_wait_for_a_retry_is_said_until_it_is_over() -> None:
    heard, _ = await waits(ScriptedModel([[failing(retry_after=19.2)], ["Here."]]))
    waiting = {"state": "started", "message": "503 It is tried again in 20 s."}
    started, going = {"state": "started"}, heard.of("turn")[:-1]
    assert going == [started, waiting, started]


@pytest.mark.virtual_time
@pytest.mark.rule("TURN-15")
async def test_provider_that_asks_for_time_gets_it_up_to_a_minute() -> None:
    _, took = await waits(ScriptedModel([[failing(retry_after=20)], ["Here."]]))
    assert took == 20.0
    heard, took = await waits(ScriptedModel([[failing(retry_after=61)], ["Here."]]))
    assert (heard.end["state"], took) == ("failed", 0.0)


@pytest.mark.virtual_time
@pytest.mark.rule("TURN-15", "TURN-80")
@pytest.mark.parametrize("failure", LLMFailure)
async def test_kind_of_a_failure_says_whether_it_is_tried_again(failure: LLMFailure) -> None:
    model = ScriptedModel([[failing(failure)], ["Here."]])
    heard, _ = await waits(model)
    assert heard.end["state"] == ("finished" if FAILURES[failure].is_tried_again else "failed")
    assert heard.end.get("retry", True) is FAILURES[failure].may_retry
    # The provider may still be at work on a request that has only not been answered in time.
    assert len(model.asked) == 1 or failure is not LLMFailure.TIMEOUT


@pytest.mark.virtual_time
@pytest.mark.rule("TURN-15")
async def test_calls_of_an_answer_that_broke_off_are_not_made() -> None:
    model = ScriptedModel([[call("desk:find", "c1", word="a"), failing()], ["Here."]])
    async with chat(model) as orchestrator:
        heard = await say(orchestrator)
    assert (heard.text, heard.of("status")) == ("Here.", [])


@pytest.mark.virtual_time
@pytest.mark.rule("TURN-16")
@pytest.mark.parametrize("failure", [LLMFailure.BAD_KEY, LLMFailure.UNKNOWN_MODEL])
async def test_what_a_person_has_to_change_is_said_at_once(failure: LLMFailure) -> None:
    heard, took = await waits(ScriptedModel([[failing(failure, advice="Set OPENAI_API_KEY.")]]))
    assert (heard.end["message"], took) == ("503 Set OPENAI_API_KEY.", 0.0)
    assert (heard.text, heard.end["state"]) == ("", "failed")


@pytest.mark.virtual_time
@pytest.mark.rule("TURN-16")
async def test_model_that_dies_after_text_was_shown_is_not_asked_again() -> None:
    model = ScriptedModel([["Hel", failing(text_shown=True)], ["again"]])
    async with chat(model, {}) as orchestrator:
        heard = await say(orchestrator)
        assert (heard.text, heard.end["state"]) == ("Hel", "interrupted")
        assert (heard.end["code"], heard.end["message"]) == ("LLM_ERROR", "503")
        assert orchestrator.get_history("session")[-1].content == "Hel"


@pytest.mark.virtual_time
@pytest.mark.rule("TURN-16")
async def test_text_of_an_earlier_answer_is_no_reason_not_to_try_again() -> None:
    answers = [["Looking. ", call("desk:find", word="a")], [failing()], ["Found."]]
    async with chat(ScriptedModel(answers)) as orchestrator:
        assert (await say(orchestrator)).text == "Looking. Found."


@pytest.mark.virtual_time
@pytest.mark.rule("TURN-07")
async def test_stop_ends_the_wait_for_another_try() -> None:
    async with chat(ScriptedModel([[failing()]] * 4), {}) as orchestrator:
        asyncio.get_running_loop().call_later(0.6, orchestrator.stop, "session")
        assert (await say(orchestrator)).end["state"] == "stopped"


@pytest.mark.rule("TURN-33")
async def test_words_of_the_host_are_kept_and_no_model_reads_them() -> None:
    model = ScriptedModel([[], ["ok"]])
    async with chat(model, {}) as orchestrator:
        assert (await say(orchestrator, "one")).text == texts.NO_ANSWER
        assert orchestrator.get_history("session")[-1].content == texts.NO_ANSWER
        await say(orchestrator, "two")
    assert [each.content for each in model.asked[1].history] == ["one", "two"]


@pytest.mark.rule("TURN-50")
async def test_request_fits_with_tools_and_guidance_counted() -> None:
    model = ScriptedModel([["word " * 400] for _ in range(12)])
    options = HistoryManagementOptions(max_token_count=4000)
    async with chat(model, history=options) as orchestrator:
        for number in range(12):
            await say(orchestrator, f"question {number}")
        last = model.asked[-1].history
        assert last[-1].content == "question 11"
        assert 3 <= len(last) < 23
        narrow = HistoryManagementOptions(max_token_count=2500)
        assert 1 <= len(orchestrator.prune_history("session", narrow)) < len(last)
        fixed = sum(len(str(tool)) for tool in model.asked[-1].tools) // 4
        tokens = sum(len(each.content or "") for each in last) // 4
        assert fixed + tokens < 4500


@pytest.mark.rule("TURN-50")
async def test_history_has_a_quarter_however_many_tools_there_are() -> None:
    model = ScriptedModel([["word " * 40] for _ in range(9)])
    options = HistoryManagementOptions(max_token_count=400)
    async with chat(model, history=options) as orchestrator:
        for number in range(9):
            await say(orchestrator, f"question {number}")
    assert [each.content for each in model.asked[-1].history][-1] == "question 8"
    assert len(model.asked[-1].history) > 1


@pytest.mark.rule("TURN-56", "TURN-58")
async def test_older_part_is_summarised_on_request() -> None:
    model = ScriptedModel()
    model.choose = lambda asked: (
        ["They talked."] if "Summarise" in (asked.last.content or "") else ["word " * 100]
    )
    options = HistoryManagementOptions(summarization_threshold=500, retain_newest_messages=3)
    async with chat(model, {}, history=options) as orchestrator:
        for number in range(6):
            await say(orchestrator, f"question {number}")
        summaries = [asked for asked in model.asked if "Summarise" in (asked.last.content or "")]
        assert summaries
        assert not summaries[0].tools
        last = model.asked[-1].history
        assert last[0].role is Role.SYSTEM
        assert "They talked." in (last[0].content or "")
        assert last[-1].content == "question 5"
        assert last[1].role is Role.USER
        # People still have all of it.
        said = [each.content for each in orchestrator.get_history("session")]
        assert [f"question {number}" for number in range(6)] == [
            each for each in said if each and each.startswith("question")
        ]


@pytest.mark.rule("TURN-58")
def test_older_part_ends_before_a_question() -> None:
    roles = [Role.USER, Role.ASSISTANT, Role.USER, Role.ASSISTANT, Role.TOOL]
    history = [ChatMessage(id=f"m{at}", role=role) for at, role in enumerate(roles)]
    found = [len(older_part(history, retained)) for retained in range(1, 7)]
    assert found == [2, 2, 2, 0, 0, 0]


@pytest.mark.rule("TURN-58")
async def test_summary_without_end_is_cut_and_notes_of_a_host_are_read() -> None:
    model = ScriptedModel()
    model.choose = lambda asked: (
        ["x" * 40_000] * 3 if "Summarise" in (asked.last.content or "") else ["word " * 100]
    )
    options = HistoryManagementOptions(summarization_threshold=1, retain_newest_messages=3)
    async with chat(model, {}, history=options) as orchestrator:
        for number in range(3):
            await say(orchestrator, f"question {number}")
        assert len(model.asked) == 4  # at first there was nothing older
        kept = [each for each in orchestrator.get_history("session") if each.role is Role.SYSTEM]
        assert [len(each.content or "") < 5_000 for each in kept] == [True]
        await orchestrator.add_message_to_history(
            "session", orchestrator.create_system_message("Be brief.", {"of": "a host"})
        )
        await say(orchestrator, "question 3")
        read = model.asked[-1].history
        assert [each.metadata["of"] for each in read if each.content == "Be brief."] == ["a host"]


@pytest.mark.rule("TURN-58")
@pytest.mark.parametrize("nothing", [[failing()], [], [call("desk:find", word="a")]])
async def test_summary_that_fails_is_left_out(nothing: Sequence[Any]) -> None:
    model = ScriptedModel([["word " * 100], ["word " * 100], nothing, ["fine"]])
    options = HistoryManagementOptions(summarization_threshold=200, retain_newest_messages=1)
    async with chat(model, {}, history=options) as orchestrator:
        for number in range(3):
            heard = await say(orchestrator, f"question {number}")
    assert heard.text.startswith(("fine", "word"))
    assert heard.end["state"] == "finished"
