"""`echo` on PyPI's `mcp`: over stdio, or over HTTP on the port that is named."""

import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("echo", log_level="ERROR")


@server.tool()
async def echo(text: str):
    """Return the text."""
    return text


if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]), json_response=True)
else:
    server.run()
