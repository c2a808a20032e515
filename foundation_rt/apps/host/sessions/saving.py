"""Saving: events of a chat are stored first, then shown.

Events and messages are gathered while a transaction is under way and go into the next one, so a
chat has one transaction at a time, and a fast stream costs no more of them than a slow one. While
the store is away everything is shown at once, and is stored when it is back, in its order.

`Availability` is the state of the store, and the search for its return.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count

from attrs import define, field

from ....base.backoff import exponential_delay
from ....base.database.errors import DatabaseError
from ..chat import ChatMessage, chat_label
from ..events import ServerMessage
from .live_chat import LiveChat
from .store import (
    ChatStore,
    ChatTurn,
    FencedError,
    Frame,
    StoreUnavailableError,
)

_LOG = logging.getLogger("foundation_rt.host.sessions")
_MOST_UNSHOWN, _MOST_UNSHOWN_BYTES = 256, 256 * 1024
"""Events that wait for their transaction; then who makes them waits too."""


@define
class _Pending:
    messages: dict[str, tuple[int, ChatMessage]] = field(factory=dict)
    frames: deque[Frame] = field(factory=deque)
    ends_turn: bool = False

    def __bool__(self) -> bool:
        return bool(self.messages or self.frames or self.ends_turn)


@define(eq=False, repr=False)
class Saving:
    """Stores the changes of one chat, and then has its events shown.

    Args:
        key: of the chat.
        store: where to.
        availability: of the store.
        chat: that changes.
        show: called with each event and the size of its frame, when it is stored.
        fenced: called when another worker has ended the turn that writes.

    Attributes:
        is_fenced: what the turn does is not taken any more.
        has_ended: the turn has ended by an event.
    """

    _key: bytes
    _store: ChatStore
    _availability: Availability
    _chat: LiveChat
    _show: Callable[[ServerMessage, int], object]
    _fenced: Callable[[], object]
    _turn: ChatTurn | None = field(default=None, init=False)
    is_fenced: bool = field(default=False, init=False)
    has_ended: bool = field(default=True, init=False)
    _pending: _Pending = field(factory=_Pending, init=False)
    _unshown: deque[tuple[ServerMessage, int]] = field(factory=deque, init=False)
    _unshown_bytes: int = field(default=0, init=False)
    _flusher: asyncio.Task[None] | None = field(default=None, init=False)
    # Changes are counted: so many were made, and so many are stored, or shown without a store.
    _made: int = field(default=0, init=False)
    _settled: int = field(default=0, init=False)
    _waiters: deque[tuple[int, asyncio.Future[None]]] = field(factory=deque, init=False)

    def begin(self, turn: ChatTurn) -> None:
        """Write in the name of a turn, which the store has begun."""
        self._turn, self.is_fenced, self.has_ended = turn, False, False

    def put(self, message: ChatMessage) -> None:
        """Add a message to the chat, or replace it."""
        if not self.is_fenced:
            self._pending.messages[message.id] = (self._chat.put(message), message)
            self._made += 1

    def emit(self, message: ServerMessage) -> None:
        """Give an event its number; `save` shows it."""
        if self.is_fenced or self.has_ended:
            return
        numbered, frame = self._chat.number(message)
        assert numbered.seq is not None
        frames = self._pending.frames
        frames.append((numbered.seq, frame))
        while frames and frames[0][0] < self._chat.first_seq:
            frames.popleft()  # without a store they would be as many as there ever were
        self._unshown.append((numbered, len(frame)))
        self._unshown_bytes += len(frame)
        self._made += 1
        if message.type == "turn" and message.payload["state"] != "started":
            self._pending.ends_turn = self.has_ended = True

    async def save(self, *, wait: bool = True) -> None:
        """Store what was added; return when it is stored, or shown as the store is away.

        Args:
            wait: else return at once, unless much waits already.
        """
        if self._store.is_immediate:
            await self._flush()
            return
        if not self._availability.is_available:
            self._show_all()
        if self._flusher is None and self._pending:
            self._flusher = asyncio.get_running_loop().create_task(self._flush_on())
        much = len(self._unshown) > _MOST_UNSHOWN or self._unshown_bytes > _MOST_UNSHOWN_BYTES
        if wait or much:
            await self._settle()

    async def stored(self) -> None:
        """Wait until everything is stored, however long the store is away."""
        while self._flusher is not None:
            await asyncio.wait({self._flusher})

    def cancel(self) -> None:
        """Store nothing more."""
        if self._flusher is not None:
            self._flusher.cancel()

    async def _settle(self) -> None:
        if self._settled < self._made:
            future = asyncio.get_running_loop().create_future()
            self._waiters.append((self._made, future))
            await future

    async def _flush_on(self) -> None:
        try:
            await self._flush()
        finally:
            self._flusher = None

    async def _flush(self) -> None:
        while self._pending:
            made, last_seq = self._made, self._chat.last_seq
            taken, self._pending = self._pending, _Pending()
            writing = self._chat.writing(
                None if self._turn is None else self._turn.turn_id,
                tuple(taken.messages.values()),
                tuple(taken.frames),
                ends_turn=taken.ends_turn,
            )
            try:
                version = await self._store.write(self._key, writing)
            except FencedError:
                self.lose()
                self._fenced()
                return
            except DatabaseError as error:
                self._put_back(taken)
                self._availability.lost(error)
                self._show_all()
                await self._availability.wait()
            except Exception:  # it can never be stored: the turn fails, the store is fine
                fields = {"chat": chat_label(self._key.hex())}
                _LOG.exception("a chat cannot be stored", extra={"fields": fields})
                self.lose()
                self._fenced()
                return
            else:
                self._chat.version = version
                if taken.ends_turn:
                    self._turn = None
                self._show_up_to(made, last_seq)

    def _put_back(self, taken: _Pending) -> None:
        """Keep what was not stored, before what came later; events too old for replay go."""
        newer = self._pending
        frames = (*taken.frames, *newer.frames)
        self._pending = _Pending(
            {**taken.messages, **newer.messages},
            deque(each for each in frames if each[0] >= self._chat.first_seq),
            taken.ends_turn or newer.ends_turn,
        )

    def lose(self) -> None:
        """Drop what is not stored, and take nothing until the next turn begins."""
        self.is_fenced = True
        self._turn = None
        self._pending = _Pending()
        self._unshown.clear()
        self._unshown_bytes = 0
        self._settle_up_to(self._made)

    def _show_all(self) -> None:
        self._show_up_to(self._made, self._chat.last_seq)

    def _show_up_to(self, made: int, last_seq: int) -> None:
        while self._unshown and (self._unshown[0][0].seq or 0) <= last_seq:
            message, size = self._unshown.popleft()
            self._unshown_bytes -= size
            self._show(message, size)
        self._settle_up_to(made)

    def _settle_up_to(self, made: int) -> None:
        self._settled = max(self._settled, made)
        while self._waiters and self._waiters[0][0] <= self._settled:
            _, future = self._waiters.popleft()
            if not future.done():
                future.set_result(None)


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

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Use the store within the block.

        Raises:
            StoreUnavailableError: it has failed.
        """
        try:
            yield
        except DatabaseError as error:
            self.lost(error)
            raise StoreUnavailableError from error

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


def log_chat(action: str, key: bytes) -> None:
    """Write a record of what has become of a chat (HOST-45)."""
    fields = {"component": "Sessions", "action": action, "chat": chat_label(key.hex())}
    _LOG.info(action, extra={"fields": fields})
