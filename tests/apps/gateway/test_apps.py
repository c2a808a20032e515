"""Apps of servers, as clients of a gateway get them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt.apps.coordinator import outside_name
from foundation_rt.apps.gateway.routes import Routes
from foundation_rt.client import APPS, MCPError, connect
from foundation_rt.errors import ToolError
from tests.lab.servers.http_server import serve_gateway

URI = "ui://orders/table"
TOOLS = ["one__list_orders", "one__refund_order", "two__list_orders", "two__refund_order"]


def write_servers(folder: Path, *names: str) -> str:
    """Write a file of servers that are the example with apps; return its path."""
    module = "foundation_rt.examples.orders"
    entry = {"command": sys.executable, "args": ["-m", "foundation_rt", "serve", module]}
    file = folder / "mcp.json"
    file.write_bytes(orjson.dumps({"mcpServers": dict.fromkeys(names, entry)}))
    return str(file)


@pytest.mark.rule("GATE-65", "GATE-66", "GATE-67")
async def test_apps_of_all_servers_go_through(tmp_path: Path) -> None:
    with serve_gateway(write_servers(tmp_path, "one", "two")) as gateway:
        async with connect(gateway.url, extensions=APPS) as client:
            tools = {each.name: each.ui for each in await client.list_tools()}
            assert [each for each in tools if "order" in each] == TOOLS
            assert tools["two__refund_order"].visibility == ("app",)
            first, second = (tools[f"{id}__list_orders"].resource_uri for id in ("one", "two"))
            assert (first, second) == (URI, "ui://two+orders/table")
            pages = [await client.read_app(str(each)) for each in (first, second)]
            assert pages[0].html == pages[1].html and pages[0].prefers_border
            after = (await client.call("two__refund_order", {"order_id": 1})).value()
            assert after["orders"][0]["refunded"]
            assert not (await client.call("one__list_orders")).value()["orders"][0]["refunded"]
            by_page = {"name": "refund_order", "arguments": {"order_id": 1}}
            both = await client.request("tools/call", by_page)
            assert "candidates" in str(both) and both["isError"]
        async with connect(gateway.url) as client:
            names = [each.name for each in await client.list_tools()]
            assert [each for each in names if "order" in each] == [TOOLS[0], TOOLS[2]]
    with serve_gateway(write_servers(tmp_path, "one")) as gateway:
        async with connect(gateway.url, extensions=APPS) as client:
            called = await client.request("tools/call", by_page)
            assert called["structuredContent"]["orders"][0]["refunded"]
        async with connect(gateway.url) as client:
            assert (await client.request("tools/call", by_page))["isError"]


@pytest.mark.rule("GATE-67")
async def test_call_of_a_page_goes_to_no_other_server_while_one_is_gone(tmp_path: Path) -> None:
    file = Path(write_servers(tmp_path, "evil", "gone"))
    content = orjson.loads(file.read_bytes())
    content["mcpServers"]["gone"]["args"] = ["-c", "raise SystemExit(1)"]
    file.write_bytes(orjson.dumps(content))
    with serve_gateway(str(file)) as gateway:
        async with connect(gateway.url, extensions=APPS) as client:
            by_page = {"name": "refund_order", "arguments": {"order_id": 1}}
            refused = await client.request("tools/call", by_page)
            assert refused["isError"] and "There is no tool" in str(refused)


@pytest.mark.rule("GATE-66")
async def test_search_does_not_find_tools_for_apps_alone(tmp_path: Path) -> None:
    file = write_servers(tmp_path, "one")
    with serve_gateway(file, "--expose", "search") as gateway:
        async with connect(gateway.url, extensions=APPS) as client:
            found = (await client.call("search_tools", {"query": "order"})).value()
            assert [each["name"] for each in found["tools"]] == ["one__list_orders"]
            for tool, arguments in (
                ("describe_tool", {"name": "one__refund_order"}),
                ("call_tool", {"name": "one__refund_order", "arguments": {"order_id": 1}}),
            ):
                refused = await client.call(tool, arguments)
                assert "is for apps alone" in str(refused.error)
            page = {"name": "one__refund_order", "arguments": {"order_id": 1}}
            assert not (await client.request("tools/call", page))["isError"]


@pytest.mark.rule("GATE-65")
async def test_lock_holds_which_app_a_tool_names(tmp_path: Path) -> None:
    program, lock = tmp_path / "shop.py", str(tmp_path / "mcp.lock")
    text = """
