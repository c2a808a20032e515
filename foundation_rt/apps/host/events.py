"""The messages from the server to the page, as values (spec/host.md). Pure.

Those of a session are numbered, kept for replay, and go to each of its connections: `text`,
`status`, `user`, `turn`, `approval`, `question`. Those of one connection have no number:
`connection`, `history`, `servers`, `error`, `pong`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from attrs import frozen

SessionEventType = Literal["text", "status", "user", "turn", "approval", "question"]
ConnectionEventType = Literal["connection", "history", "servers", "error", "pong"]
EventType = SessionEventType | ConnectionEventType

Approval = Literal["once", "session", "always", "trust", "deny"]
Decision = Literal["once", "session", "always", "trust", "deny", "unattended", "expired"]
"""The end of the wait for an approval; the last two: nobody is there, nobody decided in time."""

TurnState = Literal["started", "finished", "stopped", "failed", "interrupted"]


@frozen
class ServerMessage:
    """A message to the page, as the orchestrator yields it.

    Attributes:
        type: see the module.
        payload: JSON.
        turn_id: of the turn it belongs to.
        seq: within the session, from 1 on and without a gap; None until the session numbers it.
    """

    type: EventType
    payload: Mapping[str, Any]
    turn_id: str | None = None
    seq: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the frame as JSON."""
        frame: dict[str, Any] = {"type": self.type, "payload": self.payload}
        if self.seq is not None:
            frame["seq"] = self.seq
        if self.turn_id is not None:
            frame["turnId"] = self.turn_id
        return frame
