"""One reader of a session: what it has missed, then what happens."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from attrs import define, field

from ....base.database.errors import DatabaseError
from ....base.exact_json import loads
from ..events import ServerMessage
from .store import Frame, SlowConnectionError

if TYPE_CHECKING:
    from .session import ChatSession


@define(eq=False, repr=False)
class SessionConnection(AsyncIterator[ServerMessage]):
    """Yields the events of a session in order, each once, beginning behind a number (CHAT-12).

    Where events are no longer kept, it yields the whole chat as one `history` message instead, and
    goes on behind that. It ends when it is closed, or when the session is deleted.

    One task reads it.

    Raises:
        SlowConnectionError: of iteration: too much was left unread (CHAT-15).

    Attributes:
        seen: the number of the newest event that it has yielded.
        on_slow: called when too much was left unread, for a reader that waits for its client.
    """

    _session: ChatSession
    seen: int
    _needs_history: bool
    _max_unread: int
    # Behind `seen` and up to here it reads what the store keeps.
    _replay_to: int
    _replay: deque[Frame] = field(factory=deque, init=False)
    _live: deque[tuple[ServerMessage, int]] = field(factory=deque, init=False)
    _unread: int = field(default=0, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)
    _is_closed: bool = field(default=False, init=False)
    _is_slow: bool = field(default=False, init=False)
    on_slow: Callable[[], object] | None = field(default=None, init=False)

    def close(self) -> None:
        """Leave the session; the iteration ends. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._session.leave(self)
        self._changed.set()

    async def __anext__(self) -> ServerMessage:
        while True:
            message = await self._next()
            if message is not None:
                return message
            if self._is_slow:
                raise SlowConnectionError
            if self._is_closed:
                raise StopAsyncIteration
            if not (self._live or self._needs_history):
                self._changed.clear()
                await self._changed.wait()

    async def _next(self) -> ServerMessage | None:
        """Return the next message; None: there is none now."""
        if self._is_closed:
            return None
        if self._needs_history:
            return await self._take_history()
        if self.seen < self._replay_to:
            return await self._take_replayed()
        while self._live:
            message, size = self._live.popleft()
            self._unread -= size
            if message.seq is not None and message.seq > self.seen:
                self.seen = message.seq
                return message
        return None

    async def _take_history(self) -> ServerMessage:
        self._needs_history = False
        self._replay.clear()
        message, seq = await self._session.take_history()
        self.seen = self._replay_to = seq
        return message

    async def _take_replayed(self) -> ServerMessage | None:
        if not self._replay:
            try:
                self._replay.extend(await self._session.read_frames(self.seen, self._replay_to))
            except DatabaseError:
                self._replay.clear()
        if self._needs_history:
            return None
        if not self._replay or self._replay[0][0] != self.seen + 1:
            self._needs_history = True  # it is not kept any more, or not stored yet
            return None
        self.seen, frame = self._replay.popleft()
        return decode_frame(frame)

    @property
    def is_crowded(self) -> bool:
        """Tell whether half of what may be unread is."""
        return self._unread > self._max_unread // 2

    # -- called by the session --------------------------------------------------------------------

    def offer(self, message: ServerMessage, size: int) -> None:
        """Add an event behind those that wait; too much that waits ends the connection."""
        if self._live and self._unread + size > self._max_unread:
            self._is_slow = True
            self._live.clear()
            self.close()
            if self.on_slow is not None:
                self.on_slow()
            return
        self._unread += size
        self._live.append((message, size))
        self._changed.set()

    def reset(self) -> None:
        """Go on with the whole chat: other events were seen than those that count."""
        self._live.clear()
        self._unread = 0
        self._needs_history = True
        self._changed.set()


def decode_frame(frame: bytes) -> ServerMessage:
    """Return the event of a frame."""
    values = loads(frame)
    return ServerMessage(values["type"], values["payload"], values.get("turnId"), values.get("seq"))
