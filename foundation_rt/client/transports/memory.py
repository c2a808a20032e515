"""The transport to a server of this process: only lines are exchanged (CHILD-13).

The server's side is that of any embedding host: lines are framed, parsed, dispatched, validated and
encoded as they are over stdio. A line of the server is delivered one turn of the event loop later
than it was sent, as from any other server: no response arrives while its request is being sent.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from attrs import define, field

from ...errors import UsageError
from .transport import not_opened

if TYPE_CHECKING:
    from ...features.composition import ServerRuntime
    from ...kernel.engine.connection import Connection
    from ...protocol.revisions import Revision
    from ...server import Server
    from .transport import ClientMessage, LineReceiver


@define(eq=False, repr=False)
class MemoryTransport:
    """A `Transport` to `server`, whose lifespan it holds while it is open.

    Any number may be open to one server, on one event loop.

    Args:
        runtime: used instead of the server's own.
    """

    server: Server
    runtime: ServerRuntime | None = None
    description: str = field(default="a server in this process", init=False)
    has_exchanges: bool = field(default=False, init=False)
    is_congested: bool = field(default=False, init=False)
    _receiver: LineReceiver = field(init=False)
    _connection: Connection | None = field(default=None, init=False)
    _starting: asyncio.Task[None] | None = field(default=None, init=False)
    _leaving: asyncio.Task[None] | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    async def open(self, receiver: LineReceiver) -> None:
        """Enter the lifespan of the server, or hold it with others, and connect; once.

        Raises:
            ConnectionLostError: its configuration is refused, a hook could not be entered, or it
                is held on another event loop.
        """
        if self._closed or self._starting is not None:
            raise not_opened(self, "is opened once, and not after it was closed")
        self._receiver = receiver
        self._starting = asyncio.create_task(self._start())
        try:
            await self._starting
        except UsageError as error:
            raise not_opened(self, f"could not be started: {error}") from error
        except asyncio.CancelledError:
            # Either `close` cancelled it, or the task that opens it is itself cancelled.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise not_opened(self, "was closed while it was opened") from None

    @property
    def connection(self) -> Connection:
        """The server's side, once the transport was opened."""
        assert self._connection is not None
        return self._connection

    async def _start(self) -> None:
        runtime = self.runtime or self.server.runtime
        await runtime.start_lifespan()
        loop = asyncio.get_running_loop()
        self._connection = runtime.embedding.connect(
            lambda line: loop.call_soon(self._deliver, line), "memory"
        )

    def send(self, message: ClientMessage) -> None:
        """Hand a message to the server."""
        if self._connection is not None:
            self._connection.feed(message.line + b"\n")

    async def drained(self) -> None:
        """Return at once: the server takes each message as it is sent."""

    def forget(self, request_id: str) -> None:
        """Do nothing: a late response is dropped when it arrives."""

    def negotiated(self, revision: Revision) -> None:
        """Do nothing: the transport is the same for every revision."""

    def stderr_tail(self) -> str:
        """Return nothing: the server has its own log."""
        return ""

    async def close(self) -> None:
        """Abort running calls, and leave the lifespan unless others hold it.

        That takes `server.shutdown_timeout_ms` at most; it goes on if the caller is cancelled.
        """
        self._closed = True
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait([self._starting])
        if self._connection is not None:
            self._connection.close()
            if self._leaving is None:
                self._leaving = asyncio.create_task(self._leave())
            await asyncio.shield(self._leaving)

    async def _leave(self) -> None:
        runtime = self.runtime or self.server.runtime
        if not runtime.is_embedded:
            await runtime.stop_background()
        await runtime.stop_lifespan()
        if not runtime.is_embedded:
            await runtime.close_features()

    def _deliver(self, line: bytes) -> None:
        if not self._closed:
            self._receiver.received(line, None)
