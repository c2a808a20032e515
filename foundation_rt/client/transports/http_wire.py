"""One HTTP request, and its failures.

httpx2's client is not used: it keeps cookies, follows redirects and logs whole URLs. Requests and
responses are httpx2's only where its `auth` has to see them.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import orjson
from attrs import define, field

from ...base.shown import Shown
from ...errors import MissingExtraError, UsageError
from ...protocol.framing import LineTooLong
from ..errors import (
    AuthorizationError,
    ConnectionLostError,
    InvalidResponseError,
    MCPError,
    place_of,
)
from ..resilience.error_mapping import map_http_status
from ..targets import HttpServer
from .http_headers import (
    EVENTS_TYPE,
    JSON_TYPE,
    RawHeaders,
    common_headers,
    describe,
    media_type,
    read_retry_after,
    same_origin,
)
from .redaction import Secrets

try:
    import httpcore2
    import httpx2
except ImportError:
    raise MissingExtraError("A server over HTTP", "client") from None

from .http1 import OutgoingRequest
from .http_connections import (
    KEEP_ALIVE,
    HttpConnection,
    HttpConnections,
    ReceivedResponse,
    connection_maker,
    core_url,
)

if TYPE_CHECKING:
    from ..auth.authorizer import Authorizer

log = logging.getLogger("foundation_rt.client")

_MAX_REFUSAL = 64 * 1024  # bytes of the body of an error response


@define(eq=False, repr=False)
class HttpResponse(Shown):
    """The head of a response, with access to its body.

    Attributes:
        status_code: of the response.
        headers: by name in lower case; those of one name are joined by commas.
    """

    status_code: int
    headers: dict[str, str]
    _received: ReceivedResponse

    @classmethod
    def of(cls, received: ReceivedResponse) -> HttpResponse:
        """Return the response whose head has come."""
        return cls(received.status, _by_name(received.headers), received)

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the body as it arrives, never decompressed (CHTTP-14).

        A few bytes can decompress to gigabytes, which would block the event loop.

        Raises:
            InvalidResponseError: it is compressed, which no request allows.
        """
        if self.is_packed:
            raise InvalidResponseError(
                "the response is packed (Content-Encoding), though none may be"
            )
        return self._received.aiter_stream()

    @property
    def is_packed(self) -> bool:
        """Return whether the body is compressed, or otherwise encoded."""
        return self.headers.get("content-encoding", "identity").strip().lower() != "identity"

    @property
    def media_type(self) -> str:
        """The media type of the body; empty if the response has none."""
        return media_type(self.headers.get("content-type"))

    async def aclose(self) -> None:
        """End the exchange; the connection is closed unless the body was read to its end."""
        await self._received.aclose()

    async def close_connection(self) -> None:
        """Close the connection, even if the body was not read."""
        stream: Any = self._received.extensions.get("network_stream")
        if stream is not None:
            await stream.aclose()


def _by_name(raw: RawHeaders) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw_name, value in raw:
        name, text = raw_name.decode("latin-1").lower(), value.decode("latin-1")
        found[name] = f"{found[name]}, {text}" if name in found else text
    return found


def is_json(response: HttpResponse) -> bool:
    """Return whether the media type of a response is JSON."""
    return response.media_type == JSON_TYPE


def is_events(response: HttpResponse) -> bool:
    """Return whether the media type of a response is an event stream."""
    return response.media_type == EVENTS_TYPE


async def read_body(response: HttpResponse, max_bytes: int) -> bytes | LineTooLong:
    """Return the body of a response; nothing of a body that is too long.

    Raises:
        InvalidResponseError: it is compressed.
    """
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.chunks():
        size += len(chunk)
        if size > max_bytes:
            return LineTooLong(max_bytes)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def read_refusal(response: HttpResponse) -> bytes | LineTooLong:
    """Return the body of an error response; empty if it is compressed."""
    return b"" if response.is_packed else await read_body(response, _MAX_REFUSAL)


