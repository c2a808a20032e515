"""Cursors: every name once, also while names change; unknown cursors are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.cursors import InvalidCursor, page_of, read_cursor, write_cursor

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SETS = st.sets(NAMES, max_size=30)


@pytest.mark.rule("PAGE-01")
@given(names=SETS, size=st.integers(1, 12))
def test_all_pages_make_the_whole_list(names: set[str], size: int) -> None:
    whole = sorted(names)
    seen: list[str] = []
    cursor = None
    for _ in range(len(whole) // size + 1):
        shown, cursor = page_of(whole, cursor, size)
        assert len(shown) == min(size, len(whole) - len(seen))
        seen += shown
        if cursor is None:
            break
    assert seen == whole


@pytest.mark.rule("PAGE-02")
@given(versions=st.lists(SETS, min_size=1, max_size=6), size=st.integers(1, 8))
def test_entry_that_stays_is_listed_exactly_once(versions: list[set[str]], size: int) -> None:
    seen: list[str] = []
    cursor, number = None, 0
    while True:
        # Each page is of another list, and the last list stays.
        now = sorted(versions[min(number, len(versions) - 1)])
        shown, cursor = page_of(now, cursor, size)
        seen += shown
        number += 1
        if cursor is None:
            break
    assert seen == sorted(set(seen))
    assert set[str].intersection(*versions[:number]) <= set(seen)


@pytest.mark.rule("PAGE-03")
@given(name=NAMES)
def test_cursor_is_url_safe_and_decodes_to_its_name(name: str) -> None:
    cursor = write_cursor(name)
    assert cursor.replace("-", "").replace("_", "").isalnum()
    assert cursor.isascii()
    assert read_cursor(cursor) == name


@pytest.mark.rule("PAGE-03")
@pytest.mark.parametrize(
    "cursor",
    ["", "a", "====", "YWZ0ZXI", "YmVmb3JlOmE", "YWZ0ZXI6YQ==", "YWZ0ZXI6Y\n", "é", "\ud800", "_w"],
)
def test_unknown_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidCursor):
        page_of(["a", "b"], cursor, 1)


@pytest.mark.rule("PAGE-03")
@given(cursor=st.text(max_size=30))
def test_any_text_is_a_cursor_or_is_refused(cursor: str) -> None:
    try:
        name = read_cursor(cursor)
    except InvalidCursor:
        return
    assert write_cursor(name) == cursor
