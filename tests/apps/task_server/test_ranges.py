"""Ranges of ids: what a `Change` says of the tasks that have changed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.task_server.store import ranges_of


@given(st.lists(st.integers(1, 60)), st.integers(1, 8))
def test_ranges_hold_every_id_and_are_as_few_as_may_be(ids: list[int], most: int) -> None:
    ranges = ranges_of(ids, most)
    held = {id_ for first, last in ranges for id_ in range(first, last + 1)}
    runs = sum(id_ - 1 not in ids for id_ in set(ids))
    assert set(ids) <= held
    assert len(ranges) == min(runs, most)
    assert list(ranges) == sorted(ranges)
    assert all(first in ids and last in ids for first, last in ranges)


def test_ranges_without_need_hold_nothing_else() -> None:
    assert ranges_of([9, 1, 2, 3, 7]) == ((1, 3), (7, 7), (9, 9))
    assert ranges_of([1, 2, 50, 54], most=2) == ((1, 2), (50, 54))
    assert ranges_of([]) == ()
