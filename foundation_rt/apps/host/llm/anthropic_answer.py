"""An answer of `/v1/messages`, read from the events of its stream (LLM-90 to LLM-98). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from attrs import define, field

from .call_assembly import CallAssembler, CallFragment
from .json_values import Pieces, index_of, mapping, mappings, number, string, whole
from .provider import EndPiece, Piece, TextPiece, ThoughtPiece, UsagePiece

BLOCKS = "blocks"
"""In what is given back: the blocks of thought that stand before a call."""

_THOUGHTS = ("thinking", "redacted_thinking")
_GROWING = ("thinking", "signature")
_CUT = ("max_tokens", "model_context_window_exceeded")


@define(eq=False)
class AnthropicAnswer:
    """Reads one answer.

    Args:
        names: of the tools that the model may call.
        model: its name, since only this model gets back what it wants back.

    Attributes:
        calls: the calls of the answer.
        is_done: nothing of the answer follows.
    """

    _names: Collection[str]
    _model: str
    calls: CallAssembler = field(init=False)
    is_done: bool = field(default=False, init=False)
    _thoughts: list[dict[str, Any]] = field(factory=list, init=False)
    _prompt_tokens: int = field(default=0, init=False)
    _reason: str = field(default="", init=False)

    def __attrs_post_init__(self) -> None:
        self.calls = CallAssembler(self._names)

    def read(self, event: Mapping[str, Any] | None) -> list[Piece]:
        """Return the pieces of an event; None is the end of the stream."""
        if event is None:
            self.is_done = True
            return []
        kind, index = event.get("type"), index_of(event.get("index"))
        if kind == "content_block_start":
            return self._start(index, mapping(event.get("content_block")))
        if kind == "content_block_delta":
            return self._grow(index, mapping(event.get("delta")))
        if kind == "message_stop":
            self.is_done = True
        message = event if kind == "message" else mapping(event.get("message"))
        pieces: list[Piece] = [TextPiece("")]
        for at, block in enumerate(mappings(message.get("content"))):
            pieces += self._start(at, block)
        for each in (event, message, mapping(event.get("delta"))):
            self._reason = string(each.get("stop_reason")) or self._reason
            self._count(mapping(each.get("usage")), pieces, is_end=kind != "message_start")
        return pieces

    @property
    def is_complete(self) -> bool:
        """The server has said that the answer ends, and why (LLM-93)."""
        return bool(self._reason or self.is_done)

    def end(self) -> list[Piece]:
        """Return the calls and the end; nothing if the answer was cut off."""
        if not self.is_complete:
            return []
        is_cut = self._reason in _CUT
        end = EndPiece(is_cut, "refusal" if self._reason == "refusal" else "")
        return [*self.calls.pieces(is_cut=is_cut), end]

    def _start(self, index: int | None, block: Mapping[str, Any]) -> list[Piece]:
        kind = block.get("type")
        if kind == "tool_use":
            blocks, self._thoughts = [*map(whole, self._thoughts)], []
            wanted = {"model": self._model, BLOCKS: blocks} if blocks else None
            part = CallFragment(
                index=index,
                call_id=string(block.get("id")),
                name=string(block.get("name")),
                arguments=block.get("input"),
                given_back=wanted,
            )
            self.calls.add(part)
        elif kind in _THOUGHTS:
            own = _GROWING if kind == "thinking" else [each for each in _GROWING if each in block]
            texts = {member: Pieces([string(block.get(member))]) for member in own}
            self._thoughts.append({**block, **texts})
            self.calls.size += len(str(block))
        return [TextPiece(string(block.get("text"))), ThoughtPiece(string(block.get("thinking")))]

    def _grow(self, index: int | None, delta: Mapping[str, Any]) -> list[Piece]:
        if delta.get("type") == "input_json_delta":
            self.calls.add(CallFragment(index=index, arguments=delta.get("partial_json")))
        for member in _GROWING:
            more = string(delta.get(member))
            if more and self._thoughts:
                self._thoughts[-1].setdefault(member, Pieces()).append(more)
                self.calls.size += len(more)
        return [TextPiece(string(delta.get("text"))), ThoughtPiece(string(delta.get("thinking")))]

    def _count(self, usage: Mapping[str, Any], pieces: list[Piece], *, is_end: bool) -> None:
        parts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        prompt = sum(number(usage.get(part)) for part in parts)
        self._prompt_tokens = max(self._prompt_tokens, prompt)
        if is_end and "output_tokens" in usage:
            pieces.append(UsagePiece(self._prompt_tokens, number(usage["output_tokens"])))
