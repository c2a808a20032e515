"""What stands between the network and the endpoint: names, sizes, patience, and safe headers.

A web page can have its own name resolve to this machine and so talk to a server that listens here
alone (DNS rebinding). It cannot lie about the name: `Host` and `Origin` say what the browser was
told. Hence both are compared with the names that the server knows for its own (AUTH-19 to AUTH-21).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, MutableMapping
from ipaddress import ip_address
from types import coroutine
from typing import TYPE_CHECKING, Any, cast

from attrs import define, field

from .refusal import HttpRefusal, RawHeaders

if TYPE_CHECKING:
    from ...config.settings import HttpSection
    from .headers import RequestHead

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "[::1]"))

EXPOSED_HEADERS = ("Mcp-Session-Id", "MCP-Protocol-Version", "WWW-Authenticate")
"""What pages of other origins may read of a response, besides what every page may."""

SECURITY_HEADERS: RawHeaders = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
)
_HTTPS_ALONE = (b"strict-transport-security", b"max-age=31536000; includeSubDomains")
SECURITY_HEADERS_OF_HTTPS: RawHeaders = (*SECURITY_HEADERS, _HTTPS_ALONE)

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?")  # lower case
_CLOSE = ((b"connection", b"close"),)
_ANY = "*"
_MAX_VERDICTS = 1024  # pairs of Host and Origin remembered; they come from outside
_MAX_REMEMBERED = 512  # characters of one


class ClientGone(Exception):
    """The client has gone before its request was complete."""


@define(eq=False, repr=False)
class Guard:
    """Decides whether a request was meant for this server.

    Args:
        bound_host: the address that is listened on.
        allowed_hosts: values of `Host` besides its names; one without a port is any port.
        allowed_origins: values of `Origin` besides its own.
    """

    _bound_host: str
    _allowed_hosts: frozenset[str]
    _allowed_origins: frozenset[str]
    _is_loopback: bool = field(init=False)
    _verdicts: dict[tuple[str | None, str | None], HttpRefusal | None] = field(
        factory=dict, init=False
    )

    def __attrs_post_init__(self) -> None:
        self._is_loopback = is_loopback(self._bound_host)

    @property
    def remembered(self) -> int:
        """How many pairs of names it need not judge again."""
        return len(self._verdicts)

    def check(self, head: RequestHead) -> HttpRefusal | None:
        """Why a request is none of ours; 421 for its host, 403 for its origin."""
        names = (head.host, head.origin)
        try:
            return self._verdicts[names]
        except KeyError:
            verdict = self._judge(*names)
        if sum(len(name or "") for name in names) <= _MAX_REMEMBERED:
            if len(self._verdicts) >= _MAX_VERDICTS:
                self._verdicts.clear()
            self._verdicts[names] = verdict
        return verdict

    def _judge(self, host: str | None, origin: str | None) -> HttpRefusal | None:
        if not host:
            return HttpRefusal(400, "The header Host is missing", reason="host_missing")
        is_known = self._is_known_host(host.lower())
        if not is_known and _ANY not in self._allowed_hosts:
            return HttpRefusal(
                421,
                "Misdirected request: this Host is not served; an operator can add it to "
                "http.allowed_hosts",
                reason="host_not_allowed",
            )
        if origin is not None and not self._is_known_origin(origin.lower(), host.lower(), is_known):
            return HttpRefusal(
                403,
                "Forbidden: this Origin is not served; an operator can add it to "
                "http.allowed_origins or http.cors_origins",
                reason="origin_not_allowed",
            )
        return None

    def _is_known_host(self, host: str) -> bool:
        name = _without_port(host)
        if name is None:
            return False
        if host in self._allowed_hosts or name in self._allowed_hosts:
            return True
        if self._is_loopback:
            return name in LOOPBACK_NAMES or name == _in_url(self._bound_host)
        # A name that is an address was looked up nowhere, so nobody can have rebound it.
        return name == "localhost" or name == _in_url(self._bound_host) or _is_address(name)

    def _is_known_origin(self, origin: str, host: str, host_is_known: bool) -> bool:
        if _ANY in self._allowed_origins or origin in self._allowed_origins:
            return True
        scheme, separator, name = origin.partition("://")
        if not separator or scheme not in ("http", "https"):
            return False
        # A page of ours. Where every host is served, that its host is ours proves nothing.
        if host_is_known and name == host:
            return True
        return self._is_loopback and _without_port(name) in LOOPBACK_NAMES


def make_guard(config: HttpSection) -> Guard:
    """The guard that `config` asks for."""
    origins = (*config.allowed_origins, *config.cors_origins)
    return Guard(config.host.lower(), _lowered(config.allowed_hosts), _lowered(origins))


async def read_body(
    head: RequestHead, receive: Receive, settings: HttpSection
) -> bytes | HttpRefusal:
    """The body of a request, or why it is not waited for any longer (AUTH-22, AUTH-23).

    Raises:
        ClientGone: there is nobody left to answer.
    """
    max_bytes = settings.max_body_bytes
    length = head.content_length
    if length is not None and length.isdecimal() and int(length[:20]) > max_bytes:
        return _too_large(max_bytes)
    reading = _read(receive, max_bytes)
    try:
        waits_for = reading.send(None)
    except StopIteration as whole:
        # It had come with the head, as is the rule; a timeout would cost each request 7 us.
        body: bytes | HttpRefusal = whole.value
        return body
    try:
        async with asyncio.timeout(settings.body_timeout_ms / 1000):
            return await _go_on(reading, waits_for)
    except TimeoutError:
        return HttpRefusal(
            408,
            "Request timeout: the body did not come in time",
            reason="slow_body",
            headers=_CLOSE,
        )


async def _read(receive: Receive, max_bytes: int) -> bytes | HttpRefusal:
    chunks: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientGone
        chunk = event.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            return _too_large(max_bytes)
        if not event.get("more_body", False):
            return b"".join((*chunks, chunk)) if chunks else chunk
        chunks.append(chunk)


@coroutine
def _go_on(
    reading: Coroutine[Any, Any, bytes | HttpRefusal], waits_for: Any
) -> Generator[Any, Any, bytes | HttpRefusal]:
    """Await `reading`, whose first step was made and waits for something."""
    while True:
        resume: Callable[[Any], Any] = reading.send
        try:
            given = yield waits_for
        except BaseException as error:
            resume, given = reading.throw, error
        try:
            waits_for = resume(given)
        except StopIteration as done:
            return cast("bytes | HttpRefusal", done.value)


def with_security_headers(app: App) -> App:
    """`app` with the headers on every response that keep browsers from guessing (AUTH-24)."""

    # Neither is a coroutine function: each would be one more coroutine for every response.
    def secured(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return app(scope, receive, send)
        is_https = scope.get("scheme") == "https"
        added = SECURITY_HEADERS_OF_HTTPS if is_https else SECURITY_HEADERS

        def send_secured(event: Event) -> Awaitable[None]:
            if event["type"] == "http.response.start":
                event["headers"] = [*event.get("headers", ()), *added]
            return send(event)

        return app(scope, receive, send_secured)

    return secured


def with_cors(app: App, origins: Iterable[str]) -> App:
    """`app` for pages of `origins` too; as it is, if there are none (AUTH-25)."""
    allowed = [*origins]
    if not allowed:
        return app
    from starlette.middleware.cors import CORSMiddleware

    return CORSMiddleware(
        app,
        allow_origins=allowed,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=(_ANY,),  # the names of Mcp-Param-* are the tools' own
        expose_headers=EXPOSED_HEADERS,
    )


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _without_port(host: str) -> str | None:
    """`example.com` of `example.com:80`; None where there is no name, or more than a name."""
    found = _HOST.fullmatch(host)
    return None if found is None else found[1]


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _lowered(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


def _too_large(max_bytes: int) -> HttpRefusal:
    return HttpRefusal(
        413,
        f"Content too large: a body has at most {max_bytes} bytes",
        reason="body_too_large",
        headers=_CLOSE,
    )
