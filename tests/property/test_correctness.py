"""The correctness properties of the runtime, by number, through `server.connect`.

Each holds for whatever a client sends; ids are counted, and time stands still or is moved by the
loop that waits for it, so that a failure can be replayed.
"""

from __future__ import annotations

import asyncio
import builtins
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import fastjsonschema
import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation_rt import ToolContext, ToolDefinition
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.settings import (
    ResourcesSection,
    ServerConfig,
    ServerSection,
    ToolsSection,
)
from foundation_rt.base.jsonschema import compilation
from foundation_rt.kernel.registry import tools as registered_tools
from foundation_rt.protocol.revisions import HANDSHAKE_REVISIONS
from tests.lab.clock.virtual_loop import run_virtual
from tests.lab.servers.fixture import COMPLETED, HANDSHAKE, ServerFixture, ServerPeer

CONNECTION_ID = "00000000-0000-4000-a000-000000000001"

at_least_100 = settings(max_examples=100)

request_ids = st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text(max_size=8), json_values, max_size=4)
printable = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1)
methods = st.sampled_from(["ping", "tools/list", "tools/call", "health", ""]) | st.text(max_size=20)


def rig_with_echo(config: ServerConfig | None = None) -> tuple[ServerFixture, list[dict[str, Any]]]:
    """Make a rig with a tool that takes anything, and the list of arguments of its handler."""
    rig = ServerFixture(config)
    seen: list[dict[str, Any]] = []

    def echo(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        seen.append(arguments)
        return arguments

    rig.server.register(ToolDefinition("echo", "", {"type": "object"}), echo, inline=True)
    return rig, seen


# -- 1: initialization response completeness -------------------------------------------------------


@pytest.mark.rule("LIFE-02", "LIFE-04")
@at_least_100
@given(
    name=printable.filter(lambda text: len(text) <= 256),
    version=printable.filter(lambda text: len(text) <= 256),
    asked=st.sampled_from(sorted(HANDSHAKE_REVISIONS)) | st.text(max_size=20),
    extra=json_objects,
    request_id=request_ids,
)
def test_property_1_initialize_tells_everything(
    name: str, version: str, asked: str, extra: dict[str, Any], request_id: int | str
) -> None:
    rig = ServerFixture(ServerConfig(server=ServerSection(name=name, version=version)))
    peer = rig.connect(handshake=False)
    peer.ask("initialize", {**extra, **HANDSHAKE, "protocolVersion": asked}, id=request_id)
    [answer] = peer.received
    assert answer == {
        "jsonrpc": "2.0",
        "id": request_id,
        "result": {
            "protocolVersion": asked if asked in HANDSHAKE_REVISIONS else "2025-11-25",
            "capabilities": {"logging": {}, "tools": {"listChanged": True}},
            "serverInfo": {"name": name, "version": version},
        },
    }


# -- 2: strict initialization gate -----------------------------------------------------------------


@pytest.mark.rule("LIFE-03", "CALL-01", "CALL-14", "RPC-09")
@at_least_100
@given(
    halfway=st.booleans(),
    requests=st.lists(st.tuples(request_ids, methods, json_values), min_size=1, max_size=5),
)
def test_property_2_nothing_but_the_handshake_passes_before_running(
    halfway: bool, requests: list[tuple[int | str, str, Any]]
) -> None:
    rig, seen = rig_with_echo()
    peer = rig.connect(handshake=False)
    if halfway:
        peer.ask("initialize", HANDSHAKE)
        peer.take()
    for request_id, method, params in requests:
        if method in ("initialize", "initialized", "notifications/initialized"):
            continue
        peer.write({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        [answer] = peer.take()
        assert answer["id"] == request_id
        assert answer["error"]["code"] == -32002
        assert answer["error"]["message"] == "Not initialized"
        assert answer["error"]["data"]["code"] == "NOT_INITIALIZED"
        assert answer["error"]["data"]["correlationId"] == CONNECTION_ID
        peer.write({"jsonrpc": "2.0", "method": method, "params": params})
        assert peer.take() == []
    calls = [method for _, method, _ in requests if method == "tools/call"]
    assert [each["outcome"] for each in rig.records] == ["protocol_error"] * len(calls)
    assert seen == []
    if not halfway:
        peer.ask("initialize", HANDSHAKE)
    peer.notify("notifications/initialized")
    peer.take()
    assert peer.answer(peer.ask("ping"))["result"] == {}


# -- 3: correlation of protocol errors -------------------------------------------------------------

valid_correlation = st.text(min_size=1, max_size=128)
invalid_correlation = (
    st.none() | st.integers(0, 9) | st.just("") | st.text("x", min_size=129, max_size=140)
)


def _refused_messages(meta: dict[str, Any]) -> list[dict[str, Any]]:
    """Return requests that are refused with a protocol error, with a `_meta` each."""
    params = {"_meta": meta}
    return [
        {"id": 1, "method": "no/such/method", "params": params},
        {"id": 1, "method": "initialize", "params": params},
        {"id": 1, "method": "initialized", "params": params},
        {"id": 1, "method": "tools/list", "params": {"cursor": "x", **params}},
        {"id": 1, "method": "tools/call", "params": params},
        {"id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": 1, **params}},
        {"id": None, "method": "ping", "params": params},
        {"id": 1.5, "method": "ping", "params": params},
        {"id": 1, "method": 5, "params": params},
        {"id": 1, "params": params},
        {"id": 1, "method": "ping", "params": params, "jsonrpc": "1.0"},
    ]


@pytest.mark.rule("RPC-09", "CALL-03", "CALL-14")
@at_least_100
@given(
    which=st.integers(0, len(_refused_messages({})) - 1),
    given_id=st.tuples(st.just(True), valid_correlation)
    | st.tuples(st.just(False), invalid_correlation),
)
def test_property_3_protocol_errors_carry_the_requests_correlation_id_or_the_connections(
    which: int, given_id: tuple[bool, Any]
) -> None:
    rig, _ = rig_with_echo()
    peer = rig.connect()
    valid, correlation_id = given_id
    peer.write({"jsonrpc": "2.0"} | _refused_messages({"correlationId": correlation_id})[which])
    [answer] = peer.received
    expected = correlation_id if valid else CONNECTION_ID
    assert answer["error"]["data"]["correlationId"] == expected
    assert [(each["outcome"], each["correlationId"], "runId" in each) for each in rig.records] in (
        [],
        [("protocol_error", _as_logged(expected), False)],
    )


def _as_logged(text: str) -> str:
    """Escape the characters that a log escapes (LOG-11)."""
    return re.sub("[\x00-\x1f\x7f-\x9f\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)


@pytest.mark.rule("RPC-01", "RPC-03", "RPC-09")
@at_least_100
@given(line=st.binary(min_size=1, max_size=60).map(lambda data: data.replace(b"\n", b" ")))
def test_property_3_a_line_from_which_no_id_can_be_read_gets_the_connections(line: bytes) -> None:
    rig = ServerFixture()
    peer = rig.connect()
    peer.connection.feed(b"{" + line + b"\n" + b"[" + line + b"\n")
    for answer in peer.received:
        assert answer["id"] is None
        assert answer["error"]["code"] in (-32700, -32600)
        assert answer["error"]["data"]["correlationId"] == CONNECTION_ID
    assert len(peer.received) == 2


# -- 4: tools/list ordering ------------------------------------------------------------------------

tool_names = st.from_regex(r"[A-Za-z0-9_./-]{1,12}", fullmatch=True)


@pytest.mark.rule("REG-02", "REG-04", "REG-07")
@at_least_100
@given(
    names=st.lists(tool_names, unique=True, max_size=8).filter(lambda names: "health" not in names),
    removed=st.sets(st.integers(0, 7), max_size=4),
)
def test_property_4_tools_are_listed_in_lexicographic_order(
    names: list[str], removed: set[int]
) -> None:
    rig = ServerFixture()
    peer = rig.connect()
    listed = []
    for name in names:
        definition = ToolDefinition(name, f"does {name}", {"type": "object"})
        rig.server.register(definition, lambda arguments, context: None, inline=True)
        listed.append(peer.answer(peer.ask("tools/list"))["result"]["tools"])
    for count, tools in enumerate(listed, start=1):
        assert [tool["name"] for tool in tools] == sorted(["health", *names[:count]])
    for index in sorted(removed):
        assert rig.server.unregister(names[index]) if index < len(names) else True
    kept = [name for index, name in enumerate(names) if index not in removed]
    tools = peer.answer(peer.ask("tools/list"))["result"]["tools"]
    assert [tool["name"] for tool in tools] == sorted(["health", *kept])


# -- 5: validators are generated once --------------------------------------------------------------

SCHEMAS: list[dict[str, Any]] = [
    {"type": "object"},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"pattern": "^x+$"}}, "additionalProperties": False},
    {"type": "object", "properties": {"a": {"$ref": "#/definitions/b"}}, "definitions": {"b": {}}},
    {"type": "object", "properties": {"a": {"multipleOf": 0.1}}},
    {"type": "object", "properties": {"a": {"type": "string", "format": "date-time"}}},
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "dependentRequired": {"a": ["b"]},
    },
]


