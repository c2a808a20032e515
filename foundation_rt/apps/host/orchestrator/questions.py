"""Requests of servers during a call: elicitation of people, sampling of the model (TURN-60)."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any

from attrs import define, field

from .... import Image, JsonRpcErrorCode, Text
from ....client import (
    ClientHandlers,
    ElicitationRequest,
    ElicitationUrlRequest,
    ElicitResult,
    MCPError,
    SampleResult,
    SamplingRequest,
    ServerRequestRefused,
)
from ....protocol.methods import SAMPLING_CREATE_MESSAGE
from ...coordinator import CoordinatorError, ToolExecutionError
from ..chat import ChatMessage, Role
from ..events import Decision
from ..llm.service import GenerationOptions, LLMServiceError
from .answers import MAX_ANSWER_CHARACTERS
from .approvals import OFFERED, REFUSING
from .pruning import cut_text
from .scope import OpenCall, TurnScope

_CHARACTERS = 64
"""More than a token ever has, on average."""

_MAX_PAGES = 5
"""The most pages that a call may want visited before it runs."""

Decide = Callable[[dict[str, Any]], Awaitable[Decision]]


@define(eq=False)
class CallQuestions:
    """Answers what servers ask while they handle the calls of one turn."""

    _scope: TurnScope
    _decide: Decide
    _running: set[asyncio.Task[Any]] = field(factory=set, init=False)
    _open: dict[str, OpenCall] = field(factory=dict, init=False)
    _samplings: int = field(default=0, init=False)

    def handlers_of(self, call: OpenCall) -> ClientHandlers:
        """Return the handlers of a call."""
        return ClientHandlers(
            sampling=partial(self._sample, call),
            elicitation=partial(self._fill_in, call),
            elicitation_url=partial(self._visit, call),
            roots=self._scope.services.settings.roots or None,
        )

    async def close(self) -> None:
        """End all handlers, and tell people that nothing is asked any more."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait([*self._running])
        for question_id in [*self._open]:
            self._ended(question_id, "cancel")

    @contextmanager
    def _handling(self) -> Iterator[None]:
        """Have the current task ended with the turn: it belongs to the connection."""
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            yield
        finally:
            self._running.discard(task)

    # -- people

    async def _fill_in(self, call: OpenCall, form: ElicitationRequest) -> ElicitResult[Any]:
        asked = {"kind": "form", "message": form.message, "schema": dict(form.schema)}
        return await self._ask(call, asked)

    async def _visit(self, call: OpenCall, page: ElicitationUrlRequest) -> ElicitResult[Any]:
        return await self._ask(call, {"kind": "url", "message": page.message, "url": page.url})

    async def visit_all(self, call: OpenCall, pages: Sequence[ElicitationUrlRequest]) -> bool:
        """Show people pages, one after the other; return whether they went to all of them."""
        for page in pages:
            if (await self._visit(call, page)).action != "accept":
                return False
        return True

    async def _ask(self, call: OpenCall, asked: dict[str, Any]) -> ElicitResult[Any]:
        """Show people a question; return their answer, `cancel` if there is none in time."""
        scope = self._scope
        seconds = scope.services.settings.approval_timeout_ms / 1000
        question_id = scope.services.new_id()
        assert call.entry is not None
        about = {"server": call.entry.server_id, "tool": call.name, "callId": call.call_id}
        questions = scope.services.questions
        self._open[question_id] = call
        action, content = "cancel", None
        with (
            self._handling(),
            scope.clock.held(),
            questions.opened(scope.session_id, question_id) as answer,
        ):
            try:
                waiting = call.processing(f"{call.name} asks a question", awaiting="answer")
                await scope.emit("status", waiting)
                await scope.emit("question", {"questionId": question_id, **about, **asked})
                given = await answer.within(seconds)
                action, content = given or ("expired", None)
            finally:
                self._ended(question_id, action)
        said = "cancel" if action == "expired" else action
        return ElicitResult(said, content if said == "accept" else None)  # type: ignore[arg-type]

    def _ended(self, question_id: str, action: str) -> None:
        call = self._open.pop(question_id, None)
        if call is not None:
            self._scope.events.push("question", {"questionId": question_id, "action": action})
            if action != "cancel":
                self._scope.events.push("status", call.processing(f"{call.name} goes on"))

    # -- the model

    async def _sample(self, call: OpenCall, request: SamplingRequest) -> SampleResult | None:
        """Have the model continue a conversation of a server, if people allow it (TURN-62)."""
        self._samplings += 1
        if self._samplings > self._scope.services.settings.max_samplings:
            return None
        with self._handling():
            if not await self._may_sample(call, request):
                return None
            try:
                return await self._sampled(request)
            except LLMServiceError as error:
                self._scope.observation.model_failed(error, 1, None)
                raise ServerRequestRefused(
                    JsonRpcErrorCode.INTERNAL_ERROR,
                    "The language model failed",
                    {"reason": "model_failed"},
                ) from None

    async def _may_sample(self, call: OpenCall, request: SamplingRequest) -> bool:
        scope = self._scope
        approvals = scope.services.approvals
        assert call.entry is not None
        server = call.entry.server_id
        subject = approvals.sampling(server)
        if approvals.approve_all or await approvals.is_allowed(scope.session_id, subject):
            return True
        await scope.emit(
            "status", call.processing(f"{server} asks for the model", awaiting="approval")
        )
        decision = await self._decide(
            {
                "callId": scope.own_id(None),
                "kind": "sampling",
                "tool": f"{server}:{SAMPLING_CREATE_MESSAGE}",
                "server": server,
                "arguments": dict(request.params),
                "annotations": {},
                "description": f"{server} asks the language model during {call.name}.",
                "decisions": OFFERED,
            }
        )
        scope.events.push("status", call.processing(f"{call.name} goes on"))
        await approvals.remember(scope.session_id, server, subject, decision)
        return decision not in REFUSING

    async def _sampled(self, request: SamplingRequest) -> SampleResult:
        """Return what the model says."""
        services = self._scope.services
        most = min(_CHARACTERS * request.max_tokens, MAX_ANSWER_CHARACTERS)
        options = GenerationOptions(
            session_id=self._scope.session_id,
            request_id=services.new_id(),
            max_tokens=request.max_tokens,
        )
        text = ""
        generator = services.llm.generate_chat_message(self._conversation(request), (), {}, options)
        async with aclosing(generator):
            async for message in generator:
                if message.is_said:
                    text += message.content or ""
                    if len(text) > most or _stop(text, request.stop_sequences) is not None:
                        break
        return self._result(text, request)

    def _result(self, text: str, request: SamplingRequest) -> SampleResult:
        """Return a text within what the server allows, and why it ends."""
        services = self._scope.services
        reason, end = "endTurn", _stop(text, request.stop_sequences)
        if end is not None:
            text, reason = text[:end], "stopSequence"
        count = services.llm.estimate_token_count
        cut = cut_text(text, request.max_tokens, count, "")
        if len(cut) < len(text):
            text, reason = cut, "maxTokens"
        return SampleResult("assistant", (Text(text),), services.llm.label, reason)

    def _conversation(self, request: SamplingRequest) -> list[ChatMessage]:
        """Return the conversation of a server as messages for the model."""
        takes_pictures = self._scope.services.llm.takes_pictures
        messages = []
        if request.system_prompt:
            messages.append(self._message(Role.USER, request.system_prompt, ()))
        for message in request.messages:
            texts, pictures = list[str](), list[Mapping[str, str]]()
            for block in message.content:
                if isinstance(block, Text):
                    texts.append(block.text)
                elif isinstance(block, Image) and takes_pictures:
                    data = b64encode(block.data).decode()
                    pictures.append({"mimeType": block.mime_type, "data": data})
                else:
                    texts.append(f"[{type(block).__name__.lower()}: left out]")
            messages.append(self._message(Role(message.role), "\n".join(texts), pictures))
        return messages

    def _message(self, role: Role, text: str, pictures: Sequence[Mapping[str, str]]) -> ChatMessage:
        services = self._scope.services
        metadata = {"pictures": [*pictures]} if pictures else {}
        return ChatMessage(
            id=services.new_id(),
            role=role,
            content=text,
            created_at=services.now_ms(),
            metadata=metadata,
        )


def pages_of(error: CoordinatorError) -> list[ElicitationUrlRequest]:
    """Return the pages that a server wants visited before it takes a call; [] of other errors."""
    cause = error.cause if isinstance(error, ToolExecutionError) else None
    if not isinstance(cause, MCPError) or not isinstance(cause.data, dict):
        return []
    listed = cause.data.get("elicitations")
    is_wanted = cause.original_code == JsonRpcErrorCode.URL_ELICITATION_REQUIRED
    if not is_wanted or not isinstance(listed, list) or len(listed) > _MAX_PAGES:
        return []
    pages = [
        ElicitationUrlRequest(each["message"], each["url"])
        for each in listed
        if isinstance(each, dict) and all(type(each.get(n)) is str for n in ("message", "url"))
    ]
    are_pages = all(page.url.startswith(("https://", "http://")) for page in pages)
    return pages if are_pages and len(pages) == len(listed) else []


def _stop(text: str, sequences: Sequence[str]) -> int | None:
    """Return where the first of the stop sequences begins; None if there is none."""
    found = [at for each in sequences if each and (at := text.find(each)) >= 0]
    return min(found, default=None)
