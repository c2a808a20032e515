"""The part of a history that a model reads (TURN-50 to TURN-57). Pure.

A history is cut between segments. A segment is a message of the user or of the system, or an answer
of the model: its text, its calls, and their outcomes. So a call is never parted from its result.
What is kept is the newest, as far as it fits. If the newest alone does not, its contents are cut.

A history grows at its end. `HistoryReader` keeps the segments that have not changed since it read
them, and sums of their sizes: a request looks at what is new, however many messages there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from operator import is_not
from typing import Any

from attrs import define, evolve, field

from ....base.exact_json import dumps
from ..chat import THOUGHT, ChatMessage, Role, ToolPhase, text_bytes

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
        number: its index among the segments.
        start: the index of its first message in the history.
        messages: its own.
        outcomes: of its calls, by their ids.
    """

    number: int
    start: int
    messages: list[ChatMessage] = field(factory=list)
    outcomes: dict[str, ChatMessage] = field(factory=dict)

    def in_order(self) -> list[ChatMessage]:
        """Return its messages; the outcomes follow all calls, in their order (TURN-52)."""
        calls = [message for message in self.messages if message.is_call]
        ended = self.outcomes
        return [*self.messages, *(ended.get(str(c.call_id)) or unknown_outcome(c) for c in calls)]


@define(eq=False)
class _Sums:
    """The messages of the first segments in order, and sizes: each up to a number of segments."""

    messages: list[ChatMessage] = field(factory=list, init=False)
    ends: list[int] = field(factory=lambda: [0], init=False)
    fixed: list[int] = field(factory=lambda: [0], init=False)  # tokens
    sizes: list[int] = field(factory=lambda: [0], init=False)  # bytes

    def enter(self, segments: Sequence[Segment]) -> None:
        """Add the segments that it does not have yet."""
        for at in range(len(self.ends) - 1, len(segments)):
            messages = segments[at].in_order()
            fixed, size = _measure(messages)
            self.messages += messages
            self.ends.append(len(self.messages))
            self.fixed.append(self.fixed[-1] + fixed)
            self.sizes.append(self.sizes[-1] + size)

    def forget_from(self, number: int) -> None:
        """Forget a segment, and those behind it."""
        if number < len(self.ends) - 1:
            del self.messages[self.ends[number] :]
            for each in (self.ends, self.fixed, self.sizes):
                del each[number + 1 :]

    def between(self, first: int, end: int) -> list[ChatMessage]:
        """Return the messages of the segments from `first` to before `end`."""
        return self.messages[self.ends[first] : self.ends[end]]

    def tokens(self, first: int, end: int, per_byte: float) -> float:
        """Estimate the tokens of `between`; never fewer than `tokens_of_all`."""
        size = self.sizes[end] - self.sizes[first]
        return self.fixed[end] - self.fixed[first] + size * per_byte

    def newest_that_fit(self, first: int, end: int, budget: float, per_byte: float) -> int:
        """Return the first of the newest segments before `end` that fit together."""
        numbers = range(first, end)
        return first + bisect_left(
            numbers, True, key=lambda each: self.tokens(each, end, per_byte) <= budget
        )


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
    _sums: _Sums = field(factory=_Sums, init=False)

    def read(self, history: Sequence[ChatMessage]) -> None:
        """Read what is new of a history."""
        differs = [*map(is_not, self._seen, history)]  # for each request: so without a loop here
        same = differs.index(True) if True in differs else len(differs)
        if same < len(self._seen):
            same = self._forget_from(same)
        for at in range(same, len(history)):
            self._enter(at, history[at])

    def tokens(self, count: Count) -> int:
        """Estimate the tokens of what a model would read, were there room for all."""
        sums = self._sums
        sums.enter(self._segments)
        summary = [] if self._summary is None else [self._summary]
        rest = sums.tokens(self._first_read(), len(self._segments), count(_PROBE) / len(_PROBE))
        return tokens_of_all(summary, count) + round(rest)

    def prune(self, budget: int, count: Count) -> list[ChatMessage]:
        """Return what a model reads of the history, as `prune` says it."""
        sums, per_byte = self._sums, count(_PROBE) / len(_PROBE)
        sums.enter(self._segments)
        summary = [] if self._summary is None else [self._summary]
        first, end = self._first_read(), len(self._segments)
        question = self._newest_question(first)
        turn = first if question is None else question + 1
        at = first if question is None else question
        newest = max(end - 1, turn)
        left: float = budget - tokens_of_all(summary, count)
        left -= sums.tokens(at, turn, per_byte) + sums.tokens(newest, end, per_byte)
        if left < 0:
            must = [*summary, *sums.between(at, turn), *sums.between(newest, end)]
            return cut_to(must, budget, count)
        newer, older = sums.newest_that_fit(turn, newest, left, per_byte), at
        if newer == turn:
            left -= sums.tokens(turn, newest, per_byte)
            older = sums.newest_that_fit(first, at, left, per_byte)
            while older < at and self._segments[older].messages[0].role is not Role.USER:
                older += 1  # an answer whose question is gone
        return [*summary, *sums.between(older, turn), *sums.between(newer, end)]

    def _first_read(self) -> int:
        """Return the number of the first segment that is not summarised."""
        if self._summary is None:
            return 0
        last = self._at.get(self._summary.metadata[SUMMARY], -1)
        return bisect_right(self._segments, last, key=lambda segment: segment.start)

    def _newest_question(self, first: int) -> int | None:
        """Return the number of the newest message of the user, from a segment on."""
        for at in range(len(self._segments) - 1, first - 1, -1):
            if self._segments[at].messages[0].role is Role.USER:
                return at
        return None

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
        self._sums.forget_from(len(self._segments))
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
        if message.metadata.get(NOTICE) or message.metadata.get(THOUGHT):
            return
        if SUMMARY in message.metadata:
            self._summary = message
        elif message.role is Role.TOOL:
            owner = self._of_call.get(str(message.call_id))
            if owner is not None:  # else it is the outcome of no call
                owner.outcomes[str(message.call_id)] = message
                self._sums.forget_from(owner.number)
        else:
            if not _continues(self._segments[-1] if self._segments else None, message):
                self._segments.append(Segment(len(self._segments), at))
            segment = self._segments[-1]
            segment.messages.append(message)
            self._sums.forget_from(segment.number)
            if message.is_call:
                self._of_call[str(message.call_id)] = segment


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


