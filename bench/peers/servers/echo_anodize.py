"""`echo` on PyPI's `anodize-mcp`: over stdio, or over HTTP on the port that is named."""

import sys

from anodize_mcp import AnodizeMCP

server = AnodizeMCP("echo")


@server.tool
async def echo(text: str):
    """Return the text."""
    return text


if len(sys.argv) > 1:
    server.run("http", port=int(sys.argv[1]), log_level="error")
else:
    server.run()
