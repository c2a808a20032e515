"""A client transport in memory whose server misbehaves, in the time of the event loop.

`misbehaving_script` describes scripts, and the acts of every transport. In memory there are also:

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
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from foundation_rt.client.errors import ConnectionLostError, SessionExpiredError
from foundation_rt.client.transports.transport import ClientMessage, Receiver
from tests.lab.peers.misbehaving_script import Act, ScriptExchange, ScriptRunner

if TYPE_CHECKING:
    from foundation_rt.protocol.revisions import Revision


class MemoryHarness:
    """A script and a log in memory, and the transports that run the script.

    Attributes:
        script: the script; a test may change it at any time.
        log: the events so far; the name of each is its member `event`.
        transports: all transports that were made, in order.
    """

    def __init__(self, revision: str, has_exchanges: bool = False) -> None:
        self.script: dict[str, Any] = {"revision": revision, "starts": [{}]}
        self.log: list[dict[str, Any]] = []
        self.transports: list[MisbehavingTransport] = []
        self._has_exchanges = has_exchanges

    def make_transport(self) -> MisbehavingTransport:
        """Return a new transport to the server."""
        transport = MisbehavingTransport(self, self._has_exchanges)
        self.transports.append(transport)
        return transport

    def play(self, acts: dict[str, list[Act]]) -> None:
        """Replace the acts of every point."""
        self.script["starts"] = [acts]

    def note(self, event: str, **data: Any) -> None:
        self.log.append({"event": event, **data})

    def events(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.log if each["event"] == event]

    def messages(self, method: str) -> list[dict[str, Any]]:
        """Return the messages of this method that were received."""
        return [each for each in self.events("message") if each["method"] == method]

    def nonces(self) -> list[str]:
        """Return the nonces of all calls that were received, in order."""
        return [each["nonce"] for each in self.messages("tools/call")]


class MisbehavingTransport:
    """A `Transport` and its server.

    If every request has an exchange of its own, a forgotten request gets no further messages.

    Attributes:
        is_open, is_closed: whether the client has opened it, and closed it.
        is_lost: whether the server has ended, of which the receiver is notified.
    """

    description = "a misbehaving server"

    def __init__(self, harness: MemoryHarness, has_exchanges: bool) -> None:
        self.has_exchanges = has_exchanges
        self.is_open = False
        self.is_closed = False
        self.is_lost = False
        self._harness = harness
        self._runner = ScriptRunner(
            lambda: harness.script, 0, harness.note, self._write, self._perform
        )
        self._forgotten: set[str] = set()
        self._hangs = False
        self._refuses = False
        self._flowing = asyncio.Event()
        self._flowing.set()

    # -- as the client sees it ---------------------------------------------------------------------

    @property
    def is_congested(self) -> bool:
        return not self._flowing.is_set()

    async def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._runner.reach("open")
        if self._hangs:
            await asyncio.get_running_loop().create_future()
        if self._refuses:
            raise ConnectionLostError("there is no server", may_have_run=False)
        self.is_open = True
        self._runner.reach("start")

    def send(self, message: ClientMessage) -> None:
        assert self.is_open
        assert not self.is_closed
        self._soon(self._runner.receive, message.line, message.request_id)

    async def drained(self) -> None:
        await self._flowing.wait()

    def forget(self, request_id: str) -> None:
        if self.has_exchanges:
            self._forgotten.add(request_id)

    def negotiated(self, revision: Revision) -> None:
        self._harness.note("agreed", revision=revision.name)

    def stderr_tail(self) -> str:
        return ""

    async def close(self) -> None:
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
            asyncio.get_running_loop().call_soon(self._receiver.lost, error)

    def jam(self) -> None:
        """Stop reading."""
        self._flowing.clear()

    def unjam(self) -> None:
        """Read again."""
        self._flowing.set()

    def release(self, what: str) -> None:
        """Run the acts that wait for `what`."""
        self._runner.wake({what})

    def _soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call it in the next turn of the loop, unless either side has gone by then."""

        def call() -> None:
            if not (self.is_closed or self.is_lost):
                callback(*arguments)

        asyncio.get_running_loop().call_soon(call)

    def _write(self, exchange: ScriptExchange, data: bytes, is_answer: bool) -> None:
        request_id = exchange.way if self.has_exchanges else None
        if request_id not in self._forgotten:
            self._soon(self._receiver.received, data, request_id)

    def _perform(self, exchange: ScriptExchange, name: str, *arguments: Any) -> None:
        if name == "refuse":
            self._refuses = True
        elif name == "hang":
            self._hangs = True
        elif name == "die":
            self.lose(*arguments)
        elif name == "fail":
            error = ConnectionLostError("its exchange broke off", may_have_run=arguments[0])
            self._soon(self._receiver.failed, exchange.way, error)
        elif name == "expire":
            expired = SessionExpiredError("it does not know the session")
            self._soon(self._receiver.failed, exchange.way, expired)
        elif name == "jam":
            self._flowing.clear()
        elif name == "unjam":
            self._flowing.set()
        elif name == "turns":
            (acts,) = arguments
            exchange.acts.appendleft(acts.pop(0) if len(acts) > 1 else acts[0])
        else:
            assert name == "noise"
            self._soon(self._receiver.received, arguments[0].encode(), None)
