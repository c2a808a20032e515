"""A stdio server that keeps its client's roots: `python roots_server.py`.

It asks for them after the handshake, and again after `notifications/roots/list_changed`, as many
servers do. The tool `roots` returns the URIs that it knows, and how often it was notified.
"""

from __future__ import annotations

import json
import sys
from typing import Any

REVISION = "2025-11-25"


class RootsServer:
    """The state of one session."""

    def __init__(self) -> None:
        self.known: list[str] = []
        self.notified = 0
        self.asked = 0

    def answer(self, method: str | None, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a request."""
        if method == "initialize":
            info = {"name": "roots", "version": "1"}
            return {"protocolVersion": REVISION, "capabilities": {"tools": {}}, "serverInfo": info}
        if method == "tools/list":
            return {"tools": [{"name": "roots", "inputSchema": {"type": "object"}}]}
        if method == "tools/call":
            text = json.dumps([self.known, self.notified])
            return {"content": [{"type": "text", "text": text}]}
        return {}

    def receive(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Return the message to send for one that came."""
        method = message.get("method")
        if method is None:
            if "result" in message:
                self.known = [root["uri"] for root in message["result"]["roots"]]
            return None
        if "id" in message:
            if method == "server/discover":
                error = {"code": -32601, "message": "Method not found"}
                return {"jsonrpc": "2.0", "id": message["id"], "error": error}
            result = self.answer(method, message.get("params", {}))
            return {"jsonrpc": "2.0", "id": message["id"], "result": result}
        self.notified += method == "notifications/roots/list_changed"
        if method in ("notifications/initialized", "notifications/roots/list_changed"):
            self.asked += 1
            return {"jsonrpc": "2.0", "id": self.asked, "method": "roots/list"}
        return None


if __name__ == "__main__":
    session = RootsServer()
    for line in sys.stdin:
        reply = session.receive(json.loads(line))
        if reply is not None:
            print(json.dumps(reply), flush=True)
