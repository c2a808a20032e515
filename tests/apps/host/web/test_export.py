"""A chat as a document."""

from __future__ import annotations

import re

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.host.chat import ChatMessage, Role, TokenUsage, ToolPhase
from foundation_rt.apps.host.web.export import export_json, export_markdown

DAY = 1_790_000_000_000


def chat(result: str = "sunny", tool: str = "weather:now") -> list[ChatMessage]:
    data = {"arguments": {"city": "Oslo"}}
    return [
        ChatMessage(id="1", role=Role.USER, content="How is it?", created_at=DAY),
        ChatMessage(id="2", role=Role.ASSISTANT, tool_name=tool, call_id="c", data=data),
        ChatMessage(
            id="3",
            role=Role.TOOL,
            content=result,
            tool_name=tool,
            call_id="c",
            kind=ToolPhase.COMPLETE,
        ),
        ChatMessage(id="4", role=Role.ASSISTANT, content="It is sunny.", created_at=DAY),
    ]


@pytest.mark.rule("HOST-33")
def test_markdown_has_the_whole_chat() -> None:
    text = export_markdown(chat(), DAY)
    assert text.splitlines()[0] == "# Chat of 2026-09-21 14:13 UTC"
    for part in ("How is it?", "`weather:now`", '"city": "Oslo"', "sunny", "It is sunny."):
        assert part in text


@pytest.mark.rule("HOST-33")
def test_markdown_has_the_ends_of_turns_that_have_not_finished() -> None:
    ending = {"state": "failed", "code": "LLM_ERROR", "message": "No\nmodel."}
    metadata = {"ending": ending}
    asked = ChatMessage(id="1", role=Role.USER, content="Hi", created_at=DAY, metadata=metadata)
    assert export_markdown([asked], DAY).endswith("Hi\n\n> The turn failed. No model.\n")


@pytest.mark.rule("HOST-33")
@given(st.text(alphabet="`a\n~#", max_size=40), st.text(alphabet="`a", min_size=1, max_size=10))
def test_result_cannot_end_its_block(result: str, tool: str) -> None:
    text = export_markdown(chat(result, tool), DAY)
    opened = re.search(r"### Result of .*\n\n(`{3,})\n", text)
    assert opened is not None
    rest = text[opened.end() :]
    end = next(
        match.start() for match in re.finditer(r"^(`{3,})$", rest, re.M) if match[0] >= opened[1]
    )
    assert rest[: max(end - 1, 0)] == (result or "null")


def test_json_has_the_messages_and_the_usage() -> None:
    document = export_json(chat(), TokenUsage(3, 4), DAY, DAY + 1)
    assert orjson.loads(orjson.dumps(document))["messages"][1]["callId"] == "c"
    assert document["usage"]["totalTokens"] == 7
