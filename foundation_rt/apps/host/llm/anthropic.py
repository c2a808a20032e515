"""Anthropic's messages (LLM-25 to LLM-33).

`AnthropicAnswer` reads an answer of `/v1/messages` from the events of its stream (LLM-90 to
LLM-98).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from attrs import define, field

from .call_assembly import CallFragment
from .json_values import Pieces, index_of, mapping, mappings, number, string, whole
from .portability import CLAUDE
from .provider import EndPiece, ModelRequest, Piece, TextPiece, ThoughtPiece, UsagePiece
from .turns import CallPart, Picture, WireTurn, build_turns
from .vendor import AnswerReader, StreamingProvider

DEFAULT_MAX_TOKENS = 8192
"""Anthropic wants a limit of the answer's tokens."""


BLOCKS = "blocks"
"""In what is given back: the blocks of thought that stand before a call."""

_THOUGHTS = ("thinking", "redacted_thinking")
_GROWING = ("thinking", "signature")
_CUT = ("max_tokens", "model_context_window_exceeded")


@define(eq=False)
class AnthropicAnswer(AnswerReader):
    """Reads one answer from the events of a stream."""

    _thoughts: list[dict[str, Any]] = field(factory=list, init=False)
    _prompt_tokens: int = field(default=0, init=False)

    def read(self, event: Mapping[str, Any]) -> list[Piece]:
        """Return the pieces of an event."""
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


@define(eq=False)
class AnthropicProvider(StreamingProvider):
    """The adapter of the package `anthropic`."""

    name: ClassVar[str] = "anthropic"
    package: ClassVar[str] = "anthropic"
    key_variable: ClassVar[str] = "ANTHROPIC_API_KEY"
    client: ClassVar[str] = "AsyncAnthropic"
    error: ClassVar[str] = "AnthropicError"
    reader: ClassVar[type[AnswerReader]] = AnthropicAnswer
    hosts: ClassVar[Sequence[str]] = (CLAUDE,)

    async def _open(self, model: str, request: ModelRequest) -> Any:
        return await self._client.messages.create(**self._body(model, request))

    def _body(self, model: str, request: ModelRequest) -> dict[str, Any]:
        turns = build_turns(request, self.name, self.picture_types_for(request))
        # As they are: the package looks at each part of a typed argument against its annotations,
        # which takes 0.5 ms for every message of the history, in every request.
        plain: dict[str, Any] = {"messages": [_message(turn, model) for turn in turns]}
        body: dict[str, Any] = {
            "model": model,
            "messages": (),
            "extra_body": plain,
            "max_tokens": request.max_tokens or DEFAULT_MAX_TOKENS,
            "stream": True,
        }
        if request.system:
            body["system"] = request.system
        if request.temperature is not None:
            # The SDK no longer has it: new models refuse it, and those that take it still do.
            plain["temperature"] = request.temperature
        if request.tools:
            plain["tools"] = [
                {
                    "name": tool.outside_name,
                    "description": tool.description,
                    "input_schema": dict(tool.parameters),
                }
                for tool in request.tools
            ]
        elif names := {call.name for turn in turns for call in turn.calls}:
            # Calls in the history want definitions, also when the tools were taken away.
            plain["tools"] = [
                {"name": name, "input_schema": {"type": "object", "properties": {}}}
                for name in sorted(names)
            ]
            body["tool_choice"] = {"type": "none"}
        return body


def _message(turn: WireTurn, model: str) -> dict[str, Any]:
    thoughts = [_thoughts(call, model) for call in turn.calls]
    content: list[dict[str, Any]] = [
        {
            "type": "tool_result",
            "tool_use_id": result.call_id,
            "is_error": result.is_error,
            "content": [_text(result.content), *map(_picture, result.pictures)],
        }
        for result in turn.results
    ]
    content += thoughts[0] if thoughts else ()  # they stand before the text, as Anthropic wants
    if turn.texts:
        content.append(_text(turn.text))
    content += map(_picture, turn.pictures)
    for position, call in enumerate(turn.calls):
        content += thoughts[position] if position else ()
        use = {"id": call.call_id, "name": call.name, "input": dict(call.arguments)}
        content.append({"type": "tool_use", **use})
    return {"role": "user" if turn.is_user else "assistant", "content": content}


def _thoughts(call: CallPart, model: str) -> list[dict[str, Any]]:
    """Return the blocks of thought that the same model wants back before a call (LLM-98)."""
    given = call.given_back or {}
    return list(given.get(BLOCKS, ())) if given.get("model") == model else []


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _picture(picture: Picture) -> dict[str, Any]:
    source = {"type": "base64", "media_type": picture.mime_type, "data": picture.data}
    return {"type": "image", "source": source}
