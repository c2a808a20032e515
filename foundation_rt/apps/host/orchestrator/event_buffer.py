"""The events of one turn, between the task that makes them and the generator that yields them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any

from attrs import define, field

from ..events import ServerMessage, SessionEventType

_LIMIT = 64
"""Events that wait; beyond, the model is read no further."""


@define(eq=False)
class EventBuffer:
    """Events in order. A slow reader slows the turn.

    Args:
        turn_id: of all events.
    """

    _turn_id: str
    _events: deque[ServerMessage] = field(factory=deque, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)
    _room: asyncio.Event = field(factory=asyncio.Event, init=False)
    _is_closed: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._room.set()

    @property
    def has_room(self) -> bool:
        """Return whether an event may be put without waiting."""
        return len(self._events) < _LIMIT

    async def put(self, kind: SessionEventType, payload: Mapping[str, Any]) -> None:
        """Put an event when there is room for it; drop it once nobody reads."""
        while not (self.has_room or self._is_closed):
            self._room.clear()
            await self._room.wait()
        self.push(kind, payload)

    def push(self, kind: SessionEventType, payload: Mapping[str, Any]) -> None:
        """Put an event at once, for those whose number is bounded; dropped once nobody reads."""
        if not self._is_closed:
            self._events.append(ServerMessage(kind, payload, self._turn_id))
            self._changed.set()

    def close(self) -> None:
        """Take no further event; whoever waits for room goes on."""
        self._is_closed = True
        self._changed.set()
        self._room.set()

    async def next(self) -> ServerMessage | None:
        """Return the next event; None after the last one."""
        while not self._events:
            if self._is_closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        event = self._events.popleft()
        self._room.set()
        return event
