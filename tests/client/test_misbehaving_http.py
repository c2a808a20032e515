"""What only servers over HTTP can do wrong: in the handshake, in calls, and between them.

One server plays for all tests of a revision; each test tells it what to do, and looks at what has
come since.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator

import pytest

from foundation_rt.client import (
    CallResult,
    CallTimeoutError,
    ConnectionLostError,
    InvalidResponseError,
    MCPError,
)
from tests.support.leaks import tasks
from tests.support.misbehaving_clients import ANSWER, SOON, call, client_of
from tests.support.misbehaving_harness import HANDSHAKE, MisbehavingHttpHarness
from tests.support.misbehaving_script import STATELESS, Act
from tests.support.scripted_transport import error_of

JSON = {"Content-Type": "application/json"}
HTML = {"Content-Type": "text/html"}

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture(scope="module", params=[HANDSHAKE, STATELESS])
def started(request: pytest.FixtureRequest) -> Iterator[MisbehavingHttpHarness]:
    with MisbehavingHttpHarness(revision=request.param) as harness:
        yield harness


@pytest.fixture
def server(started: MisbehavingHttpHarness) -> MisbehavingHttpHarness:
    started.play({})
    started.forget()
    return started


# -- calls -----------------------------------------------------------------------------------------

HARMLESS: dict[str, list[Act]] = {
    "a stream": [["stream"], ANSWER],
    "a stream with much in it": [
        ["stream"],
        ["event", ": hello"],
        ["event", "retry: x\nid\nnothing: 5\n\n\ndata"],
        ["event", "event: somethingelse\ndata: {]"],
        ANSWER,
    ],
    "and a session that was never there": [["session", "made up"], ANSWER],
}
"""What a client takes, and gets its answer all the same."""


@pytest.mark.parametrize("acts", HARMLESS.values(), ids=HARMLESS)
async def test_harmless_misbehaviour_leaves_the_response(
    server: MisbehavingHttpHarness, acts: list[Act]
) -> None:
    async with client_of(server) as client:
        await call(client, "first", acts)
        await call(client, "second")
        assert server.nonces() == ["first", "second"]


UNASKED: dict[str, list[Act]] = {
    "another answer": [ANSWER],
    "a response": [["status", 200, JSON, "{}"]],
    "bytes": [["bytes", "HTTP/1.1"]],
    "zeros": [["bytes", "\x00" * 100]],
}
"""What comes after the response, on a connection that is to be used again."""


@pytest.mark.rule("CHTTP-40")
@pytest.mark.parametrize("more", UNASKED.values(), ids=UNASKED)
async def test_unrequested_response_is_no_response(
    server: MisbehavingHttpHarness, more: list[Act]
) -> None:
    """The next call may suffer from it, but it does not take it for its own answer."""
    async with client_of(server) as client:
        await call(client, "first", [ANSWER, *more])
        try:
            await call(client, "second")
        except MCPError as error:
            assert error.may_have_run
        await call(client, "third")
        assert set(server.nonces()) >= {"first", "third"}


def wrong_id(body: str) -> str:
    return '{"jsonrpc": "2.0", "id": "nobody", ' + body + "}"


FAILURES: dict[str, list[Act]] = {
    "the connection is closed": [["cut"]],
    "a head that breaks off": [["part", 0.1], ["cut"]],
    "a body that breaks off": [["part", 0.8], ["cut"]],
    "a stream that breaks off": [["stream"], ["event", ": hello"], ["cut"]],
    "a stream that breaks off within an event": [["stream"], ["bytes", "40\r\ndata: {"], ["cut"]],
    "a stream without an answer": [["stream"], ["finish"]],
    "a stream without an answer, to be resumed": [
        ["stream"],
        ["event", "id: 1\nretry: 1\ndata: "],
        ["finish"],
    ],
    "what is no HTTP": [["bytes", "220 smtp.example.org ESMTP\r\n\r\n"], ["cut"]],
    "a version of the future": [["bytes", "HTTP/9.9 200 OK\r\n\r\n"], ["cut"]],
    "zeros": [["bytes", "\x00" * 1000], ["cut"]],
    "a head without an end": [["bytes", "HTTP/1.1 200 OK\r\n" + "a: b\r\n" * 50_000], ["cut"]],
    "500": [["status", 500]],
    "500 with JSON": [["status", 500, JSON, '{"detail": "no"}']],
    "502 of a proxy": [["status", 502, HTML, "<h1>Bad Gateway</h1>"]],
    "504": [["status", 504]],
    "no body": [["status", 200, JSON]],
    "no type": [["status", 200, {}, "{}"]],
    "a page": [["status", 200, HTML, "<h1>Welcome</h1>"]],
    "JSON that is none": [["status", 200, JSON, '{"jsonrpc": "2.0", "id": ']],
    "a list": [["status", 200, JSON, "[]"]],
    "a number": [["status", 200, JSON, "5"]],
    "a hundred megabytes in an event": [["stream"], ["huge", 100_000_000]],
    "a thousand levels": [["status", 200, JSON, "[" * 5_000]],
    "not UTF-8": [["status", 200, JSON, '{"jsonrpc": "2.0", "id": "\xff"}']],
    "somebody else's": [["status", 200, JSON, wrong_id('"result": {}')]],
    "somebody else's error": [["status", 200, JSON, wrong_id('"error": {"code": 1}')]],
    "accepted": [["status", 202]],
    "no content": [["status", 204]],
    "503": [["status", 503, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}]],
    "a length that is a lie": [
        ["bytes", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"],
        ["bytes", "Content-Length: 1000000000000\r\n\r\n{}"],
        ["cut"],
    ],
    "nonsense in a stream": [["stream"], ["event", "data: {]"], ANSWER],
}
"""What costs the answer; the request may have been carried out."""


@pytest.mark.parametrize("acts", FAILURES.values(), ids=FAILURES)
async def test_harmful_misbehaviour_fails_the_call(
    server: MisbehavingHttpHarness, acts: list[Act]
) -> None:
    await fail_a_call(server, acts)


async def test_bomb_fails_the_call(server: MisbehavingHttpHarness) -> None:
    bomb = gzip.compress(b" " * 200_000_000, 1).decode("latin-1")
    await fail_a_call(server, [["status", 200, {**JSON, "Content-Encoding": "gzip"}, bomb]])


async def fail_a_call(server: MisbehavingHttpHarness, acts: list[Act]) -> None:
    async with client_of(server) as client:
        error = await error_of(call(client, "first", acts))
        assert error.code in ("E201", "E202", "E209")
        assert error.may_have_run
        assert len(str(error)) < 10_000
        await call(client, "second")
        assert server.nonces() == ["first", "second"]


REFUSALS: dict[str, tuple[str, list[Act]]] = {
    "401": ("E207", [["status", 401, {"WWW-Authenticate": "Bearer"}]]),
    "403": ("E207", [["status", 403]]),
    "405": ("E204", [["status", 405]]),
    "429": ("E208", [["status", 429, {"Retry-After": "x"}]]),
}
"""What says that nothing was carried out."""


@pytest.mark.parametrize(("code", "acts"), REFUSALS.values(), ids=REFUSALS)
async def test_refusals_over_http_fail_the_call(
    server: MisbehavingHttpHarness, code: str, acts: list[Act]
) -> None:
    async with client_of(server) as client:
        error = await error_of(call(client, "first", acts))
        assert not error.may_have_run
        assert error.code == code or code == "E204"
        await call(client, "second")
        assert server.nonces() == ["first", "second"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(server: MisbehavingHttpHarness, status: int) -> None:
    """Whatever the headers say of who calls goes to nobody else."""
    async with client_of(server) as client:
        other = server.url.replace("127.0.0.1", "localhost") if status > 303 else server.url
        where = {"Location": f"{other}/elsewhere"}
        error = await error_of(call(client, "first", [["status", status, where]]))
        assert "elsewhere" in error.message
        assert server.nonces() == ["first"]


UNANSWERED: dict[str, list[Act]] = {
    "nothing": [],
    "a stream of nothing": [["stream"]],
    "half a head": [["part", 0.1]],
    "half a body": [["part", 0.8]],
    "a byte at a time": [["drip", 1_000_000]],
    "a few bytes at a time": [["drip", 150]],
    "comments without an end": [["endless", ": x\n"]],
    "messages without an end": [["endless", 'data: {"jsonrpc":"2.0","method":"x"}\n']],
    "nonsense without an end": [["endless", "data: x"]],
}
"""What a client waits for to the end of its patience."""


@pytest.mark.parametrize("acts", UNANSWERED.values(), ids=UNANSWERED)
async def test_a_call_that_is_not_answered_ends_in_time(
    server: MisbehavingHttpHarness, acts: list[Act]
) -> None:
    async with client_of(server) as client:
        error = await error_of(call(client, "first", acts, timeout=SOON))
        assert isinstance(error, CallTimeoutError | InvalidResponseError)
        assert error.may_have_run
        await call(client, "second")
        assert server.nonces() == ["first", "second"]


async def test_response_on_another_stream_is_dropped(server: MisbehavingHttpHarness) -> None:
    """Each stream is for the request that opened it: the second's answer does not come there."""
    async with client_of(server) as client:
        await asyncio.gather(
            call(
                client, "first", [["stream"], ["wait", "second"], ["answer", {"id": "?"}], ANSWER]
            ),
            call(client, "second", [["wait", "first"], ANSWER]),
        )


@pytest.mark.rule("CHTTP-12", "CLIENT-15")
async def test_the_server_hears_of_a_call_that_is_cancelled(server: MisbehavingHttpHarness) -> None:
    """By the end of its exchange; in the handshake mode, where that says nothing, by a message."""
    told: Act = ["wait", "notifications/cancelled" if server.revision == HANDSHAKE else "left"]

    # The server is that of other tests too, and knows their nonces.
    first, second, third = (f"{place} to be cancelled" for place in ("first", "second", "third"))

    async with client_of(server) as client:
        waiting = asyncio.create_task(call(client, first, [["wait", "never"], ANSWER]))
        hears = asyncio.create_task(call(client, second, [["wait", first], told, ANSWER]))
        await call(client, third, [["wait", second], ["wait", first], ANSWER])
        waiting.cancel()
        await hears
        assert waiting.cancelled()
        cancelled = len(server.messages("notifications/cancelled"))
        assert cancelled == (1 if server.revision == HANDSHAKE else 0)


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
