"""Lists of our own entries and of a forwarder's, merged in pages."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.cursors import read_cursor
from foundation_rt.features.forwarding.lists import ForwardedLists, merged_page
from foundation_rt.kernel.registry.tools import ToolDefinition, ToolRegistry
from foundation_rt.protocol.revisions import REVISIONS

NEWEST = REVISIONS["2026-07-28"]
NAMES = st.sets(st.text("abc", min_size=1, max_size=3), max_size=12)


def registry_of(names: Any) -> ToolRegistry:
    registry = ToolRegistry()
    for name in names:
        registry.register(ToolDefinition(name, "own", {"type": "object"}), lambda a, c: None)
    return registry


def forwarded(names: Any) -> tuple[dict[str, Any], ...]:
    return tuple({"name": name, "description": "forwarded", "inputSchema": {}} for name in names)


def all_pages(own: ToolRegistry | None, entries: Any, size: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = None
    lists = ForwardedLists()
    while True:
        after = None if cursor is None else read_cursor(cursor)
        prepared = lists.prepare("tools", entries)
        page, cursor = merged_page(own, prepared, after, size, NEWEST, None)
        assert len(page) <= size
        found += orjson.loads(orjson.dumps(page))
        if cursor is None:
            return found


@pytest.mark.rule("FWD-06")
@given(NAMES, NAMES, st.integers(1, 5))
def test_pages_show_every_entry_once_in_order(own: Any, others: Any, size: int) -> None:
    entries = forwarded(sorted(others, reverse=True)) * 2  # each twice
    found = all_pages(registry_of(own), entries, size)
    assert [each["name"] for each in found] == sorted(own | others)
    assert {each["name"] for each in found if each["description"] == "own"} == own


@pytest.mark.rule("FWD-13")
def test_unusable_entries_are_left_out() -> None:
    bad = [{}, {"name": 7}, {"name": "\ud800"}, "text", None, {"name": "b", "x": object()}]
    good = forwarded("ac")
    found = all_pages(None, [*bad, *good], 1)
    assert [each["name"] for each in found] == ["a", "c"]


@pytest.mark.rule("FWD-15")
def test_preparation_of_a_tuple_is_kept() -> None:
    lists, entries = ForwardedLists(), forwarded("ab")
    first = lists.prepare("tools", entries)
    assert lists.prepare("tools", entries) is first
    assert lists.prepare("prompts", entries) is not first
    others = [forwarded("x") for _ in range(16)]
    for other in others:
        lists.prepare("tools", other)
    assert lists.prepare("tools", entries) is not first
    changing = [*entries]
    assert lists.prepare("tools", changing) is not lists.prepare("tools", changing)
