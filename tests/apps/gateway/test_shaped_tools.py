"""Tools that the entry of their server shapes, as clients of a gateway get them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt.apps.gateway.transforms import ShapedTools
from foundation_rt.base.transforms import Transform
from foundation_rt.client import Client, connect
from tests.lab.servers.http_server import serve_gateway

APP = """
from foundation_rt import Server

server = Server("shop")


@server.tool
def find(query: str, tenant: str, limit: int = 10) -> str:
    return f"{tenant} {query} {limit}"


@server.tool
def look(query: str) -> str:
    return query


server.run()
"""


def write(folder: Path, tools: Any) -> str:
    """Write a server and a file that lists it; return the path of the file."""
    (folder / "shop.py").write_text(APP)
    entry = {"command": sys.executable, "args": [str(folder / "shop.py")], "tools": tools}
    file = folder / "mcp.json"
    file.write_bytes(orjson.dumps({"mcpServers": {"shop": entry}}))
    return str(file)


async def answer(client: Client, **arguments: Any) -> str:
    """Call the shaped tool, unchecked by the client; return its text."""
    params = {"name": "shop__search", "arguments": arguments}
    result = await client.request("tools/call", params)
    return str(result["content"][0]["text"])


@pytest.mark.rule("GATE-64", "TRANS-02")
async def test_tool_is_shaped_for_clients_alone(tmp_path: Path) -> None:
    arguments = {"query": {"as": "q"}, "tenant": {"from": "header:X-Tenant"}}
    shaped = {"as": "search", "description": "Search Acme.", "arguments": arguments}
    with serve_gateway(write(tmp_path, {"find": shaped, "gone": {"as": "x"}})) as gateway:
        async with connect(gateway.url, headers={"X-Tenant": "acme"}) as client:
            tools = {tool.name: tool for tool in await client.list_tools()}
            assert tools.keys() >= {"shop__search", "shop__look"}
            assert "shop__find" not in tools
            search = tools["shop__search"]
            assert search.description == "Search Acme."
            assert search.input_schema["properties"].keys() == {"q", "limit"}
            assert await answer(client, q="tea") == "acme tea 10"
            for wrong in ({"query": "tea"}, {"q": "tea", "tenant": "evil"}, {"q": 5}):
                assert "INVALID_ARGUMENT" in await answer(client, **wrong)
        async with connect(gateway.url) as client:
            assert "needs the header x-tenant" in await answer(client, q="tea")
        gateway.process.record(message="server 'shop': transform: there is no tool 'gone'")


@pytest.mark.rule("GATE-64")
async def test_tool_that_cannot_be_shaped_is_not_offered(tmp_path: Path) -> None:
    shaped = {"find": {"arguments": {"tennant": {"hide": "acme"}}}}
    with serve_gateway(write(tmp_path, shaped)) as gateway:
        async with connect(gateway.url) as client:
            names = [tool.name for tool in await client.list_tools()]
            assert "shop__look" in names
            assert "shop__find" not in names
    for shaped in ({"find": {"as": "look"}}, {"look": {"as": "find"}}):
        with serve_gateway(write(tmp_path, shaped)) as gateway:
            async with connect(gateway.url) as client:
                [taken] = [each["as"] for each in shaped.values()]
                own = {"look": {"query": "a"}, "find": {"query": "a", "tenant": "b"}}[taken]
                assert (await client.call(f"shop__{taken}", own)).text in ("a", "b a 10")
                names = [tool.name for tool in await client.list_tools()]
                assert not {f"shop__{each}" for each in shaped} & {*names}
    with serve_gateway(write(tmp_path, ["*"])) as gateway:
        async with connect(gateway.url) as client:
            assert "shop__find" in [tool.name for tool in await client.list_tools()]


@pytest.mark.rule("GATE-64", "TRANS-02")
def test_tool_is_shaped_once_and_one_without_a_schema_is_not_offered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    transform = Transform({"find": {"as": "search"}})
    tools = ShapedTools({"shop": transform}.get)
    find = {"name": "find", "inputSchema": {"type": "object"}}
    shaped = tools.shape("shop", find)
    assert shaped is not None and shaped[0]["name"] == "search"
    again = tools.shape("shop", {**find})
    assert again is not None and again[0] is shaped[0]
    for _ in range(2):
        assert tools.shape("shop", {"name": "find"}) is None
    tools.look_for_unknown("other", [])
    [record] = caplog.messages
    assert "the tool 'find' of server 'shop' is not offered: " in record
    assert record.endswith("it has no schema")
