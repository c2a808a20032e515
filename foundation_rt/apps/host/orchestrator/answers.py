"""Answers of the model: asked for with what fits, streamed, tried again (TURN-10 to TURN-17).

A text that streams is shown at once, and stored within a second (TURN-11).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

from attrs import define, evolve, field

from ....base.backoff import exponential_delay
from ....base.exact_json import dumps
from ...coordinator import Coordinator
from ..chat import THOUGHT, ChatMessage, Role
from ..llm.failures import FAILURES
from ..llm.service import GenerationOptions, LLMServiceError, ModelTool
from ..llm.system_prompt import compile_system_prompt
from ..tool_apps import tools_for_model
from .pruning import Count, tokens_of_all
from .scope import TurnScope, TurnServices

_LONGEST_DELAY = 60.0
"""Seconds; a provider that asks for more is not waited for."""


@define(eq=False)
class ModelAnswer:
    """The content of one answer of the model.

    Attributes:
        has_text: whether people have seen text of it.
        calls: that it asks for, at most as many as may run.
        dropped: calls beyond.
        problems: with calls that could not be read, in words for the model.
    """

    has_text: bool = False
    calls: list[ChatMessage] = field(factory=list)
    dropped: int = 0
    problems: list[str] = field(factory=list)


def model_tools(services: TurnServices, session_id: str) -> list[ModelTool]:
    """Return the tools that a model is told of in the next request of a chat (TURN-85, TURN-91)."""
    listed = [ModelTool.of(entry) for entry in tools_for_model(services.coordinator)]
    history = services.histories.get_history(session_id)
    chosen = services.choice.choose(listed, services.most_tools, history)
    return [*chosen, *services.skills.tools()]


def guidance(coordinator: Coordinator) -> dict[str, str]:
    """Return the guidance of the servers that have tools, in their own words alone (LLM-50)."""
    servers = dict.fromkeys(entry.server_id for entry in tools_for_model(coordinator))
    prompts = {server: coordinator.guidance(server) for server in servers}
    return {server: text for server, text in prompts.items() if text}


@define(eq=False)
class ModelAnswers:
    """Asks the model, for one turn."""

    _scope: TurnScope
    was_shown: bool = field(default=False, init=False)
    """Tell whether text of the current answer was shown."""

    async def next(self, *, with_tools: bool) -> ModelAnswer:
        """Return the next answer; its text has been shown and stored.

        Raises:
            LLMServiceError: there is none, or it broke off.
        """
        services = self._scope.services
        tools = model_tools(services, self._scope.session_id) if with_tools else []
        prompts = guidance(services.coordinator) if with_tools else {}
        history = self._history(tools, prompts)
        attempt = 1
        while True:
            answer = ModelAnswer()
            self.was_shown = False
            try:
                await self._stream(history, tools, prompts, answer)
                return answer
            except LLMServiceError as error:
                delay = self._delay(error, attempt)
                self._scope.observation.model_failed(error, attempt, delay)
                if delay is None:
                    raise
                message = f"{error} It is tried again in {math.ceil(delay)} s."
            await self._scope.emit("turn", {"state": "started", "message": message})
            await asyncio.sleep(delay)
            await self._scope.emit("turn", {"state": "started"})
            attempt += 1

    def _delay(self, error: LLMServiceError, attempt: int) -> float | None:
        """Return the seconds to wait for another try; None if there is none (TURN-15)."""
        settings = self._scope.services.settings
        is_transient = FAILURES[error.failure].is_tried_again
        is_wanted = is_transient and attempt <= settings.retry_attempts
        if not is_wanted or self.was_shown or (error.retry_after or 0.0) > _LONGEST_DELAY:
            return None
        delay = exponential_delay(attempt, settings.retry_delay_ms / 1000, _LONGEST_DELAY)
        return max(delay * (0.5 + self._scope.services.draw() / 2), error.retry_after or 0.0)

    def _history(self, tools: Sequence[ModelTool], prompts: Mapping[str, str]) -> list[ChatMessage]:
        """Return what the model reads of the history."""
        services = self._scope.services
        count = services.llm.estimate_token_count
        fixed = fixed_tokens(services.settings.system_prompt, tools, prompts, count)
        most = services.settings.history.max_token_count
        budget = max(most - fixed, most // 4)
        if budget > most - fixed:
            self._scope.observation.tools_leave_little(fixed, most)
        reader = self._scope.reader
        reader.read(services.histories.get_history(self._scope.session_id))
        pruned, tokens = reader.prune(budget, count), reader.tokens(count)
        if tokens > budget:
            kept = tokens_of_all(pruned, count)
            self._scope.observation.history_pruned(tokens, kept, budget)
        self._scope.observation.model_asked(len(pruned), len(tools), fixed)
        return pruned

    async def _stream(
        self,
        history: Sequence[ChatMessage],
        tools: Sequence[ModelTool],
        prompts: Mapping[str, str],
        answer: ModelAnswer,
    ) -> None:
        scope, loop = self._scope, asyncio.get_running_loop()
        options = GenerationOptions(
            session_id=scope.session_id, request_id=scope.services.new_id(), model=scope.model
        )
        asked, text, shown_id = loop.time(), None, ""
        generator = scope.services.llm.generate_chat_message(history, tools, prompts, options)
        try:
            async with aclosing(generator):
                async for message in generator:
                    if asked:
                        scope.observation.first_token(loop.time() - asked)
                        asked = 0.0
                    if message.role is Role.ASSISTANT and not message.is_call:
                        if text is None or message.id != shown_id:
                            if text is not None:
                                await text.finish()
                            text, shown_id = self._text(message), message.id
                        await text.add(message.content or "", message.metadata)
                        if message.is_said:
                            self.was_shown = answer.has_text = text.length > 0
                        if text.length > MAX_ANSWER_CHARACTERS:
                            break
                    else:
                        self._note(message, answer)
        finally:
            if text is not None:
                await text.finish()

    def _text(self, first: ChatMessage) -> StreamedText:
        own_id = self._scope.own_id(first.id)
        message = ChatMessage(id=own_id, role=Role.ASSISTANT, metadata=first.metadata)
        return StreamedText(self._scope, message)

    def _note(self, message: ChatMessage, answer: ModelAnswer) -> None:
        """Note a call, or a problem with one."""
        if not message.is_call:
            problem = message.content or "the call could not be read"
            answer.problems.append(problem)
            self._scope.observation.malformed_call(problem)
        elif len(answer.calls) < self._scope.services.settings.max_calls:
            answer.calls.append(message)
        else:
            answer.dropped += 1


def fixed_tokens(
    base_prompt: str, tools: Sequence[ModelTool], prompts: Mapping[str, str], count: Count
) -> int:
    """Estimate the tokens of the system prompt and the tools."""
    told = [[tool.outside_name, tool.description, tool.parameters] for tool in tools]
    written = dumps(told).decode()
    return count(compile_system_prompt(base_prompt, tools, prompts)) + count(written)


MAX_ANSWER_CHARACTERS = 1_000_000
"""The longest text of one answer; a model that does not stop is read no further."""

_STORE_AFTER = 0.5
"""Seconds after which text is stored that was shown; half of what is promised."""


@define(eq=False)
class StreamedText:
    """One text, piece by piece. It has to be finished.

    Args:
        first: the message it becomes, without content.
    """

    _scope: TurnScope
    _first: ChatMessage
    _pieces: list[str] = field(factory=list, init=False)
    _metadata: dict[str, Any] = field(factory=dict, init=False)
    _lock: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _grown: asyncio.Event = field(factory=asyncio.Event, init=False)
    _keeper: asyncio.Task[None] = field(init=False)
    length: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._keeper = asyncio.create_task(self._keep())

    async def add(self, piece: str, metadata: Mapping[str, Any]) -> None:
        """Show a piece, which the store does not hold up."""
        is_new = not self._pieces
        self._metadata.update(metadata)
        if piece:
            self._pieces.append(piece)
            self.length += len(piece)
            if self._is_thought and is_new:  # whatever happens, it is never taken for a text
                async with self._lock:
                    await self._store()
            self._grown.set()
            await self._scope.emit("text", self._payload(piece, is_done=False))

    async def finish(self) -> None:
        """Store the whole text, and say that it ends."""
        async with self._lock:  # so that no write is cancelled half-way
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            if self._pieces or self._metadata:
                await self._store()
        if self._pieces:
            self._scope.events.push("text", self._payload("", is_done=True))

    @property
    def _is_thought(self) -> bool:
        return bool(self._first.metadata.get(THOUGHT))

    def _payload(self, content: str, *, is_done: bool) -> dict[str, Any]:
        payload = {"content": content, "messageId": self._first.id, "done": is_done}
        return {**payload, THOUGHT: True} if self._is_thought else payload

    async def _keep(self) -> None:
        while True:
            await self._grown.wait()
            await asyncio.sleep(_STORE_AFTER)
            self._grown.clear()
            async with self._lock:
                await self._store()

    async def _store(self) -> None:
        message = evolve(self._first, content="".join(self._pieces))
        await self._scope.store(self._scope.stamped(message, **self._metadata))
