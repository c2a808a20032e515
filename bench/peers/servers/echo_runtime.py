"""`echo` on foundation-rt: over stdio, or over HTTP on the port that is named."""

import sys

from foundation_rt import Server

server = Server("echo", version="1.0.0")


@server.tool
async def echo(text: str):
    """Return the text."""
    return text


if len(sys.argv) > 1:
    server.run_http(port=int(sys.argv[1]), no_auth=True)
else:
    server.run()
