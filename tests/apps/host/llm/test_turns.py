"""A chat on each wire: what the SDKs send."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from attrs import evolve

from foundation_rt.apps.host.chat import ChatMessage, Role, ToolPhase
from foundation_rt.apps.host.llm.provider import ModelRequest
from foundation_rt.apps.host.llm.service import ModelTool
from foundation_rt.apps.host.llm.tool_forms import ToolForm
from foundation_rt.apps.host.llm.turns import (
    BEGINNING,
    GO_ON,
    MAX_PICTURE_BYTES,
    NO_ANSWER,
    NO_OUTCOME,
    build_turns,
    wire_call_id,
)
from tests.lab.models.chats import ECHO, Chat, result_of, user
from tests.lab.models.fake_models import FakeModels

PNG = {"mimeType": "image/png", "data": base64.b64encode(b"\x89PNG\r\n\x1a\n of a cat.").decode()}
TIFF = {"mimeType": "image/tiff", "data": "AAAA"}
PROVIDERS = ("openai", "gemini", "anthropic")
OWN_IDS = {wire_call_id(f"c{number}", 1): f"c{number}" for number in range(10)}
WIRE_ID = wire_call_id("c1", 1)
every_provider = pytest.mark.parametrize("provider", PROVIDERS)


def call(number: int, answer: str | None = "a", **metadata: Any) -> ChatMessage:
    """Return a call of an answer."""
    given = {"answer": answer} if answer is not None else {}
    return ChatMessage(
        id=f"a-{number}",
        role=Role.ASSISTANT,
        tool_name="demo:echo",
        call_id=f"c{number}",
        data={"arguments": {"message": str(number)}},
        metadata={**given, **metadata},
    )


def said(text: str, answer: str = "a") -> ChatMessage:
    """Return text of an answer."""
    return ChatMessage(id=answer, role=Role.ASSISTANT, content=text)


def turns(*history: ChatMessage, text_mode: bool = False) -> list[Any]:
    """Return turns in short: side, texts, calls, results."""
    forms = {ECHO.name: ToolForm(ECHO, ECHO.outside_name)}
    request = ModelRequest(system="", history=history, is_text_mode=text_mode, forms=forms)
    return [
        (
            "user" if turn.is_user else "model",
            turn.texts,
            [OWN_IDS[each.call_id] for each in turn.calls],
            [(OWN_IDS[each.call_id], each.content, each.is_error) for each in turn.results],
        )
        for turn in build_turns(request, "gemini", ["image/png"])
    ]


@pytest.mark.rule("LLM-20")
def test_calls_of_one_answer_stay_together_whatever_the_order_of_results() -> None:
    one, two = call(1), call(2)
    history = [user("x"), said("I look."), one, result_of(one, "r1"), two, result_of(two, "r2")]
    expected = [
        ("user", ["x"], [], []),
        ("model", ["I look."], ["c1", "c2"], []),
        ("user", [], [], [("c1", "r1", False), ("c2", "r2", False)]),
    ]
    assert turns(*history) == expected
    progress = evolve(result_of(two, "half"), kind=ToolPhase.PROGRESS)
    mixed = [*history[:3], two, progress, result_of(two, "r2"), result_of(one, "r1")]
    assert turns(*mixed) == expected


@pytest.mark.rule("LLM-20")
def test_texts_that_follow_each_other_are_one_answer() -> None:
    expected = [("user", ["x"], [], []), ("model", ["a", "b"], ["c1"], [])]
    assert turns(user("x"), said("a", "a"), said("b", "b"), call(1, "b"))[:2] == expected


@pytest.mark.rule("LLM-20")
def test_answers_that_follow_each_other_are_turns_of_their_own() -> None:
    one, two = call(1), call(2, "b")
    history = [user("x"), one, result_of(one, "r1"), two, result_of(two, "r2"), said("Done", "c")]
    expected = [
        ("user", ["x"], [], []),
        ("model", [], ["c1"], []),
        ("user", [], [], [("c1", "r1", False)]),
        ("model", [], ["c2"], []),
        ("user", [], [], [("c2", "r2", False)]),
        ("model", ["Done"], [], []),
        ("user", [GO_ON], [], []),
    ]
    assert turns(*history) == expected
    unnamed = [evolve(each, metadata={}) if each.is_call else each for each in history]
    assert turns(*unnamed) == expected


@pytest.mark.rule("LLM-21")
def test_what_interruptions_leave_behind_is_made_whole() -> None:
    orphan = result_of(call(9), "of a call that is gone")
    history = [said("begun", "z"), orphan, user("x"), call(1), user(""), user("again")]
    assert turns(*history) == [
        ("user", [BEGINNING], [], []),
        ("model", ["begun"], [], []),
        ("user", ["x"], [], []),
        ("model", [], ["c1"], []),
        ("user", [], [], [("c1", NO_OUTCOME, True)]),
        ("model", [NO_ANSWER], [], []),
        ("user", ["again"], [], []),
    ]
    assert turns() == [("user", [BEGINNING], [], [])]


@pytest.mark.rule("LLM-21")
def test_white_space_alone_is_left_out() -> None:
    one = call(1)
    assert turns(user("x"), user(" "), said("\n\n"), one, result_of(one, "r"))[:2] == [
        ("user", ["x"], [], []),
        ("model", [], ["c1"], []),
    ]


@pytest.mark.rule("LLM-21")
def test_notes_of_the_host_are_said_by_the_user_and_marked() -> None:
    note = ChatMessage(id="n", role=Role.SYSTEM, content="Write it again.")
    assert turns(user("x"), note) == [("user", ["x", "[Note of the host] Write it again."], [], [])]


@pytest.mark.rule("LLM-21")
def test_text_mode_writes_calls_and_results_as_text() -> None:
    one = call(1)
    failed = result_of(one, "it broke", {"error": {"code": "X", "message": "it broke"}})
    found = turns(user("x"), said("I look."), one, failed, text_mode=True)
    written = '```tool\n{"tool":"demo:echo","arguments":{"message":"1"}}\n```'
    assert found[1:] == [
        ("model", ["I look.", written], [], []),
        ("user", ["Error of demo:echo:\nit broke"], [], []),
    ]
    assert turns(user("x"), one, text_mode=True)[2] == (
        ("user", [f"No outcome of demo:echo: {NO_OUTCOME}"], [], [])
    )


async def wire(provider: str, *history: ChatMessage, **values: Any) -> Any:
    """Return the body that a provider gets for a chat, and that of one more without tools."""
    async with FakeModels([["ok"]]) as fake:
        chat = Chat(fake.service(provider, **values), (ECHO,), list(history))
        await chat.answer()
        chat.tools = ()
        await chat.answer()
        return fake.requests[0].body, fake.requests[1].body


def texts_of(body: Any) -> str:
    """Return a body as JSON, to look for texts in it."""
    return json.dumps(body, ensure_ascii=False)


@every_provider
@pytest.mark.rule("LLM-20", "LLM-22", "LLM-23")
async def test_chat_is_written_down_for_each_wire(provider: str) -> None:
    one = call(1)
    result = result_of(one, "echoed", pictures=[TIFF])
    body, _ = await wire(provider, user("x"), said("I look."), one, result)
    parts = WIRES[provider](body)
    assert parts == [("demo__echo", ECHO.parameters), "x", "I look.", (WIRE_ID, {"message": "1"})]
    text = texts_of(body)
    assert text.index("I look.") < text.index("echoed")
    assert "[A picture of type image/tiff is not shown here.]" in text


def _openai(body: Any) -> list[Any]:
    function = body["tools"][0]["function"]
    system, asked, looked, result = body["messages"]
    made = looked["tool_calls"][0]
    assert (system["role"], result["role"], result["tool_call_id"]) == ("system", "tool", WIRE_ID)
    return [
        (function["name"], function["parameters"]),
        asked["content"],
        looked["content"],
        (made["id"], json.loads(made["function"]["arguments"])),
    ]


def _anthropic(body: Any) -> list[Any]:
    tool = body["tools"][0]
    asked, looked, result = body["messages"]
    made = looked["content"][1]
    assert (made["type"], result["content"][0]["tool_use_id"]) == ("tool_use", WIRE_ID)
    assert body["system"]
    assert body["max_tokens"] > 0
    return [
        (tool["name"], tool["input_schema"]),
        asked["content"][0]["text"],
        looked["content"][0]["text"],
        (made["id"], made["input"]),
    ]


def _gemini(body: Any) -> list[Any]:
    function = body["tools"][0]["functionDeclarations"][0]
    asked, looked, result = body["contents"]
    made = looked["parts"][1]["functionCall"]
    assert result["parts"][0]["functionResponse"]["id"] == WIRE_ID
    assert body["systemInstruction"]
    return [
        (function["name"], function["parameters_json_schema"]),
        asked["parts"][0]["text"],
        looked["parts"][0]["text"],
        (made["id"], made["args"]),
    ]


WIRES = {"openai": _openai, "anthropic": _anthropic, "gemini": _gemini}


@every_provider
@pytest.mark.rule("LLM-22")
async def test_pictures_go_to_models_that_take_them(provider: str) -> None:
    one = call(1)
    sent = evolve(user("x"), metadata={"pictures": [PNG]})
    body, _ = await wire(provider, sent, one, result_of(one, "r", pictures=[PNG, TIFF]))
    text = texts_of(body)
    assert text.count(PNG["data"]) == 2
    assert "image/tiff is not shown" in text


@pytest.mark.rule("LLM-22")
@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"RIFF\0\0\0\0WEBP", "image/webp"),
        (b"\0\0\0\x18ftypheic", "image/heic"),
        (b"GIF89a", "image/gif"),
        (None, None),
    ],
)
def test_picture_has_the_type_of_its_bytes(data: bytes | None, kind: str | None) -> None:
    text = "A" if data is None else base64.b64encode(data).decode()
    sent = evolve(user("x"), metadata={"pictures": [{**PNG, "data": text}]})
    types = ["image/png", "image/webp", "image/heic", "image/gif"]
    (turn,) = build_turns(ModelRequest(system="", history=[sent]), "openai", types)
    assert [each.mime_type for each in turn.pictures] == ([kind] if kind else [])
    assert ("is not shown here" in turn.text) is (kind is None)


@pytest.mark.rule("LLM-22")
def test_pictures_of_a_request_are_the_newest_up_to_a_limit() -> None:
    large = {**PNG, "data": PNG["data"] + "A" * (MAX_PICTURE_BYTES // 3 - len(PNG["data"]))}
    given = [[large], [PNG], [large, large], [large]]
    history = [evolve(user("x"), metadata={"pictures": each}) for each in given]
    (turn,) = build_turns(ModelRequest(system="", history=history), "openai", ["image/png"])
    assert [each.data == large["data"] for each in turn.pictures] == [True] * 3
    assert turn.text.count("[A picture of type image/png is not shown here.]") == 2


@every_provider
@pytest.mark.rule("LLM-21")
async def test_calls_in_the_history_stand_when_the_tools_are_taken_away(provider: str) -> None:
    one = call(1)
    _, body = await wire(provider, user("x"), one, result_of(one, "r"))
    assert "demo__echo" in texts_of(body)
    if provider == "anthropic":
        assert body["tool_choice"] == {"type": "none"}
        assert [each["name"] for each in body["tools"]] == ["demo__echo"]
    else:
        assert "tools" not in body


@pytest.mark.rule("LLM-24", "LLM-18")
async def test_thought_signatures_are_given_back_to_gemini() -> None:
    made = [
        {"call": "demo__echo", "arguments": {"message": "1"}, "signature": "sig"},
        {"call": "demo__echo", "arguments": {"message": "2"}},
    ]
    async with FakeModels([made, ["ok"]]) as fake:
        chat = Chat(fake.service("gemini"), (ECHO,))
        one, two = await chat.say("x")
        restored = [ChatMessage.from_json(json.loads(json.dumps(m.to_json()))) for m in (one, two)]
        chat.history[-2:] = [restored[0], result_of(one, "r1"), restored[1]]
        await chat.give(two, "r2")
        parts = fake.requests[-1].body["contents"][1]["parts"]
    assert [each.get("thoughtSignature") for each in parts] == [
        base64.b64encode(b"sig").decode(),
        None,
    ]


@pytest.mark.rule("LLM-24")
async def test_call_of_another_provider_has_a_stand_in_for_its_signature() -> None:
    one, two = call(1), call(2)
    body, _ = await wire("gemini", user("x"), one, two, result_of(one, "r"))
    first, second = body["contents"][1]["parts"]
    assert base64.b64decode(first["thoughtSignature"]) == b"skip_thought_signature_validator"
    assert "thoughtSignature" not in second


@every_provider
@pytest.mark.rule("LLM-25")
async def test_settings_are_sent_only_if_they_are_set(provider: str) -> None:
    plain, _ = await wire(provider, user("x"))
    text = texts_of(plain)
    assert "temperature" not in text
    values = {"temperature": 0.25, "max_output_tokens": 321}
    given, _ = await wire(provider, user("x"), **values)
    text = texts_of(given)
    assert '"temperature": 0.25' in text
    assert ": 321" in text


@pytest.mark.rule("LLM-20")
def test_ids_and_names_are_written_so_that_every_wire_takes_them() -> None:
    odd = evolve(call(1), call_id="a b/ü" * 30, tool_name="gone server:tool.x")
    request = ModelRequest(system="", history=[user("x"), odd, result_of(odd, "r")])
    turn = build_turns(request, "openai", ())[1]
    assert turn.calls[0].call_id.isascii()
    assert len(turn.calls[0].call_id) <= 40
    assert turn.calls[0].name.startswith("gone_server__tool_x_")
    tool = ModelTool("a:b", "a__b", "", {})
    named = evolve(request, forms={"gone server:tool.x": ToolForm(tool, tool.outside_name)})
    assert build_turns(named, "openai", ())[1].calls[0].name == "a__b"
    for name, kept in (("gone__tool", "gone__tool"), ("ö", "t___"), ("x" * 99, "x" * 55)):
        unknown = evolve(request, history=[user("x"), evolve(odd, tool_name=name)])
        assert build_turns(unknown, "openai", ())[1].calls[0].name.startswith(kept)
