"""OpenAI, and every server that speaks `/chat/completions` (LLM-25 to LLM-33)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any, ClassVar

from attrs import define, field

from .provider import EndPiece, ModelRequest, Piece, TextPiece, UsagePiece
from .turns import Picture, WireTurn, build_turns, model_schema
from .vendor import NO_KEY, CallBuffer, ReportedError, VendorProvider, words_of


@define(eq=False)
class OpenAIProvider(VendorProvider):
    """The adapter of the package `openai`."""

    name: ClassVar[str] = "openai"
    package: ClassVar[str] = "openai"
    key_variable: ClassVar[str] = "OPENAI_API_KEY"
    picture_types: ClassVar[Sequence[str]] = ("image/png", "image/jpeg", "image/webp", "image/gif")

    _reports_usage: bool = field(default=True, init=False)

    def _make_client(self) -> Any:
        return self._sdk.AsyncOpenAI(
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
        calls: list[CallBuffer] = []
        end: EndPiece | None = None
        async with await self._open(model, request) as chunks:
            async for chunk in chunks:
                if chunk.usage is not None:
                    usage = chunk.usage
                    yield UsagePiece(usage.prompt_tokens or 0, usage.completion_tokens or 0)
                for choice in (chunk.choices or ())[:1]:
                    yield TextPiece(_text(choice.delta))
                    for delta in choice.delta.tool_calls or () if choice.delta else ():
                        _add_call(calls, delta)
                    if choice.finish_reason:
                        end = _end(choice.finish_reason)
        if end is not None:
            for call in calls:
                yield call.piece()
            yield end

    async def _open(self, model: str, request: ModelRequest) -> Any:
        """Send the request; without the question for usage, if the server knows it not."""
        body = self._body(model, request)
        if not self._reports_usage:
            return await self._client.chat.completions.create(**body)
        try:
            options = {"include_usage": True}
            return await self._client.chat.completions.create(**body, stream_options=options)
        except self._sdk.BadRequestError as error:
            if "stream_options" not in str(error.message):
                raise
        self._reports_usage = False
        return await self._client.chat.completions.create(**body)

    def _body(self, model: str, request: ModelRequest) -> dict[str, Any]:
        # As they are: the package looks at each part of a typed argument against its annotations,
        # which takes 0.5 ms for every message of the history, in every request.
        plain: dict[str, Any] = {"messages": self._messages(request)}
        body: dict[str, Any] = {
            "model": model,
            "messages": (),
            "stream": True,
            "extra_body": plain,
        }
        if request.tools:
            plain["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.outside_name,
                        "description": tool.description,
                        "parameters": model_schema(tool.parameters),
                    },
                }
                for tool in request.tools
            ]
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.max_tokens is not None:
            is_vendor = self._config.base_url is None
            body["max_completion_tokens" if is_vendor else "max_tokens"] = request.max_tokens
        return body

    def _messages(self, request: ModelRequest) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        if request.system:
            messages.append({"role": "system", "content": request.system})
        for turn in build_turns(request, self.name, self.accepted_pictures):
            messages += _user_messages(turn) if turn.is_user else [_assistant_message(turn)]
        return messages

    def _reported(self, error: Exception) -> ReportedError | None:
        if isinstance(error, self._sdk.APIStatusError):
            return ReportedError(error.status_code, words_of(error), error.response.headers)
        if isinstance(error, self._sdk.APIConnectionError):
            return ReportedError(0, f"no connection ({type(error.__cause__).__name__})")
        if isinstance(error, self._sdk.OpenAIError):
            return ReportedError(0, str(error))
        return None


def _user_messages(turn: WireTurn) -> list[dict[str, Any]]:
    """Return results as messages of their own; their pictures come with the user's words."""
    messages: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": result.call_id, "content": result.content}
        for result in turn.results
    ]
    pictures = [*turn.pictures, *(each for result in turn.results for each in result.pictures)]
    if not pictures:
        return [*messages, {"role": "user", "content": turn.text}] if turn.texts else messages
    text = turn.text or "The pictures of the results:"
    content = [{"type": "text", "text": text}, *map(_picture, pictures)]
    return [*messages, {"role": "user", "content": content}]


def _picture(picture: Picture) -> dict[str, Any]:
    url = f"data:{picture.mime_type};base64,{picture.data}"
    return {"type": "image_url", "image_url": {"url": url}}


def _assistant_message(turn: WireTurn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in turn.calls
        ]
    return message


def _text(delta: Any) -> str:
    if delta is None:
        return ""
    return delta.content or getattr(delta, "refusal", None) or ""


def _add_call(calls: list[CallBuffer], delta: Any) -> None:
    """Add a part of a call. Some servers number all calls 0, and give each another id."""
    index = delta.index if delta.index is not None else len(calls)
    is_new = index >= len(calls)
    if not is_new and delta.id and calls[index].call_id and delta.id != calls[index].call_id:
        known = [number for number, call in enumerate(calls) if call.call_id == delta.id]
        is_new, index = not known, (known or [index])[0]
    if is_new:
        calls.append(CallBuffer())
        index = len(calls) - 1
    call, function = calls[index], delta.function
    call.call_id = call.call_id or delta.id or ""
    if function is not None:
        call.name = call.name or function.name or ""
        arguments = function.arguments
        call.add(arguments if isinstance(arguments, str) else json.dumps(arguments or {}))


def _end(reason: str) -> EndPiece:
    is_refused = reason == "content_filter"
    return EndPiece(reason == "length", "its filter of content" if is_refused else "")
