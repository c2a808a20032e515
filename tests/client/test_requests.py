"""Requests of any method, their results and errors as they came, and what `_meta` has besides."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client.client import Client
from foundation_rt.client.errors import CallTimeoutError, CircuitOpenError
from foundation_rt.client.resilience.circuit_breaker import BreakerSettings, CircuitState
from foundation_rt.errors import UsageError
from tests.lab.peers.script import CAPABILITIES, Act
from tests.lab.peers.script_memory import (
    BOTH,
    ONCE,
    STATELESS,
    MemoryHarness,
    capabilities,
    error_of,
    in_turn,
    play,
    refusal,
    result,
    scripted,
    taking,
    tool,
)

pytestmark = pytest.mark.virtual_time

CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
VERSION = "io.modelcontextprotocol/protocolVersion"
MEMBERS = st.dictionaries(
    st.sampled_from(["a", "b", "progressToken", VERSION]),
    st.integers(-(2**53), 2**53) | st.text(max_size=3),
    max_size=4,
)
ODD = {
    "resultType": "odd",
    "content": 5,
    "_meta": {"x": [1, None]},
    "task": {"taskId": "t", "status": "working"},
    "ünknown": 10**30,
}


def call_of(name: str = "play", **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


# -- any method


@pytest.mark.rule("CREQ-01")
@pytest.mark.parametrize("revision", BOTH)
@pytest.mark.parametrize("method", ["odd/method", "tools/call", "completion/complete", "tasks/get"])
async def test_a_result_is_returned_as_it_came(method: str, revision: str) -> None:
    raw = (
        '{"jsonrpc":"2.0","id":"ID","result":{"resultType":"odd","content":5,"_meta":{"x":[1,null]},'
        '"task":{"taskId":"t","status":"working"},"\\u00fcnknown":1000000000000000000000000000000}}'
    )
    async with scripted({method: []}, revision=revision) as (client, harness):
        asked = asyncio.ensure_future(
            client.request(method, {"name": "play", "taskId": "t", "big": 10**30})
        )
        await harness.until(lambda: harness.of(method))
        (sent,) = harness.of(method)
        harness.transport.receiver.received(raw.replace("ID", sent["id"]).encode(), None)
        assert await asked == ODD
        line = next(
            each.line for each in harness.transport.outgoing if each.request_id == sent["id"]
        )
        assert b'"big":1000000000000000000000000000000' in line


@pytest.mark.rule("CREQ-01")
@pytest.mark.parametrize("revision", BOTH)
async def test_an_input_required_result_is_not_answered(revision: str) -> None:
    wanted = {
        "resultType": "input_required",
        "inputRequests": {"a": {"method": "roots/list"}},
        "requestState": "sealed",
    }
    points = {"tools/call": [result(**wanted)]}
    async with scripted(points, revision=revision, roots=["file:///a"]) as (client, harness):
        assert await client.request("tools/call", call_of(nonce="1")) == wanted
        again = {**call_of(nonce="1"), "inputResponses": {"a": {"roots": []}}, "requestState": "s"}
        assert await client.request("tools/call", again) == wanted
        _, second = harness.of("tools/call")
        del second["params"]["arguments"]
        second["params"].pop("_meta", None)
        assert second["params"] == {
            "name": "play",
            "inputResponses": {"a": {"roots": []}},
            "requestState": "s",
        }


@pytest.mark.rule("CREQ-02")
async def test_neither_capabilities_nor_arguments_are_checked() -> None:
    async with scripted({"tools/call": [result()]}) as (client, harness):
        assert await client.request("tools/call", call_of("no such tool", nonce=5)) == {}
        assert (await error_of(client.request("completion/complete"))).original_code == -32601
        assert harness.count("tools/list") == 1


@pytest.mark.rule("CREQ-03")
async def test_what_is_no_request_is_refused_before_anything_is_sent() -> None:
    async with scripted() as (client, harness):
        for method in ("initialize", "notifications/cancelled", "", 5, None):
            with pytest.raises(UsageError):
                await client.request(method)  # type: ignore[arg-type]
        for params in (
            {"name": 5},
            {},
            {"name": "play", "arguments": {1: 2}},
            {"name": "play", "arguments": {"x": float("nan")}},
            {"name": "play", "_meta": 5},
            {"name": "play", 5: 1},
            {"name": "play", "_meta": {"x": object()}},
            ["play"],
            None,
        ):
            error = await error_of(client.request("tools/call", params))  # type: ignore[arg-type]
            assert (error.code, error.may_have_run) == ("E203", False)
        with pytest.raises(UsageError):
            await client.request_all("resources/read")
        assert harness.sent == []


@pytest.mark.rule("CREQ-04")
async def test_a_tool_keeps_its_time_and_its_breaker() -> None:
    points: dict[str, list[Act]] = {"tools/call": []}
    options: dict[str, Any] = {"timeout": 7, "tool_timeouts": {"play": 3}, "tool_breakers": True}
    breaker = BreakerSettings(failure_threshold=2)
    async with scripted(points, breaker=breaker, retries=ONCE, **options) as (client, harness):
        await client.initialize()
        loop = asyncio.get_running_loop()
        for name, timeout, expected in (("play", None, 3), ("other", None, 7), ("other", 1.0, 1)):
            with taking(expected):
                error = await error_of(
                    client.request("tools/call", call_of(name, nonce="x"), timeout=timeout)
                )
                assert isinstance(error, CallTimeoutError)
            client._breakers.server.succeeded(
                client._breakers.server.admit(loop.time()),  # type: ignore[arg-type]
                loop.time(),
            )
        assert client.tool_circuit_state("other") is CircuitState.OPEN
        assert client.tool_circuit_state("play") is CircuitState.CLOSED
        refused = await error_of(client.request("tools/call", call_of("other")))
        assert isinstance(refused, CircuitOpenError)
        harness.play({"tools/call": [refusal(-32602, "Unknown tool: invented")]})
        assert (await error_of(client.request("tools/call", call_of("invented")))).code == "E204"
        assert "invented" not in client._breakers._tools


@pytest.mark.rule("CREQ-04")
async def test_headers_repeat_the_arguments_of_a_listed_tool() -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string", "x-mcp-header": "To"}}}
    points: dict[str, list[Act]] = {
        "tools/list": [result(tools=[tool("send", inputSchema=schema)])],
        "tools/call": [result()],
    }
    async with scripted(points, revision=STATELESS, has_exchanges=True, require=()) as (
        client,
        harness,
    ):
        for name in ("send", "unlisted"):
            await client.request("tools/call", call_of(name, to="Ann"))
        sent = [each for each in harness.transport.outgoing if each.method == "tools/call"]
        assert [(each.name, each.header_params) for each in sent] == [
            ("send", {"To": "Ann"}),
            ("unlisted", {}),
        ]
        # A server that knows the tool in other words refuses the headers once.
        schema["properties"]["to"]["x-mcp-header"] = "Receiver"  # type: ignore[index]
        harness.play({**points, "tools/call": in_turn(refusal(-32020), ["answer"])})
        await client.request("tools/call", call_of("send", to="Ann"))
        assert harness.transport.outgoing[-1].header_params == {"Receiver": "Ann"}


@pytest.mark.rule("CREQ-05")
@pytest.mark.parametrize(
    ("method", "params", "idempotent", "times"),
    [
        ("resources/read", {"uri": "play://one"}, None, 3),
        ("tasks/get", {"taskId": "t"}, None, 3),
        ("odd/method", None, None, 1),
        ("odd/method", None, True, 3),
        ("resources/read", {"uri": "play://one"}, False, 1),
        ("tools/call", call_of("play"), None, 1),
        ("tools/call", call_of("play_again"), None, 3),
        ("tools/call", call_of("play_again"), False, 1),
        ("tools/call", call_of("unlisted"), None, 1),
    ],
)
async def test_what_may_run_twice_is_tried_again(
    method: str, params: Any, idempotent: bool | None, times: int
) -> None:
    async with scripted({method: [refusal(-32603)]}) as (client, harness):
        error = await error_of(client.request(method, params, idempotent=idempotent))
        assert (error.code, harness.count(method)) == ("E201", times)


@pytest.mark.rule("CREQ-06")
@pytest.mark.parametrize("revision", BOTH)
@pytest.mark.parametrize(
    "error",
    [
        {"code": -32602, "message": "Unknown tool: a\u202e\n", "data": {"x": [1, None]}, "odd": 5},
        {"code": 7, "message": "x" * 5000},
        {"code": -32042, "message": "visit", "data": {"elicitations": []}},
        {"code": -32603, "message": 5, "data": None},
        {"code": -32600, "message": "Session not found"},
    ],
)
async def test_an_error_is_kept_as_it_came(error: dict[str, Any], revision: str) -> None:
    points: dict[str, list[Act]] = {"tools/call": [["reply", {"error": error}]]}
    async with scripted(points, revision=revision, retries=ONCE) as (client, _):
        raised = await error_of(client.request("tools/call", call_of()))
        assert raised.wire == error
        assert pickle.loads(pickle.dumps(raised)).wire == error


@pytest.mark.rule("CREQ-06")
async def test_an_error_without_an_error_object_has_none() -> None:
    points: dict[str, list[Act]] = {"odd/method": [["reply", {"error": {"message": "no code"}}]]}
    async with scripted(points, retries=ONCE) as (client, _):
        assert (await error_of(client.request("odd/method"))).wire is None
        assert (await error_of(client.request("tools/call", {}))).wire is None


# -- whole lists


@pytest.mark.rule("CREQ-07")
@pytest.mark.parametrize("revision", BOTH)
async def test_the_entries_of_all_pages_come_as_they_are(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    entry = {"name": "a", "inputSchema": 5, "odd": {"x": None}}
    pages: list[Act] = [
        result(tools=[entry, {}, 5], nextCursor="2"),
        result(tools=[], nextCursor=""),
        result(tools=[entry, "x"]),
    ]
    async with scripted(revision=revision, require=()) as (client, harness):
        harness.play({"tools/list": in_turn(*pages)})
        assert await client.request_all("tools/list", meta={"trace": "t"}) == [entry, {}, entry]
        asked = [each["params"] for each in harness.of("tools/list")]
        assert [each.get("cursor") for each in asked] == [None, "2", ""]
        assert [each["_meta"]["trace"] for each in asked] == ["t", "t", "t"]
        assert [each.message for each in caplog.records if "left out" in each.message] == [
            "tools/list: 2 left out: an entry is listed that is not an object"
        ]


# -- _meta


@pytest.mark.rule("CREQ-08")
@pytest.mark.parametrize("revision", BOTH)
async def test_every_call_takes_further_members_of_meta(revision: str) -> None:
    given = {
        "trace": {"n": 10**30},
        "progressToken": "mine",
        VERSION: "1999-01-01",
        CLIENT_INFO: {"name": "somebody else"},
    }
    points: dict[str, list[Act]] = {
        "prompts/get": [result(messages=[])],
        "completion/complete": [result(completion={"values": []})],
        "resources/templates/list": [result(resourceTemplates=[])],
        "initialize": [capabilities(completions={})],
        "server/discover": [
            result(supportedVersions=[STATELESS], capabilities={**CAPABILITIES, "completions": {}})
        ],
    }
    async with scripted(points, revision=revision) as (client, harness):
        await client.initialize()
        before = len(harness.sent)
        await client.call("play", {"nonce": "1"}, meta=given, correlation_id="c")
        await client.call("play", {"nonce": "1"}, meta=given, on_progress=print)
        await client.read_resource("play://one", meta=given)
        await client.get_prompt("p", meta=given)
        await client.complete("p", "a", meta=given)
        await client.list_resources(meta=given)
        await client.list_resource_templates(meta=given)
        await client.list_prompts(meta=given)
        await client.list_tools(meta=given)
        await client.request("ping", meta=given)
        await client.request("ping", {"_meta": given})
        await client.request("tools/call", {"name": "play", "_meta": None}, meta=given)
        sent = harness.sent[before:]
        assert len(sent) == 12
        for each in sent:
            meta = each["params"]["_meta"]
            assert meta["trace"] == {"n": 1e30}  # as a test reads it
            assert meta.get("progressToken") in (None, each["id"])
            if revision == STATELESS:
                assert (meta[VERSION], meta[CLIENT_INFO]["name"]) == (STATELESS, "foundation-rt")
        assert sent[0]["params"]["_meta"]["correlationId"] == "c"
        assert sent[1]["params"]["_meta"]["progressToken"] == sent[1]["id"]


@pytest.mark.rule("CREQ-08")
@given(MEMBERS, MEMBERS, st.sampled_from(BOTH))
def test_members_of_both_places_are_one(
    inside: dict[str, Any], beside: dict[str, Any], revision: str
) -> None:
    async def scenario(client: Client, harness: MemoryHarness) -> None:
        await client.initialize()
        await client.request("ping", {"_meta": inside}, meta=beside)
        (sent,) = harness.of("ping")
        meta = sent.get("params", {}).get("_meta", {})
        own = {} if revision != STATELESS else client._link.current._meta  # type: ignore[union-attr]
        given = {**inside, **beside}
        for name in ("progressToken", VERSION):
            given.pop(name, None)
        assert meta == {**given, **own}

    play(scenario, revision=revision)


@pytest.mark.rule("CREQ-09")
async def test_tools_listed_with_meta_are_not_kept() -> None:
    async with scripted() as (client, harness):
        assert len(await client.list_tools()) == 2
        harness.play({"tools/list": [result(tools=[tool("only")])]})
        (only,) = await client.list_tools(meta={"trace": "t"})
        assert only.name == "only"
        assert len(await client.list_tools()) == 2
        assert harness.count("tools/list") == 2


@pytest.mark.rule("QUEST-30")
@pytest.mark.parametrize(("revision", "sent"), [("2025-11-25", 1), ("2026-07-28", 0)])
async def test_changed_roots_are_notified_within_a_session(revision: str, sent: int) -> None:
    async with scripted({}, revision=revision) as (client, harness):
        client.roots_changed()
        await client.ping() if sent else await client.list_tools()
        client.roots_changed()
        await client.list_tools()
        assert harness.count("notifications/roots/list_changed") == sent
