"""How many requests are under way at one time; the others wait in the order in which they came.

A request that may be sent takes a place, and gives it back when its exchange is over. A caller that
was let through takes its place in the same step of the event loop, so places that were granted and
not taken yet are counted for that step only.
"""

from __future__ import annotations

import asyncio
from collections import deque

from attrs import define, field


@define(eq=False, repr=False)
class Admission:
    """The places of one channel (CHTTP-10).

    Args:
        most: requests that may be under way.
    """

    most: int
    _taken: int = field(default=0, init=False)
    _granted: int = field(default=0, init=False)
    _queue: deque[asyncio.Future[None]] = field(factory=deque, init=False)
    _is_open: bool = field(default=False, init=False)

    @property
    def is_full(self) -> bool:
        """Return whether a new request has to wait: no place is free, or others wait already."""
        is_busy = self._taken + self._granted >= self.most or bool(self._queue)
        return is_busy and not self._is_open

    async def wait(self) -> None:
        """Wait until the caller may send, in turn. Cancelled, it leaves its place to the next."""
        if not self.is_full:
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._queue.append(turn)
        try:
            await turn
        finally:
            if turn.cancelled():
                if turn in self._queue:  # not, if a place was given back since it was cancelled
                    self._queue.remove(turn)
            elif not self._is_open:
                self._granted -= 1
                # The caller may not send after all: then the next one may.
                loop.call_soon(self._let_in)

    def take(self) -> None:
        """Count a request that is sent."""
        self._taken += 1

    def give_back(self) -> None:
        """Count a request whose exchange is over."""
        self._taken -= 1
        self._let_in()

    def open(self) -> None:
        """Let everybody through from now on: nothing will be sent any more."""
        self._is_open = True
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)

    def _let_in(self) -> None:
        while self._queue and self._taken + self._granted < self.most:
            turn = self._queue.popleft()
            if not turn.done():
                self._granted += 1
                turn.set_result(None)
