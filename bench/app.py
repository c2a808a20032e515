"""The server under test: a tool that does nothing, once for each way to run it."""

from __future__ import annotations

from foundation_rt import Server

server = Server("bench", version="1.0.0")


@server.tool(inline=True)
def inline_noop() -> None:
    """Do nothing, in place."""


async def nothing() -> None:
    """Do nothing."""


@server.tool
async def async_noop() -> None:
    """Do nothing, as a task: without an await it would run in place."""
    await nothing()


@server.tool
def thread_noop() -> None:
    """Do nothing, in a worker thread."""
