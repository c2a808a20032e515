"""The tools of a server: when they are listed, for whom, and what a list that is old may say."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client.client import Client
from foundation_rt.client.errors import (
    CallTimeoutError,
    InvalidArgumentsError,
)
from tests.lab.peers.script import Act
from tests.lab.peers.script_memory import (
    BOTH,
    HANDSHAKE,
    STATELESS,
    MemoryHarness,
    begun,
    error_of,
    play,
    refusal,
    result,
    scripted,
    taking,
    tool,
)
from tests.lab.waiting import settle

pytestmark = pytest.mark.virtual_time

CHANGED: Act = ["flood", 1, {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}]
STRICT = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "additionalProperties": False,
}
LATER = "https://json-schema.org/draft/2020-12/schema"
ANSWER = {"tools/call": [result(content=[{"type": "text", "text": "done"}])]}


def listed(*tools: Any, **more: Any) -> dict[str, list[Act]]:
    """Return a script that lists these tools, and answers calls of all names."""
    return {**ANSWER, "tools/list": [result(tools=[*tools], **more)]}


def count(harness: MemoryHarness) -> int:
    return harness.count("tools/list")


@pytest.mark.rule("CLIENT-23")
async def test_they_are_listed_once_as_long_as_they_are_fresh() -> None:
    async with scripted(listed(tool("a")), tool_cache_ttl_ms=60_000) as (client, harness):
        await client.call("a")
        for _ in range(3):
            await asyncio.sleep(19)
            await client.call("a")
            assert [each.name for each in await client.list_tools()] == ["a"]
            assert (await client.get_tool_schema("a")).name == "a"
        assert count(harness) == 1
        await asyncio.sleep(4)
        calls = await begun(*(client.call("a") for _ in range(50)), client.list_tools())
        await asyncio.gather(*calls)
        assert count(harness) == 2
        client.invalidate()
        await client.call("a")
        assert count(harness) == 3


@pytest.mark.rule("CLIENT-46")
async def test_list_without_lifetime_serves_calls_until_it_fails() -> None:
    """A hint of 0: it is read anew whenever it is shown, and before it refuses anything."""
    async with scripted(listed(tool("a"), ttlMs=0)) as (client, harness):
        for _ in range(3):
            await client.call("a", {"city": "Oslo"})
        assert count(harness) == 1
        await client.list_tools()
        assert count(harness) == 2
        harness.play(listed(tool("a"), tool("b"), ttlMs=0))
        await client.call("b")
        assert count(harness) == 3
        harness.play(listed(tool("a", inputSchema=STRICT), ttlMs=0))
        await client.call("a", {"city": 5})
        assert count(harness) == 3
        await client.list_tools()
        harness.play(listed(tool("a"), ttlMs=0))
        await client.call("a", {"city": 5})
        assert count(harness) == 5


@pytest.mark.rule("CTOOL-24")
@pytest.mark.parametrize(
    ("members", "is_sent"),
    [({}, False), ({"$schema": LATER}, True), ({"patternProperties": {"^z": {}}}, True)],
)
async def test_alternatives_that_lead_back_never_stop_the_loop(
    members: dict[str, Any], is_sent: bool
) -> None:
    """Each level has two alternatives: 2 ** 60 attempts, if none was remembered or counted."""
    twice = [{"$ref": "#"}, {"$ref": "#"}]
    schema = {"type": "object", "required": ["x"], "properties": {"x": {"anyOf": twice}}, **members}
    deep: Any = {}
    for _ in range(60):
        deep = {"x": deep}

    tools = listed(tool("out", outputSchema=schema), tool("in", inputSchema=schema))
    async with scripted({**tools, "tools/call": [result(content=[], structuredContent=deep)]}) as (
        client,
        harness,
    ):
        assert (await error_of(client.call("out"))).code == "E209"
        if is_sent:  # the engine for later dialects and for patterns does not remember
            assert (await client.call("in", deep)).structured == deep
        else:
            assert (await error_of(client.call("in", deep))).code == "E203"
        assert harness.count("tools/call") == 1 + is_sent


@pytest.mark.rule("CTOOL-24")
async def test_a_check_of_too_many_steps_refuses_a_result_and_sends_arguments(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """30,000 values with 100 alternatives each: 40,000,000 steps."""
    many = {"x": [*range(30_000)]}
    alternatives = [{"minimum": 10**9 + number} for number in range(100)]
    schema = {"type": "object", "properties": {"x": {"items": {"anyOf": alternatives}}}}

    tools = listed(tool("out", outputSchema=schema), tool("in", inputSchema=schema))
    async with scripted({**tools, "tools/call": [result(content=[], structuredContent=many)]}) as (
        client,
        harness,
    ):
        error = await error_of(client.call("out"))
        assert error.code == "E209"
        assert "too complex" in error.message
        with caplog.at_level("DEBUG", "foundation_rt.client"):
            assert (await client.call("in", many)).structured == many
        assert harness.of("tools/call")[-1]["params"]["arguments"] == many
        assert "arguments of 'in' are sent unchecked: they are too complex" in caplog.messages


@pytest.mark.rule("CTOOL-26")
async def test_a_result_says_why_it_was_not_checked() -> None:
    dear = {"type": "object", "required": [f"p{number}" for number in range(3000)]}
    answer = result(content=[], structuredContent={"a": 1})

    tools = listed(tool("dear", outputSchema=dear), tool("plain", outputSchema={}))
    async with scripted({**tools, "tools/call": [answer]}) as (client, _):
        unchecked = await client.call("dear")
        assert unchecked.structured == {"a": 1}
        assert unchecked.unchecked is not None
        assert "more than 2000" in unchecked.unchecked
        assert (await client.call("plain")).unchecked is None


@pytest.mark.rule("CLIENT-24", "CLIENT-47")
async def test_a_list_of_this_second_refuses_by_itself() -> None:
    async with scripted(listed(tool("a", inputSchema=STRICT))) as (client, harness):
        await client.initialize()
        sent = len(harness.sent)
        unknown = await error_of(client.call("b"))
        assert (unknown.code, unknown.may_have_run) == ("E204", False)
        wrong = await error_of(client.call("a", {"city": 5}))
        assert isinstance(wrong, InvalidArgumentsError)
        assert (wrong.code, wrong.tool, wrong.may_have_run) == ("E203", "a", False)
        assert (await error_of(client.get_tool_schema("b"))).code == "E204"
        await settle()
        assert len(harness.sent) == sent


@pytest.mark.rule("CLIENT-24", "CLIENT-47")
async def test_a_list_that_is_not_fresh_is_read_again_before_it_refuses() -> None:
    async with scripted(listed(tool("a", inputSchema=STRICT), ttlMs=1_000)) as (client, harness):
        await client.initialize()
        await asyncio.sleep(2)
        harness.play(listed(tool("a"), tool("b"), ttlMs=1_000))
        await client.call("b")
        assert count(harness) == 2
        await asyncio.sleep(2)
        harness.play(listed(tool("a", inputSchema=STRICT), ttlMs=1_000))
        assert (await error_of(client.call("b"))).code == "E204"
        await asyncio.sleep(2)
        error = await error_of(client.call("a", {"town": 5}))
        assert isinstance(error, InvalidArgumentsError)
        assert count(harness) == 4


@pytest.mark.rule("CLIENT-24", "CLIENT-47")
async def test_a_fresh_list_is_read_again_before_it_refuses_once_a_second_at_most() -> None:
    async with scripted(listed(tool("a", inputSchema=STRICT))) as (client, harness):
        await client.initialize()
        await asyncio.sleep(2)
        harness.play(listed(tool("a"), tool("b")))
        assert (await client.call("b")).text == "done"
        assert (await client.call("a", {"city": 5})).text == "done"
        assert count(harness) == 2
        harness.play(listed(tool("a"), tool("b"), tool("c")))
        assert (await error_of(client.call("c"))).code == "E204"
        assert (await error_of(client.get_tool_schema("c"))).code == "E204"
        assert count(harness) == 2
        await asyncio.sleep(1)
        assert (await client.get_tool_schema("c")).name == "c"
        assert count(harness) == 3
        await asyncio.sleep(2)
        refused = await begun(*(error_of(client.call(f"no {each}")) for each in range(20)))
        assert {error.code for error in await asyncio.gather(*refused)} == {"E204"}
        assert count(harness) == 4


@pytest.mark.rule("CLIENT-24", "CLIENT-47")
async def test_a_tool_that_is_gone_when_its_arguments_do_not_fit() -> None:
    async with scripted(listed(tool("a", inputSchema=STRICT), ttlMs=0)) as (client, harness):
        await client.initialize()
        harness.play(listed(tool("b"), ttlMs=0))
        assert (await error_of(client.call("a", {"town": 5}))).code == "E204"


@pytest.mark.rule("CLIENT-24")
async def test_arguments_are_checked_as_their_json() -> None:
    cities = {"type": "object", "properties": {"city": {"type": "array"}}}
    async with scripted(listed(tool("a", inputSchema=cities))) as (client, harness):
        await client.call("a", {"city": ("Oslo", "Bergen")})
        assert harness.of("tools/call")[0]["params"]["arguments"] == {"city": ["Oslo", "Bergen"]}
        for mistake in ({5: 5}, {"a": {1}}, {"a": 10**5000}, 5, "ab", [1]):
            error = await error_of(client.call("a", mistake))  # type: ignore[arg-type]
            assert (error.code, error.may_have_run) == ("E203", False)


@pytest.mark.rule("CLIENT-45", "CLIENT-30")
async def test_list_that_changed_while_it_was_read_serves_waiting_calls() -> None:
    """And nobody else: who comes later, and knows of a new tool, has it listed anew."""
    async with scripted(listed(tool("a"))) as (client, harness):
        await client.initialize()
        client.invalidate()
        harness.play({**ANSWER, "tools/list": [["wait", "old"], *listed(tool("a"))["tools/list"]]})
        early = await begun(*(client.call("a") for _ in range(3)))
        harness.play({**ANSWER, "tools/list": [["wait", "new"], *listed(tool("b"))["tools/list"]]})
        harness.transport.tell("notifications/tools/list_changed")
        late = await begun(*(client.call("b") for _ in range(3)))
        assert count(harness) == 3
        harness.transport.release("new")
        await asyncio.gather(*late)
        harness.transport.release("old")
        await asyncio.gather(*early)
        assert [each.name for each in await client.list_tools()] == ["b"]
        assert count(harness) == 3


@pytest.mark.rule("CLIENT-45", "CLIENT-30")
async def test_server_with_an_ever_changing_list_can_be_called() -> None:
    points = {**ANSWER, "tools/list": [CHANGED, result(tools=[tool("a")])]}

    async with scripted(points) as (client, harness):
        for times in range(1, 5):
            await client.call("a")
            assert count(harness) == times + 1  # what was read while connecting was not kept
        assert (await error_of(client.call("b"))).code == "E204"


@pytest.mark.rule("CLIENT-23")
@pytest.mark.parametrize("revision", BOTH)
async def test_waiting_call_may_be_cancelled(revision: str) -> None:
    """All may: the list is read to its end, and serves the next."""
    async with scripted(listed(tool("a")), revision=revision) as (client, harness):
        await client.initialize()
        client.invalidate()
        harness.play({**ANSWER, "tools/list": [["wait", "go"], result(tools=[tool("a")])]})
        calls = await begun(*(client.call("a") for _ in range(5)))
        for each in calls:
            each.cancel()
        await asyncio.wait(calls)
        (call,) = await begun(client.call("a"))
        harness.transport.release("go")
        await call
        assert count(harness) == 2
        assert harness.of("notifications/cancelled") == []


@pytest.mark.rule("CLIENT-23")
@pytest.mark.parametrize(
    ("acts", "code"),
    [([refusal(-32602)], "E203"), ([refusal(-32603)], "E201"), ([result(tools=5)], "E209")],
    ids=repr,
)
async def test_a_list_that_cannot_be_had(acts: list[Act], code: str) -> None:
    async with scripted(listed(tool("a"))) as (client, harness):
        await client.initialize()
        client.invalidate()
        harness.play({**ANSWER, "tools/list": acts})
        calls = await begun(*(client.call("a") for _ in range(5)))
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert {(each.code, each.may_have_run) for each in errors} == {(code, False)}  # type: ignore[union-attr]
        harness.play(listed(tool("a")))
        await client.call("a")


@pytest.mark.rule("CLIENT-20", "CLIENT-23")
async def test_a_list_that_does_not_come() -> None:
    """Each call has its own time; the list has that of the client."""
    async with scripted(listed(tool("a")), timeout=10) as (client, harness):
        await client.initialize()
        client.invalidate()
        harness.play({"tools/list": []})
        with taking(1):
            short, patient = await begun(
                client.call("a", timeout=1), client.call("a", timeout=1_000)
            )
            assert isinstance(await error_of(short), CallTimeoutError)
        assert count(harness) == 2
        error = await error_of(patient)
        assert isinstance(error, CallTimeoutError)
        assert not error.may_have_run
        assert count(harness) == 4  # it was tried three times
        assert harness.count("notifications/cancelled") == 3


@pytest.mark.rule("CLIENT-23", "CLIENT-28")
async def test_lost_listing_is_repeated_in_the_next_session() -> None:
    async with scripted(listed(tool("a"))) as (client, harness):
        await client.initialize()
        client.invalidate()
        harness.play({"tools/list": []})
        calls = await begun(*(client.call("a") for _ in range(20)))
        harness.play(listed(tool("a")))
        harness.transport.lose()
        await asyncio.gather(*calls)
        assert len(harness.transports) == 2
        assert client._breakers.server.failures == 0


MIRRORED = {
    "type": "object",
    "properties": {"city": {"type": "string", "x-mcp-header": "City"}},
}
BROKEN = {
    "type": "object",
    "properties": {"city": {"type": "object", "x-mcp-header": "City"}},
}


@pytest.mark.rule("CLIENT-23", "CTOOL-09")
@pytest.mark.parametrize("revision", BOTH)
@pytest.mark.parametrize("has_exchanges", [False, True], ids=["stdio", "HTTP"])
async def test_tools_whose_headers_break_the_rules(revision: str, has_exchanges: bool) -> None:
    """Over HTTP, in the stateless mode, they are left out; elsewhere there are no headers."""
    tools = [tool("bad", inputSchema=BROKEN), tool("good", inputSchema=MIRRORED)]
    async with scripted(listed(*tools), revision=revision, has_exchanges=has_exchanges) as (
        client,
        _,
    ):
        names = [each.name for each in await client.list_tools()]
        is_strict = has_exchanges and revision == STATELESS
        assert names == (["good"] if is_strict else ["bad", "good"])


@pytest.mark.rule("CLIENT-27")
async def test_headers_that_the_server_wants_otherwise() -> None:
    """Once, after the tools were listed anew; the call is checked by what is listed then."""
    async with scripted(listed(tool("a")), revision=STATELESS, has_exchanges=True) as (
        client,
        harness,
    ):
        await client.initialize()
        harness.play(
            {
                "tools/call": [refusal(-32020)],
                "tools/list": [result(tools=[tool("a", inputSchema=MIRRORED)])],
            }
        )
        error = await error_of(client.call("a", {"city": "Oslo"}))
        assert (error.original_code, error.may_have_run) == (-32020, False)
        sent = [each for each in harness.transport.outgoing if each.method == "tools/call"]
        assert [dict(each.header_params) for each in sent] == [{}, {"City": "Oslo"}]
        assert count(harness) == 2


@pytest.mark.rule("CLIENT-27", "CLIENT-25")
async def test_result_is_checked_against_the_newest_list() -> None:
    first = tool("a", outputSchema={"type": "object", "required": ["sea"]})
    async with scripted(listed(first), revision=STATELESS, has_exchanges=True) as (client, harness):
        await client.initialize()
        new = tool("a", outputSchema={"type": "object", "required": ["sky"]})
        harness.play({"tools/call": [refusal(-32020)], "tools/list": [["wait", "go"]]})
        (call,) = await begun(client.call("a"))
        harness.play({"tools/call": [result(content=[], structuredContent={"sky": "grey"})]})
        harness.transport.say(
            {"jsonrpc": "2.0", "id": harness.of("tools/list")[-1]["id"], "result": {"tools": [new]}}
        )
        assert (await call).structured == {"sky": "grey"}
        assert harness.count("tools/call") == 2


@pytest.mark.rule("CLIENT-27")
async def test_time_over_after_a_refusal_has_not_run() -> None:
    async with scripted(listed(tool("a")), revision=STATELESS, has_exchanges=True) as (
        client,
        harness,
    ):
        await client.initialize()
        harness.play({"tools/call": [refusal(-32020)], "tools/list": []})
        error = await error_of(client.call("a", timeout=2))
        assert isinstance(error, CallTimeoutError)
        assert not error.may_have_run


@pytest.mark.rule("CTOOL-04")
def test_a_tool_that_cannot_be_checked_is_called_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(client: Client, harness: MemoryHarness) -> None:
        for _ in range(3):
            await client.call("a", {"city": 5})

    play(scenario, listed(tool("a", inputSchema={"type": "nonsense"})))
    warned = [each for each in caplog.records if "called unchecked" in each.message]
    assert len(warned) == 1


steps = st.sampled_from(["call", "unknown", "list", "changed", "invalidate", "wait", "hint", "die"])


@pytest.mark.rule("CLIENT-23", "CLIENT-24", "CLIENT-47")
@given(history=st.lists(steps, max_size=12), hint=st.sampled_from([None, 0, 5_000]))
def test_any_history_of_a_list(history: list[str], hint: int | None) -> None:
    """A tool that there is can be called; one that there is not is E204, and never sent."""

    async def scenario(client: Client, harness: MemoryHarness) -> None:
        more = {} if hint is None else {"ttlMs": hint}
        version = 0
        harness.play(listed(tool("a"), tool("v0"), **more))
        for step in history:
            if step == "call":
                await client.call("a")
            elif step == "unknown":
                assert (await error_of(client.call("nobody"))).code == "E204"
            elif step == "list":
                names = [each.name for each in await client.list_tools()]
                assert names == ["a", f"v{version}"]
            elif step == "changed" and harness.transports and client.server is not None:
                version += 1
                harness.play(listed(tool("a"), tool(f"v{version}"), **more))
                harness.transport.tell("notifications/tools/list_changed")
                await client.call(f"v{version}")
            elif step == "invalidate":
                client.invalidate()
            elif step == "wait":
                await asyncio.sleep(6)
            elif step == "die" and harness.transports:
                harness.transport.lose()
                await settle()
        names = {each["params"]["name"] for each in harness.of("tools/call")}
        assert "nobody" not in names

    play(scenario)


@dataclass
class Place:
    city: str
    height: float


class Height(Enum):
    UNKNOWN = nan


@pytest.mark.rule("CLIENT-24")
@pytest.mark.parametrize(
    "value",
    [nan, inf, -inf, [None, nan], {"a": (1, [inf])}, Place("Oslo", nan), [Height.UNKNOWN]],
    ids=repr,
)
async def test_nan_and_infinity_are_not_sent_as_null(value: Any) -> None:
    async with scripted(listed(tool("a"))) as (client, harness):
        error = await error_of(client.call("a", {"x": value}))
        assert (error.code, error.may_have_run) == ("E203", False)
        assert harness.count("tools/call") == 0
        places = [Place("null", 1.5), None, "NaN", (1e308, True)]
        await client.call("a", {"x": places})
        sent = harness.of("tools/call")[0]["params"]["arguments"]
        assert sent == {"x": [{"city": "null", "height": 1.5}, None, "NaN", [1e308, True]]}


TASKS = {"tasks": {"requests": {"tools": {"call": {}}}}}


@pytest.mark.rule("CTOOL-18")
@pytest.mark.parametrize(
    ("execution", "capabilities", "is_refused"),
    [
        ({"taskSupport": "required"}, TASKS, True),
        ({"taskSupport": "required"}, {"tasks": {"requests": {}}}, False),
        ({"taskSupport": "required"}, {}, False),
        ({"taskSupport": "optional"}, TASKS, False),
        ({"taskSupport": "forbidden"}, TASKS, False),
        ({"taskSupport": ["required"]}, TASKS, False),
        ({}, TASKS, False),
        ("required", TASKS, False),
        (None, TASKS, False),
    ],
    ids=repr,
)
async def test_a_tool_that_runs_as_a_task_only_is_not_called(
    execution: Any, capabilities: dict[str, Any], is_refused: bool
) -> None:
    introduced = {
        "protocolVersion": HANDSHAKE,
        "serverInfo": {"name": "s", "version": "1"},
        "capabilities": {"tools": {}, **capabilities},
    }
    points = listed(tool("a", execution=execution))
    async with scripted(points | {"initialize": [result(**introduced)]}) as (client, harness):
        if not is_refused:
            assert (await client.call("a")).text == "done"
            return
        error = await error_of(client.call("a"))
        assert (error.code, error.may_have_run, error.retryable) == ("E205", False, False)
        assert "task" in str(error)
        assert harness.count("tools/call") == 0
        assert client.circuit_state == "CLOSED"


# -- versions of a tool ---------------------------------------------------------------------------


@pytest.mark.rule("CTOOL-30")
async def test_a_version_is_called_and_checked_by_its_own_schemas() -> None:
    output = {"type": "object", "required": ["a"]}
    older = {"inputSchema": STRICT, "outputSchema": output}
    hostile = {"1": older, "0": [], "0.1": {"inputSchema": 5}, "0.2": {}}
    newest = tool("find", version="2", _meta={"foundation-rt/versions": hostile})
    odd = tool("odd", _meta={"foundation-rt/versions": ["1"]})
    structured = {"content": [], "structuredContent": {"a": 1}}
    script = {**listed(newest, odd), "tools/call": [result(**structured)]}
    async with scripted(script) as (client, harness):
        await client.call("find", {"city": 5}, version="2")
        await client.call("find", {"city": "Oslo"}, version="1")
        for name in ("find", "find@1"):
            await client.call(name, meta={"foundation-rt/version": "1"})
        called = [each["params"]["name"] for each in harness.of("tools/call")]
        assert called == ["find@2", "find@1", "find@1", "find@1"]
        assert (await error_of(client.call("find", {"city": 5}, version="1"))).code == "E203"
        for name, version in (("find", "0"), ("find", "0.1"), ("find", "0.2"), ("find", "3")):
            assert (await error_of(client.call(name, version=version))).code == "E204"
        for name in ("odd@1", "none@1", "find@", "@2", "find@2@2"):
            assert (await error_of(client.call(name))).code == "E204"
        harness.play({**listed(newest), "tools/call": [result(content=[], structuredContent={})]})
        assert (await error_of(client.call("find", version="1"))).code == "E209"
        assert harness.count("tools/call") == 5
        assert [each.name for each in await client.list_tools()] == ["find", "odd"]


@pytest.mark.rule("CTOOL-30")
@pytest.mark.parametrize("raw", [True, False])
async def test_headers_are_those_of_the_version_that_the_meta_names(raw: bool) -> None:
    city = {"type": "string", "x-mcp-header": "City"}
    older = {"1": {"inputSchema": {"type": "object", "properties": {"city": city}}}}
    newest = tool("find", version="2", _meta={"foundation-rt/versions": older})
    script = listed(newest)
    async with scripted(script, revision=STATELESS, has_exchanges=True) as (client, harness):
        arguments = {"city": "Oslo"}
        for meta in ({}, {"foundation-rt/version": "1"}):
            if raw:
                params = {"name": "find", "arguments": arguments, "_meta": meta}
                await client.request("tools/call", params)
            else:
                await client.call("find", arguments, meta=meta)
        sent = [each for each in harness.transport.outgoing if each.method == "tools/call"]
        assert [dict(each.header_params) for each in sent] == [{}, {"City": "Oslo"}]
