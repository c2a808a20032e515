"""The part of a history that a model reads (TURN-50 to TURN-57). Pure.

A history is cut between segments. A segment is a message of the user or of the system, or an answer
of the model: its text, its calls, and their outcomes. So a call is never parted from its result.
What is kept is the newest, as far as it fits. If the newest alone does not, its contents are cut.

A history grows at its end. `HistoryReader` keeps the segments that have not changed since it read
them, and their sizes: with 500 messages a request then costs 0.2 ms instead of 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_not
from typing import Any

import orjson
from attrs import define, evolve, field

from ..chat import ChatMessage, Role, ToolPhase
from .cutting import Count, cut_text

UNKNOWN_OUTCOME = "It is unknown whether this call ran: it was interrupted. Do not assume either."
"""The outcome that a model reads of a call without one (TURN-53)."""

NOTICE = "notice"
"""In `metadata`: the host says this in its own words; no model reads it (TURN-54)."""

SUMMARY = "summary"
"""In `metadata`: the id of the last message that this one summarises."""

CUT = "\n[cut here: the rest is left out]\n"

PICTURE_TOKENS = 1000
"""The tokens that a picture counts as."""

_FRAME_TOKENS = 8
"""The tokens of a message besides its content."""

_PROBE = "probe " * 600
"""Tokens are in proportion to bytes, as `LLMService.estimate_token_count` has it."""


@define(eq=False)
class Segment:
    """Messages that stay together.

    Attributes:
        start: the index of its first message in the history.
        messages: its own.
        outcomes: of its calls, by their ids.
    """

    start: int
    messages: list[ChatMessage] = field(factory=list)
    outcomes: dict[str, ChatMessage] = field(factory=dict)
    _ordered: list[ChatMessage] | None = field(default=None, init=False)
    _bytes: int = field(default=0, init=False)
    _fixed: int = field(default=0, init=False)

    def add(self, message: ChatMessage) -> None:
        """Add a message of its own."""
        self.messages.append(message)
        self._ordered = None

    def end(self, outcome: ChatMessage) -> None:
        """Add the outcome of one of its calls."""
        self.outcomes[str(outcome.call_id)] = outcome
        self._ordered = None

    def in_order(self) -> list[ChatMessage]:
        """Return its messages; the outcomes follow all calls, in their order (TURN-52)."""
        if self._ordered is None:
            # A history of hundreds of messages is measured once, and not for each request.
            calls = [message for message in self.messages if message.is_call]
            ended = self.outcomes
            outcomes = [ended.get(str(call.call_id)) or unknown_outcome(call) for call in calls]
            self._ordered = [*self.messages, *outcomes]
            self._measure(self._ordered)
        return self._ordered

    def tokens(self, per_byte: float) -> float:
        """Estimate its tokens; never fewer than `tokens_of_all`."""
        if self._ordered is None:
            self.in_order()
        return self._fixed + self._bytes * per_byte

    def _measure(self, messages: Sequence[ChatMessage]) -> None:
        self._bytes = self._fixed = 0
        for message in messages:
            self._fixed += _frame(message) + 2  # each of two texts is rounded up
            if message.content:
                self._bytes += _size(message.content)
            if message.is_call:
                self._bytes += _size(_call_text(message))


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


@define(eq=False)
class HistoryReader:
    """Reads one history again and again while it grows."""

    _seen: list[ChatMessage] = field(factory=list, init=False)
    _at: dict[str, int] = field(factory=dict, init=False)
    _segments: list[Segment] = field(factory=list, init=False)
    _of_call: dict[str, Segment] = field(factory=dict, init=False)
    _summary: ChatMessage | None = field(default=None, init=False)

    def knows(self, name: str) -> bool:
        """Return whether a message or a call has this id, of those read so far."""
        return name in self._at or name in self._of_call

    def read(self, history: Sequence[ChatMessage]) -> None:
        """Read what is new of a history."""
        differs = [*map(is_not, self._seen, history)]  # for each request: so without a loop here
        same = differs.index(True) if True in differs else len(differs)
        if same < len(self._seen):
            same = self._forget_from(same)
        for at in range(same, len(history)):
            self._enter(at, history[at])

    def segments(self) -> list[Segment]:
        """Return the segments, without what no model reads and what is summarised."""
        if self._summary is None:
            return self._segments
        last = self._at.get(self._summary.metadata[SUMMARY], -1)
        return [segment for segment in self._segments if segment.start > last]

    def prune(self, budget: int, count: Count) -> list[ChatMessage]:
        """Return what a model reads of the history, as `prune` says it."""
        segments, per_byte = self.segments(), count(_PROBE) / len(_PROBE)
        summary = [] if self._summary is None else [self._summary]
        at = _newest_question(segments)
        question, turn = segments[at : at + 1], segments[at + 1 :]
        must = [*question, *turn[-1:]]
        left: float = budget - tokens_of_all(summary, count) - sum(s.tokens(per_byte) for s in must)
        if left < 0:
            return cut_to([*summary, *_messages(must)], budget, count)
        newer = _newest_that_fit(turn[:-1], left, per_byte)
        older: Sequence[Segment] = ()
        if len(newer) == len(turn[:-1]):
            left -= sum(segment.tokens(per_byte) for segment in newer)
            older = _newest_that_fit(segments[: max(at, 0)], left, per_byte)
            while older and older[0].messages[0].role is not Role.USER:
                older = older[1:]  # an answer whose question is gone
        return [*summary, *_messages([*older, *question, *newer, *turn[-1:]])]

    def _forget_from(self, at: int) -> int:
        """Forget the segments that have a message from here on; return where to read again."""
        while self._segments and self._end(self._segments[-1]) >= at:
            at = min(at, self._segments.pop().start)
        for message in self._seen[at:]:
            self._at.pop(message.id, None)
            if message.is_call:
                self._of_call.pop(str(message.call_id), None)
            elif message is self._summary:
                self._summary = None
        del self._seen[at:]
        if self._summary is None:
            known = (each for each in reversed(self._seen) if SUMMARY in each.metadata)
            self._summary = next(known, None)
        return at

    def _end(self, segment: Segment) -> int:
        """Return the index of the last message of a segment."""
        last = [segment.messages[-1], *segment.outcomes.values()]
        return max(self._at[message.id] for message in last)

    def _enter(self, at: int, message: ChatMessage) -> None:
        self._seen.append(message)
        self._at[message.id] = at
        if message.metadata.get(NOTICE):
            return
        if SUMMARY in message.metadata:
            self._summary = message
        elif message.role is Role.TOOL:
            owner = self._of_call.get(str(message.call_id))
            if owner is not None:  # else it is the outcome of no call
                owner.end(message)
        else:
            if not _continues(self._segments[-1] if self._segments else None, message):
                self._segments.append(Segment(at))
            self._segments[-1].add(message)
            if message.is_call:
                self._of_call[str(message.call_id)] = self._segments[-1]


def prune(history: Sequence[ChatMessage], budget: int, count: Count) -> list[ChatMessage]:
    """Return what of a history a model reads, at most `budget` tokens of it as far as possible.

    The newest message of the user, what follows it, and a summary come before all else.

    Args:
        history: of a session, from the oldest message to the newest.
        budget: in tokens, as `count` counts them.
        count: estimates the tokens of a text, in proportion to its bytes.
    """
    reader = HistoryReader()
    reader.read(history)
    return reader.prune(budget, count)


def _continues(segment: Segment | None, message: ChatMessage) -> bool:
    """Return whether a message belongs to the answer that a segment is."""
    if segment is None or message.role is not Role.ASSISTANT or segment.outcomes:
        return False
    return segment.messages[-1].role is Role.ASSISTANT


def _messages(segments: Sequence[Segment]) -> list[ChatMessage]:
    found: list[ChatMessage] = []
    for segment in segments:
        found += segment.in_order()
    return found


def _newest_question(segments: Sequence[Segment]) -> int:
    """Return the index of the newest message of the user; -1 without one."""
    for at in range(len(segments) - 1, -1, -1):
        if segments[at].messages[0].role is Role.USER:
            return at
    return -1


def _newest_that_fit(
    segments: Sequence[Segment], budget: float, per_byte: float
) -> Sequence[Segment]:
    """Return the newest segments that fit together; none before one that does not."""
    for at in range(len(segments) - 1, -1, -1):
        budget -= segments[at].tokens(per_byte)
        if budget < 0:
            return segments[at + 1 :]
    return segments


# -- sizes


def tokens_of_all(messages: Sequence[ChatMessage], count: Count) -> int:
    """Estimate the tokens of messages together."""
    return sum(tokens_of(message, count) for message in messages)


def tokens_of(message: ChatMessage, count: Count) -> int:
    """Estimate the tokens of a message."""
    tokens = _frame(message)
    if message.content:
        tokens += count(message.content)
    if message.is_call:
        tokens += count(_call_text(message))
    return tokens


def _frame(message: ChatMessage) -> int:
    """Return the tokens of a message besides its texts."""
    return _FRAME_TOKENS + PICTURE_TOKENS * len(message.metadata.get("pictures", ()))


def _call_text(call: ChatMessage) -> str:
    return f"{call.tool_name}{_json(call.data)}"


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


# -- cutting


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
