"""Guidance on the tools of a server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.coordinator.catalogue import fallback_guidance, guidance_text


def message(text: Any, role: str = "user", kind: str = "text") -> dict[str, Any]:
    return {"role": role, "content": {"type": kind, "text": text}}


@pytest.mark.rule("COORD-40")
@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([message("Use it.")], "Use it."),
        ([message("")], ""),
        ([message("é" * 8192)], "é" * 8192),
        ([message("é" * 8192 + "x")], None),
        ([message("a"), message("b")], None),
        ([message("a", role="assistant")], None),
        ([message("a", kind="image")], None),
        ([message(5)], None),
        ([{"role": "user", "content": "a"}], None),
        ([5], None),
        ([], None),
        ("a", None),
    ],
)
def test_guidance_is_one_user_message_of_text(messages: Any, text: str | None) -> None:
    assert guidance_text({"messages": messages}) == text


@pytest.mark.rule("COORD-41")
def test_fallback_is_the_text_of_the_seed() -> None:
    tools = [{"name": "add", "description": "Add a note."}, {"name": "list"}]
    assert fallback_guidance("notes", tools) == (
        "Guidance for Server notes:\nAvailable tools:\n- add: Add a note.\n- list: \n"
    )
    assert fallback_guidance("notes", []) == (
        "Guidance for Server notes:\nAvailable tools:\n(No tools discovered)"
    )


@pytest.mark.rule("COORD-40")
@given(st.recursive(st.none() | st.text(max_size=4), lambda x: st.lists(x, max_size=2)))
def test_no_result_raises(messages: Any) -> None:
    assert guidance_text({"messages": messages}) is None
