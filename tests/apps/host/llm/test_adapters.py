"""The adapters, through the vendors' SDKs, against fakes of their wires."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from foundation_rt import UsageError
from foundation_rt.apps.host.chat import ChatMessage, TokenUsage
from foundation_rt.apps.host.llm import call_assembly, vendor
from foundation_rt.apps.host.llm.model_service import ModelService
from foundation_rt.apps.host.llm.providers import make_service
from foundation_rt.apps.host.llm.service import (
    MALFORMED_CALL,
    TEXT_MODE,
    LLMFailure,
    LLMServiceError,
)
from tests.lab.models.chats import ECHO as ECHO_TOOL
from tests.lab.models.chats import SLEEP as SLEEP_TOOL
from tests.lab.models.chats import (
    TOOLS,
    Chat,
    model_tool,
    options,
    result_of,
    shown,
    user,
    write_script,
)
from tests.lab.models.fake_models import KEY, FakeModels
from tests.lab.sizes import size

PROVIDERS = ("openai", "gemini", "anthropic")
every_provider = pytest.mark.parametrize("provider", PROVIDERS)

ECHO = {"call": "demo__echo", "arguments": {"message": 'ä "q" \\ 😀'}, "id": "c1"}
SLEEP = {"call": "demo__sleep", "arguments": {"ms": 5}, "id": "c2"}
USAGE = {"usage": {"promptTokens": 40, "completionTokens": 6}}
ANSWERS = (
    ["I l", "ook – ", "now.", ECHO, SLEEP, USAGE],
    ["Again:", {"call": "nowhere__tool", "arguments": {}, "id": "c3"}, USAGE],
    ["Done", " 😀.", USAGE],
)


@pytest.fixture
def fake() -> FakeModels:
    return FakeModels(ANSWERS)


async def play(service: ModelService) -> tuple[list[Any], TokenUsage | None]:
    """Have the chat of the script; return its transcript and its usage."""
    chat = Chat(service)
    answer = await chat.say("go")
    transcript = shown(answer)
    for content in ("went wrong", "ok"):
        calls = [each for each in answer if each.is_call]
        for call in calls[:-1]:
            chat.history.append(_failed(call))
        answer = await chat.give(calls[-1], content)
        transcript += shown(answer)
    return transcript, service.get_token_usage("s")


def _failed(call: ChatMessage) -> ChatMessage:
    return result_of(call, "failed", {"error": {"code": "X", "message": "failed"}})


def text_answer(steps: list[Any]) -> list[Any]:
    """Return an answer of the script as a model writes it in text mode."""
    written = []
    for step in steps:
        if isinstance(step, dict) and "call" in step:
            call = {"tool": step["call"].replace("__", ":"), "arguments": step["arguments"]}
            written.append(f"\n```tool\n{json.dumps(call)}\n```")
        else:
            written.append(step)
    return written


async def reference(tmp_path: Path) -> list[Any]:
    """Return the transcript of the script without any wire."""
    config = write_script(tmp_path / "script", {"answers": ANSWERS})
    return (await play(make_service(config)))[0]


@every_provider
@pytest.mark.rule("LLM-01", "LLM-05", "LLM-62")
@pytest.mark.parametrize("bytes_at_once", [None, size(3, 1)])
async def test_one_script_gives_one_transcript(
    provider: str, bytes_at_once: int | None, fake: FakeModels, tmp_path: Path
) -> None:
    fake.bytes_at_once = bytes_at_once
    transcript, usage = await play(fake.service(provider))
    assert transcript == await reference(tmp_path)
    assert usage == TokenUsage(120, 18)
    assert len(fake.requests) == 3


@every_provider
@pytest.mark.rule("LLM-01", "LLM-41")
async def test_text_mode_gives_the_same_transcript(
    provider: str, fake: FakeModels, tmp_path: Path
) -> None:
    fake.play(*map(text_answer, ANSWERS))
    fake.bytes_at_once = 7
    transcript, _ = await play(fake.service(provider, tool_mode=TEXT_MODE))
    expected = await reference(tmp_path)
    assert [
        each if each[0] != "nowhere:tool" else ("nowhere__tool", {}) for each in transcript
    ] == expected
    wire = json.dumps(fake.requests[-1].body, ensure_ascii=False)
    assert "Error of demo:echo:" in wire
    assert not any(word in wire for word in ("tool_use", "tool_calls", "functionCall"))


@every_provider
@pytest.mark.rule("LLM-05")
async def test_answer_cut_at_any_byte_leaves_no_call(provider: str, fake: FakeModels) -> None:
    fake.play(["I l", "ook.", ECHO])
    service = fake.service(provider)
    whole = ["I look.", ("demo:echo", ECHO["arguments"])]
    cut_at, failures = 0, 0
    while True:
        fake.cut_at = cut_at
        got: list[Any] = []
        try:
            async for each in service.generate_chat_message([user("x")], TOOLS, {}, options()):
                got.append(each)  # noqa: PERF401 (what came before the failure counts)
        except LLMServiceError as error:
            assert error.failure is LLMFailure.TRANSIENT
            assert error.text_shown == bool(got)
            assert not any(each.is_call for each in got)
            assert "I look.".startswith("".join(each.content or "" for each in got))
            failures += 1
        else:
            texts = "".join(each.content or "" for each in got if not each.is_call)
            assert [texts, *shown([each for each in got if each.is_call])] == whole
            if not failures or (got and fake.hung_up >= 0 and cut_at > 4000):
                break
        cut_at += size(43, 1)
    assert failures > size(5, 300)


FAILURES = [
    (
        429,
        "slow down",
        LLMFailure.RATE_LIMIT,
        r"\(429\)\. It says: slow down\. It asks to wait 7 s",
    ),
    (500, "oops", LLMFailure.SERVER_ERROR, "oops"),
    (529, "overloaded", LLMFailure.SERVER_ERROR, "overloaded"),
    (401, f"Incorrect API key provided: {KEY}", LLMFailure.BAD_KEY, "refuses the key"),
    (400, f"API key not valid: {KEY}", LLMFailure.BAD_KEY, "refuses the key"),
    (404, "The model `fake-1` does not exist", LLMFailure.UNKNOWN_MODEL, "no model 'fake-1'"),
    (400, f"bad: \n\x00 {KEY} " + "x" * 9000, LLMFailure.BAD_REQUEST, r"bad: \[REDACTED\] x"),
    (400, "too many tokens", LLMFailure.TOO_LONG, "too many tokens"),
]


@every_provider
@pytest.mark.rule("LLM-30", "LLM-31", "LLM-32", "LLM-33")
async def test_refusals_are_told_apart_and_show_no_key(
    provider: str, fake: FakeModels, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    service = fake.service(provider)
    for status, message, failure, said in FAILURES:
        refusal = {"status": status, "message": message, "headers": {"Retry-After": "7"}}
        fake.play([refusal])
        count = len(fake.requests)
        with pytest.raises(LLMServiceError, match=said) as failed:
            await Chat(service).say("x")
        error = failed.value
        assert (error.failure, error.text_shown, error.model) == (failure, False, "fake-1")
        assert error.retry_after == 7
        assert len(error.for_people) < 900
        assert KEY not in f"{error!r} {error.for_people} {service!r} {error.__context__!r}"
        assert len(fake.requests) == count + 1, "the SDK asked again"
    assert KEY not in caplog.text


@every_provider
@pytest.mark.rule("LLM-30")
async def test_server_that_is_gone_and_one_that_resets(provider: str, fake: FakeModels) -> None:
    service = fake.service(provider, base_url="http://127.0.0.1:9/v1")
    with pytest.raises(LLMServiceError, match="Nothing answers at http") as failed:
        await Chat(service).say("x")
    assert failed.value.failure is LLMFailure.UNREACHABLE
    fake.play(["a", {"reset": True}])
    service = fake.service(provider)
    with pytest.raises(LLMServiceError) as failed:
        await Chat(service).say("x")
    assert failed.value.failure is LLMFailure.TRANSIENT


@every_provider
@pytest.mark.rule("LLM-06", "LLM-02")
@pytest.mark.parametrize(
    ("steps", "failure"),
    [([{"hang": True}], LLMFailure.TIMEOUT), (["a", {"hang": True}], LLMFailure.STALLED)],
)
async def test_answer_that_hangs_fails_and_closes_its_connection(
    provider: str, steps: list[Any], failure: LLMFailure, fake: FakeModels
) -> None:
    fake.play(steps)
    limits = {"first_token_timeout_ms": 400, "token_timeout_ms": 50}
    service = fake.service(provider, **limits)
    with pytest.raises(LLMServiceError, match="has written nothing for") as failed:
        await Chat(service).say("x")
    assert failed.value.failure is failure
    assert failed.value.text_shown is (len(steps) == 2)
    await fake.gone.wait()


async def _close(service: ModelService, stream: Any) -> None:
    await stream.aclose()


async def _cancel(service: ModelService, stream: Any) -> None:
    task = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    task.cancel()
    assert isinstance(
        (await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError
    )


async def _abort(service: ModelService, stream: Any) -> None:
    task = asyncio.create_task(anext(stream, None))
    await asyncio.sleep(0)
    assert service.abort_generation("r")
    assert await task is None


async def _close_service(service: ModelService, stream: Any) -> None:
    task = asyncio.create_task(anext(stream, None))
    await asyncio.sleep(0)
    await service.close()
    assert await task is None


@every_provider
@pytest.mark.rule("LLM-02")
@pytest.mark.parametrize("end", [_close, _cancel, _abort, _close_service])
async def test_ended_answer_closes_its_connection(
    provider: str, end: Callable[..., Any], fake: FakeModels
) -> None:
    fake.play(["a", {"hang": True}])
    service = fake.service(provider)
    stream = service.generate_chat_message([user("x")], TOOLS, {}, options())
    async with aclosing(stream):
        assert (await anext(stream)).content == "a"
        await end(service, stream)
        await fake.gone.wait()
    usage = service.get_token_usage("s")
    assert usage is not None
    assert usage.total_tokens > 0


@every_provider
@pytest.mark.rule("LLM-42")
@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "registry.ollama.ai/library/x:latest does not support tools"),
        (404, "No endpoints found that support tool use"),
        (400, "Function calling is not enabled for models/x"),
        (500, "tools param requires --jinja flag"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice to be set'),
        (400, "This model doesn't support tool use."),
        (400, "`tools` is not supported in this model"),
        (400, "deepseek-reasoner does not support Function Calling"),
    ],
)
async def test_provider_without_tools_is_used_in_text_mode(
    provider: str,
    status: int,
    message: str,
    fake: FakeModels,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake.play([{"status": status, "message": message}], text_answer(["a", ECHO]), ["b"])
    chat = Chat(fake.service(provider))
    answer = await chat.say("x")
    assert shown(answer)[1] == ("demo:echo", ECHO["arguments"])
    assert shown(await chat.give(answer[1], "c")) == [("assistant", "b")]
    assert ["tools" in each.body for each in fake.requests] == [True, False, False]
    assert caplog.text.count("calls are written as text") == 1


@every_provider
@pytest.mark.rule("LLM-117")
@pytest.mark.parametrize(
    "message",
    ["x does not support tools", "tool name demo__echo is wrong", "the schema is wrong"],
)
async def test_refusal_that_its_change_does_not_mend_changes_nothing_for_others(
    provider: str, message: str, fake: FakeModels
) -> None:
    service, tools = fake.service(provider), (evolve(ECHO_TOOL, description="x" * 3000),)
    fake.play(["a"], [{"status": 400, "message": message}], [{"status": 400, "message": "no"}])
    await Chat(service, tools).say("x")
    with pytest.raises(LLMServiceError, match="no"):
        await Chat(service, tools).say(f"What means {message!r}?")
    fake.play(["b"])
    await Chat(service, tools).say("x")
    before, *_, after = [each.body for each in fake.requests]
    assert before == after


@every_provider
@pytest.mark.rule("LLM-08", "LLM-42")
@pytest.mark.parametrize(
    ("status", "message"),
    [
        (500, "error parsing tool call: raw='{', err=unexpected end of JSON input"),
        (400, "Failed to call a function. Please adjust your prompt."),
        (500, "Failed to parse tool call arguments as JSON: [json.exception.parse_error.101]"),
    ],
)
async def test_call_that_its_server_cannot_read_is_told_to_the_model(
    provider: str, status: int, message: str, fake: FakeModels
) -> None:
    fake.play([{"status": status, "message": message}], [ECHO])
    chat = Chat(fake.service(provider))
    (told,) = await chat.say("x")
    assert told.metadata == {"problem": MALFORMED_CALL}
    assert message[:20] in (told.content or "")
    assert shown(await chat.answer()) == [("demo:echo", ECHO["arguments"])]
    assert all("tools" in each.body for each in fake.requests)


REFUSED = [
    (400, "Invalid schema for function 'demo__sleep': array schema missing items."),
    (400, "Invalid 'tools[1].function.description': string too long. Expected at most 1024."),
    (400, "tools.1.custom.input_schema.properties: Property keys should match pattern '^x$'"),
    (400, "* GenerateContentRequest.tools[0].function_declarations[1].parameters: missing field"),
    (400, "Invalid request: function name demo__sleep is invalid, it is a tool name of mine"),
]


@every_provider
@pytest.mark.rule("LLM-112", "LLM-42")
@pytest.mark.parametrize(("status", "message"), REFUSED)
async def test_tool_that_a_vendor_refuses_is_cut_and_then_left_out_alone(
    provider: str, status: int, message: str, fake: FakeModels, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    refusal = [{"status": status, "message": message}]
    fake.play(refusal, refusal, refusal, [ECHO], ["b"])
    wordy = evolve(SLEEP_TOOL, description="x" * 3000)
    chat = Chat(fake.service(provider), (ECHO_TOOL, wordy))
    answer = await chat.say("x")
    assert shown(answer) == [("demo:echo", ECHO["arguments"])]
    sent = [json.dumps(each.body["tools"]) for each in fake.requests]
    assert ["x" * 3000 in each for each in sent] == [True, False, False, False]
    assert ["x" * 900 in each for each in sent] == [True, True, True, False]
    assert ["demo__sleep" in each for each in sent] == [True, True, True, False]
    assert all("demo__echo" in each for each in sent)
    assert "demo:sleep" in caplog.text and "left out" in caplog.text
    await chat.give(answer[0], "c")
    assert "demo__sleep" not in json.dumps(fake.requests[-1].body)


@every_provider
@pytest.mark.rule("LLM-113")
async def test_refusal_that_names_no_tool_makes_all_simple_and_then_fails(
    provider: str, fake: FakeModels
) -> None:
    nested = {"a": {"type": "object", "properties": {"b": {"type": "string"}}}}
    tool = model_tool("demo:nested", "Nested.", **nested)
    refusal = [{"status": 400, "message": "JSON schema conversion failed: unrecognized schema"}]
    fake.play(refusal, refusal, ["a"])
    chat = Chat(fake.service(provider), (ECHO_TOOL, tool))
    assert shown(await chat.say("x")) == [("assistant", "a")]
    sent = [json.dumps(each.body["tools"]) for each in fake.requests]
    assert ['"b"' in each for each in sent] == [True, True, False]
    assert all("demo__echo" in each and "demo__nested" in each for each in sent)
    fake.play(refusal)
    with pytest.raises(LLMServiceError, match="conversion failed") as failed:
        await Chat(fake.service(provider)).say("x")
    assert failed.value.failure is LLMFailure.BAD_REQUEST
    assert len(fake.requests) == 6


@every_provider
@pytest.mark.rule("LLM-04")
async def test_only_model_is_found_and_several_have_to_be_named(
    provider: str, fake: FakeModels
) -> None:
    service = fake.service(provider, model="")
    if provider == "gemini":
        assert service.label == "gemini:gemini-flash-latest"
        return
    await service.initialize()
    assert service.label == f"{provider}:fake-1"
    for models, said in (
        (
            ["b", "a"],
            r"lists several models \(a, b\); name one: --model .*:NAME, or LLM_MODEL=NAME",
        ),
        ([f"m{each:02}" for each in range(30)], "m19 and 10 more"),
        ([], "lists no model"),
    ):
        fake.models = models
        service = fake.service(provider, model="")
        with pytest.raises(UsageError, match=said):
            await service.initialize()
        with pytest.raises(LLMServiceError, match="as it is configured") as failed:
            await Chat(service).say("x")
        assert "LLM_MODEL" in failed.value.advice
    for url, said in (
        ("http://127.0.0.1:9", r"does not list its models .*LLM_MODEL=NAME"),
        ("http://x:y", f"the base URL of {provider} is none"),
    ):
        with pytest.raises(UsageError, match=said):
            await fake.service(provider, model="", base_url=url).initialize()


@every_provider
@pytest.mark.rule("LLM-09")
async def test_new_key_is_used_from_the_next_request_on(provider: str, fake: FakeModels) -> None:
    fake.play(["a"])
    chat = Chat(fake.service(provider, api_key="before-its-start"))
    chat.service.set_api_key(KEY)
    await chat.say("x")
    chat.service.set_api_key("another-key-0000")
    await chat.say("y")
    assert [each.key for each in fake.requests] == [KEY, "another-key-0000"]


@every_provider
@pytest.mark.rule("LLM-03")
async def test_package_is_imported_once_in_a_thread(
    provider: str, fake: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported: list[tuple[str, bool]] = []
    real = vendor.import_module

    def record(name: str) -> Any:
        imported.append((name, threading.current_thread() is threading.main_thread()))
        return real(name)

    monkeypatch.setattr(vendor, "import_module", record)
    service = fake.service(provider)
    assert not imported
    await asyncio.gather(*(service.initialize() for _ in range(3)))
    assert [each for each in imported if each[0] != "httpx2"] == [
        (service._provider.package, False)
    ]


@every_provider
@pytest.mark.rule("LLM-17")
async def test_limit_and_refusal_of_the_provider_are_told(provider: str, fake: FakeModels) -> None:
    fake.play(["a", {"truncated": True}], ["b", {"refusal": "x"}])
    chat = Chat(fake.service(provider))
    assert "limit of tokens" in shown(await chat.say("x"))[0][1]
    with pytest.raises(LLMServiceError, match=r"has ended the answer\. It says: \w") as failed:
        await chat.say("y")
    assert failed.value.failure is LLMFailure.REFUSED


@pytest.mark.rule("LLM-08", "LLM-26")
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_unreadable_and_endless_arguments_are_malformed(
    provider: str, fake: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_assembly, "MAX_CALL_CHARACTERS", 1000)
    fake.play([{**ECHO, "arguments": '{"a": '}, {**SLEEP, "arguments": {"a": "x" * 1000}}])
    chat = Chat(fake.service(provider))
    broken, endless = await chat.say("x")
    for message, said in ((broken, "no JSON"), (endless, "more than 1000")):
        assert message.metadata == {"problem": MALFORMED_CALL}
        assert said in (message.content or "")


@pytest.mark.rule("LLM-116", "LLM-117")
async def test_server_that_wants_a_chat_otherwise_gets_it_so(fake: FakeModels) -> None:
    system = {"status": 400, "message": "System role not supported"}
    tools = {
        "status": 400,
        "message": "Bedrock doesn't support tool calling without `tools=` param",
    }
    chat = Chat(fake.service("openai", system_prompt="Be brief."))
    fake.play([system], [{"status": 400, "message": "not mended"}])
    with pytest.raises(LLMServiceError, match="not mended"):
        await chat.say("x")
    fake.play([system], [ECHO], [tools], ["a"], ["b"])
    (asked,) = await chat.say("x")
    chat.tools = ()
    assert shown(await chat.give(asked, "y")) == [("assistant", "a")]
    assert shown(await chat.say("z")) == [("assistant", "b")]
    roles = [each.body["messages"][0]["role"] for each in fake.requests]
    assert roles == ["system", "user"] * 2 + ["user"] * 3
    for request in (fake.requests[3], fake.requests[5], fake.requests[6]):
        first = request.body["messages"][0]
        assert first["role"] == "user" and first["content"].startswith("Be brief.")
    last = fake.requests[-1].body
    assert [each["function"]["name"] for each in last["tools"]] == ["demo__echo"]
    assert last["tool_choice"] == "none"


@pytest.mark.rule("LLM-27")
async def test_server_that_reports_no_usage_is_asked_without(fake: FakeModels) -> None:
    fake.play([{"status": 400, "message": "unknown field stream_options"}], ["a"])
    chat = Chat(fake.service("openai"))
    await chat.say("x")
    await chat.say("y")
    assert ["stream_options" in each.body for each in fake.requests] == [True, False, False]
    usage = chat.service.get_token_usage("s")
    assert usage is not None
    assert usage.is_estimated


@pytest.mark.rule("LLM-08", "LLM-17", "LLM-30")
async def test_what_gemini_alone_says_is_understood(fake: FakeModels) -> None:
    chat = Chat(fake.service("gemini"))
    fake.play([{"finish": "MALFORMED_FUNCTION_CALL"}])
    (broken,) = await chat.say("x")
    assert broken.metadata == {"problem": MALFORMED_CALL}
    fake.play([{"blocked": "SAFETY"}])
    with pytest.raises(LLMServiceError, match="SAFETY") as failed:
        await chat.say("x")
    assert failed.value.failure is LLMFailure.REFUSED
    fake.play([{"status": 429, "message": "slow down", "retryDelay": "34s"}])
    with pytest.raises(LLMServiceError) as failed:
        await chat.say("x")
    assert failed.value.retry_after == 34
    fake.play([{"status": 429, "message": "slow down", "retryDelay": "soon"}])
    with pytest.raises(LLMServiceError) as failed:
        await chat.say("x")
    assert failed.value.retry_after is None
    assert await chat.service._provider.list_models() == ["fake-1"]


@every_provider
@pytest.mark.rule("LLM-31")
async def test_refused_tools_that_were_not_sent_are_a_bad_request(
    provider: str, fake: FakeModels
) -> None:
    fake.play([{"status": 400, "message": "tools are not supported"}])
    with pytest.raises(LLMServiceError) as failed:
        await Chat(fake.service(provider), ()).say("x")
    assert failed.value.failure is LLMFailure.BAD_REQUEST
