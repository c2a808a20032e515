"""A server for tests of the gateway: `python gateway_app.py NAME`.

It remembers its sessions, asks its client, says what it was sent, dies, and changes its lists.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Any

from foundation_rt import Header, PromptMessage, Server, Text, ToolAnnotations, ToolContext

NAME = sys.argv[1] if __name__ == "__main__" and len(sys.argv) > 1 else "app"

server = Server(NAME, instructions=f"Advice of {NAME}.", request_headers=["authorization", "x-b"])
counts: dict[str | None, int] = {}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


@server.tool(inline=True)
def echo(text: str) -> str:
    """Return a text."""
    return f"{NAME}: {text}"


@server.tool(inline=True)
def count(mine: str, ctx: ToolContext) -> list[Any]:
    """Count the calls of this session, and return what it was called with."""
    counts[ctx.session_key] = counts.get(ctx.session_key, 0) + 1
    return [mine, os.getpid(), counts[ctx.session_key]]


@server.tool(inline=True)
def correlation(ctx: ToolContext) -> str:
    """Return the correlation id of the call."""
    return ctx.correlation_id


@server.tool(inline=True)
def headers(ctx: ToolContext) -> dict[str, str]:
    """Return the headers of the request."""
    return dict(ctx.headers)


@server.tool(inline=True)
def chain() -> str:
    """Return the mark that gateways leave in the environment."""
    return os.environ.get("FOUNDATION_RT_GATEWAYS", "")


@server.tool(inline=True)
def place(region: Annotated[str, Header("Region")]) -> str:
    """Return an argument that a header repeats."""
    return region


@server.tool(inline=True)
def pid() -> int:
    """Return the id of the process."""
    return os.getpid()


@server.tool
async def survey(ctx: ToolContext) -> list[Any]:
    """Ask the client for everything that can be asked."""
    form = await ctx.elicit("Who?", FORM)
    ctx.report_progress(1, 2, "half")
    ctx.log("info", {"n": 1}, "app")
    page = await ctx.elicit_url("Pay", "https://pay.test/1")
    words = await ctx.sample("Greet", max_tokens=9)
    roots = await ctx.roots()
    return [form.content, page.action, words.text, [root.uri for root in roots]]


@server.tool
async def ask(ctx: ToolContext) -> Any:
    """Ask once."""
    return (await ctx.elicit("Who?", FORM)).content


@server.tool
async def die(ctx: ToolContext) -> str:
    """Kill the process in mid-call."""
    os.kill(os.getpid(), 9)
    return "never"


@server.tool(annotations=ToolAnnotations(idempotent=True))
async def wait(path: str, ctx: ToolContext) -> str:
    """Wait until the call is aborted, and note that in a file."""
    ctx.report_progress(1, None, "waiting")
    await ctx.abort_signal.wait()
    Path(path).write_text("aborted")
    return "aborted"


@server.tool
async def hold(path: str, ctx: ToolContext) -> str:
    """Wait until there is a file."""
    ctx.report_progress(1, None, "waiting")
    while not Path(path).exists():  # noqa: ASYNC110 -- it imports no tests
        await asyncio.sleep(0.01)
    return "released"


@server.tool
async def change(text: str) -> str:
    """Change the description of the tool `echo2`, or add it."""
    server.unregister("echo2")
    server.tool(name="echo2", description=text)(lambda: text)
    return "changed"


@server.resource(f"note://{NAME}")
def note() -> str:
    return NAME


@server.resource("note://shared")
def shared() -> str:
    return NAME


@server.tool
async def touch(uri: str) -> str:
    """Notify of a change of a resource."""
    server.resource_updated(uri)
    return "touched"


@server.tool
async def touch_mine(uri: str, ctx: ToolContext) -> str:
    """Notify this session alone of a change of a resource."""
    server.resource_updated(uri, session_key=ctx.session_key)
    return "touched"


@server.tool
async def subscribed() -> list[str]:
    """Return the URIs that clients are subscribed to."""
    return sorted(server.subscribed_resources())


@server.prompt
def greet(name: str) -> list[PromptMessage]:
    """Greet."""
    return [PromptMessage("user", Text(f"{NAME} greets {name}"))]


@server.completion("greet", "name")
def names(value: str) -> list[str]:
    return [each for each in ("ann", "bob") if each.startswith(value)]


if __name__ == "__main__":
    server.run()
