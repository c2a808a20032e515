"""Guidance for a model on the tools of one server (COORD-40 to -42). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

PROMPT = "tool-descriptions"
"""The prompt in which a server says how its tools are used."""

MAX_GUIDANCE_BYTES = 16 * 1024


def guidance_text(result: Mapping[str, Any]) -> str | None:
    """Return the text of a `prompts/get` result; None unless it is one user message of text."""
    messages = result.get("messages")
    if type(messages) is not list or len(messages) != 1 or type(messages[0]) is not dict:
        return None
    content = messages[0].get("content")
    if messages[0].get("role") != "user" or type(content) is not dict:
        return None
    text = content.get("text")
    if content.get("type") != "text" or type(text) is not str:
        return None
    is_small = len(text.encode("utf-8", "surrogatepass")) <= MAX_GUIDANCE_BYTES
    return text if is_small else None


def fallback_guidance(server: str, tools: Iterable[Mapping[str, Any]]) -> str:
    """Return the guidance for a server that has none: the seed's text, to the letter."""
    text = f"Guidance for Server {server}:\nAvailable tools:\n"
    lines = [f"- {tool.get('name')}: {tool.get('description') or ''}\n" for tool in tools]
    return text + ("".join(lines) or "(No tools discovered)")