@contextmanager
def compilations() -> Iterator[list[str]]:
    """Note every function that compiles a schema, or generates code or a pattern from one."""
    noted: list[str] = []

    def noting(name: str, real: Any) -> Any:
        def noted_call(*args: Any, **kwargs: Any) -> Any:
            noted.append(name)
            return real(*args, **kwargs)

        return noted_call

    with ExitStack() as stack:
        for module, name in (
            (compilation, "compile_schema"),
            (registered_tools, "compile_schema"),
            (fastjsonschema, "compile"),
            (fastjsonschema, "compile_to_code"),
            (jsonschema_rs, "validator_for"),
            (jsonschema_rs, "Draft202012Validator"),
            (builtins, "exec"),
            (builtins, "compile"),
            (re, "compile"),
        ):
            stack.enter_context(
                mock.patch.object(module, name, noting(name, getattr(module, name)))
            )
        yield noted


def register_and_call(
    which: list[int], calls: list[dict[str, Any]]
) -> tuple[ServerFixture, ServerPeer, list[str], list[str]]:
    """Call tools with some of the schemas; return what compiled at registration, and in calls."""
    rig = ServerFixture()
    with compilations() as at_registration:
        for index in which:
            definition = ToolDefinition(f"tool{index}", "", SCHEMAS[index])
            rig.server.register(definition, lambda arguments, context: None, inline=True)
    peer = rig.connect()
    with compilations() as during_calls:
        for index in which:
            for arguments in ({}, *calls):
                peer.start(f"tool{index}", arguments)
    return rig, peer, at_registration, during_calls


