"""The floor over HTTP: a bare ASGI application that reads JSON and answers with JSON.

It runs under the same uvicorn as the runtime (httptools, uvloop, no access log) and checks nothing.
Run as a program with a port, it serves.
"""

import sys

import orjson

RESULT = {"content": [{"type": "text", "text": "null"}], "isError": False}


async def application(scope, receive, send):
    """Answer every POST with the same result."""
    if scope["type"] != "http":
        return
    body = b""
    while True:
        event = await receive()
        body += event.get("body", b"")
        if not event.get("more_body", False):
            break
    message = orjson.loads(body)
    reply = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": RESULT})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(reply)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": reply})


def serve(app, port):
    """Under uvicorn, as the runtime has it."""
    import uvicorn

    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        lifespan="auto",
        access_log=False,
        log_level="error",
    )


if __name__ == "__main__":
    serve(application, int(sys.argv[1]))
