"""What only servers over HTTP can do wrong: at any point of the handshake, and between calls.

What a single response can have wrong is in `spec/vectors/client/http`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from foundation_rt.client import (
    CallResult,
    ConnectionLostError,
    MCPError,
)
from tests.lab.checks.leaks import tasks
from tests.lab.peers.script import STATELESS, Act
from tests.lab.peers.script_memory import error_of
from tests.lab.peers.script_processes import (
    ANSWER,
    HANDSHAKE,
    MisbehavingHttpHarness,
    call,
    client_of,
)

JSON = {"Content-Type": "application/json"}
HTML = {"Content-Type": "text/html"}

pytestmark = pytest.mark.usefixtures("forked", "nothing_left")


@pytest.fixture(scope="module", params=[HANDSHAKE, STATELESS])
def started(request: pytest.FixtureRequest) -> Iterator[MisbehavingHttpHarness]:
    with MisbehavingHttpHarness(revision=request.param) as harness:
        yield harness


@pytest.fixture
def server(started: MisbehavingHttpHarness) -> MisbehavingHttpHarness:
    started.play({})
    started.forget()
    return started


def wrong_id(body: str) -> str:
    return '{"jsonrpc": "2.0", "id": "nobody", ' + body + "}"


# -- sessions and processes ------------------------------------------------------------------------


async def test_forgotten_session_is_replaced_once() -> None:
    with MisbehavingHttpHarness() as harness:
        async with client_of(harness) as client:
            await call(client, "first", [["forget"], ANSWER])
            await asyncio.gather(*(call(client, f"call {each}") for each in range(10)))
            assert len(harness.messages("initialize")) == 2
            assert sorted(harness.nonces()) == sorted(
                ["first", *(f"call {each}" for each in range(10))]
            )


async def test_a_session_that_is_never_known_is_no_loop() -> None:
    """The server gives a name to each session that it does not know a moment later."""
    with MisbehavingHttpHarness() as harness:
        harness.play({"initialize": [["session", "unknown"], ANSWER]})
        async with client_of(harness, introduced=False) as client:
            error = await error_of(call(client, "first"))
            assert not error.may_have_run
            assert 1 <= len(harness.messages("initialize")) <= 4


@pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
async def test_a_server_that_is_killed_during_a_call(revision: str) -> None:
    with MisbehavingHttpHarness(revision=revision) as harness:
        async with client_of(harness) as client:
            error = await error_of(call(client, "first", [["kill"]]))
            assert isinstance(error, ConnectionLostError)
            assert error.may_have_run
            assert isinstance(await error_of(call(client, "second")), ConnectionLostError)
            harness.stop()
            harness.start()
            await call(client, "third")
            assert harness.nonces() == ["first", "third"]
            harness.stop()


# -- the handshake ---------------------------------------------------------------------------------

POINTS = {
    HANDSHAKE: [
        "POST",
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/list",
        "GET",
        "DELETE",
    ],
    STATELESS: ["POST", "server/discover", "tools/list", "subscriptions/listen"],
}

ENDS: dict[str, list[Act]] = {
    "nothing": [],
    "the connection is closed": [["cut"]],
    "a head that breaks off": [["bytes", "HTTP/1.1 20"], ["cut"]],
    "a page": [["status", 200, HTML, "<h1>Welcome</h1>"]],
    "an empty object": [["status", 200, JSON, "{}"]],
    "an empty stream": [["stream"], ["finish"]],
    "a stream that breaks off": [["stream"], ["cut"]],
    "somebody else's": [["status", 200, JSON, wrong_id('"result": {}')]],
    "302": [["status", 302, {"Location": "http://127.0.0.1:1/"}]],
    "400": [["status", 400]],
    "400 with an error": [["status", 400, JSON, '{"error": {"code": -32000, "message": "no"}}']],
    "401": [["status", 401]],
    "404": [["status", 404, HTML, "<h1>Not found</h1>"]],
    "429": [["status", 429, {"Retry-After": "86400"}]],
    "500": [["status", 500]],
    "503": [["status", 503]],
    "a stream of comments without an end": [["endless", ": " + "x" * 10_000]],
    "zeros without an end": [["endless", "\x00" * 10_000]],
}


@pytest.mark.parametrize("acts", ENDS.values(), ids=ENDS)
async def test_a_server_that_fails_at_any_point_of_the_handshake(
    server: MisbehavingHttpHarness, acts: list[Act]
) -> None:
    async def outcome() -> CallResult | MCPError:
        options = {"connect_timeout": 0.5, "probe_timeout": 0.1}
        try:
            async with client_of(server, introduced=False, **options) as client:
                return await call(client, "mine")
        except MCPError as error:
            return error

    for point in POINTS[server.revision]:
        server.play({point: acts or [["wait", "never"], ["cut"]]})
        server.forget()
        end = await outcome()
        assert tasks() == []
        if isinstance(end, MCPError):
            assert not end.may_have_run, point
            assert server.nonces() == [], point
        else:
            assert point not in ("POST", "tools/list"), point
            assert server.nonces() == ["mine"], point