@pytest.fixture(scope="module")
def everything_is_imported() -> None:
    """Modules that are imported when something is invalid for the first time are compiled then."""
    register_and_call(list(range(len(SCHEMAS))), [{}, {"a": 1}, {"a": "y"}, {"a": [], "b": {}}])


@pytest.mark.rule("REG-05", "REG-18")
@pytest.mark.usefixtures("everything_is_imported")
@at_least_100
@given(
    which=st.lists(st.integers(0, len(SCHEMAS) - 1), min_size=1, max_size=3, unique=True),
    calls=st.lists(
        st.fixed_dictionaries({}, optional={"a": json_values, "b": json_values}), max_size=6
    ),
)
def test_property_5_no_call_compiles_a_schema(
    which: list[int], calls: list[dict[str, Any]]
) -> None:
    rig, peer, at_registration, during_calls = register_and_call(which, calls)
    assert at_registration.count("compile_schema") == len(which)
    assert "exec" not in at_registration
    assert during_calls == []
    assert len(peer.received) == len(rig.records) == len(which) * (1 + len(calls))
    assert {each["outcome"] for each in rig.records} <= {"success", "tool_error"}


# -- 6: arguments are an object or the handler does not run ----------------------------------------


@pytest.mark.rule("CALL-02", "CALL-14")
@at_least_100
@given(
    arguments=json_values.filter(lambda value: not isinstance(value, dict)),
    tool=st.sampled_from(["echo", "health", "no such tool"]),
    request_id=request_ids,
)
def test_property_6_arguments_that_are_no_object_are_invalid_params(
    arguments: Any, tool: str, request_id: int | str
) -> None:
    rig, seen = rig_with_echo()
    peer = rig.connect()
    peer.ask("tools/call", {"name": tool, "arguments": arguments}, id=request_id)
    [answer] = peer.received
    assert answer["id"] == request_id
    assert answer["error"]["code"] == -32602
    assert seen == []
    [record] = rig.records
    assert record["outcome"] == "protocol_error"
    assert "runId" not in record


