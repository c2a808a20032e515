"""What of a history a model reads (TURN-50 to TURN-57). Pure.

A history is cut between segments. A segment is a message of the user or of the system, or an answer
of the model: its text, its calls, and their outcomes. So a call is never parted from its result.
What is kept is the newest, as far as it fits. If the newest alone does not, its results are cut,
and then its texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from attrs import define, evolve, field

from ..chat import ChatMessage, Role, ToolPhase
from .cutting import Count, cut_text

UNKNOWN_OUTCOME = "It is unknown whether this call ran: it was interrupted. Do not assume either."
"""What a model reads of a call without outcome (TURN-53)."""

NOTICE = "notice"
"""In `metadata`: the host says this in its own words; no model reads it (TURN-54)."""

SUMMARY = "summary"
"""In `metadata`: the id of the last message that this one summarises."""

CUT = "\n[cut here: the rest is left out]\n"

PICTURE_TOKENS = 1000
"""The tokens that a picture counts as."""

_FRAME_TOKENS = 8
"""What a message costs besides its content."""


@define(eq=False)
class Segment:
    """Messages that stay together."""

    messages: list[ChatMessage] = field(factory=list)
    outcomes: dict[str, ChatMessage] = field(factory=dict)

    def in_order(self) -> list[ChatMessage]:
        """Return its messages; the outcomes follow all calls, in their order (TURN-52)."""
        calls = [message for message in self.messages if message.is_call]
        outcomes = [self.outcomes.get(str(call.call_id)) or unknown_outcome(call) for call in calls]
        return [*self.messages, *outcomes]


def unknown_outcome(call: ChatMessage) -> ChatMessage:
    """Return the outcome of a call that has none."""
    return ChatMessage(
        id=f"{call.id}-outcome",
        role=Role.TOOL,
        content=UNKNOWN_OUTCOME,
        data={"error": {"code": "UNKNOWN", "message": UNKNOWN_OUTCOME}},
        created_at=call.created_at,
        tool_name=call.tool_name,
        call_id=call.call_id,
        kind=ToolPhase.COMPLETE,
        metadata={"isError": True},
    )


def without_summarised(history: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """Return the history with its newest summary in place of what that summarises (TURN-56)."""
    for at in range(len(history) - 1, -1, -1):
        last = history[at].metadata.get(SUMMARY)
        if last is not None:
            ends = [each for each in range(at) if history[each].id == last]
            kept = [*history[ends[0] + 1 if ends else 0 : at], *history[at + 1 :]]
            return [history[at], *(each for each in kept if SUMMARY not in each.metadata)]
    return history


def segments_of(history: Sequence[ChatMessage]) -> list[Segment]:
    """Return the segments of a history, without what no model reads."""
    found: list[Segment] = []
    of_call: dict[str, Segment] = {}
    for message in history:
        if message.metadata.get(NOTICE):
            continue
        if message.role is Role.TOOL:
            owner = of_call.get(str(message.call_id))
            if owner is not None:  # else it is the outcome of no call
                owner.outcomes[str(message.call_id)] = message
            continue
        if not _continues(found[-1] if found else None, message):
            found.append(Segment())
        found[-1].messages.append(message)
        if message.is_call:
            of_call[str(message.call_id)] = found[-1]
    return found


def _continues(segment: Segment | None, message: ChatMessage) -> bool:
    """Return whether a message belongs to the answer that a segment is."""
    if segment is None or message.role is not Role.ASSISTANT or segment.outcomes:
        return False
    return segment.messages[-1].role is Role.ASSISTANT


def tokens_of(message: ChatMessage, count: Count) -> int:
    """Estimate the tokens of a message."""
    tokens = _FRAME_TOKENS
    if message.content:
        tokens += count(message.content)
    if message.is_call:
        tokens += count(f"{message.tool_name}{_json(message.data)}")
    return tokens + PICTURE_TOKENS * len(message.metadata.get("pictures", ()))


def tokens_of_all(messages: Sequence[ChatMessage], count: Count) -> int:
    """Estimate the tokens of messages together."""
    return sum(tokens_of(message, count) for message in messages)


def prune(history: Sequence[ChatMessage], budget: int, count: Count) -> list[ChatMessage]:
    """Return what of a history a model reads, at most `budget` tokens of it as far as possible.

    The newest message of the user, what follows it, and a summary come before all else.

    Args:
        history: of a session, from the oldest message to the newest.
        budget: in tokens, as `count` counts them.
        count: estimates the tokens of a text.
    """
    segments = [each.in_order() for each in segments_of(without_summarised(history))]
    summary = [segments.pop(0)] if segments and SUMMARY in segments[0][0].metadata else []
    at = _newest_question(segments)
    pinned = [*summary, *segments[at : at + 1]]
    turn = segments[at + 1 :]
    must = [message for messages in (*pinned, *turn[-1:]) for message in messages]
    left = budget - tokens_of_all(must, count)
    if left < 0:
        return cut_to(must, budget, count)
    newer = _newest_that_fit(turn[:-1], left, count)
    left -= sum(tokens_of_all(messages, count) for messages in newer)
    older: list[list[ChatMessage]] = []
    if len(newer) == len(turn[:-1]):
        older = _newest_that_fit(segments[:at], left, count)
        while older and older[0][0].role is not Role.USER:  # an answer whose question is gone
            older.pop(0)
    kept = [*summary, *older, *segments[at : at + 1], *newer, *turn[-1:]]
    return [message for messages in kept for message in messages]


def _newest_question(segments: Sequence[Sequence[ChatMessage]]) -> int:
    """Return the index of the newest message of the user; -1 without one."""
    for at in range(len(segments) - 1, -1, -1):
        if segments[at][0].role is Role.USER:
            return at
    return -1


def _newest_that_fit(
    segments: Sequence[list[ChatMessage]], budget: int, count: Count
) -> list[list[ChatMessage]]:
    """Return the newest segments that fit together; none before one that does not."""
    kept: list[list[ChatMessage]] = []
    for messages in reversed(segments):
        budget -= tokens_of_all(messages, count)
        if budget < 0:
            break
        kept.append(messages)
    return kept[::-1]


def cut_to(messages: Sequence[ChatMessage], budget: int, count: Count) -> list[ChatMessage]:
    """Return the messages with their longest contents cut, so that they fit (TURN-55).

    Pictures go first. Arguments of a call go last. What then remains has a fixed, small size.
    """
    cut = [_without_pictures(message) for message in messages]
    low, high = 0, max(budget, 0)
    while low < high:
        middle = (low + high + 1) // 2
        if tokens_of_all([_capped(each, middle, count) for each in cut], count) <= budget:
            low = middle
        else:
            high = middle - 1
    return [_capped(each, low, count) for each in cut]


def _without_pictures(message: ChatMessage) -> ChatMessage:
    if not message.metadata.get("pictures"):
        return message
    metadata = {name: value for name, value in message.metadata.items() if name != "pictures"}
    return evolve(message, metadata=metadata)


def _capped(message: ChatMessage, tokens: int, count: Count) -> ChatMessage:
    """Return a message with a content, and arguments, of at most `tokens` each."""
    if message.content:
        message = evolve(message, content=cut_text(message.content, tokens, count, CUT))
    if message.is_call and count(_json(message.data)) > tokens:
        message = evolve(message, data={"arguments": {}})
    return message


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # deeper than orjson writes
        return repr(value)
