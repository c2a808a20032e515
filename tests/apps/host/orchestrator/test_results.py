"""What a model reads of a result."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt.apps.host.orchestrator.results import NOTHING, outcome_of
from foundation_rt.client import CallResult


def outcome(wire: dict[str, Any], *, pictures: bool = False) -> Any:
    return outcome_of(CallResult.read(wire), takes_pictures=pictures, tokens=100, count=len)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


@pytest.mark.rule("TURN-40")
@pytest.mark.parametrize(
    ("wire", "read"),
    [
        ({"content": [text("a"), text("b")], "structuredContent": {"c": 1}}, "a\nb"),
        ({"content": [text(" ")], "structuredContent": {"c": 1}}, '{"c":1}'),
        ({"content": [], "structuredContent": None}, "null"),
        ({"content": []}, NOTHING),
        (
            {"content": [{"type": "resource_link", "uri": "a:b", "name": "n", "description": "d"}]},
            "[resource n, a:b: d]",
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "t"}}]},
            "[resource a:b]\nt",
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "a:b", "blob": "AAAA"}}]},
            "[resource a:b, 3 bytes]",
        ),
        (
            {"content": [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]},
            "[sound, audio/wav, 3 bytes: only people hear it]",
        ),
        ({"content": [{"type": "new", "x": 1}]}, '{"type":"new","x":1}'),
    ],
)
def test_content_counts_and_else_the_structured_part(wire: dict[str, Any], read: str) -> None:
    found = outcome(wire)
    assert found.content == read
    assert found.data == {"result": wire}
    assert not found.is_error


@pytest.mark.rule("TURN-43")
def test_error_of_a_tool_is_an_error_with_its_result() -> None:
    found = outcome({"content": [text("broken")], "isError": True})
    assert (found.is_error, found.content, found.message) == (True, "broken", "broken")
    unreadable = outcome({"content": [{"type": "text"}]})
    assert unreadable.is_error
    assert unreadable.data["error"]["code"] == "INVALID_RESULT"


@pytest.mark.rule("TURN-41")
def test_pictures_are_bounded() -> None:
    picture = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    found = outcome({"content": [picture] * 10}, pictures=True)
    assert len(found.pictures) == 8
    assert found.content.count("only people see it") == 2
    assert outcome({"content": [picture]}, pictures=True).content
