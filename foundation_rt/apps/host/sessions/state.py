"""The open questions and unfinished texts of a chat, folded from its events. Pure.

`history` shows it to a page that has no events, and stores keep it, so that a turn whose process
has died can be ended as it would have ended itself. Each event costs the same, however long the
chat is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import define, field

from ..chat import TokenUsage
from ..events import ServerMessage

Payload = dict[str, Any]


@define
class UnfinishedText:
    """A text that is not done.

    Attributes:
        pieces: what was shown of it.
        length: of them together, in characters.
    """

    pieces: list[str] = field(factory=list)
    length: int = 0

    def add(self, piece: str) -> None:
        """Add a piece."""
        self.pieces.append(piece)
        self.length += len(piece)

    def __str__(self) -> str:
        return "".join(self.pieces)


@define
class SessionState:
    """See the module.

    Attributes:
        turn: `{"turnId", "state"}` of the running turn, with `message` while it waits (TURN-81).
        approvals: payloads by `callId`, which wait for a decision.
        questions: payloads by `questionId`, which wait for an answer.
        calls: the `status` of calls that run, by `callId`.
        streaming: texts that are not done, by `messageId`.
        hidden: ids of texts that are in the history already, and that no event has shown yet.
        usage: of all turns.
        shown: of the running turn: ids of its messages of text that events have shown, and of calls
            whose end they have shown.
    """

    turn: Payload | None = None
    approvals: dict[str, Payload] = field(factory=dict)
    questions: dict[str, Payload] = field(factory=dict)
    calls: dict[str, Payload] = field(factory=dict)
    streaming: dict[str, UnfinishedText] = field(factory=dict)
    hidden: set[str] = field(factory=set)
    usage: TokenUsage = field(factory=TokenUsage)
    shown: set[str] = field(factory=set)

    def apply(self, message: ServerMessage) -> None:
        """Take an event in."""
        payload = message.payload
        match message.type:
            case "user":
                self.shown.add(payload["messageId"])
            case "text":
                self._take_text(payload)
            case "status":
                self._take_status(payload)
            case "approval":
                _open_or_close(self.approvals, payload, "callId", "decision")
            case "question":
                _open_or_close(self.questions, payload, "questionId", "action")
            case "turn":
                self._take_turn(message)

    def _take_text(self, payload: Mapping[str, Any]) -> None:
        message_id = payload["messageId"]
        self.hidden.discard(message_id)
        self.shown.add(message_id)
        if payload.get("done"):
            self.streaming.pop(message_id, None)
        else:
            self.streaming.setdefault(message_id, UnfinishedText()).add(
                payload.get("content") or ""
            )

    def _take_status(self, payload: Mapping[str, Any]) -> None:
        call_id = payload["callId"]
        if payload["state"] == "complete":
            self.calls.pop(call_id, None)
            self.shown.add(call_id)
        else:
            before = self.calls.get(call_id, {})
            # It awaits only what its newest event says.
            self.calls[call_id] = {**before, "awaiting": None, **payload}

    def _take_turn(self, message: ServerMessage) -> None:
        if message.payload["state"] == "started":
            self.turn = {"turnId": message.turn_id, **message.payload}
            return
        self.usage += _usage(message.payload.get("usage"))
        self.turn = None
        self.hidden.clear()
        self.shown.clear()
        for each in (self.approvals, self.questions, self.calls, self.streaming):
            each.clear()

    def hide(self, message_id: str) -> None:
        """Take note of a text of the running turn that is added to the history (CHAT-13)."""
        if self.turn is not None and message_id not in self.shown:
            self.hidden.add(message_id)

    def waits(self) -> Payload:
        """Return what `history` shows of it."""
        return {
            "turn": self.turn,
            "approvals": list(self.approvals.values()),
            "questions": list(self.questions.values()),
            "calls": list(self.calls.values()),
        }

    def to_json(self) -> Payload:
        """Return the state for a store: of texts that are streamed, their length alone."""
        return {
            **self.waits(),
            "streaming": {name: text.length for name, text in self.streaming.items()},
            "hidden": list(self.hidden),
            "shown": list(self.shown),
            "usage": self.usage_json(),
        }

    def usage_json(self) -> Payload:
        """Return the tokens of the chat so far."""
        usage = self.usage
        return {
            "promptTokens": usage.prompt_tokens,
            "completionTokens": usage.completion_tokens,
            "isEstimated": usage.is_estimated,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any], texts: Mapping[str, str]) -> SessionState:
        """Return the state that `to_json` has written.

        Args:
            values: from the store.
            texts: what was streamed so far of each text in `streaming`.
        """
        return cls(
            turn=values.get("turn"),
            approvals={each["callId"]: each for each in values.get("approvals", ())},
            questions={each["questionId"]: each for each in values.get("questions", ())},
            calls={each["callId"]: each for each in values.get("calls", ())},
            streaming={name: _begun(texts.get(name, "")) for name in values.get("streaming", ())},
            hidden=set(values.get("hidden", ())),
            shown=set(values.get("shown", ())),
            usage=_usage(values.get("usage")),
        )


def _open_or_close(
    waiting: dict[str, Payload], payload: Mapping[str, Any], name: str, closed_by: str
) -> None:
    if closed_by in payload:
        waiting.pop(payload[name], None)
    else:
        waiting[payload[name]] = dict(payload)


def _begun(text: str) -> UnfinishedText:
    return UnfinishedText([text], len(text))


def _usage(values: Mapping[str, Any] | None) -> TokenUsage:
    values = values or {}
    return TokenUsage(
        values.get("promptTokens", 0),
        values.get("completionTokens", 0),
        values.get("isEstimated", False),
    )
