"""The connections to one server: those in use, and those that are kept for the next request.

Each is a pool of httpcore2's that has no other. A pool looks at all of its connections twice for
every request: with 128 in flight one cost 1.9 ms of CPU instead of 0.6, and as long as those 128
were kept, a request alone 3 ms.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from .http_route import Connection


@define(eq=False, repr=False)
class Connections:
    """Lends a connection for each exchange; the one that was used last first.

    Args:
        make: makes a connection, which is kept for `keep_alive`.
        most: that may be in use at one time.
        keep_alive: seconds that one is kept without being used.
    """

    make: Callable[[], Connection]
    most: int
    keep_alive: float
    _open: set[Connection] = field(factory=set, init=False)
    _kept: deque[tuple[float, Connection]] = field(factory=deque, init=False)
    _places: asyncio.Semaphore = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.most)

    async def take(self, patience: float) -> Connection:
        """A connection that nobody else uses until it is given back.

        Args:
            patience: seconds to wait where all are in use.

        Raises:
            TimeoutError: they still are.
        """
        async with asyncio.timeout(patience if self._places.locked() else None):
            await self._places.acquire()
        try:
            await self._close_expired()
            return self._kept.pop()[1] if self._kept else self._make()
        except BaseException:
            self._places.release()
            raise

    def give_back(self, transport: Connection) -> None:
        """The exchange is over, and its response closed."""
        self._kept.append((asyncio.get_running_loop().time(), transport))
        self._places.release()

    async def close(self) -> None:
        """Close all of them, those in use too."""
        self._kept.clear()
        while self._open:
            await self._close(next(iter(self._open)))

    def _make(self) -> Connection:
        transport = self.make()
        self._open.add(transport)
        return transport

    async def _close_expired(self) -> None:
        oldest = asyncio.get_running_loop().time() - self.keep_alive
        while self._kept and self._kept[0][0] < oldest:
            await self._close(self._kept.popleft()[1])

    async def _close(self, transport: Connection) -> None:
        self._open.discard(transport)
        with suppress(Exception):  # it has gone already
            await transport.aclose()
