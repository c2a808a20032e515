"""A transport to a program that keeps a record of every message (DEV-22)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from attrs import define, field

from ...client import MCPError, StdioServer
from ...client.transports.stdio import ChildProcessTransport
from ...protocol.framing import LineTooLong
from .log_lines import read_line

if TYPE_CHECKING:
    from ...client.transports.transport import ClientMessage, Receiver, Transport
    from ...protocol.revisions import Revision
    from .program import Program


@define(eq=False, repr=False)
class ProgramLink:
    """A `Transport` around another one, and the receiver of that.

    Args:
        program: to which it leads.
        generation: of the program that it belongs to.

    Attributes:
        is_negotiated: whether the handshake is complete.
    """

    program: Program
    generation: int
    is_negotiated: bool = field(default=False, init=False)
    _negotiated_at: float = field(default=0.0, init=False)
    _inner: Transport = field(init=False)
    _receiver: Receiver = field(init=False)
    _is_lost: bool = field(default=False, init=False)
    _is_admitted: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        launch = self.program.launch
        if isinstance(launch, StdioServer):
            self._inner = ChildProcessTransport(launch, on_stderr=self._on_stderr)
        else:
            from ...client.transports.http import HttpTransport

            self._inner = HttpTransport(launch)

    # -- a transport

    @property
    def description(self) -> str:
        """The program, for people."""
        return self._inner.description

    @property
    def has_exchanges(self) -> bool:
        """Return whether each request has an exchange of its own."""
        return self._inner.has_exchanges

    @property
    def is_congested(self) -> bool:
        """Return whether a new request has to wait."""
        return self._inner.is_congested

    @property
    def seconds(self) -> float:
        """The time since its handshake, in s; 0 before it."""
        if not self.is_negotiated:
            return 0.0
        return asyncio.get_running_loop().time() - self._negotiated_at

    async def open(self, receiver: Receiver) -> None:
        """Start the program, unless it has failed.

        Raises:
            MCPError: there is no connection.
        """
        self._receiver = receiver
        await self.program.admit(self)
        self._is_admitted = True
        try:
            await self._inner.open(self)
        except MCPError as error:
            self.program.not_started(self, error)
            raise

    def send(self, message: ClientMessage) -> None:
        """Send a message."""
        self.program.observer.passed(self.program, "in", message.line)
        self._inner.send(message)

    async def drained(self) -> None:
        """Wait until a request can be sent."""
        await self._inner.drained()

    def forget(self, request_id: str) -> None:
        """Stop waiting for the response to a request."""
        self._inner.forget(request_id)

    def negotiated(self, revision: Revision) -> None:
        """Note that the handshake is complete."""
        self.is_negotiated = True
        self._negotiated_at = asyncio.get_running_loop().time()
        self._inner.negotiated(revision)
        self.program.negotiated(self)

    def stderr_tail(self) -> str:
        """Return the state of the process and its last stderr lines; nothing once it has failed."""
        return "" if self.program.problem is not None else self._inner.stderr_tail()

    async def close(self) -> None:
        """Close it with the process."""
        try:
            await self._inner.close()
        finally:
            self.program.closed(self)

    def expire(self, error: MCPError) -> None:
        """End it with the calls that still run, if it is there: the program is replaced."""
        if self._is_admitted and not self._is_lost:
            self._is_lost = True
            self._receiver.lost(error)

    # -- the receiver of the inner transport

    def received(self, line: bytes | LineTooLong, request_id: str | None) -> None:
        """Pass a message on."""
        if isinstance(line, bytes):
            self.program.observer.passed(self.program, "out", line)
        self._receiver.received(line, request_id)

    def awaits(self, request_id: str) -> bool:
        """Return whether this request has no response yet."""
        return self._receiver.awaits(request_id)

    def failed(self, request_id: str, error: MCPError) -> None:
        """Pass the failure of a request on."""
        self._receiver.failed(request_id, error)

    def lost(self, error: MCPError) -> None:
        """Pass on that the process has ended, in words that name the place in its source."""
        if self._is_lost:
            return
        self._is_lost = True
        stderr = getattr(self._inner, "stderr", "")
        self._receiver.lost(self.program.ended(self, error, stderr))

    def _on_stderr(self, line: str) -> None:
        read = read_line(line)
        if isinstance(read, dict):
            if self.generation == self.program.generation:
                self.program.reported(read)
        else:
            self.program.observer.logged(self.program, read)
