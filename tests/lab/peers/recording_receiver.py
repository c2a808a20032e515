"""A receiver that records what a transport reports, and servers in child processes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from foundation_rt.client.errors import MCPError
from foundation_rt.client.targets import StdioServer
from foundation_rt.client.transports.stdio import ChildProcessTransport
from foundation_rt.client.transports.transport import ClientMessage
from foundation_rt.protocol.framing import LineTooLong
from tests.lab.waiting import PATIENCE, Changing

LONG = 1_000.0
"""A grace that no test outlives, so no test ends because of it."""

SHORT = 0.05
"""A grace for servers that do not use it."""


class RecordingReceiver(Changing):
    """A `Receiver` that keeps everything.

    Attributes:
        lines: what was received, in order.
        errors: what the channel was lost with.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[bytes | LineTooLong] = []
        self.errors: list[MCPError] = []

    def received(self, line: bytes | LineTooLong, request_id: str | None) -> None:
        assert not self.errors, "a line after the end"
        assert request_id is None
        self.lines.append(line)
        self.has_changed()

    def awaits(self, request_id: str) -> bool:
        return False

    def failed(self, request_id: str, error: MCPError) -> None:
        raise AssertionError("channels of one stream lose everything at once")

    def lost(self, error: MCPError) -> None:
        self.errors.append(error)
        self.has_changed()

    async def count(self, lines: int) -> list[bytes | LineTooLong]:
        """Wait until `lines` lines have been received."""
        await self.until(lambda: len(self.lines) >= lines)
        return self.lines

    async def end(self) -> MCPError:
        """Wait until the transport is lost."""
        await self.until(lambda: self.errors)
        return self.errors[0]


def python(code: str, *args: str, **settings: Any) -> StdioServer:
    """Return a server that runs this program in a Python that starts fast."""
    settings.setdefault("shutdown_grace", LONG)
    return StdioServer(sys.executable, ("-I", "-S", "-c", code, *args), **settings)


async def opened(
    server: StdioServer, **options: Any
) -> tuple[ChildProcessTransport, RecordingReceiver]:
    """Return a transport to the server, and its receiver."""
    transport, told = ChildProcessTransport(server, **options), RecordingReceiver()
    await transport.open(told)
    return transport, told


def say(transport: ChildProcessTransport, line: bytes) -> None:
    """Send a line."""
    transport.send(ClientMessage(line))


def run(
    main: Coroutine[Any, Any, None],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Run a test to its end, which comes within `PATIENCE`; no task may be left then."""

    async def whole() -> None:
        async with asyncio.timeout(PATIENCE):
            await main
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(whole())
