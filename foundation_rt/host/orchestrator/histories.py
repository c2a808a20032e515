"""The protocol of the histories that turns read and write, and one in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from attrs import define, field

from ..chat import ChatMessage


class ConversationHistories(Protocol):
    """The histories of sessions, and the tools that are always allowed in them."""

    def get_history(self, session_id: str) -> Sequence[ChatMessage]:
        """Return the messages of a session, from the oldest to the newest."""

    async def add_message(self, session_id: str, message: ChatMessage) -> None:
        """Add a message, or replace the one of its id.

        It is stored when this returns, if the store is there.
        """

    async def always_allowed(self, session_id: str) -> Collection[str]:
        """Return the digests of the definitions that were allowed for good (TURN-25)."""

    async def allow_always(self, session_id: str, digest: str) -> None:
        """Allow the definition of this digest for good."""


@define(eq=False)
class MemoryHistories:
    """Histories that end with the process."""

    _messages: dict[str, dict[str, ChatMessage]] = field(factory=dict, init=False)
    _allowed: dict[str, set[str]] = field(factory=dict, init=False)

    def get_history(self, session_id: str) -> Sequence[ChatMessage]:
        """See `ConversationHistories`."""
        return [*self._messages.get(session_id, {}).values()]

    async def add_message(self, session_id: str, message: ChatMessage) -> None:
        """See `ConversationHistories`."""
        self._messages.setdefault(session_id, {})[message.id] = message

    async def always_allowed(self, session_id: str) -> Collection[str]:
        """See `ConversationHistories`."""
        return self._allowed.get(session_id, ())

    async def allow_always(self, session_id: str, digest: str) -> None:
        """See `ConversationHistories`."""
        self._allowed.setdefault(session_id, set()).add(digest)

    def forget(self, session_id: str) -> None:
        """Forget a session that has ended."""
        self._messages.pop(session_id, None)
        self._allowed.pop(session_id, None)