async def finish(response: HttpResponse) -> None:
    """Read and drop a response, so that its connection can be kept."""
    try:
        await read_refusal(response)
    finally:
        await response.aclose()


def detail(response: HttpResponse, body: bytes) -> str:
    """Return the text of an error response, or the message of its error; no HTML."""
    kind = response.media_type
    if kind in (JSON_TYPE, ""):
        with suppress(ValueError, TypeError, LookupError):
            return str(orjson.loads(body)["error"]["message"])
    if kind not in ("text/plain", JSON_TYPE, "") or (not kind and body.lstrip().startswith(b"<")):
        return ""
    return body.decode("utf-8", "replace")


MAX_CONNECTIONS = 1_000
"""Most open connections to one server, streams that listen included."""

CONNECT_TIMEOUT = 10.0
"""Seconds for a connection and its TLS handshake, and to wait for a free connection."""

ACKNOWLEDGE_TIMEOUT = 30.0
"""Seconds that a server has to accept a notification or a response."""

_SAME_REQUEST_ELSEWHERE = (307, 308)  # these keep method and body

# Raised before anything was sent; all others may come after the request has arrived.
_UNSENT = (
    httpcore2.ConnectError,
    httpcore2.ConnectTimeout,
    httpcore2.ProxyError,
    httpcore2.UnsupportedProtocol,
)
_BROKEN = (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.RemoteProtocolError)


