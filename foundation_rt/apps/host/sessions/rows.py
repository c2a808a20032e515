"""Chats as columns, for both databases."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ....base.exact_json import dumps, loads
from ..chat import ChatMessage, Role
from .store import (
    ChatHead,
    ChatTurn,
    ListedChat,
    Place,
    folded,
    title_of,
)

PURGE_PAGE, MOST_PURGED = 500, 20
"""Chats that are looked at, and deleted, in one transaction of a purge."""
INDEX_PAGE = 100
"""Chats or messages of earlier versions that are looked at in one transaction."""
TAIL = 1_000
"""Events that complete texts which are streamed: far more than a second of them."""


def to_bytes(value: object) -> bytes:
    """Return a value as JSON."""
    return dumps(value, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (tuple, set, frozenset, deque)):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def to_blob(text: str) -> bytes:
    """Return a text for a column: what SQLite and PostgreSQL take as text differs."""
    return text.encode("utf-8", "surrogatepass")


def from_blob(blob: bytes) -> str:
    """Return a text of a column."""
    return bytes(blob).decode("utf-8", "surrogatepass")


def message_row(position: int, message: ChatMessage) -> tuple[int, bytes, bytes, bytes]:
    """Return position, id, body and words of a message."""
    return position, message.id.encode(), to_bytes(message.to_json()), to_blob(words_of(message))


def words_of(message: ChatMessage) -> str:
    """Return what a search looks at: what people and the model have said (CHAT-36)."""
    is_said = message.role in (Role.USER, Role.ASSISTANT) and not message.is_call
    return folded(message.content or "") if is_said else ""


def indexed(body: bytes) -> tuple[bytes, bytes]:
    """Return the words of a message of an earlier version, and the title that it would give."""
    message = ChatMessage.from_json(loads(body))
    title = title_of(message.content or "") if message.role is Role.USER else ""
    return to_blob(words_of(message)), to_blob(title)


def listed_row(row: Sequence[Any]) -> ListedChat:
    """Return a chat of a row of key, title, said_at and is_pinned."""
    key, title, said_at, is_pinned = row
    return ListedChat(bytes(key), from_blob(title or b""), said_at, bool(is_pinned))


def place_row(after: Place | None) -> tuple[object, ...]:
    """Return the columns of a place; of None one that is before all of them."""
    return (2, 0, b"") if after is None else (int(after[0]), *after[1:])


def read_messages(rows: Iterable[Sequence[Any]]) -> tuple[tuple[int, ChatMessage], ...]:
    """Return messages of rows of position and body."""
    return tuple((int(position), ChatMessage.from_json(loads(body))) for position, body in rows)


def turn_body(turn: ChatTurn) -> bytes:
    """Return a turn for a column."""
    return dumps([turn.turn_id, turn.message_id, turn.text, dict(turn.metadata)])


def read_turn(body: bytes) -> ChatTurn:
    """Return a turn that `turn_body` has written."""
    return ChatTurn(*loads(body))


def head_row(head: ChatHead) -> tuple[object, ...]:
    """Return the columns of a head in which no turn runs: those of `statements.CREATE`."""
    return (
        to_blob(head.principal),
        head.created_at,
        head.last_active_at,
        head.last_seq,
        head.first_seq,
        head.version,
        to_bytes(head.state),
    )


def read_head(row: Sequence[Any]) -> ChatHead:
    """Return the head of a row of `statements.HEAD`."""
    principal, created_at, last_active_at, last_seq, first_seq, version, state, running = row
    return ChatHead(
        principal=from_blob(principal),
        created_at=created_at,
        last_active_at=last_active_at,
        last_seq=last_seq,
        first_seq=first_seq,
        version=version,
        running=None if running is None else read_turn(running),
        state=loads(state),
    )
