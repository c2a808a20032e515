"""A server whose tools ask, report progress, and fail in words of their own.

A program to run as well: `python -m foundation_rt serve tests/client/asking_server.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from foundation_rt import Server, ToolContext

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def make_server() -> Server:
    """Register the tools."""
    server = Server("asking", version="1.0.0")

    @server.tool
    async def greet(ctx: ToolContext) -> str:
        """Ask the user for a name."""
        answer = await ctx.elicit("Your name?", FORM)
        content: Any = answer.content
        return answer.action if content is None else f"Hello {content['name']}"

    @server.tool
    async def work(steps: int, ctx: ToolContext) -> int:
        """Report progress after each step of 50 ms."""
        for step in range(1, steps + 1):
            await asyncio.sleep(0.05)
            ctx.report_progress(step, total=steps)
        return steps

    @server.resource("note://{name}")
    def note(name: str) -> str:
        """Return a note."""
        return f"of {name}"

    return server


server = make_server()
