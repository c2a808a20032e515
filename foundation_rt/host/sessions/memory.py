"""The default store: chats of this process, which end with it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Sequence

from attrs import define, evolve, field

from ..chat import ChatMessage
from .errors import (
    FencedError,
    RateLimitedError,
    StoreUnavailableError,
    TooManyTurnsError,
    UnknownSessionError,
)
from .rows import MAX_ALLOWED
from .settings import SessionSettings
from .store import (
    BegunTurn,
    ChatHead,
    ChatTurn,
    Command,
    Frame,
    StoredChat,
    StoreEvents,
    SubmitLimits,
    Writing,
)

_PAGE_BYTES = 256 * 1024


@define
class _Chat:
    head: ChatHead
    messages: list[ChatMessage] = field(factory=list)
    ids: set[str] = field(factory=set)
    frames: dict[int, bytes] = field(factory=dict)
    waiting: deque[ChatTurn] = field(factory=deque)
    recent: tuple[int, ...] = ()
    bytes: int = 0


@define(eq=False, repr=False)
class MemoryChatStore:
    """Keeps chats in memory, up to a number and an idle time (CHAT-06).

    Messages and frames are those of the session itself, so a chat is not in memory twice.

    Args:
        settings: how many, and how long.
    """

    _settings: SessionSettings = field(factory=SessionSettings)
    # The one that is idle the longest is the first.
    _chats: OrderedDict[bytes, _Chat] = field(factory=OrderedDict, init=False)
    _allowed: dict[str, dict[str, None]] = field(factory=dict, init=False)
    _bytes: int = field(default=0, init=False)
    _events: StoreEvents | None = field(default=None, init=False)
    is_immediate: bool = field(default=True, init=False)

    async def open(self, events: StoreEvents) -> None:
        """See `ChatStore`."""
        self._events = events

    async def close(self) -> None:
        """See `ChatStore`."""

    async def probe(self) -> None:
        """See `ChatStore`."""

    async def create(self, key: bytes, head: ChatHead) -> None:
        """See `ChatStore`."""
        self._make_room(head.created_at)
        if len(self._chats) >= self._settings.max_sessions:
            raise StoreUnavailableError
        self._chats[key] = _Chat(head)

    def _make_room(self, now: int) -> None:
        """Drop chats that were idle for too long, and the ones idle the longest if it is too much.

        A chat in which a turn runs or which somebody is connected to is not idle.
        """
        watched: Collection[bytes] | None = None
        settings = self._settings
        oldest = now - settings.idle_ms
        kept = 0
        while len(self._chats) > kept:
            key, chat = next(iter(self._chats.items()))
            too_many = len(self._chats) >= settings.max_sessions or self._bytes > settings.max_bytes
            if not too_many and chat.head.last_active_at > oldest:
                return
            if watched is None:
                watched = () if self._events is None else self._events.watched()
            if key in watched or chat.head.running is not None:
                self._chats.move_to_end(key)
                kept += 1
            else:
                self._drop(key)

    def _drop(self, key: bytes) -> None:
        self._bytes -= self._chats.pop(key).bytes

    async def load(self, key: bytes, principal: str) -> StoredChat | None:
        """See `ChatStore`."""
        chat = self._chats.get(key)
        if chat is None or chat.head.principal != principal:
            return None
        return _whole(chat)

    async def changes(self, key: bytes, version: int, after: int) -> StoredChat | None:
        """See `ChatStore`; only this process changes anything, so it knows everything."""
        chat = self._chats.get(key)
        return None if chat is None else StoredChat(chat.head, waiting=tuple(chat.waiting))

    async def frames(self, key: bytes, after: int, last: int) -> Sequence[Frame]:
        """See `ChatStore`."""
        chat = self._chats.get(key)
        page: list[Frame] = []
        size = 0
        for seq in range(after + 1, last + 1):
            frame = None if chat is None else chat.frames.get(seq)
            if frame is None or size > _PAGE_BYTES:
                break
            size += len(frame)
            page.append((seq, frame))
        return page

    async def delete(self, key: bytes, principal: str) -> bool:
        """See `ChatStore`."""
        chat = self._chats.get(key)
        if chat is None or chat.head.principal != principal:
            return False
        self._drop(key)
        return True

    async def submit(self, key: bytes, turn: ChatTurn, limits: SubmitLimits) -> bool:
        """See `ChatStore`."""
        chat = self._chats.get(key)
        if chat is None:
            raise UnknownSessionError
        running = chat.head.running
        queued = (*chat.waiting, running) if running is not None else chat.waiting
        known = {each.message_id for each in queued}
        if turn.message_id in chat.ids or turn.message_id in known:
            return False
        recent = limits.admit(chat.recent)
        if recent is None:
            raise RateLimitedError
        if len(chat.waiting) >= limits.max_waiting:
            raise TooManyTurnsError(limits.max_waiting)
        chat.recent = recent
        chat.waiting.append(turn)
        chat.head = evolve(chat.head, last_active_at=limits.now)
        self._chats.move_to_end(key)
        return True

    async def begin_turn(self, key: bytes) -> BegunTurn | None:
        """See `ChatStore`."""
        chat = self._chats.get(key)
        if chat is None:
            return None
        turn = chat.head.running
        if turn is not None:
            return BegunTurn(turn, chat.head.version, is_new=False)
        if not chat.waiting:
            return None
        turn = chat.waiting.popleft()
        chat.head = evolve(chat.head, running=turn)
        return BegunTurn(turn, chat.head.version, is_new=True)

    async def write(self, key: bytes, writing: Writing) -> int:
        """See `ChatStore`."""
        chat = self._chats.get(key)
        running = None if chat is None else chat.head.running
        if chat is None or (running and running.turn_id) != writing.fence:
            raise FencedError
        for position, message in writing.messages:
            chat.messages[position : position + 1] = [message]
            chat.ids.add(message.id)
        chat.frames.update(writing.frames)
        for seq in range(chat.head.first_seq, writing.first_seq):
            chat.frames.pop(seq, None)
        head = chat.head  # `evolve` would take as long as all of this
        chat.head = ChatHead(
            principal=head.principal,
            created_at=head.created_at,
            last_active_at=writing.last_active_at,
            last_seq=writing.last_seq,
            first_seq=writing.first_seq,
            version=head.version + 1,
            running=None if writing.ends_turn else running,
            state=writing.state,
        )
        self._bytes += writing.bytes - chat.bytes
        chat.bytes = writing.bytes
        if self._bytes > self._settings.max_bytes:
            self._make_room(writing.last_active_at)
        if key in self._chats:
            self._chats.move_to_end(key)
        return chat.head.version

    async def command(self, key: bytes, command: Command) -> bool:
        """See `ChatStore`; there is no other worker."""
        return False

    async def is_watched(self, key: bytes, within_ms: int) -> bool:
        """See `ChatStore`; there is no other worker."""
        return False

    async def allowed(self, principal: str) -> Collection[str]:
        """See `ChatStore`."""
        return tuple(self._allowed.get(principal, ()))

    async def allow(self, principal: str, digest: str) -> None:
        """See `ChatStore`."""
        digests = self._allowed.setdefault(principal, {})
        digests.pop(digest, None)
        digests[digest] = None
        if len(digests) > MAX_ALLOWED:
            del digests[next(iter(digests))]


def _whole(chat: _Chat) -> StoredChat:
    return StoredChat(
        chat.head,
        messages=tuple(enumerate(chat.messages)),
        sizes=tuple(map(len, chat.frames.values())),
        waiting=tuple(chat.waiting),
    )
