"""Making connections: addresses, proxies of the environment, certificates, one bound for all of it.

name ─► addresses ─► the first that answers ─► proxy, if there is one ─► TLS, if it is https
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import sys
from asyncio import StreamReader, StreamReaderProtocol
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from os import environ
from socket import SOCK_STREAM, getaddrinfo
from typing import Final
from urllib.parse import quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from attrs import define, field, frozen

from .connection import MAX_HEAD_BYTES, HttpConnection, RawHeaders
from .errors import (
    ConnectError,
    ConnectTimeout,
    EnvironmentRefused,
    HttpError,
    ProxyError,
    UnsendableError,
)
from .values import is_public

CONNECT_SECONDS: Final = 10.0
"""Seconds for a connection, its proxy and its TLS handshake, and to wait for a free connection."""

_NEXT_ADDRESS = 0.25  # s; until the next address of a host is tried beside the first
_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_SAFE = "/%!$&'()*+,;=:@~-._?|[]"  # what may stand in a target as it is


@frozen
class RequestUrl:
    """The parts of a URL that a request needs.

    Attributes:
        scheme: `http` or `https`.
        host: a name in ASCII, or an address without brackets.
        port: of the server.
        authority: host and port as the header `Host` has them.
        target: path and query, encoded.
    """

    scheme: str
    host: str
    port: int
    authority: bytes
    target: bytes

    @classmethod
    def of(cls, url: str) -> RequestUrl:
        """Return the parts of a URL, without its user and fragment.

        Raises:
            UnsendableError: it is no URL of HTTP.
        """
        try:
            parts = urlsplit(url)
            host = (parts.hostname or "").encode("ascii" if url.isascii() else "idna").decode()
            port = _PORTS[parts.scheme] if parts.port is None else parts.port
        except (ValueError, KeyError):  # UnicodeError is a ValueError
            host, port = "", 0
        if not host or not port or parts.scheme not in ("http", "https"):
            raise UnsendableError("the URL is none of HTTP")
        shown = f"[{host}]" if ":" in host else host
        if port != _PORTS[parts.scheme]:
            shown = f"{shown}:{port}"
        target = quote(parts.path or "/", _SAFE) + (parts.query and f"?{quote(parts.query, _SAFE)}")
        return cls(parts.scheme, host, port, shown.encode(), target.encode())

    def __bytes__(self) -> bytes:
        return b"%b://%b%b" % (self.scheme.encode(), self.authority, self.target)


@frozen
class Proxy:
    """A proxy of the environment.

    Attributes:
        scheme: `http`, `https`, `socks5` or `socks5h`.
        user: a name and a password; None without.
    """

    scheme: str
    host: str
    port: int
    user: tuple[str, str] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, scheme: str, host: str) -> Proxy | None:
        """Return the proxy for a server: `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`.

        Raises:
            ValueError: it is none that can be used.
        """
        proxies = getproxies()
        named = None if proxy_bypass(host) else proxies.get(scheme, proxies.get("all"))
        if not named:
            return None
        parts = urlsplit(named if "://" in named else f"http://{named}")
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError
        user = None
        if parts.username is not None:
            user = unquote(parts.username), unquote(parts.password or "")
        return cls(parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme], user)

    @property
    def headers(self) -> RawHeaders:
        """Return the headers for the proxy itself."""
        if self.user is None:
            return []
        pair = b64encode(":".join(self.user).encode())
        return [(b"proxy-authorization", b"Basic " + pair)]


@define(eq=False, repr=False)
class Network:
    """Makes connections, on the event loop that runs.

    Args:
        seconds: for a connection, its proxy and its TLS handshake.
        threads: in which names are looked up; None: in those of the event loop.
        only_public: whether connections to addresses of private networks are refused. The address
            that was checked is connected to, and no proxy: a name could have another one a moment
            later (DNS rebinding).
        http_is_direct: whether `http`, to this machine alone, goes past the proxy.
    """

    seconds: float = CONNECT_SECONDS
    threads: ThreadPoolExecutor | None = None
    only_public: bool = False
    http_is_direct: bool = False
    _context: ssl.SSLContext | None = field(default=None, init=False)

    def prepare(self, url: RequestUrl) -> Proxy | None:
        """Return the proxy for a server; read the certificates, which takes 20 ms, if it needs any.

        Raises:
            EnvironmentRefused: they cannot be used.
        """
        try:
            is_direct = self.only_public or (self.http_is_direct and url.scheme == "http")
            proxy = None if is_direct else Proxy.of(url.scheme, url.host)
            if url.scheme == "https" or (proxy is not None and proxy.scheme == "https"):
                self._trusted()
        except (OSError, ValueError) as error:
            # A proxy's address may hold a password, so it is not repeated.
            raise EnvironmentRefused(
                "the proxy or the certificates that the environment names cannot be used"
                f" ({type(error).__name__})"
            ) from None
        return proxy

    async def connect(self, url: RequestUrl) -> HttpConnection:
        """Return a connection for requests to a server.

        Raises:
            ConnectError: there is none.
        """
        proxy = self.prepare(url)
        try:
            async with asyncio.timeout(self.seconds):
                if proxy is not None:
                    return await self._through(proxy, url)
                connection = await self._to(url.host, url.port)
                if url.scheme == "https":
                    await connection.secure(self._trusted(), url.host)
                return connection
        except HttpError:
            raise
        except TimeoutError as error:
            raise ConnectTimeout(str(error)) from error
        except (OSError, ValueError) as error:  # ValueError: a name that none can have
            raise ConnectError(str(error)) from error

    def _trusted(self) -> ssl.SSLContext:
        """Return the settings of TLS: the authorities of SSL_CERT_FILE, or those of the system."""
        if self._context is None:
            self._context = _tls_context()
        return self._context

    # -- proxies

    async def _through(self, proxy: Proxy, url: RequestUrl) -> HttpConnection:
        connection = await self._to(proxy.host, proxy.port)
        if proxy.scheme == "https":
            await connection.secure(self._trusted(), proxy.host)
        if proxy.scheme in ("http", "https") and url.scheme == "http":
            connection.forwarder = proxy
            return connection
        transport = connection.transport
        reader = StreamReader(MAX_HEAD_BYTES)
        transport.set_protocol(StreamReaderProtocol(reader))
        agree = _connect_method if proxy.scheme in ("http", "https") else _socks
        try:
            await agree(reader, transport, proxy, url)
            transport.set_protocol(connection)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            raise ProxyError("the proxy has ended the connection") from None
        finally:
            if transport.get_protocol() is not connection:
                transport.abort()
        if url.scheme == "https":
            await connection.secure(self._trusted(), url.host)
        return connection

    # -- addresses

    async def _to(self, host: str, port: int) -> HttpConnection:
        """Connect to the first address that answers; each has a head start over the next.

        asyncio can do that too, but leaks a socket when it is cancelled (Python 3.11).
        """
        addresses = await self._addresses(host, port)
        if len(addresses) == 1:
            return await _connect(addresses[0], port)
        loop = asyncio.get_running_loop()
        attempts: list[asyncio.Task[HttpConnection]] = []
        winner: HttpConnection | None = None
        try:
            while winner is None and (addresses or not all(each.done() for each in attempts)):
                if addresses:
                    attempts.append(loop.create_task(_connect(addresses.pop(0), port)))
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

    async def _addresses(self, host: str, port: int) -> list[str]:
        found = await addresses_of(host, port, self.threads)
        if not self.only_public:
            return found
        if not found or not all(map(is_public, found)):
            raise OSError("the address is not public")
        return found[:1]


def _tls_context() -> ssl.SSLContext:
    if sys.platform == "darwin" and not environ.keys() & {"SSL_CERT_FILE", "SSL_CERT_DIR"}:
        import truststore  # OpenSSL does not read the keychain, in which the authorities are

        context: ssl.SSLContext = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    else:
        context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


async def _connect_method(
    reader: StreamReader, transport: asyncio.Transport, proxy: Proxy, url: RequestUrl
) -> None:
    """Ask a proxy for a tunnel (RFC 9110, section 9.3.6)."""
    host = f"[{url.host}]" if ":" in url.host else url.host
    place = b"%b:%d" % (host.encode(), url.port)
    headers = [(b"host", place), *proxy.headers]
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    transport.write(b"CONNECT %b HTTP/1.1\r\n%b\r\n" % (place, lines))
    head = await reader.readuntil(b"\r\n\r\n")
    if re.match(rb"HTTP/1\.[01] 2[0-9][0-9]\b", head) is None:
        raise ProxyError("the proxy refuses the tunnel")


async def _socks(
    reader: StreamReader, transport: asyncio.Transport, proxy: Proxy, url: RequestUrl
) -> None:
    """Ask a proxy for a tunnel by SOCKS 5 (RFC 1928, RFC 1929)."""
    transport.write(b"\5\1\2" if proxy.user else b"\5\1\0")
    if await reader.readexactly(2) != (b"\5\2" if proxy.user else b"\5\0"):
        raise ProxyError("the proxy admits nobody so")
    if proxy.user:
        transport.write(b"\1" + b"".join(_with_length(each.encode()) for each in proxy.user))
        if (await reader.readexactly(2))[1]:
            raise ProxyError("the proxy does not know the user")
    try:
        address = ip_address(url.host)
        place = (b"\1" if address.version == 4 else b"\4") + address.packed
    except ValueError:
        place = b"\3" + _with_length(url.host.encode())
    transport.write(b"\5\1\0" + place + url.port.to_bytes(2, "big"))
    _, refusal, _, kind = await reader.readexactly(4)
    length = {1: 4, 4: 16}.get(kind) or (await reader.readexactly(1))[0]
    await reader.readexactly(length + 2)
    if refusal:
        raise ProxyError("the proxy makes no connection")


def _with_length(text: bytes) -> bytes:
    """Return a text after its length; ValueError if it is longer than 255 bytes."""
    return bytes((len(text),)) + text


async def _connect(address: str, port: int) -> HttpConnection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(HttpConnection, address, port)
    _keep_alive(connection.transport.get_extra_info("socket"))
    return connection


def _keep_alive(peer: socket.socket) -> None:
    """Let the system probe a silent connection, since a stream may be silent for hours.

    It does after an idle minute, four times, every 15 s; so the loss of the peer's machine is
    noticed within two minutes.
    """
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = {"TCP_KEEPIDLE": 60, "TCP_KEEPALIVE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
    for name, value in wanted.items():
        option = getattr(socket, name, None)  # two systems have two names for the first
        if option is not None:
            with suppress(OSError):  # older systems name it and do not have it: theirs is later
                peer.setsockopt(socket.IPPROTO_TCP, option, value)


async def addresses_of(
    host: str, port: int, threads: ThreadPoolExecutor | None = None
) -> list[str]:
    """Return the addresses of a host, each once; an address stays as it is.

    Args:
        host: the host.
        port: the port.
        threads: in which a name is looked up; None: in those of the event loop.
    """
    try:
        return [str(ip_address(host))]
    except ValueError:
        look_up = partial(getaddrinfo, host, port, type=SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(threads, look_up)
        return [*dict.fromkeys(str(each[4][0]) for each in found)]


def _close(attempt: asyncio.Task[HttpConnection]) -> None:
    """Close the connection of an attempt that lost, if it made one."""
    if _went_well(attempt):
        attempt.result().abort()


def _went_well(attempt: asyncio.Task[HttpConnection]) -> bool:
    return attempt.done() and not attempt.cancelled() and attempt.exception() is None
