"""Conversations on the client's side: what is read, what is sent for an answer."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client.handlers.elicitation import read_form, read_page
from foundation_rt.client.handlers.params import ServerRequestRefused
from foundation_rt.client.handlers.sampling import SamplingRequest, read_sampling
from foundation_rt.features.server_requests.answers import read_sample
from foundation_rt.features.server_requests.errors import InvalidClientResult
from foundation_rt.features.server_requests.forms import Forms
from foundation_rt.features.server_requests.sampling import (
    ModelPreferences,
    Sample,
    SampleResult,
    SamplingMessage,
    ToolUse,
    ToolUseResult,
)
from foundation_rt.kernel.registry.tool_definition import ToolDefinition
from foundation_rt.protocol.content import Audio, Image, Text
from foundation_rt.protocol.revisions import REVISIONS
from tests.lab.peers.client_vectors import cases
from tests.lab.peers.clients import peer

TEXT = {"type": "text", "text": "Hello"}
AUDIO = {"type": "audio", "data": "AAE=", "mimeType": "audio/wav"}
USE = {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1}}
RESULT = {"type": "tool_result", "toolUseId": "1", "content": [TEXT]}
TOOL = {"name": "add", "inputSchema": {"type": "object"}}


def says(*blocks: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": blocks[0] if len(blocks) == 1 else [*blocks]}


def asks(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [*messages] or [says(TEXT)], "maxTokens": 100, **more}


def read(params: Any, revision: str = "2025-11-25", with_tools: bool = False) -> SamplingRequest:
    return read_sampling(params, REVISIONS[revision], with_tools=with_tools)[0]


def send(answer: Any, revision: str = "2025-11-25", with_tools: bool = False) -> dict[str, Any]:
    return read_sampling(asks(), REVISIONS[revision], with_tools=with_tools)[1](answer)


@pytest.mark.rule("QUEST-08")
def test_all_of_a_request() -> None:
    params = asks(
        {**says(TEXT), "_meta": {"m": 1}},
        says(AUDIO, role="assistant"),
        systemPrompt="Be kind",
        modelPreferences={"hints": [{"name": "big"}, {}], "costPriority": 0, "speedPriority": 0.5},
        includeContext="thisServer",
        temperature=0.1,
        stopSequences=["end"],
        metadata={"x": 1},
        unknown=1,
    )
    request = read(params)
    assert request.messages == (
        SamplingMessage("user", (Text("Hello"),), {"m": 1}),
        SamplingMessage("assistant", (Audio(b"\0\1", "audio/wav"),)),
    )
    assert request.model_preferences == ModelPreferences(
        hints=("big",), cost_priority=0, speed_priority=0.5
    )
    assert (request.max_tokens, request.system_prompt) == (100, "Be kind")
    assert (request.include_context, request.temperature) == ("thisServer", 0.1)
    assert (request.stop_sequences, request.metadata) == (("end",), {"x": 1})
    assert (request.tools, request.tool_choice) == ((), "auto")
    assert request.params is params


@pytest.mark.rule("QUEST-03", "QUEST-08")
def test_absent_and_null_members_are_read_alike() -> None:
    names = ["systemPrompt", "modelPreferences", "includeContext", "temperature", "stopSequences"]
    nulls = dict.fromkeys([*names, "metadata", "tools", "toolChoice"])
    for request in (read(asks()), read(asks(**nulls))):
        assert request.system_prompt is request.temperature is None
        assert request.include_context == "none"
        assert request.model_preferences == ModelPreferences()
        assert (request.stop_sequences, request.metadata, request.tools) == ((), {}, ())
    assert read(asks(maxTokens=7.0)).max_tokens == 7


@pytest.mark.rule("QUEST-02", "QUEST-08")
def test_tools_are_refused_unless_declared() -> None:
    conversation = [says(TEXT), says(TEXT, USE, role="assistant"), says(RESULT)]
    params = asks(*conversation, tools=[TOOL], toolChoice={"mode": "required"})
    request = read(params, with_tools=True)
    assert (request.tools, request.tool_choice) == ((TOOL,), "required")
    assert request.messages[1].content == (Text("Hello"), ToolUse("1", "add", {"a": 1}))
    assert request.messages[2].content == (ToolUseResult("1", [Text("Hello")]),)
    for refused in (params, asks(toolChoice={}), asks(tools=[]), asks(*conversation)):
        with pytest.raises(ServerRequestRefused) as caught:
            read(refused)
        assert caught.value.original_code == -32602


@pytest.mark.rule("QUEST-08")
def test_audio_where_the_revision_has_it() -> None:
    assert read(asks(says(AUDIO)), "2025-03-26").messages[0].content[0] == Audio(
        b"\0\1", "audio/wav"
    )
    with pytest.raises(ServerRequestRefused, match="/messages/0/content is of a kind"):
        read(asks(says(AUDIO)), "2024-11-05")


@pytest.mark.rule("QUEST-03", "QUEST-07", "QUEST-08")
@pytest.mark.parametrize("vector", cases("server-request-params", "refused"))
def test_invalid_request_is_refused(vector: dict[str, Any]) -> None:
    params = vector["params"]
    with pytest.raises(ServerRequestRefused) as caught:
        if vector["method"] == "sampling/createMessage":
            read(params, with_tools=True)
        elif params.get("mode") == "url":
            read_page(params, REVISIONS["2025-11-25"])
        else:
            read_form(params)
    assert caught.value.original_code == -32602
    assert caught.value.data == {"reason": "invalid_params", "path": vector["refused"]}
    assert vector["refused"] in caught.value.message


# -- answers -------------------------------------------------------------------------------------

HELLO = {"role": "assistant", "content": TEXT, "model": "m"}


@pytest.mark.rule("QUEST-09")
@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        (HELLO, HELLO),
        ({**HELLO, "content": [TEXT], "other": 1}, HELLO),
        ({**HELLO, "stopReason": "endTurn"}, {**HELLO, "stopReason": "endTurn"}),
        (SampleResult("assistant", (Text("Hello"),), "m"), HELLO),
        (
            SampleResult("user", (Image(b"\0\1", "image/png"),), "m", "own", {"t": 1}),
            {
                "role": "user",
                "content": {"type": "image", "data": "AAE=", "mimeType": "image/png"},
                "model": "m",
                "stopReason": "own",
                "_meta": {"t": 1},
            },
        ),
    ],
)
def test_handler_value_becomes_the_result(answer: Any, sent: Any) -> None:
    assert send(answer) == sent


@pytest.mark.rule("QUEST-19")
def test_several_blocks_where_the_revision_has_lists() -> None:
    texts = SampleResult("assistant", (Text("Hel"), Text("lo")), "m")
    assert send(texts)["content"] == [
        {"type": "text", "text": "Hel"},
        {"type": "text", "text": "lo"},
    ]
    assert send(texts, "2025-06-18") == HELLO
    mixed = SampleResult("assistant", (Text("a"), Image(b"", "image/png")), "m")
    assert len(send(mixed)["content"]) == 2
    with pytest.raises(InvalidClientResult, match="more blocks"):
        send(mixed, "2025-06-18")


@pytest.mark.rule("QUEST-09")
def test_a_model_uses_tools_only_where_they_were_declared() -> None:
    answer = {**HELLO, "content": [TEXT, USE], "stopReason": "toolUse"}
    assert send(answer, with_tools=True) == answer
    with pytest.raises(InvalidClientResult, match="/content/1"):
        send(answer)
    with pytest.raises(InvalidClientResult, match="/content/0"):
        send(SampleResult("user", (ToolUseResult("1", []),), "m"), with_tools=True)  # type: ignore[arg-type]


@pytest.mark.rule("QUEST-09")
def test_none_declines() -> None:
    with pytest.raises(ServerRequestRefused) as caught:
        send(None)
    assert caught.value.to_wire() == {"code": -1, "message": "User rejected sampling request"}


@pytest.mark.rule("QUEST-09", "QUEST-22")
@pytest.mark.parametrize(
    "answer",
    [
        "Hello",
        True,
        {},
        {**HELLO, "role": "system"},
        {**HELLO, "model": None},
        {**HELLO, "content": []},
        {**HELLO, "content": "Hello"},
        {**HELLO, "content": {"type": "audio", "data": "AA==", "mimeType": "a/b"}, "role": 1},
        {**HELLO, "x": {1}},
        {1: 2},
        SampleResult("assistant", "Hello", "m"),  # type: ignore[arg-type]
        SampleResult("assistant", ("Hello",), "m"),  # type: ignore[arg-type]
        SampleResult("assistant", (), "m"),
        SampleResult("assistant", (Text("a"),), 1),  # type: ignore[arg-type]
        SampleResult("system", (Text("a"),), "m"),  # type: ignore[arg-type]
        SampleResult("assistant", (Text("\ud800"),), "m"),
        SampleResult("assistant", (Text("a"),), "m", None, {"a": {1}}),
    ],
)
def test_an_answer_that_is_none_is_not_sent(answer: Any) -> None:
    with pytest.raises(InvalidClientResult):
        send(answer)


@pytest.mark.rule("QUEST-09")
def test_audio_is_answered_where_the_revision_has_it() -> None:
    answer = {**HELLO, "content": AUDIO}
    assert send(answer, "2025-03-26") == answer
    with pytest.raises(InvalidClientResult, match="/content/0"):
        send(answer, "2024-11-05")


@pytest.mark.rule("QUEST-08")
@pytest.mark.parametrize("revision", [*REVISIONS])
def test_sampling_request_of_this_runtime_can_be_read(revision: str) -> None:
    has_tools = REVISIONS[revision].has("sampling", "tools")
    tools = [ToolDefinition("add", "Adds", {"type": "object"})] if has_tools else []
    sample = Sample(
        [SamplingMessage("user", [Text("a"), Image(b"1", "image/png")]), "b"],  # type: ignore[list-item]
        9,
        model_preferences=ModelPreferences(hints=("big",), cost_priority=1),
        stop_sequences=["x"],
        tools=tools,
    )
    asked = sample.prepare(peer(revision), Forms(), "run/1")
    request, write = read_sampling(asked.params, REVISIONS[revision], with_tools=has_tools)
    assert [block for message in request.messages for block in message.content] == [
        Text("a"),
        Image(b"1", "image/png"),
        Text("b"),
    ]
    assert request.model_preferences == sample.model_preferences
    assert [tool["name"] for tool in request.tools] == [tool.name for tool in tools]
    answer = SampleResult("assistant", (Text("c"),), "m", "endTurn")
    assert asked.read(write(answer)) == answer


MEMBER = st.sampled_from(
    ["messages", "maxTokens", "role", "content", "type", "text", "tools", "hints", "model", "data"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["user", "text", "tool_use"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(MEMBER, inner, max_size=4)
        | st.builds(lambda one: {"role": "user", "content": one}, inner)
        | st.builds(lambda one: {"type": "text", "text": one}, inner)
    ),
    max_leaves=8,
)


@pytest.mark.rule("QUEST-03", "QUEST-22")
@given(st.lists(JSON, max_size=3), st.dictionaries(MEMBER, JSON), JSON, st.booleans())
def test_any_json_is_read_or_refused(
    messages: Any, more: Any, answer: Any, with_tools: bool
) -> None:
    params = {"maxTokens": 1, "messages": messages, **more}
    try:
        _, write = read_sampling(params, REVISIONS["2025-11-25"], with_tools=with_tools)
        sent = write(answer)
    except (ServerRequestRefused, InvalidClientResult):
        return
    assert orjson.loads(orjson.dumps(sent)) == sent
    read_sample(sent)
