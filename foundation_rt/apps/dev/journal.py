"""A bounded history of events, and readers of it (DEV-20, DEV-21).

A reader has a position and no queue of its own, so a page that does not read costs nothing: when
its position has left the history, it begins again.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import orjson
from attrs import define, field, frozen

from ...base.exact_json import dumps

MAX_EVENTS = 2_000
MAX_BYTES = 16 * 1024 * 1024

Listener = Callable[[str, Mapping[str, Any]], object]
"""Gets the kind and the members of an event, in the loop; may not raise."""


def now_ms() -> float:
    """Return the Unix time, in ms."""
    return round(time.time() * 1000, 1)


@frozen(eq=False)
class JournalEvent:
    """One event.

    Attributes:
        number: from 1, without gaps.
        data: a JSON object.
    """

    number: int
    kind: str
    data: bytes


@define(eq=False)
class Journal:
    """The events of a front; belongs to its event loop.

    Args:
        max_events: that are kept.
        max_bytes: that they have together.

    Attributes:
        instance: tells the events of one front from those of another.
        listeners: get every event as it comes.
    """

    max_events: int = MAX_EVENTS
    max_bytes: int = MAX_BYTES
    instance: str = field(factory=lambda: secrets.token_hex(4), init=False)
    listeners: list[Listener] = field(factory=list, init=False)
    _events: deque[JournalEvent] = field(factory=deque, init=False)
    _bytes: int = field(default=0, init=False)
    _last: int = field(default=0, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    @property
    def last(self) -> int:
        """The number of the latest event; 0 before the first."""
        return self._last

    @property
    def first(self) -> int:
        """The number of the oldest event that is kept; of the next one, if there is none."""
        return self._events[0].number if self._events else self._last + 1

    def add(self, kind: str, members: Mapping[str, Any]) -> None:
        """Keep an event; the oldest ones make room for it."""
        members = {"at": now_ms(), **members}
        try:
            data = dumps(members, option=orjson.OPT_NON_STR_KEYS, default=str)
        except TypeError:  # a lone surrogate, an integer over 64 bits
            data = dumps({"at": members["at"], "unwritable": True, "kind": kind})
        self._last += 1
        self._events.append(JournalEvent(self._last, kind, data))
        self._bytes += len(data)
        while len(self._events) > self.max_events or (
            self._bytes > self.max_bytes and len(self._events) > 1
        ):
            self._bytes -= len(self._events.popleft().data)
        for listener in self.listeners:
            listener(kind, members)
        self.wake()

    def after(self, number: int) -> list[JournalEvent]:
        """Return the events that are kept and later than this one."""
        skipped = max(0, number + 1 - self.first)
        return [] if skipped >= len(self._events) else [*self._events][skipped:]

    def wake(self) -> None:
        """Let readers look again: the state has changed, too."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changed(self, timeout: float) -> None:
        """Wait for the next event or `wake`, `timeout` seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._changed.wait()

    def event_id(self, number: int) -> str:
        """Return the id of an event, for a reader that comes again."""
        return f"{self.instance}-{number}"

    def position(self, event_id: str | None) -> int | None:
        """Return the number in an id; None if it is none of this journal, or not kept any more."""
        instance, _, number = (event_id or "").partition("-")
        if instance != self.instance or not number.isdecimal() or len(number) > 15:
            return None
        found = int(number)
        return found if self.first - 1 <= found <= self._last else None