@define(eq=False, repr=False)
class HttpWire:
    """Sends requests to one server; a failure is an `MCPError`.

    Attributes:
        secrets: sent with every request; no message may repeat them.

    Raises:
        ConnectionLostError: the environment's proxy or certificates cannot be used.
    """

    server: HttpServer
    authorizer: Authorizer | None = None
    secrets: Secrets = field(init=False)
    _url: httpx2.URL = field(init=False)
    _target: httpcore2.URL = field(init=False)
    _common: RawHeaders = field(init=False)
    _connections: HttpConnections = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._url = httpx2.URL(self.server.url)
        self._target = core_url(self._url)
        self._common = common_headers(self.server.url, self.server.headers)
        of_tokens = tuple if self.authorizer is None else self.authorizer.secrets
        self.secrets = Secrets.of(self.server.url, self._common, of_tokens)
        if not any(name == b"host" for name, _ in self._common):
            self._common.insert(0, (b"host", self._url.netloc))
        make = connection_maker(self.server.url, CONNECT_TIMEOUT)
        self._connections = HttpConnections(make, MAX_CONNECTIONS, KEEP_ALIVE)

    def exchange(
        self,
        method: str,
        headers: RawHeaders,
        body: bytes = b"",
        url: str | None = None,
        *,
        may_login: bool = False,
    ) -> HttpExchange:
        """Return a block that sends a request, and has the response as soon as its head is there.

        One redirect to the same origin is followed, and used for the rest of the session. The
        response is closed at the end. The block raises an `MCPError` if there is no response, or
        the connection breaks.

        Args:
            method: of HTTP.
            headers: beside the common ones.
            body: of the request.
            url: of the same origin as the server's; None: that one.
            may_login: whether a person may be asked to log in for it.
        """
        return HttpExchange(self, method, headers, body, url, may_login)

    async def request(
        self,
        connection: HttpConnection,
        method: str,
        headers: RawHeaders,
        body: bytes,
        url: str | None,
        may_login: bool,
    ) -> HttpResponse:
        """Send a request over a connection; see `exchange`."""
        at = self._url if url is None else httpx2.URL(url)
        target = self._target if url is None else core_url(at)
        response = await self._send(connection, method, target, headers, body, may_login)
        place = self._redirect_target(response, at)
        if place is not None:
            await finish(response)
            target = core_url(place)
            response = await self._send(connection, method, target, headers, body, may_login)
            if url is None and not 300 <= response.status_code < 400:
                self._url, self._target = place, target
        return response

    async def take_connection(self) -> HttpConnection:
        """Return a connection for one exchange; wait while all are in use.

        Raises:
            ConnectionLostError: they still are.
        """
        try:
            return await self._connections.take(CONNECT_TIMEOUT)
        except TimeoutError:
            what = f"all {MAX_CONNECTIONS:,} connections to the server are in use"
            raise ConnectionLostError(what, may_have_run=False) from None

    def give_back(self, connection: HttpConnection) -> None:
        """Take back a connection whose exchange is over."""
        self._connections.give_back(connection)

    def explain(self, error: BaseException) -> MCPError | None:
        """Return the error for a failure of HTTP; None for anything else."""
        if isinstance(error, _UNSENT):
            return self._unsent(error)
        if isinstance(error, httpcore2.LocalProtocolError):
            # Its text may repeat the value of a header.
            return ConnectionLostError("the request cannot be sent over HTTP", may_have_run=False)
        if isinstance(error, _BROKEN):
            what = f"the connection broke off: {_text(error)}"
            return ConnectionLostError(what, may_have_run=True)
        return None

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.close()

    def refusal(self, response: HttpResponse, body: bytes | LineTooLong) -> MCPError:
        """Return the error for a status of 300 or more without a JSON-RPC body (CHTTP-16, -17)."""
        status = response.status_code
        if 300 <= status < 400:
            return self._redirect(response)
        retry_after = read_retry_after(response.headers.get("retry-after"), time.time())
        said = "" if isinstance(body, LineTooLong) else detail(response, body)
        return map_http_status(status, retry_after=retry_after, detail=self.secrets.redact(said))

    def _redirect_target(self, response: HttpResponse, target: httpx2.URL) -> httpx2.URL | None:
        """Return the URL of a redirect to follow; None if there is none (CHTTP-34)."""
        if response.status_code not in _SAME_REQUEST_ELSEWHERE:
            return None
        try:
            place = target.join(response.headers.get("location", ""))
        except httpx2.InvalidURL:
            return None
        # Another origin must not get the tokens.
        return place if place != target and same_origin(str(target), str(place)) else None

    def _redirect(self, response: HttpResponse) -> MCPError:
        """Return the error for a redirect that is not followed (CHTTP-14)."""
        try:
            target = str(self._url.join(response.headers.get("location", "")))
            place = self.secrets.redact(describe(target))[:500]
        except (ValueError, httpx2.InvalidURL, UsageError):
            place = "what is no address"
        error = InvalidResponseError(
            f"the server redirects to {place}; one redirect is followed, with status 307 or 308 "
            "and to the same scheme, host and port",
            may_have_run=False,
            data={"status": response.status_code},
        )
        error.suggested_action = "Correct the URL of the server."
        return error

    def _unsent(self, error: Exception) -> MCPError:
        place = describe(self.server.url)
        if isinstance(error, httpcore2.ConnectTimeout):
            what = f"there was no connection to {place} within {CONNECT_TIMEOUT:g} s"
        elif isinstance(error, httpcore2.ProxyError):
            # The text of the proxy may hold secrets.
            what = f"the proxy refused the connection to {place}"
        else:
            what = f"there is no connection to {place}: {_text(error)}"
        lost = ConnectionLostError(what, may_have_run=False)
        if _is_untrusted(error):
            lost.retryable = False
            lost.suggested_action = (
                "Name the authority of the server's certificate in SSL_CERT_FILE."
            )
        return lost

    async def _send(
        self,
        connection: HttpConnection,
        method: str,
        target: httpcore2.URL,
        headers: RawHeaders,
        body: bytes,
        may_login: bool,
    ) -> HttpResponse:
        request = OutgoingRequest(method, target, self._common + headers, body)
        auth = self.server.auth
        if auth is None:
            return HttpResponse.of(await connection.send(request))
        if self.authorizer is not None:
            try:
                return await _send_authorized(request, connection, self.authorizer, may_login)
            except UsageError as error:  # the store of the tokens cannot be used
                raise AuthorizationError(str(error), "Then run it again.") from None
        try:
            received = await send_authenticated(request, connection, cast(httpx2.Auth, auth))
        except (*_UNSENT, *_BROKEN, httpcore2.LocalProtocolError):
            raise
        except Exception as error:
            what = place_of(error)
            log.error("authentication failed: %s", what)
            raise ConnectionLostError(f"authentication failed: {what}", may_have_run=True) from None
        return HttpResponse.of(received)


