"""Estimates of tokens, and the usage of each session (LLM-60 to LLM-62)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter

from attrs import define, field

from ....base.bounded_dict import BoundedDict
from ..chat import BYTES_PER_TOKEN, ChatMessage, TokenUsage, json_bytes, text_bytes
from .service import ModelTool

MAX_SESSIONS = 20_000
_LOWEST, _HIGHEST = 0.25, 4.0
_WEIGHT = 0.2
_model_bytes: Callable[[ChatMessage], int] = attrgetter("model_bytes")
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

    _used: dict[str, TokenUsage] = field(factory=lambda: BoundedDict(MAX_SESSIONS), init=False)

    def add(self, session_id: str, usage: TokenUsage) -> None:
        """Add the usage of one answer."""
        self._used[session_id] = self._used.get(session_id, TokenUsage()) + usage

    def get(self, session_id: str) -> TokenUsage | None:
        """Return the usage so far; None if there is none."""
        return self._used.get(session_id)

    def forget(self, session_id: str) -> None:
        """Forget a session."""
        self._used.pop(session_id, None)


def request_bytes(system: str, history: Sequence[ChatMessage], tools: Sequence[ModelTool]) -> int:
    """Return the size of a request, roughly: texts, calls, pictures, definitions (LLM-61)."""
    return (
        text_bytes(system)
        + sum(map(_model_bytes, history))
        + sum(tool_bytes(tool) for tool in tools)
    )


def tool_bytes(tool: ModelTool) -> int:
    """Return the size of a definition, roughly."""
    return (
        text_bytes(tool.outside_name) + text_bytes(tool.description) + json_bytes(tool.parameters)
    )
