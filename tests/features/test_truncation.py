"""Answers of bounded size: everything if it fits, else the longest beginning that does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foundation_rt.errors import ErrorCode, ToolError
from foundation_rt.features.agent_tools.agents import truncate


def as_list(entries: Sequence[Any], truncated: bool) -> dict[str, Any]:
    return {"names": entries, "truncated": truncated}


def as_object(entries: Sequence[tuple[str, Any]], truncated: bool) -> dict[str, Any]:
    return {"state": dict(entries), "truncated": truncated}


def size(value: Any) -> int:
    return len(orjson.dumps(value))


def longest(entries: list[Any], wrap: Any, max_bytes: int) -> Any:
    """Find the same by trying one length after the other; None if nothing fits."""
    fitting = [wrap(entries, False)]
    fitting += [wrap(entries[:count], True) for count in reversed(range(len(entries)))]
    return next((each for each in fitting if size(each) <= max_bytes), None)


def check(entries: list[Any], wrap: Any, max_bytes: int) -> None:
    expected = longest(entries, wrap, max_bytes)
    if expected is None:
        with pytest.raises(ToolError) as refused:
            truncate(entries, wrap, max_bytes)
        assert refused.value.code is ErrorCode.INTERNAL
        assert refused.value.details is not None
        assert refused.value.details["reason"] == "result_too_large"
        assert refused.value.details["maxResponseBytes"] == max_bytes
    else:
        assert truncate(entries, wrap, max_bytes) == expected


@pytest.mark.rule("AGENT-17")
@given(st.lists(st.text(max_size=6), max_size=8), st.integers(1, 120))
def test_a_list_is_cut_where_it_no_longer_fits(entries: list[str], max_bytes: int) -> None:
    check(entries, as_list, max_bytes)


@pytest.mark.rule("AGENT-17")
@given(st.dictionaries(st.text(max_size=6), st.integers(0, 10**6)), st.integers(1, 120))
@example({}, 29)  # where "true" would fit and "false" does not
def test_an_object_is_cut_where_it_no_longer_fits(members: dict[str, int], max_bytes: int) -> None:
    check(sorted(members.items()), as_object, max_bytes)


@pytest.mark.rule("AGENT-17")
def test_the_limit_is_in_bytes_and_to_the_byte() -> None:
    entries = ["é" * 10, "b"]
    whole = size(as_list(entries, False))
    assert truncate(entries, as_list, whole) == as_list(entries, False)
    assert truncate(entries, as_list, whole - 1) == as_list(entries[:1], True)
    one = size(as_list(entries[:1], True))
    assert truncate(entries, as_list, one) == as_list(entries[:1], True)
    assert truncate(entries, as_list, one - 1) == as_list([], True)


@pytest.mark.rule("AGENT-17")
def test_an_entry_that_json_cannot_say_is_said_so() -> None:
    with pytest.raises(ToolError) as refused:
        truncate([object()], as_list, 1000)
    assert refused.value.details == {"reason": "result_not_serializable"}