@pytest.mark.rule("CALL-02", "CALL-11")
@at_least_100
@given(arguments=json_objects)
def test_property_6_arguments_that_are_an_object_reach_the_handler_as_sent(
    arguments: dict[str, Any],
) -> None:
    rig, seen = rig_with_echo()
    peer = rig.connect()
    assert peer.outcome(peer.start("echo", arguments)) == arguments
    assert seen == [arguments]


# -- 7: concurrency limit --------------------------------------------------------------------------


@pytest.mark.rule("CALL-07", "RES-01", "CALL-09")
@at_least_100
@given(
    limit=st.integers(1, 4),
    steps=st.lists(st.sampled_from(["start", "start", "finish first", "finish last"]), max_size=25),
)
def test_property_7_never_more_than_the_limit_run_and_exactly_the_surplus_is_rejected(
    limit: int, steps: list[str]
) -> None:
    async def main(clock: ManualClock) -> None:
        rig = ServerFixture(
            ServerConfig(resources=ResourcesSection(max_concurrent_executions=limit)), clock
        )
        held: list[asyncio.Future[None]] = []
        running = most = 0

        async def hold(arguments: dict[str, Any], context: ToolContext) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            held.append(asyncio.get_running_loop().create_future())
            await held[-1]
            running -= 1

        rig.server.register(ToolDefinition("hold", "", {"type": "object"}), hold)
        peer = rig.connect()
        expected_rejections = 0
        for step in steps:
            if step == "start":
                expected_rejections += running == limit
                peer.start("hold")
            elif held:
                held.pop(0 if step == "finish first" else -1).set_result(None)
            await asyncio.sleep(0.001)
            assert running == rig.slots_in_use <= limit
        for future in held:
            future.set_result(None)
        await asyncio.sleep(0.001)
        rejected = [answer for answer in peer.received if answer["result"]["isError"]]
        assert len(rejected) == expected_rejections
        for answer in rejected:
            error = peer.outcome(answer["id"])
            assert error["code"] == "RESOURCE_EXHAUSTED"
            assert error["details"]["reason"] == "concurrency_limit"
        assert len(peer.received) == len(rig.records) == steps.count("start")
        assert most <= limit
        rig.assert_all_ended()

    run_virtual(main)


# -- 8: deadlines ----------------------------------------------------------------------------------


