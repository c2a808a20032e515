"""What servers really stream: each dialect, and streams that no document describes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.host.chat import THOUGHT, ChatMessage
from foundation_rt.apps.host.llm import vendor
from foundation_rt.apps.host.llm.anthropic import AnthropicAnswer, AnthropicProvider
from foundation_rt.apps.host.llm.model_service import ModelService
from foundation_rt.apps.host.llm.openai import OpenAIAnswer, OpenAIProvider
from foundation_rt.apps.host.llm.provider import ModelRequest, Piece, TextPiece, ThoughtPiece
from foundation_rt.apps.host.llm.service import (
    MALFORMED_CALL,
    LLMConfig,
    LLMFailure,
    LLMServiceError,
)
from foundation_rt.apps.host.llm.text_mode import ThinkParser
from tests.lab.models.chats import TOOLS, Chat, model_tool, result_of
from tests.lab.models.dialects import DIALECTS, SIGNED, Traits, encoded
from tests.lab.models.fake_models import FakeModels
from tests.lab.sizes import size

LIST = model_tool("demo:list")
ANY = model_tool("demo:any", any_={})
ALL = (*TOOLS, LIST, ANY)
HUGE = {"any": [1234567890123456789, 10**24 + 1, 1.0, -0.5, '}]"\\{ ä😀']}
CALLS = (
    {"call": "demo__any", "arguments": HUGE, "id": "functions.any:0"},
    {"call": "demo__list", "arguments": {}, "id": "c2"},
    {"call": "demo__echo", "arguments": {"message": "<think> é"}, "id": "c3"},
)
ANSWER = ({"thought": "Both, I think."}, "I ", "look.", *CALLS)
every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def read_of(messages: Sequence[ChatMessage]) -> tuple[str, str, list[Any], list[str]]:
    """Return the thought, the text, the calls, and what the model is told of others."""
    texts = {True: "", False: ""}
    for message in messages:
        if not message.is_call and "problem" not in message.metadata:
            texts[THOUGHT in message.metadata] += message.content or ""
    calls = [(m.tool_name, m.data["arguments"]) for m in messages if m.is_call]
    told = [m.content or "" for m in messages if m.metadata.get("problem") == MALFORMED_CALL]
    return texts[True], texts[False], calls, told


def written(calls: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [(each["call"].replace("__", ":"), each["arguments"]) for each in calls]


@every_dialect
@pytest.mark.rule("LLM-90", "LLM-93", "LLM-94", "LLM-95", "LLM-96", "LLM-97")
async def test_calls_arrive_as_they_were_written(dialect: str) -> None:
    pieces = size(3, 1)
    async with FakeModels([ANSWER, ["Done."]], dialect=dialect, bytes_at_once=pieces) as fake:
        chat = Chat(fake.service(DIALECTS[dialect].wire), ALL)
        answer = await chat.say("go")
        thought, text, calls, told = read_of(answer)
        assert (thought, text, told) == ("Both, I think.", "I look.", [])
        assert json.dumps(calls) == json.dumps(written(CALLS))
        fake.play(["Done."])
        assert [m.content for m in await give(chat, answer)] == ["Done."]
        assert "Both, I think." not in str(read_of(chat.history[-1:]))


async def give(chat: Chat, answer: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Give the outcomes of the calls of an answer; return the next answer."""
    calls = [each for each in answer if each.is_call]
    chat.history += [result_of(each, "ok") for each in calls[:-1]]
    return await chat.give(calls[-1], "ok")


THINKING = {
    "deepseek": {"reasoning_content": "Both, I think."},
    "vllm": {"reasoning": "Both, I think."},
    "openrouter": {
        "reasoning": "Both, I think.",
        "reasoning_details": [
            {
                "type": "reasoning.text",
                "text": "Both, I think.",
                "index": 0,
                "format": "x",
                "signature": "signed",
            }
        ],
    },
    "mistral": {
        "content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": "Both, I think."}]},
            {"type": "text", "text": "I look."},
        ]
    },
    "lmstudio": {"content": "I look."},
}


