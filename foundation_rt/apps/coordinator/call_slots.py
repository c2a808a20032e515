"""The slots of servers: calls that one takes at a time, and starts of child processes.

Calls beyond wait, ordered by priority (COORD-23). Child processes are started a few at a time
(COORD-11).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from heapq import heappop, heappush

from attrs import define, field

from ...client import MCPError
from .requests import Priority

MAX_WAITING = 1000


@define(eq=False)
class CallSlots:
    """The slots of one server.

    Args:
        limit: the most calls at one time.
        share: the most of one principal; None: the limit (COORD-73).

    Attributes:
        running: calls that hold a slot.
    """

    limit: int
    share: int | None = None
    running: int = field(default=0, init=False)
    _running_of: Counter[str] = field(factory=Counter, init=False)
    _waiting: list[tuple[int, int, asyncio.Future[None], str | None]] = field(
        factory=list, init=False
    )
    _arrived: int = field(default=0, init=False)
    _cancelled: int = field(default=0, init=False)

    @property
    def waiting(self) -> int:
        """Return the number of calls that wait."""
        return len(self._waiting) - self._cancelled

    def is_free(self, principal: str | None = None) -> bool:
        """Return whether a call gets a slot at once.

        Args:
            principal: whose call it is; None if that is not known.
        """
        if self.share is None or principal is None:
            return self.running < self.limit
        return self.running < self.limit and self._running_of[principal] < self.share

    def take(self, principal: str | None = None) -> None:
        """Take a slot that is free."""
        self.running += 1
        if self.share is not None and principal is not None:
            self._running_of[principal] += 1

    async def wait(self, priority: Priority, server: str, principal: str | None = None) -> None:
        """Wait for a slot, and take it; the earliest of the highest priority comes first.

        Calls of a principal that has its share are passed over.

        Raises:
            MCPError: E208: too many wait already; nothing was sent.
        """
        if self.waiting >= MAX_WAITING:
            raise MCPError(
                "E208",
                f"{self.running} calls of {server} run and {MAX_WAITING} wait",
                data={"code": "RESOURCE_EXHAUSTED", "reason": "server_queue"},
            )
        turn = asyncio.get_running_loop().create_future()
        self._arrived += 1
        heappush(self._waiting, (priority, self._arrived, turn, principal))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._cancelled += 1
                self._clean()
            else:
                self.release(principal)  # it had its turn at the same moment
            raise

    def release(self, principal: str | None = None) -> None:
        """Give a slot back: to the next call that waits, if there is one that may have it."""
        self.running -= 1
        if self.share is not None and principal is not None:
            self._running_of[principal] -= 1
            if not self._running_of[principal]:
                del self._running_of[principal]
        passed_over = []
        while self._waiting:
            each = heappop(self._waiting)
            _, _, turn, waiter = each
            if turn.done():
                self._cancelled -= 1
            elif self.is_free(waiter):
                self.take(waiter)
                turn.set_result(None)
                break
            else:
                passed_over.append(each)
        for each in passed_over:
            heappush(self._waiting, each)

    def _clean(self) -> None:
        """Drop the cancelled ones once they are most of the heap, which so stays bounded."""
        if self._cancelled > len(self._waiting) // 2:
            self._waiting = sorted(each for each in self._waiting if not each[2].done())
            self._cancelled = 0


AT_A_TIME = 4
"""More would share the processors, and each be ready later."""

SLOW_AFTER = 5.0
"""Seconds after which one that is not ready no longer counts."""


@define(eq=False)
class StartTurns:
    """The turns of one coordinator."""

    _semaphore: asyncio.Semaphore = field(factory=lambda: asyncio.Semaphore(AT_A_TIME), init=False)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn; it ends with the context, or when the start is slow."""
        await self._semaphore.acquire()
        is_held = True

        def end() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._semaphore.release()

        timer = asyncio.get_running_loop().call_later(SLOW_AFTER, end)
        try:
            yield
        finally:
            timer.cancel()
            end()
