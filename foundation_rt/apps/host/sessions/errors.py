"""The errors of sessions. No message contains the id of a session."""

from __future__ import annotations

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
