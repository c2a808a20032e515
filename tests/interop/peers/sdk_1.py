"""The official Python client, `mcp` 1.x, as a peer (driver.py)."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import driver
import mcp.types
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.version import SUPPORTED_PROTOCOL_VERSIONS


class Connected:
    """A session, as the steps use it."""

    def __init__(self, session: ClientSession, revision: str) -> None:
        self.session, self.revision = session, revision

    async def tools(self) -> list[str]:
        return sorted(each.name for each in (await self.session.list_tools()).tools)

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        progress: list[float] = []

        async def advance(done: float, total: float | None, message: str | None) -> None:
            progress.append(done)

        result = await self.session.call_tool(name, arguments, progress_callback=advance)
        return driver.outcome(result.content, result.structuredContent, result.isError, progress)

    async def read(self, uri: str) -> str:
        [found] = (await self.session.read_resource(uri)).contents  # type: ignore[arg-type]
        return driver.contents(found)


async def _elicit(context: object, params: Any) -> mcp.types.ElicitResult:
    return mcp.types.ElicitResult(action="accept", content=driver.answer(params.message))


async def visit(order: dict[str, Any]) -> dict[str, Any]:
    """Connect and make the steps of an order."""
    async with AsyncExitStack() as stack:
        if url := order.get("url"):
            streams = await stack.enter_async_context(streamable_http_client(url))
        else:
            program, *words = order["command"]
            server = StdioServerParameters(command=program, args=words, env=order["env"])
            streams = await stack.enter_async_context(stdio_client(server))
        session = ClientSession(streams[0], streams[1], elicitation_callback=_elicit)
        await stack.enter_async_context(session)
        hello = await session.initialize()
        client = Connected(session, str(hello.protocolVersion))
        return {"revision": client.revision, "steps": await driver.walk(client, order["steps"])}


def offer(revision: str) -> None:
    """Offer this revision in the handshake."""
    mcp.types.LATEST_PROTOCOL_VERSION = revision


if __name__ == "__main__":
    driver.run(SUPPORTED_PROTOCOL_VERSIONS, offer, visit)
