"""The response to the first request of a client, and a server that sends none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from foundation_rt.client import HttpServer, MCPError, ServerDescription, connect, map_mcp_error
from foundation_rt.client.resilience.retries import RetryPolicy
from foundation_rt.client.session.handshake import NEWEST_REVISION, Handshake, HandshakeRequest
from foundation_rt.client.transports.http import HttpTransport
from foundation_rt.protocol.revisions import NEWEST_HANDSHAKE_REVISION, REVISIONS
from tests.support.scripted_http import ReceivedRequest, ScriptedHttp, ScriptedReply


def handshake(forced: str | None = None) -> Handshake:
    info = {"name": "tests", "version": "0"}
    return Handshake(info, lambda _: {}, None if forced is None else REVISIONS[forced])


def answered(made: Handshake, **result: Any) -> ServerDescription | HandshakeRequest:
    opening = made.first()
    assert opening.method == "server/discover"
    return made.answered(opening, result)


@pytest.mark.rule("CLIENT-35")
@pytest.mark.parametrize(
    "result",
    [{}, {"tools": []}, *({"supportedVersions": named} for named in ([], None, "all", [5]))],
)
def test_a_server_that_answers_anything_is_of_the_handshake_mode(result: dict[str, Any]) -> None:
    outcome = answered(handshake(), **result)
    assert isinstance(outcome, HandshakeRequest)
    assert (outcome.method, outcome.revision.name) == ("initialize", NEWEST_HANDSHAKE_REVISION)


@pytest.mark.rule("CLIENT-02")
def test_a_server_that_names_none_of_ours_cannot_be_spoken_to() -> None:
    with pytest.raises(MCPError) as refused:
        answered(handshake(), supportedVersions=["1999-12-31"], capabilities={})
    assert refused.value.code == "E206"


@pytest.mark.rule("CLIENT-01", "CLIENT-35")
def test_forced_revision_has_no_fallback() -> None:
    with pytest.raises(MCPError) as refused:
        answered(handshake(NEWEST_REVISION))
    assert refused.value.code == "E209"


@pytest.mark.rule("CLIENT-02")
def test_a_server_that_names_an_older_one_gets_that() -> None:
    outcome = answered(handshake(), supportedVersions=["2025-06-18", "1999-12-31"], capabilities={})
    assert isinstance(outcome, HandshakeRequest)
    assert (outcome.method, outcome.revision.name) == ("initialize", "2025-06-18")


@pytest.mark.rule("CLIENT-01")
@pytest.mark.parametrize(
    ("number", "message", "code"),
    [
        (-32601, "Method not found", "E206"),
        (-32602, "Invalid request parameters", "E206"),
        (-32600, "Bad Request: Missing session ID", "E206"),
        (-32000, "Bad Request: Server not initialized", "E206"),
        (-32603, "Internal error", "E201"),
    ],
)
def test_older_server_is_distinguished_from_a_failing_one(
    number: int, message: str, code: str
) -> None:
    made = handshake(NEWEST_REVISION)
    opening = made.first()
    error = map_mcp_error({"code": number, "message": message}, opening.method)
    with pytest.raises(MCPError) as refused:
        made.refused(opening, error)
    assert (refused.value.code, refused.value.original_code) == (code, number)
    assert message in refused.value.message


# -- servers that end instead


@pytest.mark.rule("CLIENT-37", "CLIENT-09")
async def test_server_that_closes_on_discover_gets_initialize() -> None:
    async def old(asked: ReceivedRequest, out: ScriptedReply) -> None:
        if asked.rpc == "initialize":
            spoken = {"protocolVersion": NEWEST_HANDSHAKE_REVISION, "capabilities": {}}
            out.result({**spoken, "serverInfo": {"name": "old", "version": "1"}})
        elif asked.rpc == "ping":
            out.result()
        elif asked.rpc == "notifications/initialized":
            out.whole(202)
        elif asked.method == "GET":
            out.whole(405)
        else:
            out.cut()

    async with ScriptedHttp(old).serving() as server:
        async with connect(server.url, require=()) as client:
            assert (await client.initialize()).name == "old"
            await client.ping()
        asked = [each.rpc for each in server.of("POST")]
        assert asked == ["server/discover", "initialize", "notifications/initialized", "ping"]


@pytest.mark.rule("CLIENT-37")
async def test_server_that_closes_on_every_request_is_connected_to_twice() -> None:
    async def gone(asked: ReceivedRequest, out: ScriptedReply) -> None:
        out.cut()

    async with ScriptedHttp(gone).serving() as server:
        once = RetryPolicy(max_attempts=1)
        async with connect(server.url, require=(), retries=once) as client:
            with pytest.raises(ConnectionError):
                await client.initialize()
        assert [each.rpc for each in server.asked] == ["server/discover", "initialize"]


@pytest.mark.rule("CLIENT-37")
def test_address_without_a_listener_is_not_connected_to_again() -> None:
    async def nobody(asked: ReceivedRequest, out: ScriptedReply) -> None:
        raise AssertionError("unreachable")

    transports: list[HttpTransport] = []

    async def main() -> None:
        async with ScriptedHttp(nobody).serving() as server:
            address = HttpServer(server.url)

        def make_transport() -> HttpTransport:
            transports.append(HttpTransport(address))
            return transports[-1]

        async with connect(make_transport, retries=RetryPolicy(max_attempts=1)) as client:
            with pytest.raises(ConnectionError):
                await client.initialize()

    asyncio.run(main())
    assert len(transports) == 1
