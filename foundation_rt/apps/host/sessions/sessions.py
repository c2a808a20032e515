"""All chats of this process."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from attrs import define, field

from ....base.database.errors import DatabaseError
from ....errors import UsageError
from ..chat import ChatMessage
from .live_chat import LiveChat
from .saving import Availability, log_chat
from .session import ChatSession
from .store import (
    NOBODY,
    ChatHead,
    ChatStore,
    Command,
    ListedChat,
    Place,
    SessionSettings,
    StoreEvents,
    StoreUnavailableError,
    UnknownSessionError,
    chat_key,
    folded,
    key_of,
)

if TYPE_CHECKING:
    from ..orchestrator import ConversationOrchestrator

_LOG = logging.getLogger("foundation_rt.host.sessions")

_ID_BYTES = 24
_MAX_USED = 10_000
_STORING_S = 10.0
"""For what interrupted turns have to store when the host closes."""
_INTERRUPT_AGAIN_S = 0.1
"""A turn may have begun since."""
_FIRST_PURGE_S, _PURGE_EVERY_S = 60.0, 6 * 3600.0
_BETWEEN_PURGES_S = 0.05
"""So that a purge of very many chats leaves the store to those who use it."""
_SEARCHED_AT_ONCE = 20
"""Chats that one statement of a search looks at."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@define(eq=False, repr=False)
class ChatSessions:
    """Makes and finds the chats of this process, and runs their turns.

    A chat is in memory while somebody holds it, a minute longer, and while a turn runs; else it is
    in the store alone. It belongs to one event loop.

    Args:
        store: of the chats; it is opened by `start` and closed by `close`.
        settings: the limits.
        now: the Unix time, in ms.
    """

    store: ChatStore
    settings: SessionSettings = field(factory=SessionSettings)
    now: Callable[[], int] = field(default=_now_ms, kw_only=True)
    availability: Availability = field(init=False)
    is_closing: bool = field(default=True, init=False)
    _orchestrator: ConversationOrchestrator | None = field(default=None, init=False)
    _live: WeakValueDictionary[bytes, ChatSession] = field(factory=WeakValueDictionary, init=False)
    _loading: dict[bytes, asyncio.Lock] = field(factory=dict, init=False)
    _tasks: set[asyncio.Task[Any]] = field(factory=set, init=False)
    # One search of a principal at a time, so that it leaves the store to others.
    _searches: WeakValueDictionary[str, asyncio.Lock] = field(
        factory=WeakValueDictionary, init=False
    )
    # They use few connections of the store, so that what runs here has the others.
    _refreshes: asyncio.Semaphore = field(factory=lambda: asyncio.Semaphore(4), init=False)
    # What principals have decided while the store was away.
    _unkept: dict[str, dict[str, str]] = field(factory=dict, init=False)
    # The orchestrator keeps something of each session that had a turn: the oldest is first.
    _used: OrderedDict[str, float] = field(factory=OrderedDict, init=False)

    @availability.default
    def _of_the_store(self) -> Availability:
        return Availability(self.store.probe)

    @property
    def is_available(self) -> bool:
        """Tell whether new turns and chats can begin (CHAT-24)."""
        return not self.is_closing and self.availability.is_available

    @property
    def orchestrator(self) -> ConversationOrchestrator:
        """The orchestrator that runs the turns.

        Raises:
            UsageError: there is none yet.
        """
        if self._orchestrator is None:
            raise UsageError("sessions need an orchestrator: call run_turns_with before")
        return self._orchestrator

    def run_turns_with(self, orchestrator: ConversationOrchestrator) -> None:
        """Let an orchestrator run the turns."""
        self._orchestrator = orchestrator

    async def start(self) -> None:
        """Open the store. Turns of a process that has died are ended here, or soon (CHAT-18).

        Raises:
            UsageError: there can be no such store; says what to change.
            DatabaseError: the store is not there.
        """
        await self.store.open(StoreEvents(self._changed, self._perform, self._watched))
        self.is_closing = False
        self.spawn(self._index_on())
        if self.settings.keep_ms:
            self.spawn(self._purge_on())

    async def close(self, budget_s: float) -> None:
        """Begin no turn any more; end those that run, then the connections and the store (CHAT-26).

        Args:
            budget_s: how long turns may go on; what then runs is interrupted.
        """
        self.is_closing = True
        await self._end_turns(budget_s)
        for session in tuple(self._live.values()):
            await session.shut_down()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.availability.close()
        await self.store.close()

    async def _end_turns(self, budget_s: float) -> None:
        """Wait for the turns that run, then interrupt them, and wait until that is stored."""
        loop = asyncio.get_running_loop()
        busy = [session for session in self._live.values() if session.is_busy]
        running = {loop.create_task(session.end_turns()) for session in busy}
        if running:
            _, running = await asyncio.wait(running, timeout=budget_s)
        deadline = loop.time() + _STORING_S
        while running and self.availability.is_available and loop.time() < deadline:
            for session in busy:
                session.interrupt()
            _, running = await asyncio.wait(running, timeout=_INTERRUPT_AGAIN_S)
        for task in running:
            task.cancel()

    def check_open(self) -> None:
        """Raise `StoreUnavailableError` unless something new may begin."""
        if not self.is_available:
            raise StoreUnavailableError

    async def _index_on(self) -> None:
        """Let chats of earlier versions be listed and found, some at a time (CHAT-34)."""
        try:
            while await self.store.index():
                await asyncio.sleep(_BETWEEN_PURGES_S)
        except DatabaseError as error:  # it goes on with the next start
            self.availability.lost(error)
        except Exception:
            _LOG.exception("chats of an earlier version are not listed")

    async def _purge_on(self) -> None:
        await asyncio.sleep(_FIRST_PURGE_S)
        while True:
            try:
                await self.purge()
            except DatabaseError as error:
                self.availability.lost(error)
            await asyncio.sleep(_PURGE_EVERY_S)

    async def purge(self) -> None:
        """Delete the chats that nobody has used for `keep_ms` (CHAT-33).

        Raises:
            DatabaseError: the store is not there; it goes on with the next purge.
        """
        after: int | None = 0
        before = self.now() - self.settings.keep_ms
        while after is not None:
            keys, after = await self.store.purge(after, before, frozenset(self._live))
            for key in keys:
                log_chat("session_expired", key)
            await asyncio.sleep(_BETWEEN_PURGES_S)

    # -- chats ------------------------------------------------------------------------------------

    async def create(self, principal: str) -> ChatSession:
        """Begin a chat (CHAT-01).

        Raises:
            StoreUnavailableError: it cannot be stored.
        """
        self.check_open()
        secret = secrets.token_urlsafe(_ID_BYTES)
        key, now = chat_key(secret), self.now()
        head = ChatHead(principal=principal, created_at=now, last_active_at=now)
        with self.availability.asking():
            await self.store.create(key, head)
        chat = LiveChat(self.settings)
        chat.last_active_at = now
        name = secret if principal == NOBODY else key.hex()
        session = ChatSession(name, principal, now, key, self, chat)
        self._live[key] = session
        log_chat("session_created", key)
        return session

    async def find(self, name: str, principal: str) -> ChatSession | None:
        """Return a chat; None if there is none, or it is of another principal (CHAT-02).

        Args:
            name: see `key_of`.
            principal: that asks for it.

        Raises:
            StoreUnavailableError: the store cannot be asked.
        """
        key = key_of(name, principal)
        while True:
            session = self._live.get(key)
            # Of another principal it takes as long as of a chat that is not there (CHAT-35).
            if session is not None and session.principal == principal:
                return session
            lock = self._loading.setdefault(key, asyncio.Lock())
            async with lock:
                # Another may have loaded it, or be loading it, since.
                if self._loading.get(key) is lock:
                    return await self._load(name, key, principal)

    async def _load(self, name: str, key: bytes, principal: str) -> ChatSession | None:
        try:
            with self.availability.asking():
                stored = await self.store.load(key, principal)
        finally:
            del self._loading[key]
        if stored is None:
            return None
        chat = LiveChat(self.settings)
        chat.read(stored)
        name = name if principal == NOBODY else key.hex()
        session = ChatSession(name, principal, stored.head.created_at, key, self, chat)
        self._live[key] = session
        return session

    async def listed(
        self, principal: str, words: str = "", after: Place | None = None
    ) -> tuple[Sequence[ListedChat], Place | None]:
        """Return chats of a principal, and the place behind which there may be further ones.

        Args:
            principal: whose chats; not `NOBODY`, who has no list (CHAT-34).
            words: that are all in the title and the messages of a chat (CHAT-36).
            after: what the call before has returned.

        Raises:
            StoreUnavailableError: the store cannot be asked, or takes too long to search.
        """
        most, terms = self.settings.max_listed, folded(words).split()
        try:
            if not terms:
                page = await self.store.listed(principal, after, most)
                return page, page[-1].place if len(page) == most else None
            async with self._searches.setdefault(principal, asyncio.Lock()):
                return await self._search(principal, terms, after)
        except DatabaseError as error:
            raise StoreUnavailableError from error

    async def _search(
        self, principal: str, terms: Sequence[str], after: Place | None
    ) -> tuple[Sequence[ListedChat], Place | None]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.search_ms / 1000
        found: list[ListedChat] = []
        while True:
            page = await self.store.listed(principal, after, _SEARCHED_AT_ONCE)
            rest = page
            for term in terms:
                others = [each.key for each in rest if term not in folded(each.title)]
                having = await self.store.having(others, term) if others else ()
                rest = [each for each in rest if each.key not in others or each.key in having]
            found += rest
            if len(page) < _SEARCHED_AT_ONCE:
                return found, None
            after = page[-1].place
            is_enough = len(found) > self.settings.max_listed - _SEARCHED_AT_ONCE
            if is_enough or loop.time() >= deadline:
                return found, after

    async def change(
        self, name: str, principal: str, *, title: str | None = None, is_pinned: bool | None = None
    ) -> bool:
        """Rename or pin a chat; return False if there is none of this principal (CHAT-35).

        Raises:
            StoreUnavailableError: the store cannot be asked.
        """
        with self.availability.asking():
            return await self.store.change(key_of(name, principal), principal, title, is_pinned)

    async def delete(self, name: str, principal: str) -> bool:
        """Remove a chat, with its turn; return False if there is none of this principal (CHAT-03).

        Raises:
            StoreUnavailableError: the store cannot be asked.
        """
        key = key_of(name, principal)
        with self.availability.asking():
            is_deleted = await self.store.delete(key, principal)
        if is_deleted:
            log_chat("session_deleted", key)
            session = self._live.pop(key, None)
            if session is not None:
                session.disappear()
            if self._used.pop(key.hex(), None) is not None:
                await self.orchestrator.forget(key.hex())
        return is_deleted

    # -- what the orchestrator needs: see `ConversationHistories` ---------------------------------

    def get_history(self, session_id: str) -> Sequence[ChatMessage]:
        """Return the branch of a chat whose turn runs here; () of others."""
        session = self._live.get(bytes.fromhex(session_id))
        return () if session is None else session.chat.branch()

    def knows(self, session_id: str, name: str) -> bool:
        """Return whether a message or a call of a chat has this id, on any branch."""
        session = self._live.get(bytes.fromhex(session_id))
        return session is not None and session.chat.knows(name)

    async def add_message(self, session_id: str, message: ChatMessage) -> None:
        """Add a message, or replace the one of its id; it is stored when this returns (CHAT-07).

        Raises:
            UnknownSessionError: no such chat is in use here.
        """
        session = self._live.get(bytes.fromhex(session_id))
        if session is None:
            raise UnknownSessionError
        await session.add_message(message)

    async def decisions(self, session_id: str) -> Mapping[str, str] | None:
        """Return what the principal of a chat has decided, in all of its chats (CHAT-28).

        None while the store cannot be asked.
        """
        session = self._live.get(bytes.fromhex(session_id))
        if session is None or not self.availability.is_available:
            return None
        try:
            kept = await self.store.decisions(session.principal)
        except DatabaseError as error:
            self.availability.lost(error)
            return None
        return {**kept, **self._unkept.get(session.principal, {})}

    async def decide(self, session_id: str, subject: str, word: str) -> None:
        """Keep a word of the principal of a chat about a subject (CHAT-28).

        While the store is away it is kept here, and stored when the store is back.
        """
        session = self._live.get(bytes.fromhex(session_id))
        if session is None:
            return
        unkept = self._unkept.setdefault(session.principal, {})
        unkept[subject] = word
        if not self.availability.is_available or not await self._keep(session.principal):
            self.spawn(self._keep_on(session.principal))

    async def _keep(self, principal: str) -> bool:
        """Store what a principal has decided; return whether all of it is stored."""
        try:
            while unkept := self._unkept.get(principal):
                subject, word = next(iter(unkept.items()))
                await self.store.decide(principal, subject, word)
                if unkept.get(subject) == word:
                    del unkept[subject]
        except DatabaseError as error:
            self.availability.lost(error)
            return False
        self._unkept.pop(principal, None)
        return True

    async def _keep_on(self, principal: str) -> None:
        await self.availability.wait()
        while not await self._keep(principal):
            await self.availability.wait()

    # -- what sessions need -----------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that ends by itself."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def note_use(self, session_id: str) -> None:
        """Let the orchestrator forget sessions that had no turn for a long time."""
        loop = asyncio.get_running_loop()
        self._used[session_id] = loop.time()
        self._used.move_to_end(session_id)
        oldest = loop.time() - self.settings.idle_ms / 1000
        while len(self._used) > _MAX_USED or next(iter(self._used.values())) < oldest:
            forgotten, _ = self._used.popitem(last=False)
            self.spawn(self.orchestrator.forget(forgotten))

    # -- other workers ----------------------------------------------------------------------------

    def _watched(self) -> Mapping[bytes, tuple[int, str | None]]:
        return {
            key: (session.chat.version, turn.turn_id if (turn := session.running_turn) else None)
            for key, session in self._live.items()
            if session.is_watched or session.running_turn is not None
        }

    def _changed(self, key: bytes) -> None:
        session = self._live.get(key)
        if session is not None and session.needs_refresh():
            self.spawn(self._refresh(session))

    async def _refresh(self, session: ChatSession) -> None:
        async with self._refreshes:
            try:
                await session.refresh()
            except DatabaseError as error:  # it is caught up with the next change
                self.availability.lost(error)

    async def _perform(self, key: bytes, command: Command) -> bool:
        session = self._live.get(key)
        return session is not None and session.perform(command)
