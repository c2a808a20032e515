"""The official clients against a server in a process of its own: the tour of `tour.py`."""

from __future__ import annotations

import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from mcp import StdioServerParameters
from mcp.client.sse import sse_client

from tests.interop import python_client, tour
from tests.lab.programs import node
from tests.lab.servers.http_server import serve_http
from tests.lab.servers.process import PATIENCE, command, environment

HERE = Path(__file__).parent
STDIO = command("serve", str(tour.APP))

modes = pytest.mark.parametrize("modern", [False, True], ids=["handshake", "stateless"])


@pytest.fixture
def url() -> Iterator[str]:
    with serve_http(tour.APP) as server:
        yield server.url


@modes
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
def test_the_python_client_over_stdio(modern: bool) -> None:
    server = StdioServerParameters(command=STDIO[0], args=STDIO[1:], env=environment())
    report = _run(lambda: python_client.make(server, modern=modern, over_http=False))
    assert report == tour.expected(modern=modern, over_http=False)


@modes
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
def test_the_python_client_over_http(modern: bool, url: str) -> None:
    report = _run(lambda: python_client.make(url, modern=modern, over_http=True))
    assert report == tour.expected(modern=modern, over_http=True)


@modes
def test_the_typescript_client_over_stdio(modern: bool) -> None:
    report = _typescript({"modern": modern, "command": STDIO})
    assert report == tour.expected(modern=modern, over_http=False)


@modes
def test_the_typescript_client_over_http(modern: bool, url: str) -> None:
    report = _typescript({"modern": modern, "url": url})
    assert report == tour.expected(modern=modern, over_http=True)


@pytest.mark.rule("HTTP-18")
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
def test_the_python_client_over_http_of_old(url: str) -> None:
    stream = sse_client(url.replace("/mcp", "/sse"))
    report = _run(lambda: python_client.make(stream, modern=False, over_http=False))
    assert report == tour.expected(modern=False, over_http=False)


@pytest.mark.rule("HTTP-18")
def test_the_typescript_client_over_http_of_old(url: str) -> None:
    report = _typescript({"modern": False, "sse": url.replace("/mcp", "/sse")})
    assert report == tour.expected(modern=False, over_http=False)


def _run(make: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    async def bounded() -> dict[str, Any]:
        with anyio.fail_after(PATIENCE):
            return await make()

    return anyio.run(bounded)


def _typescript(target: dict[str, Any]) -> Any:
    node.install(HERE)
    client = subprocess.run(
        [node.NODE, HERE / "typescript_client.mjs", orjson.dumps(target).decode()],
        env=node.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert client.returncode == 0, client.stderr
    return orjson.loads(client.stdout)
