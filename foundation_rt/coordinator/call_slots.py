"""The calls that one server takes at a time; others wait, ordered by priority (COORD-23)."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush

from attrs import define, field

from ..client import MCPError
from .requests import Priority

MAX_WAITING = 1000


@define(eq=False)
class CallSlots:
    """The slots of one server.

    Args:
        limit: the most calls at one time.

    Attributes:
        running: calls that hold a slot.
    """

    limit: int
    running: int = field(default=0, init=False)
    _waiting: list[tuple[int, int, asyncio.Future[None]]] = field(factory=list, init=False)
    _arrived: int = field(default=0, init=False)
    _cancelled: int = field(default=0, init=False)

    @property
    def waiting(self) -> int:
        """Return the number of calls that wait."""
        return len(self._waiting) - self._cancelled

    @property
    def is_free(self) -> bool:
        """Return whether a call gets a slot at once."""
        return self.running < self.limit

    def take(self) -> None:
        """Take a slot that is free."""
        self.running += 1

    async def wait(self, priority: Priority, server: str) -> None:
        """Wait for a slot, and take it; the earliest of the highest priority comes first.

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
        heappush(self._waiting, (priority, self._arrived, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._cancelled += 1
                self._clean()
            else:
                self.release()  # it had its turn at the same moment
            raise

    def release(self) -> None:
        """Give a slot back: to the next call that waits, if there is one."""
        while self._waiting:
            _, _, turn = heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
            self._cancelled -= 1
        self.running -= 1

    def _clean(self) -> None:
        """Drop the cancelled ones once they are most of the heap, which so stays bounded."""
        if self._cancelled > len(self._waiting) // 2:
            self._waiting = sorted(each for each in self._waiting if not each[2].done())
            self._cancelled = 0
