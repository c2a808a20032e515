"""The protocol of stores of chats, its values, limits and errors (spec/host-sessions.md).

A store knows a chat by a key, the hash of its secret id. It keeps its messages, its newest events
as encoded frames, the turns that wait, and what the chat waits for itself. A turn that runs is the
fence of its chat: who writes names the turn, and cannot write any more when another worker has
ended it.

No message of an error contains the id of a session.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from attrs import field, frozen

from ..chat import ChatMessage, shown_words
from ..texts import RATE_LIMITED, STORE_AWAY


class SessionError(Exception):
    """A session cannot do what was asked for; the message is for people."""


class RateLimitedError(SessionError):
    """Too many messages in a short time (CHAT-09)."""

    def __init__(self) -> None:
        super().__init__(RATE_LIMITED)


class TooManyTurnsError(SessionError):
    """Too many messages wait for their turn (CHAT-10)."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} messages are waiting: wait for an answer, or stop it")


class ChatFullError(SessionError):
    """A chat has as many messages as it may have (CHAT-31)."""

    def __init__(self) -> None:
        super().__init__("this chat is full: begin a new one")


class TooManyConnectionsError(SessionError):
    """A session has as many connections as it may have (CHAT-14)."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"this chat is open {limit} times: close it elsewhere")


class SlowConnectionError(SessionError):
    """A connection was ended, as it had left too much unread (CHAT-15)."""

    def __init__(self) -> None:
        super().__init__("this connection does not keep up: connect again")


class StoreUnavailableError(SessionError):
    """The store is away or full, or the host is closing: nothing new begins (CHAT-24)."""

    def __init__(self, text: str = STORE_AWAY) -> None:
        super().__init__(text)


class UnknownSessionError(SessionError):
    """The session was deleted, or has gone after being idle."""

    def __init__(self) -> None:
        super().__init__("this chat is no longer there: begin a new one")


class FencedError(Exception):
    """A turn may not write on: another worker has ended it, or the chat was deleted (CHAT-22)."""


Frame = tuple[int, bytes]
"""The number of an event, and the event as JSON."""


NOBODY = "anonymous"
"""The principal of all clients where there is no authentication."""

_ID = re.compile(r"[0-9a-f]{64}")
MAX_TITLE = 200


def chat_key(secret: str) -> bytes:
    """Return the key of a chat. From it, nobody can find the secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def key_of(name: str, principal: str) -> bytes:
    """Return the key of the chat that a client names (CHAT-01).

    Args:
        name: the id of the chat, its key in hex; or its secret. Of nobody the secret alone counts.
        principal: that asks for it.
    """
    is_id = principal != NOBODY and _ID.fullmatch(name) is not None
    return bytes.fromhex(name) if is_id else chat_key(name)


def title_of(text: str) -> str:
    """Return the title that a text gives to a chat: its first words, in one line."""
    return " ".join(text[: 4 * MAX_TITLE].split())[:MAX_TITLE]


def folded(text: str) -> str:
    """Return a text in the form in which a search compares it: without case (CHAT-36)."""
    return unicodedata.normalize("NFC", text).casefold()


@frozen
class ChatTurn:
    """A message of a person that is answered, or waits for that.

    Attributes:
        turn_id: unique.
        message_id: of the message.
        text: of the message, as the model reads it.
        metadata: of the message: what it goes on from, its files and its model.
    """

    turn_id: str
    message_id: str
    text: str
    metadata: Mapping[str, Any] = field(factory=dict)

    @property
    def title(self) -> str:
        """The title that the message gives to its chat, if it is the first (CHAT-34)."""
        return title_of(shown_words(self.text, self.metadata)["text"])


@frozen(kw_only=True)
class ChatHead:
    """The values that a store keeps of a chat beside its lists.

    Attributes:
        principal: whose it is.
        created_at: Unix time, in ms.
        last_active_at: of the newest message or event, in ms.
        last_seq: number of the newest event; 0 before the first.
        first_seq: number of the oldest event that is kept.
        version: grows with each change.
        running: the turn that runs.
        state: see `SessionState.to_json`.
    """

    principal: str
    created_at: int
    last_active_at: int
    last_seq: int = 0
    first_seq: int = 1
    version: int = 0
    running: ChatTurn | None = None
    state: Mapping[str, Any] = field(factory=dict)


