"""What comes through a gateway, a process of its own, from servers of either mode."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt.client import Client, MCPError, connect
from tests.integration.test_forwarding import LISTS, NEW, OLD, REQUESTS, combinations, outcome
from tests.lab.apps import forwarded_app, gateway_app, roots_server
from tests.lab.peers.clients import ABLE
from tests.lab.peers.raw_http import RawClient
from tests.lab.servers.http_server import serve_gateway
from tests.lab.waiting import until

FORWARDED = shlex.join([sys.executable, str(forwarded_app.__file__)])
APP = shlex.join([sys.executable, str(gateway_app.__file__)])


class Answers:
    """Answers every request of a server, and keeps what it was asked."""

    def __init__(self, **capabilities: Any) -> None:
        self.declared = capabilities or dict(ABLE)
        self.asked: list[tuple[str, Any]] = []

    def capabilities(self, revision: Any) -> dict[str, Any]:
        return self.declared

    async def handle(self, method: str, params: Any, revision: Any) -> dict[str, Any]:
        self.asked.append((method, params))
        if method == "roots/list":
            return {"roots": [{"uri": "file:///home"}]}
        if method == "sampling/createMessage":
            content = {"type": "text", "text": "hello"}
            return {"role": "assistant", "model": "m", "content": content}
        if params.get("mode") == "url":
            return {"action": "accept"}
        return {"action": "accept", "content": {"name": "Ann"}}


def speaking(revision: str) -> dict[str, str]:
    """Return the environment of a gateway that speaks this revision to its servers."""
    return {"MCP_PROTOCOL_VERSION": revision}


@pytest.mark.rule("GATE-01", "GATE-02", "GATE-04", "GATE-05", "GATE-08")
@combinations
async def test_what_comes_through_equals_what_comes_directly(ours: str, theirs: str) -> None:
    with serve_gateway(FORWARDED, env=speaking(theirs)) as gateway:
        async with (
            connect(FORWARDED, revision=ours) as direct,
            connect(gateway.url, revision=ours) as client,
        ):
            for method in LISTS:
                through = await client.request_all(method)
                own = [each for each in through if each.get("uri") == "gateway://status"]
                assert len(own) == (method == "resources/list")
                assert [
                    each for each in through if each not in own and each.get("name") != "health"
                ] == [
                    each
                    for each in await direct.request_all(method)
                    if each.get("name") != "health"
                ]
            for capability in ("tools", "resources", "prompts", "completions", "logging"):
                assert client.has_capability(capability)
            for method, params in REQUESTS:
                expected = await outcome(direct, method, params)
                found = await outcome(client, method, params)
                if params.get("name") == "nobody" or params.get("uri") == "nowhere://":
                    assert "code" in found or found["isError"]  # the gateway has no such name
                else:
                    assert found == expected, (method, params)


@pytest.mark.rule("GATE-20", "GATE-21", "GATE-22", "GATE-23")
@combinations
async def test_questions_reach_the_client_whose_call_asks(ours: str, theirs: str) -> None:
    answers, progress, logs = Answers(), list[Any](), list[Any]()
    with serve_gateway(APP, env=speaking(theirs)) as gateway:
        async with connect(
            gateway.url, revision=ours, handlers=answers, log_level="info"
        ) as client:
            result = await client.call(
                "survey",
                on_progress=lambda *each: progress.append(each),
                on_log=lambda *each: logs.append(each),
            )
            assert result.value() == [{"name": "Ann"}, "accept", "hello", ["file:///home"]]
            assert [method for method, _ in answers.asked] == [
                "elicitation/create",
                "elicitation/create",
                "sampling/createMessage",
                "roots/list",
            ]
            assert answers.asked[0][1]["requestedSchema"]["properties"] == {
                "name": {"type": "string"}
            }
            assert answers.asked[1][1]["url"] == "https://pay.test/1"
            assert (1, 2, "half") in progress
            assert ("info", "app", {"n": 1}) in logs
        async with connect(gateway.url, revision=ours) as mute:
            try:
                assert (await mute.call("ask")).is_error
            except MCPError as error:  # as a stateless server says it
                assert error.wire is not None and error.wire["code"] == -32021
        assert not gateway.process.records_with(level="error")


@pytest.mark.rule("COORD-59", "GATE-20")
async def test_questions_of_several_calls_at_once_reach_their_session() -> None:
    """Over stdio a server does not say which call it asks for; the connection is one session's."""
    mine, others = Answers(), Answers()
    with serve_gateway(APP, env=speaking(OLD)) as gateway:
        async with (
            connect(gateway.url, revision=OLD, handlers=mine) as client,
            connect(gateway.url, revision=OLD, handlers=others) as other,
        ):
            found = await asyncio.gather(*(client.call("ask") for _ in range(5)), other.call("ask"))
            assert [each.value() for each in found] == [{"name": "Ann"}] * 6
            assert (len(mine.asked), len(others.asked)) == (5, 1)


