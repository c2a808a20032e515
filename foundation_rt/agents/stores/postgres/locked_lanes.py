"""A batch of which another process keeps a part locked: the rest of it goes through (AACP-90).

A process that is stopped or cut off in a transaction keeps its locks until the server ends that
transaction. Without this, every batch with an item behind these locks would fail as a whole, again
and again, and nobody would get anything done.

A batch is divided into lanes, each of which is entered as a whole or not: the messages to one
agent, for instance. When the whole batch waits for too long, its halves are tried, and the halves
of those: so a lane that is locked costs a few waits, and then is known. From then on it is tried by
itself, after all others, until it is free.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from attrs import define, field

from ....base.database.errors import DatabaseLockedError
from ....base.shown import Shown
from ...ledger.types import LOCKED, Locked

PROBE_MS = 50
"""The longest wait for a lock of a part of a batch."""
MAX_WAITS = 12
"""Most waits of one batch; what was not tried then counts as locked. Half of 500 items, and half of
that, and so on, takes 9."""
MAX_SUSPECTS = 10_000

Item = TypeVar("Item")
Answer = TypeVar("Answer")

Work = Callable[[Sequence[Item], "int | None"], Awaitable[Sequence[Answer]]]
"""Enters items in one transaction, with the longest wait for a lock in ms (None: that of its
connection); raises `DatabaseLockedError`."""


@define(eq=False, repr=False)
class LockedLanes(Shown):
    """Enters batches of one kind, and knows which lanes were locked.

    Attributes:
        suspects: the lanes that were locked when they were last tried, the longest ago first.
    """

    suspects: dict[str, None] = field(factory=dict, init=False)

    async def enter(
        self, items: Sequence[Item], lane_of: Callable[[Item], str], work: Work[Item, Answer]
    ) -> list[Answer | Locked]:
        """Enter what can be entered; return an answer for each item, `LOCKED` for what cannot.

        Raises:
            DatabaseError: it failed for another reason; a part may have been entered.
        """
        batch: _Batch[Item, Answer] = _Batch(items, work, [LOCKED] * len(items))
        for place, item in enumerate(items):
            batch.lanes.setdefault(lane_of(item), []).append(place)
        calm = [lane for lane in batch.lanes if lane not in self.suspects]
        if calm:
            await self._try(batch, calm, None)
        for lane in [lane for lane in self.suspects if lane in batch.lanes]:
            await self._try(batch, [lane], PROBE_MS)
        return batch.answers

    async def _try(
        self, batch: _Batch[Item, Answer], lanes: list[str], lock_ms: int | None
    ) -> None:
        """Enter lanes in one transaction; if that has to wait for too long, each half."""
        if batch.waits == MAX_WAITS:
            return
        places = sorted(place for lane in lanes for place in batch.lanes[lane])
        try:
            answers = await batch.work([batch.items[place] for place in places], lock_ms)
        except DatabaseLockedError:
            batch.waits += 1
        else:
            for place, answer in zip(places, answers, strict=True):
                batch.answers[place] = answer
            for lane in lanes:
                self.suspects.pop(lane, None)
            return
        if len(lanes) > 1:
            half = len(lanes) // 2
            await self._try(batch, lanes[:half], PROBE_MS)
            await self._try(batch, lanes[half:], PROBE_MS)
            return
        self.suspects.pop(lanes[0], None)  # it is tried last the next time
        if len(self.suspects) < MAX_SUSPECTS:
            self.suspects[lanes[0]] = None


@define(eq=False, repr=False)
class _Batch(Shown, Generic[Item, Answer]):
    """A batch that is being entered.

    Attributes:
        answers: one for each item so far.
        lanes: the places of the items of each lane.
        waits: how often it waited for a lock for too long.
    """

    items: Sequence[Item]
    work: Work[Item, Answer]
    answers: list[Answer | Locked]
    lanes: dict[str, list[int]] = field(factory=dict)
    waits: int = 0
