"""Sending requests to an API: no cookies, no redirects to others (OAPI-31).

The HTTP client is ours, or the application's own: httpx2's or httpx's. Ours is made by the first
call, in the event loop of the calls, and closed with the server.
"""

from __future__ import annotations

import asyncio
import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urljoin

from attrs import define, evolve, field

from ...base.abort import call_in_loop, is_task_cancelled
from ...base.http_client.values import full_origin, same_origin
from ...errors import AbortError, ErrorCode, MissingExtraError, ToolError
from ...version import __version__
from .operations import is_http_url
from .requests import ApiRequest
from .responses import ApiResponse

if TYPE_CHECKING:
    from ...base.abort import AbortSignal
    from ...base.http_client.exchange import HttpConnections

_CONNECT_SECONDS: Final = 10.0
_MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_CONNECTIONS: Final = 100
_WITH_BODY: Final = ("POST", "PUT", "PATCH")


class ApiSender(Protocol):
    """Sends requests to an API."""

    async def send(self, request: ApiRequest, max_bytes: int) -> ApiResponse | None:
        """Return the response; None if it is longer than `max_bytes`.

        Raises:
            Exception: there is none; its class says why.
        """

    async def close(self) -> None:
        """Close all connections."""


@define
class Upstream:
    """The HTTP side of an API.

    Args:
        client: an `httpx2.AsyncClient` of the application, which closes it; None: ours is made.
        sender: instead of a client; None for the network.
        headers: sent with every request.
    """

    client: Any = None
    sender: ApiSender | None = None
    headers: dict[str, str] = field(factory=dict, repr=False)

    def _open(self) -> ApiSender:
        if self.sender is None:
            self.sender = _NetworkSender() if self.client is None else _ClientSender(self.client)
        return self.sender

    async def close(self) -> None:
        """Close the connections, unless they are the application's."""
        if self.sender is not None:
            await self.sender.close()

    async def send(self, request: ApiRequest, signal: AbortSignal, max_bytes: int) -> ApiResponse:
        """Return the response to a request.

        Args:
            request: to be sent.
            signal: ends the request when it fires.
            max_bytes: the longest body that is read.

        Raises:
            AbortError: `signal` has fired.
            ToolError: the API cannot be reached, or its response cannot be used.
        """
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        exchange = loop.create_task(self._exchange(request, max_bytes))
        remove = signal.add_callback(lambda: call_in_loop(loop, exchange.cancel))
        try:
            return await exchange
        except asyncio.CancelledError:
            if signal.aborted and not is_task_cancelled():
                raise AbortError(signal.reason) from None
            raise
        finally:
            remove()
            exchange.cancel()

    async def _exchange(self, request: ApiRequest, max_bytes: int) -> ApiResponse:
        sender = self._open()
        request = evolve(request, headers={**self.headers, **request.headers})
        for _ in range(_MAX_REDIRECTS):
            try:
                response = await sender.send(request, max_bytes)
            except Exception as error:
                if not _is_transport_error(error):
                    raise
                raise _unreachable(request, error) from None
            if response is None:
                raise _too_large(max_bytes)
            target = _redirect_target(request, response)
            if target is None:
                return response
            request = evolve(request, url=target)
        raise ToolError(
            ErrorCode.INTERNAL, "The API redirects in a circle.", {"reason": "redirected"}
        )


@define(eq=False)
class _NetworkSender:
    """Our client: at most 100 connections, which are kept while they are used."""

    _connections: HttpConnections | None = field(default=None, init=False)

    async def send(self, request: ApiRequest, max_bytes: int) -> ApiResponse | None:
        """See `ApiSender`."""
        from ...base.http_client.exchange import HttpConnections, OutgoingRequest
        from ...base.http_client.network import Network, RequestUrl

        if self._connections is None:
            self._connections = HttpConnections(Network(_CONNECT_SECONDS), _CONNECTIONS)
        url, content = RequestUrl.of(request.url), request.content or b""
        named = {b"host": url.authority, b"user-agent": _USER_AGENT, b"accept-encoding": b"gzip"}
        named |= {name.lower().encode(): text.encode() for name, text in request.headers.items()}
        headers = [*named.items()]
        if content or request.method in _WITH_BODY:
            headers.append((b"content-length", b"%d" % len(content)))
        connection = await self._connections.take(_CONNECT_SECONDS)
        try:
            sent = OutgoingRequest(request.method, url, headers, content)
            response = await connection.send(sent)
            try:
                body = await response.read(max_bytes, unpacks=True)
            finally:
                await response.aclose()
        finally:
            self._connections.give_back(connection)
        return None if body is None else ApiResponse(response.status_code, response.headers, body)

    async def close(self) -> None:
        """See `ApiSender`."""
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()


