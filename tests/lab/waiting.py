"""How a test waits: for an event where there is one, and with `until` where nothing tells.

Nothing tells of a file, of a row of a database, of another process, or of what a class keeps to
itself. The first looks follow each other at once, and each later pause is as long as all before it,
up to `LONGEST`. In virtual time, where the first pauses are microseconds, all else that is ready
goes first.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any

from attrs import define, field

PATIENCE = 60.0
"""Seconds after which something that should have happened counts as hanging."""

LONGEST = 0.05
"""The longest pause between two looks, in seconds."""


async def until(look: Callable[[], Any], what: str, holds: Callable[[Any], object] = bool) -> Any:
    """Wait until what is looked at is as wanted; return it.

    Args:
        look: a plain function, or a coroutine function.
        what: what is waited for.
        holds: tells whether what `look` has returned is as wanted.
    """
    for pause in _pauses():
        found = look()
        if inspect.isawaitable(found):
            found = await found
        if holds(found):
            return found
        await asyncio.sleep(pause)
    raise AssertionError(f"waited in vain: {what}; it is {found!r:.999}")


def block_until(look: Callable[[], Any], what: str, holds: Callable[[Any], object] = bool) -> Any:
    """Wait as `until` does, in a thread without an event loop."""
    for pause in _pauses():
        if holds(found := look()):
            return found
        time.sleep(pause)
    raise AssertionError(f"waited in vain: {what}; it is {found!r:.999}")


async def settle(turns: int = 60) -> None:
    """Let turns of the loop pass: by default, more than anything takes that waits for no time."""
    for _ in range(turns):
        await asyncio.sleep(0)


def _pauses() -> Iterator[float]:
    pause, end = 1e-6, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        yield pause
        pause = min(2 * pause, LONGEST)


@define(eq=False)
class Changing:
    """What says when it has changed, for who waits in the same loop."""

    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    def has_changed(self) -> None:
        """Let who waits look again."""
        self._changed.set()

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until a condition holds, which is looked at after each change; return its value."""
        async with asyncio.timeout(PATIENCE):
            while not (found := condition()):
                self._changed.clear()
                await self._changed.wait()
            return found
