"""A chat as a document: Markdown for people, JSON for programs (HOST-33). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from ....base.exact_json import dumps
from ..chat import ChatMessage, Role, TokenUsage

_TICKS = re.compile("`+")
_MAX_SHOWN = 20_000
_ENDINGS = {
    "stopped": "The turn was stopped.",
    "failed": "The turn failed.",
    "interrupted": "The turn was interrupted.",
}


def export_json(
    messages: Sequence[ChatMessage], usage: TokenUsage, created_at: int, last_active_at: int
) -> dict[str, Any]:
    """Return a chat for programs, without its id, which is a secret.

    Args:
        messages: from the oldest to the newest.
        usage: of the whole chat.
        created_at: Unix time, in ms.
        last_active_at: Unix time, in ms.
    """
    return {
        "createdAt": created_at,
        "lastActiveAt": last_active_at,
        "usage": usage.to_json(),
        "messages": [message.to_json() for message in messages],
    }


def export_markdown(messages: Iterable[ChatMessage], created_at: int) -> str:
    """Return a chat for people."""
    blocks = [f"# Chat of {_time(created_at)}"]
    for message in messages:
        blocks += _blocks(message) + _ending(message.metadata.get("ending"))
    return "\n\n".join(blocks) + "\n"


def _blocks(message: ChatMessage) -> list[str]:
    content = (message.content or "").strip()
    if message.role is Role.USER:
        return [f"## You, {_time(message.created_at)}", content]
    if message.is_call:
        arguments = message.data.get("arguments") if isinstance(message.data, Mapping) else None
        return [f"### Call of {_code(message.tool_name or '')}", fenced(_json(arguments), "json")]
    if message.role is Role.TOOL:
        return [f"### Result of {_code(message.tool_name or '')}", fenced(_result(message), "")]
    if message.is_said and content:
        return [f"## Assistant, {_time(message.created_at)}", content]
    return []


def _ending(ending: Any) -> list[str]:
    """Return how the turn of a message has ended, if it has not finished (CHAT-32)."""
    if not isinstance(ending, Mapping):
        return []
    text = f"{_ENDINGS.get(ending.get('state', ''), '')} {ending.get('message', '')}"
    return [f"> {' '.join(text.split())}"]


def _result(message: ChatMessage) -> str:
    text = message.content if message.content else _json(message.data)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}\n[cut]"


def _json(value: Any) -> str:
    return dumps(value, option=orjson.OPT_INDENT_2, default=str).decode()


def _code(text: str) -> str:
    ticks = "`" * (1 + max((len(found) for found in _TICKS.findall(text)), default=0))
    return f"{ticks}{text}{ticks}"


def fenced(text: str, language: str) -> str:
    """Return a block of code that its content cannot close."""
    fence = "`" * max(3, 1 + max((len(found) for found in _TICKS.findall(text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
