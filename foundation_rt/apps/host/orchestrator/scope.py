"""The values that the parts of one turn share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import define, evolve, field

from ..chat import ChatMessage, Role
from ..events import SessionEventType
from .event_buffer import EventBuffer
from .observation import TurnObservation
from .pruning import NOTICE, HistoryReader
from .services import TurnServices
from .turn_clock import TurnClock


@define(eq=False)
class TurnScope:
    """One turn of one session.

    Attributes:
        events: of the turn, to be yielded.
        clock: the time of the turn.
        reader: of the history.
        model: that the person chose for this turn; "" is that of the configuration.
        ids: of messages and calls of this turn.
    """

    services: TurnServices
    session_id: str
    turn_id: str
    events: EventBuffer
    clock: TurnClock
    observation: TurnObservation
    reader: HistoryReader
    model: str = ""
    ids: set[str] = field(factory=set)

    async def store(self, message: ChatMessage) -> None:
        """Add a message to the history, or replace the one of its id."""
        await self.services.histories.add_message(self.session_id, message)

    async def emit(self, kind: SessionEventType, payload: Mapping[str, Any]) -> None:
        """Put an event when there is room for it."""
        await self.events.put(kind, payload)

    def own_id(self, wanted: str | None) -> str:
        """Return an id that the session does not have yet: the wanted one, or another (TURN-14)."""
        histories = self.services.histories
        is_free = wanted not in self.ids and not histories.knows(self.session_id, wanted or "")
        chosen = wanted if wanted and is_free else self.services.new_id()
        self.ids.add(chosen)
        return chosen

    def stamped(self, message: ChatMessage, **metadata: Any) -> ChatMessage:
        """Return a message with the time and the turn it belongs to."""
        given = {**message.metadata, "turn": self.turn_id, **metadata}
        return evolve(message, created_at=self.services.now_ms(), metadata=given)

    async def say(self, text: str) -> None:
        """Say something in the host's own words; no model reads it (TURN-33)."""
        message = ChatMessage(id=self.own_id(None), role=Role.ASSISTANT, content=text)
        message = self.stamped(message, **{NOTICE: True})
        await self.store(message)
        self.events.push("text", {"content": text, "messageId": message.id, "done": True})
