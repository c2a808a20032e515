"""Anthropic's messages (LLM-25 to LLM-33)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, ClassVar

from attrs import define

from .anthropic_answer import BLOCKS, AnthropicAnswer
from .failures import ReportedError
from .portability import CLAUDE
from .provider import ModelRequest, Piece
from .turns import CallPart, Picture, WireTurn, build_turns
from .vendor import NO_KEY, VendorProvider, words_of

DEFAULT_MAX_TOKENS = 8192
"""Anthropic wants a limit of the answer's tokens."""


@define(eq=False)
class AnthropicProvider(VendorProvider):
    """The adapter of the package `anthropic`."""

    name: ClassVar[str] = "anthropic"
    package: ClassVar[str] = "anthropic"
    key_variable: ClassVar[str] = "ANTHROPIC_API_KEY"
    picture_types: ClassVar[Sequence[str]] = ("image/png", "image/jpeg", "image/webp", "image/gif")
    hosts: ClassVar[Sequence[str]] = (CLAUDE,)

    def _make_client(self) -> Any:
        return self._sdk.AsyncAnthropic(
            api_key=self._key or NO_KEY,
            base_url=self._config.base_url,
            http_client=self._http,
            max_retries=0,
            timeout=self._http.timeout,
        )

    async def list_models(self) -> Sequence[str]:
        """Return the names of the models."""
        return [model.id async for model in self._client.models.list()]

    async def _pieces(self, model: str, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        answer = AnthropicAnswer(request.tool_names, model)
        stream = await self._client.messages.create(**self._body(model, request))
        async with aclosing(self._read(stream.response, answer, model)) as pieces:
            async for piece in pieces:
                yield piece

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

    def _reported(self, error: Exception) -> ReportedError | None:
        if isinstance(error, self._sdk.APIStatusError):
            # An error within the stream has the status 200 of the stream.
            status = error.status_code if error.status_code >= 400 else 0
            return ReportedError(status, words_of(error), error.response.headers)
        is_said = isinstance(error, self._sdk.AnthropicError)
        if is_said and not isinstance(error, self._sdk.APIConnectionError):
            return ReportedError(0, str(error))
        return None


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
    for number, call in enumerate(turn.calls):
        content += thoughts[number] if number else ()
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
