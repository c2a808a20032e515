"""A client on the event loop of a test that answers server requests."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from tests.lab.peers.clients import ABLE
from tests.lab.servers.process import decode_text
from tests.lab.waiting import PATIENCE, settle

if TYPE_CHECKING:
    from foundation_rt.kernel.engine.connection import Connection
    from foundation_rt.server import Server

PREFIX = "io.modelcontextprotocol/"


class AnsweringClient:
    """The far end of a connection; must be made where an event loop runs.

    Attributes:
        methods: what was asked for, by the id of the request.

    Args:
        revision: a handshake is made with it, unless it is of the stateless mode.
        capabilities: what the client can be asked; by default everything.
    """

    def __init__(
        self,
        server: Server,
        revision: str = "2025-11-25",
        capabilities: Mapping[str, Any] | None = None,
    ) -> None:
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._ids = itertools.count(1)
        self.methods: dict[object, str] = {}
        self.revision = revision
        self.capabilities = dict(ABLE if capabilities is None else capabilities)
        self.stateless = revision >= "2026"
        self.connection: Connection = server.connect(self._receive)
        if not self.stateless:
            params = {"protocolVersion": revision, "capabilities": self.capabilities}
            self.request("initialize", params)
            self.write(method="notifications/initialized")
            self._messages.get_nowait()

    def _receive(self, line: bytes) -> None:
        self._messages.put_nowait(orjson.loads(line))

    def write(self, **message: Any) -> None:
        """Send one message."""
        self.connection.feed(orjson.dumps({"jsonrpc": "2.0", **message}) + b"\n")

    def request(self, method: str, params: Mapping[str, Any], **meta: Any) -> int:
        """Send a request; return its id."""
        request_id = next(self._ids)
        self.methods[request_id] = method
        if self.stateless:
            meta |= {
                f"{PREFIX}protocolVersion": self.revision,
                f"{PREFIX}clientCapabilities": self.capabilities,
            }
        if meta:
            params = {**params, "_meta": meta}
        self.write(id=request_id, method=method, params=dict(params))
        return request_id

    def start(self, tool: str, arguments: Mapping[str, Any] | None = None, **params: Any) -> int:
        """Start a call; return the id of the request."""
        return self.request("tools/call", {"name": tool, "arguments": arguments or {}, **params})

    async def next(self) -> dict[str, Any]:
        """Return the next message from the server."""
        return await asyncio.wait_for(self._messages.get(), PATIENCE)

    async def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, **params: Any
    ) -> Any:
        """Return the response to a call that asks nothing on its way."""
        request_id = self.start(tool, arguments, **params)
        response = await self.next()
        assert response["id"] == request_id, response
        return response

    async def asked(self, method: str) -> dict[str, Any]:
        """Return the next message, which is a request of the server."""
        server_request = await self.next()
        assert server_request["method"] == method, server_request
        assert type(server_request["id"]) is str
        return server_request

    def answer(self, server_request: Mapping[str, Any], result: Any) -> None:
        """Respond to a request of the server's."""
        self.write(id=server_request["id"], result=result)

    def refuse(
        self, server_request: Mapping[str, Any], code: Any, message: Any, **members: Any
    ) -> None:
        """Respond to it with an error."""
        error = {"code": code, "message": message, **members}
        self.write(id=server_request["id"], error=error)

    async def settle(self) -> None:
        """Let everything that is due happen."""
        await settle(20)

    def unread(self) -> list[dict[str, Any]]:
        """Return the messages that have come and were not read."""
        return [self._messages.get_nowait() for _ in range(self._messages.qsize())]


def value_of(response: Mapping[str, Any]) -> Any:
    """Return the result of a tool, or its error, decoded; a text as it is."""
    return decode_text(response["result"]["content"][0]["text"])


def accepted(**content: Any) -> dict[str, Any]:
    """Return the answer of a client whose user has filled in a form."""
    return {"action": "accept", "content": content}
