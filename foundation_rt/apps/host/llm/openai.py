"""OpenAI, and every server that speaks `/chat/completions` (LLM-25 to LLM-33).

`OpenAIAnswer` reads an answer from the objects that a server streams (LLM-90 to LLM-98). Servers
add to this protocol and leave out of it: nothing but the shape that is read is expected, and what
has another type is as good as missing.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import (
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from typing import Any, ClassVar

from attrs import define, evolve, field

from ....base.exact_json import dumps
from .call_assembly import CallFragment
from .failures import WebPageError
from .json_values import Pieces, index_of, mapping, mappings, number, string, whole
from .portability import MAX_TOOLS, OPENAI
from .provider import CallPiece, EndPiece, ModelRequest, Piece, TextPiece, ThoughtPiece, UsagePiece
from .service import LLMFailure
from .turns import Picture, WireTurn, build_turns
from .vendor import AnswerReader, StreamingProvider

log = logging.getLogger("foundation_rt.host")

_VERSION = re.compile(r"/v[0-9]")
_USAGE = "stream_options"
_OPTIONAL = (_USAGE, "reasoning_content", "reasoning_details", "reasoning", "extra_content")

_NO_SYSTEM, _DEFINITIONS = "no system prompt", "definitions of past calls"
_WISHES = {
    _NO_SYSTEM: re.compile(r"system (role|message)s?\b.{0,30}\bnot (be )?supported", re.IGNORECASE),
    _DEFINITIONS: re.compile(r"without `?tools=|must define tools|toolConfig", re.IGNORECASE),
}
"""The words of servers that want a chat otherwise: Gemma's template; Bedrock behind LiteLLM."""
_NO_PARAMETERS = {"type": "object", "properties": {}}


MESSAGE, CALL = "message", "call"
"""In what is given back: members of the answer, and of the call."""

DETAILS = "reasoning_details"
_THOUGHTS = ("reasoning_content", "reasoning")
_CUT = ("length", "max_tokens", "model_length")
_BROKEN = ("error", "abort", "insufficient_system_resource")
_GROWING = ("text", "summary", "thinking")


@define(eq=False)
class OpenAIAnswer(AnswerReader):
    """Reads one answer from the objects of a stream."""

    _wanted: dict[str, Any] = field(factory=dict, init=False)

    def read(self, event: Mapping[str, Any]) -> list[Piece]:
        """Return the pieces of an object of the stream."""
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
        """See `AnswerReader`."""
        return self._reason not in _BROKEN and super().is_complete

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


