"""Responses that are written at once; raw ASGI, since they are most of what is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .streams import Send

RawHeader = tuple[bytes, bytes]

STREAM_HEADERS: tuple[RawHeader, ...] = (
    (b"content-type", b"text/event-stream"),
    # Proxies would otherwise gather events until they are worth sending (HTTP-09).
    (b"x-accel-buffering", b"no"),
)


def send_json(
    send: Send, status: int, body: bytes, headers: Sequence[RawHeader] = ()
) -> Awaitable[None]:
    """A response whose body is JSON."""
    return send_body(send, status, b"application/json", body, headers)


async def send_body(
    send: Send,
    status: int,
    content_type: bytes,
    body: bytes,
    headers: Sequence[RawHeader] = (),
) -> None:
    """A response with a body of any type."""
    own = ((b"content-type", content_type), (b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body})


async def send_empty(send: Send, status: int, headers: Sequence[RawHeader] = ()) -> None:
    """A response without a body."""
    # Of one that cannot have a body, the length must not be told (RFC 9110, section 8.6).
    length = () if status == 204 else ((b"content-length", b"0"),)
    await send({"type": "http.response.start", "status": status, "headers": [*length, *headers]})
    await send({"type": "http.response.body", "body": b""})


async def start_stream(send: Send, headers: Sequence[RawHeader] = ()) -> None:
    """The head of a response that is a stream of events."""
    await send(
        {"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, *headers]}
    )
