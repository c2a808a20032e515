"""Calls as text, in any split."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.host.llm.provider import CallPiece, MalformedPiece, Piece, TextPiece
from foundation_rt.apps.host.llm.system_prompt import compile_system_prompt
from foundation_rt.apps.host.llm.text_mode import (
    INSTRUCTION,
    MAX_CALL_CHARACTERS,
    FenceParser,
    write_call,
)
from tests.lab.models.chats import TOOLS

SEED = (
    "When you need to use a tool, respond ONLY with the tool call JSON object enclosed in triple "
    'backticks like this:\n```tool\n{ "tool": "qualifiedToolName", "arguments": { /_ args _/ } }\n'
    "```\nDo not add any other text before the opening ```tool or after the closing ```."
)


def parse(*chunks: str) -> list[Piece]:
    """Return the pieces of a text, neighbouring texts as one."""
    parser = FenceParser()
    pieces: list[Piece] = []
    for piece in [each for chunk in chunks for each in parser.feed(chunk)] + parser.end():
        last = pieces[-1] if pieces else None
        if isinstance(piece, TextPiece) and isinstance(last, TextPiece):
            pieces[-1] = TextPiece(last.text + piece.text)
        else:
            pieces.append(piece)
    return pieces


@pytest.mark.rule("LLM-40")
def test_instruction_is_the_seeds_and_stands_in_the_prompt_with_the_tools() -> None:
    assert INSTRUCTION == SEED
    prompt = compile_system_prompt("base", TOOLS, {}, is_text_mode=True)
    assert SEED in prompt
    for tool in TOOLS:
        assert f"- {tool.name}: {tool.description}\n" in prompt
        assert json.dumps(tool.parameters, separators=(",", ":")) in prompt
    assert SEED not in compile_system_prompt("base", TOOLS, {})


@pytest.mark.rule("LLM-41")
def test_text_and_calls_are_separated() -> None:
    text = 'Look:\n\n```tool\n{"tool": "a:b", "arguments": {"x": 1}}\n```\n\nDone ```x``` `y`\n'
    assert parse(text) == [
        TextPiece("Look:"),
        CallPiece("a:b", {"x": 1}),
        TextPiece("Done ```x``` `y`"),
    ]


@pytest.mark.rule("LLM-41")
@pytest.mark.parametrize(
    "text",
    ['```tool{"tool":"t"}```', '```tool {"tool":"t"}```', 'x ```tool\r\n{"tool":"t"}\r\n```'],
)
def test_fences_may_stand_on_one_line(text: str) -> None:
    assert parse(text)[-1] == CallPiece("t", {})


@pytest.mark.rule("LLM-41")
@pytest.mark.parametrize("text", ["```toolbox\nx\n```", "``tool {}``", "a```", "```", "```too"])
def test_other_fences_are_text(text: str) -> None:
    assert parse(text) == [TextPiece(text)]


@pytest.mark.rule("LLM-43")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("```tool\n{not json}\n```", "no valid JSON"),
        ("```tool\n[1]\n```", 'no "tool"'),
        ('```tool\n{"tool": 1}\n```', 'no "tool"'),
        ('```tool\n{"tool": "t", "arguments": []}\n```', "no object"),
        ('```tool\n{"tool": "t", "parameters": {"x": 1}}\n```', "no object"),
        ('```tool\n{"tool": "t"}', "closing"),
        ("```tool", "closing"),
        ('```tool\n{"tool": "it"s"}\n```\n', "no valid JSON"),
    ],
)
def test_malformed_call_is_told_with_the_reason(text: str, reason: str) -> None:
    (piece,) = parse(text)
    assert isinstance(piece, MalformedPiece)
    assert reason in piece.content


@pytest.mark.rule("LLM-44")
def test_long_call_is_not_kept() -> None:
    parser = FenceParser()
    parser.feed("```tool\n")
    for _ in range(100):
        assert not parser.feed("x" * 10_000)
    kept = sum(map(len, parser._body or ()))
    assert kept <= MAX_CALL_CHARACTERS + 4
    (piece, after) = parser.feed("```after ")
    assert isinstance(piece, MalformedPiece)
    assert "more than" in piece.content
    assert after == TextPiece("after")


@pytest.mark.rule("LLM-45")
@given(st.text(alphabet='`"\\\n tol', max_size=30))
def test_any_string_is_kept_within_a_call(text: str) -> None:
    assert parse(write_call("a:b", {"x": text})) == [CallPiece("a:b", {"x": text})]


PARTS = st.lists(
    st.sampled_from(
        ["```tool\n", "```tool", "```", "``", "\n", " ", "{", '"', "\\", "x", '{"tool": "t"}', "\t"]
    ),
    max_size=14,
)


@pytest.mark.rule("LLM-41", "LLM-43")
@given(PARTS, st.data())
def test_any_split_gives_the_same_pieces(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts) + " " * data.draw(st.sampled_from([0, 1, 300])) + "".join(parts)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=12)))
    edges = [0, *cuts, len(text)]
    chunks = [text[start:end] for start, end in pairwise(edges)]
    assert parse(*chunks) == parse(text) == parse(*text)


def test_spec_names_the_limit() -> None:
    spec = Path(__file__).parents[4] / "spec" / "host-llm.md"
    assert f"{MAX_CALL_CHARACTERS:,} characters" in spec.read_text()
