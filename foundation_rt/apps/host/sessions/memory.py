"""The default store: chats of this process, which end with it.

It is none of `operations` on a SQLite `:memory:`: a turn took 1.9 to 3.6 times the CPU there, and a
chat of 100 messages 276 KiB instead of 192.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

from attrs import define, evolve, field

from ..chat import MAX_DECISIONS, ChatMessage
from .rows import words_of
from .saving import log_chat
from .store import (
    BegunTurn,
    ChatHead,
    ChatStore,
    ChatTurn,
    FencedError,
    Frame,
    ListedChat,
    Place,
    SessionSettings,
    StoredChat,
    StoreEvents,
    StoreUnavailableError,
    UnknownSessionError,
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
    title: str | None = None
    said_at: int | None = None
    is_pinned: bool = False


@define(eq=False)
class _Share:
    """The chats of one principal: the one that is idle the longest is the first."""

    chats: OrderedDict[bytes, _Chat] = field(factory=OrderedDict)
    bytes: int = 0

    @property
    def idle_since(self) -> int:
        return next(iter(self.chats.values())).head.last_active_at


def _count_of(share: _Share) -> int:
    return len(share.chats)


def _bytes_of(share: _Share) -> int:
    return share.bytes


@define(eq=False, repr=False)
class MemoryChatStore(ChatStore):
    """Keeps chats in memory, up to a number and an idle time (CHAT-06).

    Messages and frames are those of the session itself, so a chat is not in memory twice.

    Args:
        settings: how many, and how long.
    """

    _settings: SessionSettings = field(factory=SessionSettings)
    # The one that is idle the longest is the first.
    _chats: OrderedDict[bytes, _Chat] = field(factory=OrderedDict, init=False)
    _shares: dict[str, _Share] = field(factory=dict, init=False)
    _decisions: dict[str, dict[str, str]] = field(factory=dict, init=False)
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
        chat = self._chats[key] = _Chat(head)
        share = self._shares.setdefault(head.principal, _Share())
        share.chats[key] = chat
        self._make_room(key, head.created_at)
        if len(self._chats) > self._settings.max_sessions:
            self._drop(key)
            raise StoreUnavailableError

    def _make_room(self, new: bytes, now: int) -> None:
        """Drop chats that were idle for too long, and what is beyond the limits (CHAT-06).

        A chat in which a turn runs or which somebody is connected to is not idle.

        Args:
            new: the chat for which there has to be room, which stays.
            now: Unix time, in ms.
        """

        @cache
        def busy() -> Collection[bytes]:
            return {new, *(() if self._events is None else self._events.watched())}

        settings = self._settings
        while self._drop_idle(self._chats, busy, now - settings.idle_ms):
            pass
        while len(self._chats) > settings.max_sessions and self._drop_of_most(new, _count_of, busy):
            pass
        while self._bytes > settings.max_bytes and self._drop_of_most(new, _bytes_of, busy):
            pass

    def _drop_of_most(
        self, new: bytes, size: Callable[[_Share], int], busy: Callable[[], Collection[bytes]]
    ) -> bool:
        """Drop the chat idle the longest of who has the most; return False if there is none.

        A principal that has less than that of the new chat loses none.
        """
        own = size(self._shares[self._chats[new].head.principal])
        shares = [share for share in self._shares.values() if size(share) >= own]
        shares.sort(key=lambda share: (-size(share), share.idle_since))
        return any(self._drop_idle(share.chats, busy) for share in shares)

    def _drop_idle(
        self,
        chats: OrderedDict[bytes, _Chat],
        busy: Callable[[], Collection[bytes]],
        until: int | None = None,
    ) -> bool:
        """Drop the first chat that is idle; return False if there is none.

        Args:
            chats: the one that is idle the longest is the first.
            busy: returns the keys of those that are not idle, beside those in which a turn runs.
            until: the time, in ms, after which it must not have been active.
        """
        for _ in range(len(chats)):
            key, chat = next(iter(chats.items()))
            if until is not None and chat.head.last_active_at > until:
                return False
            if chat.head.running is None and key not in busy():
                self._drop(key)
                log_chat("session_expired", key)
                return True
            chats.move_to_end(key)
        return False

    def _drop(self, key: bytes) -> None:
        chat = self._chats.pop(key)
        self._bytes -= chat.bytes
        share = self._shares[chat.head.principal]
        share.bytes -= chat.bytes
        del share.chats[key]
        if not share.chats:
            del self._shares[chat.head.principal]

    def _was_active(self, key: bytes, chat: _Chat) -> None:
        self._chats.move_to_end(key)
        self._shares[chat.head.principal].chats.move_to_end(key)

    async def load(self, key: bytes, principal: str) -> StoredChat | None:
        """See `ChatStore`."""
        chat = self._owned(key, principal)
        return None if chat is None else _whole(chat)

    def _owned(self, key: bytes, principal: str) -> _Chat | None:
        share = self._shares.get(principal)
        return None if share is None else share.chats.get(key)

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
        if self._owned(key, principal) is None:
            return False
        self._drop(key)
        return True

    async def listed(self, principal: str, after: Place | None, most: int) -> Sequence[ListedChat]:
        """See `ChatStore`."""
        share = self._shares.get(principal, _Share())
        found = (
            ListedChat(key, chat.title or "", chat.said_at, chat.is_pinned)
            for key, chat in share.chats.items()
            if chat.said_at is not None
        )
        behind = (each for each in found if after is None or each.place < after)
        return heapq.nlargest(most, behind, key=lambda each: each.place)

    async def having(self, keys: Collection[bytes], words: str) -> Collection[bytes]:
        """See `ChatStore`; in a thread, as long chats take long."""
        chats = {key: (*chat.messages,) for key in keys if (chat := self._chats.get(key))}

        def find() -> Collection[bytes]:
            return [key for key, said in chats.items() if any(words in words_of(m) for m in said)]

        return await asyncio.to_thread(find)

    async def change(
        self, key: bytes, principal: str, title: str | None, is_pinned: bool | None
    ) -> bool:
        """See `ChatStore`."""
        chat = self._owned(key, principal)
        if chat is None:
            return False
        chat.title = chat.title if title is None else title
        chat.is_pinned = chat.is_pinned if is_pinned is None else is_pinned
        return True

    async def index(self) -> bool:
        """See `ChatStore`."""
        return False

    async def purge(
        self, after: int, before: int, kept: Collection[bytes]
    ) -> tuple[Collection[bytes], int | None]:
        """See `ChatStore`; here idle chats go by CHAT-06."""
        return (), None

    async def submit(self, key: bytes, turn: ChatTurn, settings: SessionSettings, now: int) -> bool:
        """See `ChatStore`."""
        chat = self._chats.get(key)
        if chat is None:
            raise UnknownSessionError
        running = chat.head.running
        queued = (*chat.waiting, running) if running is not None else chat.waiting
        known = {each.message_id for each in queued}
        if turn.message_id in chat.ids or turn.message_id in known:
            return False
        chat.recent = settings.admit(chat.recent, len(chat.waiting), now)
        chat.waiting.append(turn)
        chat.head = evolve(chat.head, last_active_at=now)
        chat.said_at = now
        chat.title = chat.title or turn.title
        self._was_active(key, chat)
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
        more, chat.bytes = writing.bytes - chat.bytes, writing.bytes
        self._bytes += more
        self._shares[chat.head.principal].bytes += more
        self._was_active(key, chat)
        if self._bytes > self._settings.max_bytes:
            self._make_room(key, writing.last_active_at)
        return chat.head.version

    async def decisions(self, principal: str) -> Mapping[str, str]:
        """See `ChatStore`."""
        return self._decisions.get(principal, {}).copy()

    async def decide(self, principal: str, subject: str, word: str) -> None:
        """See `ChatStore`."""
        words = self._decisions.setdefault(principal, {})
        words.pop(subject, None)
        words[subject] = word
        if len(words) > MAX_DECISIONS:
            del words[next(iter(words))]


def _whole(chat: _Chat) -> StoredChat:
    return StoredChat(
        chat.head,
        messages=tuple(enumerate(chat.messages)),
        sizes=tuple(map(len, chat.frames.values())),
        waiting=tuple(chat.waiting),
    )
