"""The turns in which child processes are started: a few at a time (COORD-11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from attrs import define, field

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
