"""Chats as columns, for both databases."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from ..chat import ChatMessage
from .errors import RateLimitedError, TooManyTurnsError
from .store import ChatHead, ChatTurn, SubmitLimits

HEAD_COLUMNS = "principal, created_at, last_active_at, last_seq, first_seq, version, state, running"
MAX_ALLOWED = 1_000
"""Digests that are kept for one principal."""
PURGE_PAGE, MOST_PURGED = 500, 20
"""Chats that are looked at, and deleted, in one transaction of a purge."""
TAIL = 1_000
"""Events that complete texts which are streamed: far more than a second of them."""


def to_bytes(value: object) -> bytes:
    """Return a value as JSON."""
    return orjson.dumps(value, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (tuple, set, frozenset, deque)):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def message_row(position: int, message: ChatMessage) -> tuple[int, bytes, bytes]:
    """Return position, id and body of a message."""
    return position, message.id.encode(), to_bytes(message.to_json())


def read_messages(rows: Iterable[Sequence[Any]]) -> tuple[tuple[int, ChatMessage], ...]:
    """Return messages of rows of position and body."""
    return tuple(
        (int(position), ChatMessage.from_json(orjson.loads(body))) for position, body in rows
    )


def turn_body(turn: ChatTurn) -> bytes:
    """Return a turn for a column."""
    return orjson.dumps([turn.turn_id, turn.message_id, turn.text])


def read_turn(body: bytes) -> ChatTurn:
    """Return a turn that `turn_body` has written."""
    return ChatTurn(*orjson.loads(body))


def head_row(head: ChatHead) -> tuple[object, ...]:
    """Return the columns of `HEAD_COLUMNS`."""
    return (
        head.principal.encode("utf-8", "surrogatepass"),
        head.created_at,
        head.last_active_at,
        head.last_seq,
        head.first_seq,
        head.version,
        to_bytes(head.state),
        None if head.running is None else turn_body(head.running),
    )


def read_head(row: Sequence[Any]) -> ChatHead:
    """Return the head of a row of `HEAD_COLUMNS`."""
    principal, created_at, last_active_at, last_seq, first_seq, version, state, running = row
    return ChatHead(
        principal=bytes(principal).decode("utf-8", "surrogatepass"),
        created_at=created_at,
        last_active_at=last_active_at,
        last_seq=last_seq,
        first_seq=first_seq,
        version=version,
        running=None if running is None else read_turn(running),
        state=orjson.loads(state),
    )


def admit(recent: bytes, waiting: int, limits: SubmitLimits) -> bytes:
    """Return the times of the newest messages, with the one that is submitted now.

    Args:
        recent: the column, as this function has returned it.
        waiting: turns that wait.
        limits: of the chat.

    Raises:
        RateLimitedError, TooManyTurnsError: it is one too many.
    """
    times = limits.admit(orjson.loads(recent))
    if times is None:
        raise RateLimitedError
    if waiting >= limits.max_waiting:
        raise TooManyTurnsError(limits.max_waiting)
    return orjson.dumps(times)
