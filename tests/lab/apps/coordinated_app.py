"""A server for tests of the coordinator: `python coordinated_app.py NAME [WAYS ...]`.

Ways: `guide` has the prompt `tool-descriptions`, `badguide` an unusable one, `renames` gives one
tool a name of its own for each process.
"""

from __future__ import annotations

import asyncio
import os
import sys

from foundation_rt import ErrorCode, PromptMessage, Server, ToolAnnotations, ToolContext, ToolError

NAME, *WAYS = sys.argv[1:] or ["app"]

server = Server(NAME)


@server.tool
def echo(text: str) -> str:
    """Return the text."""
    return f"{NAME}: {text}"


@server.tool
def pid() -> int:
    """Return the id of the process."""
    return os.getpid()


@server.tool
def fail(message: str) -> str:
    """Fail."""
    raise ToolError(ErrorCode.INTERNAL, message)


@server.tool
async def wait(ctx: ToolContext) -> str:
    """Wait until the call is aborted."""
    aborted = asyncio.Event()
    ctx.abort_signal.add_callback(aborted.set)
    await aborted.wait()
    return "aborted"


@server.tool
def die() -> str:
    """Kill the process."""
    os.kill(os.getpid(), 9)
    return "never"


@server.tool(annotations=ToolAnnotations(read_only=True))
def die_reading(path: str) -> str:
    """Note the call in a file, and kill the process."""
    with open(path, "a") as file:
        file.write("called\n")
    return die()


@server.tool(annotations=ToolAnnotations(idempotent=True))
def die_once(path: str) -> str:
    """Kill the process the first time."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return "alive"
    os.kill(os.getpid(), 9)
    return "never"


@server.tool(name=f"only_{NAME}")
def only() -> str:
    """Return the name of the server."""
    return NAME


if "renames" in WAYS:

    @server.tool(name=f"of_{os.getpid()}")
    def renamed() -> None:
        """Do nothing."""


if "guide" in WAYS:

    @server.prompt(name="tool-descriptions")
    def guide() -> str:
        return "Echo with care."


if "badguide" in WAYS:

    @server.prompt(name="tool-descriptions")
    def bad_guide() -> list[PromptMessage]:
        return [PromptMessage("user", "a"), PromptMessage("user", "b")]


if __name__ == "__main__":
    server.run()
