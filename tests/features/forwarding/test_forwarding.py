"""Requests that a server hands to a forwarder: which, how they run, and what comes of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from foundation_rt import (
    AbortSignal,
    CompletedCall,
    ForwardedError,
    ForwardTarget,
    Server,
    ServerOptions,
    ToolContext,
    ToolError,
    UsageError,
)
from foundation_rt.features.tracing import Tracing
from foundation_rt.testing import ManualClock, ProtocolError, TestClient
from tests.lab.peers.forwarders import CAPABILITIES, ScriptedForwarder
from tests.lab.waiting import until

OLD, NEW = "2025-11-25", "2026-07-28"
both_modes = pytest.mark.parametrize("revision", [OLD, NEW])
TASKS = "io.modelcontextprotocol/tasks"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"


def server_of(forwarder: ScriptedForwarder, **sections: Any) -> Server:
    server = Server("front", version="1.0.0", config=sections)

    @server.tool(inline=True)
    def own(n: int) -> int:
        return n

    @server.resource("own://it", inline=True)
    def it() -> str:
        return "own"

    @server.prompt(inline=True)
    def ours() -> str:
        return "own"

    server.forward(forwarder)
    return server


def params_of(revision: str, **params: Any) -> dict[str, Any]:
    if revision == NEW:
        params["_meta"] = {
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}
        }
    return params


FORWARDED = {
    "tools/call": {"name": "theirs", "arguments": {"x": 1}, "task": {}, "extra": 1},
    "resources/read": {"uri": "their://it", "extra": 1},
    "prompts/get": {"name": "theirs", "arguments": {"x": 7}, "extra": 1},
    "completion/complete": {"ref": {"type": "x", "uri": "their://{a,b}"}, "argument": 1},
}
TASK_METHODS = ["tasks/get", "tasks/update", "tasks/cancel"]


@pytest.mark.rule("FWD-01", "FWD-12")
@both_modes
@pytest.mark.parametrize("method", FORWARDED)
async def test_unknown_names_go_to_the_forwarder_as_they_came(method: str, revision: str) -> None:
    forwarder = ScriptedForwarder(lambda request, context: {"x-mark": 10**30, "_meta": {"k": 1}})
    params = params_of(revision, **FORWARDED[method])
    async with TestClient(server_of(forwarder), revision=revision) as client:
        result = await client.request(method, params)
    [request] = forwarder.requests
    assert (request.method, result["x-mark"]) == (method, 10**30)
    assert {name: request.params[name] for name in FORWARDED[method]} == FORWARDED[method]
    assert request.name in ("theirs", "their://it", "their://{a,b}")


@pytest.mark.rule("FWD-01")
@pytest.mark.parametrize("method", TASK_METHODS)
async def test_unknown_tasks_go_to_the_forwarder(method: str) -> None:
    forwarder = ScriptedForwarder(lambda request, context: {"status": "working"})
    server, gate = server_of(forwarder), asyncio.Event()
    server.tool(gate.wait, name="long", task="required")

    async with TestClient(server, revision=NEW) as client:
        result = await client.request(method, params_of(NEW, taskId="t"))
        assert result["status"] == "working"
        with pytest.raises(ProtocolError) as error:  # the extension is not declared
            await client.request(method, {"taskId": "t"})
        assert error.value.code == -32021
        with pytest.raises(ProtocolError):
            await client.request(method, params_of(NEW, taskId=7))
        own = await client.request("tools/call", params_of(NEW, name="long"))
        await client.request(method, params_of(NEW, **own, inputResponses={}))
        gate.set()
    [request] = forwarder.requests
    assert (request.params["taskId"], request.name) == ("t", "")


@pytest.mark.rule("FWD-01")
@pytest.mark.parametrize(
    ("method", "params", "words"),
    [
        ("prompts/get", {"name": 7}, "name must be a string"),
        ("completion/complete", {"ref": "theirs"}, "ref must be an object with a name"),
        ("completion/complete", {"ref": {"uri": 7}}, "ref must be an object with a name"),
    ],
)
async def test_what_names_nothing_is_refused_by_the_server(
    method: str, params: dict[str, Any], words: str
) -> None:
    forwarder = ScriptedForwarder()
    async with TestClient(server_of(forwarder)) as client:
        with pytest.raises(ProtocolError, match=words) as error:
            await client.request(method, params)
    assert (error.value.code, forwarder.requests) == (-32602, [])


@pytest.mark.rule("FWD-01", "FWD-02", "COMP-07")
async def test_what_the_server_has_answers_first() -> None:
    forwarder = ScriptedForwarder()
    server = server_of(forwarder)

    @server.resource("own://{name}", inline=True)
    def named(name: str) -> str:
        return name

    async with TestClient(server) as client:
        ref = {"type": "ref/resource", "uri": "own://{name}"}
        params = {"ref": ref, "argument": {"name": "name", "value": ""}}
        for values in ([], ["own"]):  # the capability is the forwarder's first
            found = await client.request("completion/complete", params)
            assert found["completion"]["values"] == values
            server.register_completion("own://{name}", "name", lambda arguments, context: ["own"])
        assert await client.call("own", n=1) == 1
        assert "status" in await client.call("health")
        assert await client.read_resource("own://it") == "own"
        assert (await client.get_prompt("ours"))[0]["content"]["text"] == "own"
        with pytest.raises(ToolError, match="argument"):
            await client.call("own", n="x")
    assert forwarder.requests == []


@pytest.mark.rule("FWD-02")
@pytest.mark.parametrize("revision", ["2024-11-05", OLD, NEW])
async def test_capabilities_are_those_of_both(revision: str) -> None:
    server = Server("front")
    server.forward(ScriptedForwarder(capabilities={**CAPABILITIES, "logging": True}))
    async with TestClient(server, revision=revision, handshake=False) as client:
        if revision == NEW:
            found = (await client.request("server/discover"))["capabilities"]
        else:
            params = {"protocolVersion": revision, "capabilities": {}}
            found = (await client.request("initialize", params))["capabilities"]
    expected: dict[str, Any] = {
        "logging": {},
        "tools": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "prompts": {"listChanged": True},
    }
    if revision != "2024-11-05":
        expected["completions"] = {}
    if revision == NEW:
        expected["extensions"] = {TASKS: {}}
    assert found == expected


@pytest.mark.rule("FWD-28")
@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [("a", "b", "a\n\nb"), ("a", None, "a"), (None, "b", "b"), (None, "", None)],
)
async def test_instructions_are_those_of_both(own: Any, others: Any, expected: Any) -> None:
    server = Server("front", instructions=own)
    server.forward(ScriptedForwarder(instructions=others))
    async with TestClient(server, revision=NEW) as client:
        assert (await client.request("server/discover")).get("instructions") == expected
    async with TestClient(server, handshake=False) as client:
        params = {"protocolVersion": OLD, "capabilities": {}}
        assert (await client.request("initialize", params)).get("instructions") == expected


@pytest.mark.rule("FWD-02")
async def test_methods_without_their_capability_stay_with_the_server() -> None:
    server = Server("front")
    forwarder = ScriptedForwarder(capabilities={})
    server.forward(forwarder)
    async with TestClient(server, revision=NEW) as client:
        for method in [*FORWARDED, *TASK_METHODS, "skills/list", "skills/get"]:
            if method != "tools/call":
                with pytest.raises(ProtocolError) as error:
                    await client.request(method, params_of(NEW, **FORWARDED.get(method, {})))
                assert error.value.code == -32601
        await client.request("tools/call", {"name": "theirs"})
    assert [each.method for each in forwarder.requests] == ["tools/call"]


# -- lists ---------------------------------------------------------------------------------------


@pytest.mark.rule("FWD-06", "FWD-14")
@both_modes
async def test_lists_have_entries_of_both(revision: str) -> None:
    forwarder = ScriptedForwarder(
        lists={
            "tools": ({"name": "theirs", "x-y": 1}, {"name": "own", "x-y": 1}),
            "resources": ({"uri": "their://it", "name": "it"},),
            "resourceTemplates": ({"uriTemplate": "their://{a,b}", "name": "t"},),
            "prompts": ({"name": "theirs"},),
        }
    )
    server = server_of(forwarder, server={"cache_scope": "public", "page_size": 1})
    async with TestClient(server, revision=revision) as client:
        tools = await client.list_tools()
        assert [tool["name"] for tool in tools] == ["health", "own", "theirs"]
        assert "x-y" not in tools[1]
        assert tools[2] == {"name": "theirs", "x-y": 1}
        assert [each["uri"] for each in await client.list_resources()] == ["own://it", "their://it"]
        templates = await client.list_resource_templates()
        assert templates == [{"uriTemplate": "their://{a,b}", "name": "t"}]
        assert [each["name"] for each in await client.list_prompts()] == ["ours", "theirs"]
        result = await client.request("tools/list")
        assert result.get("cacheScope") == ("private" if revision == NEW else None)
        with pytest.raises(ProtocolError) as error:
            await client.request("tools/list", {"cursor": "nonsense"})
        assert error.value.data["reason"] == "invalid_cursor"


@pytest.mark.rule("FWD-14")
async def test_a_plain_list_takes_no_slot_and_a_coroutine_takes_one() -> None:
    used: list[int] = []

    class Plain(ScriptedForwarder):
        def list_entries(self, kind: str, context: Any) -> Any:
            used.append(server.runtime.resources.get_telemetry().concurrent_executions)
            return ()

    class Async(ScriptedForwarder):
        async def list_entries(self, kind: str, context: Any) -> Any:
            used.append(server.runtime.resources.get_telemetry().concurrent_executions)
            return ()

    for forwarder in (Plain(), Async()):
        server = server_of(forwarder)
        async with TestClient(server) as client:
            assert len(await client.list_tools()) == 2
    assert used == [0, 1]


@pytest.mark.rule("FWD-29")
async def test_large_definitions_do_not_hide_others() -> None:
    forwarder = ScriptedForwarder(lists={"tools": ({"name": "a", "description": "x" * 9999},)})
    async with TestClient(server_of(forwarder, tools={"max_response_bytes": 4096})) as client:
        assert [each["name"] for each in await client.list_tools()] == ["a", "health", "own"]


@pytest.mark.rule("FWD-17")
@pytest.mark.parametrize("wrong", [7, "text", {"a": 1}, None])
async def test_a_list_that_is_none_is_an_internal_error(wrong: Any) -> None:
    async with TestClient(server_of(ScriptedForwarder(lists={"tools": wrong}))) as client:
        with pytest.raises(ProtocolError) as error:
            await client.list_tools()
        assert (error.value.code, error.value.data["code"]) == (-32603, "INTERNAL")


# -- results and errors --------------------------------------------------------------------------


@pytest.mark.rule("FWD-16")
async def test_results_get_the_members_of_the_stateless_mode() -> None:
    answers: list[dict[str, Any]] = [
        {"contents": []},
        {
            "contents": [],
            "resultType": "complete",
            "ttlMs": 7,
            "cacheScope": "public",
            "_meta": {"k": 1, SERVER_INFO: {"name": "behind"}},
        },
    ]
    forwarder = ScriptedForwarder(lambda request, context: dict(answers[int(request.name[-1])]))
    async with TestClient(server_of(forwarder), revision=NEW) as client:
        first = await client.request("resources/read", {"uri": "x:0"})
        assert first.pop("_meta")[SERVER_INFO]["name"] == "front"
        expected = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "contents": []}
        assert first == expected
        assert await client.request("resources/read", {"uri": "x:1"}) == answers[1]
    async with TestClient(server_of(forwarder)) as client:
        assert await client.request("resources/read", {"uri": "x:0"}) == {"contents": []}
        second = await client.request("resources/read", {"uri": "x:1"})
        assert second == {"contents": [], "_meta": {"k": 1}}


@pytest.mark.rule("FWD-07")
@pytest.mark.parametrize("kind", ["input_required", "task", "novel"])
async def test_other_result_types_go_to_clients_that_take_them(kind: str) -> None:
    sent = {"resultType": kind, "requestState": "raw", "inputRequests": {"a": {}}}
    forwarder = ScriptedForwarder(lambda request, context: sent)
    async with TestClient(server_of(forwarder), revision=NEW, clock=ManualClock()) as client:
        result = await client.request("tools/call", params_of(NEW, name="theirs"))
        assert {name: result[name] for name in sent} == sent
        assert client.logs is not None
        assert client.logs[-1]["resultType"] == kind
        if kind == "task":
            with pytest.raises(ToolError) as error:
                await client.call("theirs")
            assert error.value.details == {"reason": "result_type", "resultType": kind}
    async with TestClient(server_of(forwarder)) as client:
        with pytest.raises(ToolError) as error:
            await client.call("theirs")
        assert error.value.details == {"reason": "result_type", "resultType": kind}


@pytest.mark.rule("FWD-08")
@both_modes
@pytest.mark.parametrize("method", FORWARDED)
@pytest.mark.parametrize("data", [None, {"x": [1]}, "text", 0])
async def test_errors_go_out_as_they_came(method: str, data: Any, revision: str) -> None:
    def refuse(request: Any, context: Any) -> Any:
        raise ForwardedError(-32777, "as it came", data)

    server = server_of(ScriptedForwarder(refuse))
    async with TestClient(server, revision=revision, clock=ManualClock()) as client:
        with pytest.raises(ProtocolError) as error:
            await client.request(method, FORWARDED[method])
        found = error.value
        assert (found.code, found.message, found.data) == (-32777, "as it came", data)
        assert client.logs is not None
        fields = client.logs[-1]
        assert (fields["outcome"], fields["jsonRpcCode"]) == ("tool_error", -32777)


@pytest.mark.rule("FWD-17")
async def test_tool_errors_are_those_of_any_handler() -> None:
    def refuse(request: Any, context: Any) -> Any:
        raise ToolError("RESOURCE_EXHAUSTED", "full", {"server": "behind"})

    def fail(request: Any, context: Any) -> Any:
        raise ValueError("secret")

    async with TestClient(server_of(ScriptedForwarder(refuse))) as client:
        with pytest.raises(ToolError) as error:
            await client.call("theirs")
        assert (error.value.code, error.value.details) == (
            "RESOURCE_EXHAUSTED",
            {"server": "behind"},
        )
        with pytest.raises(ProtocolError) as refusal:
            await client.request("prompts/get", {"name": "theirs"})
        assert refusal.value.code == -32603
        assert refusal.value.data["details"] == {"server": "behind"}
    async with TestClient(server_of(ScriptedForwarder(fail))) as client:
        with pytest.raises(ToolError, match=r"^The tool failed\.$"):
            await client.call("theirs")
        with pytest.raises(ProtocolError, match="The handler failed"):
            await client.request("prompts/get", {"name": "theirs"})


@pytest.mark.rule("FWD-18")
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "result_not_an_object"),
        ([], "result_not_an_object"),
        ({"x": object()}, "result_not_serializable"),
        ({"x": "y" * 5000}, "result_too_large"),
        (ForwardedError(1, "x", object()), "error_not_serializable"),
        (ForwardedError(1, "x", "y" * 5000), "error_too_large"),
    ],
)
async def test_unusable_answers_are_refused(value: Any, reason: str) -> None:
    def answer(request: Any, context: Any) -> Any:
        if isinstance(value, ForwardedError):
            raise value
        return value

    server = server_of(ScriptedForwarder(answer), tools={"max_response_bytes": 4096})
    async with TestClient(server) as client:
        with pytest.raises(ToolError) as error:
            await client.call("theirs")
        assert (error.value.code, (error.value.details or {})["reason"]) == ("INTERNAL", reason)


# -- a forwarded request is a call ---------------------------------------------------------------


@pytest.mark.rule("FWD-03", "FWD-12")
async def test_forwarded_calls_have_slots_sizes_and_records() -> None:
    server = server_of(
        ScriptedForwarder(
            lambda request, context: {"content": [], "isError": True},
            targets={"theirs": ForwardTarget("behind")},
        ),
        tools={"max_payload_bytes": 64},
        resources={"max_concurrent_executions": 1},
    )
    async with TestClient(server, clock=ManualClock()) as client:
        await client.request("tools/call", {"name": "theirs", "arguments": {"x": 1}})
        assert client.logs is not None
        fields = client.logs[-1]
        assert fields["toolName"] == "theirs"
        assert (fields["outcome"], fields["server"]) == ("tool_error", "behind")
        assert fields["payloadBytes"] == 7
        with pytest.raises(ToolError) as error:
            await client.call("theirs", x="y" * 99)
        assert (error.value.details or {})["reason"] == "payload_too_large"
        assert client.logs[-1]["toolName"] == "theirs"
        slot = server.runtime.resources.take_slot(None)
        for method in ("tools/call", "prompts/get"):
            with pytest.raises((ToolError, ProtocolError), match="slot"):
                await (client.call("theirs") if method == "tools/call" else client.get_prompt("t"))
        slot.release()
        await client.call("theirs")
        assert server.runtime.resources.get_telemetry().concurrent_executions == 0


@pytest.mark.rule("FWD-03")
@both_modes
async def test_a_deadline_reaches_the_forwarder(revision: str) -> None:
    reasons: list[str | None] = []

    async def hang(context: Any) -> None:
        try:
            await context.abort_signal.wait()
        finally:
            reasons.append(context.abort_signal.reason)
        context.abort_signal.raise_if_aborted()

    forwarder = ScriptedForwarder(
        lambda request, context: hang(context), targets={"theirs": ForwardTarget("behind", 20)}
    )
    async with TestClient(server_of(forwarder), revision=revision) as client:
        with pytest.raises(ToolError) as error:
            await client.call("theirs")
        assert (error.value.code, error.value.details) == ("TIMEOUT", {"timeoutMs": 20})
        with pytest.raises(ProtocolError) as refusal:
            await client.get_prompt("theirs")
        assert refusal.value.data["code"] == "TIMEOUT"
    assert reasons == ["deadline", "deadline"]


@pytest.mark.rule("FWD-03")
async def test_an_error_that_comes_too_late_is_no_failure() -> None:
    go = asyncio.Event()

    async def refuse(context: Any) -> Any:
        while not go.is_set():
            with suppress(asyncio.CancelledError):
                await go.wait()
        raise ForwardedError(-32777, "late")

    forwarder = ScriptedForwarder(
        lambda request, context: refuse(context), targets={"theirs": ForwardTarget("behind", 1)}
    )
    async with TestClient(server_of(forwarder), clock=ManualClock()) as client:
        with pytest.raises(ToolError):
            await client.call("theirs")
        go.set()
        await client.request("ping")
        await until(lambda: not client.connection.engine.running, "the call ends")
        assert client.logs is not None
        assert [line["level"] for line in client.logs if "toolName" in line] == ["warn"]


@pytest.mark.rule("FWD-30")
@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ({"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}, ["A"]),
        ({"properties": {"a": {"type": "array", "x-mcp-header": "A"}}}, []),
        ({"properties": {"a": {"type": [], "x-mcp-header": 7}}}, []),
        (None, []),
    ],
)
def test_headers_of_a_tool_whose_annotations_break_the_rules_are_none(
    schema: Any, names: list[str]
) -> None:
    target = ForwardTarget("behind", input_schema=schema)
    server = server_of(ScriptedForwarder(targets={"theirs": target}))
    [header_parameters] = server.runtime.dispatcher.header_parameters
    for _ in range(2):
        assert [each.name for each in header_parameters("theirs")] == names


def test_a_server_has_one_forwarder_and_takes_it_before_its_start() -> None:
    server = server_of(ScriptedForwarder())
    with pytest.raises(UsageError, match="one forwarder"):
        server.forward(ScriptedForwarder())
    assert server.runtime.needs_event_loop()
    started = Server("started")
    assert not started.runtime.needs_event_loop()
    with pytest.raises(UsageError, match="before the server is started"):
        started.forward(ScriptedForwarder())


# -- questions to the client ---------------------------------------------------------------------


@pytest.mark.rule("FWD-09", "FWD-10")
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
async def test_rounds_pass_through_with_a_sealed_state(method: str) -> None:
    seen: list[Any] = []

    def answer(request: Any, context: Any) -> Any:
        if "requestState" not in request.params:
            state = server.seal_state({"round": 1, "raw": "of the server behind"}, context)
            asked = {"a": {"method": "roots/list", "x-y": 1}}
            return {"resultType": "input_required", "inputRequests": asked, "requestState": state}
        seen.append(server.open_state(request.params["requestState"], context))
        return {"content": [], "x-seen": request.params["inputResponses"]}

    server = server_of(ScriptedForwarder(answer))
    params = FORWARDED[method]
    async with TestClient(server, revision=NEW) as client:
        first = await client.request(method, params)
        assert first["inputRequests"] == {"a": {"method": "roots/list", "x-y": 1}}
        again = {"requestState": first["requestState"], "inputResponses": {"a": {"x": [1]}}}
        assert (await client.request(method, {**params, **again}))["x-seen"] == {"a": {"x": [1]}}
    assert seen == [{"round": 1, "raw": "of the server behind"}]


@pytest.mark.rule("FWD-20")
async def test_a_state_is_good_for_its_own_request_alone() -> None:
    def answer(request: Any, context: Any) -> Any:
        state = request.params.get("requestState")
        if state is None:
            state = server.seal_state("x" * (1 << 20 if request.name == "big" else 1), context)
            return {"resultType": "input_required", "requestState": state}
        return {"value": server.open_state(state, context)}

    clock = ManualClock()
    server = Server("front", options=ServerOptions(clock=clock))
    server.forward(ScriptedForwarder(answer))
    async with TestClient(server, revision=NEW) as client:

        async def reason(name: str, state: Any, **arguments: Any) -> str:
            params = {"name": name, "arguments": arguments, "requestState": state}
            with pytest.raises(ProtocolError) as error:
                await client.request("tools/call", params)
            assert error.value.code == -32602
            found: str = error.value.data["reason"]
            return found

        state = (await client.request("tools/call", {"name": "a"}))["requestState"]
        good = {"name": "a", "requestState": state}
        assert (await client.request("tools/call", good))["value"] == "x"
        assert await reason("b", state) == "state_foreign"
        assert await reason("a", state, x=1) == "state_foreign"
        assert await reason("a", "A" + state) == "state_tampered"
        assert await reason("a", 7) == "state_tampered"
        clock.advance(server.runtime.config.server.input_ttl_ms / 1000 + 1)
        assert await reason("a", state) == "state_expired"
        with pytest.raises(ToolError) as error:
            await client.call("big")
        assert (error.value.details or {})["reason"] == "input_state_too_large"
    with pytest.raises(UsageError, match="made by hand"):
        server.seal_state(1, ToolContext("r", "c", AbortSignal(), server.runtime.logger))


@pytest.mark.rule("FWD-09", "FWD-19")
async def test_a_forwarder_asks_by_its_context_in_the_handshake_mode_alone() -> None:
    async def ask(context: Any) -> dict[str, Any]:
        return {"content": [], "x-roots": [each.uri for each in await context.roots()]}

    server = server_of(ScriptedForwarder(lambda request, context: ask(context)))

    def answers(method: str, params: Any) -> Any:
        return {"roots": [{"uri": "file:///x"}]}

    async with TestClient(server, answers=answers) as client:
        result = await client.request("tools/call", {"name": "theirs"})
        assert result["x-roots"] == ["file:///x"]
    async with TestClient(server, revision=NEW, answers=answers) as client:
        with pytest.raises(ToolError) as error:
            await client.call("theirs")
        assert error.value.code == "INTERNAL"


# -- what operators see --------------------------------------------------------------------------


def known(count: int) -> dict[str, ForwardTarget]:
    return {f"t{n}": ForwardTarget("behind") for n in range(count)}


async def call_all(client: TestClient) -> None:
    for name in ("t0", "t1", "nobody"):
        await client.request("tools/call", {"name": name})
    await client.call("own", n=1)


@pytest.mark.rule("FWD-21")
async def test_metrics_have_a_label_for_the_server_of_a_call() -> None:
    forwarder = ScriptedForwarder(lambda request, context: {"content": []}, targets=known(2))
    server = server_of(forwarder, telemetry={"metrics": True})
    ended: list[CompletedCall] = []
    server.call_observer(ended.append)
    async with TestClient(server) as client:
        await call_all(client)
    metrics = server.runtime.metrics
    assert metrics is not None
    text = metrics.render()[1].decode()
    start = 'foundation_rt_calls_total{method="tools/call",name='
    for name, behind in (("t0", "behind"), ("t1", "behind"), ("other", ""), ("own", "")):
        assert f'{start}"{name}",outcome="success",server="{behind}"}} 1.0' in text
    assert [(call.label, call.server) for call in ended] == [
        ("t0", "behind"),
        ("t1", "behind"),
        ("other", None),
        ("own", None),
    ]


@pytest.mark.rule("FWD-11")
async def test_audit_records_name_the_server_of_a_call() -> None:
    forwarder = ScriptedForwarder(lambda request, context: {"content": []}, targets=known(2))
    server = server_of(forwarder, audit={"enabled": True})
    async with TestClient(server, clock=ManualClock()) as client:
        await call_all(client)
        assert client.logs is not None
        records = [line for line in client.logs if "eventType" in line and "toolName" in line]
    assert [(each["eventType"][16:], each["toolName"], each.get("server")) for each in records] == [
        (stage, name, behind)
        for name, behind in (("t0", "behind"), ("t1", "behind"), ("nobody", None), ("own", None))
        for stage in ("START", "COMPLETED")
    ]


@pytest.mark.rule("FWD-11")
async def test_spans_name_the_server_and_the_error_of_a_call() -> None:
    def answer(request: Any, context: Any) -> Any:
        if request.method == "tools/call":
            return {"content": [], "isError": request.name == "t1"}
        raise ForwardedError(-32777, "as it came")

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    server = server_of(ScriptedForwarder(answer, targets=known(2)))
    server.middleware(Tracing(provider))
    async with TestClient(server) as client:
        await call_all(client)
        with pytest.raises(ProtocolError):
            await client.get_prompt("t0")
    found = [
        (each.name, each.attributes.get("foundation_rt.server"), each.attributes.get("error.type"))
        for each in exporter.get_finished_spans()
        if each.attributes is not None
    ]
    provider.shutdown()
    assert found == [
        ("tools/call t0", "behind", None),
        ("tools/call t1", "behind", "tool_error"),
        ("tools/call nobody", None, None),
        ("tools/call own", None, None),
        ("prompts/get t0", "behind", "-32777"),
    ]


@pytest.mark.rule("FWD-11")
@pytest.mark.parametrize(
    ("method", "params", "behind"),
    [
        ("tools/call", {"name": "t0"}, "behind"),
        ("tools/call", {"name": "own"}, None),
        ("tools/call", None, None),
        ("prompts/get", {"name": "t0"}, "behind"),
        ("prompts/get", {"name": "ours"}, None),
        ("prompts/get", {"name": 7}, None),
        ("skills/list", {}, None),
    ],
)
async def test_record_of_a_call_too_many_names_the_server_behind_it(
    method: str, params: dict[str, Any] | None, behind: str | None
) -> None:
    capabilities = {**CAPABILITIES, "extensions": {"io.modelcontextprotocol/skills": {}}}
    forwarder = ScriptedForwarder(targets=known(1), capabilities=capabilities)
    server = server_of(forwarder, rate_limit={"per_key": 1})
    async with TestClient(server, clock=ManualClock()) as client:
        await client.request("tools/call", {"name": "t0"})
        with suppress(ProtocolError):
            await client.request(method, params)
        assert client.logs is not None
        assert client.logs[-1]["errorCode"] == "RESOURCE_EXHAUSTED"
        assert client.logs[-1].get("server") == behind


@pytest.mark.rule("FWD-22", "FWD-11")
async def test_rate_limits_count_forwarded_tools_by_name() -> None:
    server = server_of(
        ScriptedForwarder(lambda request, context: {"content": []}, targets=known(2)),
        rate_limit={"per_tool": 1},
    )
    async with TestClient(server, clock=ManualClock()) as client:
        for name in ("t0", "t1", "unknown"):
            assert "x" not in await client.request("tools/call", {"name": name})
        for name in ("t0", "t1", "other"):
            with pytest.raises(ToolError) as error:
                await client.call(name)
            assert (error.value.details or {})["reason"] == "rate_limit"
        assert client.logs is not None
        refused = [line for line in client.logs if line.get("errorCode") == "RESOURCE_EXHAUSTED"]
        assert [line.get("server") for line in refused] == ["behind", "behind", None]
