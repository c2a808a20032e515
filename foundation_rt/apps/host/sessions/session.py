"""One chat: its connections, what they ask for, and what they are shown."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from attrs import define, field

from ....base.database.errors import DatabaseError
from ..chat import ChatMessage, Role, TokenUsage
from ..events import Approval, ServerMessage
from .connection import SessionConnection, decode_frame
from .live_chat import LiveChat
from .saving import Saving
from .store import ChatFullError, ChatTurn, Command, Frame, TooManyConnectionsError
from .turns import TurnRunner

if TYPE_CHECKING:
    from .sessions import ChatSessions


@define(eq=False, repr=False)
class ChatSession:
    """A chat of one principal. `ChatSessions` makes it; there is one of each chat in a process.

    Attributes:
        name: with which a client opens it: its id, or its secret where nobody is known (CHAT-01).
        principal: whose it is.
        created_at: Unix time, in ms.
        key: the hash of the id, by which stores and logs know it.
        sessions: of the process, with the store and the orchestrator.
        chat: what it has said and done.
    """

    name: str
    principal: str
    created_at: int
    key: bytes
    sessions: ChatSessions
    chat: LiveChat
    saving: Saving = field(init=False)
    _turns: TurnRunner = field(init=False)
    _connections: set[SessionConnection] = field(factory=set, init=False)
    _shown_seq: int = field(default=0, init=False)
    # When somebody was connected, or wrote, for the last time, in the time of the loop.
    _attended_at: float = field(default=0.0, init=False)
    _abandoning: asyncio.TimerHandle | None = field(default=None, init=False)
    _refreshing: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _is_stale: bool = field(default=False, init=False)
    _is_gone: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        sessions = self.sessions
        self.saving = Saving(
            self.key, sessions.store, sessions.availability, self.chat, self._show, self._fenced
        )
        self._turns = TurnRunner(self)
        self._shown_seq = self.chat.last_seq
        self._attended_at = asyncio.get_running_loop().time()

    # -- what it is -------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The key in hex; for its principal alone it opens the chat (CHAT-01)."""
        return self.key.hex()

    @property
    def last_seq(self) -> int:
        """The number of the newest event that was shown; 0 before the first."""
        return self._shown_seq

    @property
    def last_active_at(self) -> int:
        """The time of the newest message or event: Unix time, in ms."""
        return self.chat.last_active_at

    @property
    def history(self) -> Sequence[ChatMessage]:
        """All messages, from the oldest to the newest."""
        return tuple(self.chat.messages)

    @property
    def usage(self) -> TokenUsage:
        """The tokens of all its turns."""
        return self.chat.state.usage

    @property
    def is_watched(self) -> bool:
        """Tell whether somebody is connected here."""
        return bool(self._connections)

    @property
    def is_busy(self) -> bool:
        """Tell whether turns run in this process, or are about to."""
        return self._turns.is_running

    @property
    def running_turn(self) -> ChatTurn | None:
        """The turn that runs in this process."""
        return self._turns.turn

    # -- what people ask of it --------------------------------------------------------------------

    def connect(self, after: int | None) -> SessionConnection:
        """Return a reader of what follows `after` (CHAT-12).

        Args:
            after: the number of the newest event that was seen; None: the whole chat.

        Raises:
            TooManyConnectionsError: there are as many as there may be.
        """
        settings = self.sessions.settings
        if len(self._connections) >= settings.max_connections:
            raise TooManyConnectionsError(settings.max_connections)
        is_kept = after is not None and self.chat.first_seq - 1 <= after <= self._shown_seq
        connection = SessionConnection(
            self,
            seen=after if is_kept and after is not None else 0,
            needs_history=not is_kept,
            max_unread=settings.max_unread_bytes,
            replay_to=self._shown_seq if is_kept else 0,
        )
        if self._is_gone:
            connection.close()
            return connection
        self._connections.add(connection)
        self._attend()
        if self.chat.waiting:
            self._turns.start()
        return connection

    def leave(self, connection: SessionConnection) -> None:
        """Take a connection away that was closed."""
        self._connections.discard(connection)
        self._attend()

    def said(self, message_id: str) -> ChatMessage | None:
        """Return a message of the user; None if this is the id of none."""
        message = self.chat.find(message_id)
        return message if message is not None and message.role is Role.USER else None

    async def submit(
        self, text: str, message_id: str | None, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Let a message wait for its turn, and run it as soon as it is the next (CHAT-08).

        Args:
            text: of the message.
            message_id: chosen by the client; the same again counts once. None: a new one.
            metadata: of the message; see `ChatTurn`.

        Raises:
            RateLimitedError: too many messages in a short time.
            TooManyTurnsError: too many wait.
            StoreUnavailableError: it cannot be stored.
            ChatFullError: the chat is too long.
            UnknownSessionError: the chat was deleted.
        """
        sessions = self.sessions
        sessions.check_open()
        if self.chat.message_bytes > sessions.settings.max_chat_bytes:
            raise ChatFullError
        turn = ChatTurn(uuid4().hex, message_id or uuid4().hex, text, metadata or {})
        with sessions.availability.asking():
            is_new = await sessions.store.submit(self.key, turn, sessions.settings, sessions.now())
        if is_new:
            self.chat.waiting.append(turn)
        self._attend()
        self._turns.start()

    async def stop(self) -> bool:
        """Stop the running turn; those that wait go on (CHAT-16). Return whether one ran."""
        return await self._command({"do": "stop"})

    async def approve(self, call_id: str, decision: Approval) -> bool:
        """Decide on a call; return False if nothing waits for that: the first counts (CHAT-17)."""
        return await self._command({"do": "approve", "callId": call_id, "decision": decision})

    async def answer(
        self, question_id: str, action: str, content: Mapping[str, Any] | None
    ) -> bool:
        """Answer a question; return False if nothing waits for that: the first counts (CHAT-17)."""
        return await self._command(
            {"do": "answer", "questionId": question_id, "action": action, "content": content}
        )

    async def _command(self, command: Command) -> bool:
        if self._turns.is_running:
            return self.perform(command)
        with self.sessions.availability.asking():
            return await self.sessions.store.command(self.key, command)

    def perform(self, command: Command) -> bool:
        """Do what somebody asks of the turn that runs here."""
        orchestrator = self.sessions.orchestrator
        match command["do"]:
            case "stop":
                return orchestrator.stop(self.id) or self._turns.end_turn("stopped")
            case "approve":
                return orchestrator.approve(self.id, command["callId"], command["decision"])
            case "answer":
                return orchestrator.answer(
                    self.id, command["questionId"], command["action"], command["content"]
                )
        return False

    # -- what connections need --------------------------------------------------------------------

    async def take_history(self) -> tuple[ServerMessage, int]:
        """Return the whole chat as a message, and its number, once all of it is stored."""
        payload = self.chat.history()
        message, seq = ServerMessage("history", payload), self.chat.last_seq
        await self.saving.save()
        return message, seq

    async def read_frames(self, after: int, last: int) -> Sequence[Frame]:
        """Return frames for replay, some at a time."""
        if not self.sessions.availability.is_available:
            return ()
        return await self.sessions.store.frames(self.key, after, last)

    def _show(self, message: ServerMessage, size: int) -> None:
        self._shown_seq = message.seq or self._shown_seq
        for connection in tuple(self._connections):
            connection.offer(message, size)

    # -- what its turns need ----------------------------------------------------------------------

    def may_run(self) -> bool:
        """Tell whether turns may begin."""
        return not self._is_gone and not self.sessions.is_closing

    async def is_attended(self) -> bool:
        """Tell whether somebody is there, or was lately."""
        if self._connections or self._unattended_s() < self._abandon_s:
            return True
        return await self.sessions.store.is_watched(self.key, self.sessions.settings.abandon_ms)

    def began(self, turn: ChatTurn) -> None:
        """Take note of the turn that runs now."""
        self.chat.waiting = [each for each in self.chat.waiting if each.turn_id != turn.turn_id]
        self.saving.begin(turn)
        self.sessions.note_use(self.id)

    async def emit(self, event: ServerMessage, turn: ChatTurn) -> None:
        """Give an event its number, store it, and show it; text does not wait for that."""
        if event.turn_id is None:
            event = ServerMessage(event.type, event.payload, turn.turn_id)
        self.chat.last_active_at = self.sessions.now()
        self.saving.emit(event)
        await self.saving.save(wait=event.type != "text")
        if any(connection.is_crowded for connection in self._connections):
            await asyncio.sleep(0)  # let them read: a burst is not their fault

    async def add_message(self, message: ChatMessage) -> None:
        """Add a message, or replace the one of its id; it is stored when this returns (CHAT-07)."""
        self.chat.last_active_at = self.sessions.now()
        self.saving.put(message)
        await self.saving.save()

    # -- nobody is there --------------------------------------------------------------------------

    @property
    def _abandon_s(self) -> float:
        return self.sessions.settings.abandon_ms / 1000

    def _unattended_s(self) -> float:
        return asyncio.get_running_loop().time() - self._attended_at

    def _attend(self) -> None:
        """Take note that somebody is, or was, here; end the turn some time after the last one."""
        loop = asyncio.get_running_loop()
        self._attended_at = loop.time()
        self._stop_looking()
        if not self._connections and not self._is_gone:
            self._abandoning = loop.call_later(self._abandon_s, self._look_who_is_there)

    def _stop_looking(self) -> None:
        if self._abandoning is not None:
            self._abandoning.cancel()
            self._abandoning = None

    def _look_who_is_there(self) -> None:
        self._abandoning = None
        if self._turns.is_running and not self._connections:
            self.sessions.spawn(self._abandon())

    async def _abandon(self) -> None:
        """End the turn, unless somebody is connected at another worker (CHAT-20)."""
        try:
            is_watched = await self.is_attended()
        except DatabaseError:
            is_watched = False
        if is_watched:
            self._attend()
        else:
            self._turns.end_turn("interrupted")

    # -- other workers, and the end ---------------------------------------------------------------

    def needs_refresh(self) -> bool:
        """Take note of a change at another worker; return False if that was noted already."""
        is_noted, self._is_stale = self._is_stale, True
        return not is_noted

    async def refresh(self) -> None:
        """Take over what another worker has done, and show it."""
        async with self._refreshing:
            self._is_stale = False
            chat, turn = self.chat, self._turns.turn
            changes = await self.sessions.store.changes(self.key, chat.version, chat.last_seq)
            if changes is None:
                self.disappear()
            elif self._turns.turn is not None:
                running = changes.head.running
                if turn is self._turns.turn and (not running or running.turn_id != turn.turn_id):
                    self._lose_turn()
            elif chat.read_changes(changes):
                for _, frame in changes.frames:
                    self._show(decode_frame(frame), len(frame))
            else:
                await self._read_all()
        if self.chat.waiting and self.chat.running is None:
            self._turns.start()

    def _lose_turn(self) -> None:
        """End the turn that runs here: another worker has ended it (CHAT-22)."""
        if not self.saving.has_ended:
            self.saving.lose()
            self._fenced()

    async def reload(self) -> None:
        """Go back to what the store has, as a turn was ended elsewhere (CHAT-22)."""
        async with self._refreshing:
            while not self._is_gone:
                try:
                    await self._read_all()
                except DatabaseError as error:
                    self.sessions.availability.lost(error)
                    await self.sessions.availability.wait()
                else:
                    return

    async def _read_all(self) -> None:
        stored = await self.sessions.store.load(self.key, self.principal)
        if stored is None:
            self.disappear()
            return
        self.chat.read(stored)
        self._shown_seq = self.chat.last_seq
        for connection in tuple(self._connections):
            connection.reset()

    def _fenced(self) -> None:
        """End a turn that another worker has ended, or forget what was written outside of turns."""
        if self._turns.turn is None:
            self.sessions.spawn(self.reload())
        self._turns.end_turn("interrupted")

    def disappear(self) -> None:
        """End: the chat was deleted."""
        self._is_gone = True
        self.saving.lose()
        self._turns.end_turn("interrupted")
        self.disconnect()
        self._stop_looking()

    def disconnect(self) -> None:
        """Close every connection."""
        for connection in tuple(self._connections):
            connection.close()

    async def shut_down(self) -> None:
        """End with the process: whatever still runs is cut off, and connections end."""
        await self._turns.cancel()
        self.saving.cancel()
        self._is_gone = True
        self.disconnect()
        self._stop_looking()

    async def end_turns(self) -> None:
        """Wait until the running turn has ended, and everything is stored."""
        await self._turns.ended()

    def interrupt(self) -> None:
        """Cancel the running turn."""
        self._turns.end_turn("interrupted")
