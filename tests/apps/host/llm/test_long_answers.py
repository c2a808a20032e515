"""Long answers in small pieces: each piece costs the same, whatever came before it (LLM-119)."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt.apps.host.llm.anthropic import AnthropicAnswer
from foundation_rt.apps.host.llm.call_assembly import CallAssembler, CallFragment, ObjectText
from foundation_rt.apps.host.llm.openai import OpenAIAnswer
from foundation_rt.apps.host.llm.provider import CallPiece, TextPiece
from foundation_rt.apps.host.llm.text_mode import ThinkParser

pytestmark = pytest.mark.rule("LLM-119")


class Piece(str):
    """A text that may be joined once, but never appended to another one."""

    __slots__ = ()

    def __add__(self, other: object) -> str:
        raise AssertionError("a piece was appended")

    __radd__ = __add__


def given_back(answer: OpenAIAnswer | AnthropicAnswer) -> Any:
    [call] = [each for each in answer.end() if isinstance(each, CallPiece)]
    return call.given_back


@pytest.mark.parametrize(
    ("delta", "kept"),
    [
        (lambda text: {"reasoning": text}, {"reasoning": "aaa"}),
        (
            lambda text: {"reasoning_details": [{"index": 0, "type": "t", "text": text}]},
            {"reasoning_details": [{"index": 0, "type": "t", "text": "aaa"}]},
        ),
        (
            lambda text: {"content": [{"type": "thinking", "thinking": text}]},
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "aaa"}]}]},
        ),
    ],
    ids=["text", "details", "parts"],
)
def test_thoughts_in_pieces_are_joined_once(delta: Any, kept: Any) -> None:
    answer = OpenAIAnswer({"t"}, "m")
    for _ in range(3):
        answer.read({"choices": [{"delta": delta(Piece("a"))}]})
    call = {"index": 0, "id": "c", "function": {"name": "t", "arguments": "{}"}}
    answer.read({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
    assert given_back(answer) == {"model": "m", "message": kept}


def test_thinking_blocks_in_pieces_are_joined_once_and_counted() -> None:
    answer = AnthropicAnswer({"t"}, "m")
    thinking = {"type": "thinking", "thinking": ""}
    answer.read({"type": "content_block_start", "index": 0, "content_block": thinking})
    size = answer.calls.size
    for member in ("thinking", "signature"):
        for _ in range(3):
            delta = {"type": f"{member}_delta", member: Piece("a")}
            answer.read({"type": "content_block_delta", "index": 0, "delta": delta})
    assert answer.calls.size == size + 6
    call = {"type": "tool_use", "id": "c", "name": "t", "input": {}}
    answer.read({"type": "content_block_start", "index": 1, "content_block": call})
    answer.read({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})
    [block] = given_back(answer)["blocks"]
    assert block == {"type": "thinking", "thinking": "aaa", "signature": "aaa"}


def test_arguments_without_an_id_are_read_at_the_end_only(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    text = ObjectText.text.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(ObjectText, "text", property(lambda it: reads.append(it) or text(it)))
    calls = CallAssembler({"t"})
    calls.add(CallFragment(name="t", arguments='{"a": "'))
    for _ in range(100):
        calls.add(CallFragment(arguments="abcdefgh"))
    assert not reads
    calls.add(CallFragment(arguments='"}'))
    [call] = calls.pieces(is_cut=False)
    assert isinstance(call, CallPiece)


@pytest.mark.parametrize("sizes", [[400], [200, 200], [1] * 400])
def test_much_white_space_is_no_beginning_of_a_thought(sizes: list[int]) -> None:
    parser = ThinkParser()
    pieces = [each for size in sizes for each in parser.feed(" " * size)]
    pieces += parser.feed("<think>a</think>")
    assert "".join(each.text for each in pieces) == " " * 400 + "<think>a</think>"
    assert all(isinstance(each, TextPiece) for each in pieces)
