"""The connections to one server, direct or through a proxy: in use, or kept for the next request.

Each is an httpcore2 pool of one connection. A larger pool looks at all of its connections twice for
every request: with 128 in flight one cost 1.9 ms of CPU instead of 0.6, and while those 128 were
kept, a single request 3 ms.

`Network` is the network backend under httpcore2, over asyncio's transports. httpcore2 would read
and write through anyio, which arms and cancels a scope for every piece; and it writes the head of
a request and its body apart, in two system calls and two packets. Here writes are gathered until
the response is read.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from socket import SOCK_STREAM
from typing import Any, Final, Protocol, cast
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2
from attrs import define, field

from ..errors import ConnectionLostError
from .http_headers import split_url

_GATHERED = 64 * 1024  # bytes; more than that is written at once
_NEXT_ADDRESS = 0.25  # s; until the next address of a host is tried beside the first
_KEPT = 256 * 1024  # bytes that were received and not read; beyond, the peer has to wait


@define(eq=False, repr=False)
class NetworkStream(asyncio.Protocol, httpcore2.AsyncNetworkStream):
    """One connection; made by `Network`. One task reads and writes at a time."""

    _loop: asyncio.AbstractEventLoop
    _transport: asyncio.Transport = field(init=False)
    _unsent: bytearray = field(factory=bytearray, init=False)
    _received: bytearray = field(factory=bytearray, init=False)
    _is_over: bool = field(default=False, init=False)
    _error: Exception | None = field(default=None, init=False)
    _reader: asyncio.Future[None] | None = field(default=None, init=False)
    _writer: asyncio.Future[None] | None = field(default=None, init=False)
    _has_room: bool = field(default=True, init=False)
    _is_reading: bool = field(default=True, init=False)

    # -- called by httpcore2

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return received bytes, at most `max_bytes`; none if the peer has closed its side.

        Raises:
            httpcore2.ReadError: the connection broke off.
            httpcore2.ReadTimeout: nothing arrived within `timeout`, in s.
        """
        self._flush()
        if not self._received and not self._is_over:
            self._reader = self._loop.create_future()
            try:
                await _within(timeout, self._reader, httpcore2.ReadTimeout)
            finally:
                self._reader = None
        if not self._received and self._error is not None:
            raise httpcore2.ReadError(str(self._error))
        data = bytes(self._received[:max_bytes])
        del self._received[:max_bytes]
        if not self._is_reading and len(self._received) < _KEPT:
            self._is_reading = True
            self._transport.resume_reading()
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write bytes, at the latest when the response is read; wait while the buffer is full.

        Raises:
            httpcore2.WriteError: the connection is closed.
            httpcore2.WriteTimeout: the buffer stayed full for `timeout`, in s.
        """
        if self._is_over or self._transport.is_closing():
            raise httpcore2.WriteError("the connection is closed")
        self._unsent += buffer
        if len(self._unsent) < _GATHERED:
            return
        self._flush()
        if not self._has_room:
            self._writer = self._loop.create_future()
            try:
                await _within(timeout, self._writer, httpcore2.WriteTimeout)
            finally:
                self._writer = None

    async def aclose(self) -> None:
        """Close the connection at once."""
        self.abort()
        await asyncio.sleep(0)  # in which its socket is closed

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> NetworkStream:
        """Go on under TLS.

        Raises:
            httpcore2.ConnectError: the handshake failed.
            httpcore2.ConnectTimeout: it took longer than `timeout`, in s.
        """
        self._flush()
        secured = NetworkStream(self._loop)
        upgrade = self._loop.start_tls(
            self._transport, secured, ssl_context, server_hostname=server_hostname
        )
        try:
            async with asyncio.timeout(timeout):
                transport = await upgrade
        except TimeoutError as error:
            await self.aclose()
            raise httpcore2.ConnectTimeout(str(error)) from error
        except OSError as error:
            await self.aclose()
            raise httpcore2.ConnectError(str(error)) from error
        except BaseException:
            await self.aclose()
            raise
        assert transport is not None
        secured.connection_made(transport)
        return secured

    def get_extra_info(self, info: str) -> Any:
        """Return what httpcore2 asks about a connection; None for anything else."""
        if info == "is_readable":  # while it is idle: closed, or a stray response arrived
            return self._is_over or bool(self._received) or self._has_news()
        return self._transport.get_extra_info(info)

    def _has_news(self) -> bool:
        """Return whether bytes arrived that the event loop has not read yet."""
        if self._transport.is_closing():
            return True
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def abort(self) -> None:
        """Close the connection; its socket is closed in the next turn of the event loop."""
        self._transport.abort()

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the connection."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Keep received bytes."""
        self._received += data
        if len(self._received) >= _KEPT and self._is_reading:
            self._is_reading = False
            self._transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> bool:
        """Close our side, too: the peer has closed its own."""
        self._is_over = True
        _wake(self._reader)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection."""
        self._is_over, self._error = True, exc
        self._unsent.clear()
        _wake(self._reader)
        _wake(self._writer)

    def pause_writing(self) -> None:
        """Stop writing: the peer does not read."""
        self._has_room = False

    def resume_writing(self) -> None:
        """Write again: the peer has read enough."""
        self._has_room = True
        _wake(self._writer)

    def _flush(self) -> None:
        if self._unsent and not self._transport.is_closing():
            self._transport.write(bytes(self._unsent))
        self._unsent.clear()


class Network(httpcore2.AsyncNetworkBackend):
    """Makes connections for httpcore2, on the event loop that runs."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> NetworkStream:
        """Connect; of several addresses of a host the first to answer wins.

        Raises:
            httpcore2.ConnectError: there is no connection.
            httpcore2.ConnectTimeout: there was none within `timeout`, in s.
        """
        try:
            async with asyncio.timeout(timeout):
                stream = await _connect(host, port, local_address)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        for option in socket_options or ():
            stream.get_extra_info("socket").setsockopt(*option)
        return stream

    async def sleep(self, seconds: float) -> None:
        """Wait before another attempt."""
        await asyncio.sleep(seconds)


