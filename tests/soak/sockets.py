"""Requests that are cut anywhere, with bodies too large and answers nobody reads; and chats."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress

import orjson
from attrs import define, field
from websockets.asyncio.client import connect

_PATIENCE = 60.0
_CALL = orjson.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "large",
            "arguments": {"size": 200_000},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "soak", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    }
)


@define(eq=False)
class BrokenRequests:
    """Connections to an HTTP server that end at any byte.

    Attributes:
        port: of the server.
        random: chooses.
        connections: how many there were.
    """

    port: int
    random: random.Random
    connections: int = field(default=0, init=False)

    async def run(self, seconds: float) -> None:
        """Connect and break off for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(OSError):
                await self._one()
            self.connections += 1
            await asyncio.sleep(self.random.random() * 0.1)

    async def _one(self) -> None:
        length = self.random.choice((len(_CALL), len(_CALL), 10**9))
        head = (
            f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\n"
            "content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
            "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: large\r\n"
            f"content-length: {length}\r\n\r\n"
        ).encode()
        request = head + _CALL
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request[: self.random.randint(1, len(request))])
            await writer.drain()
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(self.random.randint(1, 4_000)), 0.05)
        finally:
            writer.transport.abort()


@define(eq=False)
class Chats:
    """Chats with a host, over WebSockets that come and go.

    Attributes:
        port: of the host.
        random: chooses.
        turns: how many messages were answered.
        faults: what did not end as it should.
    """

    port: int
    random: random.Random
    turns: int = field(default=0, init=False)
    faults: list[str] = field(factory=list, init=False)

    async def run(self, seconds: float) -> None:
        """Chat for so long."""
        end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(self._chats(end))

    async def _chats(self, end: float) -> None:
        while time.monotonic() < end:
            try:
                await self._chat()
            except Exception as error:
                self.faults.append(f"chat: {error!r}"[:300])
            await asyncio.sleep(0.05)

    async def _chat(self) -> None:
        """Have a turn, break off in the middle of another, come back for its end, and delete it."""
        async with connect(f"ws://127.0.0.1:{self.port}/ws", compression=None) as socket:
            session = orjson.loads(await socket.recv())["payload"]["sessionId"]
            await socket.send(_message("pieces=20"))
            last = await self._finished(socket)
            if self.random.random() < 0.5:
                await socket.send(_message("pieces=200"))
                await socket.recv()
        address = f"ws://127.0.0.1:{self.port}/ws?session={session}&after={last}"
        async with connect(address, compression=None) as socket:
            await socket.recv()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(
            f"DELETE /api/sessions/{session} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\n"
            "connection: close\r\n\r\n".encode()
        )
        answer = await asyncio.wait_for(reader.read(), _PATIENCE)
        writer.close()
        if b" 204 " not in answer.partition(b"\r\n")[0]:
            self.faults.append(f"a chat was not deleted: {answer[:200]!r}")

    async def _finished(self, socket: object) -> int:
        """Read to the end of a turn; return the number of its last event."""
        while True:
            frame = orjson.loads(await asyncio.wait_for(socket.recv(), _PATIENCE))  # type: ignore[attr-defined]
            payload = frame.get("payload", {})
            if frame["type"] == "error" or payload.get("state") == "failed":
                raise RuntimeError(str(frame)[:200])
            if payload.get("state") == "finished":
                self.turns += 1
                return int(frame["seq"])


def _message(text: str) -> str:
    return orjson.dumps({"type": "message", "payload": {"text": text}}).decode()
