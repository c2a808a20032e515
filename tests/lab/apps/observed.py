"""A server with one of each kind of callable, for tests of middleware, logs and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from foundation_rt import Server, ToolError
from foundation_rt.protocol.content import ToolResult
from foundation_rt.testing import ManualClock, ProtocolError, TestClient

PATIENCE = 60.0


def make_server(config: Mapping[str, Mapping[str, Any]] | None = None) -> Server:
    """Return a server with tools, a resource, a template, a prompt and a completion."""
    server = Server("observed", config=config)

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def fails(how: str) -> Any:
        if how == "is_error":
            return ToolResult("it went wrong", is_error=True)
        if how == "tool_error":
            raise ToolError("NOT_FOUND", "Nowhere.")
        raise LookupError("details for the operator")

    @server.resource("data://all")
    def everything() -> str:
        return "all of it"

    @server.resource("data://{key}")
    def one(key: str) -> str:
        raise ToolError("NOT_FOUND", f"There is no {key}.")

    @server.prompt
    async def review(language: str) -> str:
        return f"Review this {language}."

    @server.completion("review", "language")
    def languages(value: str) -> list[str]:
        return [each for each in ("python", "perl") if each.startswith(value)]

    return server


def converse(
    server: Server, talk: Callable[[TestClient], Awaitable[Any]], clock: ManualClock | None = None
) -> list[dict[str, Any]]:
    """Let `talk` talk to `server`; return what it logged."""

    async def main() -> list[dict[str, Any]]:
        async with asyncio.timeout(PATIENCE):
            async with TestClient(server, clock=clock or ManualClock()) as client:
                await talk(client)
            return client.logs or []

    return asyncio.run(main())


async def call_everything(client: TestClient) -> None:
    """Call each of them once, and once for each way to fail."""
    assert await client.call("add", a=1, b=2) == 3
    for how in ("is_error", "tool_error", "other"):
        await client.request("tools/call", {"name": "fails", "arguments": {"how": how}})
    await client.request("tools/call", {"name": "nowhere", "arguments": {}})
    await client.request("tools/call", {"name": "add", "arguments": {"a": "x"}})
    assert await client.read_resource("data://all") == "all of it"
    await refused(client, "resources/read", {"uri": "data://lost"})
    await client.get_prompt("review", language="python")
    ref = {"type": "ref/prompt", "name": "review"}
    argument = {"name": "language", "value": "py"}
    await client.request("completion/complete", {"ref": ref, "argument": argument})


async def refused(client: TestClient, method: str, params: Mapping[str, Any]) -> ProtocolError:
    """Return the error that a request is answered with."""
    try:
        await client.request(method, params)
    except ProtocolError as error:
        return error
    raise AssertionError("it was answered")
