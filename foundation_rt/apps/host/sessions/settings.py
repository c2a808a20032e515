"""Limits and times of sessions."""

from __future__ import annotations

from attrs import frozen

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
