"""The tours of clients and servers, through the gateway: what works directly works through it.

The gateway bridges one server, whose names it keeps. It adds to its lists a resource and a tool of
its own, and it is itself the server that a client is told of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from mcp import StdioServerParameters

from foundation_rt.client import StdioServer
from tests.interop import our_client, python_client, servers, tour
from tests.interop.test_client_npm import (
    test_a_page_to_visit,
    test_a_resource_that_a_tool_makes,
    test_content,
    test_progress_cancellation_and_deadline,
    test_prompts,
    test_resources,
    test_server_requests,
    test_what_comes_unasked,
)
from tests.interop.test_tours import _run
from tests.support.process import command, environment

__all__ = [
    "test_a_page_to_visit",
    "test_a_resource_that_a_tool_makes",
    "test_content",
    "test_progress_cancellation_and_deadline",
    "test_prompts",
    "test_resources",
    "test_server_requests",
    "test_what_comes_unasked",
]

OURS = "interop"
SERVERS = {
    OURS: lambda: command("serve", str(tour.APP)),
    "official-python": lambda: [*servers.python(), "stdio"],
    "official-typescript": lambda: [*servers.typescript(), "stdio"],
}
OWN_RESOURCE = "gateway://status"
OWN_TOOL = "health"

modes = pytest.mark.parametrize("modern", [False, True], ids=["handshake", "stateless"])


def bridge(folder: Path, words: Sequence[str]) -> list[str]:
    """Return the command of a gateway before the server with this command."""
    file = folder / "mcp.json"
    entry = {"command": words[0], "args": [*words[1:]]}
    file.write_bytes(orjson.dumps({"mcpServers": {"behind": entry}}))
    return command("gateway", str(file), "--prefix", "never")


def check(report: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compare the report of a tour with what it is without the gateway."""
    # `initialize` does not wait for the server, so its instructions may come too late.
    assert report.pop("instructions") in (None, f"# behind\n\n{expected['instructions']}")
    assert report["server"].startswith("foundation-rt-gateway ")
    assert OWN_RESOURCE in report["resources"]
    report["resources"] = [each for each in report["resources"] if each != OWN_RESOURCE]
    tools = sorted({*expected["tools"], OWN_TOOL})
    aborted = "cancelled"  # how the server's own client, the gateway, ends a call
    same = {key: value for key, value in expected.items() if key != "instructions"}
    assert report == {**same, "server": report["server"], "tools": tools, "aborted": aborted}


@modes
@pytest.mark.parametrize("server", SERVERS)
def test_our_client_over_stdio(server: str, modern: bool, tmp_path: Path) -> None:
    words = bridge(tmp_path, SERVERS[server]())
    target = StdioServer(words[0], words[1:])
    report = asyncio.run(our_client.make(target, modern=modern, over_http=False))
    check(report, our_client.expected(server, modern=modern, over_http=False))


@modes
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
def test_the_python_client_over_stdio(modern: bool, tmp_path: Path) -> None:
    words = bridge(tmp_path, SERVERS[OURS]())
    server = StdioServerParameters(command=words[0], args=words[1:], env=environment())
    report = _run(lambda: python_client.make(server, modern=modern, over_http=False))
    check(report, tour.expected(modern=modern, over_http=False))


# -- npm's server: the tests of our client, with the gateway before it ----------------------------


@pytest.fixture
def everything(tmp_path: Path) -> StdioServer:
    """Return `server-everything` behind the gateway."""
    words = bridge(tmp_path, servers.npm("everything"))
    return StdioServer(words[0], words[1:])
