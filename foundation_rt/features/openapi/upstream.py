"""Sending requests to an API: one HTTP client, no cookies, no redirects to others (OAPI-31).

The client is httpx2's, or the application's own, which may be httpx's as well. It is made by the
first call, in the event loop of the calls, and closed with the server.
"""

from __future__ import annotations

import asyncio
import logging
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

from attrs import define, evolve, field

from ...base.abort import call_in_loop, is_task_cancelled
from ...errors import AbortError, ErrorCode, MissingExtraError, ToolError
from ...version import __version__
from .operations import is_http_url
from .requests import ApiRequest
from .responses import ApiResponse

if TYPE_CHECKING:
    from ...base.abort import AbortSignal

_CONNECT_SECONDS: Final = 10.0
_MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_CONNECTIONS: Final = 100


@define
class Upstream:
    """The HTTP side of an API.

    Args:
        client: an `httpx2.AsyncClient` of the application, which closes it; None: one is made.
        transport: of the client that is made; None for the network.
        headers: sent with every request.
    """

    client: Any = None
    transport: Any = None
    headers: dict[str, str] = field(factory=dict, repr=False)
    _own: Any = field(default=None, init=False)

    def _open(self) -> Any:
        if self.client is not None:
            hide_queries(self.client)
            return self.client
        if self._own is None:
            self._own = _make_client(self.transport)
            hide_queries(self._own)
        return self._own

    async def close(self) -> None:
        """Close the client, unless it is the application's."""
        own, self._own = self._own, None
        if own is not None:
            await own.aclose()

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
        client = self._open()
        for _ in range(_MAX_REDIRECTS):
            try:
                response = await self._once(client, request, max_bytes)
            except (OSError, ValueError, RuntimeError) as error:
                raise _unreachable(request, error) from None
            except ToolError:
                raise
            except Exception as error:
                if not _is_transport_error(error):
                    raise
                raise _unreachable(request, error) from None
            target = _redirect_target(request, response)
            if target is None:
                return response
            request = evolve(request, url=target)
        raise ToolError(
            ErrorCode.INTERNAL, "The API redirects in a circle.", {"reason": "redirected"}
        )

    async def _once(self, client: Any, request: ApiRequest, max_bytes: int) -> ApiResponse:
        headers = {**self.headers, **request.headers}
        built = client.build_request(
            request.method,
            request.url,
            headers={name: value.encode() for name, value in headers.items()},
            content=request.content,
        )
        response = await client.send(built, stream=True, follow_redirects=False)
        try:
            content = bytearray()
            async for piece in response.aiter_bytes():
                content += piece
                if len(content) > max_bytes:
                    raise _too_large(max_bytes)
        finally:
            await response.aclose()
        found = {name.lower(): value for name, value in response.headers.items()}
        return ApiResponse(response.status_code, found, bytes(content))


def require_client() -> None:
    """Raise if requests cannot be sent (ERR-11).

    Raises:
        MissingExtraError: the extra `openapi` is not installed.
    """
    if find_spec("httpx2") is None:
        raise MissingExtraError("Calling an HTTP API", "openapi")


def _make_client(transport: Any) -> Any:
    import httpx2

    # An answer to one user must not leave a cookie that the request of another one carries.
    no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
    limits = httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
    return httpx2.AsyncClient(
        transport=transport,
        timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS),  # calls have deadlines
        limits=limits,
        cookies=no_cookies,
        headers={"User-Agent": f"foundation-rt/{__version__}"},
    )


# -- failures ------------------------------------------------------------------------------------


def _is_transport_error(error: Exception) -> bool:
    """Return whether an error is one of the client's library, httpx2 or httpx."""
    return any(
        each.__name__ in ("HTTPError", "InvalidURL", "StreamError")
        and each.__module__.partition(".")[0].startswith("httpx")
        for each in type(error).__mro__
    )


def _unreachable(request: ApiRequest, error: BaseException) -> ToolError:
    where = origin_of(request.url)
    cause = type(error).__name__
    words = {
        "ConnectError": "nothing answers there: it refuses connections, or its name is unknown",
        "ConnectTimeout": f"it has not answered within {_CONNECT_SECONDS:.0f} s",
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
    is_same = is_http_url(target) and is_same_origin(target, request.url)
    if is_same and request.method == "GET":
        return target
    shown = origin_of(target) if is_http_url(target) else "no URL"
    raise ToolError(
        ErrorCode.INTERNAL,
        f"The API redirects this request to {shown}, which is not followed.",
        {"reason": "redirected", "status": response.status, "origin": shown},
    )


def origin_of(url: str) -> str:
    """Return the scheme, the host and the port of a URL."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def is_same_origin(url: str, other: str) -> bool:
    """Return whether two URLs have the same scheme, host and port."""
    return origin_of(url) == origin_of(other)


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
