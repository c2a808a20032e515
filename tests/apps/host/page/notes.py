"""The server whose prompts and resources the page's tests use."""

from __future__ import annotations

from foundation_rt import Server

server = Server("notes", version="1.0.0")


@server.prompt
def review(language: str, style: str = "short") -> str:
    """Review some code."""
    return f"Review this {language}, {style}."


@server.completion("review", "language")
def languages(value: str) -> list[str]:
    """Return the languages that begin with what was typed."""
    return [each for each in ("python", "perl", "rust") if each.startswith(value)]


@server.resource("note://today", mime_type="text/plain")
def today() -> str:
    """Say what is on today."""
    return "Buy milk."