Place = tuple[bool, int, bytes]
"""The place of a chat in the list of its principal: is it pinned, `said_at`, and its key."""


@frozen
class ListedChat:
    """A chat in the list of its principal, in which the greatest place comes first (CHAT-34).

    Attributes:
        key: of the chat.
        title: of it, at most `MAX_TITLE` characters.
        said_at: when a person wrote in it for the last time: Unix time, in ms.
        is_pinned: it comes before those that are not.
    """

    key: bytes
    title: str
    said_at: int
    is_pinned: bool

    @property
    def place(self) -> Place:
        """See `Place`."""
        return self.is_pinned, self.said_at, self.key


@frozen
class StoredChat:
    """A whole chat, or what has changed of it.

    Attributes:
        head: as it is now.
        messages: with their positions, from 0 on, in their order.
        frames: of a whole chat the sizes of all that are kept matter alone: see `sizes`.
        sizes: of the frames that are kept, the oldest first.
        waiting: the turns that wait, in their order.
    """

    head: ChatHead
    messages: Sequence[tuple[int, ChatMessage]] = ()
    frames: Sequence[Frame] = ()
    sizes: Sequence[int] = ()
    waiting: Sequence[ChatTurn] = ()


@frozen(kw_only=True)
class Writing:
    """A change of a chat, which is stored whole or not at all; storing it twice is harmless.

    Attributes:
        fence: the turn that writes; None outside of turns.
        messages: new or replaced, with their positions.
        frames: new ones.
        last_seq: see `ChatHead`.
        first_seq: frames before it are dropped.
        last_active_at: see `ChatHead`.
        state: see `ChatHead`.
        ends_turn: the turn of the fence has ended by this.
        bytes: about what the chat takes.
    """

    fence: str | None
    messages: Sequence[tuple[int, ChatMessage]]
    frames: Sequence[Frame]
    last_seq: int
    first_seq: int
    last_active_at: int
    state: Mapping[str, Any]
    ends_turn: bool = False
    bytes: int = 0


@frozen
class BegunTurn:
    """The turn that runs here.

    Attributes:
        turn: it.
        version: of the chat.
        is_new: it did not run before: this call has begun it.
    """

    turn: ChatTurn
    version: int
    is_new: bool


Command = dict[str, Any]
"""A request to the turn that runs: `{"do": "stop"}`, for instance."""


@frozen
class StoreEvents:
    """The news that a store brings from other workers.

    Attributes:
        changed: called with the key of a chat that another worker has changed.
        command: called for a command of another worker to a turn of this one.
        watched: returns the chats that somebody here is connected to or whose turn runs here: by
            key the version that is known, and the turn that runs here.
    """

    changed: Callable[[bytes], object]
    command: Callable[[bytes, Command], Awaitable[bool]]
    watched: Callable[[], Mapping[bytes, tuple[int, str | None]]]


