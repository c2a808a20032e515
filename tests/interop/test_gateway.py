"""The tours of clients and servers, through the gateway: what works directly works through it.

The gateway bridges one server, whose names it keeps. It adds to its lists a resource and a tool of
its own, and it is itself the server that a client is told of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from mcp import StdioServerParameters

from foundation_rt import TextContents
from foundation_rt.client import StdioServer, connect
from tests.interop import (
    inspector,
    our_client,
    python_client,
    servers,
    test_client_npm,
    tour,
)
from tests.interop.test_client_npm import (
    connected,
    test_a_page_to_visit,
    test_a_resource_that_a_tool_makes,
    test_content,
    test_progress_cancellation_and_deadline,
    test_prompts,
    test_resources,
    test_server_requests,
    test_what_comes_unasked,
)
from tests.interop.test_tours import _run, _typescript
from tests.lab.servers.http_server import serve_gateway, serve_http
from tests.lab.servers.process import command, environment

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
SERVERS_HTTP = {"official-python": servers.python, "official-typescript": servers.typescript}
OWN_RESOURCE = "gateway://status"
OWN_TOOL = "health"

modes = pytest.mark.parametrize("modern", [False, True], ids=["handshake", "stateless"])


def bridge(folder: Path, words: Sequence[str], **members: Any) -> list[str]:
    """Return the command of a gateway before the server with this command."""
    file = folder / "mcp.json"
    entry = {"command": words[0], "args": [*words[1:]], **members}
    file.write_bytes(orjson.dumps({"mcpServers": {"behind": entry}}))
    return command("gateway", str(file), "--prefix", "never")


def check(report: dict[str, Any], expected: dict[str, Any], aborted: str = "cancelled") -> None:
    """Compare the report of a tour with what it is without the gateway.

    Args:
        aborted: how the server's own client, the gateway, ends a call.
    """
    # `initialize` does not wait for the server, so its instructions may come too late.
    instructions = report.pop("instructions", None)
    assert instructions is None or instructions.endswith(f"\n\n{expected['instructions']}")
    assert report["server"].startswith("foundation-rt-gateway ")
    assert OWN_RESOURCE in report["resources"]
    report["resources"] = [each for each in report["resources"] if each != OWN_RESOURCE]
    tools = sorted({*expected["tools"], OWN_TOOL})
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


@modes
def test_the_typescript_client_over_stdio(modern: bool, tmp_path: Path) -> None:
    words = bridge(tmp_path, SERVERS[OURS]())
    report = _typescript({"modern": modern, "command": words})
    expected = our_client.expected(OURS, modern=modern, over_http=False)
    check(report, {name: value for name, value in expected.items() if name in report})


@pytest.fixture
def url(server: str) -> Iterator[str]:
    """Yield the URL of a gateway before a server over HTTP."""
    listening = (
        serve_http(tour.APP) if server == OURS else servers.listening(SERVERS_HTTP[server]())
    )
    with listening as behind, serve_gateway(behind.url) as gateway:
        yield gateway.url


@modes
@pytest.mark.parametrize("server", SERVERS)
def test_our_client_over_http(server: str, modern: bool, url: str) -> None:
    report = asyncio.run(our_client.make(url, modern=modern, over_http=False))
    aborted = "disconnected" if server == OURS else "cancelled"
    check(report, our_client.expected(server, modern=modern, over_http=False), aborted)


@modes
@pytest.mark.parametrize("server", [OURS])
def test_the_typescript_client_over_http(server: str, modern: bool, url: str) -> None:
    report = _typescript({"modern": modern, "url": url})
    expected = tour.expected(modern=modern, over_http=True)
    check(report, expected, "disconnected")


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
@pytest.mark.parametrize("theirs", ["older", "2025-11-25"])
async def test_older_revisions(theirs: str, revision: str, tmp_path: Path) -> None:
    """On either side: the official servers speak them too, one of them the same one."""
    server, theirs = {
        "older": ("official-python", revision),
        "2025-11-25": ("official-typescript", theirs),
    }[theirs]
    words = bridge(tmp_path, SERVERS[server]())
    target = StdioServer(words[0], words[1:], env={"MCP_PROTOCOL_VERSION": theirs})
    async with connect(target, revision=revision) as client:
        assert (await client.initialize()).revision.name == revision
        assert "5" in (await client.call("add", {"a": 2, "b": 3})).text
        read = await client.read_resource("note://by-name/rent")
        [contents] = read.contents
        assert isinstance(contents, TextContents)
        assert "rent" in contents.text


def test_the_inspector(home: Path, tmp_path: Path) -> None:
    """Each command is a program with a server of its own: each mode has two of four."""
    words = bridge(tmp_path, SERVERS["official-python"]())

    def inspect(mode: str, method: str, *more: str) -> Any:
        options = ["--protocol-era", mode, "--quiet", "--format", "json", "--method", method]
        found = inspector.run(home, inspector.LAUNCHER, "--cli", *words, *options, *more)
        return found["result"]

    tools = {tool["name"] for tool in inspect("modern", "tools/list")["tools"]}
    assert tools > {"add", "ask_user", "fail"}
    added = inspect("legacy", "tools/call", "--tool-name", "add", "--tool-arg", "a=2", "b=3")
    assert added["structuredContent"] == {"total": 5}
    read = inspect("legacy", "resources/read", "--uri", "note://by-name/rent")
    assert read["contents"][0]["text"] == '{"name":"rent"}'
    name = ("--prompt-name", "greet", "--prompt-args", "name=Ada")
    prompt = inspect("modern", "prompts/get", *name)
    assert prompt["messages"][0]["content"]["text"] == "Greet Ada."


# -- npm's servers: the tests of our client, with the gateway before them -------------------------


@pytest.fixture(params=["stdio", "http"])
def everything(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Yield `server-everything` behind the gateway, over one transport on both sides."""
    if request.param == "stdio":
        words = bridge(tmp_path, servers.npm("everything"))
        yield StdioServer(words[0], words[1:])
    else:
        with (
            servers.everything_over("streamableHttp", "/mcp") as server,
            serve_gateway(server.url, env={"MCP_PROTOCOL_VERSION": "2025-11-25"}) as gateway,
        ):
            yield gateway.url


