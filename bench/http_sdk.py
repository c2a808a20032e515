"""The official SDK's server: the same tool, streamable HTTP without sessions, answers in JSON."""

import logging
import sys

from mcp.server.mcpserver import MCPServer

from bench.http_floor import serve

server = MCPServer("bench", log_level="ERROR")


@server.tool()
async def async_noop() -> None:
    """Do nothing."""


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    application = server.streamable_http_app(stateless_http=True, json_response=True)
    serve(application, int(sys.argv[1]))
