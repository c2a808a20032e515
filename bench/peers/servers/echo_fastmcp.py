"""`echo` on PyPI's `fastmcp`: over stdio, or over HTTP on the port that is named."""

import sys

from fastmcp import FastMCP

server = FastMCP("echo")


@server.tool
async def echo(text: str):
    """Return the text."""
    return text


if len(sys.argv) > 1:
    server.run(
        "http",
        port=int(sys.argv[1]),
        json_response=True,
        log_level="error",
        show_banner=False,
    )
else:
    server.run(log_level="error", show_banner=False)