@pytest.mark.rule("GATE-22")
async def test_parked_call_is_its_owners_and_of_its_process() -> None:
    keys = '["ann:ann-key-0123456789", "bob:bob-key-0123456789"]'
    settings = {
        "FOUNDATION_RT_HTTP__API_KEYS": keys,
        "FOUNDATION_RT_SECURITY__STATE_KEY": "ab" * 32,
        **speaking(OLD),
    }
    call = {"name": "ask", "arguments": {}}
    answer = {"action": "accept", "content": {"name": "Ann"}}

    async def resumed(client: Any, asked: Any) -> Any:
        [key] = asked["inputRequests"]
        return await client.request(
            "tools/call",
            {**call, "inputResponses": {key: answer}, "requestState": asked["requestState"]},
        )

    def client_of(gateway: Any, who: str) -> Any:
        headers = {"Authorization": f"Bearer {who}-key-0123456789"}
        return connect(gateway.url, revision=NEW, handlers=Answers(), headers=headers)

    with (
        serve_gateway(APP, env=settings, options=()) as gateway,
        serve_gateway(APP, env=settings, options=()) as second,
    ):
        async with (
            client_of(gateway, "ann") as ann,
            client_of(gateway, "bob") as bob,
            client_of(second, "ann") as elsewhere,
        ):
            asked = await ann.request("tools/call", call)
            assert asked["resultType"] == "input_required"
            with pytest.raises(MCPError) as raised:
                await resumed(bob, asked)
            assert raised.value.wire is not None and raised.value.wire["code"] == -32602
            with pytest.raises(MCPError) as raised:
                await resumed(elsewhere, asked)
            assert raised.value.wire is not None
            assert raised.value.wire["code"] == -32602
            assert raised.value.wire["data"]["reason"] == "call_again"
            result = await resumed(ann, asked)
            assert result["content"][0]["text"] == '{"name":"Ann"}'
            with pytest.raises(MCPError) as raised:  # it has ended
                await resumed(ann, asked)
            assert raised.value.wire is not None
            assert raised.value.wire["data"]["reason"] == "call_again"


@pytest.mark.rule("GATE-22")
async def test_parked_call_ends_when_nobody_comes_back() -> None:
    settings = {"FOUNDATION_RT_SERVER__INPUT_TTL_MS": "1000", **speaking(OLD)}
    with serve_gateway(APP, env=settings) as gateway:
        async with connect(gateway.url, revision=NEW, handlers=Answers()) as client:
            call = {"name": "ask", "arguments": {}}
            asked = await client.request("tools/call", call)
            await until(lambda: status_of(client), "it ends", lambda found: not found["running"])
            [key] = asked["inputRequests"]
            with pytest.raises(MCPError) as raised:
                again = {"inputResponses": {key: {"action": "cancel"}}}
                await client.request(
                    "tools/call", {**call, **again, "requestState": asked["requestState"]}
                )
            assert raised.value.wire is not None and raised.value.wire["code"] == -32602


async def status_of(client: Any, server: str = "server") -> dict[str, Any]:
    """Return what the gateway shows of one server."""
    read = await client.request("resources/read", {"uri": "gateway://status"})
    found = orjson.loads(read["contents"][0]["text"])
    [one] = [each for each in found["servers"] if each["id"] == server]
    return dict(one)


