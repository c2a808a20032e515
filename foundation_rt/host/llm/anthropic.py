"""Anthropic's messages (LLM-25 to LLM-33)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, ClassVar

from attrs import define

from .provider import EndPiece, ModelRequest, Piece, TextPiece, UsagePiece
from .turns import Picture, WireTurn, build_turns, model_schema
from .vendor import NO_KEY, CallBuffer, ReportedError, VendorProvider, words_of

DEFAULT_MAX_TOKENS = 8192
"""Anthropic wants a limit of the answer's tokens."""


@define(eq=False)
class AnthropicProvider(VendorProvider):
    """The adapter of the package `anthropic`."""

    name: ClassVar[str] = "anthropic"
    package: ClassVar[str] = "anthropic"
    key_variable: ClassVar[str] = "ANTHROPIC_API_KEY"
    picture_types: ClassVar[Sequence[str]] = ("image/png", "image/jpeg", "image/webp", "image/gif")

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
        calls: dict[int, CallBuffer] = {}
        reason = None
        prompt_tokens = 0
        async with await self._client.messages.create(**self._body(model, request)) as events:
            async for event in events:
                if event.type == "message_start":
                    prompt_tokens = _prompt_tokens(event.message.usage)
                    yield TextPiece("")
                elif event.type == "content_block_start":
                    block = event.content_block
                    if block.type == "tool_use":
                        calls[event.index] = CallBuffer(block.name, block.id)
                    yield TextPiece(block.text if block.type == "text" else "")
                elif event.type == "content_block_delta":
                    delta = event.delta
                    if delta.type == "input_json_delta" and event.index in calls:
                        calls[event.index].add(delta.partial_json)
                    yield TextPiece(delta.text if delta.type == "text_delta" else "")
                elif event.type == "message_delta":
                    reason = event.delta.stop_reason or reason
                    yield UsagePiece(prompt_tokens, event.usage.output_tokens or 0)
        if reason is not None:
            for call in calls.values():
                yield call.piece()
            yield EndPiece(reason == "max_tokens", "refusal" if reason == "refusal" else "")

    def _body(self, model: str, request: ModelRequest) -> dict[str, Any]:
        turns = build_turns(request, self.name, self.accepted_pictures)
        # As they are: the package looks at each part of a typed argument against its annotations,
        # which takes 0.5 ms for every message of the history, in every request.
        plain: dict[str, Any] = {"messages": [_message(turn) for turn in turns]}
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
                    "input_schema": model_schema(tool.parameters),
                }
                for tool in request.tools
            ]
        elif names := {call.name for turn in turns for call in turn.calls}:
            # Calls in the history want definitions, also when the tools were taken away.
            plain["tools"] = [
                {"name": name, "input_schema": model_schema({})} for name in sorted(names)
            ]
            body["tool_choice"] = {"type": "none"}
        return body

    def _reported(self, error: Exception) -> ReportedError | None:
        if isinstance(error, self._sdk.APIStatusError):
            # An error within the stream has the status 200 of the stream.
            status = error.status_code if error.status_code >= 400 else 0
            return ReportedError(status, words_of(error), error.response.headers)
        if isinstance(error, self._sdk.APIConnectionError):
            return ReportedError(0, f"no connection ({type(error.__cause__).__name__})")
        if isinstance(error, self._sdk.AnthropicError):
            return ReportedError(0, str(error))
        return None


def _message(turn: WireTurn) -> dict[str, Any]:
    content: list[dict[str, Any]] = [
        {
            "type": "tool_result",
            "tool_use_id": result.call_id,
            "is_error": result.is_error,
            "content": [_text(result.content), *map(_picture, result.pictures)],
        }
        for result in turn.results
    ]
    if turn.texts:
        content.append(_text(turn.text))
    content += map(_picture, turn.pictures)
    content += [
        {
            "type": "tool_use",
            "id": call.call_id,
            "name": call.name,
            "input": dict(call.arguments),
        }
        for call in turn.calls
    ]
    return {"role": "user" if turn.is_user else "assistant", "content": content}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _picture(picture: Picture) -> dict[str, Any]:
    source = {"type": "base64", "media_type": picture.mime_type, "data": picture.data}
    return {"type": "image", "source": source}


def _prompt_tokens(usage: Any) -> int:
    parts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(getattr(usage, part, None) or 0 for part in parts)
