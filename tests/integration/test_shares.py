"""A server with two keys: what one client takes of it, another one's calls go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import orjson
import pytest

from tests.lab.peers.raw_http import META, RawClient, RawResponse
from tests.lab.servers.http_server import HttpServerProcess, serve_http
from tests.lab.waiting import block_until

ALICE, BOB = "alice" * 4, "bob" * 8

APP = """
import asyncio

from foundation_rt import Roots, Server, ToolContext

server = Server("shared")


@server.tool
async def ask(ctx: ToolContext, count: int) -> str:
    await ctx.ask({str(number): Roots() for number in range(count)})
    return "answered"


@server.resource("note://{name}")
def note(name: str) -> str:
    return name


@server.tool
def echo(text: str) -> str:
    return text


@server.tool
async def hold(ctx: ToolContext) -> str:
    await ctx.abort_signal.wait()
    return "held"


@server.tool(task="required")
async def long() -> str:
    return "done"
"""
SETTINGS = {
    "http.api_keys": f"alice:{ALICE},bob:{BOB}",
    "resources.max_concurrent_executions": 8,
    "tasks.max_tasks": 8,
    "http.max_sessions": 8,
    "resources.max_server_requests": 8,
    "resources.max_subscriptions": 8,
    "http.retry_ms": 0,
    "http.server_request_grace_ms": 1,
}


@pytest.fixture
def server() -> Iterator[HttpServerProcess]:
    with serve_http(APP, "--transport", "http", settings=SETTINGS) as found:
        yield found


CLIENT_INFO = {"name": "test", "version": "1"}


class ShareClient(RawClient):
    """One connection that sends a key with every request."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__(url)
        self.key = key

    def head(self, method: str, headers: str = "", path: str | None = None) -> bytes:
        return super().head(method, f"{headers}X-API-Key: {self.key}\r\n", path)


def details(answer: RawResponse) -> Any:
    """Return the details of the error that a call ended with."""
    result = answer.json["result"]
    assert result["isError"], result
    return orjson.loads(result["content"][0]["text"])["details"]


def open_session(client: ShareClient) -> RawResponse:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"roots": {}},
        "clientInfo": CLIENT_INFO,
    }
    opened = client.fetch(client.post(request("initialize", params)))
    if opened.status == 200:
        told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert client.fetch(client.post(told, session_of(opened))).status == 202
    return opened


def session_of(opened: RawResponse) -> dict[str, str]:
    return {"Mcp-Session-Id": opened.headers["mcp-session-id"]}


def ask(client: ShareClient, count: int) -> bytes:
    """Make a call that asks its client `count` things, in a session of its own."""
    call = request("tools/call", {"name": "ask", "arguments": {"count": count}})
    return client.post(call, session_of(open_session(client)))


def request(method: str, params: Any = None) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": 1, "method": method}
    return message if params is None else {**message, "params": params}


def echoes(server: HttpServerProcess, key: str) -> bool:
    """Whether a call with `key` is answered with its result."""
    with ShareClient(server.url, key) as client:
        answer = client.fetch(client.call("echo", text="hi"))
        result = answer.json.get("result", {})
        return not result.get("isError", True)


@pytest.mark.rule("RES-13", "RES-14")
def test_a_client_that_holds_its_slots_does_not_hold_those_of_others(
    server: HttpServerProcess,
) -> None:
    with ExitStack() as stack:
        holders = [stack.enter_context(ShareClient(server.url, ALICE)) for _ in range(8)]
        for number, each in enumerate(holders):
            each.send(each.call("hold", number))
        for refused in holders[2:]:
            assert details(refused.answer())["reason"] == "principal_share"
        assert not echoes(server, ALICE)
        assert echoes(server, BOB)
        assert _ready(server)
    block_until(lambda: echoes(server, ALICE), "its connections are gone: its slots are free")


def _ready(server: HttpServerProcess) -> bool:
    with RawClient(server.url) as client:
        return client.fetch(client.head("GET", path="/readyz")).status == 200


@pytest.mark.rule("RES-16")
def test_a_client_that_fills_its_share_of_tasks_leaves_room_for_others(
    server: HttpServerProcess,
) -> None:
    capabilities = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    meta = {**META, "io.modelcontextprotocol/clientCapabilities": capabilities}

    def call(client: ShareClient) -> Any:
        params = {"name": "long", "arguments": {}, "_meta": meta}
        return client.fetch(client.request("tools/call", params, name="long"))

    with ShareClient(server.url, ALICE) as alice, ShareClient(server.url, BOB) as bob:
        kept = [call(alice).json["result"]["resultType"] for _ in range(2)]
        assert kept == ["task", "task"]
        for _ in range(20):
            assert details(call(alice)) == {
                "reason": "principal_share",
                "maxTasks": 8,
                "share": 2,
            }
        assert call(bob).json["result"]["resultType"] == "task"


@pytest.mark.rule("RES-13", "RES-22")
def test_a_client_that_listens_in_all_its_sessions_gets_no_more(server: HttpServerProcess) -> None:
    with ExitStack() as stack:
        for _ in range(2):
            listener = stack.enter_context(ShareClient(server.url, ALICE))
            session = open_session(listener).headers["mcp-session-id"]
            accept = f"Accept: text/event-stream\r\nMcp-Session-Id: {session}\r\n"
            listener.send(listener.head("GET", accept))
            assert b" 200 " in listener.read_until(b"\r\n\r\n")
        with ShareClient(server.url, ALICE) as alice, ShareClient(server.url, BOB) as bob:
            refused = open_session(alice)
            assert refused.status == 429
            assert refused.headers["retry-after"]
            error = refused.json["error"]
            assert error["data"]["reason"] == "principal_share"
            assert "2 sessions that one principal may use" in error["message"]
            assert open_session(bob).status == 200


@pytest.mark.rule("RES-17")
def test_a_client_is_asked_no_more_than_its_share_of_requests(server: HttpServerProcess) -> None:
    with ShareClient(server.url, ALICE) as alice, ShareClient(server.url, BOB) as bob:
        alice.send(ask(alice, 2))
        alice.read_until(b"roots/list")
        with ShareClient(server.url, ALICE) as more:
            refused = more.fetch(ask(more, 1))
            assert details(refused) == {
                "reason": "server_request_share",
                "maxServerRequests": 8,
                "share": 2,
            }
        bob.send(ask(bob, 1))
        bob.read_until(b"roots/list")


@pytest.mark.rule("RES-13", "RES-18", "RES-23")
def test_a_client_that_listens_to_its_share_leaves_room_for_others(
    server: HttpServerProcess,
) -> None:
    def listen(client: ShareClient, *uris: str) -> bytes:
        wanted = {"toolsListChanged": True, "resourceSubscriptions": uris}
        return client.request("subscriptions/listen", {"notifications": wanted})

    def listens(key: str, *uris: str) -> bool:
        with ShareClient(server.url, key) as client:
            client.send(listen(client, *uris))
            return b"acknowledged" in client.read_until(b'"jsonrpc"') + client.read_until(b"}")

    with ShareClient(server.url, ALICE) as alice:
        alice.send(listen(alice, "note://a"))
        alice.read_until(b"acknowledged")
        with ShareClient(server.url, ALICE) as more:
            error = more.fetch(listen(more)).json["error"]
            assert error["code"] == -32603
            assert error["data"]["code"] == "RESOURCE_EXHAUSTED"
            assert error["data"]["details"] == {
                "reason": "principal_share",
                "maxSubscriptions": 8,
                "share": 2,
            }
        assert listens(BOB, "note://a")
    block_until(lambda: listens(ALICE, "note://b"), "her streams are gone")
