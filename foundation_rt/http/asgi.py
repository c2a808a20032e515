"""ASGI's types, the responses that are sent at once, and the headers that every response gets.

Raw ASGI, without a framework: these responses are most of what is sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any

from attrs import field, frozen

from ..base.extras import require
from ..errors import JsonRpcErrorCode, to_json_rpc_error
from ..protocol.jsonrpc import RequestId, encode

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

RawHeader = tuple[bytes, bytes]
RawHeaders = tuple[RawHeader, ...]

STREAM_HEADERS: RawHeaders = (
    (b"content-type", b"text/event-stream"),
    # Proxies would otherwise gather events until they are worth sending (HTTP-09).
    (b"x-accel-buffering", b"no"),
)

CLOSE: RawHeader = (b"connection", b"close")
JSON_TYPE: RawHeader = (b"content-type", b"application/json")

SECURITY_HEADERS: RawHeaders = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
)
_HTTPS_ALONE = (b"strict-transport-security", b"max-age=31536000; includeSubDomains")
SECURITY_HEADERS_OF_HTTPS: RawHeaders = (*SECURITY_HEADERS, _HTTPS_ALONE)

EXPOSED_HEADERS = ("Mcp-Session-Id", "MCP-Protocol-Version", "WWW-Authenticate")
"""The response headers that pages of other origins may read, besides those every page may."""


UNCOUNTED_BYTES = 16 * 1024
"""The bytes that a transport takes before its connection waits; these are not counted."""

CUT_CONNECTION = "foundation_rt.cut_connection"
"""The scope extension that ends the connection at once; a function."""

HOLD_BYTES = "foundation_rt.hold_bytes"
"""The scope extension that takes changes in the bytes buffered for the client; a function."""

NOTE_HEAD = "foundation_rt.note_head"
"""The scope extension that takes what was found out about the head of the request (HTTP-80)."""

SECURED = "foundation_rt.secured"
"""A key of the event that starts a response: it has its security headers already."""


@frozen(eq=False)
class HttpRefusal:
    """The refusal of a request before the protocol sees it.

    Attributes:
        status: the HTTP status.
        message: tells the client what to change; holds nothing secret.
        code: the code of the JSON-RPC error in the body.
        reason: the same as `message`, for programs.
        headers: the headers that the status calls for.
        data: further members of the error's `data`.
    """

    status: int
    message: str
    code: JsonRpcErrorCode = JsonRpcErrorCode.INVALID_REQUEST
    reason: str = "invalid_request"
    headers: RawHeaders = ()
    data: Mapping[str, Any] = field(factory=dict)

    def body(self, correlation_id: str, request_id: RequestId | None = None) -> bytes:
        """Return the JSON-RPC error response; its id is null if none could be read."""
        data = {"reason": self.reason, "correlationId": correlation_id, **self.data}
        return encode(to_json_rpc_error(self.code, self.message, data, request_id))


def send_json(
    send: Send, status: int, body: bytes, headers: Sequence[RawHeader] = ()
) -> Awaitable[None]:
    """Send a response whose body is JSON."""
    return send_body(send, status, JSON_TYPE[1], body, headers)


async def send_body(
    send: Send,
    status: int,
    content_type: bytes,
    body: bytes,
    headers: Sequence[RawHeader] = (),
) -> None:
    """Send a response with a body of any type."""
    own = ((b"content-type", content_type), (b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body})


async def send_empty(send: Send, status: int) -> None:
    """Send a response without a body."""
    # A 204 cannot have a body, and must not have a Content-Length (RFC 9110, section 8.6).
    headers = [] if status == 204 else [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def encode_headers(headers: Iterable[RawHeader]) -> bytes:
    """Return headers as they go over the wire."""
    return b"".join(b"%s: %s\r\n" % header for header in headers)


async def start_stream(send: Send, headers: Sequence[RawHeader] = ()) -> None:
    """Send the head of a response that is a stream of events."""
    await send(
        {"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, *headers]}
    )


def security_headers(scope: Scope) -> RawHeaders:
    """Return the headers of every response to a request (AUTH-24)."""
    is_https = scope.get("scheme") == "https"
    return SECURITY_HEADERS_OF_HTTPS if is_https else SECURITY_HEADERS


def with_forwarded_scheme(app: App, proxies: Iterable[str]) -> App:
    """Return `app` with the scheme that a client used to ask a proxy (AUTH-39).

    Args:
        app: unchanged if there are no proxies.
        proxies: the addresses and networks of those that are believed.
    """
    trusted = [ip_network(each, strict=False) for each in proxies]
    if not trusted:
        return app

    def forwarded(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        sent = [value for name, value in scope["headers"] if name == b"x-forwarded-proto"]
        client = scope.get("client")
        if sent and client is not None and any(ip_address(client[0]) in each for each in trusted):
            # The last one is of the proxy that is believed; others may be the client's own.
            scheme = sent[-1].rpartition(b",")[2].strip().lower()
            scope["scheme"] = "https" if scheme == b"https" else "http"
        return app(scope, receive, send)

    return forwarded


def with_security_headers(app: App) -> App:
    """Return `app` with headers on every response that stop browsers from guessing (AUTH-24)."""

    # Neither is a coroutine function: each would be one more coroutine for every response.
    def secured(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        is_http = scope["type"] == "http"
        return app(scope, receive, sending_securely(scope, send) if is_http else send)

    return secured


def sending_securely(scope: Scope, send: Send) -> Send:
    """Return `send` with the headers of every response to a request (AUTH-24)."""
    added = security_headers(scope)

    def send_secured(event: Event) -> Awaitable[None]:
        if event["type"] == "http.response.start" and SECURED not in event:
            event["headers"] = [*event.get("headers", ()), *added]
        return send(event)

    return send_secured


def with_cors(app: App, origins: Iterable[str]) -> App:
    """Return `app` opened to pages of `origins`; unchanged if there are none (AUTH-25)."""
    allowed = [*origins]
    if not allowed:
        return app
    require("http.cors_origins", "http-full", "starlette")
    from starlette.middleware.cors import CORSMiddleware

    return CORSMiddleware(
        app,
        allow_origins=allowed,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),  # the names of Mcp-Param-* are the tools' own
        expose_headers=EXPOSED_HEADERS,
    )
