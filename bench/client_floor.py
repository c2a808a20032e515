"""The floors for a client: what a call costs when nothing but the call is made.

Over stdio that is a protocol of asyncio's for a child process, over HTTP a POST of httpx2's client;
with orjson, and a future for each request. They check nothing, and nothing can go wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import httpx2
import orjson
from attrs import define, field

_INFO = {"name": "bench", "version": "1"}

_HTTP_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}


@define(eq=False)
class ProtocolMode:
    """One of the two ways to speak the protocol: what a call says besides what it is about."""

    revision: str
    is_stateless: bool

    def params(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Those of `tools/call`."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if self.is_stateless:
            prefix = "io.modelcontextprotocol/"
            params["_meta"] = {
                f"{prefix}protocolVersion": self.revision,
                f"{prefix}clientInfo": _INFO,
                f"{prefix}clientCapabilities": {},
            }
        return params

    def headers(self, tool: str, session: Mapping[str, str]) -> dict[str, str]:
        """Those of a POST with `tools/call`."""
        headers = {**_HTTP_HEADERS, "MCP-Protocol-Version": self.revision}
        if self.is_stateless:
            return {**headers, "Mcp-Method": "tools/call", "Mcp-Name": tool}
        return {**headers, **session}

    @property
    def hello(self) -> dict[str, Any]:
        """The params of `initialize`."""
        return {"protocolVersion": self.revision, "capabilities": {}, "clientInfo": _INFO}


MODES = {
    "stateless": ProtocolMode("2026-07-28", True),
    "handshake": ProtocolMode("2025-11-25", False),
}


@define(eq=False)
class Pipes(asyncio.SubprocessProtocol):
    """A child process that is asked over its standard input."""

    ended: asyncio.Event = field(factory=asyncio.Event)
    _ids: count[int] = field(factory=count)
    _waiting: dict[int, asyncio.Future[Any]] = field(factory=dict)
    _pending: bytes = b""
    _input: Any = None

    def connection_made(self, transport: Any) -> None:
        """Keep the pipe to the process."""
        self._input = transport.get_pipe_transport(0)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take answers, or a part of one."""
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            message = orjson.loads(line)
            self._waiting.pop(message["id"]).set_result(message["result"])

    def process_exited(self) -> None:
        """Note that the process has ended."""
        self.ended.set()

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message."""
        self._input.write(orjson.dumps(message) + b"\n")

    def ask(self, method: str, params: Mapping[str, Any]) -> asyncio.Future[Any]:
        """Send a request; return the future of its result."""
        number = next(self._ids)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.tell({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return answer


@asynccontextmanager
async def over_stdio(
    command: Sequence[str], env: Mapping[str, str], mode: ProtocolMode
) -> AsyncIterator[Any]:
    """Yield a function that calls a tool of a server that it starts."""
    loop = asyncio.get_running_loop()
    transport, pipes = await loop.subprocess_exec(Pipes, *command, env=env, stderr=None)
    if not mode.is_stateless:
        await pipes.ask("initialize", mode.hello)
        pipes.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def call(tool: str, arguments: Mapping[str, Any]) -> Any:
        return await pipes.ask("tools/call", mode.params(tool, arguments))

    yield call
    stdin = transport.get_pipe_transport(0)
    assert stdin is not None
    stdin.close()
    await pipes.ended.wait()
    transport.close()


@asynccontextmanager
async def over_http(url: str, mode: ProtocolMode) -> AsyncIterator[Any]:
    """Yield a function that calls a tool of the server at `url`."""
    ids = count()
    async with httpx2.AsyncClient(timeout=None) as client:

        async def post(message: dict[str, Any], headers: dict[str, str]) -> httpx2.Response:
            return await client.post(url, content=orjson.dumps(message), headers=headers)

        async def ask(
            method: str, params: Mapping[str, Any], headers: dict[str, str]
        ) -> httpx2.Response:
            message = {"jsonrpc": "2.0", "id": next(ids), "method": method, "params": params}
            return await post(message, headers)

        session: dict[str, str] = {}
        if not mode.is_stateless:
            hello = await ask("initialize", mode.hello, mode.headers("", {}))
            session = {"Mcp-Session-Id": hello.headers["Mcp-Session-Id"]}
            told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await post(told, mode.headers("", session))

        async def call(tool: str, arguments: Mapping[str, Any]) -> Any:
            params = mode.params(tool, arguments)
            answer = await ask("tools/call", params, mode.headers(tool, session))
            return orjson.loads(answer.content)["result"]

        yield call