async def _connect(host: str, port: int, local_address: str | None) -> NetworkStream:
    """Connect to the first address of a host that answers; each has a head start over the next.

    asyncio can do that too, but leaks a socket when it is cancelled (Python 3.11).
    """
    loop = asyncio.get_running_loop()
    local = None if local_address is None else (local_address, 0)

    async def to(address: str) -> NetworkStream:
        _, stream = await loop.create_connection(
            lambda: NetworkStream(loop), address, port, local_addr=local
        )
        return stream

    addresses = await _addresses(host, port)
    if len(addresses) == 1:
        return await to(addresses[0])
    attempts: list[asyncio.Task[NetworkStream]] = []
    winner: NetworkStream | None = None
    try:
        while winner is None and (addresses or not all(each.done() for each in attempts)):
            if addresses:
                attempts.append(loop.create_task(to(addresses.pop(0))))
            pending = [each for each in attempts if not each.done()]
            pause = _NEXT_ADDRESS if addresses else None
            await asyncio.wait(pending, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            winner = next((each.result() for each in attempts if _went_well(each)), None)
    finally:
        for each in attempts:
            if winner is None or not (_went_well(each) and each.result() is winner):
                each.cancel()
                each.add_done_callback(_close)
    if winner is None:
        reasons = {str(each.exception()): None for each in attempts}
        raise OSError("; ".join(reasons))
    return winner


async def _addresses(host: str, port: int) -> list[str]:
    """Return the addresses of a host, each once; an address stays as it is."""
    try:
        return [str(ip_address(host))]
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=SOCK_STREAM)
        return [*dict.fromkeys(str(each[4][0]) for each in found)]


def _close(attempt: asyncio.Task[NetworkStream]) -> None:
    """Close the connection of an attempt that lost, if it made one."""
    if _went_well(attempt):
        attempt.result().abort()


def _went_well(attempt: asyncio.Task[NetworkStream]) -> bool:
    return attempt.done() and not attempt.cancelled() and attempt.exception() is None


async def _within(
    timeout: float | None, future: asyncio.Future[None], late: type[Exception]
) -> None:
    if timeout is None:
        await future
        return
    try:
        async with asyncio.timeout(timeout):
            await future
    except TimeoutError as error:
        raise late(str(error)) from error


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)


KEEP_ALIVE: Final = 4.0
"""Seconds that an idle connection is kept.

Servers such as uvicorn and Node.js close a connection after 5 idle seconds. A request on a
connection that is being closed may or may not have run.
"""


class HttpConnection(Protocol):
    """At most one connection, made by the first request and again after it was closed."""

    async def handle_async_request(self, request: httpcore2.Request) -> httpcore2.Response:
        """Send a request; return its response as soon as the head is there."""

    async def aclose(self) -> None:
        """Close it."""


def connection_maker(url: str) -> Callable[[], HttpConnection]:
    """Return a function that makes connections to the server at `url`.

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
        async with asyncio.timeout(timeout if self._places.locked() else None):
            await self._places.acquire()
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
