"""A client and a scripted server in this process, in virtual time, with all that the client sends.

The server runs a script (`misbehaving_script`) behind a `MisbehavingTransport`. `scripted` gives a
client of it, and then checks that neither a task nor a timer is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import orjson

from foundation_rt.base.clock import ManualClock
from foundation_rt.client.client import Client
from foundation_rt.client.errors import MCPError
from foundation_rt.client.handlers.client_handlers import ClientHandlers
from foundation_rt.client.options import ClientOptions
from foundation_rt.client.resilience.retries import RetryPolicy
from foundation_rt.client.session.session import ClientSession
from foundation_rt.client.transports.transport import ClientMessage
from tests.lab.checks.leaks import tasks
from tests.lab.clock.virtual_loop import run_virtual
from tests.lab.peers.misbehaving_script import CAPABILITIES, Act
from tests.lab.peers.misbehaving_transport import MemoryHarness, MisbehavingTransport

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
BOTH = [HANDSHAKE, STATELESS]
TURNS = 60
"""More turns of the loop than anything takes that waits for no time."""

ONCE = RetryPolicy(max_attempts=1)
"""Nothing is tried again."""

HANDLERS = ("sampling", "elicitation", "roots")


class ScriptedHarness(MemoryHarness):
    """A `MemoryHarness` that keeps what was sent.

    Attributes:
        sent: every message, in order.
    """

    def __init__(self, revision: str, has_exchanges: bool = False) -> None:
        super().__init__(revision, has_exchanges)
        self.sent: list[dict[str, Any]] = []
        self._is_http = has_exchanges

    def make_transport(self) -> ScriptedTransport:
        transport = ScriptedTransport(self, self._is_http)
        self.transports.append(transport)
        return transport

    @property
    def transport(self) -> ScriptedTransport:
        """The last one."""
        transport = self.transports[-1]
        assert isinstance(transport, ScriptedTransport)
        return transport

    def of(self, method: str) -> list[dict[str, Any]]:
        """Return the messages of a method."""
        return [each for each in self.sent if each.get("method") == method]

    def answers(self) -> list[dict[str, Any]]:
        """Return the client's answers to the server's requests."""
        return [each for each in self.sent if "method" not in each]

    def count(self, method: str) -> int:
        return len(self.of(method))


class ScriptedTransport(MisbehavingTransport):
    """A `MisbehavingTransport` that notes everything.

    Attributes:
        receiver: the session.
        outgoing: what was sent.
        forgotten: ids of requests that nobody waits for any more.
        farewell: how long closing takes, in s; less if it is cancelled.
    """

    def __init__(self, harness: ScriptedHarness, has_exchanges: bool) -> None:
        super().__init__(harness, has_exchanges)
        self.outgoing: list[ClientMessage] = []
        self.forgotten: list[str] = []
        self.farewell = 0.0
        self._sent = harness.sent

    @property
    def receiver(self) -> ClientSession:
        receiver = self._receiver
        assert isinstance(receiver, ClientSession)
        return receiver

    def send(self, message: ClientMessage) -> None:
        self.outgoing.append(message)
        self._sent.append(orjson.loads(message.line))
        super().send(message)

    def forget(self, request_id: str) -> None:
        self.forgotten.append(request_id)
        super().forget(request_id)

    async def close(self) -> None:
        try:
            if not self.is_closed:
                await asyncio.sleep(self.farewell)
        finally:
            await super().close()

    def say(self, message: Any, stream: str | None = None) -> None:
        """Send a message of the server now."""
        self._receiver.received(orjson.dumps(message), stream)

    def tell(self, method: str, stream: str | None = None, **params: Any) -> None:
        """Send a notification of the server now."""
        self.say({"jsonrpc": "2.0", "method": method, "params": params}, stream)

    def ask(self, request_id: Any, method: str, **params: Any) -> None:
        """Send a request of the server now."""
        self.say({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


@asynccontextmanager
async def scripted(
    points: dict[str, list[Act]] | None = None,
    *,
    revision: str = HANDSHAKE,
    has_exchanges: bool = False,
    **options: Any,
) -> AsyncIterator[tuple[Client, ScriptedHarness]]:
    """Yield a client and its server; nothing may be left of either, whatever became of the client.

    Args:
        points: what the server does, and where.
        options: of the client, and its handlers.
    """
    harness = ScriptedHarness(revision, has_exchanges)
    harness.play(points or {})
    handlers = {name: options.pop(name) for name in HANDLERS if name in options}
    async with Client(
        harness.make_transport,
        ClientOptions(revision=revision, **options),
        ClientHandlers(**handlers),
        draw=lambda: 0.5,
    ) as client:
        yield client, harness
    must_be_gone(harness)


def play(
    scenario: Callable[[Client, ScriptedHarness], Awaitable[None]],
    points: dict[str, list[Act]] | None = None,
    **options: Any,
) -> None:
    """Run a scenario with what `scripted` yields, for tests that make many."""

    async def main(clock: ManualClock) -> None:
        async with scripted(points, **options) as (client, harness):
            await scenario(client, harness)

    run_virtual(main)


def must_be_gone(harness: ScriptedHarness) -> None:
    """Check that a client that was closed has left nothing (CLIENT-29)."""
    assert tasks() == []
    assert all(transport.is_closed for transport in harness.transports)
    for transport in harness.transports:
        assert isinstance(transport, ScriptedTransport)
        assert transport.receiver.requests.pending == {}
    timers = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    left = [each for each in timers if not each.cancelled()]
    assert left == []


async def settle(turns: int = TURNS) -> None:
    """Let everything happen that can happen now."""
    for _ in range(turns):
        await asyncio.sleep(0)


@contextmanager
def taking(seconds: float) -> Iterator[None]:
    """Check that the block takes so many seconds of virtual time."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    yield
    assert abs(loop.time() - began - seconds) <= 0.001, loop.time() - began


async def begun(*operations: Awaitable[Any]) -> list[asyncio.Task[Any]]:
    """Operations that have come as far as they can."""
    tasks = [asyncio.ensure_future(each) for each in operations]
    await settle()
    return tasks


async def error_of(operation: Awaitable[Any]) -> MCPError:
    """Return the error that a call ends in."""
    try:
        result = await operation
    except MCPError as error:
        return error
    raise AssertionError(f"it went through: {result!r}")


def result(**members: Any) -> Act:
    """Return an answer with this result."""
    return ["reply", {"result": members}]


def refusal(number: int, message: str = "no", /, **data: Any) -> Act:
    """Return an answer with this error."""
    return ["reply", {"error": {"code": number, "message": message, "data": data}}]


def in_turn(*acts: Act) -> list[Act]:
    """Return the acts of a point that gets another one each time, and the last again and again."""
    return [["turns", [*acts]]]


def tool(name: str, **members: Any) -> dict[str, Any]:
    """Return a tool as it is listed."""
    return {"name": name, "inputSchema": {"type": "object"}, **members}


def capabilities(**changed: Any) -> Act:
    """Return an answer to the first request, with these capabilities."""
    return [
        "answer",
        {
            "result": {
                "protocolVersion": HANDSHAKE,
                "capabilities": {**CAPABILITIES, **changed},
                "serverInfo": {"name": "scripted", "version": "1"},
            }
        },
    ]
