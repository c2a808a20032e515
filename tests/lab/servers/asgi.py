"""The client's end of an ASGI application, in the same process and on the same loop.

Every wait has an end: what does not come within `PATIENCE` seconds fails the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from attrs import define, field

from tests.lab.waiting import PATIENCE, Changing

JSON_HEADERS = {
    "host": "127.0.0.1",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}
REVISION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientCapabilities": {},
}


@define(eq=False)
class Visit(Changing):
    """One HTTP request under way.

    Attributes:
        status: once the response has begun.
        headers: of the response, names in lower case.
        body: what has come of it.
        ended: it is complete.
    """

    task: asyncio.Task[None] = field(init=False)
    status: int | None = None
    headers: dict[str, str] = field(factory=dict)
    body: bytes = b""
    ended: bool = False
    cut: bool = False
    _reads: asyncio.Event = field(factory=asyncio.Event)
    _incoming: asyncio.Queue[dict[str, Any]] = field(factory=asyncio.Queue)

    async def receive(self) -> dict[str, Any]:
        """Return the next event for the application."""
        return await self._incoming.get()

    async def send(self, event: Mapping[str, Any]) -> None:
        """Take an event of the application; wait while the client does not read."""
        await self._reads.wait()
        if event["type"] == "http.response.start":
            assert self.status is None
            self.status = event["status"]
            self.headers = {name.decode(): value.decode() for name, value in event["headers"]}
        else:
            assert self.status is not None and not self.ended
            self.body += event.get("body", b"")
            self.ended = not event.get("more_body", False)
        self.has_changed()

    def bring(self, body: bytes, *, more: bool = False) -> None:
        """Send some of the request's body."""
        self._incoming.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def leave(self) -> None:
        """Close the connection."""
        self._incoming.put_nowait({"type": "http.disconnect"})

    def read(self, *, on: bool = True) -> None:
        """Be a client that reads, or one that does not."""
        if on:
            self._reads.set()
        else:
            self._reads.clear()

    def cut_connection(self) -> None:
        """As a server does it for the application."""
        self.cut = True
        self.leave()
        self._reads.set()

    async def finish(self) -> Visit:
        """Wait for the end of the response, and of the application's work on it."""
        async with asyncio.timeout(PATIENCE):
            await self.task
        return self

    @property
    def json(self) -> Any:
        """The body."""
        return orjson.loads(self.body)

    @property
    def events(self) -> list[dict[str, str]]:
        """The events that have come whole, without comments; members as they stand there."""
        blocks = self.body.decode().split("\n\n")[:-1]
        fields = [
            [line.partition(":") for line in block.split("\n") if not line.startswith(":")]
            for block in blocks
        ]
        return [
            {name: value.removeprefix(" ") for name, _, value in each} for each in fields if each
        ]

    @property
    def messages(self) -> list[Any]:
        """The JSON in the events."""
        return [orjson.loads(each["data"]) for each in self.events if each.get("data")]


def visit(
    app: Any,
    method: str,
    path: str = "/mcp",
    headers: Mapping[str, str | Sequence[str] | None] | None = None,
    body: bytes | None = b"",
    *,
    extensions: bool = True,
    root_path: str = "",
    query: str = "",
    scheme: str = "http",
) -> Visit:
    """Send a request; `body` None: it is brought later. A header may stand there several times."""
    found = Visit()
    found.read()
    sent = JSON_HEADERS if headers is None else {**JSON_HEADERS, **headers}
    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": scheme,
        "path": path,
        "root_path": root_path,
        "query_string": query.encode(),
        "headers": [
            (name.encode(), each.encode())
            for name, value in sent.items()
            if value
            for each in ([value] if isinstance(value, str) else value)
        ],
    }
    if extensions:
        scope["extensions"] = {"foundation_rt.cut_connection": found.cut_connection}
    if body is not None:
        found.bring(body)
    found.task = asyncio.create_task(app(scope, found.receive, found.send))
    return found


def post(app: Any, message: object, headers: Mapping[str, str] | None = None) -> Visit:
    """POST a message."""
    return visit(app, "POST", headers=headers, body=orjson.dumps(message))


def request(method: str, params: object = None, request_id: object = 1) -> dict[str, Any]:
    """Return a request as a message."""
    message = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return message if params is None else message | {"params": params}


def ask(
    app: Any,
    method: str,
    params: Mapping[str, Any] | None = None,
    request_id: object = 1,
    headers: Mapping[str, str] | None = None,
) -> Visit:
    """POST a request of the stateless mode."""
    given = dict(params or {})
    name = given.get("name") or given.get("uri") or ""
    standard = {"mcp-protocol-version": REVISION, "mcp-method": method, "mcp-name": name}
    sent = {**standard, **(headers or {})}
    return post(app, request(method, given | {"_meta": META}, request_id), sent)


def call(app: Any, tool: str, request_id: object = 1, /, **arguments: object) -> Visit:
    """Call a tool in the stateless mode."""
    return ask(app, "tools/call", {"name": tool, "arguments": arguments}, request_id)


@define(eq=False)
class AsgiSession:
    """A client of the handshake mode, of `open_session`."""

    app: Any
    session_id: str
    headers: dict[str, str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.headers = {"mcp-session-id": self.session_id}

    def post(self, message: object) -> Visit:
        """POST a message."""
        return post(self.app, message, self.headers)

    def call(self, tool: str, request_id: object = 1, /, **arguments: object) -> Visit:
        """Call a tool."""
        params = {"name": tool, "arguments": arguments}
        return self.post(request("tools/call", params, request_id))

    def get(self, last_event_id: str = "") -> Visit:
        """Listen, or resume."""
        return visit(self.app, "GET", headers={**self.headers, "last-event-id": last_event_id})

    def delete(self) -> Visit:
        """End the session."""
        return visit(self.app, "DELETE", headers=self.headers)


async def open_session(
    app: Any, revision: str = "2025-11-25", capabilities: Mapping[str, Any] | None = None
) -> AsgiSession:
    """Shake hands."""
    params = {
        "protocolVersion": revision,
        "capabilities": capabilities or {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    answer = await post(app, request("initialize", params)).finish()
    assert answer.status == 200, answer.body
    session = AsgiSession(app, answer.headers["mcp-session-id"])
    told = await session.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).finish()
    assert told.status == 202
    return session
