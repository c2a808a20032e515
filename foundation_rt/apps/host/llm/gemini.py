"""Google's Gemini (LLM-24 to LLM-33)."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar

from attrs import define

from .failures import ReportedError
from .portability import GEMINI, MAX_TOOLS
from .provider import (
    CallPiece,
    EndPiece,
    MalformedPiece,
    ModelRequest,
    Piece,
    TextPiece,
    ThoughtPiece,
    UsagePiece,
)
from .turns import CallPart, Picture, ResultPart, WireTurn, build_turns
from .vendor import COMPLETE_S, NO_KEY, VendorProvider, to_the_end

SIGNATURE = "thoughtSignature"
_NO_SIGNATURE = b"skip_thought_signature_validator"
"""Stands for the signature that a call of another provider does not have."""

_TRUNCATED = "MAX_TOKENS"
_MALFORMED = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS")
_FINE = ("STOP", "FINISH_REASON_UNSPECIFIED")


@define(eq=False)
class GeminiProvider(VendorProvider):
    """The adapter of the package `google-genai`."""

    name: ClassVar[str] = "gemini"
    package: ClassVar[str] = "google.genai"
    key_variable: ClassVar[str] = "GEMINI_API_KEY"
    picture_types: ClassVar[Sequence[str]] = ("image/png", "image/jpeg", "image/webp", "image/heic")
    hosts: ClassVar[Sequence[str]] = (GEMINI,)
    max_tools: ClassVar[int | None] = MAX_TOOLS

    def _make_client(self) -> Any:
        options = {"httpx_async_client": self._http, "base_url": self._config.base_url}
        return self._sdk.Client(
            api_key=self._key or NO_KEY,
            vertexai=False,
            http_options=self._sdk.types.HttpOptions(**options),
        )

    async def list_models(self) -> Sequence[str]:
        """Return the names of the models."""
        models = await self._client.aio.models.list()
        return [(model.name or "").removeprefix("models/") async for model in models]

    async def _pieces(self, model: str, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        turns = build_turns(request, self.name, self.picture_types_for(request))
        calls: list[Piece] = []
        reason: str | None = None
        chunks = await self._client.aio.models.generate_content_stream(
            model=model,
            contents=[self._content(turn) for turn in turns],
            config=self._settings(request),
        )
        received = to_the_end(chunks, lambda: None if reason is None else COMPLETE_S)
        async with aclosing(received):
            async for chunk in received:
                if chunk.usage_metadata is not None:
                    yield _usage(chunk.usage_metadata)
                blocked = getattr(chunk.prompt_feedback, "block_reason", None)
                reason = blocked.name if blocked is not None else reason
                for candidate in (chunk.candidates or ())[:1]:
                    for part in (candidate.content.parts if candidate.content else None) or ():
                        yield (ThoughtPiece if part.thought else TextPiece)(part.text or "")
                        if part.function_call is not None:
                            calls.append(_call(part))
                    if candidate.finish_reason is not None:
                        reason = candidate.finish_reason.name
        if reason is None:
            return
        for call in calls:
            yield call
        if reason in _MALFORMED:
            yield MalformedPiece(f"Your tool call could not be read ({reason}). Write it again.")
        is_fine = reason in (*_FINE, *_MALFORMED, _TRUNCATED)
        yield EndPiece(reason == _TRUNCATED, "" if is_fine else reason)

    def _settings(self, request: ModelRequest) -> Any:
        types = self._sdk.types
        functions = [
            types.FunctionDeclaration(
                name=tool.outside_name,
                description=tool.description,
                parameters_json_schema=dict(tool.parameters),
            )
            for tool in request.tools
        ]
        return types.GenerateContentConfig(
            system_instruction=request.system or None,
            tools=[types.Tool(function_declarations=functions)] if functions else None,
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
            temperature=request.temperature,
            max_output_tokens=request.max_tokens,
        )

    def _content(self, turn: WireTurn) -> Any:
        types = self._sdk.types
        parts = [self._result(result) for result in turn.results]
        parts += [self._picture(each) for result in turn.results for each in result.pictures]
        if turn.texts:
            parts.append(types.Part(text=turn.text))
        parts += map(self._picture, turn.pictures)
        parts += [self._call(call, number) for number, call in enumerate(turn.calls)]
        return types.Content(role="user" if turn.is_user else "model", parts=parts)

    def _result(self, result: ResultPart) -> Any:
        types = self._sdk.types
        key = "error" if result.is_error else "output"
        response = types.FunctionResponse(
            id=result.call_id, name=result.name, response={key: result.content}
        )
        return types.Part(function_response=response)

    def _call(self, call: CallPart, number: int) -> Any:
        types = self._sdk.types
        function = types.FunctionCall(id=call.call_id, name=call.name, args=dict(call.arguments))
        signature = _signature(call, number)
        return types.Part(function_call=function, thought_signature=signature)

    def _picture(self, picture: Picture) -> Any:
        blob = self._sdk.types.Blob(
            mime_type=picture.mime_type, data=base64.b64decode(picture.data)
        )
        return self._sdk.types.Part(inline_data=blob)

    def _reported(self, error: Exception) -> ReportedError | None:
        if isinstance(error, self._sdk.errors.APIError):
            given = getattr(error.response, "headers", None) or {}
            headers = {**_retry_info(error.details), **{k.lower(): v for k, v in given.items()}}
            status = error.code if isinstance(error.code, int) else 0
            return ReportedError(status, str(error.message or error.status or ""), headers)
        return None


def _call(part: Any) -> CallPiece:
    call = part.function_call
    given_back = {}
    if part.thought_signature:
        given_back[SIGNATURE] = base64.b64encode(part.thought_signature).decode()
    return CallPiece(call.name or "", call.args or {}, call.id or "", given_back)


def _signature(call: CallPart, number: int) -> bytes | None:
    """Return the signature of a call, as it came (LLM-24); the first one of an answer needs one."""
    if call.given_back is None:
        return _NO_SIGNATURE if number == 0 else None
    given = call.given_back.get(SIGNATURE)
    return base64.b64decode(given) if isinstance(given, str) else None


def _retry_info(details: Any) -> Mapping[str, str]:
    """Return the delay in the details of an error, as a header: Google says it there."""
    error = details.get("error") if isinstance(details, Mapping) else None
    for each in (error.get("details") if isinstance(error, Mapping) else None) or ():
        delay = each.get("retryDelay") if isinstance(each, Mapping) else None
        if isinstance(delay, str) and delay.endswith("s"):
            return {"retry-after": delay[:-1]}
    return {}


def _usage(usage: Any) -> UsagePiece:
    answer = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
    return UsagePiece(usage.prompt_token_count or 0, answer)