@define(eq=False)
class OpenAIProvider(StreamingProvider):
    """The adapter of the package `openai`."""

    name: ClassVar[str] = "openai"
    package: ClassVar[str] = "openai"
    key_variable: ClassVar[str] = "OPENAI_API_KEY"
    client: ClassVar[str] = "AsyncOpenAI"
    error: ClassVar[str] = "OpenAIError"
    reader: ClassVar[type[AnswerReader]] = OpenAIAnswer
    hosts: ClassVar[Sequence[str]] = (OPENAI,)
    max_tools: ClassVar[int | None] = MAX_TOOLS

    _wishes: set[str] = field(factory=set, init=False)
    _unknown: set[str] = field(factory=set, init=False)  # of what is optional

    async def list_models(self) -> Sequence[str]:
        """Return the names of the models."""
        return list(await self._asked_at_v1(super().list_models))

    async def _open(self, model: str, request: ModelRequest) -> Any:
        return await self._asked_at_v1(partial(self._sent, model, request))

    async def _asked_at_v1(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Ask; where there is no model, ask once at `/v1` of a base URL without it (LLM-35)."""
        client, before = self._client, self._base_url
        try:
            return await ask()
        except (self._sdk.OpenAIError, WebPageError) as error:
            if not self._is_astray(error) or _VERSION.search(client.base_url.path):
                raise
            failed, first = error, self._address
        self._base_url = f"{str(client.base_url).rstrip('/')}/v1"
        self._client = self._make_client()
        try:
            answer = await ask()
        except (self._sdk.OpenAIError, WebPageError) as error:
            if not self._is_astray(error):
                raise
            self._client, self._base_url = client, before
            self._address = f"{first}, nor at {self._address}"
            raise failed from None
        self.notes.append(
            f"There is no model at {first}, but at {self._address}: add /v1 to the base URL."
        )
        log.warning(self.notes[-1])
        return answer

    def _is_astray(self, error: Exception) -> bool:
        failed = self.failure_of(error, "")
        kinds = (LLMFailure.WRONG_ADDRESS, LLMFailure.WEB_PAGE)
        return failed is not None and failed.failure in kinds

    async def _sent(self, model: str, request: ModelRequest) -> Any:
        """Send the request; without what the server says that it does not know (LLM-27)."""
        before = self._unknown.copy(), self._wishes.copy()
        while True:
            body = self._body(model, request)
            try:
                return await self._client.chat.completions.create(**body)
            except self._sdk.APIStatusError as error:
                sent = [name for name in _OPTIONAL if name not in self._unknown]
                unknown = next((name for name in sent if name in str(error.message)), "")
                is_sent = unknown and f'"{unknown}"' in dumps(body).decode()
                is_request = error.status_code in (400, 422)
                if is_request and is_sent:
                    self._unknown.add(unknown)
                elif not is_request or not self._learns(str(error.message), request):
                    self._unknown, self._wishes = before  # LLM-117
                    raise

    def _learns(self, words: str, request: ModelRequest) -> bool:
        """Note what the server wants otherwise; return whether it is new (LLM-116)."""
        for wish, pattern in _WISHES.items():
            concerns = request.system if wish == _NO_SYSTEM else not request.tools
            if concerns and wish not in self._wishes and pattern.search(words):
                self._wishes.add(wish)
                return True
        return False

    def _body(self, model: str, request: ModelRequest) -> dict[str, Any]:
        # As they are: the package looks at each part of a typed argument against its annotations,
        # which takes 0.5 ms for every message of the history, in every request.
        plain: dict[str, Any] = {"messages": self._messages(model, request)}
        body: dict[str, Any] = {
            "model": model,
            "messages": (),
            "stream": True,
            "extra_body": plain,
        }
        if _USAGE not in self._unknown:
            body[_USAGE] = {"include_usage": True}
        if request.tools:
            plain["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.outside_name,
                        "description": tool.description,
                        "parameters": dict(tool.parameters),
                    },
                }
                for tool in request.tools
            ]
        elif _DEFINITIONS in self._wishes and (names := _called(plain["messages"])):
            functions = [{"name": name, "parameters": _NO_PARAMETERS} for name in names]
            plain["tools"] = [{"type": "function", "function": each} for each in functions]
            plain["tool_choice"] = "none"
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.max_tokens is not None:
            is_vendor = self._config.base_url is None
            body["max_completion_tokens" if is_vendor else "max_tokens"] = request.max_tokens
        return body

    def _messages(self, model: str, request: ModelRequest) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        turns = build_turns(request, self.name, self.picture_types_for(request))
        if request.system and _NO_SYSTEM in self._wishes:
            turns[0].texts.insert(0, request.system)
        elif request.system:
            messages.append({"role": "system", "content": request.system})
        for turn in turns:
            messages += _user_messages(turn) if turn.is_user else [self._answer(turn, model)]
        return messages

    def _answer(self, turn: WireTurn, model: str) -> dict[str, Any]:
        """Return an answer, with what the same model wants back (LLM-98)."""
        message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
        calls = []
        for call in turn.calls:
            given = call.given_back or {}
            wanted = given if given.get("model") == model else {}
            function = {"name": call.name, "arguments": json.dumps(call.arguments)}
            own = {"id": call.call_id, "type": "function", "function": function}
            calls.append({**self._known(wanted.get(CALL)), **own})
            message.update(self._known(wanted.get(MESSAGE)))
        if isinstance(message["content"], list) and turn.text:  # after Mistral's thoughts
            message["content"] = [*message["content"], {"type": "text", "text": turn.text}]
        return {**message, "tool_calls": calls} if calls else message

    def _known(self, members: Mapping[str, Any] | None) -> dict[str, Any]:
        return {k: v for k, v in (members or {}).items() if k not in self._unknown}


def _called(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the calls in messages."""
    calls = (call for message in messages for call in message.get("tool_calls", ()))
    return sorted({call["function"]["name"] for call in calls})


def _user_messages(turn: WireTurn) -> list[dict[str, Any]]:
    """Return results as messages of their own; their pictures follow as a user's."""
    if not turn.results:
        return [_user_message(turn.text, turn.pictures)]
    messages: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": result.call_id, "content": result.content}
        for result in turn.results
    ]
    pictures = [each for result in turn.results for each in result.pictures]
    if pictures:
        messages.append({"role": "assistant", "content": "(I look at the pictures.)"})
        messages.append(_user_message("The pictures of the results:", pictures))
    return messages


def _user_message(text: str, pictures: Sequence[Picture]) -> dict[str, Any]:
    if not pictures:
        return {"role": "user", "content": text}
    content = [{"type": "text", "text": text or "A picture:"}, *map(_picture, pictures)]
    return {"role": "user", "content": content}


def _picture(picture: Picture) -> dict[str, Any]:
    url = f"data:{picture.mime_type};base64,{picture.data}"
    return {"type": "image_url", "image_url": {"url": url}}
