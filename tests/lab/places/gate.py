"""A TCP proxy before a server that a test can shut: it cuts connections and accepts none."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit


class Gate:
    """Passes bytes on to the server of `url` while it is open.

    Attributes:
        url: of the door; otherwise that of the server.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 6379
        self._parts = parts
        self._is_open = True
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""

    async def __aenter__(self) -> Gate:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        user, separator, _ = self._parts.netloc.rpartition("@")
        self.url = self._parts._replace(netloc=f"{user}{separator}127.0.0.1:{port}").geturl()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.shut()
        self._server.close()
        await self._server.wait_closed()

    def open(self) -> None:
        """Accept connections from now on."""
        self._is_open = True

    def shut(self) -> None:
        """Cut every connection, and accept none."""
        self._is_open = False
        for writer in self._writers:
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._is_open:
            writer.close()
            return
        from_server, to_server = await asyncio.open_connection(self._host, self._port)
        both = {writer, to_server}
        self._writers |= both
        with suppress(OSError):
            await asyncio.gather(_copy(reader, to_server), _copy(from_server, writer))
        self._writers -= both


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    finally:
        writer.close()
