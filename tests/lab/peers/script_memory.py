"""A client and a server of a script in memory, in virtual time, with all that the client sends.

`scripted` gives a client of a `MemoryHarness`, and then checks that neither a task nor a timer is
left. `script` describes scripts, and the acts of every transport. In memory there are also:

    refuse                  (point "open") fail to open
    hang                    (point "open") never finish opening
    die [MAY_HAVE_RUN]      lose the connection
    fail MAY_HAVE_RUN       fail this request; needs a transport with exchanges
    expire                  fail this request, which did not run, because its session is unknown
    jam, unjam              become congested, or stop being congested
    noise TEXT              send a line that is not a message
    turns ACTS              run the first of these acts, which is then gone; the last one stays
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import orjson

from foundation_rt.base.clock import ManualClock
from foundation_rt.client.client import Client
from foundation_rt.client.errors import ConnectionLostError, MCPError, SessionExpiredError
from foundation_rt.client.handlers.client_handlers import ClientHandlers
from foundation_rt.client.options import ClientOptions
from foundation_rt.client.resilience.retries import RetryPolicy
from foundation_rt.client.transports.transport import ClientMessage, Receiver
from tests.lab.checks.leaks import tasks
from tests.lab.clock.virtual_loop import run_virtual
from tests.lab.peers.script import CAPABILITIES, Act, ScriptExchange, ScriptRecord, ScriptRunner
from tests.lab.waiting import Changing, settle

if TYPE_CHECKING:
    from foundation_rt.protocol.revisions import Revision

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
BOTH = [HANDSHAKE, STATELESS]
ONCE = RetryPolicy(max_attempts=1)
"""Nothing is tried again."""

HANDLERS = ("sampling", "elicitation", "roots")


class MemoryHarness(Changing, ScriptRecord):
    """A script and a log in memory, and the transports that run the script.

    Attributes:
        script: the script; a test may change it at any time.
        log: the events so far; the name of each is its member `event`.
        sent: every message of the client, in order.
        transports: all transports that were made, in order.
    """

    def __init__(self, revision: str, has_exchanges: bool = False) -> None:
        super().__init__()
        self.script: dict[str, Any] = {"revision": revision, "starts": [{}]}
        self.log: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.transports: list[ScriptedTransport] = []
        self._has_exchanges = has_exchanges

    def make_transport(self) -> ScriptedTransport:
        """Return a new transport to the server."""
        transport = ScriptedTransport(self, self._has_exchanges)
        self.transports.append(transport)
        return transport

    @property
    def transport(self) -> ScriptedTransport:
        """The last one."""
        return self.transports[-1]

    def play(self, acts: dict[str, list[Act]]) -> None:
        """Replace the acts of every point."""
        self.script["starts"] = [acts]

    def note(self, event: str, **data: Any) -> None:
        self.log.append({"event": event, **data})
        self.has_changed()

    def events(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.log if each["event"] == event]

    def of(self, method: str) -> list[dict[str, Any]]:
        """Return the messages of a method."""
        return [each for each in self.sent if each.get("method") == method]

    def answers(self) -> list[dict[str, Any]]:
        """Return the client's answers to the server's requests."""
        return [each for each in self.sent if "method" not in each]

    def count(self, method: str) -> int:
        return len(self.of(method))


class ScriptedTransport:
    """A `Transport` and its server.

    If every request has an exchange of its own, a forgotten request gets no further messages.

    Attributes:
        is_open, is_closed: whether the client has opened it, and closed it.
        is_lost: whether the server has ended, of which the receiver is notified.
        receiver: the session.
        outgoing: what was sent.
        forgotten: ids of requests that nobody waits for any more.
        farewell: how long closing takes, in s; less if it is cancelled.
    """

    description = "a misbehaving server"

    def __init__(self, harness: MemoryHarness, has_exchanges: bool) -> None:
        self.has_exchanges = has_exchanges
        self.is_open = False
        self.is_closed = False
        self.is_lost = False
        self.receiver: Any = None
        self.outgoing: list[ClientMessage] = []
        self.forgotten: list[str] = []
        self.farewell = 0.0
        self._harness = harness
        self._runner = ScriptRunner(
            lambda: harness.script, 0, harness.note, self._write, self._perform
        )
        self._hangs = False
        self._refuses = False
        self._flowing = asyncio.Event()
        self._flowing.set()

    # -- as the client sees it ---------------------------------------------------------------------

    @property
    def is_congested(self) -> bool:
        return not self._flowing.is_set()

    async def open(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self._runner.reach("open")
        if self._hangs:
            await asyncio.get_running_loop().create_future()
        if self._refuses:
            raise ConnectionLostError("there is no server", may_have_run=False)
        self.is_open = True
        self._runner.reach("start")

    def send(self, message: ClientMessage) -> None:
        self.outgoing.append(message)
        self._harness.sent.append(orjson.loads(message.line))
        self._harness.has_changed()
        assert self.is_open
        assert not self.is_closed
        self._soon(self._runner.receive, message.line, message.request_id)

    async def drained(self) -> None:
        await self._flowing.wait()

    def forget(self, request_id: str) -> None:
        self.forgotten.append(request_id)

    def negotiated(self, revision: Revision) -> None:
        self._harness.note("agreed", revision=revision.name)

    def stderr_tail(self) -> str:
        return ""

    async def close(self) -> None:
        try:
            if not self.is_closed:
                await asyncio.sleep(self.farewell)
        finally:
            self.is_closed = True
            self._flowing.set()
            await asyncio.sleep(0)

    # -- as the server does it ---------------------------------------------------------------------

    def lose(self, may_have_run: bool = True) -> None:
        """End the server, and notify the receiver."""
        if not (self.is_lost or self.is_closed):
            self.is_lost = True
            self._flowing.set()
            error = ConnectionLostError("the server is gone", may_have_run=may_have_run)
            asyncio.get_running_loop().call_soon(self.receiver.lost, error)

    def jam(self) -> None:
        """Stop reading."""
        self._flowing.clear()

    def unjam(self) -> None:
        """Read again."""
        self._flowing.set()

    def release(self, what: str) -> None:
        """Run the acts that wait for `what`."""
        self._runner.wake({what})

    def say(self, message: Any, stream: str | None = None) -> None:
        """Send a message of the server now."""
        self.receiver.received(orjson.dumps(message), stream)

    def tell(self, method: str, stream: str | None = None, **params: Any) -> None:
        """Send a notification of the server now."""
        self.say({"jsonrpc": "2.0", "method": method, "params": params}, stream)

    def ask(self, request_id: Any, method: str, **params: Any) -> None:
        """Send a request of the server now."""
        self.say({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})

    def _soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call it in the next turn of the loop, unless either side has gone by then."""

        def call() -> None:
            if not (self.is_closed or self.is_lost):
                callback(*arguments)

        asyncio.get_running_loop().call_soon(call)

    def _write(self, exchange: ScriptExchange, data: bytes, is_answer: bool) -> None:
        request_id = exchange.way if self.has_exchanges else None
        if request_id is None or request_id not in self.forgotten:
            self._soon(self.receiver.received, data, request_id)

    def _perform(self, exchange: ScriptExchange, name: str, *arguments: Any) -> None:
        if name == "refuse":
            self._refuses = True
        elif name == "hang":
            self._hangs = True
        elif name == "die":
            self.lose(*arguments)
        elif name == "fail":
            error = ConnectionLostError("its exchange broke off", may_have_run=arguments[0])
            self._soon(self.receiver.failed, exchange.way, error)
        elif name == "expire":
            expired = SessionExpiredError("it does not know the session")
            self._soon(self.receiver.failed, exchange.way, expired)
        elif name == "jam":
            self._flowing.clear()
        elif name == "unjam":
            self._flowing.set()
        elif name == "turns":
            (acts,) = arguments
            exchange.acts.appendleft(acts.pop(0) if len(acts) > 1 else acts[0])
        else:
            assert name == "noise"
            self._soon(self.receiver.received, arguments[0].encode(), None)


@asynccontextmanager
async def scripted(
    points: dict[str, list[Act]] | None = None,
    *,
    revision: str = HANDSHAKE,
    has_exchanges: bool = False,
    **options: Any,
) -> AsyncIterator[tuple[Client, MemoryHarness]]:
    """Yield a client and its server; nothing may be left of either, whatever became of the client.

    Args:
        points: what the server does, and where.
        options: of the client, and its handlers.
    """
    harness = MemoryHarness(revision, has_exchanges)
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
    scenario: Callable[[Client, MemoryHarness], Awaitable[None]],
    points: dict[str, list[Act]] | None = None,
    **options: Any,
) -> None:
    """Run a scenario with what `scripted` yields, for tests that make many."""

    async def main(clock: ManualClock) -> None:
        async with scripted(points, **options) as (client, harness):
            await scenario(client, harness)

    run_virtual(main)


def must_be_gone(harness: MemoryHarness) -> None:
    """Check that a client that was closed has left nothing (CLIENT-29)."""
    assert tasks() == []
    assert all(transport.is_closed for transport in harness.transports)
    for transport in harness.transports:
        assert transport.receiver.requests.pending == {}
    timers = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    left = [each for each in timers if not each.cancelled()]
    assert left == []


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