@define(eq=False)
class _ClientSender:
    """The client of the application."""

    client: Any

    def __attrs_post_init__(self) -> None:
        hide_queries(self.client)

    async def send(self, request: ApiRequest, max_bytes: int) -> ApiResponse | None:
        """See `ApiSender`."""
        built = self.client.build_request(
            request.method,
            request.url,
            headers={name: value.encode() for name, value in request.headers.items()},
            content=request.content,
        )
        response = await self.client.send(built, stream=True, follow_redirects=False)
        try:
            content = bytearray()
            async for piece in response.aiter_bytes():
                content += piece
                if len(content) > max_bytes:
                    return None
        finally:
            await response.aclose()
        found = {name.lower(): value for name, value in response.headers.items()}
        return ApiResponse(response.status_code, found, bytes(content))

    async def close(self) -> None:
        """See `ApiSender`: the application closes it."""


_USER_AGENT: Final = b"foundation-rt/" + __version__.encode()


def require_client() -> None:
    """Raise if requests cannot be sent (ERR-11).

    Raises:
        MissingExtraError: the extra `openapi` is not installed.
    """
    if find_spec("httptools") is None:
        raise MissingExtraError("Calling an HTTP API", "openapi")


# -- failures ------------------------------------------------------------------------------------


def _is_transport_error(error: Exception) -> bool:
    """Return whether an error is one of HTTP: ours is an `OSError`; else httpx2's or httpx's."""
    return isinstance(error, OSError | ValueError | RuntimeError) or any(
        each.__name__ in ("HTTPError", "InvalidURL", "StreamError")
        and each.__module__.partition(".")[0].startswith("httpx")
        for each in type(error).__mro__
    )


def _unreachable(request: ApiRequest, error: BaseException) -> ToolError:
    where = full_origin(request.url)
    cause = type(error).__name__
    words = {
        "ConnectError": "nothing answers there: it refuses connections, or its name is unknown",
        "ConnectTimeout": f"it has not answered within {_CONNECT_SECONDS:.0f} s",
        "BrokenOffError": "the connection was lost, or brought what is no HTTP",
        "PackedError": "its response cannot be decoded",
        "RemoteProtocolError": "it ended the connection, or sent what is no HTTP",
        "ReadError": "the connection was lost",
        "DecodingError": "its response cannot be decoded",
    }
    return ToolError(
        ErrorCode.INTERNAL,
        f"The API at {where} could not be used: {words.get(cause, cause)}.",
        {"reason": "upstream_unreachable", "cause": cause},
    )


def _too_large(max_bytes: int) -> ToolError:
    return ToolError(
        ErrorCode.INTERNAL,
        f"The response of the API is larger than {max_bytes} bytes, of which no more are read:"
        " ask for fewer results.",
        {"reason": "result_too_large", "maxResponseBytes": max_bytes},
    )


def _redirect_target(request: ApiRequest, response: ApiResponse) -> str | None:
    """Return where a request for a document goes on; None if the response is the last (OAPI-32).

    Raises:
        ToolError: it leads to another origin, or is of a request that changes something.
    """
    location = response.headers.get("location")
    if response.status not in _REDIRECTS or location is None:
        return None
    try:
        target = urljoin(request.url, location)
    except ValueError:
        target = ""  # no URL, such as http://[x
    is_same = is_http_url(target) and same_origin(target, request.url)
    if is_same and request.method == "GET":
        return target
    shown = full_origin(target) if is_http_url(target) else "no URL"
    raise ToolError(
        ErrorCode.INTERNAL,
        f"The API redirects this request to {shown}, which is not followed.",
        {"reason": "redirected", "status": response.status, "origin": shown},
    )


# -- logs ----------------------------------------------------------------------------------------


class _HidesQueries(logging.Filter):
    """Keeps the queries of URLs, which can have keys, out of the records of an HTTP library."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(
                str(each).partition("?")[0] if type(each).__name__ == "URL" else each
                for each in record.args
            )
        return True


_hides_queries = _HidesQueries()


def hide_queries(client: Any) -> None:
    """Keep queries out of what the library of a client logs (OAPI-28)."""
    for kind in type(client).__mro__:
        name = kind.__module__.partition(".")[0]
        if name.startswith("httpx"):
            logging.getLogger(name).addFilter(_hides_queries)
