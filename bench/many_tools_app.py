"""A server that lists 1,000 tools."""

from __future__ import annotations

from foundation_rt import Server

TOOLS = 1_000

server = Server("bench", version="1.0.0")


def echo(text: str, count: int = 1) -> str:
    """Return what came, a number of times."""
    return text * count


for number in range(TOOLS):
    server.tool(name=f"echo_{number}", description=f"Echo number {number}.")(echo)
