"""A server that starts in milliseconds, for tests that start hundreds: `python -I -S` runs it.

It shares no code with the runtime. `pid` returns its process; with `hang` it never answers.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

TOOLS = [{"name": "pid", "inputSchema": {"type": "object"}}]


def respond(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the response to a request; None if there is none."""
    method = message.get("method")
    if "id" not in message:
        return None
    response: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        response["result"] = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "quick", "version": "1"},
        }
    elif method == "tools/list":
        response["result"] = {"tools": TOOLS}
    elif method == "tools/call" and "hang" in message["params"]["arguments"]:
        return None
    elif method == "tools/call":
        response["result"] = {"content": [{"type": "text", "text": str(os.getpid())}]}
    else:
        response["error"] = {"code": -32601, "message": "Method not found"}
    return response


if __name__ == "__main__":
    for line in sys.stdin:
        response = respond(json.loads(line))
        if response is not None:
            print(json.dumps(response), flush=True)
