"""The instructions of all servers as one text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.gateway.server_routes import MAX_INSTRUCTION_BYTES, merge_instructions


@pytest.mark.rule("GATE-12")
def test_instructions_stand_below_the_id_of_their_server() -> None:
    merged = merge_instructions([("notes", " Write. \n"), ("empty", " "), ("files", "Read.")])
    assert merged == "# notes\n\nWrite.\n\n# files\n\nRead."
    assert merge_instructions([("empty", "")]) is None


@pytest.mark.rule("GATE-12")
def test_long_instructions_leave_short_ones_whole() -> None:
    merged = merge_instructions([("long", "\u00e9" * 40_000), ("short", "Read.")])
    assert merged is not None
    assert merged.endswith("[cut]\n\n# short\n\nRead.")
    assert MAX_INSTRUCTION_BYTES - 8 < len(merged.encode()) <= MAX_INSTRUCTION_BYTES


_TEXTS = st.sampled_from(["", "x", "\u00e9" * 3_000, "\U0001f600" * 5_000, "a b\n" * 9_000])


@pytest.mark.rule("GATE-12")
@given(st.lists(st.tuples(st.text("ab\u00e9", min_size=1, max_size=64), _TEXTS), max_size=400))
def test_merged_instructions_never_exceed_their_bound(texts: list[tuple[str, str]]) -> None:
    merged = merge_instructions(texts)
    assert merged is None or len(merged.encode()) <= MAX_INSTRUCTION_BYTES
