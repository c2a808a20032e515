"""One turn: the model answers, its calls run, until it is done (TURN-01 to TURN-09).

The older part of a history is summarised where that is wanted (TURN-56, TURN-58).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from attrs import define, field

from ..chat import THOUGHT, ChatMessage, Role, TokenUsage, shown_words
from ..events import TurnState
from ..llm.failures import FAILURES
from ..llm.service import GenerationOptions, LLMServiceError
from ..texts import INTERNAL_ERROR, NO_ANSWER, UNREADABLE_CALL, tool_error, turn_timeout
from .answers import ModelAnswer, ModelAnswers
from .calls import TurnCalls
from .observation import TurnObservation, log
from .pruning import CUT, NOTICE, SUMMARY, cut_text, prune, tokens_of_all
from .scope import EventBuffer, TurnClock, TurnScope, TurnServices

_SETTLE_SECONDS = 5.0
"""For what is left to be stored at the end of a turn."""


@define(eq=False)
class ConversationTurn:
    """A turn of one session; `run` is a task of its own, whose events another task reads.

    Args:
        message: of the user.
    """

    _services: TurnServices
    session_id: str
    turn_id: str
    _message: ChatMessage
    events: EventBuffer = field(init=False)
    calls: TurnCalls = field(init=False)
    _scope: TurnScope = field(init=False)
    _answers: ModelAnswers = field(init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _is_ending: bool = field(default=False, init=False)
    # What a cancellation means: a person has stopped the turn, or its reader has gone.
    _cancelled: TurnState = field(default="interrupted", init=False)

    def __attrs_post_init__(self) -> None:
        services = self._services
        self.events = EventBuffer(self.turn_id)
        self._scope = TurnScope(
            services,
            self.session_id,
            self.turn_id,
            self.events,
            TurnClock(services.settings.turn_timeout_ms / 1000),
            TurnObservation(self.session_id, self.turn_id, services.metrics),
            services.readers.of(self.session_id),
            self._message.metadata.get("model", ""),
        )
        self.calls = TurnCalls(self._scope)
        self._answers = ModelAnswers(self._scope)

    def start(self) -> None:
        """Start the turn."""
        self._task = asyncio.create_task(self._run())

    def stop(self) -> bool:
        """End the turn at once; return whether it was running (TURN-07)."""
        if self._is_ending:
            return False
        self._cancelled = "stopped"
        return self._cancel()

    def _cancel(self) -> bool:
        if self._is_ending or self._task is None:
            return False
        self._is_ending = True
        return self._task.cancel()

    async def close(self) -> None:
        """End the turn, also if it is cancelled meanwhile; return when nothing of it is left."""
        assert self._task is not None
        self.events.close()
        self._cancel()
        was_cancelled = False
        while not self._task.done():
            try:
                done, _ = await asyncio.wait([self._task], timeout=_SETTLE_SECONDS)
                if not done:
                    self._task.cancel()
            except asyncio.CancelledError:
                was_cancelled = True
        if was_cancelled:
            raise asyncio.CancelledError

    # -- the task

    async def _run(self) -> None:
        loop, llm = asyncio.get_running_loop(), self._services.llm
        began, before = loop.time(), llm.get_token_usage(self.session_id)
        state: TurnState = "finished"
        failure: dict[str, Any] = {}
        try:
            await self._begin()
            async with self._scope.clock:
                await self._converse()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()  # else nothing could be stored
            state = self._cancelled
        except TimeoutError:
            state, failure = "failed", self._timed_out()
        except LLMServiceError as error:
            state = "interrupted" if self._answers.was_shown else "failed"
            failure = {"code": "LLM_ERROR", "message": error.for_people}
            if not FAILURES[error.failure].may_retry:
                failure["retry"] = False
        except Exception:
            log.exception("a turn failed")
            state, failure = "failed", {"code": "INTERNAL", "message": INTERNAL_ERROR}
        self._is_ending = True
        await self._settle(state)
        usage = _usage_since(before, llm.get_token_usage(self.session_id))
        self._scope.observation.ended(state, loop.time() - began, usage, **failure)
        told = {} if usage is None else {"usage": usage.to_json()}
        self.events.push("turn", {"state": state, **told, **failure})
        self.events.close()

    async def _begin(self) -> None:
        scope = self._scope
        message, text = self._message, self._message.content or ""
        scope.observation.began(text)
        scope.ids.add(message.id)
        await scope.store(scope.stamped(message))
        shown = shown_words(text, message.metadata)
        await scope.emit("user", {"messageId": message.id, **shown})
        await scope.emit("turn", {"state": "started"})

    async def _converse(self) -> None:
        """Ask the model until an answer has no calls (TURN-02)."""
        await self._services.coordinator.initialize()  # TURN-39
        await summarise(self._scope)
        rounds = 0
        refused = was_told = False
        while True:
            had_tools = not self.calls.are_over
            answer = await self._answers.next(with_tools=had_tools)
            if answer.calls:
                rounds += 1
                self._scope.observation.round_began(rounds, len(answer.calls))
                is_last = rounds >= self._services.settings.max_rounds
                await self.calls.run(answer.calls, is_last=is_last)
            may_repeat = bool(answer.problems) and not (was_told and not answer.calls)
            was_told = bool(answer.problems)
            if may_repeat or answer.dropped:
                await self._tell(answer)
            if refused or not (may_repeat or answer.calls):
                break
            refused = not had_tools  # it called nevertheless: once more, and no more
        await self._say_what_is_missing(answer)

    async def _tell(self, answer: ModelAnswer) -> None:
        """Tell the model what was wrong with its calls (TURN-05, TURN-17)."""
        told = [*answer.problems]
        if answer.dropped:
            most = self._services.settings.max_calls
            told.append(f"At most {most} calls of one answer run: {answer.dropped} were left out.")
        scope = self._scope
        message = ChatMessage(id=scope.own_id(None), role=Role.SYSTEM, content="\n".join(told))
        await scope.store(scope.stamped(message))

    async def _say_what_is_missing(self, answer: ModelAnswer) -> None:
        """Say something if the model says nothing at the end (TURN-32)."""
        if answer.has_text:
            return
        failed = self.calls.last_error
        if failed is not None:
            await self._scope.say(tool_error(*failed))
        elif answer.problems:
            await self._scope.say(UNREADABLE_CALL)
        else:
            await self._scope.say(NO_ANSWER)

    async def _settle(self, state: TurnState) -> None:
        """Store what is left: the outcomes of calls."""
        try:
            async with asyncio.timeout(_SETTLE_SECONDS):
                await self.calls.settle(state)
        except (Exception, asyncio.CancelledError):
            log.exception("a turn could not be stored to its end")

    def _timed_out(self) -> dict[str, Any]:
        seconds = self._services.settings.turn_timeout_ms / 1000
        if not self._scope.clock.is_over:
            log.exception("a turn failed")
            return {"code": "INTERNAL", "message": INTERNAL_ERROR}
        return {"code": "TURN_TIMEOUT", "message": turn_timeout(seconds)}


def _usage_since(before: TokenUsage | None, after: TokenUsage | None) -> TokenUsage | None:
    """Return the usage of one turn."""
    if after is None or before is None:
        return after
    return TokenUsage(
        after.prompt_tokens - before.prompt_tokens,
        after.completion_tokens - before.completion_tokens,
        after.is_estimated,
    )


_INSTRUCTION = (
    "Summarise this conversation for yourself, so that you can go on without it. Keep what the user"
    " wants, names, numbers, decisions, results of tools and what is still open. Say nothing else."
)
_INTRODUCTION = "Summary of the conversation before this point:\n"
_MAX_TOKENS = 1000


def unsummarised(history: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the newest summary, and what it does not summarise, without notices. Pure."""
    summaries = [message for message in history if SUMMARY in message.metadata]
    at = 0
    if summaries:
        last = summaries[-1].metadata[SUMMARY]
        at = next((at + 1 for at, each in enumerate(history) if each.id == last), 0)
    kept = [each for each in history[at:] if not {SUMMARY, NOTICE, THOUGHT} & each.metadata.keys()]
    return [*summaries[-1:], *kept]


