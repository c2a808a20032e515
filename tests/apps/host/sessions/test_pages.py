"""A long chat is read in pages, the last one first."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.host.chat import ChatMessage, Role
from foundation_rt.apps.host.sessions.live_chat import LiveChat
from foundation_rt.apps.host.sessions.store import SessionSettings

LARGE = "x" * 200_000
TURNS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 3), st.sampled_from(["", LARGE])), max_size=60
)


def messages_of(turns: list[tuple[int, int, str]]) -> list[ChatMessage]:
    """Return the messages of turns: so many rounds of so many calls, and results of such a size."""
    messages: list[ChatMessage] = []

    def add(role: Role, **values: Any) -> None:
        messages.append(ChatMessage(id=f"m{len(messages)}", role=role, **values))

    for number, (rounds, calls, result) in enumerate(turns):
        add(Role.USER, content="ask")
        for a_round in range(rounds * 8):
            names = [f"{number}-{a_round}-{n}" for n in range(calls)]
            for name in names:
                add(Role.ASSISTANT, tool_name="t", call_id=name, data={"arguments": {}})
            for name in names:
                add(Role.TOOL, tool_name="t", call_id=name, data={"result": result})
        add(Role.ASSISTANT, content="answer")
    return messages


@pytest.mark.rule("CHAT-13", "CHAT-37")
@given(TURNS)
def test_pages_are_bounded_and_together_the_whole_chat(turns: list[tuple[int, int, str]]) -> None:
    chat = LiveChat(SessionSettings())
    messages = messages_of(turns)
    for message in messages:
        chat.put(message)
    page = chat.history()
    found: list[dict[str, Any]] = []
    while True:
        part = page["messages"]
        assert len(part) <= 100 + 2 * 3 + 1
        assert sum(LARGE in str(each) for each in part) <= 3 + 3
        calls = {
            each["callId"] for each in part if each["role"] == "assistant" and "callId" in each
        }
        assert calls == {each["callId"] for each in part if each["role"] == "tool"}
        found = part + found
        if page["previous"] is None:
            break
        older = chat.older(part[0]["id"])
        assert part and older is not None
        page = older
    assert found == [message.to_json() for message in messages]
    assert chat.older("unknown") is None
