"""One HTTP request, and its failures, over the HTTP client of `base/http_client`."""

from __future__ import annotations

import logging
import ssl
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, cast
from urllib.parse import urldefrag, urljoin

import orjson
from attrs import define, field

from ...base.http_client.errors import (
    ConnectTimeout,
    EnvironmentRefused,
    HttpError,
    PackedError,
    ProxyError,
    UnsendableError,
)
from ...base.http_client.exchange import (
    HttpConnections,
    HttpResponse,
    HttpSender,
    OutgoingRequest,
)
from ...base.http_client.network import CONNECT_SECONDS, Network, RequestUrl
from ...base.http_client.values import read_retry_after, readable_url, same_origin
from ...errors import UsageError
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
from .http_headers import EVENTS_TYPE, JSON_TYPE, common_headers
from .redaction import Secrets

if TYPE_CHECKING:
    from httpx2 import Auth

    from ...base.http_client.connection import RawHeaders
    from ..auth.authorizer import Authorizer

log = logging.getLogger("foundation_rt.client")

_MAX_REFUSAL = 64 * 1024  # bytes of the body of an error response


def is_json(response: HttpResponse) -> bool:
    """Return whether the media type of a response is JSON."""
    return response.media_type == JSON_TYPE


def is_events(response: HttpResponse) -> bool:
    """Return whether the media type of a response is an event stream."""
    return response.media_type == EVENTS_TYPE


async def read_body(response: HttpResponse, max_bytes: int) -> bytes | LineTooLong:
    """Return the body of a response; nothing of a body that is too long."""
    body = await response.read(max_bytes)
    return LineTooLong(max_bytes) if body is None else body


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

ACKNOWLEDGE_TIMEOUT = 30.0
"""Seconds that a server has to accept a notification or a response."""

