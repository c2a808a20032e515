"""One request over HTTP, and what can go wrong with it.

httpx2's transport is used without its client: that one keeps cookies, would follow redirects and
logs whole addresses, of which nothing is wanted here, and costs a fifth more time for each request
(0.86 against 0.68 ms at the median, a call of our own server included).
"""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING
from urllib.request import getproxies, proxy_bypass

import orjson
from attrs import define, field

from ...errors import MissingExtraError, UsageError
from ...protocol.framing import LineTooLong
from ..failing.error_mapping import map_http_status
from ..failing.errors import ConnectionLostError, InvalidResponseError, MCPError
from ..failing.mistakes import place_of
from .headers import (
    EVENTS_TYPE,
    JSON_TYPE,
    RawHeaders,
    common_headers,
    describe,
    media_type,
    read_retry_after,
    split_url,
)
from .http_connections import Connections
from .http_server import HttpServer
from .redaction import Secrets

try:
    import httpx2
except ImportError:
    raise MissingExtraError("A server over HTTP", "client") from None

if TYPE_CHECKING:
    from httpx2 import AsyncHTTPTransport, Auth, Request, Response

log = logging.getLogger("foundation_rt.client")

MAX_CONNECTIONS = 1_000
"""Open to one server at one time."""

CONNECT_TIMEOUT = 10.0
"""Seconds, for a connection and its TLS handshake; and for a free place among the connections."""

ACKNOWLEDGE_TIMEOUT = 30.0
"""Seconds that a server has to take a message that nobody waits for an answer to."""

# What servers close after 5 s of silence, as uvicorn and Node.js do, must not be used again after
# that: a request that meets the closing may have run or not, and nobody knows.
_KEEP_ALIVE = 4.0  # seconds
_MAX_REFUSAL = 64 * 1024  # bytes of a body that says why not
_TIMEOUTS = {"connect": CONNECT_TIMEOUT, "read": None, "write": None, "pool": None}

# Raised before anything was sent; everything else may come after the request has arrived.
_UNSENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)


@define(eq=False, repr=False)
class HttpWire:
    """Sends requests to one server; what fails is an `MCPError`.

    Attributes:
        secrets: what every request says and no message may repeat.

    Raises:
        ConnectionLostError: the proxy, or the certificates, that the environment names are none.
    """

    server: HttpServer
    secrets: Secrets = field(init=False)
    _url: httpx2.URL = field(init=False)
    _common: RawHeaders = field(init=False)
    _connections: Connections = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._url = httpx2.URL(self.server.url)
        self._common = common_headers(self.server.url, self.server.headers)
        self.secrets = Secrets.of(self.server.url, self._common)
        if not any(name == b"host" for name, _ in self._common):
            self._common.insert(0, (b"host", self._url.netloc))
        make = _transport_maker(self.server.url)
        self._connections = Connections(make, MAX_CONNECTIONS, _KEEP_ALIVE)

    @asynccontextmanager
    async def exchange(
        self, method: str, headers: RawHeaders, body: bytes = b"", url: str | None = None
    ) -> AsyncIterator[Response]:
        """Send a request; the response, as soon as its head is there. It is closed at the end.

        Args:
            url: of the same origin as the server's; that one if None.

        Raises:
            MCPError: there is none, or it broke off while it was read.
        """
        request = httpx2.Request(
            method,
            self._url if url is None else httpx2.URL(url),
            headers=httpx2.Headers(self._common + headers),
            stream=httpx2.ByteStream(body),
            extensions={"timeout": _TIMEOUTS},
        )
        transport = await self._free_connection()
        try:
            response = await self._send(request, transport)
            try:
                yield response
            finally:
                await response.aclose()
        except _UNSENT as error:
            raise _unsent(error) from None
        except httpx2.LocalProtocolError:
            # Its text may repeat the value of a header.
            raise ConnectionLostError(
                "the request cannot be sent over HTTP", may_have_run=False
            ) from None
        except httpx2.HTTPError as error:
            raise ConnectionLostError(
                f"the connection broke off: {_text(error)}", may_have_run=True
            ) from None
        finally:
            self._connections.give_back(transport)

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.close()

    def refusal(self, response: Response, body: bytes | LineTooLong) -> MCPError:
        """What a status of 300 or more means whose body is no answer (CHTTP-16, CHTTP-17)."""
        status = response.status_code
        if 300 <= status < 400:
            return self._redirect(response)
        retry_after = read_retry_after(response.headers.get("retry-after"), time.time())
        detail = "" if isinstance(body, LineTooLong) else _detail(response, body)
        return map_http_status(status, retry_after=retry_after, detail=self.secrets.redact(detail))

    def _redirect(self, response: Response) -> MCPError:
        """Followed, it would carry tokens to wherever it leads (CHTTP-17)."""
        try:
            target = str(self._url.join(response.headers.get("location", "")))
            place = self.secrets.redact(describe(target))[:500]
        except (ValueError, httpx2.InvalidURL, UsageError):
            place = "what is no address"
        return InvalidResponseError(
            f"the server redirects to {place}; redirects are not followed",
            may_have_run=False,
            data={"status": response.status_code},
        )

    async def _free_connection(self) -> AsyncHTTPTransport:
        try:
            return await self._connections.take(CONNECT_TIMEOUT)
        except TimeoutError:
            what = f"all {MAX_CONNECTIONS:,} connections to the server are in use"
            raise ConnectionLostError(what, may_have_run=False) from None

    async def _send(self, request: Request, transport: AsyncHTTPTransport) -> Response:
        auth = self.server.auth
        if auth is None:
            return await transport.handle_async_request(request)
        try:
            return await _send_authenticated(request, transport, auth)
        except httpx2.HTTPError:
            raise
        except Exception as error:
            what = place_of(error)
            log.error("authentication failed: %s", what)
            raise ConnectionLostError(f"authentication failed: {what}", may_have_run=True) from None


