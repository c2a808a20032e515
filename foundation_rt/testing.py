"""An in-memory client for tests of tools: the whole server, no process, no sockets.

::

    async with connect(server) as client:
        assert await client.call("forecast", city="Oslo") == {...}

Nothing is faked between the client and the tool: lines are framed, parsed, dispatched, validated
and encoded as they are over stdio.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson
from attrs import define, field

from .clock import Clock, ManualClock
from .errors import JsonRpcErrorCode, ToolError
from .ids import IdGenerator, SequentialIds
from .logs import MemorySink, StructuredLogger
from .protocol.revisions import NEWEST_HANDSHAKE_REVISION
from .redaction import Redactor

if TYPE_CHECKING:
    from .connection import Connection
    from .server import Server

__all__ = ["ManualClock", "ProtocolError", "SequentialIds", "TestClient", "connect"]


class ProtocolError(Exception):
    """The server answered with a JSON-RPC error.

    Attributes:
        code: the JSON-RPC error code.
        data: the error's data object, as it came.
    """

    def __init__(self, code: int, message: str, data: Any) -> None:
        super().__init__(f"{code} {message}")
        self.code = JsonRpcErrorCode(code)
        self.message = message
        self.data = data


@define(eq=False, repr=False)
class TestClient:
    """Talks to a server through a connection in the same process.

    Attributes:
        notifications: what the server sent without being asked, decoded, in order.
    """

    __test__ = False  # pytest: no test class, whatever its name says

    connection: Connection = field(init=False)
    notifications: list[dict[str, Any]] = field(factory=list, init=False)
    _sink: MemorySink | None = field(default=None, init=False)
    _waiting: dict[int, asyncio.Future[dict[str, Any]]] = field(factory=dict, init=False)
    _last_id: int = field(default=0, init=False)

    @property
    def logs(self) -> list[dict[str, Any]] | None:
        """The server's log records so far, decoded; None when it logs elsewhere."""
        return None if self._sink is None else self._sink.lines

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool with keyword arguments; see `call_tool`."""
        return await self.call_tool(tool, arguments)

    async def call_tool(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool; return its result, decoded.

        Raises:
            ToolError: the call failed.
            ProtocolError: the request was refused.
            ConnectionError: the connection is closed.
        """
        params = {"name": tool, "arguments": dict(arguments)}
        result = await self.request("tools/call", params)
        value = orjson.loads(result["content"][0]["text"])
        if result["isError"]:
            raise ToolError(value["code"], value["message"], value.get("details"))
        return value

    async def list_tools(self) -> list[dict[str, Any]]:
        """The tools as `tools/list` shows them."""
        result = await self.request("tools/list")
        tools: list[dict[str, Any]] = result["tools"]
        return tools

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request; return its result.

        Raises:
            ProtocolError: the server answered with an error.
            ConnectionError: the connection is closed.
        """
        if self.connection.closed:
            raise ConnectionError("the connection is closed")
        self._last_id += 1
        request_id = self._last_id
        answer = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        try:
            self._send({"id": request_id, "method": method}, params)
            reply = await answer
        except asyncio.CancelledError:
            self.notify("notifications/cancelled", {"requestId": request_id})
            raise
        finally:
            del self._waiting[request_id]
        if "error" in reply:
            error = reply["error"]
            raise ProtocolError(error["code"], error["message"], error.get("data"))
        result: dict[str, Any] = reply["result"]
        return result

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        self._send({"method": method}, params)

    def close(self) -> None:
        """Leave: what runs is aborted, and whoever waits for an answer gets a ConnectionError."""
        self.connection.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the connection was closed"))

    def _send(self, message: dict[str, Any], params: Mapping[str, Any] | None) -> None:
        message = {"jsonrpc": "2.0", **message}
        if params is not None:
            message["params"] = params
        self.connection.feed(orjson.dumps(message) + b"\n")

    def receive(self, line: bytes) -> None:
        """Take one line from the server."""
        message = orjson.loads(line)
        waiting = self._waiting.get(message.get("id"))
        if waiting is None:
            self.notifications.append(message)
        elif not waiting.done():
            waiting.set_result(message)


@asynccontextmanager
async def connect(
    server: Server,
    *,
    clock: Clock | None = None,
    ids: IdGenerator | None = None,
    handshake: bool = True,
) -> AsyncIterator[TestClient]:
    """Connect a client to `server` and shake hands; its lifespan is entered before (OPS-06).

    Args:
        clock: replaces the server's clock, e.g. by a `ManualClock`; the log is then kept in
            memory, as `client.logs`.
        ids: replaces the server's ids, e.g. by `SequentialIds()`.
        handshake: False leaves `initialize` to the caller.
    """
    from .runtime import ServerOptions, compose

    client = TestClient()
    runtime = server.runtime
    await runtime.start_lifespan()
    if clock is not None or ids is not None:
        clock = clock or runtime.clock
        sink = MemorySink()
        client._sink = sink
        config = runtime.config
        logger = StructuredLogger(
            sink, clock, config.logging.level, Redactor(config.logging.redact_keys)
        )
        # The slots stay the server's: its health tool reports them.
        options = ServerOptions(
            logger=logger,
            id_generator=ids,
            clock=clock,
            resource_manager=runtime.resources,
            agent_coordinator=runtime.agents,
            lifespan=runtime.lifespan,
            middleware=runtime.middleware,
        )
        runtime = compose(runtime.registry, options, config)
    try:
        client.connection = runtime.connect_host(client.receive, "memory")
        if handshake:
            info = {"name": "foundation-rt-testing", "version": "0"}
            params = {
                "protocolVersion": NEWEST_HANDSHAKE_REVISION,
                "capabilities": {},
                "clientInfo": info,
            }
            await client.request("initialize", params)
            client.notify("notifications/initialized")
        yield client
    finally:
        client.close()
        await runtime.stop_agents()
        await runtime.stop_lifespan()
        runtime.registry.attach_logger(server.runtime.logger)
        if runtime.agents is not None:
            server.runtime.attach_agents(runtime.agents)
