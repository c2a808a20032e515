"""The official Python client makes the tour of `tour.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
from attrs import define, field
from mcp import Client, StdioServerParameters
from mcp.client import Transport
from mcp_types import (
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    PromptReference,
    ResourceUpdatedNotification,
    Root,
    TextContent,
    ToolListChangedNotification,
)


@define
class Seen:
    """What the server sent of its own accord."""

    progress: list[float] = field(factory=list)
    logged: list[Any] = field(factory=list)
    updated: list[str] = field(factory=list)
    counted: anyio.Event = field(factory=anyio.Event)
    resource_updated: anyio.Event = field(factory=anyio.Event)
    list_changed: anyio.Event = field(factory=anyio.Event)

    async def message(self, message: object) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            self.updated.append(str(message.params.uri))
            self.resource_updated.set()
        elif isinstance(message, ToolListChangedNotification):
            self.list_changed.set()

    async def log(self, params: Any) -> None:
        self.logged.append(params.data)
        self._count()

    async def advance(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append(progress)
        self._count()

    def _count(self) -> None:
        if len(self.progress) == len(self.logged) == 3:
            self.counted.set()


async def make(
    server: str | StdioServerParameters | Transport, *, modern: bool, over_http: bool
) -> dict[str, Any]:
    """Make the tour; return the report.

    Args:
        server: the URL of one, how to start one, or the way to one.
    """
    seen = Seen()
    async with Client(
        server,
        mode="auto" if modern else "legacy",
        log_level="info" if modern else None,
        elicitation_callback=_elicit,
        sampling_callback=_sample,
        list_roots_callback=_roots,
        logging_callback=seen.log,
        message_handler=seen.message,
    ) as client:
        report = await _look(client) | await _ask(client)
        await _follow(client, seen, report, modern)
        report["aborted"] = await _cancel(client)
        if over_http and not modern:
            report["reconnected"] = await say(client, "drop")
    return report


async def say(client: Client, tool: str, **arguments: object) -> str:
    """Call a tool that returns one text."""
    [content] = (await client.call_tool(tool, arguments)).content
    assert isinstance(content, TextContent)
    return content.text


async def _look(client: Client) -> dict[str, Any]:
    """Everything that is listed, called, read and completed."""
    info = client.server_info
    added = await client.call_tool("add", {"a": 2, "b": 3})
    refused = await client.call_tool("add", {"a": "two", "b": 3})
    picture = await client.call_tool("picture")
    prompt = await client.get_prompt("greet", {"name": "Ada"})
    completion = await client.complete(
        PromptReference(name="greet"), {"name": "name", "value": "A"}
    )
    return {
        "revision": client.protocol_version,
        "server": f"{info.name} {info.version}" if info else "",
        "instructions": client.instructions,
        "tools": sorted(tool.name for tool in (await client.list_tools()).tools),
        "add": added.structured_content,
        "refused": refused.is_error,
        "picture": [block.type for block in picture.content],
        "resources": [each.uri for each in (await client.list_resources()).resources],
        "templates": [
            each.uri_template
            for each in (await client.list_resource_templates()).resource_templates
        ],
        "read": await _read(client, "note://today"),
        "read_template": await _read(client, "note://by-name/rent"),
        "prompts": [each.name for each in (await client.list_prompts()).prompts],
        "prompt": prompt.messages[0].content.text,  # type: ignore[union-attr]
        "completion": completion.completion.values,
    }


async def _read(client: Client, uri: str) -> str:
    [contents] = (await client.read_resource(uri)).contents
    return contents.text  # type: ignore[union-attr]


async def _ask(client: Client) -> dict[str, Any]:
    """Call the three tools that ask the client."""
    return {
        "user": await say(client, "ask_user"),
        "model": await say(client, "ask_model"),
        "roots": await say(client, "ask_roots"),
    }


async def _follow(client: Client, seen: Seen, report: dict[str, Any], modern: bool) -> None:
    """Progress, log messages and changes."""
    if not modern:
        await client.set_logging_level("info")
    async with anyio.create_task_group() as group:
        group.start_soon(
            partial(client.call_tool, "count", {"to": 3}, progress_callback=seen.advance)
        )
        await seen.counted.wait()
        await say(client, "enough")
    async with _subscribed(client, modern):
        await say(client, "touch", uri="note://today")
        await seen.resource_updated.wait()
        await say(client, "learn")
        await seen.list_changed.wait()
    report |= {
        "progress": seen.progress,
        "logged": seen.logged,
        "updated": seen.updated,
        "list_changed": True,
    }


@asynccontextmanager
async def _subscribed(client: Client, modern: bool) -> AsyncIterator[None]:
    if modern:
        wanted = {"tools_list_changed": True, "resource_subscriptions": ["note://today"]}
        async with client.listen(**wanted):  # type: ignore[arg-type]
            yield
    else:
        await client.subscribe_resource("note://today")
        yield
        await client.unsubscribe_resource("note://today")


async def _cancel(client: Client) -> str:
    """Withdraw a call that runs; return what became of it."""
    async with anyio.create_task_group() as group:
        group.start_soon(client.call_tool, "wait")
        await say(client, "waiting")
        group.cancel_scope.cancel()
    return await say(client, "ended_with")


async def _elicit(context: object, params: object) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "Ada"})


async def _sample(context: object, params: object) -> CreateMessageResult:
    content = TextContent(type="text", text="I am a model")
    return CreateMessageResult(role="assistant", model="test", content=content)


async def _roots(context: object) -> ListRootsResult:
    return ListRootsResult(roots=[Root(uri="file:///home/ada")])  # type: ignore[arg-type]
