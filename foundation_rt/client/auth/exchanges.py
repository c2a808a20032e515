"""Requests to authorization servers, over the client's own HTTP (CAUTH-11).

Each is bounded in time and size, follows no redirect, keeps no cookie, and has a connection of its
own. A failure of the connection is a `ConnectionLostError`, which says nothing about credentials.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import httpcore2
import httpx2
import orjson
from attrs import define, field, frozen

from ...version import __version__
from ..errors import ConnectionLostError
from ..transports.http1 import OutgoingRequest
from ..transports.http_connections import connection_maker, core_url
from ..transports.http_network import Network
from ..transports.http_wire import CONNECT_TIMEOUT, HttpResponse, read_body
from .urls import host_of

METADATA_TIMEOUT: Final = 10.0
"""Seconds for a document of metadata."""

TOKEN_TIMEOUT: Final = 30.0
"""Seconds for a token, a registration, and whatever else a server has to store."""

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
MAX_METADATA_BYTES: Final = 64 * 1024
MAX_ANSWER_BYTES: Final = 256 * 1024


@frozen
class AuthResponse:
    """The response of an authorization server.

    Attributes:
        status: the status of HTTP.
        headers: the headers, by name in lower case.
        document: the body, parsed; None if it is no JSON, or too long.
    """

    status: int
    headers: Mapping[str, str]
    document: Any = field(repr=False)

    @property
    def error(self) -> str | None:
        """The `error` of an answer that refuses (RFC 6749, 5.2)."""
        found = self.document.get("error") if isinstance(self.document, dict) else None
        return found if isinstance(found, str) else None


class Exchanges(Protocol):
    """Sends requests to authorization servers."""

    async def get(self, url: str) -> AuthResponse:
        """Return a document of metadata.

        Raises:
            ConnectionLostError: there is no answer.
        """

    async def post(
        self, url: str, body: Mapping[str, str] | bytes, headers: Mapping[str, str]
    ) -> AuthResponse:
        """Return the answer to a form, or to JSON.

        Raises:
            ConnectionLostError: there is no answer.
        """


@define(eq=False)
class AuthExchanges:
    """`Exchanges` over HTTP.

    Args:
        metadata_timeout: seconds for a document.
        token_timeout: seconds for any other answer.
        max_answer_bytes: the most bytes of one.
        network: makes the connections; None: through the environment's proxy, if any.
    """

    metadata_timeout: float = METADATA_TIMEOUT
    token_timeout: float = TOKEN_TIMEOUT
    max_answer_bytes: int = MAX_ANSWER_BYTES
    network: Network | None = None
    _make_context: Callable[[], ssl.SSLContext] = field(
        factory=lambda: cache(httpx2.create_ssl_context), init=False, repr=False
    )

    async def get(self, url: str, headers: Mapping[str, str] = NO_HEADERS) -> AuthResponse:
        """See `Exchanges`; `headers` go with the request."""
        async with self._within(self.metadata_timeout, url):
            return await self._exchange(url, "GET", b"", headers, MAX_METADATA_BYTES)

    async def post(
        self, url: str, body: Mapping[str, str] | bytes, headers: Mapping[str, str]
    ) -> AuthResponse:
        """See `Exchanges`."""
        kind = "application/json" if isinstance(body, bytes) else _FORM
        sent = body if isinstance(body, bytes) else urlencode(body).encode("ascii")
        named = {"content-type": kind, **headers}
        async with self._within(self.token_timeout, url):
            return await self._exchange(url, "POST", sent, named, self.max_answer_bytes)

    @asynccontextmanager
    async def _within(self, seconds: float, url: str) -> AsyncIterator[None]:
        """Bound the time of the block, and raise `ConnectionLostError` for failures of HTTP."""
        try:
            async with asyncio.timeout(seconds):
                yield
            return
        except (TimeoutError, httpcore2.TimeoutException):
            what = f"{host_of(url)} did not answer within {seconds:g} s"
        except (
            *(httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.ProxyError),
            *(httpx2.InvalidURL, UnicodeError),  # a host that cannot be one
        ):
            what = f"there is no connection to {host_of(url)}"
        raise ConnectionLostError(what, may_have_run=False) from None

    async def _exchange(
        self, url: str, method: str, body: bytes, headers: Mapping[str, str], most: int
    ) -> AuthResponse:
        parsed = httpx2.URL(url)
        named = {
            "user-agent": f"foundation-rt/{__version__}",
            "accept": "application/json",
            "accept-encoding": "identity",
            **headers,
        }
        raw = [(name.encode("ascii"), value.encode("ascii")) for name, value in named.items()]
        raw.insert(0, (b"host", parsed.netloc))
        if method == "POST":
            raw.append((b"content-length", b"%d" % len(body)))
        connection = connection_maker(url, CONNECT_TIMEOUT, self.network, self._make_context)()
        try:
            request = OutgoingRequest(method, core_url(parsed), raw, body)
            response = HttpResponse.of(await connection.send(request))
            try:
                document = None if response.is_packed else await read_body(response, most)
            finally:
                await response.aclose()
        finally:
            await connection.aclose()
        parsed_body = _parsed(document) if isinstance(document, bytes) else None
        return AuthResponse(response.status_code, response.headers, parsed_body)


_FORM = "application/x-www-form-urlencoded"


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except ValueError:
        return None
