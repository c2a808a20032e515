"""The server of a soak: a tool for each way in which a call may end, and one that counts."""

from __future__ import annotations

import asyncio
import gc
import time

from foundation_rt import Server, ToolContext, ToolError

server = Server("soak", version="1")


@server.tool(inline=True)
def echo(text: str) -> str:
    """Return what came, in place."""
    return text


@server.tool
async def later(ms: int) -> str:
    """Return after a while, as a task."""
    await asyncio.sleep(ms / 1000)
    return "later"


@server.tool
def thread(ms: int) -> str:
    """Return after a while, in a worker thread."""
    time.sleep(ms / 1000)
    return "thread"


@server.tool
def large(size: int) -> str:
    """Return a large text."""
    return "x" * size


@server.tool(timeout_ms=20)
async def late(context: ToolContext) -> None:
    """Run into the deadline."""
    await context.abort_signal.wait()
    context.abort_signal.raise_if_aborted()


@server.tool
async def hang() -> None:
    """Wait until the client cancels the call."""
    await asyncio.Event().wait()


@server.tool
async def fail() -> None:
    """Fail as a tool may."""
    raise ToolError("INVALID_ARGUMENT", "it is taken")


@server.tool
async def crash() -> None:
    """Fail as a tool must not."""
    raise ValueError("a fault")


@server.tool
async def tell(context: ToolContext) -> str:
    """Report progress and log, to the client."""
    await context.report_progress(1, 2)
    await context.log("info", "half")
    return "told"


@server.tool(inline=True)
def held() -> dict[str, int]:
    """Count the tasks of this process, after a collection of garbage."""
    gc.collect()
    return {"tasks": len(asyncio.all_tasks())}
