"""The MCP Inspector's two command lines against a server in a process of its own.

`--cli` is a new connection for each request: it connects, lists, calls, reads and prompts.
`mcpdo` keeps a connection from one command to the next, and can be asked back.
"""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.interop import tour
from tests.support import node
from tests.support.http_server import serve_http
from tests.support.process import PATIENCE, command

HERE = Path(__file__).parent
CLIENTS = Path("@modelcontextprotocol/inspector/clients")
LAUNCHER = CLIENTS / "launcher/build/index.js"
MCPDO = CLIENTS / "mcpdo/build/mcp-bin.js"

Inspect = Callable[..., dict[str, Any]]


@pytest.fixture(params=["stdio", "http"])
def target(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """What the Inspector is told to connect to."""
    if request.param == "stdio":
        yield command("serve", str(tour.APP))
    else:
        with serve_http(tour.APP) as server:
            yield [server.url]


@pytest.fixture
def home() -> Iterator[Path]:
    """A home directory, where the Inspector keeps files; short, for one of them is a socket."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def run(home: Path, *words: str | Path) -> Any:
    """Run the Inspector and return the JSON it printed."""
    ended = subprocess.run(
        [node.NODE, *words],
        env={**node.environment(), "HOME": str(home), "MCP_INSPECTOR_SECRET_STORE": "memory"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ended.returncode == 0, ended.stderr
    return orjson.loads(ended.stdout)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_cli_finds_what_it_expects(era: str, target: list[str], home: Path) -> None:
    launcher = node.install(HERE) / LAUNCHER

    def inspect(method: str, *words: str) -> Any:
        options = ["--protocol-era", era, "--quiet", "--format", "json", "--method", method]
        return run(home, launcher, "--cli", *target, *options, *words)["result"]

    expected = tour.expected(modern=era == "modern", over_http=False)
    hello = inspect("initialize")
    assert hello["protocolVersion"] == expected["revision"]
    assert hello["serverInfo"] == {"name": "interop", "version": "1.0.0"}
    assert {"tools", "resources", "prompts", "completions", "logging"} <= set(hello["capabilities"])

    tools = inspect("tools/list")["tools"]
    assert sorted(tool["name"] for tool in tools) == expected["tools"]
    added = inspect("tools/call", "--tool-name", "add", "--tool-arg", "a=2", "b=3")
    assert added["structuredContent"] == expected["add"]
    read = inspect("resources/read", "--uri", "note://by-name/rent")
    assert read["contents"][0]["text"] == expected["read_template"]
    prompt = inspect("prompts/get", "--prompt-name", "greet", "--prompt-args", "name=Ada")
    assert prompt["messages"][0]["content"]["text"] == expected["prompt"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_mcpdo_is_asked_back_and_comes_back(era: str, target: list[str], home: Path) -> None:
    mcpdo = node.install(HERE) / MCPDO

    def do(*words: str) -> Any:
        return run(home, mcpdo, "--format", "json", *words)

    def connect() -> str:
        return str(do("connect", "--era", era, "--", *target)["name"])

    name = connect()
    try:
        here = ["--connection", name]
        pending = do(*here, "tools/call", "ask_user")["elicitationPending"]
        answer = do("elicitation/respond", pending["elicitationId"], "name:=Ada")
        assert answer["content"][0]["text"] == "accept: Ada"
        do(*here, "roots/set", "--roots-json", '[{"uri":"file:///home/ada"}]')
        roots = do(*here, "tools/call", "ask_roots")
        assert roots["content"][0]["text"] == "file:///home/ada"
        do(*here, "resources/subscribe", "note://today")
        do("disconnect", name)
        assert connect() == name
        read = do(*here, "resources/read", "note://today")
        assert read["contents"][0]["text"] == "water the plants"
    finally:
        _stop(do)


def _stop(do: Callable[..., Any]) -> None:
    """End the process that keeps the connections, and wait for its end."""
    daemon = os.pidfd_open(do("daemon", "status")["pid"])
    try:
        do("daemon", "stop")
        assert select.select([daemon], [], [], PATIENCE)[0]
    finally:
        os.close(daemon)