@pytest.mark.rule("GATE-04", "FWD-31")
@pytest.mark.parametrize("theirs", [OLD, NEW])
async def test_cancellation_reaches_the_server(theirs: str, tmp_path: Path) -> None:
    noted, began = tmp_path / "noted", asyncio.Event()
    for_ever = {"FOUNDATION_RT_TOOLS__CANCEL_GRACE_MS": "600000"}
    with serve_gateway(APP, env={**for_ever, **speaking(theirs)}) as gateway:
        async with connect(gateway.url) as client:
            waiting = asyncio.ensure_future(
                client.call("wait", {"path": str(noted)}, on_progress=lambda *_: began.set())
            )
            await began.wait()
            waiting.cancel()
            await asyncio.wait([waiting])
            await until(noted.exists, "the server notes the end")


class NeverAnswers(Answers):
    """A client that leaves a question open."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = asyncio.Event()

    async def handle(self, method: str, params: Any, revision: Any) -> dict[str, Any]:
        self.is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.rule("GATE-04")
@pytest.mark.parametrize("theirs", [OLD, NEW])
async def test_call_that_is_cancelled_while_it_asks_is_aborted_and_no_failure(theirs: str) -> None:
    with serve_gateway(APP, env=speaking(theirs)) as gateway:
        client_side = NeverAnswers()
        async with connect(gateway.url, revision=OLD, handlers=client_side) as client:
            waiting = asyncio.ensure_future(client.call("ask"))
            await client_side.is_asked.wait()
            waiting.cancel()
            await asyncio.wait([waiting])
            record = await asyncio.to_thread(
                gateway.process.record, message="tool call completed", toolName="ask"
            )
            assert record["outcome"] == "aborted"
            assert "tool handler failed" not in gateway.process.stderr


@pytest.mark.rule("GATE-54")
@pytest.mark.parametrize(("ours", "theirs"), [(OLD, NEW), (NEW, OLD)])
async def test_server_has_the_correlation_id_of_the_call(ours: str, theirs: str) -> None:
    with serve_gateway(APP, env=speaking(theirs)) as gateway:
        async with connect(gateway.url, revision=ours) as client:

            async def found(**meta: str) -> str:
                params = {"name": "correlation", "arguments": {}}
                result = await client.request("tools/call", params, meta=meta)
                return str(result["content"][0]["text"])

            assert await found(correlationId="mine-7") == "mine-7"
            one, two = await found(), await found(correlationId="x" * 200)
            assert one != two
            for made in (one, two):
                record = gateway.process.record(correlationId=made, toolName="correlation")
                assert record["message"] == "tool call completed"


@pytest.mark.rule("FWD-30")
async def test_headers_that_repeat_arguments_are_checked_of_forwarded_tools() -> None:
    with serve_gateway(APP, env=speaking(NEW)) as gateway:
        async with connect(gateway.url, revision=NEW) as client:
            assert (await client.call("place", {"region": "north"})).value() == "north"
        await asyncio.to_thread(_send_without_header, gateway.url)


def _send_without_header(url: str) -> None:
    with RawClient(url) as client:
        response = client.fetch(client.call("place", region="north"))
    assert response.status == 400
    assert response.json["error"]["code"] == -32020
    assert "Mcp-Param-Region is missing" in response.json["error"]["message"]


class ChangingRoots(Answers):
    """A client with one root at a time."""

    def __init__(self, root: str) -> None:
        super().__init__(roots={"listChanged": True})
        self.root = root

    async def handle(self, method: str, params: Any, revision: Any) -> dict[str, Any]:
        assert method == "roots/list"
        return {"roots": [{"uri": self.root}]}


@pytest.mark.rule("GATE-50", "COORD-71", "QUEST-30")
async def test_changed_roots_reach_the_servers_of_that_session_alone() -> None:
    mine, others = ChangingRoots("file:///mine"), ChangingRoots("file:///others")
    with serve_gateway(shlex.join([sys.executable, str(roots_server.__file__)])) as gateway:
        async with (
            connect(gateway.url, revision=OLD, handlers=mine) as client,
            connect(gateway.url, revision=OLD, handlers=others) as other,
        ):

            async def known(of: Client) -> Any:
                return orjson.loads(
                    (await of.request("tools/call", {"name": "roots"}))["content"][0]["text"]
                )

            assert await known(client) == [["file:///mine"], 0]
            assert await known(other) == [["file:///others"], 0]
            mine.root = "file:///new"
            client.roots_changed()
            found = await until(
                lambda: known(client), "it is told", lambda found: found[0] == ["file:///new"]
            )
            assert found[1] >= 1
            assert await known(other) == [["file:///others"], 0]
