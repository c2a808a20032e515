"""Calls as text, for models that take no functions (LLM-40 to LLM-45). Pure.

A call is a JSON object between ```` ```tool ```` and ```` ``` ````. The parser reads characters, so
the pieces are the same for any split of the text. Within the fence it knows the strings of JSON:
backticks within one do not close it. White space beside fences is not shown.

`ThinkParser` reads `<think>...</think>` at the beginning of an answer as a thought (LLM-97).
Servers that do not read the thoughts of their model pass them on as text. Elsewhere in an answer
the tag is text: people ask about it.
"""

from __future__ import annotations

import orjson
from attrs import define, field

from ....base.exact_json import dumps, loads_bounded
from .provider import CallPiece, MalformedPiece, Piece, TextPiece, ThoughtPiece

INSTRUCTION = (
    "When you need to use a tool, respond ONLY with the tool call JSON object enclosed in triple"
    " backticks like this:\n"
    '```tool\n{ "tool": "qualifiedToolName", "arguments": { /_ args _/ } }\n```\n'
    "Do not add any other text before the opening ```tool or after the closing ```."
)
"""The seed's instruction, to the letter (LLM-40)."""

MAX_CALL_CHARACTERS = 256 * 1024
_SHOWN = 300
_OPENING = "```tool"
_MAX_SPACE = 256  # characters that are held back because a fence may follow


@define
class FenceParser:
    """Separates the calls in a stream of text from the text beside them (LLM-41)."""

    _held: str = field(default="", init=False)  # white space, or what may become a fence
    _body: list[str] | None = field(default=None, init=False)  # of the fence that is open
    _body_size: int = field(default=0, init=False)
    _ticks: int = field(default=0, init=False)
    _in_string: bool = field(default=False, init=False)
    _is_escaped: bool = field(default=False, init=False)
    _is_at_start: bool = field(default=True, init=False)  # nothing to show since the last fence

    def feed(self, chunk: str) -> list[Piece]:
        """Return the pieces that are complete with this chunk."""
        pieces: list[Piece] = []
        text: list[str] = []
        rest = chunk
        while rest:
            if self._body is None:
                rest = self._read_text(rest, text)
            else:
                if text:
                    pieces.append(TextPiece("".join(text)))
                    text = []
                rest = self._read_body(rest, pieces)
        if text:
            pieces.append(TextPiece("".join(text)))
        return pieces

    def end(self) -> list[Piece]:
        """Return the last pieces; a fence that is still open is malformed (LLM-43)."""
        if self._body is None and self._held.lstrip() != _OPENING:
            held = self._shown(self._held.rstrip())
            return [TextPiece(held)] if held else []
        body = "".join(self._body or ())
        return [MalformedPiece(_complaint("the closing ``` is missing", body))]

    def _read_text(self, chunk: str, text: list[str]) -> str:
        """Read until a fence opens; return what follows it."""
        held = self._held + chunk
        start = held.find(_OPENING)
        while start >= 0:
            after = start + len(_OPENING)
            if after == len(held):
                break
            if held[after].isspace() or held[after] == "{":
                self._emit(held[: start - _space_before(held[:start])], text)
                self._open()
                return held[after:]
            start = held.find(_OPENING, after)
        kept = self._undecided(held)
        self._emit(held[: len(held) - kept], text)
        self._held = held[len(held) - kept :]
        return ""

    def _undecided(self, held: str) -> int:
        """Return how many of the last characters may belong to a fence, or stand beside one."""
        length = min(len(_OPENING), len(held))
        while length and not held.endswith(_OPENING[:length]):
            length -= 1
        return length + _space_before(held[: len(held) - length])

    def _emit(self, shown: str, text: list[str]) -> None:
        shown = self._shown(shown)
        if shown:
            text.append(shown)
            self._is_at_start = False

    def _shown(self, shown: str) -> str:
        return shown.lstrip() if self._is_at_start else shown

    def _open(self) -> None:
        self._held, self._body, self._body_size = "", [], 0
        self._ticks, self._in_string, self._is_escaped = 0, False, False

    def _read_body(self, chunk: str, pieces: list[Piece]) -> str:
        """Read until the fence closes; return what follows it."""
        assert self._body is not None
        for position, character in enumerate(chunk):
            self._ticks = self._ticks + 1 if character == "`" and not self._in_string else 0
            if self._ticks == 3:
                self._keep(chunk[: position + 1])
                pieces.append(self._close())
                return chunk[position + 1 :]
            self._follow_strings(character)
        self._keep(chunk)
        return ""

    def _follow_strings(self, character: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif character == "\\":
            self._is_escaped = self._in_string
        elif character == '"':
            self._in_string = not self._in_string
        if character == "\n":  # no string of JSON goes over a line
            self._in_string = self._is_escaped = False

    def _keep(self, part: str) -> None:
        """Keep a part of the body, as far as it is bounded (LLM-44)."""
        assert self._body is not None
        if self._body_size <= MAX_CALL_CHARACTERS:
            self._body.append(part[: MAX_CALL_CHARACTERS + 4 - self._body_size])
        self._body_size += len(part)

    def _close(self) -> Piece:
        body = "".join(self._body or ())
        size, self._body, self._is_at_start = self._body_size, None, True
        if size - 3 > MAX_CALL_CHARACTERS:
            reason = f"it has more than {MAX_CALL_CHARACTERS} characters"
            return MalformedPiece(_complaint(reason, body))
        return read_call(body[:-3])


def _space_before(text: str) -> int:
    """Return how much white space at the end of a text is held back."""
    return min(len(text) - len(text.rstrip()), _MAX_SPACE)


def read_call(text: str) -> CallPiece | MalformedPiece:
    """Return the call between the fences."""
    try:
        call = loads_bounded(text.encode("utf-8", "surrogatepass"))
    except orjson.JSONDecodeError as error:
        return MalformedPiece(_complaint(f"it is no valid JSON ({error})", text))
    if not isinstance(call, dict) or not isinstance(call.get("tool"), str) or not call["tool"]:
        return MalformedPiece(_complaint('it has no "tool" with the name of a tool', text))
    has_others = len(call) > 1  # such as `parameters`: it must not run without them
    arguments = call.get("arguments", None if has_others else {})
    if not isinstance(arguments, dict):
        return MalformedPiece(_complaint('its "arguments" are no object', text), call["tool"])
    return CallPiece(call["tool"], arguments)


def write_call(name: str, arguments: object) -> str:
    """Return a call as the model has to write it."""
    body = dumps({"tool": name, "arguments": arguments}, default=str).decode()
    return f"```tool\n{body}\n```"


def _complaint(reason: str, body: str) -> str:
    shown = body.strip()[:_SHOWN]
    return (
        f"Your tool call could not be read: {reason}. You wrote: {shown}\n"
        'Write it again, as ```tool, a JSON object with "tool" and "arguments", and ```.'
    )


_THINK, _THOUGHT_END = "<think>", "</think>"
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
        if begun.startswith(_THINK):
            self._held, self._is_inside = begun[len(_THINK) :], True
            return self._read_thought()
        if _THINK.startswith(begun):
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
        thought, closing, rest = self._held.partition(_THOUGHT_END)
        if closing:
            self._held, self._is_inside, self._has_thought = "", False, True
            return [ThoughtPiece(thought), *self.feed(rest)]
        kept = len(_THOUGHT_END) - 1
        while not (kept == 0 or thought.endswith(_THOUGHT_END[:kept])):
            kept -= 1
        self._held = thought[len(thought) - kept :]
        return [ThoughtPiece(thought[: len(thought) - kept])]
