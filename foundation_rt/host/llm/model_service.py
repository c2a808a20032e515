"""A language model that any provider answers for: `LLMService` on a `Provider` (LLM-01 to LLM-08).

Here stands what does not depend on the wire: deadlines, text mode, names and ids, malformed calls,
usage. Calls are handed on when the answer is complete; so an answer that breaks off never leaves a
call behind, and asking again repeats none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import orjson
from attrs import define, field

from foundation_rt import UsageError

from ..chat import ChatMessage, Role, TokenUsage
from ..sizes import text_bytes
from .provider import (
    CallPiece,
    EndPiece,
    MalformedPiece,
    ModelRequest,
    Piece,
    Provider,
    TextPiece,
    UsagePiece,
)
from .service import (
    MALFORMED_CALL,
    TEXT_MODE,
    GenerationOptions,
    LLMConfig,
    LLMFailure,
    LLMServiceError,
    ModelTool,
)
from .system_prompt import compile_system_prompt
from .text_mode import FenceParser
from .tokens import SessionUsage, TokenEstimate, request_bytes

log = logging.getLogger("foundation_rt.host")

TRUNCATED = "\n\n*(The answer ends here: the limit of tokens is reached.)*"
MAX_CALLS = 64
"""Most calls of one answer that are handed on; more are no longer read."""

MAX_ANSWER_BYTES = 8 * 1024 * 1024
_MAX_NAMED = 20


@define
class _Answer:
    """An answer that is being streamed."""

    id: str
    limit: asyncio.Timeout | None = None
    is_aborted: bool = False
    has_begun: bool = False
    has_text: bool = False
    has_ended: bool = False
    written: int = 0  # bytes
    reported: UsagePiece | None = None
    calls: list[CallPiece | MalformedPiece] = field(factory=list)


@define(eq=False)
class ModelService:
    """The `LLMService` of a provider. It belongs to one event loop."""

    _provider: Provider
    _config: LLMConfig
    _model: str = field(init=False)
    _is_text_mode: bool = field(init=False)
    _is_ready: bool = field(default=False, init=False)
    _start: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _running: dict[str, _Answer] = field(factory=dict, init=False)
    _estimate: TokenEstimate = field(factory=TokenEstimate, init=False)
    _usage: SessionUsage = field(factory=SessionUsage, init=False)

    def __attrs_post_init__(self) -> None:
        self._model = self._config.model
        self._is_text_mode = self._config.tool_mode == TEXT_MODE

    # -- life

    async def initialize(self) -> None:
        """Make the client, and find the model if none is named (LLM-03, LLM-04).

        Raises:
            UsageError: the extra is missing, or the model has to be named; says what to do.
        """
        async with self._start:
            if self._is_ready:
                return
            await self._provider.connect()
            if not self._model:
                self._model = await self._find_model()
            self._is_ready = True

    async def _find_model(self) -> str:
        """Return the only model that the provider lists (LLM-04)."""
        name = self._provider.name
        advice = f"name one: --model {name}:NAME, or LLM_MODEL=NAME"
        try:
            async with asyncio.timeout(self._config.first_token_timeout_ms / 1000):
                models = list(await self._provider.list_models())
        except TimeoutError:
            raise UsageError(f"{name} does not list its models in time; {advice}") from None
        except Exception as error:
            failure = self._provider.failure_of(error, "")
            if failure is None:
                raise
            problem = " ".join(filter(None, (str(failure), failure.advice)))
            raise UsageError(f"{name} does not list its models ({problem}); {advice}") from None
        if len(models) == 1:
            return models[0]
        if not models:
            raise UsageError(f"{name} lists no model; {advice}")
        shown = ", ".join(sorted(models)[:_MAX_NAMED])
        more = f" and {len(models) - _MAX_NAMED} more" if len(models) > _MAX_NAMED else ""
        raise UsageError(f"{name} lists several models ({shown}{more}); {advice}")

    def set_api_key(self, api_key: str) -> None:
        """Use another key from the next request on (LLM-09)."""
        self._provider.set_api_key(api_key)

    async def close(self) -> None:
        """End all answers, and close the connections."""
        for request_id in list(self._running):
            self.abort_generation(request_id)
        await self._provider.close()

    @property
    def takes_pictures(self) -> bool:
        """Tell whether the model reads pictures in results."""
        return self._provider.takes_pictures

    @property
    def label(self) -> str:
        """`provider:model`, or the provider alone if it has no models."""
        return f"{self._provider.name}:{self._model}" if self._model else self._provider.name

    # -- answers

    async def generate_chat_message(
        self,
        history: Sequence[ChatMessage],
        tool_definitions: Sequence[ModelTool],
        server_tool_prompts: Mapping[str, str],
        options: GenerationOptions,
    ) -> AsyncGenerator[ChatMessage, None]:
        """Stream one answer, as `LLMService` says it."""
        await self._must_be_ready()
        answer = _Answer(uuid4().hex)
        self._running[options.request_id] = answer
        try:
            while True:
                is_text_mode = self._is_text_mode
                request = self._request(
                    history, tool_definitions, server_tool_prompts, options, is_text_mode
                )
                try:
                    async with aclosing(self._stream(answer, request, tool_definitions)) as stream:
                        async for message in stream:
                            yield message
                    return
                except LLMServiceError as error:
                    if not self._goes_on_in_text(error, request):
                        raise
        finally:
            if self._running.get(options.request_id) is answer:
                del self._running[options.request_id]

    async def _must_be_ready(self) -> None:
        if self._is_ready:
            return
        try:
            await self.initialize()
        except UsageError as error:
            problem = str(error)
        else:
            return
        raise LLMServiceError(
            "the model cannot be used as it is configured",
            failure=LLMFailure.UNKNOWN_MODEL,
            model=self.label,
            advice=problem,
        )

    def _goes_on_in_text(self, error: LLMServiceError, request: ModelRequest) -> bool:
        """Switch to text mode if the provider refuses tools (LLM-42)."""
        if error.failure is not LLMFailure.TOOLS_UNSUPPORTED:
            return False
        if not request.tools:
            error.failure = LLMFailure.BAD_REQUEST
            return False
        self._is_text_mode = True
        log.warning("%s takes no tools: calls are written as text (%s)", self.label, error)
        return True

    def _request(
        self,
        history: Sequence[ChatMessage],
        tools: Sequence[ModelTool],
        prompts: Mapping[str, str],
        options: GenerationOptions,
        is_text_mode: bool,
    ) -> ModelRequest:
        system = compile_system_prompt(
            self._config.system_prompt, tools, prompts, is_text_mode=is_text_mode
        )
        return ModelRequest(
            system=system,
            history=history,
            tools=() if is_text_mode else tools,
            is_text_mode=is_text_mode,
            session_id=options.session_id,
            temperature=self._config.temperature,
            max_tokens=options.max_tokens or self._config.max_output_tokens,
            outside_names={tool.name: tool.outside_name for tool in tools},
        )

    async def _stream(
        self, answer: _Answer, request: ModelRequest, tools: Sequence[ModelTool]
    ) -> AsyncGenerator[ChatMessage, None]:
        """Yield the messages of one request, its calls last (LLM-05)."""
        parser = FenceParser() if request.is_text_mode and tools else None
        try:
            async with aclosing(self._provider.stream(self._model, request)) as pieces:
                while not answer.is_aborted:
                    piece = await self._next(pieces, answer)
                    if piece is None:
                        break
                    answer.has_begun = True
                    for text in self._take(piece, answer, parser):
                        yield text
            if answer.is_aborted:
                return
            if not answer.has_ended:
                raise self._failure("the answer was cut off", LLMFailure.TRANSIENT)
            if parser is not None:
                for text in self._enter(parser.end(), answer):
                    yield text
            for number, call in enumerate(answer.calls[:MAX_CALLS]):
                yield self._call_message(call, number, answer, request, tools)
        except LLMServiceError as error:
            error.text_shown = answer.has_text
            raise
        finally:
            self._count(answer, request)

    async def _next(self, pieces: AsyncGenerator[Piece, None], answer: _Answer) -> Piece | None:
        """Return the next piece in time; None at the end (LLM-06)."""
        config = self._config
        limit_ms = config.token_timeout_ms if answer.has_begun else config.first_token_timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000) as answer.limit:
                return await anext(pieces, None)
        except TimeoutError:
            if answer.is_aborted:
                return None
            failure = self._failure(f"no token within {limit_ms} ms", LLMFailure.TRANSIENT)
        except Exception as error:
            found = self._provider.failure_of(error, self._model)
            if found is None:
                raise
            failure = found
        finally:
            answer.limit = None
        raise failure  # outside of the handler: the vendor's error holds the request, with its key

    def _take(self, piece: Piece, answer: _Answer, parser: FenceParser | None) -> list[ChatMessage]:
        """Enter a piece in the answer; return the text to show."""
        shown = []
        if isinstance(piece, TextPiece):
            answer.written += text_bytes(piece.text)
            if answer.written > MAX_ANSWER_BYTES:
                raise self._failure("the answer is too long", LLMFailure.BAD_REQUEST)
            pieces = parser.feed(piece.text) if parser is not None else [piece]
            shown = self._enter(pieces, answer)
        elif isinstance(piece, CallPiece | MalformedPiece):
            answer.written += text_bytes(str(getattr(piece, "arguments", "")))
            shown = self._enter([piece], answer)
        elif isinstance(piece, UsagePiece):
            answer.reported = piece
        elif isinstance(piece, EndPiece):
            answer.has_ended = True
            if piece.refusal:
                reason = f"the provider ended the answer: {piece.refusal}"
                raise self._failure(reason, LLMFailure.BAD_REQUEST)
            if piece.is_truncated:
                shown.append(self._text_message(TRUNCATED, answer))
        return shown

    def _enter(self, pieces: Sequence[Piece], answer: _Answer) -> list[ChatMessage]:
        """Keep the calls among the pieces; return the texts."""
        answer.calls += [each for each in pieces if isinstance(each, CallPiece | MalformedPiece)]
        texts = (each.text for each in pieces if isinstance(each, TextPiece))
        return [self._text_message(text, answer) for text in texts if text]

    def _text_message(self, text: str, answer: _Answer) -> ChatMessage:
        answer.has_text = True
        return ChatMessage(id=answer.id, role=Role.ASSISTANT, content=text, created_at=_now_ms())

    def _call_message(
        self,
        piece: CallPiece | MalformedPiece,
        number: int,
        answer: _Answer,
        request: ModelRequest,
        tools: Sequence[ModelTool],
    ) -> ChatMessage:
        """Return a call for the orchestrator, under the name inside (LLM-07, LLM-08)."""
        arguments = parse_arguments(piece) if isinstance(piece, CallPiece) else piece
        message_id = f"{answer.id}-{number + 1}"
        if isinstance(arguments, MalformedPiece):
            return ChatMessage(
                id=message_id,
                role=Role.SYSTEM,
                content=arguments.content,
                created_at=_now_ms(),
                metadata={"problem": MALFORMED_CALL},
            )
        assert isinstance(piece, CallPiece)
        metadata: dict[str, Any] = {"answer": answer.id}
        if piece.given_back is not None:
            metadata[self._provider.name] = dict(piece.given_back)
        return ChatMessage(
            id=message_id,
            role=Role.ASSISTANT,
            tool_name=inside_name_of(piece.name, tools),
            call_id=self._call_id(piece, number, answer, request),
            data={"arguments": arguments},
            created_at=_now_ms(),
            metadata=metadata,
        )

    def _call_id(
        self, piece: CallPiece, number: int, answer: _Answer, request: ModelRequest
    ) -> str:
        """Return the provider's id if it is unique in the chat, else one of our own."""
        own = f"call_{answer.id}_{number + 1}"
        others = (each.call_id for each in answer.calls[:number] if isinstance(each, CallPiece))
        known = {message.call_id for message in request.history}
        if not piece.call_id or piece.call_id in known or piece.call_id in others:
            return own
        return piece.call_id

    def abort_generation(self, request_id: str) -> bool:
        """End an answer that is being streamed; return whether there was one."""
        answer = self._running.get(request_id)
        if answer is None or answer.is_aborted:
            return False
        answer.is_aborted = True
        if answer.limit is not None and not answer.limit.expired():
            answer.limit.reschedule(asyncio.get_running_loop().time())
        return True

    def _failure(self, message: str, failure: LLMFailure) -> LLMServiceError:
        return LLMServiceError(message, failure=failure, model=self._model)

    # -- tokens

    def _count(self, answer: _Answer, request: ModelRequest) -> None:
        """Count what the answer used: as reported, else estimated (LLM-62)."""
        sent = request_bytes(request.system, request.history, request.tools)
        reported = answer.reported
        if reported is not None:
            self._estimate.learn(sent, reported.prompt_tokens)
            usage = TokenUsage(reported.prompt_tokens, reported.completion_tokens)
        elif answer.has_begun or answer.is_aborted:
            prompt = self._estimate.of_bytes(sent)
            usage = TokenUsage(prompt, self._estimate.of_bytes(answer.written), is_estimated=True)
        else:
            return
        self._usage.add(request.session_id, usage)

    def estimate_token_count(self, text: str) -> int:
        """Estimate how many tokens a text has (LLM-60)."""
        return self._estimate.of_text(text)

    def get_token_usage(self, session_id: str) -> TokenUsage | None:
        """Return the usage of a session so far; None if there is none."""
        return self._usage.get(session_id)

    def forget_usage(self, session_id: str) -> None:
        """Forget the usage of a session that has ended."""
        self._usage.forget(session_id)


def parse_arguments(piece: CallPiece) -> Mapping[str, Any] | MalformedPiece:
    """Return the arguments of a call as an object; without any, an empty one (LLM-08)."""
    if not isinstance(piece.arguments, str):
        return piece.arguments
    try:
        arguments = orjson.loads(piece.arguments.strip() or "{}")
    except orjson.JSONDecodeError as error:
        return MalformedPiece(f"Your call of {piece.name} has arguments that are no JSON: {error}.")
    if not isinstance(arguments, dict):
        return MalformedPiece(f"Your call of {piece.name} has arguments that are no object.")
    return arguments


def inside_name_of(name: str, tools: Sequence[ModelTool]) -> str:
    """Return `server:tool` of a name that a model wrote; the name itself if no tool has it."""
    for tool in tools:
        if name in (tool.outside_name, tool.name):
            return tool.name
    return name


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
