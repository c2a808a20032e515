"""The state of the store, and the search for its return."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count

from attrs import define, field

from ....base.backoff import exponential_delay

_LOG = logging.getLogger("foundation_rt.host.sessions")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0


@define(eq=False, repr=False)
class Availability:
    """Knows whether the store can be used (CHAT-24). It belongs to one event loop.

    Args:
        probe: writes something small to the store, or raises.
    """

    _probe: Callable[[], Awaitable[None]]
    _is_back: asyncio.Event | None = field(default=None, init=False)
    _is_closed: bool = field(default=False, init=False)
    _searching: asyncio.Task[None] | None = field(default=None, init=False)

    @property
    def is_available(self) -> bool:
        """Tell whether the last use of the store has succeeded."""
        return self._is_back is None

    def lost(self, error: Exception) -> None:
        """Take note that the store has failed, and look for its return."""
        if self._is_back is not None or self._is_closed:
            return
        _LOG.error(
            "the store of chats cannot be used",
            extra={"fields": {"error": f"{type(error).__name__}: {error}"}},
        )
        self._is_back = asyncio.Event()
        self._searching = asyncio.get_running_loop().create_task(self._search(self._is_back))

    async def wait(self) -> None:
        """Wait until the store can be used."""
        if self._is_back is not None:
            await self._is_back.wait()

    async def close(self) -> None:
        """Stop looking for the store."""
        self._is_closed = True
        searching, self._searching = self._searching, None
        if searching is not None:
            searching.cancel()
            with suppress(asyncio.CancelledError):
                await searching

    async def _search(self, is_back: asyncio.Event) -> None:
        for attempt in count(1):
            await asyncio.sleep(exponential_delay(attempt, _FIRST_PAUSE_S, _LONGEST_PAUSE_S))
            try:
                await self._probe()
            except Exception:  # it is still away
                continue
            break
        self._is_back = None
        is_back.set()
        _LOG.info("the store of chats can be used again")
