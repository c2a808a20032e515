"""The messages and events that end a turn which cannot go on. Pure.

The turn of a process that has died ends by the same events as one that is cancelled. A call without
an outcome gets one that says so: the model reads it, and nobody makes the call again. `interrupted`
is that end as a change of a stored chat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import evolve, frozen

from ..chat import ChatMessage, Role
from ..events import ServerMessage
from ..texts import CALL_NOT_MADE, CALL_UNKNOWN
from .live_chat import LiveChat, Payload, SessionState
from .store import ChatTurn, SessionSettings, StoredChat, Writing

OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
NOT_MADE = "NOT_MADE"


@frozen
class Closing:
    """The reasons that end a turn.

    Attributes:
        messages: new or replaced ones.
        events: to follow them, without numbers; the last one ends the turn.
    """

    messages: Sequence[ChatMessage]
    events: Sequence[ServerMessage]


def close_turn(
    turn: ChatTurn,
    messages: Sequence[ChatMessage],
    state: SessionState,
    end: Payload,
    now: int,
) -> Closing:
    """Return what ends a turn: its texts, its calls, what it waits for, then itself (CHAT-18).

    What is in the history is shown, and what was shown is in the history. The end of a turn that
    has not finished is in its last message (CHAT-32). A turn that has finished, and has closed
    everything itself, ends by its last event alone.

    Args:
        turn: it.
        messages: of the turn.
        state: of the chat.
        end: the payload of its last event.
        now: Unix time, in ms.
    """
    known = {message.id: message for message in messages}
    added = [*_broken_texts(known, state, now), *_missing_outcomes(messages, state, now)]
    if turn.message_id not in known:
        input_message = ChatMessage(
            id=turn.message_id, role=Role.USER, content=turn.text, created_at=now
        )
        added.insert(0, input_message)
    if end["state"] != "finished":
        _mark_end(messages, added, end)
    events = [
        *_input_event(turn, state),
        *_text_events(known, state),
        *_decisions(state),
        *_call_events((*messages, *added), state),
        ServerMessage("turn", end),
    ]
    return Closing(added, [ServerMessage(each.type, each.payload, turn.turn_id) for each in events])


def _mark_end(messages: Sequence[ChatMessage], added: list[ChatMessage], end: Payload) -> None:
    """Write the end of a turn into its last message, which is one of `added` afterwards."""
    replaced = {message.id for message in messages}
    is_new = [message for message in added if message.id not in replaced]
    last_id = (is_new or messages)[-1].id
    at = next((at for at, each in enumerate(added) if each.id == last_id), None)
    if at is None:
        at = len(added)
        added.append(messages[-1])
    names = ("state", "code", "message", "retry")
    told = {name: end[name] for name in names if end.get(name) not in (None, "")}
    added[at] = evolve(added[at], metadata={**added[at].metadata, "ending": told})


def _broken_texts(
    known: Mapping[str, ChatMessage], state: SessionState, now: int
) -> list[ChatMessage]:
    """Return the texts that break off, with all that was shown of them."""
    messages = []
    for message_id, text in state.streaming.items():
        before = known.get(message_id)
        messages.append(
            ChatMessage(
                id=message_id,
                role=Role.ASSISTANT,
                content=str(text),
                created_at=before.created_at if before else now,
                metadata={**(before.metadata if before else {}), "interrupted": True},
            )
        )
    return messages


def _missing_outcomes(
    messages: Sequence[ChatMessage], state: SessionState, now: int
) -> list[ChatMessage]:
    """Return outcomes for the calls of a turn that have none (CHAT-19)."""
    open_calls: dict[str, ChatMessage] = {}
    for message in messages:
        if message.call_id is None:
            continue
        if message.is_call:
            open_calls[message.call_id] = message
        elif message.role is Role.TOOL:
            open_calls.pop(message.call_id, None)
    return [_outcome(call, call_id in state.approvals, now) for call_id, call in open_calls.items()]


def _outcome(call: ChatMessage, awaited_approval: bool, now: int) -> ChatMessage:
    code, text = (NOT_MADE, CALL_NOT_MADE) if awaited_approval else (OUTCOME_UNKNOWN, CALL_UNKNOWN)
    return ChatMessage(
        id=f"{call.id}.outcome",
        role=Role.TOOL,
        content=text,
        data={"error": {"code": code, "message": text}},
        created_at=now,
        tool_name=call.tool_name,
        call_id=call.call_id,
        metadata={"isError": True},
    )


def _input_event(turn: ChatTurn, state: SessionState) -> list[ServerMessage]:
    if turn.message_id in state.shown:
        return []
    return [ServerMessage("user", {"text": turn.text, "messageId": turn.message_id})]


def _text_events(known: Mapping[str, ChatMessage], state: SessionState) -> list[ServerMessage]:
    """Return the events that end texts, and those that show texts which no event has shown."""
    contents = dict.fromkeys(state.streaming, "")
    for message_id in state.hidden:
        if message_id in known:
            contents[message_id] = known[message_id].content or ""
    return [
        ServerMessage("text", {"content": content, "messageId": message_id, "done": True})
        for message_id, content in contents.items()
    ]


def _decisions(state: SessionState) -> list[ServerMessage]:
    return [
        *(
            ServerMessage("approval", {"callId": call_id, "decision": "stopped"})
            for call_id in state.approvals
        ),
        *(
            ServerMessage("question", {"questionId": question_id, "action": "expired"})
            for question_id in state.questions
        ),
    ]


def _call_events(messages: Iterable[ChatMessage], state: SessionState) -> list[ServerMessage]:
    """Return the events that end calls as the history has them, unless events have done so."""
    outcomes = {
        message.call_id: message
        for message in messages
        if message.role is Role.TOOL and message.call_id is not None
    }
    events = []
    for call_id in dict.fromkeys((*state.calls, *outcomes)):
        if call_id in state.shown:
            continue
        outcome = outcomes.get(call_id)
        data = {} if outcome is None else outcome.data
        tool = state.calls.get(call_id, {}).get("tool")
        payload: Payload = {
            "state": "complete",
            "tool": tool if outcome is None else outcome.tool_name,
            "callId": call_id,
            "message": None if outcome is None else outcome.content,
            "data": data,
            "isError": outcome is None or bool(outcome.metadata.get("isError", "error" in data)),
        }
        events.append(ServerMessage("status", payload))
    return events


def interrupted(stored: StoredChat, turn: ChatTurn, settings: SessionSettings, now: int) -> Writing:
    """Return what ends the turn that ran in a chat (CHAT-21).

    Args:
        stored: the whole chat.
        turn: that runs in it.
        settings: of sessions.
        now: Unix time, in ms.
    """
    chat = LiveChat(settings)
    chat.read(stored)
    first = chat.position(turn.message_id)
    messages = [] if first is None else chat.messages[first:]
    closing = close_turn(turn, messages, chat.state, {"state": "interrupted"}, now)
    frames = []
    positions = [(chat.put(each), each) for each in closing.messages]
    for event in closing.events:
        numbered, frame = chat.number(event)
        frames.append((numbered.seq or 0, frame))
    chat.last_active_at = max(now, chat.last_active_at)
    return chat.writing(turn.turn_id, positions, frames, ends_turn=True)
