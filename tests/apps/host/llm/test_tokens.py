"""Estimates of tokens, and usage by session."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.host.chat import TokenUsage
from foundation_rt.apps.host.llm import tokens
from foundation_rt.apps.host.llm.tokens import SessionUsage, TokenEstimate, request_bytes
from tests.lab.models.chats import ECHO, result_of, user


@pytest.mark.rule("LLM-60")
def test_estimate_nears_what_is_reported() -> None:
    estimate = TokenEstimate()
    assert estimate.of_text("äbcdefg") == 2
    for _ in range(50):
        estimate.learn(4000, 2000)
    assert 1990 <= estimate.of_bytes(4000) <= 2000


@pytest.mark.rule("LLM-60")
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(-5, 10**9))))
def test_correction_is_bounded(reports: list[tuple[int, int]]) -> None:
    estimate = TokenEstimate()
    for size, reported in reports:
        estimate.learn(size, reported)
    assert 250 <= estimate.of_bytes(4000) <= 4000


@pytest.mark.rule("LLM-61")
def test_definitions_and_pictures_count() -> None:
    result = result_of(user("x"), "text")
    picture = evolve(result, metadata={"pictures": [{"mimeType": "image/png", "data": "AA=="}]})
    bare = request_bytes("s", [result], ())
    assert request_bytes("s", [picture], ()) == bare + 4000
    assert request_bytes("s", [result], [ECHO]) > bare + len(ECHO.description)


@pytest.mark.rule("LLM-62")
def test_session_unused_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_SESSIONS", 2)
    usage = SessionUsage()
    for name in ("a", "b", "a", "c"):
        usage.add(name, TokenUsage(1, 2))
    assert usage.get("b") is None
    assert usage.get("a") == TokenUsage(2, 4)
