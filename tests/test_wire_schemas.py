"""Every line that a server sends or logs is one that spec/schemas allows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import jsonschema_rs
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation_rt import (
    Elicit,
    ElicitUrl,
    ErrorCode,
    ModelPreferences,
    Roots,
    SamplingMessage,
    ToolContext,
    UrlElicitationRequired,
)
from foundation_rt.protocol.jsonrpc import Request
from foundation_rt.protocol.revisions import REVISIONS
from tests.lab.checks import wire
from tests.lab.peers.answering_client import AnsweringClient
from tests.lab.peers.vectors import Performer, load, make_performer
from tests.lab.servers.core import INITIALIZE, INITIALIZED, notification, request
from tests.lab.servers.fixture import ServerFixture
from tests.lab.sizes import examples

VECTORS = load()
WIRE_SCHEMAS = sorted(wire.VALIDATORS.keys() - {"config", "mcp-json"})

UUID = "00000000-0000-4000-8000-000000000001"


LOG_LEVEL = {"io.modelcontextprotocol/logLevel": "debug"}
STATELESS = "2026-07-28"
CALLED = {"name": "some tool"}
FORM = {"type": "object", "properties": {"name": {"type": "string", "default": "x"}}}


def add_everything(rig: ServerFixture) -> None:
    """Tools that ask all there is to ask and tell all there is to tell, and a resource."""

    @rig.server.resource("note://1")
    def note() -> str:
        return ""

    @rig.server.tool
    async def form(ctx: ToolContext) -> None:
        await ctx.ask({"form": Elicit("Who?", FORM), "roots": Roots()})

    @rig.server.tool
    async def page(ctx: ToolContext) -> None:
        await ctx.elicit_url("Pay", "https://x.example/", elicitation_id="bill")

    @rig.server.tool
    async def text(ctx: ToolContext) -> None:
        several = SamplingMessage("user", ["Hi", "there"])
        await ctx.sample(
            [several],
            max_tokens=5,
            system_prompt="x",
            model_preferences=ModelPreferences(hints=["m"], cost_priority=1),
            include_context="thisServer",
            temperature=0.5,
            stop_sequences=["x"],
            metadata={"a": 1},
        )

    @rig.server.tool
    async def pages(ctx: ToolContext) -> None:
        raise UrlElicitationRequired(ElicitUrl("Connect", "https://x.example/", "c"))

    @rig.server.tool
    async def talk(ctx: ToolContext) -> None:
        ctx.report_progress(1, 2, "half")
        ctx.log("error", None, "logger")
        rig.server.elicitation_completed("c")


def used_by(performer: Performer) -> set[str]:
    """Check all that was sent and logged; return which schemas allowed it."""
    checker = wire.WireChecker()
    for asked, line in performer.exchanges:
        checker.check_line(asked, line)
    for record in performer.sink.lines:
        checker.check_record(record)
    return checker.used


# -- the schemas themselves


@pytest.mark.rule("ERR-01")
@pytest.mark.parametrize("name", WIRE_SCHEMAS)
def test_a_schema_is_one_of_its_dialect(name: str) -> None:
    schema = wire.schema(name)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"]
    jsonschema_rs.meta.validate(schema)


def objects_of(schema: Any) -> Iterable[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object" and "properties" in schema:
            yield schema
        for value in schema.values():
            yield from objects_of(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from objects_of(value)


@pytest.mark.parametrize("name", WIRE_SCHEMAS)
def test_a_schema_says_all_there_is(name: str) -> None:
    """What is not named is not sent; only log records and the schemas of tools are open."""
    open_objects = [
        each for each in objects_of(wire.schema(name)) if each.get("additionalProperties", True)
    ]
    assert len(open_objects) == (1 if name in ("log-record", "tools-list-result") else 0)


REFUSED: list[tuple[str, Any]] = [
    ("json-rpc-response", {"jsonrpc": "2.0", "id": None, "result": {}}),
    ("json-rpc-response", {"jsonrpc": "2.0", "id": 1.5, "result": {}}),
    ("json-rpc-response", {"jsonrpc": "2.0", "id": 1}),
    ("json-rpc-response", {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}}),
    (
        "json-rpc-response",
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32600, "data": {"reason": "invalid_id"}}},
    ),
    ("json-rpc-response", {"jsonrpc": "2.0", "id": None, "error": {"code": -32601}}),
    ("json-rpc-error", {"code": -32000, "message": "x", "data": {"correlationId": "c"}}),
    ("json-rpc-error", {"code": -32601, "message": "Method not found: x", "data": {}}),
    ("json-rpc-error", {"code": -32002, "message": "no", "data": {"correlationId": "c"}}),
    ("initialize-result", {"protocolVersion": "2023-01-01", "capabilities": {"tools": {}}}),
    ("list-changed", {"jsonrpc": "2.0", "id": 1, "method": "notifications/tools/list_changed"}),
    ("list-changed", {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}),
    ("resources-read-result", {"contents": [{"uri": "a:b", "text": "", "blob": ""}]}),
    ("resources-list-result", {"resources": [{"uri": "", "name": "a"}]}),
    ("resource-templates-list-result", {"resourceTemplates": [{"uri": "a:b", "name": "a"}]}),
    ("prompts-list-result", {"prompts": [{"name": "a", "arguments": [{"name": "b"}]}]}),
    ("prompts-get-result", {"messages": [{"role": "system", "content": {}}]}),
    ("completion-result", {"completion": {"values": ["a"] * 101, "hasMore": True}}),
    ("json-rpc-error", {"code": -32002, "message": "Resource not found", "data": {"uri": "a:b"}}),
    ("tools-call-result", {"content": []}),
    ("tools-call-result", {"content": [{"type": "video"}], "isError": False}),
    ("tools-call-result", {"content": [{"type": "image", "data": ""}], "isError": False}),
    ("tools-call-result", {"content": [{"type": "text", "text": "1"}]}),
    ("tools-list-result", {"tools": [{"name": "", "description": "", "inputSchema": {}}]}),
    ("structured-error", {"code": "NOPE", "message": "", "runId": UUID, "correlationId": "c"}),
    ("structured-error", {"code": "INTERNAL", "message": "", "runId": UUID}),
    ("health-report", {"status": "healthy"}),
    ("log-record", {"timestamp": "2024-01-01T00:00:00Z", "level": "info", "message": ""}),
    ("log-record", {"timestamp": "2024-01-01T00:00:00.000Z", "level": "fatal", "message": ""}),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_a_schema_refuses_what_is_never_sent(name: str, value: Any) -> None:
    assert wire.problems(name, value)


RECORD = {
    "timestamp": "2024-01-01T00:00:00.000Z",
    "level": "info",
    "message": "tool call completed",
    "connectionCorrelationId": UUID,
    "runId": UUID,
    "correlationId": "c",
    "toolName": "t",
    "durationMs": 1.5,
    "outcome": "success",
    "payloadBytes": 2,
}


@pytest.mark.rule("CALL-13", "CALL-14", "TIME-07")
@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({}, True),
        ({"outcome": "aborted"}, True),
        ({"outcome": "disconnected_completed"}, True),
        ({"outcome": "disconnected_completed", "errorCode": "INTERNAL"}, True),
        ({"outcome": "late_completed", "level": "warn"}, True),
        ({"outcome": "tool_error", "errorCode": "NOT_FOUND"}, True),
        ({"outcome": "timeout", "errorCode": "TIMEOUT"}, True),
        ({"level": "warn"}, False),
        ({"errorCode": "INTERNAL"}, False),
        ({"outcome": "aborted", "errorCode": "INTERNAL"}, False),
        ({"outcome": "late_completed"}, False),
        ({"outcome": "tool_error"}, True),
        ({"outcome": "timeout", "errorCode": "INTERNAL"}, False),
        ({"outcome": "protocol_error"}, False),
        ({"outcome": "late"}, False),
        ({"arguments": {}}, False),
        ({"method": "prompts/get", "name": "n"}, False),
        ({"message": "request completed"}, False),
        ({"result": 1}, False),
        ({"retryHint": "later"}, False),
        ({"runId": "x"}, False),
        ({"durationMs": -1}, False),
    ],
)
def test_a_completion_record_is_what_its_outcome_says(
    change: dict[str, Any], allowed: bool
) -> None:
    assert (wire.problems("completion-record", {**RECORD, **change}) == []) is allowed


# -- what is sent


@pytest.mark.rule("ERR-01", "ERR-02", "LIFE-02", "REG-02", "CALL-10", "CALL-13", "LOG-01")
def test_every_line_of_the_vectors_is_allowed_and_every_schema_is_used() -> None:
    used: set[str] = set()
    for vector in VECTORS:
        performer = make_performer(vector.config, "debug", vector.server)
        for step in vector.steps:
            performer.act(step)
        used |= used_by(performer)
    # The envelope is held to its decoder by tests/agents/ledger/test_encoder.py.
    elsewhere = {"health-report", "aacp-envelope", "server-request", "input-required-result"}
    assert used == set(WIRE_SCHEMAS) - elsewhere


@pytest.mark.rule(
    "ASK-01",
    "ASK-10",
    "ASK-17",
    "ASK-18",
    "ASK-41",
    "NOTE-01",
    "NOTE-04",
    "NOTE-05",
    "SUB-03",
    "SUB-07",
)
@pytest.mark.parametrize("revision", REVISIONS)
def test_what_a_client_is_asked_and_told_is_allowed(revision: str) -> None:
    checker = wire.WireChecker()

    async def scenario() -> None:
        rig = ServerFixture()
        add_everything(rig)
        client = AnsweringClient(rig.server, revision)
        if client.stateless:
            wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://1"]}
            client.request("subscriptions/listen", {"notifications": wanted})
        else:
            client.request("resources/subscribe", {"uri": "note://1"})
        for name in ("form", "page", "text", "pages", "talk"):
            params = {"name": name}
            client.request("tools/call", params, progressToken="p", **LOG_LEVEL)
            await client.settle()
        rig.server.unregister("talk")
        rig.server.resource_updated("note://1")
        await client.settle()
        client.connection.prepare_stop()
        client.connection.close()
        await client.settle()
        for message in client.unread():
            asked = Request(message.get("id"), client.methods.get(message.get("id"), ""), CALLED)
            checker.check_line(asked, orjson.dumps(message))

    asyncio.run(scenario())
    stateless = revision == STATELESS
    assert ("input-required-result" in checker.used) is stateless
    assert ("server-request" in checker.used) is not stateless
    assert "notification" in checker.used


@pytest.mark.rule("HEALTH-01", "RES-11")
def test_the_health_report_is_allowed() -> None:
    performer = make_performer()
    call = request("tools/call", {"name": "health"}, 1)
    performer.feed(b"\n".join([INITIALIZE, INITIALIZED, call, b""]))
    assert "health-report" in used_by(performer)


# -- storms


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
objects = st.dictionaries(st.text(max_size=6), values, max_size=3)
ids = st.sampled_from([0, 1, 2, 3, "1", "", -1, 2**64 - 1, 2.0**64, None, True, 1.5, [1]])
correlation_ids = st.sampled_from(["c", "", "x" * 128, "x" * 129, None]) | st.text(max_size=4)
metas = st.just({}) | st.fixed_dictionaries({"correlationId": correlation_ids}) | values

sleeps = st.fixed_dictionaries(
    {"ms": st.integers(1, 200)}, optional={"heed": st.booleans(), "fail": st.booleans()}
)
calls: st.SearchStrategy[tuple[Any, Any]] = st.one_of(
    st.tuples(st.just("echo"), st.fixed_dictionaries({"message": st.text()})),
    st.tuples(
        st.just("fail"),
        st.fixed_dictionaries(
            {"code": st.sampled_from(list(ErrorCode)), "message": st.text()},
            optional={"details": objects},
        ),
    ),
    st.tuples(st.sampled_from(["sleep", "nap"]), sleeps),
    st.tuples(st.sampled_from(["crash", "health", "unspeakable"]), st.just({})),
    st.tuples(st.just("mirror"), objects),
    st.tuples(st.sampled_from(["echo", "fail", "sleep", "repeat", "none", ""]), objects),
    st.tuples(values, values),
)


@st.composite
def call_lines(draw: st.DrawFn) -> bytes:
    name, arguments = draw(calls)
    params = {"name": name, "arguments": arguments}
    if draw(st.integers(0, 3)) == 3:
        params["_meta"] = draw(metas)
    return request("tools/call", params, draw(st.integers(0, 9)))


methods = st.sampled_from(
    ["initialize", "initialized", "ping", "tools/list", "tools/call", "no/such/method", "x" * 200]
)
lines = st.one_of(
    call_lines(),
    st.builds(request, methods, st.none() | objects | values, ids),
    st.builds(notification, methods, st.none() | objects),
    st.builds(
        lambda request_id: notification("notifications/cancelled", {"requestId": request_id}), ids
    ),
    st.builds(orjson.dumps, values),
    st.binary(max_size=12),
    st.just(b"x" * 2000),
)
happenings = st.one_of(call_lines(), call_lines(), lines, st.integers(0, 100))


@pytest.mark.rule(
    "ERR-01", "ERR-02", "ERR-06", "RPC-01", "RPC-02", "RPC-04", "RPC-09", "CALL-13", "CALL-15"
)
@settings(max_examples=examples(200))
@given(
    handshake=st.sampled_from([2, 2, 2, 1, 0]).map(lambda steps: [INITIALIZE, INITIALIZED][:steps]),
    storm=st.lists(happenings, min_size=5, max_size=30),
    slots=st.integers(1, 3),
    disconnects=st.booleans(),
)
def test_every_line_of_a_storm_is_allowed(
    handshake: list[bytes], storm: list[bytes | int], slots: int, disconnects: bool
) -> None:
    config = {
        "resources": {"max_concurrent_executions": slots},
        "tools": {"max_payload_bytes": 80, "max_response_bytes": 40},
        "transport": {"max_line_bytes": 1024},
    }
    performer = make_performer(config, "debug")
    for happening in [*handshake, *storm]:
        if isinstance(happening, int):
            performer.advance(happening)
        else:
            performer.feed(happening + b"\n")
    if disconnects:
        performer.close()
    performer.end()
    used_by(performer)
    assert performer.running == {}
    assert performer.runtime.resources.concurrent_executions == 0


# -- a storm of requests for what is no tool

uris = st.sampled_from(
    ["note://all", "note://both", "note://7", "note://77", "note://x", "file:///a/%62", "a:b", ""]
) | st.text("note:/.%2eFf{}", max_size=20)
texts = st.sampled_from(["", "1", "rust", "x", "deep"]) | st.text(max_size=5)
feature_params: st.SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries({"uri": uris}),
    st.fixed_dictionaries({}, optional={"cursor": texts | st.just(None)}),
    st.fixed_dictionaries(
        {"name": st.sampled_from(["review", "show", "crash", "other"])},
        optional={
            "arguments": st.dictionaries(
                st.sampled_from(["code", "language", "depth", "other"]), texts, max_size=3
            )
        },
    ),
    st.fixed_dictionaries(
        {
            "ref": st.sampled_from(
                [
                    {"type": "ref/prompt", "name": "review"},
                    {"type": "ref/resource", "uri": "note://{number}"},
                    {"type": "ref/resource", "uri": "note://7"},
                    {"type": "ref/tool"},
                ]
            ),
            "argument": st.fixed_dictionaries(
                {
                    "name": st.sampled_from(["code", "language", "depth", "number", "other"]),
                    "value": texts,
                }
            ),
        },
        optional={"context": st.just({"arguments": {"language": "x"}}) | values},
    ),
    objects,
    values,
)
FEATURE_METHODS = [
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "completion/complete",
]


@pytest.mark.rule("MRES-04", "PROMPT-06", "COMP-02", "FEAT-02", "FEAT-04")
@settings(max_examples=examples(200))
@given(
    storm=st.lists(st.tuples(st.sampled_from(FEATURE_METHODS), feature_params), min_size=1),
    page_size=st.integers(1, 3),
)
def test_every_request_for_a_feature_is_answered_as_the_schemas_allow(
    storm: list[tuple[str, Any]], page_size: int
) -> None:
    performer = make_performer({"server": {"page_size": page_size}}, "debug", "features")
    performer.feed(b"\n".join([INITIALIZE, INITIALIZED, b""]))
    for number, (method, params) in enumerate(storm):
        performer.feed(request(method, params, number) + b"\n")
    performer.end()
    used_by(performer)
    assert [orjson.loads(line)["id"] for line in performer.sent[1:]] == list(range(len(storm)))
    assert performer.running == {}
    assert performer.runtime.resources.concurrent_executions == 0
