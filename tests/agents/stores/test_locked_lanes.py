"""Batches of which a part is locked, without a database."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("psycopg")

from foundation_rt.agents.ledger.types import LOCKED
from foundation_rt.agents.stores.postgres.locked_lanes import MAX_WAITS, LockedLanes
from foundation_rt.base.database.errors import DatabaseLockedError

LANES = "abcdefgh"

Item = tuple[str, int]


class Ledger:
    """Takes items in order, none of a lane that is locked; counts how often it was waited for."""

    def __init__(self) -> None:
        self.locked: set[str] = set()
        self.entered: list[Item] = []
        self.waits = 0

    async def work(self, items: Sequence[Item], lock_ms: int | None) -> list[int]:
        if any(lane in self.locked for lane, _ in items):
            self.waits += 1
            raise DatabaseLockedError("locked")
        self.entered += items
        return [number for _, number in items]


def enter(lanes: LockedLanes, ledger: Ledger, items: list[Item]) -> list[object]:
    return list(asyncio.run(lanes.enter(items, lambda item: item[0], ledger.work)))


@pytest.mark.rule("AACP-90")
@given(
    batches=st.lists(
        st.tuples(st.lists(st.sampled_from(LANES), max_size=30), st.sets(st.sampled_from(LANES))),
        max_size=5,
    )
)
def test_free_lanes_are_entered_in_order_and_waits_are_bounded(
    batches: list[tuple[list[str], set[str]]],
) -> None:
    lanes, ledger = LockedLanes(), Ledger()
    for names, locked in batches:
        ledger.locked, ledger.entered, ledger.waits = locked, [], 0
        items = [(lane, number) for number, lane in enumerate(names)]
        answers = enter(lanes, ledger, items)
        entered = [item for item, answer in zip(items, answers, strict=True) if answer == item[1]]
        assert sorted(ledger.entered, key=lambda item: item[1]) == entered
        for lane in LANES:
            mine = [item for item in items if item[0] == lane]
            assert [item for item in ledger.entered if item[0] == lane] in ([], mine)
            if lane in locked:
                assert all(answers[number] is LOCKED for _, number in mine)
        assert ledger.waits <= MAX_WAITS
        if ledger.waits < MAX_WAITS:
            assert {lane for lane, _ in entered} == {*names} - locked


@pytest.mark.rule("AACP-90")
def test_lane_that_is_known_to_be_locked_is_tried_by_itself_until_it_is_free() -> None:
    lanes, ledger = LockedLanes(), Ledger()
    ledger.locked = {"c"}
    items = [(lane, number) for number, lane in enumerate(LANES)]
    enter(lanes, ledger, items)
    ledger.waits = 0
    enter(lanes, ledger, items)
    assert ledger.waits == 1
    ledger.locked = set()
    assert LOCKED not in enter(lanes, ledger, items)
    assert not lanes.suspects
