"""The floor over HTTP: `echo` in a bare ASGI application that checks nothing, under uvicorn."""

import json
import sys

import uvicorn

HELLO: dict[str, object] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "echo", "version": "1.0.0"},
}


async def application(scope, receive, send):
    """Answer a call with the text of its arguments, anything else with the handshake."""
    body, more = b"", True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    message = json.loads(body)
    if message["method"] == "tools/call":
        text = message["params"]["arguments"]["text"]
        result = {"content": [{"type": "text", "text": text}], "isError": False}
    else:
        result = HELLO
    reply = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(reply)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": reply})


uvicorn.run(
    application,
    host="127.0.0.1",
    port=int(sys.argv[1]),
    lifespan="off",
    access_log=False,
    log_level="error",
)