_SAME_REQUEST_ELSEWHERE = (307, 308)  # these keep method and body


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
    _url: str = field(init=False)
    _target: RequestUrl = field(init=False)
    _common: RawHeaders = field(init=False)
    _connections: HttpConnections = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._url = self.server.url
        self._common = common_headers(self.server.url, self.server.headers)
        of_tokens = tuple if self.authorizer is None else self.authorizer.secrets
        self.secrets = Secrets.of(self.server.url, self._common, of_tokens)
        network = Network()
        try:
            self._target = RequestUrl.of(self._url)
            network.prepare(self._target)
        except (UnsendableError, EnvironmentRefused) as error:
            raise ConnectionLostError(str(error), may_have_run=False) from None
        if not any(name == b"host" for name, _ in self._common):
            self._common.insert(0, (b"host", self._target.authority))
        self._connections = HttpConnections(network, MAX_CONNECTIONS)

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
        connection: HttpSender,
        method: str,
        headers: RawHeaders,
        body: bytes,
        url: str | None,
        may_login: bool,
    ) -> HttpResponse:
        """Send a request over a connection; see `exchange`."""
        at = self._url if url is None else url
        target = self._target if url is None else RequestUrl.of(url)
        request = OutgoingRequest(method, target, self._common + headers, body)
        response = await self._send(connection, request, may_login)
        place = self._redirect_target(response, at)
        if place is not None:
            await finish(response)
            request.url = RequestUrl.of(place)
            response = await self._send(connection, request, may_login)
            if url is None and not 300 <= response.status_code < 400:
                self._url, self._target = place, request.url
        return response

    async def take_connection(self) -> HttpSender:
        """Return a connection for one exchange; wait while all are in use.

        Raises:
            ConnectionLostError: they still are.
        """
        try:
            return await self._connections.take(CONNECT_SECONDS)
        except TimeoutError:
            what = f"all {MAX_CONNECTIONS:,} connections to the server are in use"
            raise ConnectionLostError(what, may_have_run=False) from None

    def give_back(self, connection: HttpSender) -> None:
        """Take back a connection whose exchange is over."""
        self._connections.give_back(connection)

    def explain(self, error: BaseException) -> MCPError | None:
        """Return the error for a failure of HTTP; None for anything else."""
        if isinstance(error, PackedError):
            return InvalidResponseError(str(error))
        if not isinstance(error, HttpError):
            return None
        if isinstance(error, EnvironmentRefused):
            return ConnectionLostError(str(error), may_have_run=False)
        if isinstance(error, UnsendableError):
            return ConnectionLostError("the request cannot be sent over HTTP", may_have_run=False)
        if not error.may_have_arrived:
            return self._unsent(error)
        what = f"the connection broke off: {str(error) or type(error).__name__}"
        return ConnectionLostError(what, may_have_run=True)

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

    def _redirect_target(self, response: HttpResponse, target: str) -> str | None:
        """Return the URL of a redirect to follow; None if there is none (CHTTP-34)."""
        if response.status_code not in _SAME_REQUEST_ELSEWHERE:
            return None
        try:
            place = urldefrag(urljoin(target, response.headers.get("location", ""))).url
        except ValueError:
            return None
        # Another origin must not get the tokens.
        return place if place != target and same_origin(target, place) else None

    def _redirect(self, response: HttpResponse) -> MCPError:
        """Return the error for a redirect that is not followed (CHTTP-14)."""
        try:
            target = urljoin(self._url, response.headers.get("location", ""))
        except ValueError:
            target = ""
        place = self.secrets.redact(readable_url(target))[:500] or "what is no address"
        error = InvalidResponseError(
            f"the server redirects to {place}; one redirect is followed, with status 307 or 308 "
            "and to the same scheme, host and port",
            may_have_run=False,
            data={"status": response.status_code},
        )
        error.suggested_action = "Correct the URL of the server."
        return error

    def _unsent(self, error: Exception) -> MCPError:
        place = readable_url(self.server.url)
        if isinstance(error, ConnectTimeout):
            what = f"there was no connection to {place} within {CONNECT_SECONDS:g} s"
        elif isinstance(error, ProxyError):
            what = f"the proxy refused the connection to {place}"
        else:
            what = f"there is no connection to {place}: {str(error) or type(error).__name__}"
        lost = ConnectionLostError(what, may_have_run=False)
        if _is_untrusted(error):
            lost.retryable = False
            lost.suggested_action = (
                "Name the authority of the server's certificate in SSL_CERT_FILE."
            )
        return lost

    async def _send(
        self, connection: HttpSender, request: OutgoingRequest, may_login: bool
    ) -> HttpResponse:
        auth = self.server.auth
        if auth is None:
            return await connection.send(request)
        if self.authorizer is not None:
            try:
                return await _send_authorized(request, connection, self.authorizer, may_login)
            except UsageError as error:  # the store of the tokens cannot be used
                raise AuthorizationError(str(error), "Then run it again.") from None
        from .httpx_auth import send_authenticated

        try:
            return await send_authenticated(request, connection, cast("Auth", auth))
        except HttpError:
            raise
        except Exception as error:
            what = place_of(error)
            log.error("authentication failed: %s", what)
            raise ConnectionLostError(f"authentication failed: {what}", may_have_run=True) from None


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
    _connection: HttpSender = field(init=False)
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


async def _send_authorized(
    request: OutgoingRequest, connection: HttpSender, authorizer: Authorizer, may_login: bool
) -> HttpResponse:
    """Return the response to a request with a token, sent again as long as that helps."""
    turn = authorizer.turn(may_login)
    while True:
        headers = await authorizer.headers(turn, request.method, request.url)
        sent = OutgoingRequest(request.method, request.url, request.headers + headers, request.body)
        response = await connection.send(sent)
        try:
            if not await authorizer.refused(turn, response.status_code, response.headers):
                return response
        except BaseException:
            await response.aclose()
            raise
        await response.aclose()
