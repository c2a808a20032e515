"""A server with fixed ids and a fixed clock, and a peer that exchanges messages with it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from foundation_rt.base.clock import Clock, ManualClock
from foundation_rt.base.config.settings import ServerConfig
from foundation_rt.base.ids import SequentialIds
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.features.composition import ServerOptions
from foundation_rt.server import Server
from tests.lab.servers.process import decode_text
from tests.lab.waiting import until

if TYPE_CHECKING:
    from foundation_rt.kernel.engine.connection import Connection
    from foundation_rt.kernel.session import TransportType

COMPLETED = "tool call completed"
LIST_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tests"}}


class ForgetfulSink(MemorySink):
    """A sink that can be emptied."""

    __slots__ = ()

    def clear(self) -> None:
        self._lines.clear()


class ServerFixture:
    """A server that logs to memory, counts its ids and has its time from `clock`.

    Attributes:
        server: to register tools with.
        sink: what it logged.
    """

    def __init__(
        self,
        config: ServerConfig | None = None,
        clock: Clock | None = None,
        *,
        level: str = "info",
        **options: Any,
    ) -> None:
        self.clock = clock or ManualClock()
        self.sink = ForgetfulSink()
        self.server = Server(
            options=ServerOptions(
                config=config or ServerConfig(),
                logger=StructuredLogger(self.sink, self.clock, level),
                id_generator=options.pop("id_generator", None) or SequentialIds(),
                clock=self.clock,
                **options,
            )
        )

    def connect(
        self, transport_type: TransportType = "http", *, handshake: bool = True
    ) -> ServerPeer:
        """Connect through `server.connect`."""
        peer = ServerPeer()
        peer.connection = self.server.connect(peer.receive, transport_type)
        if handshake:
            peer.shake_hands()
        return peer

    @property
    def records(self) -> list[dict[str, Any]]:
        """The completion records so far."""
        return [line for line in self.sink.lines if line["message"] == COMPLETED]

    def logged(self, message: str) -> list[dict[str, Any]]:
        """Return the log records so far with this message."""
        return [line for line in self.sink.lines if line["message"] == message]

    @property
    def slots_in_use(self) -> int:
        return self.server.runtime.resources.concurrent_executions

    async def stop(self) -> None:
        """Stop the agents, whose task begins in the turn after the first connection."""
        await asyncio.sleep(0)
        await self.server.runtime.stop_background()
        self.assert_all_ended()

    def assert_all_ended(self) -> None:
        """Check that no slot is taken and no handler runs."""
        # A worker thread hands its reply over before it is done with the call.
        assert self.server.runtime.engine.wait_idle(20)
        assert self.slots_in_use == 0
        assert list(self.server.runtime.engine.running) == []


class ServerPeer:
    """The far end of a connection.

    Attributes:
        received: the messages that came, decoded, in order.
    """

    connection: Connection

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self._ids = itertools.count(1)

    def receive(self, line: bytes) -> None:
        """Take a line of the connection."""
        assert b"\n" not in line
        self.received.append(orjson.loads(line))

    def take(self) -> list[dict[str, Any]]:
        """Return the messages that came since the last call."""
        taken, self.received = self.received, []
        return taken

    def write(self, message: Any) -> None:
        """Write one message."""
        self.connection.feed(orjson.dumps(message) + b"\n")

    def ask(self, method: str, params: Any = None, *, id: int | str | None = None) -> int | str:
        """Send a request; return its id."""
        request_id = next(self._ids) if id is None else id
        message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if params is not None:
            message["params"] = params
        self.write(message)
        return request_id

    def notify(self, method: str, params: Any = None) -> None:
        message = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        self.write(message)

    def shake_hands(self) -> dict[str, Any]:
        """Initialize; return the server's answer."""
        self.shake_hands_quietly()
        answer = self.answer("hello")
        self.received.clear()
        return answer

    def shake_hands_quietly(self) -> None:
        """Initialize without reading: for a `send` that is not this peer's."""
        self.ask("initialize", HANDSHAKE, id="hello")
        self.notify("notifications/initialized")

    def start(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, id: int | str | None = None
    ) -> int | str:
        """Start a call; return the id of the request."""
        return self.ask("tools/call", {"name": tool, "arguments": dict(arguments or {})}, id=id)

    def answers(self, request_id: int | str) -> list[dict[str, Any]]:
        """Return the answers with this id that have come."""
        return [
            message
            for message in self.received
            if message.get("id") == request_id and type(message["id"]) is type(request_id)
        ]

    def answer(self, request_id: int | str) -> dict[str, Any]:
        """Return the one answer with this id."""
        [answer] = self.answers(request_id)
        return answer

    def outcome(self, request_id: int | str) -> Any:
        """Return the result of this call, or its error, decoded."""
        return decode(self.answer(request_id))


async def call(peer: ServerPeer, tool: str, /, **arguments: Any) -> Any:
    """Call a tool; return its result, or its error."""
    request_id = peer.start(tool, arguments)
    await until(lambda: peer.answers(request_id), "the call is answered")
    return peer.outcome(request_id)


def decode(answer: Mapping[str, Any]) -> Any:
    """Return the result of a tool, or its error, from the answer to a call; a text as it is."""
    [content] = answer["result"]["content"]
    assert content["type"] == "text"
    return decode_text(content["text"])
