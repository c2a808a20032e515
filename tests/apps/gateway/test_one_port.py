"""Two gateways behind one port: a client of the stateless mode needs neither of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.apps.gateway.test_faults import APP, entry, write
from tests.apps.gateway.test_through import NEW, OLD, speaking
from tests.lab.peers.clients import ABLE
from tests.lab.peers.raw_http import META, RawClient
from tests.lab.places.cable import cable
from tests.lab.servers.http_server import serve_gateway, serve_http

KEYS = {
    "FOUNDATION_RT_SECURITY__STATE_KEY": "ab" * 32,
    "FOUNDATION_RT_SERVER__PAGE_SIZE": "7",
}


async def request(url: str, method: str, **params: Any) -> dict[str, Any]:
    """Return the response to a request of the stateless mode, over a connection of its own."""
    able = {**META, "io.modelcontextprotocol/clientCapabilities": ABLE}

    def send() -> Any:
        with RawClient(url) as client:
            name = str(params.get("name") or params.get("uri") or "")
            return client.fetch(client.request(method, {"_meta": able, **params}, name=name)).json

    return dict(await asyncio.to_thread(send))


async def listed(url: str, method: str, member: str) -> list[list[Any]]:
    """Return the pages of a list."""
    pages, more = [], dict[str, Any]()
    while True:
        result = (await request(url, method, **more))["result"]
        pages.append(result[member])
        if result.get("nextCursor") is None:
            return pages
        more = {"cursor": result["nextCursor"]}


@pytest.mark.rule("GATE-02", "GATE-21")
async def test_client_without_a_session_needs_no_affinity(tmp_path: Path) -> None:
    with serve_http(Path(APP)) as server:
        file = write(tmp_path / "mcp.json", one={"url": server.url}, a__b=entry("two"))
        env = {**KEYS, **speaking(NEW)}
        with serve_gateway(file, env=env) as left, serve_gateway(file, env=env) as right:
            async with cable(left.url, right.url) as line:
                for method, member in (("tools/list", "tools"), ("resources/list", "resources")):
                    pages = [
                        await listed(each, method, member)
                        for each in (left.url, line.url, line.url)
                    ]
                    assert pages[0] == pages[1] == pages[2]
                asked = await request(line.url, "tools/call", name="one__ask", arguments={})
                again = answered(asked["result"])
                done = await request(line.url, "tools/call", name="one__ask", arguments={}, **again)
                assert done["result"]["content"][0]["text"] == '{"name":"Ann"}'
                calls = (
                    request(line.url, "tools/call", name="one__echo", arguments={"text": str(n)})
                    for n in range(20)
                )
                for number, found in enumerate(await asyncio.gather(*calls)):
                    assert found["result"]["content"][0]["text"] == f"app: {number}"


@pytest.mark.rule("GATE-22")
async def test_parked_call_that_comes_to_the_other_is_to_be_called_again(tmp_path: Path) -> None:
    file = write(tmp_path / "mcp.json", two=entry("two"))
    env = {**KEYS, **speaking(OLD)}
    call: dict[str, Any] = {"name": "two__ask", "arguments": {}}
    with serve_gateway(file, env=env) as left, serve_gateway(file, env=env) as right:
        async with cable(left.url, right.url) as line:
            again = answered((await request(line.url, "tools/call", **call))["result"])
            refused = await request(line.url, "tools/call", **call, **again)
            assert refused["error"]["code"] == -32602
            assert refused["error"]["data"]["reason"] == "call_again"
            done = await request(line.url, "tools/call", **call, **again)  # the first one has it
            assert done["result"]["content"][0]["text"] == '{"name":"Ann"}'


def answered(result: dict[str, Any]) -> dict[str, Any]:
    """Return the further params of a call whose server has asked for a name."""
    [key] = result["inputRequests"]
    answer = {"action": "accept", "content": {"name": "Ann"}}
    return {"inputResponses": {key: answer}, "requestState": result["requestState"]}
