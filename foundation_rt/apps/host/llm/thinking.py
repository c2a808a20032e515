"""`<think>...</think>` at the beginning of an answer is thought (LLM-97). Pure.

Servers that do not read the thoughts of their model pass them on as text. Elsewhere in an answer
the tag is text: people ask about it. The pieces are the same for any split of the text.
"""

from __future__ import annotations

from attrs import define, field

from .provider import TextPiece, ThoughtPiece

_OPENING, _CLOSING = "<think>", "</think>"
_MOST_BLANK = 256
"""The most white space before the tag: what is held is looked at with every chunk (LLM-119)."""


@define
class ThinkParser:
    """Separates the thought from the text of one answer."""

    _held: str = field(default="", init=False)
    _is_inside: bool = field(default=False, init=False)
    _has_begun: bool = field(default=False, init=False)  # the text
    _has_thought: bool = field(default=False, init=False)

    def feed(self, chunk: str) -> list[TextPiece | ThoughtPiece]:
        """Return the pieces that are decided with this chunk."""
        if self._has_begun:
            return [TextPiece(chunk)]
        self._held += chunk
        if self._is_inside:
            return self._read_thought()
        begun = self._held.lstrip()
        if len(self._held) - len(begun) > _MOST_BLANK:
            return [TextPiece(self._text())]
        if begun.startswith(_OPENING):
            self._held, self._is_inside = begun[len(_OPENING) :], True
            return self._read_thought()
        if _OPENING.startswith(begun):
            return [TextPiece("")]
        return [TextPiece(self._text())]

    def end(self) -> list[TextPiece | ThoughtPiece]:
        """Return what was held back."""
        if self._is_inside:
            return [ThoughtPiece(self._held)]
        return [TextPiece(self._text())]

    def _text(self) -> str:
        held, self._held, self._has_begun = self._held, "", True
        return held.lstrip() if self._has_thought else held

    def _read_thought(self) -> list[TextPiece | ThoughtPiece]:
        thought, closing, rest = self._held.partition(_CLOSING)
        if closing:
            self._held, self._is_inside, self._has_thought = "", False, True
            return [ThoughtPiece(thought), *self.feed(rest)]
        kept = len(_CLOSING) - 1
        while not (kept == 0 or thought.endswith(_CLOSING[:kept])):
            kept -= 1
        self._held = thought[len(thought) - kept :]
        return [ThoughtPiece(thought[: len(thought) - kept])]
