"""A chat in memory: its messages, its state, and the numbers of its events. Pure.

Nothing that is done for an event or a message looks at all of the chat.

`SessionState` has the open questions and unfinished texts, folded from the events. `history` shows
it to a page that has no events, and stores keep it, so that a turn whose process has died can be
ended as it would have ended itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, evolve, field

from ....base.exact_json import loads
from ..chat import AFTER, ChatMessage, Role, TokenUsage, branch, shown_words
from ..events import ServerMessage
from .rows import to_bytes
from .store import ChatTurn, Frame, SessionSettings, StoredChat, Writing

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
    """The open questions and unfinished texts of a chat at one moment.

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


_MESSAGE_BYTES = 500
_PAGE_MESSAGES, _PAGE_BYTES = 100, 512 * 1024
"""Messages in one page of a chat, and about the bytes from which on it takes no further ones."""


@define(eq=False, repr=False)
class LiveChat:
    """See the module.

    Attributes:
        messages: in their order.
        state: after the newest event.
        last_seq: number of the newest event.
        first_seq: number of the oldest event that is kept.
        version: of the chat as it was read from the store.
        last_active_at: Unix time, in ms.
        waiting: the turns that wait, as far as this process knows.
        running: the turn that ran when the chat was read.
        message_bytes: about what the messages take.
    """

    _settings: SessionSettings
    messages: list[ChatMessage] = field(factory=list, init=False)
    state: SessionState = field(factory=SessionState, init=False)
    last_seq: int = field(default=0, init=False)
    first_seq: int = field(default=1, init=False)
    version: int = field(default=0, init=False)
    last_active_at: int = field(default=0, init=False)
    waiting: list[ChatTurn] = field(factory=list, init=False)
    running: ChatTurn | None = field(default=None, init=False)
    message_bytes: int = field(default=0, init=False)
    _positions: dict[str, int] = field(factory=dict, init=False)
    _calls: set[str | None] = field(factory=set, init=False)
    _has_branches: bool = field(default=False, init=False)
    _sizes: deque[int] = field(factory=deque, init=False)
    _bytes: int = field(default=0, init=False)

    def read(self, stored: StoredChat) -> None:
        """Become the chat that the store has."""
        self.messages, self._positions, self.state = [], {}, SessionState()
        self.message_bytes = 0
        self._sizes = deque(stored.sizes)
        self._take(stored)

    def read_changes(self, changes: StoredChat) -> bool:
        """Take over what has changed; return False if events are missing: then read all of it."""
        seqs = [seq for seq, _ in changes.frames]
        head = changes.head
        if seqs != list(range(self.last_seq + 1, head.last_seq + 1)):
            return False
        self._sizes.extend(len(frame) for _, frame in changes.frames)
        for _ in range(head.first_seq - self.first_seq):
            self._sizes.popleft()
        self._take(changes)
        return True

    def _take(self, stored: StoredChat) -> None:
        for position, message in stored.messages:
            self._place(position, message, _size(message))
        head = stored.head
        self.state = SessionState.from_json(head.state, self._streamed(stored))
        self.last_seq, self.first_seq = head.last_seq, head.first_seq
        self.version, self.last_active_at = head.version, head.last_active_at
        self.waiting, self.running = list(stored.waiting), head.running
        self._bytes = sum(self._sizes)

    def _streamed(self, stored: StoredChat) -> dict[str, str]:
        """Return the texts that are streamed; a store may have their ends as events alone."""
        texts = {}
        for message_id, length in stored.head.state.get("streaming", {}).items():
            known = self.state.streaming.get(message_id)
            message = self.find(message_id)
            begun = str(known) if known else (message.content if message else None) or ""
            texts[message_id] = completed_text(begun, length, _pieces(stored.frames, message_id))
        return texts

    def find(self, message_id: str) -> ChatMessage | None:
        """Return a message."""
        position = self._positions.get(message_id)
        return None if position is None else self.messages[position]

    def position(self, message_id: str) -> int | None:
        """Return the position of a message."""
        return self._positions.get(message_id)

    def put(self, message: ChatMessage) -> int:
        """Add a message, or replace the one of its id; return its position.

        Raises:
            TypeError: its data or metadata are no JSON.
        """
        position = self._positions.get(message.id, len(self.messages))
        size = _size(message)
        if message.role is Role.ASSISTANT and not message.is_call:
            self.state.hide(message.id)
        self._place(position, message, size)
        return position

    def _place(self, position: int, message: ChatMessage, size: int) -> None:
        if position < len(self.messages):
            self.message_bytes -= _size(self.messages[position])
        self.message_bytes += size
        self.messages[position : position + 1] = [message]
        self._positions[message.id] = position
        self._has_branches = self._has_branches or AFTER in message.metadata
        if message.is_call:
            self._calls.add(message.call_id)

    def branch(self) -> Sequence[ChatMessage]:
        """Return the messages on the way to the newest turn (CHAT-40)."""
        return branch(self.messages) if self._has_branches else tuple(self.messages)

    def knows(self, name: str) -> bool:
        """Return whether a message or a call has this id."""
        return name in self._positions or name in self._calls

    def number(self, message: ServerMessage) -> tuple[ServerMessage, bytes]:
        """Take in the next event; return it with its number, and encoded (CHAT-11)."""
        numbered = ServerMessage(message.type, message.payload, message.turn_id, self.last_seq + 1)
        # A copy: bytes of orjson keep the buffer in which they were written.
        frame = bytes(memoryview(to_bytes(numbered.to_json())))
        self.state.apply(numbered)
        self.last_seq += 1
        self._sizes.append(len(frame))
        self._bytes += len(frame)
        settings = self._settings
        while len(self._sizes) > settings.max_events or self._bytes > settings.max_event_bytes:
            self._bytes -= self._sizes.popleft()
            self.first_seq += 1
        return numbered, frame

    def writing(
        self,
        fence: str | None,
        messages: Sequence[tuple[int, ChatMessage]],
        frames: Sequence[Frame],
        *,
        ends_turn: bool,
    ) -> Writing:
        """Return the change that makes a stored chat this one; see `Writing`."""
        return Writing(
            fence=fence,
            messages=messages,
            frames=frames,
            last_seq=self.last_seq,
            first_seq=self.first_seq,
            last_active_at=self.last_active_at,
            state=self.state.to_json(),
            ends_turn=ends_turn,
            bytes=self.bytes,
        )

    @property
    def bytes(self) -> int:
        """About what the chat takes, with the events that are kept."""
        return self.message_bytes + self._bytes

    def history(self) -> Payload:
        """Return the payload of `history`: what events up to `last_seq` have shown (CHAT-13)."""
        streaming = self.state.streaming
        start = self._page_start(len(self.messages))
        messages = []
        for message in self.messages[start:]:
            if message.id in self.state.hidden:
                continue
            text = streaming.get(message.id)
            messages.append((evolve(message, content=str(text)) if text else message).to_json())
        for message_id, text in streaming.items():
            if message_id not in self._positions:
                begun = ChatMessage(id=message_id, role=Role.ASSISTANT, content=str(text))
                messages.append(begun.to_json())
        waiting = [
            {"messageId": turn.message_id, **shown_words(turn.text, turn.metadata)}
            for turn in self.waiting
        ]
        return {
            "messages": messages,
            "previous": self._previous(start),
            "seq": self.last_seq,
            **self.state.waits(),
            "waiting": waiting,
            "usage": self.state.usage_json(),
        }

    def older(self, message_id: str) -> Payload | None:
        """Return the page of messages before one; None if there is no such message (CHAT-37)."""
        end = self._positions.get(message_id)
        if end is None:
            return None
        start = self._page_start(end)
        shown = (each for each in self.messages[start:end] if each.id not in self.state.hidden)
        return {"messages": [each.to_json() for each in shown], "previous": self._previous(start)}

    def _previous(self, position: int) -> str | None:
        """Return the id of the newest message of a person before a position, if there is one."""
        before = range(position - 1, -1, -1)
        return next((m.id for at in before if (m := self.messages[at]).role is Role.USER), None)

    def _page_start(self, end: int) -> int:
        """Return where the page begins that ends before a position.

        That is at a message of a person. In a turn that is longer than a page no call is cut off
        from its outcome.
        """
        start, size = end, 0
        while start and end - start < _PAGE_MESSAGES and size < _PAGE_BYTES:
            start -= 1
            size += _size(self.messages[start])
        for at in range(start, end):
            if self.messages[at].role is Role.USER:
                return at
        while start and self.messages[start].role is not Role.USER:
            before = self.messages[start - 1]
            is_cut = self.messages[start].role is Role.TOOL or before.is_call
            if not is_cut and before.role is not Role.USER:
                break
            start -= 1
        return start


def _size(message: ChatMessage) -> int:
    """Return about how many bytes a message takes; a text that grows is not encoded each time."""
    return (
        _MESSAGE_BYTES
        + len(message.content or "")
        + (0 if message.data is None else len(to_bytes(message.data)))
        + sum(len(each["data"]) for each in message.metadata.get("pictures", ()))
        + sum(len(to_bytes(each)) for name, each in message.metadata.items() if name != "pictures")
    )


def _pieces(frames: Sequence[Frame], message_id: str) -> list[str]:
    """Return the pieces of a text among frames."""
    pieces = []
    for _, frame in frames:
        event = loads(frame)
        if event["type"] == "text" and event["payload"]["messageId"] == message_id:
            pieces.append(event["payload"].get("content") or "")
    return pieces


def completed_text(stored: str, length: int, pieces: Sequence[str]) -> str:
    """Return a text of which a store has the beginning, and its newest pieces as events.

    Args:
        stored: the beginning, or more than was shown.
        length: of what was shown.
        pieces: the newest ones, in their order; they reach back to the beginning's end.
    """
    missing = length - len(stored)
    if missing <= 0:
        return stored[:length]
    return stored + "".join(pieces)[-missing:]