class ChatStore(Protocol):
    """Keeps chats. It belongs to one event loop.

    Every method may raise `DatabaseError`: the store is away, full or read-only. Those with a body
    are right for a store that one worker uses.
    """

    is_immediate: bool
    """Tell whether `write` never waits."""

    async def open(self, events: StoreEvents) -> None:
        """Make it ready; turns of processes that have died are ended here or soon."""

    async def close(self) -> None:
        """Close it; a second call does nothing."""

    async def probe(self) -> None:
        """Write something small: raises while the store cannot be used."""

    async def create(self, key: bytes, head: ChatHead) -> None:
        """Add a chat."""

    async def load(self, key: bytes, principal: str) -> StoredChat | None:
        """Return a whole chat; None if there is none of this principal.

        Its `frames` are those that complete the texts which are streamed.
        """

    async def changes(self, key: bytes, version: int, after: int) -> StoredChat | None:
        """Return what has changed since a version, and the frames after a number.

        None: the chat is gone.
        """

    async def frames(self, key: bytes, after: int, last: int) -> Sequence[Frame]:
        """Return frames after a number up to another one, some at a time, the oldest first."""

    async def delete(self, key: bytes, principal: str) -> bool:
        """Remove a chat; return whether there was one of this principal."""

    async def listed(self, principal: str, after: Place | None, most: int) -> Sequence[ListedChat]:
        """Return the first chats of a principal in which somebody has written, behind a place."""

    async def having(self, keys: Collection[bytes], words: str) -> Collection[bytes]:
        """Return which chats have a text in what was said in them, as `folded` returns it."""

    async def change(
        self, key: bytes, principal: str, title: str | None, is_pinned: bool | None
    ) -> bool:
        """Change what is not None; return whether there is such a chat of this principal."""

    async def index(self) -> bool:
        """Let some chats of earlier versions be listed and found; return whether there are more."""

    async def purge(
        self, after: int, before: int, kept: Collection[bytes]
    ) -> tuple[Collection[bytes], int | None]:
        """Remove some of the chats that nobody has used for long (CHAT-33).

        Args:
            after: 0, or what the call before has returned.
            before: Unix time, in ms: chats with a message or event since then stay.
            kept: keys of chats that stay.

        Returns:
            The keys of those chats, and where to go on; None at the end.
        """

    async def submit(self, key: bytes, turn: ChatTurn, settings: SessionSettings, now: int) -> bool:
        """Let a turn wait; return False if its message is known already.

        The chat is listed from now on. The first message is its title, unless it has one.

        Raises:
            RateLimitedError, TooManyTurnsError, UnknownSessionError: it does not wait.
        """

    async def begin_turn(self, key: bytes) -> BegunTurn | None:
        """Let the next waiting turn run here; None if none waits, or one runs elsewhere."""

    async def write(self, key: bytes, writing: Writing) -> int:
        """Store a change; return the version that the chat has now.

        Raises:
            FencedError: the turn of its fence does not run any more; nothing was stored.
        """

    async def command(self, key: bytes, command: Command) -> bool:
        """Have the worker that runs the turn of a chat do something; return its answer."""
        return False

    async def is_watched(self, key: bytes, within_ms: int) -> bool:
        """Return whether somebody was connected to a chat at another worker lately."""
        return False

    async def decisions(self, principal: str) -> Mapping[str, str]:
        """Return what a principal has decided: a word by subject (CHAT-28)."""

    async def decide(self, principal: str, subject: str, word: str) -> None:
        """Keep a word about a subject, in place of the one before; beyond 1,000 the oldest goes."""


MIB = 1024 * 1024


@frozen(kw_only=True)
class SessionSettings:
    """The limits of sessions (CHAT-06, CHAT-09 to CHAT-15, CHAT-20).

    Attributes:
        max_sessions: that are kept in memory; beyond, the one that is idle the longest goes.
        max_bytes: that the chats in memory take together; beyond, too.
        max_chat_bytes: of messages; a chat that has more takes no further ones.
        idle_ms: after which a session in memory goes.
        max_events: of a session that are kept for replay.
        max_event_bytes: of them, as encoded frames.
        max_messages: of a session within `message_window_ms`.
        message_window_ms: of that limit.
        max_waiting_turns: of a session, beside the running one.
        max_connections: of a session, in this process.
        max_unread_bytes: of one connection, as encoded frames.
        abandon_ms: how long a turn goes on with nobody connected.
        max_listed: chats in one page of a list, and of what a search has found.
        search_ms: after which a search looks at no further chats before it is asked to go on.
        keep_ms: after which a chat in a database goes that nobody has used; 0: never.
    """

    max_sessions: int = 10_000
    max_bytes: int = 1024 * MIB
    max_chat_bytes: int = 64 * MIB
    idle_ms: int = 24 * 3600 * 1000
    max_events: int = 2_000
    max_event_bytes: int = 4 * MIB
    max_messages: int = 10
    message_window_ms: int = 10_000
    max_waiting_turns: int = 8
    max_connections: int = 10
    max_unread_bytes: int = MIB
    abandon_ms: int = 60_000
    max_listed: int = 50
    search_ms: int = 1_000
    keep_ms: int = 0

    def admit(self, recent: Sequence[int], waiting: int, now: int) -> tuple[int, ...]:
        """Return the times of a session's newest messages, with that of one more.

        Args:
            recent: as this function has returned them for the message before.
            waiting: turns that wait.
            now: Unix time, in ms.

        Raises:
            RateLimitedError, TooManyTurnsError: it is one too many.
        """
        newest = tuple(each for each in recent if now - self.message_window_ms < each <= now)
        if len(newest) >= self.max_messages:
            raise RateLimitedError
        if waiting >= self.max_waiting_turns:
            raise TooManyTurnsError(self.max_waiting_turns)
        return (*newest, now)
