"""A chat as values: its messages, as the model reads them and as stores keep them. Pure.

Chats have branches (CHAT-40): a message may go on from an earlier one. A message of the user, and
all that follows up to the next one, is a turn. It goes on from the turn before it, unless its
metadata have `after`: the id of the message that it goes on from, or None for the beginning. So
turns are a tree, and the model reads the way to one of them.

Sizes of what a model reads are in bytes, roughly. A picture is known by its first bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import Any

from attrs import field, frozen

from ...base.exact_json import dumps

THOUGHT = "thought"
"""In `metadata`: a text is what the model thought. It is not sent to a model again (LLM-97)."""


def chat_label(session_id: str) -> str:
    """Return what logs call a chat, in their field `chat`: a hash of its id, which is a secret."""
    return sha256(session_id.encode()).hexdigest()[:16]


class Role(StrEnum):
    """The author of a message."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


SHOWN = ("after", "files", "pictures", "model")
"""The metadata of their messages that people are shown."""


def shown_words(text: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what people are shown of a message of theirs: `words` are its text without files."""
    shown = {name: metadata[name] for name in SHOWN if name in metadata}
    return {"text": metadata.get("words", text), **shown}


class ToolPhase(StrEnum):
    """The phase of a call that a message of the role `tool` is about."""

    START = "start"
    PROGRESS = "progress"
    COMPLETE = "complete"


@frozen
class TokenUsage:
    """Tokens of a request to a model, or of many together.

    Attributes:
        prompt_tokens: read by the model.
        completion_tokens: written by the model.
        is_estimated: whether any of them is an estimate, because the provider reported none.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    is_estimated: bool = False

    @property
    def total_tokens(self) -> int:
        """Both together."""
        return self.prompt_tokens + self.completion_tokens

    def to_json(self) -> dict[str, Any]:
        """Return the usage as events have it."""
        return {
            "promptTokens": self.prompt_tokens,
            "completionTokens": self.completion_tokens,
            "totalTokens": self.total_tokens,
            "isEstimated": self.is_estimated,
        }

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.is_estimated or other.is_estimated,
        )


@frozen(kw_only=True)
class ChatMessage:
    """One message of a chat.

    A call is a message of the role `assistant` with `tool_name`, `call_id` and `data`, which is
    `{"arguments": {...}}`. Its outcome is the next message of the role `tool` with that `call_id`.

    Attributes:
        id: unique in its session. Pieces of one streamed text share it.
        role: who it is from.
        content: text; of a tool, what the model reads of the outcome.
        data: of a call, its arguments; of the role `tool`, the whole result as people see it:
            `{"result": {...}}` or `{"error": {"code", "message"}}`.
        created_at: Unix time, in ms.
        tool_name: `server:tool`.
        call_id: of a call and of its outcome.
        kind: of the role `tool`: `complete`; a call without outcome has none.
        metadata: JSON for those who wrote it: whether it is an error, how long it took, its turn;
            of a call under the name of a provider what it wants back, such as a thought signature.
    """

    id: str
    role: Role
    content: str | None = None
    data: Any = None
    created_at: int = 0
    tool_name: str | None = None
    call_id: str | None = None
    kind: ToolPhase | None = None
    metadata: Mapping[str, Any] = field(factory=dict)

    @property
    def is_call(self) -> bool:
        """Tell whether the model asks for a tool by it."""
        return self.role is Role.ASSISTANT and self.tool_name is not None

    @property
    def is_said(self) -> bool:
        """Tell whether the model says it to the user: neither a call nor a thought."""
        is_thought = bool(self.metadata.get(THOUGHT))
        return self.role is Role.ASSISTANT and self.tool_name is None and not is_thought

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of a call; an empty object if it has none, or is no call."""
        found = self.data.get("arguments") if isinstance(self.data, Mapping) else None
        return found if isinstance(found, Mapping) else {}

    @property
    def call_parts(self) -> list[Any]:
        """The parts of a call that a model reads: its data, and what its provider wants back."""
        return [self.data, *(each for each in self.metadata.values() if isinstance(each, Mapping))]

    @cached_property
    def model_bytes(self) -> int:
        """The size of the message as a model reads it, roughly.

        It is kept: each request of a long chat would else measure all of it.
        """
        size = MESSAGE_BYTES + text_bytes(self.content or "")
        if self.is_call:
            size += text_bytes(self.tool_name or "") + json_bytes(self.call_parts)
        return size + len(self.metadata.get("pictures") or ()) * PICTURE_BYTES

    def to_json(self) -> dict[str, Any]:
        """Return the message for a store or the wire, in camelCase, without what is not set."""
        values = {
            "id": self.id,
            "role": self.role.value,
            "content": self.content,
            "data": self.data,
            "createdAt": self.created_at,
            "toolName": self.tool_name,
            "callId": self.call_id,
            "kind": None if self.kind is None else self.kind.value,
            "metadata": dict(self.metadata) or None,
        }
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ChatMessage:
        """Return the message that `to_json` has written."""
        kind = values.get("kind")
        return cls(
            id=values["id"],
            role=Role(values["role"]),
            content=values.get("content"),
            data=values.get("data"),
            created_at=values.get("createdAt", 0),
            tool_name=values.get("toolName"),
            call_id=values.get("callId"),
            kind=None if kind is None else ToolPhase(kind),
            metadata=values.get("metadata", {}),
        )


AFTER = "after"


def branch(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """Return the messages on the way to the newest turn, in their order."""
    starts = [at for at, message in enumerate(messages) if message.role is Role.USER]
    turns = {messages[start].id: number for number, start in enumerate(starts)}
    kept: list[int] = []
    number = len(starts) - 1
    while number >= 0:
        kept.append(number)
        metadata = messages[starts[number]].metadata
        before = number - 1
        if AFTER in metadata:
            wanted = metadata[AFTER]
            before = -1 if wanted is None else min(turns.get(wanted, before), before)
        number = before
    ends = [*starts[1:], len(messages)]
    way = [*messages[: starts[0] if starts else len(messages)]]
    for number in reversed(kept):
        way += messages[starts[number] : ends[number]]
    return way


BYTES_PER_TOKEN = 4
MESSAGE_BYTES = 16
"""Bytes that a wire adds to a message, roughly."""

MAX_DECISIONS = 1_000
"""The most subjects whose decisions are kept for one principal (CHAT-28)."""

PICTURE_BYTES = 1_000 * BYTES_PER_TOKEN
"""Of a picture, roughly: providers count from 258 to 1,600 tokens, by its size."""


def text_bytes(text: str) -> int:
    """Return the size of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def json_bytes(value: object) -> int:
    """Return the size of a value as JSON."""
    try:
        return len(dumps(dict(value) if isinstance(value, Mapping) else value))
    except TypeError:
        return text_bytes(str(value))


_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def picture_type(data: bytes) -> str | None:
    """Return the media type of a picture that some model reads; None if it is none."""
    if data[4:12] in (b"ftypheic", b"ftypheix", b"ftypmif1"):
        return "image/heic"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES if data.startswith(start)), None)