@define(eq=False, repr=False)
class HttpExchange:
    """A block with the response to one request; made by `HttpWire.exchange`.

    Every message comes here, and a generator for the block costs as much as what it does.
    """

    _wire: HttpWire
    _method: str
    _headers: RawHeaders
    _body: bytes
    _url: str | None
    _may_login: bool
    _connection: HttpConnection = field(init=False)
    _response: HttpResponse = field(init=False)

    async def __aenter__(self) -> HttpResponse:
        self._connection = connection = await self._wire.take_connection()
        try:
            self._response = await self._wire.request(
                connection, self._method, self._headers, self._body, self._url, self._may_login
            )
        except BaseException as error:
            self._wire.give_back(connection)
            self._raise_explained(error)
            raise
        return self._response

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._response.aclose()
        finally:
            self._wire.give_back(self._connection)
        if error is not None:
            self._raise_explained(error)

    def _raise_explained(self, error: BaseException) -> None:
        explained = self._wire.explain(error)
        if explained is not None:
            raise explained from None


def _is_untrusted(error: BaseException | None) -> bool:
    """Return whether the server's certificate is not trusted."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


def _text(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, httpcore2.RemoteProtocolError):
        # "illegal status line: ...": what was sent, which may be our own head with its token.
        return text.partition(":")[0]
    return text


async def _send_authorized(
    request: OutgoingRequest, connection: HttpConnection, authorizer: Authorizer, may_login: bool
) -> HttpResponse:
    """Return the response to a request with a token, sent again as long as that helps."""
    turn = authorizer.turn(may_login)
    while True:
        headers = await authorizer.headers(turn, request.method, request.url)
        sent = OutgoingRequest(request.method, request.url, request.headers + headers, request.body)
        response = HttpResponse.of(await connection.send(sent))
        try:
            if not await authorizer.refused(turn, response.status_code, response.headers):
                return response
        except BaseException:
            await response.aclose()
            raise
        await response.aclose()


@define(eq=False, repr=False)
class _Body(httpx2.AsyncByteStream):
    """The body of a response, for an `auth` that reads it."""

    received: ReceivedResponse

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self.received.aiter_stream():
            yield chunk

    async def aclose(self) -> None:
        await self.received.aclose()


async def send_authenticated(
    request: OutgoingRequest, connection: HttpConnection, auth: httpx2.Auth
) -> ReceivedResponse:
    """Return the response to a request that `auth` may change, precede and repeat.

    Args:
        request: to send first.
        connection: to send it over.
        auth: of httpx2.
    """
    flow = auth.async_auth_flow(
        httpx2.Request(
            request.method,
            str(httpx2.URL(bytes(request.url).decode("ascii"))),
            headers=httpx2.Headers(request.headers),
            stream=httpx2.ByteStream(request.body),
        )
    )
    try:
        wanted = await anext(flow)
        while True:
            received = await connection.send(await _plain_request(wanted))
            response = httpx2.Response(
                received.status,
                headers=received.headers,
                stream=_Body(received),
                extensions=dict(received.extensions),
                request=wanted,
            )
            try:
                wanted = await flow.asend(response)
            except StopAsyncIteration:
                return received
            except BaseException:
                await response.aclose()
                raise
            await response.aclose()
    finally:
        await flow.aclose()


async def _plain_request(request: httpx2.Request) -> OutgoingRequest:
    body = await request.aread()
    headers = [each for each in request.headers.raw if each[0].lower() not in _FRAMING]
    if body or request.method == "POST":
        headers.append((b"content-length", b"%d" % len(body)))
    return OutgoingRequest(request.method, core_url(request.url), headers, body)


_FRAMING = (b"content-length", b"transfer-encoding")
