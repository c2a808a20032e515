"""OpenAI, and every server that speaks `/chat/completions` (LLM-25 to LLM-33)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, ClassVar

from attrs import define, field

from ....base.exact_json import dumps
from .failures import ReportedError, WebPageError
from .openai_answer import CALL, MESSAGE, OpenAIAnswer
from .portability import MAX_TOOLS, OPENAI
from .provider import ModelRequest, Piece
from .service import LLMFailure
from .turns import Picture, WireTurn, build_turns
from .vendor import NO_KEY, VendorProvider, words_of

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


@define(eq=False)
class OpenAIProvider(VendorProvider):
    """The adapter of the package `openai`."""

    name: ClassVar[str] = "openai"
    package: ClassVar[str] = "openai"
    key_variable: ClassVar[str] = "OPENAI_API_KEY"
    picture_types: ClassVar[Sequence[str]] = ("image/png", "image/jpeg", "image/webp", "image/gif")
    hosts: ClassVar[Sequence[str]] = (OPENAI,)
    max_tools: ClassVar[int | None] = MAX_TOOLS

    _wishes: set[str] = field(factory=set, init=False)
    _unknown: set[str] = field(factory=set, init=False)  # of what is optional
    _base_url: str | None = field(init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._base_url = self._config.base_url

    def _make_client(self) -> Any:
        return self._sdk.AsyncOpenAI(
            api_key=self._key or NO_KEY,
            base_url=self._base_url,
            http_client=self._http,
            max_retries=0,
            timeout=self._http.timeout,
        )

    async def list_models(self) -> Sequence[str]:
        """Return the names of the models."""
        return list(await self._asked_at_v1(self._listed))

    async def _listed(self) -> list[str]:
        return [model.id async for model in self._client.models.list()]

    async def _pieces(self, model: str, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        answer = OpenAIAnswer(request.tool_names, model)
        stream = await self._asked_at_v1(partial(self._open, model, request))
        async with aclosing(self._read(stream.response, answer, model)) as pieces:
            async for piece in pieces:
                yield piece

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

    async def _open(self, model: str, request: ModelRequest) -> Any:
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

    def _reported(self, error: Exception) -> ReportedError | None:
        if isinstance(error, self._sdk.APIStatusError):
            return ReportedError(error.status_code, words_of(error), error.response.headers)
        is_said = isinstance(error, self._sdk.OpenAIError)
        if is_said and not isinstance(error, self._sdk.APIConnectionError):
            return ReportedError(0, str(error))
        return None


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
