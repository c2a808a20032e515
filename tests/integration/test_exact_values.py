"""Values of foreign servers, through every door: integers keep their digits, depth is E209."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from foundation_rt import Server, ToolContext
from foundation_rt.apps.coordinator import Coordinator, ToolExecutionError, failure_of
from foundation_rt.client import InvalidResponseError, connect
from tests.apps.gateway.test_faults import error_in, write
from tests.lab.apps import plain_server
from tests.lab.host.process import HostProcess, host_process
from tests.lab.servers.http_server import serve_gateway

pytestmark = pytest.mark.usefixtures("forked")

LONG = 12345678901234567890123
DEEP = 400
COMMAND = [sys.executable, str(plain_server.__file__)]


@contextmanager
def entry(kind: str) -> Iterator[dict[str, Any]]:
    if kind == "stdio":
        yield {"command": COMMAND[0], "args": COMMAND[1:]}
    else:
        with plain_server.PlainHttp() as url:
            yield {"url": url}


@pytest.mark.rule("CLIENT-63", "CTOOL-20")
@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_client_and_coordinator_say_e209_for_depth_alone(kind: str, tmp_path: Path) -> None:
    with entry(kind) as server:
        target = server.get("url") or shlex.join(COMMAND)
        async with connect(target) as client:
            assert (await client.call("nest", {"n": 190})).structured
            with pytest.raises(InvalidResponseError, match="deeper than 200 levels") as raised:
                await client.call("nest", {"n": DEEP})
            assert (raised.value.code, raised.value.may_have_run) == ("E209", True)
            assert (await client.call("echo", {"n": LONG})).structured == {"n": LONG}
        async with Coordinator.from_file(write(tmp_path / "mcp.json", plain=server)) as coordinator:
            result = await coordinator.call("plain:echo", {"n": LONG})
            assert result.structured == {"n": LONG}
            with pytest.raises(ToolExecutionError) as failed:
                await coordinator.call("plain:nest", {"n": DEEP})
            assert failure_of(failed.value).app_code == "E209"


@pytest.mark.rule("RPC-19", "CLIENT-63")
@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_gateway_hands_on_every_digit(kind: str, tmp_path: Path) -> None:
    with (
        entry(kind) as server,
        serve_gateway(write(tmp_path / "mcp.json", plain=server)) as gateway,
    ):
        async with connect(gateway.url) as client:
            result = await client.call("plain__echo", {"n": LONG})
            assert (result.structured, result.text) == ({"n": LONG}, f'{{"n": {LONG}}}')
            call = {"name": "plain__nest", "arguments": {"n": DEEP}}
            assert error_in(await client.request("tools/call", call))["appCode"] == "E209"


@pytest.mark.rule("RPC-19")
async def test_handler_gets_and_returns_every_digit_and_keeps_it() -> None:
    server = Server("own")

    @server.tool
    def keep(value: Any, context: ToolContext) -> dict[str, Any]:
        context.session_state["value"] = value
        return {"value": context.session_state["value"], "half": value["n"] // 2}

    async with connect(server) as client:
        result = await client.call("keep", {"value": {"n": LONG}})
        assert result.structured == {"value": {"n": LONG}, "half": LONG // 2}


async def said(host: HostProcess, *words: str) -> list[dict[str, Any]]:
    """Say something in a chat; return its history, as a page gets it that comes later."""
    async with host.page() as page:
        await page.until(lambda each: each["payload"]["servers"][0]["state"] == "ready")
        for word in words:
            await page.turn(word)
        session = page.session
    async with host.page(session) as page:
        history = await page.until("history")
    return list(history["payload"]["messages"])


@pytest.mark.rule("TURN-43", "TURN-45")
async def test_host_hands_on_every_digit_from_model_to_page(tmp_path: Path) -> None:
    with entry("stdio") as server:
        write(tmp_path / "mcp.json", plain=server)
    arguments = f'{{"n": {LONG}}}'
    calls = [
        [{"call": "plain:echo", "arguments": arguments}],
        [{"call": "plain:nest", "arguments": {"n": DEEP}}],
        [{"call": "plain:echo", "arguments": f'{{"x": {"[" * DEEP + "]" * DEEP}}}'}],
    ]
    script = [{"answers": [call, [{"echo": "result"}]]} for call in calls]
    words = ("--yes", "--trust", "--store", f"sqlite:{tmp_path / 'chats.db'}")
    with host_process(tmp_path, *words, script=script) as host:
        history = await said(host, "one", "two", "three")
    found = [each["data"] for each in history if each.get("toolName")]
    assert found[0] == {"arguments": {"n": LONG}}
    assert found[1]["result"]["structuredContent"] == {"n": LONG}
    assert found[3]["error"]["message"].endswith("deeper than 200 levels (E209)")
    texts = [
        each["content"] for each in history if each["role"] == "assistant" and "content" in each
    ]
    assert texts[0] == f'{{"n": {LONG}}}'
    assert "E209" in texts[1]
