"""A text of the model while it streams: shown at once, stored within a second (TURN-11)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from attrs import define, evolve, field

from ..chat import THOUGHT, ChatMessage
from .scope import TurnScope

MAX_ANSWER_CHARACTERS = 1_000_000
"""The longest text of one answer; a model that does not stop is read no further."""

_STORE_AFTER = 0.5
"""Seconds after which text is stored that was shown; half of what is promised."""


@define(eq=False)
class StreamedText:
    """One text, piece by piece. It has to be finished.

    Args:
        first: the message it becomes, without content.
    """

    _scope: TurnScope
    _first: ChatMessage
    _pieces: list[str] = field(factory=list, init=False)
    _metadata: dict[str, Any] = field(factory=dict, init=False)
    _lock: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _grown: asyncio.Event = field(factory=asyncio.Event, init=False)
    _keeper: asyncio.Task[None] = field(init=False)
    length: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._keeper = asyncio.create_task(self._keep())

    async def add(self, piece: str, metadata: Mapping[str, Any]) -> None:
        """Show a piece, which the store does not hold up."""
        is_new = not self._pieces
        self._metadata.update(metadata)
        if piece:
            self._pieces.append(piece)
            self.length += len(piece)
            if self._is_thought and is_new:  # whatever happens, it is never taken for a text
                async with self._lock:
                    await self._store()
            self._grown.set()
            await self._scope.emit("text", self._payload(piece, is_done=False))

    async def finish(self) -> None:
        """Store the whole text, and say that it ends."""
        async with self._lock:  # so that no write is cancelled half-way
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            if self._pieces or self._metadata:
                await self._store()
        if self._pieces:
            self._scope.events.push("text", self._payload("", is_done=True))

    @property
    def _is_thought(self) -> bool:
        return bool(self._first.metadata.get(THOUGHT))

    def _payload(self, content: str, *, is_done: bool) -> dict[str, Any]:
        payload = {"content": content, "messageId": self._first.id, "done": is_done}
        return {**payload, THOUGHT: True} if self._is_thought else payload

    async def _keep(self) -> None:
        while True:
            await self._grown.wait()
            await asyncio.sleep(_STORE_AFTER)
            self._grown.clear()
            async with self._lock:
                await self._store()

    async def _store(self) -> None:
        message = evolve(self._first, content="".join(self._pieces))
        await self._scope.store(self._scope.stamped(message, **self._metadata))
