"""The store that a setting names."""

from __future__ import annotations

from ....errors import UsageError
from .memory import MemoryChatStore
from .settings import SessionSettings
from .store import ChatStore

_SQLITE = "sqlite:"
_POSTGRES = ("postgresql://", "postgres://")


def open_store(dsn: str, settings: SessionSettings | None = None) -> ChatStore:
    """Return the store of a setting; `ChatSessions.start` opens it.

    Args:
        dsn: `memory`, `sqlite:FILE` or `postgresql://user:password@host:port/database`.
        settings: of sessions.

    Raises:
        UsageError: it is none of these; the message says what to write, and no password.
        MissingExtraError: PostgreSQL needs the extra `postgres`.
    """
    settings = settings or SessionSettings()
    if dsn == "memory":
        return MemoryChatStore(settings)
    if dsn.startswith(_SQLITE) and len(dsn) > len(_SQLITE):
        from .sqlite import SqliteChatStore

        return SqliteChatStore(dsn.removeprefix(_SQLITE), settings)
    if dsn.startswith(_POSTGRES):
        from .postgres import PostgresChatStore

        return PostgresChatStore(dsn, settings)
    raise UsageError(
        "the store of chats cannot be read: write memory, sqlite:FILE or"
        " postgresql://user:password@host:port/database"
    )
