"""Sampling: requests as each revision has them, who can be asked, and answers of every kind."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt import ToolDefinition
from foundation_rt.errors import UsageError
from foundation_rt.features.server_requests.errors import ClientCapabilityError, InvalidClientResult
from foundation_rt.features.server_requests.forms import Forms
from foundation_rt.features.server_requests.sampling import (
    ModelPreferences,
    Sample,
    SampleResult,
    SamplingMessage,
    ToolUse,
    ToolUseResult,
)
from foundation_rt.protocol.content import Audio, Image, ResourceLink, Text
from foundation_rt.protocol.revisions import REVISIONS
from tests.lab.peers.clients import peer

USE = ToolUse("u1", "weather", {"city": "Oslo"}, {"kept": True})
TOOL = ToolDefinition("weather", "Tells it.", {"type": "object"})


def params(server_request: Sample, revision: str = "2025-11-25") -> dict[str, Any]:
    prepared = server_request.prepare(peer(revision), Forms(), "x")
    assert prepared.method == "sampling/createMessage"
    return prepared.params


@pytest.mark.rule("ASK-01")
@pytest.mark.parametrize("revision", REVISIONS)
def test_string_is_a_user_message(revision: str) -> None:
    message = {"role": "user", "content": {"type": "text", "text": "Hi"}}
    assert params(Sample("Hi", 5), revision) == {"messages": [message], "maxTokens": 5}


@pytest.mark.rule("ASK-01")
@pytest.mark.parametrize(
    ("given", "hints"), [("small", ["small"]), (["small", "fast"], ["small", "fast"])]
)
def test_preferences_can_be_names_of_models_alone(given: Any, hints: list[str]) -> None:
    found = params(Sample("x", 5, model_preferences=given))["modelPreferences"]
    assert found == {"hints": [{"name": each} for each in hints]}


@pytest.mark.rule("ASK-01")
def test_every_option_of_a_sample_is_sent() -> None:
    server_request = Sample(
        ["Hi", SamplingMessage("assistant", Image(b"x", "image/png"), {"m": 1})],
        7,
        system_prompt="Be brief.",
        model_preferences=ModelPreferences(
            hints=["small"], cost_priority=1, speed_priority=0.5, intelligence_priority=0
        ),
        include_context="none",
        temperature=0.1,
        stop_sequences=["END"],
        metadata={"trace": "t"},
        tools=[TOOL],
        tool_choice="required",
    )
    found = params(server_request)
    assert found.pop("tools")[0]["name"] == "weather"
    assert found == {
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "Hi"}},
            {
                "role": "assistant",
                "content": {"type": "image", "data": "eA==", "mimeType": "image/png"},
                "_meta": {"m": 1},
            },
        ],
        "maxTokens": 7,
        "systemPrompt": "Be brief.",
        "modelPreferences": {
            "hints": [{"name": "small"}],
            "costPriority": 1,
            "speedPriority": 0.5,
            "intelligencePriority": 0,
        },
        "includeContext": "none",
        "temperature": 0.1,
        "stopSequences": ["END"],
        "metadata": {"trace": "t"},
        "toolChoice": {"mode": "required"},
    }


@pytest.mark.rule("ASK-28")
def test_several_blocks_are_several_messages_where_a_message_has_one() -> None:
    server_request = Sample(SamplingMessage("user", ["a", Audio(b"x", "audio/wav")], {"m": 1}), 5)
    (whole,) = params(server_request)["messages"]
    assert [block["type"] for block in whole["content"]] == ["text", "audio"]
    assert whole["_meta"] == {"m": 1}
    assert params(server_request, "2025-06-18")["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "a"}},
        {"role": "user", "content": {"type": "audio", "data": "eA==", "mimeType": "audio/wav"}},
    ]


@pytest.mark.rule("ASK-16")
def test_conversation_with_tools() -> None:
    result = ToolUseResult("u1", ["Sunny", ResourceLink("x:y", "y")], {"sky": "blue"})
    used = SamplingMessage("assistant", [Text("Let me see."), USE])
    server_request = Sample(["Weather?", used, SamplingMessage("user", result)], 5, tools=[TOOL])
    messages = params(server_request)["messages"]
    assert messages[1]["content"][1] == {
        "type": "tool_use",
        "id": "u1",
        "name": "weather",
        "input": {"city": "Oslo"},
        "_meta": {"kept": True},
    }
    assert messages[2]["content"]["content"][0] == {"type": "text", "text": "Sunny"}
    assert messages[2]["content"]["structuredContent"] == {"sky": "blue"}
    assert messages[2]["content"]["isError"] is False


def result_of(*ids: str, role: Any = "user", more: Any = ()) -> SamplingMessage:
    return SamplingMessage(role, [*(ToolUseResult(each, []) for each in ids), *more])


@pytest.mark.rule("ASK-16")
@pytest.mark.parametrize(
    "messages",
    [
        [],
        [SamplingMessage("assistant", USE)],
        [SamplingMessage("assistant", USE), "and?"],
        [SamplingMessage("assistant", USE), result_of("other")],
        [SamplingMessage("assistant", USE), result_of("u1", "u1")],
        [SamplingMessage("assistant", USE), result_of("u1", role="assistant")],
        [SamplingMessage("assistant", USE), result_of("u1", more=["text"])],
        [SamplingMessage("user", USE), result_of("u1")],
        [result_of("u1")],
    ],
)
def test_tool_uses_without_matching_results_are_refused(messages: Any) -> None:
    with pytest.raises(UsageError):
        params(Sample(messages, 5))


@pytest.mark.parametrize("content", [ResourceLink("x:y", "y"), 5, [], None])
def test_message_with_unsupported_blocks_is_refused(content: Any) -> None:
    with pytest.raises(UsageError):
        SamplingMessage("user", content)


@pytest.mark.parametrize("priority", [-0.1, 1.5])
def test_preference_is_from_0_to_1(priority: float) -> None:
    preferences = ModelPreferences(speed_priority=priority)
    with pytest.raises(UsageError, match="speedPriority"):
        params(Sample("x", 5, model_preferences=preferences))


PLAIN = {"sampling": {}}


@pytest.mark.rule("ASK-04", "ASK-21")
@pytest.mark.parametrize(
    ("server_request", "revision", "capabilities", "required"),
    [
        (Sample("x", 5), "2025-11-25", {}, {"sampling": {}}),
        (Sample("x", 5), "2025-11-25", PLAIN, None),
        (Sample("x", 5), "2024-11-05", PLAIN, None),
        (Sample("x", 5, tools=[TOOL]), "2025-11-25", PLAIN, {"sampling": {"tools": {}}}),
        (Sample("x", 5, tool_choice="none"), "2026-07-28", PLAIN, {"sampling": {"tools": {}}}),
        (
            Sample("x", 5, tools=[TOOL]),
            "2025-06-18",
            {"sampling": {"tools": {}}},
            {"sampling": {"tools": {}}},
        ),
        (
            Sample([SamplingMessage("assistant", USE), result_of("u1")], 5),
            "2025-11-25",
            PLAIN,
            {"sampling": {"tools": {}}},
        ),
        (
            Sample("x", 5, include_context="thisServer"),
            "2025-11-25",
            PLAIN,
            {"sampling": {"context": {}}},
        ),
        (Sample("x", 5, include_context="thisServer"), "2025-06-18", PLAIN, None),
        (
            Sample(SamplingMessage("user", Audio(b"", "a/b")), 5),
            "2024-11-05",
            PLAIN,
            {"sampling": {}},
        ),
    ],
)
def test_capabilities_decide_whether_the_request_is_sent(
    server_request: Sample, revision: str, capabilities: Any, required: Any
) -> None:
    client = peer(revision, capabilities)
    if required is None:
        server_request.prepare(client, Forms(), "x")
        return
    with pytest.raises(ClientCapabilityError) as lacking:
        server_request.prepare(client, Forms(), "x")
    assert lacking.value.required_capabilities == required


# -- answers -------------------------------------------------------------------------------------


def read(answer: Any) -> SampleResult:
    result = Sample("x", 5).prepare(peer(), Forms(), "x").read(answer)
    assert isinstance(result, SampleResult)
    return result


def answer(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "model": "m", "content": content, **more}


@pytest.mark.rule("ASK-26")
def test_answer_of_one_block() -> None:
    result = read(answer({"type": "text", "text": "Paris"}, stopReason="endTurn", _meta={"a": 1}))
    assert result == SampleResult("assistant", (Text("Paris"),), "m", "endTurn", {"a": 1})
    assert result.text == "Paris"
    assert result.tool_uses == ()


@pytest.mark.rule("ASK-26", "ASK-28")
def test_answer_of_several_blocks_goes_on_as_a_message() -> None:
    result = read(
        answer(
            [
                {"type": "text", "text": "a", "_meta": {"x": 1}},
                {"type": "image", "data": "eA==", "mimeType": "image/png"},
                {"type": "audio", "data": "eQ==", "mimeType": "audio/wav"},
                {"type": "tool_use", "id": "u1", "name": "weather", "input": {}},
                {"type": "text", "text": "b"},
            ],
            stopReason=7,
            _meta=7,
        )
    )
    assert result.text == "ab"
    assert result.tool_uses == (ToolUse("u1", "weather", {}),)
    assert result.content[1:3] == (Image(b"x", "image/png"), Audio(b"y", "audio/wav"))
    assert (result.stop_reason, result.meta) == (None, None)
    messages = ["Weather?", result.to_message(), result_of("u1")]
    assert params(Sample(messages, 5))["messages"][1]["content"][0]["_meta"] == {"x": 1}


@pytest.mark.rule("ASK-26", "ASK-27")
@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        {"role": "system", "model": "m", "content": {"type": "text", "text": "x"}},
        {"role": "user", "model": 1, "content": {"type": "text", "text": "x"}},
        answer(None),
        answer("text"),
        answer({}),
        answer({"type": ["text"]}),
        answer({"type": "resource_link", "uri": "x:y"}),
        answer({"type": "text", "text": 1}),
        answer([{"type": "text", "text": "x"}, 1]),
        answer({"type": "image", "data": "not base64!", "mimeType": "x/y"}),
        answer({"type": "image", "data": "é", "mimeType": "x/y"}),
        answer({"type": "image", "data": "eA=="}),
        answer({"type": "tool_use", "id": "u", "name": "n", "input": []}),
        answer({"type": "tool_use", "id": "u", "input": {}}),
    ],
)
def test_answer_of_another_shape_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidClientResult):
        read(wrong)
