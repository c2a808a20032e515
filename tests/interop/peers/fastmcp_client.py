"""`fastmcp.Client`, 3.x and 4.x, as a peer (driver.py)."""

from __future__ import annotations

from typing import Any

import driver
import fastmcp
import mcp.client.session
import mcp.types
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport

NEW = fastmcp.__version__ >= "4"
if NEW:
    from mcp_types.version import SUPPORTED_PROTOCOL_VERSIONS
else:
    from mcp.shared.version import SUPPORTED_PROTOCOL_VERSIONS


class Connected:
    """A client, as the steps use it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.revision = str(
            client.protocol_version if NEW else client.initialize_result.protocolVersion
        )

    async def tools(self) -> list[str]:
        return sorted(each.name for each in await self.client.list_tools())

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        progress: list[float] = []

        async def advance(done: float, total: float | None, message: str | None) -> None:
            progress.append(done)

        result = await self.client.call_tool(
            name, arguments, progress_handler=advance, raise_on_error=False
        )
        structured = result.structured_content
        return driver.outcome(result.content, structured, result.is_error, progress)

    async def read(self, uri: str) -> str:
        [found] = await self.client.read_resource(uri)
        return driver.contents(found)


async def _elicit(message: str, response_type: Any, params: Any, context: Any) -> Any:
    content = driver.answer(message)
    if response_type is not None and content is not None:
        content = response_type(**content)  # the type that the client has made of the form
    return ElicitResult(action="accept", content=content)


async def visit(order: dict[str, Any]) -> dict[str, Any]:
    """Connect and make the steps of an order."""
    server: Any = order.get("url")
    if server is None:
        program, *words = order["command"]
        server = StdioTransport(program, words, env=order["env"], keep_alive=False)
    options: dict[str, Any] = {"elicitation_handler": _elicit}
    if NEW:
        options["mode"] = "auto" if order["revision"] >= "2026" else "legacy"
    async with Client(server, **options) as client:
        connected = Connected(client)
        steps = await driver.walk(connected, order["steps"])
        return {"revision": connected.revision, "steps": steps}


def offer(revision: str) -> None:
    """Offer this revision in the handshake."""
    if NEW:
        mcp.client.session.LATEST_HANDSHAKE_VERSION = revision  # type: ignore[misc]
    else:
        mcp.types.LATEST_PROTOCOL_VERSION = revision


if __name__ == "__main__":
    driver.run(SUPPORTED_PROTOCOL_VERSIONS, offer, visit)
