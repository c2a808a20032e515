"""The network under HTTP, over asyncio's transports.

httpcore2 would read and write through anyio, which arms and cancels a scope for every piece. Here
writes are gathered until the response is read: head and body of a request leave in one system call
and one packet.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from collections.abc import Iterable
from functools import partial
from ipaddress import ip_address
from socket import SOCK_STREAM, getaddrinfo
from typing import TYPE_CHECKING, Any, cast

import httpcore2
from attrs import define, field

if TYPE_CHECKING:
    from concurrent.futures import Executor

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

    addresses = await addresses_of(host, port)
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


async def addresses_of(host: str, port: int, threads: Executor | None = None) -> list[str]:
    """Return the addresses of a host, each once; an address stays as it is.

    Args:
        host: the host.
        port: the port.
        threads: in which a name is looked up; None: in those of the event loop.
    """
    try:
        return [str(ip_address(host))]
    except ValueError:
        loop = asyncio.get_running_loop()
        look_up = partial(getaddrinfo, host, port, type=SOCK_STREAM)
        found = await (
            loop.getaddrinfo(host, port, type=SOCK_STREAM)
            if threads is None
            else loop.run_in_executor(threads, look_up)
        )
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
