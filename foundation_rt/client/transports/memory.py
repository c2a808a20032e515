"""A channel to a server of this process: nothing between the two but lines (CHILD-13).

The server's side is that of any embedding host: lines are framed, parsed, dispatched, validated and
encoded as they are over stdio. What it sends comes a turn of the loop later than it was sent, as
from any other server, so that nobody is told of an answer while he is still asking.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from attrs import define, field

from ...errors import UsageError
from ..errors import ConnectionLostError

if TYPE_CHECKING:
    from ...engine.connection import Connection
    from ...protocol.revisions import Revision
    from ...server import Server
    from .transport import ClientMessage, Receiver


@define(eq=False, repr=False)
class MemoryTransport:
    """A `Transport` to `server`, whose lifespan it holds while it is open.

    Any number may be open to one server, on one event loop; it logs where it logs.
    """

    server: Server
    description: str = field(default="a server in this process", init=False)
    has_exchanges: bool = field(default=False, init=False)
    is_congested: bool = field(default=False, init=False)
    _receiver: Receiver = field(init=False)
    _connection: Connection | None = field(default=None, init=False)
    _starting: asyncio.Task[None] | None = field(default=None, init=False)
    _leaving: asyncio.Task[None] | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    async def open(self, receiver: Receiver) -> None:
        """Enter the lifespan of the server, or hold it beside others, and connect; once.

        Raises:
            ConnectionLostError: its configuration is refused, a hook could not be entered, or it
                is held on another event loop.
        """
        if self._closed or self._starting is not None:
            raise self._unmade("is opened once, and not after it was closed")
        self._receiver = receiver
        self._starting = asyncio.create_task(self._start())
        try:
            await self._starting
        except UsageError as error:
            raise self._unmade(f"could not be started: {error}") from error
        except asyncio.CancelledError:
            # By `close`; or whoever opens it is cancelled himself.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise self._unmade("was closed while it was opened") from None

    async def _start(self) -> None:
        runtime = self.server.runtime
        await runtime.start_lifespan()
        loop = asyncio.get_running_loop()
        self._connection = runtime.connect_host(
            lambda line: loop.call_soon(self._deliver, line), "memory"
        )

    def send(self, message: ClientMessage) -> None:
        """Have the server take a message."""
        if self._connection is not None:
            self._connection.feed(message.line + b"\n")

    async def drained(self) -> None:
        """At once: the server takes what is sent."""

    def forget(self, request_id: str) -> None:
        """Nothing: its answer comes between others, and is dropped there."""

    def negotiated(self, revision: Revision) -> None:
        """Nothing: every revision is spoken alike here."""

    def stderr_tail(self) -> str:
        """Empty: the server has a log of its own."""
        return ""

    async def close(self) -> None:
        """Abort what runs, and leave the lifespan if nobody else holds it.

        That takes `server.shutdown_timeout_ms` at most; if this is cancelled, it goes on.
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
        runtime = self.server.runtime
        if not runtime.is_serving:
            await runtime.stop_agents()
        await runtime.stop_lifespan()
        if not runtime.is_serving:
            await runtime.close_middleware()

    def _deliver(self, line: bytes) -> None:
        if not self._closed:
            self._receiver.received(line, None)

    def _unmade(self, why: str) -> ConnectionLostError:
        return ConnectionLostError(f"{self.description} {why}", may_have_run=False)
