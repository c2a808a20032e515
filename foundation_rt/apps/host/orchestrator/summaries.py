"""Summaries of the older part of a history, where they are wanted (TURN-56, TURN-58)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import aclosing

from ..chat import THOUGHT, ChatMessage, Role
from ..llm.service import GenerationOptions, LLMServiceError
from .cutting import cut_text
from .pruning import CUT, NOTICE, SUMMARY, prune, tokens_of_all
from .scope import TurnScope

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
