"""A server of the handshake revisions in plain Python, whose integers have any size.

It shares no code with the runtime.
Run as a program it serves over stdio. `PlainHttp` serves the same over HTTP.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

INTEGER = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 2**100}}}


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the response to a message.

    The tool `echo` returns its arguments, `nest` an array of so many levels.
    """
    if "id" not in message:
        return None
    response: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    match message["method"]:
        case "initialize":
            response["result"] = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "plain", "version": "1"},
            }
        case "tools/list":
            tools = [
                {"name": "echo", "inputSchema": INTEGER, "outputSchema": INTEGER},
                {"name": "nest", "inputSchema": INTEGER},
            ]
            response["result"] = {"tools": tools}
        case "tools/call":
            arguments = message["params"]["arguments"]
            if message["params"]["name"] == "nest":
                arguments = {"nested": nested(arguments["n"])}
            text = {"type": "text", "text": json.dumps(arguments)}
            response["result"] = {"content": [text], "structuredContent": arguments}
        case _:
            response["error"] = {"code": -32601, "message": "Method not found"}
    return response


def nested(levels: int) -> list[Any]:
    """Return an array of so many levels."""
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        response = answer(json.loads(self.rfile.read(length)))
        body = b"" if response is None else json.dumps(response).encode()
        self.send_response(202 if response is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class PlainHttp:
    """The server over HTTP, on a free port, while the context lasts."""

    def __enter__(self) -> str:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_port}/mcp"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


if __name__ == "__main__":
    for line in sys.stdin:
        response = answer(json.loads(line))
        if response is not None:
            print(json.dumps(response), flush=True)
