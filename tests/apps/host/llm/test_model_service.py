"""The service of any provider: its answers, failures, deadlines and usage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest
from attrs import evolve

from foundation_rt import UsageError
from foundation_rt.apps.host.chat import TokenUsage
from foundation_rt.apps.host.llm import model_service
from foundation_rt.apps.host.llm.model_service import ModelService
from foundation_rt.apps.host.llm.provider import ModelRequest, Piece, TextPiece
from foundation_rt.apps.host.llm.providers import make_service
from foundation_rt.apps.host.llm.service import (
    MALFORMED_CALL,
    TEXT_MODE,
    LLMConfig,
    LLMFailure,
    LLMServiceError,
)
from tests.lab.models.chats import Chat, model_tool, options, shown, user, write_script
from tests.lab.models.plugins.script_model import ScriptProvider


def text(content: str) -> tuple[str, str]:
    return ("assistant", content)


@pytest.mark.rule("LLM-07", "LLM-18")
async def test_each_request_of_a_turn_gets_the_next_answer_in_each_chat(tmp_path: Path) -> None:
    call = {"call": "demo__echo", "arguments": {"message": "hi"}, "id": "c1"}
    config = write_script(tmp_path / "s", {"answers": [["I try.", call], {"echo": "result"}]})
    service = make_service(config)
    for name in ("a", "b"):
        chat = Chat(service, session_id=name)
        answer = await chat.say("go")
        assert shown(answer) == [text("I try."), ("demo:echo", {"message": "hi"})]
        assert answer[1].call_id == "c1"
        assert answer[1].metadata == {"answer": answer[0].id}
        assert shown(await chat.give(answer[1], "back")) == [text("back")]
        again = await chat.say("again")
        assert again[1].call_id not in ("c1", None)


@pytest.mark.rule("LLM-05")
async def test_failed_and_cut_answers_are_followed_by_those_of_retries(tmp_path: Path) -> None:
    fail = {"fail": "transient", "message": "busy", "retryAfter": 2}
    cut = ["half", {"call": "demo:echo"}, {"cut": True}]
    chat = Chat(make_service(write_script(tmp_path / "s", {"answers": [[fail], cut, "whole"]})))
    with pytest.raises(LLMServiceError, match="busy") as failed:
        await chat.say("go")
    assert (failed.value.failure, failed.value.retry_after) == (LLMFailure.TRANSIENT, 2)
    assert not failed.value.text_shown
    got = []
    with pytest.raises(LLMServiceError, match="broke off") as cut_off:
        async for each in chat.service.generate_chat_message(chat.history, (), {}, options()):
            got.append(each)  # noqa: PERF401 (what came before the failure counts)
    assert shown(got) == [text("half")]
    assert cut_off.value.text_shown
    assert cut_off.value.failure is LLMFailure.TRANSIENT
    assert shown(await chat.answer()) == [text("whole")]


@pytest.mark.rule("LLM-08")
async def test_unreadable_arguments_are_told_to_the_model(tmp_path: Path) -> None:
    calls = [{"call": "demo:echo", "arguments": each} for each in ('{"a"', "[1]", "")]
    chat = Chat(make_service(write_script(tmp_path / "s", calls)))
    broken, no_object, empty = await chat.say("go")
    for message in (broken, no_object):
        assert message.role == "system"
        assert message.metadata == {"problem": MALFORMED_CALL}
        assert "demo:echo" in (message.content or "")
    assert shown([empty]) == [("demo:echo", {})]


@pytest.mark.rule("LLM-17")
async def test_truncated_answer_says_so_and_a_refused_one_fails(tmp_path: Path) -> None:
    config = write_script(tmp_path / "s", ["a", {"truncated": True}], [{"refusal": "SAFETY"}])
    chat = Chat(make_service(config))
    (answer,) = await chat.say("x")
    assert (answer.content or "").startswith("a\n\n*(The answer ends here")
    with pytest.raises(LLMServiceError, match="SAFETY") as refused:
        await chat.say("y")
    assert refused.value.failure is LLMFailure.REFUSED


@pytest.mark.rule("LLM-42", "LLM-41")
async def test_refused_tools_lead_to_text_mode_at_once_and_for_good(tmp_path: Path) -> None:
    call = {"call": "demo:echo", "arguments": {"message": "```"}}
    refuse = [{"fail": "tools_unsupported"}]
    config = write_script(tmp_path / "s", {"answers": [refuse, ["Now:\n", call]]}, ["So: ", call])
    chat = Chat(make_service(config))
    expected = ("demo:echo", {"message": "```"})
    assert shown(await chat.say("go")) == [text("Now:"), expected]
    assert shown(await chat.say("go")) == [text("So:"), expected]


@pytest.mark.rule("LLM-02")
async def test_aborted_answer_ends_at_once(tmp_path: Path) -> None:
    service = make_service(write_script(tmp_path / "s", ["a", {"hang": True}]))
    stream = service.generate_chat_message([user("x")], (), {}, options())
    first = await anext(stream)
    assert first.content == "a"
    again = service.generate_chat_message([user("x")], (), {}, options(request_id="r2"))
    await anext(again)
    assert service.abort_generation("r2")  # between two pieces
    assert await anext(again, None) is None
    rest = asyncio.create_task(anext(stream, None))
    await asyncio.sleep(0)
    assert service.abort_generation("r")
    assert not service.abort_generation("r")
    assert await rest is None
    assert not service.abort_generation("r")
    assert service.get_token_usage("s") is not None
    await service.close()


@pytest.mark.rule("LLM-06")
@pytest.mark.virtual_time
async def test_answer_without_a_token_in_time_fails(tmp_path: Path) -> None:
    slow = [{"delayMs": 59_000}, "a", {"delayMs": 29_000}, "b", {"delayMs": 31_000}]
    config = write_script(tmp_path / "s", slow, [{"delayMs": 61_000}, "a"])
    chat = Chat(make_service(config))
    for found, failure in (("for 30 s", LLMFailure.STALLED), ("for 60 s", LLMFailure.TIMEOUT)):
        with pytest.raises(LLMServiceError, match=found) as failed:
            await chat.say("x")
        assert failed.value.failure is failure


class OddProvider(ScriptProvider):
    """A provider that fails as none should: its errors are of no kind that it knows."""

    error: Exception | None = None

    async def list_models(self) -> Sequence[str]:
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()
        return ()

    async def stream(self, model: str, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        yield TextPiece("a")
        raise ZeroDivisionError("a bug")


@pytest.mark.virtual_time
@pytest.mark.rule("LLM-04", "LLM-30")
async def test_errors_of_a_provider_that_are_bugs_are_not_hidden(tmp_path: Path) -> None:
    script = Path(write_script(tmp_path / "s", "a").model)
    provider = OddProvider(script)
    config = LLMConfig(provider="script", model="")
    with pytest.raises(UsageError, match="script does not list its models in time; name one"):
        await ModelService(provider, config).initialize()
    provider.error = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        await ModelService(provider, config).initialize()
    with pytest.raises(ZeroDivisionError):
        await Chat(ModelService(provider, evolve(config, model="m"))).say("x")


@pytest.mark.rule("LLM-119")
async def test_answer_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_service, "MAX_ANSWER_BYTES", 9)
    chat = Chat(make_service(write_script(tmp_path / "s", [{"text": "four", "times": 3}])))
    with pytest.raises(LLMServiceError, match="longer than 9 bytes") as failed:
        await chat.say("x")
    assert (failed.value.failure, failed.value.text_shown) == (LLMFailure.REFUSED, True)


@pytest.mark.rule("LLM-97", "LLM-41")
@pytest.mark.parametrize("tool_mode", ["auto", TEXT_MODE])
@pytest.mark.parametrize("said", ["<thi", "``"])
async def test_text_that_might_have_become_something_else_is_shown_at_the_end(
    tmp_path: Path, tool_mode: str, said: str
) -> None:
    config = write_script(tmp_path / "s", [said])
    service = make_service(evolve(config, tool_mode=tool_mode))
    assert shown(await Chat(service).say("x")) == [text(said)]


@pytest.mark.rule("LLM-08")
async def test_long_schema_is_cut_where_the_model_is_told_of_its_call(tmp_path: Path) -> None:
    call = {"call": "a:b", "arguments": "{"}
    tool = model_tool("a:b", "B.", x={"description": "y" * 9_000})
    chat = Chat(make_service(write_script(tmp_path / "s", [call])), [tool])
    (told,) = await chat.say("go")
    assert (told.content or "").endswith("y [cut here by the host]")
    assert len(told.content or "") < 8_500


@pytest.mark.rule("LLM-62")
async def test_usage_is_counted_by_session_as_reported_else_estimated(tmp_path: Path) -> None:
    usage = {"usage": {"promptTokens": 10, "completionTokens": 2}}
    config = write_script(tmp_path / "s", ["a", usage], ["a" * 40])
    service = make_service(config)
    chat = Chat(service)
    await chat.say("x")
    assert service.get_token_usage("s") == TokenUsage(10, 2)
    await chat.say("y")
    total = service.get_token_usage("s")
    assert total is not None
    assert total.is_estimated
    assert total.prompt_tokens > 20
    assert total.completion_tokens > 2 + 5
    assert service.get_token_usage("other") is None
    service.forget_usage("s")
    assert service.get_token_usage("s") is None
