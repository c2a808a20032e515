"""An HTTP API that answers with what arrived, served by uvicorn in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import uvicorn
from attrs import define, field

from tests.lab.servers.http_server import free_port
from tests.lab.waiting import until


@define
class EchoApi:
    """The API.

    Attributes:
        url: of its root.
        answers: what it answers instead, by path: status, headers, body.
        held: set when a request of `/held` has come; it is never answered.
        left: set when the client of that request has left.
    """

    url: str = ""
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(factory=dict)
    held: threading.Event = field(factory=threading.Event)
    left: threading.Event = field(factory=threading.Event)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if scope["path"] == "/held":
            self.held.set()
            await receive()
            self.left.set()
            return
        status, headers, content = self.answers.get(scope["path"]) or _echo(scope, body)
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": content})


def _echo(scope: dict[str, Any], body: bytes) -> tuple[int, dict[str, str], bytes]:
    arrived = {
        "method": scope["method"],
        "path": scope["raw_path"].decode("latin-1").partition("?")[0],
        "query": scope["query_string"].decode("latin-1"),
        "headers": {name.decode(): value.decode() for name, value in scope["headers"]},
        "body": b64encode(body).decode(),
    }
    return 200, {"content-type": "application/json"}, orjson.dumps(arrived)


@contextmanager
def echo_api() -> Iterator[EchoApi]:
    """Serve the API within the block."""
    api = EchoApi()
    port = free_port()
    config = uvicorn.Config(api, port=port, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    started = threading.Event()

    async def serve() -> None:
        task = asyncio.ensure_future(server.serve())
        await until(lambda: server.started or task.done(), "uvicorn listens")
        started.set()
        await task

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    started.wait(20)
    api.url = f"http://127.0.0.1:{port}"
    try:
        yield api
    finally:
        server.force_exit = server.should_exit = True
        thread.join(20)
