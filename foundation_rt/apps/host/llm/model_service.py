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
from itertools import count
from typing import Any
from uuid import uuid4

import orjson
from attrs import define, field

from foundation_rt import UsageError

from ....base.exact_json import check_levels, dumps, loads_bounded, may_hold_nan
from ....base.rich_values import problem_in
from ..chat import THOUGHT, ChatMessage, Role, TokenUsage, text_bytes
from .provider import (
    CallPiece,
    MalformedPiece,
    ModelRequest,
    Piece,
    Provider,
    TextPiece,
    ThoughtPiece,
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
from .text_mode import FenceParser, ThinkParser
from .tokens import SessionUsage, TokenEstimate, request_bytes
from .tool_forms import ToolForms

log = logging.getLogger("foundation_rt.host")

TRUNCATED = "\n\n*(The answer ends here: the limit of tokens is reached.)*"
MAX_CALLS = 64
"""Most calls of one answer that are handed on; more are no longer read."""

MAX_ANSWER_BYTES = 8 * 1024 * 1024
_MAX_NAMED = 20
_OWN_FAILURES = (
    LLMFailure.TOOLS_UNSUPPORTED,
    LLMFailure.TOOL_REFUSED,
    LLMFailure.PICTURE_REFUSED,
)
"""The failures that the service mends itself; to others they are a bad request."""

_OF_PICTURES = (LLMFailure.PICTURE_REFUSED, LLMFailure.BAD_REQUEST, LLMFailure.TOO_LONG)
"""The failures that a request without its pictures may not have."""

_SHOWN = 300
_MAX_SCHEMA = 8_000


@define
class _Answer:
    """An answer that is being streamed."""

    id: str
    model: str
    limit: asyncio.Timeout | None = None
    is_aborted: bool = False
    has_begun: bool = False
    has_text: bool = False
    has_ended: bool = False
    has_pictures: bool = True
    has_thoughts: bool = True
    no_tools: str = ""  # why it is asked in text mode
    forms: ToolForms | None = None  # that are tried; None: those of all
    written: int = 0  # bytes
    reported: UsagePiece | None = None
    calls: list[CallPiece | MalformedPiece] = field(factory=list)
    thinking: ThinkParser = field(factory=ThinkParser)

    def message(self, suffix: str = "", role: Role = Role.ASSISTANT, **more: Any) -> ChatMessage:
        """Return a message of the answer, whose id is that of the answer and a suffix."""
        now = time.time_ns() // 1_000_000
        return ChatMessage(id=f"{self.id}{suffix}", role=role, created_at=now, **more)


@define(eq=False)
class ModelService:
    """The `LLMService` of a provider. It belongs to one event loop."""

    _provider: Provider
    _config: LLMConfig
    _model: str = field(init=False)
    _forms: ToolForms = field(init=False)
    _without_tools: set[str] = field(factory=set, init=False)  # models
    _is_ready: bool = field(default=False, init=False)
    _start: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _running: dict[str, _Answer] = field(factory=dict, init=False)
    _estimate: TokenEstimate = field(factory=TokenEstimate, init=False)
    _usage: SessionUsage = field(factory=SessionUsage, init=False)

    def __attrs_post_init__(self) -> None:
        self._model = self._config.model
        self._forms = ToolForms(self._provider.hosts)

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
            problem = f"{name} does not list its models ({failure.for_people}); {advice}"
            raise UsageError(problem) from None
        if len(models) == 1:
            return models[0]
        if not models:
            raise UsageError(f"{name} lists no model; {advice}")
        shown = ", ".join(sorted(models)[:_MAX_NAMED])
        more = f" and {len(models) - _MAX_NAMED} more" if len(models) > _MAX_NAMED else ""
        raise UsageError(f"{name} lists several models ({shown}{more}); {advice}")

    async def list_models(self) -> Sequence[str]:
        """See `LLMService`."""
        await self._must_be_ready()
        return await self._provider.list_models()

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
    def notes(self) -> Sequence[str]:
        """Notes for people on how the model is asked."""
        return tuple(self._provider.notes)

    @property
    def max_tools(self) -> int | None:
        """The most tools that a request may have; None: any number."""
        return self._provider.max_tools

    def tool_notes(self, tool: ModelTool) -> Sequence[str]:
        """Return what is changed in a tool for the model, for people; () if nothing is."""
        return () if self._writes_calls(self._model) else self._forms.of(tool).notes

    def _writes_calls(self, model: str) -> bool:
        """Tell whether a model writes its calls as text."""
        return self._config.tool_mode == TEXT_MODE or model in self._without_tools

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
        answer = _Answer(uuid4().hex, options.model or self._model)
        self._running[options.request_id] = answer
        try:
            for attempt in count(1):
                request = self._request(
                    history, tool_definitions, server_tool_prompts, options, answer
                )
                try:
                    async with aclosing(self._stream(answer, request, tool_definitions)) as stream:
                        async for message in stream:
                            yield message
                    return
                except LLMServiceError as error:
                    if not self._adapts(error, request, answer, attempt):
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
            "The model cannot be used as it is configured:",
            failure=LLMFailure.UNKNOWN_MODEL,
            model=self.label,
            advice=problem,
        )

    def _adapts(
        self, error: LLMServiceError, request: ModelRequest, answer: _Answer, attempt: int
    ) -> bool:
        """Change what is sent, as the provider's refusal asks for; return whether it helps."""
        failure, is_adapted = error.failure, False
        if failure is LLMFailure.TOOLS_UNSUPPORTED and request.tools:  # LLM-42
            is_adapted, answer.no_tools, answer.forms = True, str(error), None
        elif failure is LLMFailure.TOOL_REFUSED and request.tools:  # LLM-113
            answer.forms = answer.forms or self._forms.copy()
            is_adapted = answer.forms.refused(str(error), request.tools, attempt)
        elif failure in _OF_PICTURES and answer.has_pictures:  # LLM-22
            is_adapted = any(each.metadata.get("pictures") for each in request.history)
            answer.has_pictures = False
        if failure is LLMFailure.BAD_REQUEST and not is_adapted and answer.has_thoughts:  # LLM-123
            own = self._provider.name
            is_adapted = any(own in each.metadata for each in request.history if each.is_call)
            answer.has_thoughts = False
        if failure in _OWN_FAILURES:
            error.failure = LLMFailure.BAD_REQUEST
        return is_adapted and not error.text_shown

    def _share(self, answer: _Answer) -> None:
        """Do for all what has made this answer possible (LLM-117)."""
        if answer.forms is not None:
            self._forms, answer.forms = answer.forms, None
        if answer.no_tools and answer.model not in self._without_tools:
            self._without_tools.add(answer.model)
            fields = {"component": "LLM", "action": "tools_refused", "model": answer.model}
            text = "%s takes no tools: calls are written as text (%s)"
            log.warning(text, answer.model, answer.no_tools, extra={"fields": fields})

    def _request(
        self,
        history: Sequence[ChatMessage],
        tools: Sequence[ModelTool],
        prompts: Mapping[str, str],
        options: GenerationOptions,
        answer: _Answer,
    ) -> ModelRequest:
        is_text_mode = bool(answer.no_tools) or self._writes_calls(answer.model)
        system = compile_system_prompt(
            self._config.system_prompt, tools, prompts, is_text_mode=is_text_mode
        )
        made = answer.forms or self._forms
        forms = {} if is_text_mode else {tool.name: made.of(tool) for tool in tools}
        return ModelRequest(
            system=system,
            history=history,
            tools=[form.sent for form in forms.values() if form.sent is not None],
            is_text_mode=is_text_mode,
            forms=forms,
            has_pictures=answer.has_pictures,
            has_thoughts=answer.has_thoughts,
            session_id=options.session_id,
            temperature=self._config.temperature,
            max_tokens=options.max_tokens or self._config.max_output_tokens,
        )

    async def _stream(
        self, answer: _Answer, request: ModelRequest, tools: Sequence[ModelTool]
    ) -> AsyncGenerator[ChatMessage, None]:
        """Yield the messages of one request, its calls last (LLM-05)."""
        parser = FenceParser() if request.is_text_mode and tools else None
        try:
            async with aclosing(self._provider.stream(answer.model, request)) as pieces:
                while not answer.is_aborted:
                    piece = await self._next(pieces, answer)
                    if piece is None:
                        break
                    answer.has_begun = True
                    self._share(answer)
                    for text in self._take(piece, answer, parser):
                        yield text
            if answer.is_aborted:
                return
            if not answer.has_ended:
                raise self._failure(LLMFailure.TRANSIENT if answer.has_begun else LLMFailure.EMPTY)
            for text in self._show(answer.thinking.end(), answer, parser):
                yield text
            if parser is not None:
                for text in self._enter(parser.end(), answer):
                    yield text
            for number, call in enumerate(answer.calls[:MAX_CALLS]):
                yield self._call_message(call, number, answer, request, tools)
            if (unread := len(answer.calls) - MAX_CALLS) > 0:
                problem = f"Of one answer {MAX_CALLS} calls are read: {unread} were left out."
                yield self._problem_message(problem, MAX_CALLS, answer)
        except LLMServiceError as error:
            error.text_shown = answer.has_text
            if error.failure is not LLMFailure.UNREADABLE_CALL or not tools:
                raise
            problem = f"Your tool call could not be read: {error}. Write it again, as valid JSON."
            yield self._problem_message(problem, 0, answer)  # LLM-08
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
            kind = LLMFailure.STALLED if answer.has_begun else LLMFailure.TIMEOUT
            failure = self._failure(kind, seconds=limit_ms / 1000)
        except Exception as error:
            found = self._provider.failure_of(error, answer.model)
            if found is None:
                raise
            failure = found
        finally:
            answer.limit = None
        raise failure  # outside of the handler: the vendor's error holds the request, with its key

    def _take(self, piece: Piece, answer: _Answer, parser: FenceParser | None) -> list[ChatMessage]:
        """Enter a piece in the answer; return the text to show."""
        shown = []
        if isinstance(piece, TextPiece | ThoughtPiece):
            answer.written += text_bytes(piece.text)
            if answer.written > MAX_ANSWER_BYTES:
                text = f"The answer is longer than {MAX_ANSWER_BYTES} bytes."
                raise LLMServiceError(text, failure=LLMFailure.REFUSED, model=self._model)
            is_text = isinstance(piece, TextPiece)
            pieces = answer.thinking.feed(piece.text) if is_text else [piece]
            shown = self._show(pieces, answer, parser)
        elif isinstance(piece, CallPiece | MalformedPiece):
            answer.written += text_bytes(str(getattr(piece, "arguments", "")))
            shown = self._enter([piece], answer)
        elif isinstance(piece, UsagePiece):
            answer.reported = piece
        else:
            answer.has_ended = True
            if piece.refusal:
                raise self._failure(LLMFailure.REFUSED, said=piece.refusal)
            if piece.is_truncated:
                shown.append(self._text_message(TRUNCATED, answer))
        return shown

    def _show(
        self,
        pieces: Sequence[TextPiece | ThoughtPiece],
        answer: _Answer,
        parser: FenceParser | None,
    ) -> list[ChatMessage]:
        """Return the texts and thoughts of pieces; keep the calls that stand in the texts."""
        shown = []
        for piece in pieces:
            is_read = parser is not None and isinstance(piece, TextPiece)
            shown += self._enter(parser.feed(piece.text) if parser and is_read else [piece], answer)
        return shown

    def _enter(self, pieces: Sequence[Piece], answer: _Answer) -> list[ChatMessage]:
        """Keep the calls among the pieces; return the texts and thoughts."""
        answer.calls += [each for each in pieces if isinstance(each, CallPiece | MalformedPiece)]
        shown = [each for each in pieces if isinstance(each, TextPiece | ThoughtPiece)]
        return [self._shown_message(each, answer) for each in shown if each.text]

    def _shown_message(self, piece: TextPiece | ThoughtPiece, answer: _Answer) -> ChatMessage:
        if isinstance(piece, TextPiece):
            return self._text_message(piece.text, answer)
        return answer.message("-thought", content=piece.text, metadata={THOUGHT: True})

    def _text_message(self, text: str, answer: _Answer) -> ChatMessage:
        answer.has_text = True
        return answer.message(content=text)

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
        if isinstance(arguments, MalformedPiece):
            text = _complaint(arguments, tools, request)
            return self._problem_message(text, number, answer)
        assert isinstance(piece, CallPiece)
        name = inside_name_of(piece.name, tools, request)
        if name in request.forms:
            arguments = request.forms[name].inward(arguments)
        metadata: dict[str, Any] = {"answer": answer.id}
        if piece.given_back is not None:
            metadata[self._provider.name] = dict(piece.given_back)
        return answer.message(
            f"-{number + 1}",
            tool_name=name,
            call_id=self._call_id(piece, number, answer, request),
            data={"arguments": arguments},
            metadata=metadata,
        )

    def _problem_message(self, content: str, number: int, answer: _Answer) -> ChatMessage:
        """Return what tells the model that a call cannot be read (LLM-08)."""
        metadata = {"problem": MALFORMED_CALL}
        return answer.message(f"-{number + 1}", Role.SYSTEM, content=content, metadata=metadata)

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

    def _failure(self, kind: LLMFailure, **more: Any) -> LLMServiceError:
        return self._provider.asked(self._model).failure(kind, **more)

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
    given = piece.arguments
    try:
        if not isinstance(given, str):
            check_levels(given)
            if may_hold_nan(given):
                raise TypeError(problem_in(given))
            return given
        text = given.strip()
        arguments = {} if text in ("", "null") else loads_bounded(text)
    except (orjson.JSONDecodeError, TypeError) as error:
        problem = f"that are no JSON: {error}."
    else:
        if isinstance(arguments, dict):
            return arguments
        problem = "that are no object."
    wrote = f" You wrote: {given[:_SHOWN]}" if isinstance(given, str) else ""
    return MalformedPiece(f"Your call of {piece.name} has arguments {problem}{wrote}", piece.name)


def _complaint(piece: MalformedPiece, tools: Sequence[ModelTool], request: ModelRequest) -> str:
    """Return what the model is told of a call that cannot be read, with the tool's schema."""
    name = inside_name_of(piece.name, tools, request)
    form = request.forms.get(name)
    tool = (form and form.sent) or next((each for each in tools if each.name == name), None)
    if tool is None:
        return piece.content
    schema = dumps(tool.parameters).decode()
    if len(schema) > _MAX_SCHEMA:
        schema = f"{schema[:_MAX_SCHEMA]} [cut here by the host]"
    return f"{piece.content}\nThe arguments of {piece.name} have this JSON Schema: {schema}"


def inside_name_of(name: str, tools: Sequence[ModelTool], request: ModelRequest) -> str:
    """Return `server:tool` of a name that a model wrote; the name itself if no tool has it."""
    for own, form in request.forms.items():
        if name == form.name:
            return own
    for tool in tools:
        if name in (tool.outside_name, tool.name):
            return tool.name
    return name
