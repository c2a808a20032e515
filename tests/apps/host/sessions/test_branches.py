"""Which messages of a chat with branches are read: against a model that follows each message up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.host.chat import ChatMessage, Role, branch


@st.composite
def chats(draw: st.DrawFn) -> list[ChatMessage]:
    """Make turns; each goes on from the one before it, an earlier one, or nothing that is there."""
    messages = []
    for number in range(draw(st.integers(0, 12))):
        metadata = {}
        if draw(st.booleans()):
            wanted = [None, "nobody", *(f"m{each}" for each in range(number + 2))]
            metadata["after"] = draw(st.sampled_from(wanted))
        messages.append(ChatMessage(id=f"m{number}", role=Role.USER, metadata=metadata))
        pieces = range(draw(st.integers(0, 2)))
        messages += [ChatMessage(id=f"m{number}-{each}", role=Role.ASSISTANT) for each in pieces]
    return messages


def parent(message: ChatMessage, number: int) -> int:
    """Return the number of the turn that a message goes on from; -1: none."""
    before = number - 1
    wanted = message.metadata.get("after", f"m{before}")
    if wanted is None:
        return -1
    named = int(wanted[1:]) if wanted != "nobody" else before
    return min(named, before)


@pytest.mark.rule("CHAT-40")
@given(chats())
def test_a_branch_is_the_way_to_the_newest_turn(messages: list[ChatMessage]) -> None:
    users = [each for each in messages if each.role is Role.USER]
    way, number = set(), len(users) - 1
    while number >= 0:
        way.add(number)
        number = parent(users[number], number)
    expected = [each for each in messages if int(each.id[1:].partition("-")[0]) in way]
    assert [*branch(messages)] == expected
