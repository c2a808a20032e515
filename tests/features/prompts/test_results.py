"""Values of prompt handlers as messages."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt.errors import ErrorCode, ToolError
from foundation_rt.features.prompts.results import PromptMessage, PromptResult, shape_prompt
from foundation_rt.protocol.content import (
    Audio,
    EmbeddedResource,
    Image,
    ResourceLink,
    Text,
    TextContents,
)
from foundation_rt.protocol.revisions import REVISIONS

OLDEST, *_, NEWEST = REVISIONS.values()


def text(value: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": {"type": "text", "text": value}}


@pytest.mark.rule("PROMPT-05")
@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("a", [text("a")]),
        (Text("a"), [text("a")]),
        (PromptMessage("assistant", "a"), [text("a", "assistant")]),
        (["a", PromptMessage("assistant", Text("b"))], [text("a"), text("b", "assistant")]),
        (("a", "b"), [text("a"), text("b")]),
        ([], []),
        (PromptResult(["a"]), [text("a")]),
        (PromptResult([]), []),
        (PromptResult("abc"), [text("abc")]),
        (PromptResult(PromptMessage("assistant", "a")), [text("a", "assistant")]),
    ],
)
def test_returned_value_becomes_messages(value: Any, messages: list[Any]) -> None:
    assert shape_prompt(value, None, NEWEST) == {"messages": messages}
    assert shape_prompt(value, "Of it.", NEWEST) == {"messages": messages, "description": "Of it."}


@pytest.mark.rule("PROMPT-10")
def test_a_full_result_has_a_description_and_meta() -> None:
    full = PromptResult(["a"], "Of this one.", {"k": 1})
    assert shape_prompt(full, "Of it.", NEWEST) == {
        "messages": [text("a")],
        "description": "Of this one.",
        "_meta": {"k": 1},
    }


@pytest.mark.rule("PROMPT-11")
def test_messages_may_be_written_as_on_the_wire() -> None:
    messages = [
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": {"type": "text", "text": "b"}},
        {"role": "user", "content": {"type": "image", "data": "eA==", "mimeType": "image/png"}},
    ]
    sent = shape_prompt(messages, None, NEWEST)["messages"]
    assert sent == [{"role": "assistant", "content": {"type": "text", "text": "a"}}, *messages[1:]]


@pytest.mark.rule("PROMPT-05")
def test_content_of_every_kind_is_written_as_the_revision_has_it() -> None:
    blocks = [
        Image(b"x", "image/png"),
        Audio(b"x", "audio/wav"),
        EmbeddedResource(TextContents("a:b", "x")),
        ResourceLink("a:b", "b"),
    ]
    for revision in REVISIONS.values():
        messages = shape_prompt(blocks, None, revision)["messages"]
        assert [each["content"] for each in messages] == [
            block.to_wire(revision) for block in blocks
        ]
    kinds = [each["content"]["type"] for each in shape_prompt(blocks, None, OLDEST)["messages"]]
    assert kinds == ["image", "resource", "resource", "text"]


@pytest.mark.rule("PROMPT-05")
@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        b"x",
        ["a", 5],
        PromptResult([5]),  # type: ignore[list-item]
    ],
)
def test_returned_value_without_messages_is_an_error(value: Any) -> None:
    with pytest.raises(ToolError, match="no messages") as raised:
        shape_prompt(value, None, NEWEST)
    assert raised.value.code is ErrorCode.INTERNAL
    assert raised.value.details == {"reason": "not_a_prompt"}
    assert "return a str" in str(raised.value.__cause__)


@pytest.mark.rule("PROMPT-11")
@pytest.mark.parametrize(
    "value",
    [
        {"a": 1},
        {"role": "system", "content": "x"},
        {"role": "user", "content": {"type": "video"}},
        {"role": "user", "content": {"type": "image", "data": "!", "mimeType": "image/png"}},
    ],
)
def test_dict_that_is_no_message_is_an_error(value: Any) -> None:
    with pytest.raises(ToolError, match="no messages") as raised:
        shape_prompt(value, None, NEWEST)
    assert 'has "role" and "content"' in str(raised.value.__cause__)


def test_a_message_is_checked_when_it_is_made() -> None:
    with pytest.raises(ValueError, match="system"):
        PromptMessage("system", "a")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        PromptMessage("user", 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        PromptResult(["a"], 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        PromptResult(["a"], meta=5)  # type: ignore[arg-type]
