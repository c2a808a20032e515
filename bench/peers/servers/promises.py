"""The tools of `bench.peers.promises`, on the library that is named."""

import sys
import time
from pathlib import Path
from typing import Any

LIBRARY = sys.argv[1]
LONG = 20
DEADLINE: dict[str, Any] = {}
QUIET: dict[str, Any] = {}
server: Any

if LIBRARY == "foundation-rt":
    from foundation_rt import Server

    server, DEADLINE = Server("promises"), {"timeout_ms": 1000}
elif LIBRARY == "mcp":
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("promises", log_level="CRITICAL")
elif LIBRARY == "fastmcp":
    from fastmcp import FastMCP

    server, DEADLINE = FastMCP("promises"), {"timeout": 1}
    QUIET = {"log_level": "critical", "show_banner": False}
else:
    from anodize_mcp import AnodizeMCP

    server = AnodizeMCP("promises")


@server.tool(**DEADLINE)
def block(seconds: int) -> str:
    """Block for so long."""
    time.sleep(seconds)
    return "done"


@server.tool()
def work(begun: str) -> str:
    """Make the file `begun`, then work for long."""
    Path(begun).touch()
    time.sleep(LONG)
    return "done"


server.run(**QUIET)
