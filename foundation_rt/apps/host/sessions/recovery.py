"""The end of a turn whose process has died, as a change of its chat. Pure."""

from __future__ import annotations

from .interruption import close_turn
from .live_chat import LiveChat
from .settings import SessionSettings
from .store import ChatTurn, StoredChat, Writing


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
    return Writing(
        fence=turn.turn_id,
        messages=positions,
        frames=frames,
        last_seq=chat.last_seq,
        first_seq=chat.first_seq,
        last_active_at=max(now, chat.last_active_at),
        state=chat.state.to_json(),
        ends_turn=True,
        bytes=chat.bytes,
    )