from foundation_rt import AppCsp, Server, ToolUi
server = Server("shop")
server.app("ui://a", "<p>", csp=AppCsp(("https://{host}",)))
server.app("ui://b", "<p>")
@server.tool(ui="ui://{app}")
def orders() -> str:
    return ""
@server.tool(ui=ToolUi(visibility=["{audience}"]))
def refund() -> str:
    return ""
"""
    seen, serve = {}, f"{sys.executable} -m foundation_rt serve {program}"
    for host, app, audience in (("a.example", "a", "app"), ("b.example", "b", "model")):
        program.write_text(text.format(host=host, app=app, audience=audience))
        with serve_gateway(serve, "--lock", lock) as at:
            async with connect(at.url, extensions=APPS) as client:
                tools = {each.name.rpartition("__")[2] for each in await client.list_tools()}
                uris = [each.uri for each in await client.list_resources()]
                seen[host] = tools & {"orders", "refund"}, uris[1:]
                if host == "b.example":
                    for uri in ("ui://a", "ui://shop+a"):
                        with pytest.raises(MCPError):
                            await client.read_app(uri)
    assert seen["a.example"] == ({"orders", "refund"}, ["ui://a", "ui://b"])
    assert seen["b.example"] == (set(), ["ui://b"])


# -- hostile servers --------------------------------------------------------------------------


def routed(**servers: dict[str, list[dict[str, Any]]]) -> Routes:
    kinds = ("tools", "resources")
    listed = {
        kind: [(id, each, None) for id, lists in servers.items() for each in lists.get(kind, [])]
        for kind in kinds
    }
    return Routes.of(listed, servers.keys(), lambda id, name: outside_name(id, name, servers))


def tool(name: str, **ui: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {}, "_meta": {"ui": ui}}


@pytest.mark.rule("GATE-65")
@pytest.mark.parametrize(
    "named", [URI, "ui://bank+orders/table", "ui://evil+x", "ui://", "ui://%62ank+x", "ui://+"]
)
def test_tool_names_no_app_of_another_server(named: str) -> None:
    bank = {"tools": [tool("pay", resourceUri=URI)], "resources": [{"uri": URI, "name": "orders"}]}
    entry = tool("pay", resourceUri=named)
    entry["_meta"]["ui/resourceUri"] = "ui://flat"
    found = routed(bank=bank, evil={"tools": [entry]})
    meta = found.tools["evil__pay"].definition["_meta"]
    outside = meta["ui"]["resourceUri"]
    if named != "ui://":
        assert outside == f"ui://evil+{named.removeprefix('ui://')}"
        assert found.resource_routes(outside) == [("evil", named)]
    assert meta["ui/resourceUri"] == "ui://evil+flat"
    assert found.resource_routes(URI) == [("bank", URI)]


@pytest.mark.rule("GATE-65")
def test_app_with_the_form_of_another_servers_one_is_not_taken_for_it() -> None:
    bank = {"tools": [tool("pay", resourceUri="ui://hidden")]}
    evil = {"resources": [{"uri": "ui://bank+hidden", "name": "trap"}]}
    found = routed(evil=evil, bank=bank)
    outside = found.tools["bank__pay"].definition["_meta"]["ui"]["resourceUri"]
    assert found.resource_routes(outside) == [("bank", "ui://hidden")]
    assert [*found.resources] == ["ui://evil+bank+hidden"]


@pytest.mark.rule("GATE-67")
def test_page_calls_no_tool_of_a_server_without_apps() -> None:
    shop = {"tools": [tool("list", resourceUri=URI), tool("refund", visibility=["app"])]}
    bank = {"tools": [{"name": "pay", "inputSchema": {}}, tool("model", visibility=["model"])]}
    found = routed(shop=shop, bank=bank)
    assert found.tool_of_app("refund").server == "shop"
    for name in ("pay", "model", "nothing"):
        with pytest.raises(ToolError, match="There is no tool"):
            found.tool_of_app(name)


@pytest.mark.rule("GATE-66")
@pytest.mark.parametrize("meta", [None, [], "ui", {"ui": None}, {"ui": {"visibility": "app"}}])
def test_tool_with_wrong_metadata_goes_through_as_it_came(meta: Any) -> None:
    entry = {"name": "pay", "inputSchema": {}, "_meta": meta}
    found = routed(shop={"tools": [entry]})
    assert found.tools_for_models() == ({**entry, "name": "shop__pay"},)
