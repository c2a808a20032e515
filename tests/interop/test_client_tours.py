"""Our client against our own server and the official ones: the tour of `tour.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from foundation_rt import Text
from foundation_rt.cli.server_loading import load_app
from foundation_rt.client import StdioServer, ToolCallError, blocking, connect
from tests.interop import our_client, servers, tour
from tests.lab.servers.http_server import serve_http
from tests.lab.servers.process import command

OFFICIAL = {"official-python": servers.python, "official-typescript": servers.typescript}
OURS = "interop"

modes = pytest.mark.parametrize("modern", [False, True], ids=["handshake", "stateless"])
clean = pytest.mark.usefixtures("nothing_left")
everybody = pytest.mark.parametrize("server", [OURS, *OFFICIAL])


def _stdio(server: str) -> StdioServer:
    words = command("serve", str(tour.APP)) if server == OURS else [*OFFICIAL[server](), "stdio"]
    return StdioServer(words[0], words[1:])


@pytest.fixture
def url(server: str) -> Iterator[str]:
    if server == OURS:
        with serve_http(tour.APP) as ours:
            yield ours.url
    else:
        with servers.listening(OFFICIAL[server]()) as listening:
            yield listening.url


@pytest.mark.rule(
    "CLIENT-01", "CLIENT-15", "CLIENT-16", "CLIENT-22", "CLIENT-26", "CLIENT-29", "CLIENT-53"
)
@clean
@modes
@everybody
def test_over_stdio(server: str, modern: bool) -> None:
    report = asyncio.run(our_client.make(_stdio(server), modern=modern, over_http=False))
    assert report == our_client.expected(server, modern=modern, over_http=False)


@pytest.mark.rule(
    "CLIENT-01", "CLIENT-15", "CLIENT-16", "CLIENT-22", "CLIENT-26", "CLIENT-29", "CHTTP-24"
)
@clean
@modes
@everybody
def test_over_http(server: str, modern: bool, url: str) -> None:
    report = asyncio.run(our_client.make(url, modern=modern, over_http=True))
    assert report == our_client.expected(server, modern=modern, over_http=True)


@pytest.mark.rule("CHTTP-13")
@clean
@modes
@pytest.mark.parametrize("server", OFFICIAL)
def test_over_http_without_sessions_and_streams(server: str, modern: bool) -> None:
    with servers.listening(OFFICIAL[server](), mode="plain") as listening:
        report = asyncio.run(our_client.look_briefly(listening.url, modern=modern))
    expected = our_client.expected(server, modern=modern, over_http=True)
    assert report == {key: expected[key] for key in report}


@pytest.mark.parametrize("server", OFFICIAL)
async def test_a_tool_that_fails(server: str) -> None:
    async with connect(_stdio(server)) as client:
        failed = await client.call("fail")
        assert failed.is_error
        with pytest.raises(ToolCallError, match="it cannot be done") as error:
            failed.value()
        assert error.value.code is None


@pytest.mark.rule("CHILD-13")
@modes
def test_in_memory(modern: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOUNDATION_RT_LOGGING__LEVEL", "error")  # of the server's, in this process
    server = load_app(str(tour.APP))
    report = asyncio.run(our_client.make(server, modern=modern, over_http=False))
    assert report == our_client.expected(OURS, modern=modern, over_http=False)


@pytest.mark.rule("CHTTP-30", "CHTTP-32")
@pytest.mark.parametrize("server", [OURS])
def test_over_http_of_old(server: str, url: str) -> None:
    stream = url.replace("/mcp", "/sse")
    report = asyncio.run(our_client.make(stream, modern=False, over_http=False))
    assert report == our_client.expected(OURS, modern=False, over_http=False)


@clean
@everybody
def test_a_script(server: str) -> None:
    with blocking.connect(_stdio(server)) as client:
        assert client.call("add", {"a": 2, "b": 3}).structured == {"total": 5}
        assert client.get_prompt("greet", {"name": "Ada"}).messages[0].content == Text("Greet Ada.")
