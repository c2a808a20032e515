"""An answer of `/chat/completions`, read from the objects that a server streams (LLM-90 to LLM-98).

Servers add to this protocol and leave out of it: nothing but the shape that is read is expected,
and what has another type is as good as missing. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from attrs import define, evolve, field

from .call_assembly import CallAssembler, CallFragment
from .json_values import Pieces, index_of, mapping, mappings, number, string, whole
from .provider import CallPiece, EndPiece, Piece, TextPiece, ThoughtPiece, UsagePiece

MESSAGE, CALL = "message", "call"
"""In what is given back: members of the answer, and of the call."""

DETAILS = "reasoning_details"
_THOUGHTS = ("reasoning_content", "reasoning")
_CUT = ("length", "max_tokens", "model_length")
_BROKEN = ("error", "abort", "insufficient_system_resource")
_GROWING = ("text", "summary", "thinking")


@define(eq=False)
class OpenAIAnswer:
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
    _wanted: dict[str, Any] = field(factory=dict, init=False)
    _reason: str = field(default="", init=False)

    def __attrs_post_init__(self) -> None:
        self.calls = CallAssembler(self._names)

    def read(self, event: Mapping[str, Any] | None) -> list[Piece]:
        """Return the pieces of an object of the stream; None is its end, `[DONE]`."""
        if event is None:
            self.is_done = True
            return []
        pieces: list[Piece] = [TextPiece("")]
        usage = mapping(event.get("usage"))
        if usage:
            counts = (number(usage.get(f"{each}_tokens")) for each in ("prompt", "completion"))
            pieces.append(UsagePiece(*counts))
        choices = [*mappings(event.get("choices"))]
        if choices:
            delta = choices[0].get("delta")
            message = delta if isinstance(delta, Mapping) else choices[0].get("message")
            pieces += self._read_message(mapping(message))
            self._reason = string(choices[0].get("finish_reason")) or self._reason
        return pieces

    @property
    def is_complete(self) -> bool:
        """The server has said that the answer ends, and why (LLM-93)."""
        return self._reason not in _BROKEN and bool(self._reason or self.is_done)

    def end(self) -> list[Piece]:
        """Return the calls and the end; nothing if the answer was cut off."""
        if not self.is_complete:
            return []
        is_cut = self._reason in _CUT
        pieces: list[Piece] = [*self.calls.pieces(is_cut=is_cut)]
        first = next((at for at, each in enumerate(pieces) if isinstance(each, CallPiece)), None)
        if first is not None and self._wanted:
            call = pieces[first]
            assert isinstance(call, CallPiece)
            wanted = {name: _whole(kept) for name, kept in self._wanted.items()}
            given = {"model": self._model, **(call.given_back or {}), MESSAGE: wanted}
            pieces[first] = evolve(call, given_back=given)
        is_refused = self._reason == "content_filter"
        return [*pieces, EndPiece(is_cut, "content_filter" if is_refused else "")]

    def _read_message(self, message: Mapping[str, Any]) -> Iterator[Piece]:
        yield from self._read_thoughts(message)
        google = mapping(mapping(message.get("extra_content")).get("google"))
        kind = ThoughtPiece if google.get("thought") is True else TextPiece
        yield kind(string(message.get("content")))
        for part in mappings(message.get("content")):
            yield from self._read_part(part)
        yield TextPiece(string(message.get("refusal")))
        for call in mappings(message.get("tool_calls")):
            self._read_call(call)

    def _read_thoughts(self, message: Mapping[str, Any]) -> Iterator[Piece]:
        """Keep what the model thinks, under the names that its server has for it."""
        shown = ""
        for name in _THOUGHTS:
            thought = string(message.get(name))
            if thought:
                self._wanted.setdefault(name, Pieces()).append(thought)
                self.calls.size += len(thought)
                shown = shown or thought
        for detail in mappings(message.get(DETAILS)):
            self._keep_part(DETAILS, detail)
            shown = shown or string(detail.get("text")) or string(detail.get("summary"))
        yield ThoughtPiece(shown)

    def _read_part(self, part: Mapping[str, Any]) -> Iterator[Piece]:
        """Read a part of a content that is a list, as Mistral writes it."""
        if part.get("type") != "thinking":
            yield TextPiece(string(part.get("text")) or string(part.get("refusal")))
            return
        thinking = part.get("thinking")
        texts = (string(each.get("text")) for each in mappings(thinking))
        thought = string(thinking) or "".join(texts)
        self._keep_part("content", {**part, "thinking": thought})
        yield ThoughtPiece(thought)

    def _keep_part(self, name: str, part: Mapping[str, Any]) -> None:
        """Keep a part of a thought; one of the same index and type continues the last one."""
        kept = self._wanted.setdefault(name, [])
        self.calls.size += len(str(part))
        last = kept[-1] if kept else {}
        if not last or any(last.get(key) != part.get(key) for key in ("index", "type")):
            last = {}
            kept.append(last)
        for key, value in part.items():
            if key in _GROWING and isinstance(value, str):
                before = last.get(key)
                last[key] = before if isinstance(before, Pieces) else Pieces()
                last[key].append(value)
            elif value is not None or key not in last:
                last[key] = value

    def _read_call(self, call: Mapping[str, Any]) -> None:
        function = mapping(call.get("function"))
        extra = mapping(call.get("extra_content"))
        wanted = {"model": self._model, CALL: {"extra_content": extra}} if extra else None
        part = CallFragment(
            index=index_of(call.get("index")),
            call_id=string(call.get("id")),
            name=string(function.get("name")),
            arguments=function.get("arguments"),
            given_back=wanted,
        )
        self.calls.add(part)


def _whole(kept: Any) -> Any:
    """Return what was kept under a name, with its texts in one piece."""
    return str(kept) if isinstance(kept, Pieces) else [*map(_whole_part, kept)]


def _whole_part(part: Mapping[str, Any]) -> dict[str, Any]:
    found = whole(part)
    if isinstance(part.get("thinking"), Pieces):
        thought = found["thinking"]
        found["thinking"] = [{"type": "text", "text": thought}] if thought else []
    return found
