"""Versions of tools behind a gateway: called, shaped, locked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt.client import Client, connect
from tests.lab.peers.raw_http import RawClient
from tests.lab.servers.asgi import META
from tests.lab.servers.http_server import serve_gateway

APP = """
import sys
from typing import Annotated
from foundation_rt import Header, Server

server = Server("shop")


@server.tool("find", version="1", deprecated="use version 2")
def find_all(query: str, tenant: str) -> str:
    return f"1 {tenant} {query}"


@server.tool("find", version="2")
def find(query: Annotated[str, Header("Query")], tenant: str, limit: int = 10) -> str:
    return f"2 {tenant} {query} {limit}"


if "more" in sys.argv:

    @server.tool("find", version="1.5")
    def find_some(query: str, tenant: str) -> str:
        return f"1.5 {tenant} {query}"


@server.tool
def look(query: str) -> str:
    return query


server.run()
"""
VERSION, VERSIONS = "foundation-rt/version", "foundation-rt/versions"


def write(folder: Path, tools: Any = None, *arguments: str) -> str:
    """Write a server and a file that lists it; return the path of the file."""
    (folder / "shop.py").write_text(APP)
    entry: dict[str, Any] = {"command": sys.executable, "args": [str(folder / "shop.py")]}
    entry["args"] += arguments
    if tools is not None:
        entry["tools"] = tools
    file = folder / "mcp.json"
    file.write_bytes(orjson.dumps({"mcpServers": {"shop": entry}}))
    return str(file)


async def call(client: Client, name: str, meta: Any = None, /, **arguments: Any) -> str:
    """Call a tool, unchecked by the client; return its text."""
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    if meta is not None:
        params["_meta"] = meta
    result = await client.request("tools/call", params)
    return str(result["content"][0]["text"])


BOTH = {"query": "tea", "tenant": "acme"}


@pytest.mark.rule("GATE-69")
async def test_versions_are_called_through_a_gateway(tmp_path: Path) -> None:
    with serve_gateway(write(tmp_path)) as gateway:
        async with connect(gateway.url) as client:
            tools = {tool.name: tool.wire for tool in await client.list_tools()}
            assert "shop__find@1" not in tools
            assert tools["shop__find"]["_meta"][VERSIONS].keys() == {"1"}
            assert (await client.call("shop__find", BOTH)).text == "2 acme tea 10"
            assert (await client.call("shop__find", BOTH, version="1")).text == "1 acme tea"
            assert (await client.call("shop__find", BOTH, version="2")).text == "2 acme tea 10"
            for meta in ({VERSION: "1"}, {"fastmcp": {"version": "1", "a": 1}}):
                assert await call(client, "shop__find", meta, **BOTH) == "1 acme tea"
            for name, meta in (
                ("shop__find", {VERSION: "3"}),
                ("shop__find@3", None),
                ("shop__look@1", None),
                ("shop__find@1@1", None),
            ):
                assert "NOT_FOUND" in await call(client, name, meta, **BOTH)
            asked = await call(client, "shop__find@1", {VERSION: "2"}, **BOTH)
            assert "asks for two versions" in asked
            assert await call(client, "shop__look", {VERSION: "1"}, query="a") == "a"
        with RawClient(gateway.url) as raw:
            meta = {**META, VERSION: "2"}
            params = {"name": "shop__find@2", "arguments": BOTH, "_meta": meta}
            refused = raw.fetch(raw.request("tools/call", params, name="shop__find@2"))
            assert "Mcp-Param-Query is missing" in refused.json["error"]["message"]


@pytest.mark.rule("GATE-69", "GATE-64")
async def test_each_version_is_shaped_or_not_offered(tmp_path: Path) -> None:
    hidden = {"tenant": {"hide": "acme"}}
    shapes = {
        "find": {"as": "search", "arguments": {**hidden, "limit": {"hide": 3}}},
        "find@1": {"as": "search", "description": "Search.", "arguments": hidden},
        "gone@7": {"as": "gone"},
    }
    with serve_gateway(write(tmp_path, shapes, "more")) as gateway:
        async with connect(gateway.url) as client:
            tool = {each.name: each.wire for each in await client.list_tools()}["shop__search"]
            assert tool["inputSchema"]["properties"].keys() == {"query"}
            versions = tool["_meta"][VERSIONS]  # 1.5 has no `limit` that could be hidden
            assert versions.keys() == {"1"}
            assert versions["1"]["inputSchema"]["properties"].keys() == {"query"}
            assert versions["1"]["description"] == "Search.\n\nDeprecated: use version 2"
            assert (await client.call("shop__search", {"query": "a"})).text == "2 acme a 3"
            assert (await client.call("shop__search@1", {"query": "a"})).text == "1 acme a"
            for version in ("1", "2"):
                answer = await call(client, "shop__search", {VERSION: version}, **BOTH)
                assert "INVALID_ARGUMENT" in answer
            for meta in ({VERSION: "1.5"}, {"fastmcp": {"version": "1.5"}}):
                assert "NOT_FOUND" in await call(client, "shop__search", meta, **BOTH)
            assert "NOT_FOUND" in await call(client, "shop__search@1.5", **BOTH)
            assert "NOT_FOUND" in await call(client, "shop__find@1", **BOTH)
        gateway.process.record(message="server 'shop': transform: there is no tool 'gone@7'")


@pytest.mark.rule("GATE-69", "GATE-31")
async def test_a_lock_holds_all_versions_of_a_tool(tmp_path: Path) -> None:
    lock = ("--lock", str(tmp_path / "mcp.lock"))
    with serve_gateway(write(tmp_path), *lock) as gateway:
        async with connect(gateway.url) as client:
            assert (await client.call("shop__find", BOTH, version="1")).text == "1 acme tea"
    with serve_gateway(write(tmp_path, None, "more"), *lock) as gateway:
        async with connect(gateway.url) as client:
            for name in ("shop__find", "shop__find@1", "shop__find@1.5"):
                assert "is withheld" in await call(client, name, **BOTH)
            assert await call(client, "shop__look", query="a") == "a"
            assert "NOT_FOUND" in await call(
                client, "shop__look", {"fastmcp": {"version": "1"}}, query="a"
            )


@pytest.mark.rule("GATE-69", "GATE-30", "SEARCH-02")
async def test_a_search_describes_the_versions_that_it_calls(tmp_path: Path) -> None:
    with serve_gateway(write(tmp_path), "--expose", "search") as gateway:
        async with connect(gateway.url) as client:
            for name, version in (("shop__find", "2"), ("shop__find@1", "1")):
                found = orjson.loads(await call(client, "describe_tool", name=name))
                assert (found["name"], found["version"]) == (name, version)
                called = {"name": name, "arguments": BOTH}
                assert (await call(client, "call_tool", **called)).startswith(f"{version} acme tea")
            assert "NOT_FOUND" in await call(client, "describe_tool", name="shop__find@3")
