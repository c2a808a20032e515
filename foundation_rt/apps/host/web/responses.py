"""Responses over ASGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from ....base.exact_json import dumps

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
RawHeaders = Sequence[tuple[bytes, bytes]]


async def send_response(
    send: Send,
    status: int,
    body: bytes = b"",
    content_type: bytes = b"text/plain; charset=utf-8",
    headers: RawHeaders = (),
) -> None:
    """Send a whole response."""
    own = [(b"content-type", content_type)] if body else []
    if status not in (204, 304):
        own.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, value: Any, status: int = 200, headers: RawHeaders = ()) -> None:
    """Send a response of JSON."""
    await send_response(send, status, dumps(value), b"application/json", headers)


async def send_error(
    send: Send, status: int, code: str, message: str, headers: RawHeaders = ()
) -> None:
    """Send what is wrong, for programs and people."""
    await send_json(send, {"error": {"code": code, "message": message}}, status, headers)


async def read_body(receive: Receive, most: int) -> bytes | None:
    """Return the body of a request; None if it has more bytes than `most`, or breaks off."""
    body = b""
    while len(body) <= most:
        event = await receive()
        if event["type"] != "http.request":
            return None
        body += event.get("body", b"")
        if not event.get("more_body", False):
            return body if len(body) <= most else None
    return None


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return a header of a request; None if it has none."""
    value: bytes
    for found, value in scope["headers"]:
        if found == name:
            return value
    return None