@pytest.mark.parametrize("dialect", THINKING)
@pytest.mark.rule("LLM-98", "LLM-97")
async def test_thoughts_go_back_as_their_server_wrote_them(dialect: str) -> None:
    async with FakeModels([ANSWER, ["Done."]], dialect=dialect) as fake:
        chat = Chat(fake.service("openai"), ALL)
        await give(chat, await chat.say("go"))
        sent = fake.requests[-1].body["messages"]
        (own,) = [each for each in sent if each["role"] == "assistant"]
        own.pop("tool_calls")
        assert own == {"role": "assistant", "content": "I look.", **THINKING[dialect]}


@pytest.mark.rule("LLM-98")
async def test_signature_of_a_call_goes_back_to_the_same_model_alone() -> None:
    async with FakeModels([ANSWER, ["Done."]], dialect="gemini-openai") as fake:
        chat = Chat(fake.service("openai"), ALL)
        await give(chat, await chat.say("go"))
        chat.service = fake.service("openai", model="another")
        await chat.answer()
        for request, extra in zip(fake.requests[1:], (SIGNED, None), strict=True):
            own = next(m for m in request.body["messages"] if m["role"] == "assistant")
            assert [each.get("extra_content") for each in own["tool_calls"]] == [extra] * 3


@pytest.mark.rule("LLM-98")
async def test_blocks_of_thought_stand_before_what_anthropic_said() -> None:
    async with FakeModels([ANSWER, ["Done."]]) as fake:
        chat = Chat(fake.service("anthropic"), ALL)
        await give(chat, await chat.say("go"))
        _, own, _ = fake.requests[-1].body["messages"]
        block = {"type": "thinking", "thinking": "Both, I think.", "signature": "signed"}
        assert own["content"][0] == block
        kinds = [each["type"] for each in own["content"]]
        assert kinds == ["thinking", "text", "tool_use", "tool_use", "tool_use"]


@pytest.mark.rule("LLM-123")
@pytest.mark.parametrize("dialect", ["openrouter", "mistral", "anthropic", "gemini-openai"])
async def test_chat_goes_on_where_what_the_model_wanted_back_is_refused(dialect: str) -> None:
    async with FakeModels([ANSWER], dialect=dialect) as fake:
        chat = Chat(fake.service(DIALECTS[dialect].wire), ALL)
        answer = await chat.say("go")
        refuse = [{"status": 400, "message": "messages.1.content.0: Invalid `signature`"}]
        fake.play(refuse, ["Done."])
        assert [m.content for m in await give(chat, answer) if m.is_said] == ["Done."]
        sent = [str(each.body) for each in fake.requests[1:]]
        assert [any(own in each for own in ("I think", "c2lnbmVk")) for each in sent] == [
            True,
            False,
        ]
        fake.play(refuse)
        with pytest.raises(LLMServiceError, match="Invalid"):
            await chat.say("more")
        assert len(fake.requests) == 5


@pytest.mark.rule("LLM-27")
async def test_server_that_refuses_thoughts_gets_none() -> None:
    async with FakeModels([ANSWER]) as fake:
        chat = Chat(fake.service("openai"), ALL)
        answer = await chat.say("go")
        refusal = "messages.1: property 'reasoning_content' is unsupported"
        fake.play([{"status": 400, "message": refusal}], ["Done."])
        assert [m.content for m in await give(chat, answer)] == ["Done."]
        assert ["reasoning_content" in str(each.body) for each in fake.requests] == [
            False,
            True,
            False,
        ]


# -- any stream


@frozen
class Bytes:
    """A response of these chunks."""

    chunks: Sequence[bytes]
    headers: Mapping[str, str] = {"content-type": "text/event-stream"}

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            yield chunk