def older_part(history: Sequence[ChatMessage], retained: int) -> Sequence[ChatMessage]:
    """Return the messages before the newest ones; whole turns, so that no call is parted. Pure."""
    for at in range(len(history) - retained, 0, -1):
        if history[at].role is Role.USER:
            return history[:at]
    return ()


async def summarise(scope: TurnScope) -> None:
    """Have the model summarise the older part of the history, if it has become too long."""
    services, options = scope.services, scope.services.settings.history
    if options.summarization_threshold is None:
        return
    count = services.llm.estimate_token_count
    history = unsummarised(services.histories.get_history(scope.session_id))
    if tokens_of_all(history, count) <= options.summarization_threshold:
        return
    older = older_part(history, options.retain_newest_messages)
    if all(SUMMARY in message.metadata for message in older):
        return
    try:
        text = await _summary(scope, older)
    except LLMServiceError as error:
        scope.observation.model_failed(error, 1, None)
        return
    if not text:
        return
    content = _INTRODUCTION + cut_text(text, _MAX_TOKENS, count, CUT)
    message = ChatMessage(id=scope.own_id(None), role=Role.SYSTEM, content=content)
    await scope.store(scope.stamped(message, **{SUMMARY: older[-1].id}))
    scope.observation.write(logging.INFO, "history_summarised", messages=len(older))


async def _summary(scope: TurnScope, older: Sequence[ChatMessage]) -> str:
    services = scope.services
    request = ChatMessage(id=scope.own_id(None), role=Role.USER, content=_INSTRUCTION)
    most = services.settings.history.max_token_count
    read = prune([*older, request], most - most // 4, services.llm.estimate_token_count)
    options = GenerationOptions(
        session_id=scope.session_id, request_id=services.new_id(), max_tokens=_MAX_TOKENS
    )
    text = ""
    async with aclosing(services.llm.generate_chat_message(read, (), {}, options)) as answer:
        async for message in answer:
            if message.is_said:
                text += message.content or ""
                if len(text) > 64 * _MAX_TOKENS:
                    break
    return text