async def _send_authenticated(
    request: Request, transport: AsyncHTTPTransport, auth: Auth
) -> Response:
    flow = auth.async_auth_flow(request)
    try:
        request = await anext(flow)
        while True:
            response = await transport.handle_async_request(request)
            response.request = request
            try:
                request = await flow.asend(response)
            except StopAsyncIteration:
                return response
            except BaseException:
                await response.aclose()
                raise
            await response.aclose()
    finally:
        await flow.aclose()


def is_json(response: Response) -> bool:
    """Whether a response says that its body is JSON."""
    return media_type(response.headers.get("content-type")) == JSON_TYPE


def is_events(response: Response) -> bool:
    """Whether a response says that its body is a stream of events."""
    return media_type(response.headers.get("content-type")) == EVENTS_TYPE


def chunks_of(response: Response) -> AsyncIterator[bytes]:
    """The body of a response as it comes, nothing unpacked (CHTTP-14).

    A few bytes can unpack to gigabytes; meanwhile the event loop would stand still.

    Raises:
        InvalidResponseError: it is packed, though no request allows that.
    """
    if _is_packed(response):
        raise InvalidResponseError("the response is packed (Content-Encoding), though none may be")
    return response.aiter_raw()


async def read_body(response: Response, max_bytes: int) -> bytes | LineTooLong:
    """The body of a response; of one that is longer nothing is kept.

    Raises:
        InvalidResponseError: it is packed.
    """
    chunks: list[bytes] = []
    size = 0
    async for chunk in chunks_of(response):
        size += len(chunk)
        if size > max_bytes:
            return LineTooLong(max_bytes)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def read_refusal(response: Response) -> bytes | LineTooLong:
    """The body of a response that says why not; its status counts even if that is packed."""
    return b"" if _is_packed(response) else await read_body(response, _MAX_REFUSAL)


def _is_packed(response: Response) -> bool:
    encoding: str = response.headers.get("content-encoding", "identity")
    return encoding.strip().lower() != "identity"


def _transport_maker(url: str) -> Callable[[], AsyncHTTPTransport]:
    """Makes transports of one connection each, with what the environment names.

    Raises:
        ConnectionLostError: its proxy or its certificates cannot be used.
    """
    parts = split_url(url)
    proxy = _proxy(parts.scheme, parts.hostname or "")
    # Reading the certificates of all authorities takes 20 ms. Without any nothing is trusted, and
    # without TLS nothing has to be.
    needs_tls = parts.scheme == "https" or proxy is not None
    try:
        make = partial(
            httpx2.AsyncHTTPTransport,
            verify=httpx2.create_ssl_context()
            if needs_tls
            else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            limits=httpx2.Limits(max_connections=1, keepalive_expiry=_KEEP_ALIVE),
            proxy=proxy,
            socket_options=_socket_options(),
        )
        make()
    except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
        # A proxy's address may hold a password, so it is not repeated.
        raise ConnectionLostError(
            "the proxy or the certificates that the environment names cannot be used"
            f" ({type(error).__name__})",
            may_have_run=False,
        ) from None
    return make


def _proxy(scheme: str, host: str) -> str | None:
    """The proxy that the environment names for a server: `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`."""
    proxies = getproxies()
    proxy = None if proxy_bypass(host) else proxies.get(scheme, proxies.get("all"))
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy or None


def _socket_options() -> list[tuple[int, int, int]]:
    """A stream may be silent for hours: the system asks whether its other end is still there.

    After a minute without a sign of life four times, every 15 s; so a peer whose machine has gone
    is noticed within two minutes.
    """
    found = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    wanted = {"TCP_KEEPIDLE": 60, "TCP_KEEPALIVE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
    for name, value in wanted.items():
        option = getattr(socket, name, None)  # two systems have two names for the first
        if option is not None:
            found.append((socket.IPPROTO_TCP, option, value))
    return found


def _unsent(error: httpx2.HTTPError) -> MCPError:
    if isinstance(error, httpx2.ConnectTimeout):
        what = f"there was no connection within {CONNECT_TIMEOUT:g} s"
    elif isinstance(error, httpx2.ProxyError):
        what = "the proxy refused the connection"  # what it says is not ours to repeat
    else:
        what = f"there is no connection: {_text(error)}"
    lost = ConnectionLostError(what, may_have_run=False)
    if _is_mistrust(error):
        lost.retryable = False
        lost.suggested_action = "Name the authority of the server's certificate in SSL_CERT_FILE."
    return lost


def _is_mistrust(error: BaseException | None) -> bool:
    """Whether there is no connection because the server's certificate is not trusted."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


def _detail(response: Response, body: bytes) -> str:
    """What a refusal says to a reader: its text, or the message of the error in it; no page."""
    kind = media_type(response.headers.get("content-type"))
    if kind == JSON_TYPE:
        with suppress(ValueError, TypeError, LookupError):
            return str(orjson.loads(body)["error"]["message"])
    if kind not in ("text/plain", JSON_TYPE):
        return ""
    return body.decode("utf-8", "replace")


def _text(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, httpx2.RemoteProtocolError):
        # "illegal status line: ...": what was sent, which may be our own head with its token.
        return text.partition(":")[0]
    return text