async def answer_of(wire: str, chunks: Sequence[bytes]) -> list[ChatMessage]:
    """Return the answer that a stream of chunks is."""
    base, reader = {
        "openai": (OpenAIProvider, OpenAIAnswer),
        "anthropic": (AnthropicProvider, AnthropicAnswer),
    }[wire]

    class Replayed(base):  # type: ignore[valid-type, misc]
        async def connect(self) -> None:
            """Need no client."""

        async def _pieces(self, model: str, request: ModelRequest) -> AsyncGenerator[Piece, None]:
            async for piece in self._read(Bytes(chunks), reader(request.tool_names, model), model):
                yield piece

    config = LLMConfig(provider=wire, model="m")
    return await Chat(ModelService(Replayed(config), config), ALL).say("go")


def cut(data: bytes, at: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted({each % (len(data) + 1) for each in at}), len(data)]
    return [data[one:other] for one, other in pairwise(edges)]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
ANY_CALLS = st.lists(
    st.one_of(
        st.builds(lambda v: {"call": "demo__any", "arguments": {"any": v}}, VALUES),
        st.just({"call": "demo__list", "arguments": {}}),
        st.builds(lambda v: {"call": "demo__echo", "arguments": {"message": v}}, st.text()),
    ),
    max_size=4,
).map(lambda calls: [{**each, "id": f"c{at}"} for at, each in enumerate(calls)])
KNOWN = [traits for traits in DIALECTS.values() if traits.wire != "gemini"]
STREAMS = st.sampled_from(KNOWN) | st.builds(
    Traits,
    wire=st.sampled_from(["openai", "anthropic"]),
    first_index=st.integers(0, 2),
    index=st.sampled_from(["call", "none", "same", "piece"]),
    ids=st.sampled_from(["first", "each", "new", "none"]),
    name=st.sampled_from(["whole", "pieces", "repeated"]),
    opening=st.sampled_from(["text", "null", "missing", "{}", "object"]),
    piece=st.sampled_from([0, 1, 3, 9, 100]),
    nothing=st.sampled_from(["{}", "null", ""]),
    finish=st.sampled_from([None, "missing", "", "unknown"]),
    has_usage=st.booleans(),
    is_one_object=st.booleans(),
    thought=st.sampled_from(["reasoning", "reasoning_details", "think", "parts"]),
    noise=st.sampled_from([b"", b": alive\r\n\r\n", b"data:\n\n", b"data: 7\n\n"]),
)


@pytest.mark.rule("LLM-90", "LLM-91", "LLM-92")
@given(ANY_CALLS, STREAMS, st.lists(st.integers(0, 10**6), max_size=8))
def test_call_never_has_arguments_that_the_model_did_not_write(
    calls: list[Any], traits: Traits, at: list[int]
) -> None:
    if traits not in KNOWN:
        traits = without_ambiguity(traits)
    data = b"".join(each for each in encoded(["a", *calls], traits) if isinstance(each, bytes))
    _, text, got, told = read_of(asyncio.run(answer_of(traits.wire, cut(data, at))))
    assert text == "a"
    known = {tool.name for tool in ALL}
    told += [name for name, _ in got if name not in known]  # TURN-30
    rest = iter(json.dumps(each) for each in written(calls))
    assert all(json.dumps(each) in rest for each in got if each[0] in known), (got, written(calls))
    assert len(got) == len(calls) or (told and traits not in KNOWN)


def without_ambiguity(traits: Traits) -> Traits:
    """Return traits with which two answers of different calls are never the same bytes."""
    has_no_key = traits.ids in ("none", "new") and traits.index != "call"
    if traits.index == "same" or has_no_key:
        traits = evolve(traits, nothing="{}")
    if has_no_key and traits.index != "same":
        traits = evolve(traits, name="whole")
    if traits.opening == "{}" and traits.name == "repeated":
        traits = evolve(traits, name="whole")
    return traits


def stream(*parts: Any, finish: str | None = "tool_calls", end: bytes = b"") -> list[bytes]:
    """Return a stream of /chat/completions with these parts of calls."""
    deltas: list[Any] = [{"content": "a"}, *({"tool_calls": [part]} for part in parts)]
    choices = [{"delta": each} for each in deltas] + ([{"finish_reason": finish}] if finish else [])
    return [f"data: {json.dumps({'choices': [each]})}\n\n".encode() for each in choices] + [end]


