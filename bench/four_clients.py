"""The floor for the gateway's start: four servers at once, each with a bare client that lists it.

    python -m bench.four_clients COMMAND ...

Each COMMAND is the command line of a server; it ends when the tools of all of them are known.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys

from bench.client_floor import MODES, Pipes


async def list_tools(command: str) -> None:
    """Start a server, shake hands, and read its tools."""
    loop = asyncio.get_running_loop()
    transport, pipes = await loop.subprocess_exec(
        Pipes, *shlex.split(command), env=os.environ, stderr=None
    )
    await pipes.ask("initialize", MODES["handshake"].hello)
    pipes.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
    await pipes.ask("tools/list", {})
    transport.close()


async def list_all(commands: list[str]) -> None:
    """List all servers, started at once."""
    await asyncio.gather(*map(list_tools, commands))
    sys.stdout.write("listed\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(list_all(sys.argv[1:]))
