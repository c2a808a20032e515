"""Our client makes the tour of `tour.py`, through our own server and through the official ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from attrs import define, field

from foundation_rt import BlobContents, Text, TextContents
from foundation_rt.client import (
    CallTimeoutError,
    Client,
    InvalidArgumentsError,
    SampleResult,
    connect,
)
from tests.interop import tour
from tests.lab.servers.process import PATIENCE

CORRELATION_ID = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"


@define
class Seen:
    """What the server sent of its own accord."""

    progress: list[float] = field(factory=list)
    logged: list[Any] = field(factory=list)
    counted: asyncio.Event = field(factory=asyncio.Event)
    list_changed: asyncio.Event = field(factory=asyncio.Event)

    def change(self, kind: str) -> None:
        if kind == "tools":
            self.list_changed.set()

    def advance(self, progress: float, total: float | None, message: str | None) -> None:
        assert (total, message) == (3, f"at {len(self.progress) + 1}")
        self.progress.append(progress)
        self._count()

    def log(self, level: str, logger: str | None, data: Any) -> None:
        assert level == "info"
        self.logged.append(data)
        self._count()

    def _count(self) -> None:
        if len(self.progress) == len(self.logged) == 3:
            self.counted.set()


def expected(server: str, *, modern: bool, over_http: bool) -> dict[str, Any]:
    """Return the report of the tour: what every client sees, and what ours can do besides.

    Args:
        server: `interop`, which is ours, `official-python` or `official-typescript`.
    """
    report = tour.expected(modern=modern, over_http=over_http)
    report |= {"photo": b"\x89PNG", "too_late": "E202", "learned": True}
    if server != "interop":
        # They do not tell why a request was withdrawn, nor are there tasks and galleries.
        others = ("ask_elsewhere", "clean_up", "gallery", "health")
        tools = {*tour.TOOLS, "fail", "process_id"} - {*others}
        report |= {"server": f"{server} 1.0.0", "aborted": "cancelled", "tools": sorted(tools)}
    return report


async def make(target: Any, *, modern: bool, over_http: bool) -> dict[str, Any]:
    """Make the tour; return the report.

    Args:
        target: what `connect` takes.
    """
    seen = Seen()
    async with (
        asyncio.timeout(PATIENCE),
        connect(
            target,
            revision=None if modern else "2025-11-25",
            require=("tools", "resources", "prompts"),
            log_level="info",
            elicitation=lambda request: {"name": "Ada"},
            sampling=_sample,
            roots=["file:///home/ada"],
            on_log=seen.log,
            on_list_changed=seen.change,
        ) as client,
    ):
        report = await _look(client) | await _ask(client)
        await _watch(client, seen, report)
        report |= await _cancel_and_time_out(client)
        if over_http and not modern:
            # The Python SDK now and then closes a stream before it has said how to resume it.
            report["reconnected"] = (await client.call("drop", idempotent=True)).text
    return report


async def look_briefly(target: Any, *, modern: bool) -> dict[str, Any]:
    """Only what needs nothing but answers."""
    revision = None if modern else "2025-11-25"
    async with asyncio.timeout(PATIENCE), connect(target, revision=revision) as client:
        return await _look(client)


async def say(client: Client, tool: str, **arguments: object) -> str:
    """Call a tool that returns one text."""
    result = await client.call(tool, arguments, correlation_id=CORRELATION_ID)
    assert result.correlation_id == CORRELATION_ID
    return result.raise_for_error().text


async def _look(client: Client) -> dict[str, Any]:
    """Everything that is listed, called, read and completed."""
    server = await client.initialize()
    tools = await client.list_tools()
    added = await client.call("add", {"a": 2, "b": 3})
    picture = await client.call("picture")
    photo, today = await _read(client, "note://photo"), await _read(client, "note://today")
    rent = await _read(client, "note://by-name/rent")
    assert isinstance(photo, BlobContents)
    assert isinstance(today, TextContents)
    assert isinstance(rent, TextContents)
    return {
        "revision": server.revision.name,
        "server": f"{server.name} {server.version}",
        "instructions": server.instructions,
        "tools": sorted(tool.name for tool in tools),
        "add": added.structured,
        "refused": await _is_refused(client),
        "picture": [type(block).__name__.lower() for block in picture.content],
        "resources": sorted(each.uri for each in await client.list_resources()),
        "templates": [each.uri_template for each in await client.list_resource_templates()],
        "photo": photo.blob,
        "read": today.text,
        "read_template": rent.text,
        "prompts": [each.name for each in await client.list_prompts()],
        "prompt": (await client.get_prompt("greet", {"name": "Ada"})).messages[0].content.text,
        "completion": [*(await client.complete("greet", "name", "A")).values],
    }


async def _read(client: Client, uri: str) -> object:
    [contents] = (await client.read_resource(uri)).contents
    return contents


async def _is_refused(client: Client) -> bool:
    """Wrong arguments do not reach the server."""
    with pytest.raises(InvalidArgumentsError) as refused:
        await client.call("add", {"a": "two", "b": 3})
    [issue] = refused.value.issues
    return issue.path == "/a"


async def _ask(client: Client) -> dict[str, Any]:
    """Call the three tools that ask the client."""
    return {
        "user": await say(client, "ask_user"),
        "model": await say(client, "ask_model"),
        "roots": await say(client, "ask_roots"),
    }


def _sample(request: Any) -> SampleResult:
    return SampleResult("assistant", (Text("I am a model"),), "test")


async def _watch(client: Client, seen: Seen, report: dict[str, Any]) -> None:
    """Receive progress, log messages and changes; add them to `report`."""
    async with asyncio.TaskGroup() as group:
        group.create_task(client.call("count", {"to": 3}, on_progress=seen.advance))
        await seen.counted.wait()
        await say(client, "enough")
    async with client.subscribe("note://today") as changes:
        await say(client, "touch", uri="note://today")
        report["updated"] = [await anext(changes)]
    await say(client, "learn")
    await seen.list_changed.wait()
    report |= {
        "progress": seen.progress,
        "logged": seen.logged,
        "list_changed": True,
        "learned": (await client.get_tool_schema("learned")).name == "learned",
    }


async def _cancel_and_time_out(client: Client) -> dict[str, Any]:
    """Cancel a running call, and let another one time out; return what became of them."""
    running = asyncio.create_task(client.call("wait"))
    await say(client, "waiting")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    aborted = await say(client, "ended_with")
    with pytest.raises(CallTimeoutError) as late:
        await client.call("wait", timeout=0.1)
    return {"aborted": aborted, "too_late": late.value.code}
