"""Estimates of tokens, and the usage of each session (LLM-60 to LLM-62)."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import orjson
from attrs import define, field

from ..chat import ChatMessage, TokenUsage
from .service import ModelTool

BYTES_PER_TOKEN = 4
PICTURE_TOKENS = 1_000
"""Of a picture, roughly: providers count from 258 to 1,600, by its size."""

MESSAGE_BYTES = 16
"""Bytes that a wire adds to a message, roughly."""

MAX_SESSIONS = 20_000
_LOWEST, _HIGHEST = 0.25, 4.0
_WEIGHT = 0.2
_FEWEST_BYTES = 200  # a shorter request says more about the wire than about the language


@define
class TokenEstimate:
    """An estimate of tokens by bytes, corrected by what the provider reports (LLM-60)."""

    _correction: float = field(default=1.0, init=False)

    def of_bytes(self, count: int) -> int:
        """Return the tokens of so many bytes of UTF-8."""
        return math.ceil(count / BYTES_PER_TOKEN * self._correction)

    def of_text(self, text: str) -> int:
        """Return the tokens of a text."""
        return self.of_bytes(text_bytes(text))

    def learn(self, count: int, tokens: int) -> None:
        """Correct by one request: its bytes and the tokens that were reported for it."""
        if count < _FEWEST_BYTES or tokens <= 0:
            return
        seen = min(max(tokens * BYTES_PER_TOKEN / count, _LOWEST), _HIGHEST)
        self._correction += _WEIGHT * (seen - self._correction)


@define
class SessionUsage:
    """The tokens of each session; the one unused for longest is forgotten first (LLM-62)."""

    _used: OrderedDict[str, TokenUsage] = field(factory=OrderedDict, init=False)

    def add(self, session_id: str, usage: TokenUsage) -> None:
        """Add the usage of one answer."""
        self._used[session_id] = self._used.pop(session_id, TokenUsage()) + usage
        if len(self._used) > MAX_SESSIONS:
            self._used.popitem(last=False)

    def get(self, session_id: str) -> TokenUsage | None:
        """Return the usage so far; None if there is none."""
        return self._used.get(session_id)

    def forget(self, session_id: str) -> None:
        """Forget a session."""
        self._used.pop(session_id, None)


def text_bytes(text: str) -> int:
    """Return the size of a text in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def request_bytes(system: str, history: Sequence[ChatMessage], tools: Sequence[ModelTool]) -> int:
    """Return the size of a request, roughly: texts, calls, pictures, definitions (LLM-61)."""
    return (
        text_bytes(system)
        + sum(message_bytes(message) for message in history)
        + sum(tool_bytes(tool) for tool in tools)
    )


def message_bytes(message: ChatMessage) -> int:
    """Return the size of a message as a model reads it, roughly."""
    size = MESSAGE_BYTES + text_bytes(message.content or "")
    if message.is_call:
        size += text_bytes(message.tool_name or "") + _json_bytes(message.data)
    pictures = message.metadata.get("pictures") or ()
    return size + len(pictures) * PICTURE_TOKENS * BYTES_PER_TOKEN


def tool_bytes(tool: ModelTool) -> int:
    """Return the size of a definition, roughly."""
    return (
        text_bytes(tool.outside_name) + text_bytes(tool.description) + _json_bytes(tool.parameters)
    )


def _json_bytes(value: object) -> int:
    try:
        return len(orjson.dumps(dict(value) if isinstance(value, Mapping) else value))
    except TypeError:
        return text_bytes(str(value))