def part(arguments: Any, name: str = "demo__echo", call_id: str = "c1") -> Any:
    return {"index": 0, "id": call_id, "function": {"name": name, "arguments": arguments}}


@pytest.mark.rule("LLM-08")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"message": ', "no JSON"),
        ('{"message": NaN}', "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('{"a":' * 300 + "1" + "}" * 300, "nested deeper"),
        ('{"message": "a"}{"message": "a"}', "no JSON"),
        ('{"message": 1e999}', "no JSON"),
        ("[1]", "no object"),
        ('"{}"', "no object"),
        (7, "no object"),
        ([1], "no object"),
    ],
)
async def test_model_is_told_what_was_wrong_with_arguments(arguments: Any, said: str) -> None:
    _, text, calls, (told,) = read_of(await answer_of("openai", stream(part(arguments))))
    assert (text, calls) == ("a", [])
    assert said in told
    assert '"properties":{"message":{"type":"string","description":"What."}}' in told
    assert len(told) < 1000


@pytest.mark.rule("LLM-08")
async def test_number_that_json_does_not_have_is_told_also_where_the_sdk_reads_it() -> None:
    calls = [{"call": "demo__any", "arguments": {"any": [float("nan")]}, "id": "c1"}]
    async with FakeModels([calls]) as fake:
        answer = await Chat(fake.service("gemini"), ALL).say("go")
    _, _, got, (told,) = read_of(answer)
    assert (got, "$.any[0] is NaN" in told) == ([], True)


@pytest.mark.rule("LLM-90")
@pytest.mark.parametrize(
    "parts",
    [
        [part('{"message": "a"}'), part('{"message": "a"}')],
        [part('{"mess'), part('{"mess'), part('age": "a"}')],
        [part('{"message": "a"}', call_id=""), {"index": 0, "function": {"arguments": "{}"}}],
        [part('{"mess'), part('age": "a"}', name="demo__any")],
        [part({"any": 1}, name="demo__any"), {"index": 0, "function": {"arguments": '{"any":2}'}}],
        [part({"any": 1}, name="demo__any"), part({"any": 2}, name="demo__any")],
        [part('{"any": ', "demo__any"), part("{}", "demo__any", "c2")],
        [{"function": {"arguments": "{}"}}],
        [part({"any": 1}, "demo__any"), {"index": 0, "function": {"arguments": "{"}}],
        [part('\\{"any": 1}', "demo__any")],
    ],
)
async def test_parts_that_do_not_fit_together_make_no_call(parts: list[Any]) -> None:
    _, text, calls, told = read_of(await answer_of("openai", stream(*parts)))
    assert (text, calls) == ("a", [])
    assert told


@pytest.mark.rule("LLM-08")
@pytest.mark.parametrize("arguments", ["null", "", None, {}, "{}", " {} "])
async def test_call_without_arguments_has_none(arguments: Any) -> None:
    answer = await answer_of("openai", stream(part(arguments, "demo__list")))
    assert read_of(answer)[2:] == ([("demo:list", {})], [])


@pytest.mark.rule("TURN-05")
async def test_model_is_told_how_many_calls_were_not_read() -> None:
    many = [{**part("{}", "demo__list", f"c{at}"), "index": at} for at in range(70)]
    _, _, calls, told = read_of(await answer_of("openai", stream(*many)))
    assert (len(calls), told) == (64, ["Of one answer 64 calls are read: 6 were left out."])


@pytest.mark.rule("LLM-92")
@pytest.mark.parametrize("arguments", ["", '{"any": "a'])
async def test_call_that_the_limit_of_tokens_cuts_is_not_made(arguments: str) -> None:
    cut_off = stream(part(arguments, "demo__any"), finish="length")
    _, text, calls, told = read_of(await answer_of("openai", cut_off))
    assert (calls, len(told)) == ([], 1)
    assert "limit of tokens" in text