async def test_task_of_the_handshake_mode_is_refused_by_its_server(everything: Any) -> None:
    """The gateway does not have tasks of that mode, so the tool is called as any other."""
    async with connected(everything) as (client, _):
        refused = await client.call("simulate-research-query", {"topic": "tasks"})
        assert refused.is_error
        assert "requires task augmentation" in str(refused.wire)


@pytest.fixture
def through(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Put the gateway before the servers that the tests of our client start."""

    def command_of(*words: str, env: dict[str, str] | None = None) -> StdioServer:
        bridged = bridge(tmp_path_factory.mktemp("gateway"), words, env=env or {})
        return StdioServer(bridged[0], bridged[1:])

    monkeypatch.setattr(test_client_npm, "_command", command_of)


@pytest.mark.usefixtures("through")
async def test_npm_files(tmp_path: Path) -> None:
    await test_client_npm.test_files(tmp_path)


@pytest.mark.usefixtures("through")
async def test_npm_memory(tmp_path: Path) -> None:
    await test_client_npm.test_memory(tmp_path)


@pytest.mark.rule("COORD-59")
async def test_roots_are_asked_for_right_after_the_handshake(tmp_path: Path) -> None:
    """Let npm's server for files read what the roots of its client are, and nothing else."""
    file = tmp_path / "mcp.json"
    words = servers.npm("filesystem")
    entry = {"command": words[0], "args": words[1:]}
    file.write_bytes(orjson.dumps({"mcpServers": {"files": entry}}))
    places = [tmp_path / name for name in ("ann", "bob")]
    for place in places:
        place.mkdir()
    with serve_gateway(str(file), env={"MCP_PROTOCOL_VERSION": "2025-11-25"}) as gateway:
        async with (
            connect(gateway.url, revision="2025-11-25", roots=[places[0]]) as ann,
            connect(gateway.url, revision="2025-11-25", roots=[places[1]]) as bob,
        ):
            for client, place in ((ann, places[0]), (bob, places[1])):
                listed = await client.call("files__list_allowed_directories")
                while str(place) not in listed.text:  # it looks at them first
                    listed = await client.call("files__list_allowed_directories")
                others = {str(each) for each in places} - {str(place)}
                assert not any(each in listed.text for each in others)
