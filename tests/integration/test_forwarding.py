"""A server whose forwarder is a client of ours: what comes through equals what comes directly."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from foundation_rt import Server
from foundation_rt.client import Client, MCPError, connect
from foundation_rt.testing import TestClient
from tests.lab.apps import forwarded_app
from tests.lab.peers.forwarders import ClientForwarder
from tests.lab.waiting import until

pytestmark = pytest.mark.usefixtures("forked")

OLD, NEW = "2025-11-25", "2026-07-28"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
combinations = pytest.mark.parametrize(
    ("ours", "theirs"), [(OLD, OLD), (OLD, NEW), (NEW, OLD), (NEW, NEW)]
)
places = pytest.mark.parametrize("place", ["memory", "stdio"])

REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {"name": "rich"}),
    ("tools/call", {"name": "echo", "arguments": {"value": "é\n"}, "_meta": {"x": 1}}),
    ("tools/call", {"name": "echo", "arguments": {"value": 7}}),
    ("tools/call", {"name": "fail", "arguments": {"kind": "tool"}}),
    ("tools/call", {"name": "fail", "arguments": {"kind": "other"}}),
    ("tools/call", {"name": "nobody"}),
    ("resources/read", {"uri": "note://7"}),
    ("resources/read", {"uri": "note://list"}),
    ("resources/read", {"uri": "nowhere://"}),
    ("prompts/get", {"name": "review", "arguments": {"code": "x"}}),
    ("prompts/get", {"name": "review", "arguments": {}}),
    ("prompts/get", {"name": "nobody"}),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "review"},
            "argument": {"name": "language", "value": "p"},
        },
    ),
]
LISTS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")


def behind(place: str, revision: str) -> Client:
    target: Any = fresh_app() if place == "memory" else [sys.executable, forwarded_app.__file__]
    return connect(target, revision=revision)


def fresh_app() -> Server:
    """Return the server behind, made anew: a server of another test has its own loop."""
    server: Server = importlib.reload(forwarded_app).server
    return server


@asynccontextmanager
async def through(place: str, ours: str, theirs: str) -> AsyncIterator[tuple[Client, Any]]:
    """Connect a client of revision `ours`; the server is behind a client of revision `theirs`."""
    async with behind(place, theirs) as inner:
        server = Server("front")
        server.unregister("health")
        forwarder = ClientForwarder(inner)
        server.forward(forwarder)
        async with connect(server, revision=ours) as outer:
            yield outer, forwarder


async def outcome(client: Client, method: str, params: dict[str, Any]) -> Any:
    """Return what came of a request, without the ids of the call and the name of the server."""
    try:
        result = await client.request(method, params)
    except MCPError as error:
        assert error.wire is not None
        found = {**error.wire, "data": {**error.wire.get("data", {})}}
        for name in ("correlationId", "runId"):
            found["data"].pop(name, None)
        return found
    meta = {name: value for name, value in result.get("_meta", {}).items() if name != SERVER_INFO}
    result["_meta"] = meta
    if "runId" in str(result.get("content")):
        text = result["content"][0]["text"]
        result["content"] = text[: text.index('"runId"')]
    return result


@pytest.mark.rule("FWD-04", "FWD-05", "FWD-08", "FWD-16")
@combinations
@places
async def test_what_comes_through_equals_what_comes_directly(
    place: str, ours: str, theirs: str
) -> None:
    async with behind(place, ours) as direct, through(place, ours, theirs) as (client, _):
        for method in LISTS:
            assert await client.request_all(method) == await direct.request_all(method)
        for method, params in REQUESTS:
            expected = await outcome(direct, method, params)
            if method == "resources/read" and params["uri"] == "nowhere://":
                expected["code"] = -32602 if theirs == NEW else -32002  # as its server says it
            assert await outcome(client, method, params) == expected, (method, params)


@pytest.mark.rule("FWD-03")
@combinations
@places
async def test_cancellation_and_progress_pass_through(place: str, ours: str, theirs: str) -> None:
    async with through(place, ours, theirs) as (client, forwarder):
        seen: list[Any] = []
        began = asyncio.Event()

        def note(done: float, total: float | None, message: str | None) -> None:
            seen.append((done, total, message))
            began.set()

        asked = asyncio.ensure_future(
            client.request("tools/call", {"name": "hang"}, on_progress=note)
        )
        await began.wait()
        asked.cancel()
        await asyncio.wait([asked])
        await until(lambda: forwarder.cancelled, "the call is cancelled")
        assert seen == [(1, 2, "half")]
        assert forwarder.cancelled == ["hang"]
        assert (await client.call("echo", {"value": "on"})).text == "on"


@pytest.mark.rule("FWD-06")
async def test_a_thousand_forwarded_tools_are_listed_in_pages() -> None:
    app = fresh_app()
    forwarded_app.add_many(app, 1000)
    async with connect(app) as inner:
        server = Server("front", config={"server": {"page_size": 7}})
        server.forward(ClientForwarder(inner))
        async with TestClient(server) as client:
            tools = await client.list_tools()
            names = [tool["name"] for tool in tools]
            assert names == sorted(names)
            assert names == [definition.name for definition in app.list()]