@pytest.mark.rule("LLM-93")
@pytest.mark.parametrize("finish", [None, "", "eos", "tool_calls"])
@pytest.mark.parametrize("end", [b"", b"data: [DONE]"])
async def test_answer_is_complete_with_a_reason_or_done(finish: str | None, end: bytes) -> None:
    chunks = stream(part('{"message": "b"}'), finish=finish, end=end)
    if finish or end:
        assert read_of(await answer_of("openai", chunks))[2] == [("demo:echo", {"message": "b"})]
    else:
        with pytest.raises(LLMServiceError, match="broke off") as failed:
            await answer_of("openai", chunks)
        assert (failed.value.failure, failed.value.text_shown) == (LLMFailure.TRANSIENT, True)


@pytest.mark.rule("LLM-120")
@pytest.mark.parametrize("dialect", ["openai", "bedrock", "anthropic", "gemini"])
@pytest.mark.parametrize("end", ["hang", "cut"])
async def test_complete_answer_is_one_however_its_stream_ends(
    dialect: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foundation_rt.apps.host.llm.vendor.COMPLETE_S", 0.1)
    monkeypatch.setattr("foundation_rt.apps.host.llm.gemini.COMPLETE_S", 0.1)
    async with FakeModels([ANSWER], dialect=dialect, after_end=end) as fake:
        answer = await Chat(fake.service(DIALECTS[dialect].wire), ALL).say("go")
        assert json.dumps(read_of(answer)[2]) == json.dumps(written(CALLS))


@pytest.mark.rule("LLM-93")
@pytest.mark.parametrize(
    ("chunks", "failure", "said"),
    [
        (stream(finish="error"), LLMFailure.TRANSIENT, "broke off"),
        ([b'data: {"choices": [\n\n'], LLMFailure.TRANSIENT, "broke off"),
        ([b'data: {"choices": [1]}\n\n'], LLMFailure.TRANSIENT, "broke off"),
        ([b'data: {"error": {"message": "no", "code": 502}}\n\n'], LLMFailure.SERVER_ERROR, "no"),
        ([b'{"error": "busy"}'], LLMFailure.SERVER_ERROR, "busy"),
        ([b""], LLMFailure.EMPTY, "nothing"),
    ],
)
async def test_stream_without_an_answer_is_a_failure(
    chunks: list[bytes], failure: LLMFailure, said: str
) -> None:
    with pytest.raises(LLMServiceError, match=said) as failed:
        await answer_of("openai", chunks)
    assert failed.value.failure is failure


LONG = "x" * 500


@pytest.mark.rule("LLM-26")
@pytest.mark.parametrize(
    "chunks",
    [
        [f'data: {{"x": "{LONG}"}}\n\n'.encode()],
        [b'{"x": "', LONG.encode()],
        stream(part('{"a": "'), *(part(LONG[:150]) for _ in range(3))),
    ],
)
async def test_answer_of_more_than_is_kept_is_refused(
    chunks: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendor, "MAX_CHARACTERS", 400)
    with pytest.raises(LLMServiceError, match="longer than 400 characters") as failed:
        await answer_of("openai", chunks)
    assert failed.value.failure is LLMFailure.REFUSED


@pytest.mark.rule("LLM-97")
@given(
    st.sampled_from(
        [
            ("<think>a</think>\n\nb", "a", "b"),
            (" \n<think>a</b></think>b<think>", "a</b>", "b<think>"),
            ("<think>a", "a", ""),
            ("<thing>a</think>", "", "<thing>a</think>"),
            (" <thi", "", " <thi"),
            ("<think></think><think>a</think> b", "a", "b"),
        ]
    ),
    st.lists(st.integers(0, 40)),
)
def test_thought_at_the_beginning_is_no_text(case: tuple[str, str, str], at: list[int]) -> None:
    whole, thought, text = case
    parser = ThinkParser()
    edges = [0, *sorted(min(each, len(whole)) for each in at), len(whole)]
    pieces = [each for one, other in pairwise(edges) for each in parser.feed(whole[one:other])]
    read = {ThoughtPiece: "", TextPiece: ""}
    for piece in [*pieces, *parser.end()]:
        read[type(piece)] += piece.text
    assert (read[ThoughtPiece], read[TextPiece]) == (thought, text)
