"""The connections to one server: those in use, and those that are kept for the next request.

Each is a pool of httpcore2's that has no other. A pool looks at all of its connections twice for
every request: with 128 in flight one cost 1.9 ms of CPU instead of 0.6, and as long as those 128
were kept, a request alone 3 ms.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2
from attrs import define, field

from ..errors import ConnectionLostError
from .http_headers import split_url
from .http_network import Network

KEEP_ALIVE: Final = 4.0
"""Seconds that a connection is kept without being used.

What servers close after 5 s of silence, as uvicorn and Node.js do, must not be used again after
that: a request that meets the closing may have run or not, and nobody knows.
"""


class HttpConnection(Protocol):
    """One connection at most, made with the first request and again when it is closed."""

    async def handle_async_request(self, request: httpcore2.Request) -> httpcore2.Response:
        """Send a request; return its response as soon as the head is there."""

    async def aclose(self) -> None:
        """Close it."""


def connection_maker(url: str) -> Callable[[], HttpConnection]:
    """Return what makes connections to the server at `url`.

    Raises:
        ConnectionLostError: the environment's proxy or certificates cannot be used.
    """
    parts = split_url(url)
    proxy = _proxy(parts.scheme, parts.hostname or "")
    # Reading the certificates of all authorities takes 20 ms. Without any nothing is trusted, and
    # without TLS nothing has to be.
    needs_tls = parts.scheme == "https" or proxy is not None
    try:
        context = (
            httpx2.create_ssl_context() if needs_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        # A pool looks at all its connections for every request, so each has a pool of its own.
        settings = {
            "ssl_context": context,
            "max_connections": 1,
            "keepalive_expiry": KEEP_ALIVE,
            "network_backend": Network(),
        }
        make = _maker(proxy, settings)
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


def _maker(proxy: str | None, settings: dict[str, Any]) -> Callable[[], HttpConnection]:
    options = _socket_options()
    if proxy is None:
        return partial(httpcore2.AsyncConnectionPool, socket_options=options, **settings)
    named = httpx2.Proxy(proxy)
    settings |= {"proxy_url": core_url(named.url), "proxy_auth": named.raw_auth}
    if named.url.scheme.startswith("socks"):
        return partial(httpcore2.AsyncSOCKSProxy, **settings)
    return partial(httpcore2.AsyncHTTPProxy, socket_options=options, **settings)


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


@define(eq=False, repr=False)
class Connections:
    """Lends a connection for each exchange; the one that was used last first.

    Args:
        make: makes a connection, which is kept for `keep_alive`.
        most: that may be in use at one time.
        keep_alive: seconds that one is kept without being used.
    """

    make: Callable[[], HttpConnection]
    most: int
    keep_alive: float
    _open: set[HttpConnection] = field(factory=set, init=False)
    _kept: deque[tuple[float, HttpConnection]] = field(factory=deque, init=False)
    _places: asyncio.Semaphore = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.most)

    async def take(self, patience: float) -> HttpConnection:
        """A connection that nobody else uses until it is given back.

        Args:
            patience: seconds to wait where all are in use.

        Raises:
            TimeoutError: they still are.
        """
        async with asyncio.timeout(patience if self._places.locked() else None):
            await self._places.acquire()
        try:
            await self._close_expired()
            return self._kept.pop()[1] if self._kept else self._make()
        except BaseException:
            self._places.release()
            raise

    def give_back(self, transport: HttpConnection) -> None:
        """The exchange is over, and its response closed."""
        self._kept.append((asyncio.get_running_loop().time(), transport))
        self._places.release()

    async def close(self) -> None:
        """Close all of them, those in use too."""
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