@pytest.mark.rule("TIME-01", "TIME-02", "TIME-04", "TIME-06", "CALL-15")
@at_least_100
@given(
    timeout_ms=st.integers(1, 10_000),
    own_deadline=st.booleans(),
    grace_ms=st.integers(1, 1000),
    goes_on_ms=st.integers(0, 2000),
    ending=st.sampled_from(["return", "raise", "stop"]),
)
def test_property_8_a_deadline_answers_and_aborts_and_the_slot_is_held_to_the_end(
    timeout_ms: int, own_deadline: bool, grace_ms: int, goes_on_ms: int, ending: str
) -> None:
    default_ms = 20_000 if own_deadline else timeout_ms

    async def main(clock: ManualClock) -> None:
        rig = ServerFixture(
            ServerConfig(
                tools=ToolsSection(default_timeout_ms=default_ms, cancel_grace_ms=grace_ms)
            ),
            clock,
        )
        fired_at: list[float] = []

        async def slow(arguments: dict[str, Any], context: ToolContext) -> str:
            signal = context.abort_signal
            signal.add_callback(lambda: fired_at.append(clock.monotonic()))
            assert await signal.wait() == "deadline"
            await asyncio.sleep(goes_on_ms / 1000)
            if ending == "stop":
                signal.raise_if_aborted()
            if ending == "raise":
                raise LookupError("of its own accord")
            return "too late"

        rig.server.register(
            ToolDefinition("slow", "", {"type": "object"}),
            slow,
            timeout_ms=timeout_ms if own_deadline else None,
        )
        peer = rig.connect()
        request_id = peer.start("slow")
        await asyncio.sleep(timeout_ms / 1000 - 0.0005)
        assert peer.received == []
        assert fired_at == []
        await asyncio.sleep(0.0007)
        error = peer.outcome(request_id)
        assert error["code"] == "TIMEOUT"
        assert error["details"] == {"timeoutMs": timeout_ms}
        assert fired_at == [pytest.approx(timeout_ms / 1000, abs=2e-6)]
        # Once more than the handler's own end, or the end of the grace, cannot be told apart.
        ends_after_ms = min(goes_on_ms, grace_ms)
        if ends_after_ms > 1:
            await asyncio.sleep((ends_after_ms - 1) / 1000)
            assert rig.slots_in_use == 1
            assert rig.records == []
        await asyncio.sleep(0.002)
        rig.assert_all_ended()
        [record] = rig.records
        if goes_on_ms != grace_ms:
            stopped = ending == "stop" or goes_on_ms > grace_ms
            assert record["outcome"] == ("timeout" if stopped else "late_completed")
            assert record["level"] == ("info" if stopped else "warn")
        assert record["errorCode"] == "TIMEOUT"
        assert record["durationMs"] == pytest.approx(timeout_ms + ends_after_ms, abs=0.1)
        assert len(peer.received) == 1
        # The id is free again, and so is the slot.
        peer.take()
        peer.start("health", id=request_id)
        assert peer.outcome(request_id)["resources"]["concurrentExecutions"] == 0

    run_virtual(main)


# -- 9: what is logged (the properties of redaction itself are in test_redaction.py) ---------------


@pytest.mark.rule("CALL-13", "LOG-01", "LOG-11")
@at_least_100
@given(arguments=json_objects, correlation_id=valid_correlation)
def test_property_9_records_hold_neither_arguments_nor_results_nor_control_characters(
    arguments: dict[str, Any], correlation_id: str
) -> None:
    rig, _ = rig_with_echo()
    peer = rig.connect()
    arguments = {"secret": "the-argument", **arguments}
    params = {"name": "echo", "arguments": arguments, "_meta": {"correlationId": correlation_id}}
    peer.ask("tools/call", params)
    assert peer.received[0]["result"]["isError"] is False
    [record] = rig.records
    assert record.keys() == {
        "timestamp",
        "level",
        "message",
        "connectionCorrelationId",
        "runId",
        "correlationId",
        "toolName",
        "durationMs",
        "outcome",
        "payloadBytes",
    }
    assert record["message"] == COMPLETED
    assert record["correlationId"] == _as_logged(correlation_id)
    assert "the-argument" not in str(rig.sink.lines)
