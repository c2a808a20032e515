"""The floor: `echo` in a bare loop of the standard library that checks nothing."""

import json
import os

HELLO: dict[str, object] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "echo", "version": "1.0.0"},
}


def serve():
    """Answer calls with the text of their arguments until the input ends."""
    pending = b""
    while data := os.read(0, 65_536):
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "id" not in message:
                continue
            if message["method"] == "tools/call":
                text = message["params"]["arguments"]["text"]
                result = {"content": [{"type": "text", "text": text}], "isError": False}
            else:
                result = HELLO
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            os.write(1, json.dumps(reply).encode() + b"\n")


serve()
