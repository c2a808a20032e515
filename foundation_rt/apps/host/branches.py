"""The branches of a chat: a message may go on from an earlier one (CHAT-40). Pure.

A message of the user, and all that follows up to the next one, is a turn. It goes on from the
turn before it, unless its metadata have `after`: the id of the message that it goes on from, or
None for the beginning. So turns are a tree, and the model reads the way to one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from .chat import ChatMessage, Role

AFTER = "after"


def branch(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """Return the messages on the way to the newest turn, in their order."""
    starts = [at for at, message in enumerate(messages) if message.role is Role.USER]
    turns = {messages[start].id: number for number, start in enumerate(starts)}
    kept: list[int] = []
    number = len(starts) - 1
    while number >= 0:
        kept.append(number)
        metadata = messages[starts[number]].metadata
        before = number - 1
        if AFTER in metadata:
            wanted = metadata[AFTER]
            before = -1 if wanted is None else min(turns.get(wanted, before), before)
        number = before
    ends = [*starts[1:], len(messages)]
    way = [*messages[: starts[0] if starts else len(messages)]]
    for number in reversed(kept):
        way += messages[starts[number] : ends[number]]
    return way