def _measure(messages: Sequence[ChatMessage]) -> tuple[int, int]:
    """Return the tokens of messages besides their texts, and the bytes of these."""
    fixed = size = 0
    for message in messages:
        fixed += _frame(message) + 2  # each of two texts is rounded up
        if message.content:
            size += text_bytes(message.content)
        if message.is_call:
            size += text_bytes(_call_text(message))
    return fixed, size


def _frame(message: ChatMessage) -> int:
    """Return the tokens of a message besides its texts."""
    return _FRAME_TOKENS + PICTURE_TOKENS * len(message.metadata.get("pictures", ()))


def _call_text(call: ChatMessage) -> str:
    return f"{call.tool_name}{_json(call.call_parts)}"


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
    if message.is_call and count(_json(message.call_parts)) > tokens:
        kept = {key: value for key, value in message.metadata.items() if key == "answer"}
        message = evolve(message, data={"arguments": {}}, metadata=kept)
    return message


def _json(value: Any) -> str:
    return dumps(value).decode()


Count = Callable[[str], int]
"""Estimates the tokens of a text; a longer text never has fewer."""


def cut_text(text: str, tokens: int, count: Count, note: str) -> str:
    """Return a text of at most `tokens`: itself, or its beginning and a note, or "".

    Args:
        text: of any length.
        tokens: the most that it may have.
        count: estimates the tokens of a text.
        note: says that it was cut.
    """
    if len(text) <= tokens and count(text) <= tokens:
        return text
    # A token has fewer than 64 characters on average in any text that is one.
    low, high = 0, min(len(text), 64 * max(tokens, 0))
    if high == len(text) and count(text) <= tokens:
        return text
    if count(note) > tokens:
        return ""
    while low < high:  # at most 20 steps, on texts that get shorter
        middle = (low + high + 1) // 2
        if count(text[:middle] + note) <= tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low] + note
