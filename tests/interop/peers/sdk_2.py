"""The official Python client, `mcp` 2.x, as a peer (driver.py)."""

from __future__ import annotations

from typing import Any

import driver
import mcp.client.session
from mcp import Client, StdioServerParameters
from mcp_types import ElicitResult
from mcp_types.version import SUPPORTED_PROTOCOL_VERSIONS


class Connected:
    """A client, as the steps use it."""

    def __init__(self, client: Client) -> None:
        self.client, self.revision = client, str(client.protocol_version)

    async def tools(self) -> list[str]:
        return sorted(each.name for each in (await self.client.list_tools()).tools)

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        progress: list[float] = []

        async def advance(done: float, total: float | None, message: str | None) -> None:
            progress.append(done)

        result = await self.client.call_tool(name, arguments, progress_callback=advance)
        structured = result.structured_content
        return driver.outcome(result.content, structured, bool(result.is_error), progress)

    async def read(self, uri: str) -> str:
        [found] = (await self.client.read_resource(uri)).contents
        return driver.contents(found)


async def _elicit(context: object, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content=driver.answer(params.message))


async def visit(order: dict[str, Any]) -> dict[str, Any]:
    """Connect and make the steps of an order."""
    server: Any = order.get("url")
    if server is None:
        program, *words = order["command"]
        server = StdioServerParameters(command=program, args=words, env=order["env"])
    mode = "auto" if order["revision"] >= "2026" else "legacy"
    async with Client(server, mode=mode, elicitation_callback=_elicit) as client:
        connected = Connected(client)
        steps = await driver.walk(connected, order["steps"])
        return {"revision": connected.revision, "steps": steps}


def offer(revision: str) -> None:
    """Offer this revision in the handshake."""
    mcp.client.session.LATEST_HANDSHAKE_VERSION = revision  # type: ignore[misc]


if __name__ == "__main__":
    driver.run(SUPPORTED_PROTOCOL_VERSIONS, offer, visit)
