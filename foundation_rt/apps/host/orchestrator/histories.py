"""The protocol of the histories that turns read and write, and one in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from attrs import define, field

from ..chat import ChatMessage, branch


class ConversationHistories(Protocol):
    """The histories of sessions, and what people have decided for more than one call."""

    def get_history(self, session_id: str) -> Sequence[ChatMessage]:
        """Return the messages on the way to the newest turn of a session, the oldest first."""

    def knows(self, session_id: str, name: str) -> bool:
        """Return whether a message or a call of a session has this id, on any branch."""

    async def add_message(self, session_id: str, message: ChatMessage) -> None:
        """Add a message, or replace the one of its id.

        It is stored when this returns, if the store is there.
        """

    async def decisions(self, session_id: str) -> Mapping[str, str] | None:
        """Return what was kept with `decide`, by subject; None while that is not known."""

    async def decide(self, session_id: str, subject: str, word: str) -> None:
        """Keep a word about a subject, in place of the one before (TURN-28)."""


@define(eq=False)
class MemoryHistories:
    """Histories that end with the process."""

    _messages: dict[str, dict[str, ChatMessage]] = field(factory=dict, init=False)
    _decisions: dict[str, dict[str, str]] = field(factory=dict, init=False)

    def get_history(self, session_id: str) -> Sequence[ChatMessage]:
        """See `ConversationHistories`."""
        return branch([*self._messages.get(session_id, {}).values()])

    def knows(self, session_id: str, name: str) -> bool:
        """See `ConversationHistories`."""
        messages = self._messages.get(session_id, {})
        return name in messages or any(each.call_id == name for each in messages.values())

    async def add_message(self, session_id: str, message: ChatMessage) -> None:
        """See `ConversationHistories`."""
        self._messages.setdefault(session_id, {})[message.id] = message

    async def decisions(self, session_id: str) -> Mapping[str, str] | None:
        """See `ConversationHistories`."""
        return self._decisions.get(session_id, {})

    async def decide(self, session_id: str, subject: str, word: str) -> None:
        """See `ConversationHistories`."""
        self._decisions.setdefault(session_id, {})[subject] = word

    def forget(self, session_id: str) -> None:
        """Forget a session that has ended."""
        self._messages.pop(session_id, None)
        self._decisions.pop(session_id, None)
