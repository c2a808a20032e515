"""The connections to one server, direct or through a proxy: in use, or kept for the next request.

A direct one is a `DirectConnection`. Through a proxy each is an httpcore2 pool of one connection: a
larger pool looks at all of its connections twice for every request.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2
from attrs import define, field

from ..errors import ConnectionLostError
from .http1 import DirectConnection, OutgoingRequest
from .http_headers import RawHeaders, split_url
from .http_network import Network

KEEP_ALIVE: Final = 4.0
"""Seconds that an idle connection is kept.

Servers such as uvicorn and Node.js close a connection after 5 idle seconds. A request on a
connection that is being closed may or may not have run.
"""


class ReceivedResponse(Protocol):
    """A response whose head has come, as httpcore2 has it.

    Attributes:
        status: of the response.
        headers: as they came.
        extensions: has the `network_stream`.
    """

    status: int
    headers: RawHeaders
    extensions: Any

    def aiter_stream(self) -> AsyncIterator[bytes]:
        """Return the body as it arrives."""

    async def aclose(self) -> None:
        """End the exchange; the connection is closed unless the body was read to its end."""


class HttpConnection(Protocol):
    """At most one connection, made by the first request and again after it was closed."""

    async def send(self, request: OutgoingRequest) -> ReceivedResponse:
        """Send a request; return its response as soon as the head is there.

        Raises:
            httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError,
            httpcore2.ProxyError: there is none.
        """

    async def aclose(self) -> None:
        """Close it."""


@define(eq=False, repr=False)
class ProxiedConnection:
    """A connection through a proxy; an httpcore2 pool has it."""

    pool: httpcore2.AsyncConnectionPool
    connect_timeout: float

    async def send(self, request: OutgoingRequest) -> ReceivedResponse:
        """See `HttpConnection`."""
        timeouts = {"connect": self.connect_timeout, "read": None, "write": None, "pool": None}
        return await self.pool.handle_async_request(
            httpcore2.Request(
                request.method,
                request.url,
                headers=request.headers,
                content=request.body,
                extensions={"timeout": timeouts},
            )
        )

    async def aclose(self) -> None:
        """Close it."""
        await self.pool.aclose()


def connection_maker(
    url: str,
    connect_timeout: float,
    network: Network | None = None,
    make_context: Callable[[], ssl.SSLContext] = httpx2.create_ssl_context,
) -> Callable[[], HttpConnection]:
    """Return a function that makes connections to the server at `url`.

    Args:
        url: of the server.
        connect_timeout: seconds to connect, and again for the handshake of TLS.
        network: makes them, to the server itself; None: through the environment's proxy, if any.
        make_context: returns the settings of TLS.

    Raises:
        ConnectionLostError: the environment's proxy or certificates cannot be used.
    """
    parts = split_url(url)
    proxy = _proxy(parts.scheme, parts.hostname or "") if network is None else None
    # Reading the certificates of all authorities takes 20 ms. Without any nothing is trusted, and
    # without TLS nothing has to be.
    needs_tls = parts.scheme == "https" or proxy is not None
    try:
        context = make_context() if needs_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if proxy is None:
            context.set_alpn_protocols(["http/1.1"])
            options = _socket_options()
            direct = network or Network()
            return partial(DirectConnection, direct, context, options, connect_timeout)
        make = partial(_through, proxy, context, connect_timeout)
        make()
    except (RuntimeError, OSError, ValueError, httpx2.InvalidURL) as error:
        # Without the package `socksio` there are no SOCKS proxies: RuntimeError. A proxy's address
        # may hold a password, so it is not repeated.
        raise ConnectionLostError(
            "the proxy or the certificates that the environment names cannot be used"
            f" ({type(error).__name__})",
            may_have_run=False,
        ) from None
    return make


def core_url(url: httpx2.URL) -> httpcore2.URL:
    """Return an address as httpcore2 takes it."""
    return httpcore2.URL(
        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
    )


def _through(proxy: str, context: ssl.SSLContext, connect_timeout: float) -> ProxiedConnection:
    named = httpx2.Proxy(proxy)
    settings: dict[str, Any] = {
        "proxy_url": core_url(named.url),
        "proxy_auth": named.raw_auth,
        "ssl_context": context,
        "max_connections": 1,
        "keepalive_expiry": KEEP_ALIVE,
        "network_backend": Network(),
    }
    if named.url.scheme.startswith("socks"):
        return ProxiedConnection(httpcore2.AsyncSOCKSProxy(**settings), connect_timeout)
    pool = httpcore2.AsyncHTTPProxy(socket_options=_socket_options(), **settings)
    return ProxiedConnection(pool, connect_timeout)


def _proxy(scheme: str, host: str) -> str | None:
    """Return the proxy of the environment: `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`."""
    proxies = getproxies()
    proxy = None if proxy_bypass(host) else proxies.get(scheme, proxies.get("all"))
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy or None


def _socket_options() -> list[tuple[int, int, int]]:
    """Return the options for TCP keep-alive, since a stream may be silent for hours.

    The system probes after an idle minute, four times, every 15 s; so the loss of the peer's
    machine is noticed within two minutes.
    """
    found = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    wanted = {"TCP_KEEPIDLE": 60, "TCP_KEEPALIVE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
    for name, value in wanted.items():
        option = getattr(socket, name, None)  # two systems have two names for the first
        if option is not None:
            found.append((socket.IPPROTO_TCP, option, value))
    return found


@define(eq=False, repr=False)
class HttpConnections:
    """Lends a connection for each exchange; the last used one first.

    Args:
        make: makes a connection, which is kept for `keep_alive`.
        most: connections in use at one time.
        keep_alive: seconds that an idle connection is kept.
    """

    make: Callable[[], HttpConnection]
    most: int
    keep_alive: float
    _open: set[HttpConnection] = field(factory=set, init=False)
    _kept: deque[tuple[float, HttpConnection]] = field(factory=deque, init=False)
    _places: asyncio.Semaphore = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.most)

    async def take(self, timeout: float) -> HttpConnection:
        """Return a connection for exclusive use until it is given back.

        Args:
            timeout: seconds to wait while all are in use.

        Raises:
            TimeoutError: they still are.
        """
        if self._places.locked():
            async with asyncio.timeout(timeout):
                await self._places.acquire()
        else:
            await self._places.acquire()  # at once
        try:
            await self._close_expired()
            return self._kept.pop()[1] if self._kept else self._make()
        except BaseException:
            self._places.release()
            raise

    def give_back(self, transport: HttpConnection) -> None:
        """Take back a connection whose response was closed."""
        self._kept.append((asyncio.get_running_loop().time(), transport))
        self._places.release()

    async def close(self) -> None:
        """Close all of them, including those in use."""
        self._kept.clear()
        while self._open:
            await self._close(next(iter(self._open)))

    def _make(self) -> HttpConnection:
        transport = self.make()
        self._open.add(transport)
        return transport

    async def _close_expired(self) -> None:
        oldest = asyncio.get_running_loop().time() - self.keep_alive
        while self._kept and self._kept[0][0] < oldest:
            await self._close(self._kept.popleft()[1])

    async def _close(self, transport: HttpConnection) -> None:
        self._open.discard(transport)
        with suppress(Exception):  # it has gone already
            await transport.aclose()
