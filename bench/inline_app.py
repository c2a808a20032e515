"""A server without coroutines, which therefore never imports asyncio."""

from __future__ import annotations

from foundation_rt import Server

server = Server("bench", version="1.0.0")


@server.tool(inline=True)
def inline_noop() -> None:
    """Do nothing, in place."""


@server.tool(inline=True)
def inline_echo(text: str) -> str:
    """Return what came, in place."""
    return text
