"""Three tools instead of all: to search, to describe and to call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from foundation_rt import Principal, Server, ToolContext, ToolError
from foundation_rt.base.ids import SequentialIds
from foundation_rt.errors import RegistrationError, UsageError
from foundation_rt.testing import TestClient
from tests.lab.peers.forwarders import ScriptedForwarder
from tests.lab.servers.fixture import ServerPeer

THREE = ["call_tool", "describe_tool", "search_tools"]
REVISIONS = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])


def make_server(*, pinned: Sequence[str] = (), **sections: Any) -> Server:
    server = Server("many", config={"tools": {"expose": "search", "pinned": [*pinned]}, **sections})

    @server.tool(title="Add numbers")
    def add_numbers(a: int, b: int) -> int:
        """Return the sum."""
        return a + b

    @server.tool(scopes=["refunds"])
    def refund_order(order: str) -> str:
        """Give the money of an order back."""
        return order

    @server.tool(visible=lambda principal: principal is None)
    def hidden_order(order: str) -> str:
        """Look at an order in secret."""
        return order

    return server


def connect(server: Server, *scopes: str) -> ServerPeer:
    """Connect a principal with these scopes."""
    peer = ServerPeer()
    peer.connection = server.connect(peer.receive, "http")
    peer.shake_hands()
    peer.connection.session.principal = Principal("ada", frozenset(scopes))
    return peer


def ask(server: Server, peer: ServerPeer, tool: str, /, **arguments: Any) -> Any:
    """Call a tool; return the structured result, or that of the error."""
    sent = peer.ask("tools/call", {"name": tool, "arguments": arguments})
    assert server.runtime.engine.wait_idle(20)
    result = peer.answer(sent)["result"]
    return result.get("structuredContent") or orjson.loads(result["content"][0]["text"])


def listed(peer: ServerPeer) -> list[str]:
    found, params = [], None
    while True:
        page = peer.answer(peer.ask("tools/list", params))["result"]
        found += [each["name"] for each in page["tools"]]
        if "nextCursor" not in page:
            return found
        params = {"cursor": page["nextCursor"]}


async def names(client: TestClient) -> list[str]:
    return [each["name"] for each in await client.list_tools()]


async def found(client: TestClient, query: str, **more: Any) -> list[str]:
    result = await client.call("search_tools", query=query, **more)
    return [each["name"] for each in result["tools"]]


@REVISIONS
@pytest.mark.rule("SEARCH-01", "SEARCH-02", "SEARCH-03")
async def test_three_tools_find_describe_and_call_the_others(revision: str) -> None:
    async with TestClient(make_server(), revision=revision, ids=SequentialIds()) as client:
        assert await names(client) == THREE
        assert await found(client, "sum numbers") == ["add_numbers"]
        described = await client.call("describe_tool", name="add_numbers")
        assert sorted(described["inputSchema"]["properties"]) == ["a", "b"]
        result = await client.call("call_tool", name="add_numbers", arguments={"a": 1, "b": 2})
        assert result == await client.call("add_numbers", a=1, b=2)
        record = client.logs[-1]
        assert record["toolName"] == "add_numbers"


@pytest.mark.rule("SEARCH-01", "PAGE-01")
async def test_pinned_tools_stay_listed_in_pages() -> None:
    server = make_server(pinned=["refund_order", "hidden_order"], server={"page_size": 2})
    async with TestClient(server) as client:
        assert await names(client) == sorted([*THREE, "hidden_order", "refund_order"])
    assert listed(connect(server)) == THREE
    assert listed(connect(server, "refunds")) == sorted([*THREE, "refund_order"])


@pytest.mark.rule("SEARCH-02", "SEARCH-03", "VIS-02", "AUTH-13")
def test_search_and_call_know_what_the_principal_may_use_alone() -> None:
    server = make_server()
    able, other = connect(server, "refunds"), connect(server)
    [only] = ask(server, able, "search_tools", query="order")["tools"]
    assert only["name"] == "refund_order"
    assert ask(server, other, "search_tools", query="order") == {"tools": [], "total": 0}
    for name, code in (("hidden_order", "NOT_FOUND"), ("refund_order", "UNAUTHORIZED")):
        refused = ask(server, other, "call_tool", name=name, arguments={"order": "1"})
        assert refused["code"] == code
        assert ask(server, other, "describe_tool", name=name)["code"] == "NOT_FOUND"


@pytest.mark.rule("SEARCH-03")
async def test_bad_calls_have_the_errors_of_the_tool() -> None:
    async with TestClient(make_server()) as client:
        for given, said in (
            ({"name": "add_numbers", "arguments": {"a": "x", "b": 1}}, "Invalid arguments: /a"),
            ({"name": "add_numbers"}, "Invalid arguments"),
            ({"name": "none", "arguments": {}}, "There is no tool 'none'"),
            ({}, "call_tool needs the name"),
            ({"name": 3}, "call_tool needs the name"),
            ({"name": "call_tool", "arguments": {"name": "add_numbers"}}, "needs the name"),
        ):
            with pytest.raises(ToolError, match=said):
                await client.call("call_tool", **given)


@pytest.mark.rule("SEARCH-03", "RATE-01")
async def test_limit_of_a_tool_holds_for_its_calls_by_call_tool() -> None:
    rate = {"tools": ["add_numbers=1"]}
    server = make_server(rate_limit=rate)
    async with TestClient(server) as client:
        await client.call("call_tool", name="add_numbers", arguments={"a": 1, "b": 2})
        with pytest.raises(ToolError) as error:
            await client.call("call_tool", name="add_numbers", arguments={"a": 1, "b": 2})
        assert error.value.code == "RESOURCE_EXHAUSTED"


@pytest.mark.rule("SEARCH-05")
async def test_query_of_100_kb_is_refused_and_a_long_one_bounded() -> None:
    async with TestClient(make_server()) as client:
        with pytest.raises(ToolError, match="Invalid arguments: /query"):
            await found(client, "x" * 100_000)
        assert await found(client, " ".join(f"w{n}" for n in range(100)) + " sum") == []
        assert await found(client, "", limit=2) == ["add_numbers", "health"]


@pytest.mark.rule("SEARCH-06")
def test_wrong_names_are_errors_at_the_start() -> None:
    with pytest.raises(UsageError, match=r"'add_number', .*did you mean 'add_numbers'"):
        _ = make_server(pinned=["add_number"]).runtime
    server = make_server()
    server.tool(name="search_tools")(lambda: 1)
    with pytest.raises(RegistrationError, match="search_tools"):
        _ = server.runtime
    server = make_server()
    server.forward(ScriptedForwarder())
    with pytest.raises(UsageError, match=r"a gateway has gateway\.expose"):
        _ = server.runtime


@pytest.mark.rule("SEARCH-01")
async def test_tool_that_comes_later_and_mounted_ones_are_found() -> None:
    server, inner = make_server(), Server("inner")

    @inner.tool
    def far_tool() -> str:
        """Is mounted."""
        return "far"

    server.mount(inner, prefix="in")
    async with TestClient(server) as client:

        @server.tool
        def late_tool(context: ToolContext) -> str:
            """Comes later."""
            return "late"

        assert await found(client, "later comes") == ["late_tool"]
        [mounted] = await found(client, "mounted")
        assert await client.call("call_tool", name=mounted) == "far"
        assert await names(client) == THREE
