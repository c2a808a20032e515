"""A ledger in memory that can be shared, told to fail, and made to wait."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from foundation_rt.agents.ledger.effects import Operation
from foundation_rt.agents.persistence import StoreError
from foundation_rt.agents.stores.memory import InMemoryAACPPersistenceAdapter


class FaultyStore(InMemoryAACPPersistenceAdapter):
    """Does what the ledger in memory does, unless the test wants it otherwise.

    Args:
        shared: whether several coordinators use it at once.

    Attributes:
        calls: how often each operation was begun.
        opened, closed: how often it was.
        is_open: whether it is.
        before, after: errors that the next operations of that name raise, before or after they
            have happened.
        gates: events that operations of that name wait for before they begin.
        is_down: every operation fails, and nothing happens.
    """

    immediate = False  # it may wait for a gate

    def __init__(self, *, shared: bool = False, **more: Any) -> None:
        super().__init__(**more)
        self.shared = shared  # type: ignore[misc]
        self.immediate = False  # type: ignore[misc]
        self.calls: defaultdict[str, int] = defaultdict(int)
        self.opened = self.closed = 0
        self.is_open = False
        self.before: defaultdict[str, deque[Exception]] = defaultdict(deque)
        self.after: defaultdict[str, deque[Exception]] = defaultdict(deque)
        self.gates: dict[str, asyncio.Event] = {}
        self.is_down = False
        self.listeners: list[Callable[[], object]] = []

    async def open(self) -> None:
        if self.is_down:
            raise StoreError("the ledger is down")
        self.opened += 1
        self.is_open = True

    async def close(self) -> None:
        self.closed += 1
        self.is_open = False

    def on_change(self, callback: Callable[[Any], object]) -> None:
        self.listeners.append(callback)

    def fail(self, operation: str, *, after: bool = False, times: int = 1) -> None:
        """Have the next operations of that name fail, before or after they happen."""
        errors = (self.after if after else self.before)[operation]
        errors.extend(StoreError(f"{operation} was to fail") for _ in range(times))


def _faulty(name: str) -> Callable[..., Any]:
    ordinary = getattr(InMemoryAACPPersistenceAdapter, name)

    async def operation(self: FaultyStore, *arguments: Any) -> Any:
        self.calls[name] += 1
        if name in self.gates:
            await self.gates[name].wait()
        if self.is_down:
            raise StoreError("the ledger is down")
        if self.before[name]:
            raise self.before[name].popleft()
        result = await ordinary(self, *arguments)
        if self.after[name]:
            raise self.after[name].popleft()
        return result

    return operation


_OTHERS = ("put_request_record", "mark_completed", "measure_queues")

for _name in [*(each.value for each in Operation), *_OTHERS]:
    setattr(FaultyStore, _name, _faulty(_name))
