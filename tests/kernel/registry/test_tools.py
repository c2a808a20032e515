"""The tool registry: its checks, its lists, and the cost of a call with many tools."""

from __future__ import annotations

import gc
import inspect
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

import orjson
import pytest

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.errors import ErrorCode, RegistrationError
from foundation_rt.kernel.invocation import Returned
from foundation_rt.kernel.registry.tool_definition import ToolDefinition
from foundation_rt.kernel.registry.tools import ExecutionMode, ToolRegistry, is_async_callable
from foundation_rt.protocol.content import Icon
from foundation_rt.protocol.jsonrpc import parse
from foundation_rt.protocol.revisions import REVISIONS, Revision
from foundation_rt.protocol.tool_annotations import ToolAnnotations
from tests.lab.clock.counting import CallCounter, generations
from tests.lab.servers.core import make_core, request

OLDEST, *_, NEWEST = REVISIONS.values()
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def handler(arguments: dict[str, Any], context: Any) -> None:
    """Do nothing; no test calls this handler."""


def definition(name: Any = "tool", **members: Any) -> ToolDefinition:
    return ToolDefinition(**{"name": name, "description": "", "input_schema": SCHEMA, **members})


def listed(registry: ToolRegistry) -> list[dict[str, Any]]:
    return shown(registry, NEWEST)


def shown(registry: ToolRegistry, revision: Revision) -> list[dict[str, Any]]:
    entries, cursor = registry.page(None, 1000, revision)
    assert cursor is None
    tools: list[dict[str, Any]] = orjson.loads(orjson.dumps(entries))
    return tools


# -- names


@pytest.mark.rule("REG-01")
@pytest.mark.parametrize(
    "name", ["a", "x" * 256, "admin/registerTool", "DATA_EXPORT-v2.1", "0", "/"]
)
def test_a_name_has_ascii_letters_digits_and_four_others(name: str) -> None:
    registry = ToolRegistry()
    registry.register(definition(name), handler)
    tool = registry.get(name)
    assert tool is not None
    assert tool.definition.name == name


@pytest.mark.rule("REG-01", "REG-03", "REG-10")
@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 257,
        " a",
        "a ",
        "\u00a0a",
        "a\nb",
        "a\x00",
        "\x7f",
        "a\u200bb",
        "\ud800",
        "a\u2028b",
        "two words",
        "größe",
        "\U0001f600",
        "p\u0430y",
        "pay\u200d",
        "\uff50ay",
        "pay\u0661",
        "pay\n",
    ],
)
def test_a_name_that_is_empty_long_or_has_other_characters_is_refused(name: str) -> None:
    registry = ToolRegistry()
    with pytest.raises(RegistrationError, match=r"/name must (be|have)") as refusal:
        registry.register(definition(name), handler)
    assert refusal.value.code is ErrorCode.INVALID_ARGUMENT
    assert registry.list() == ()


@pytest.mark.rule("REG-01")
def test_a_name_that_is_taken_is_refused_and_the_tool_stays_as_it_was() -> None:
    registry = ToolRegistry()
    first = registry.register(definition(), handler)
    with pytest.raises(RegistrationError, match=r"'tool' is already registered: .*unregister"):
        registry.register(definition(description="other"), handler)
    assert registry.get("tool") is first


# -- definitions that are not valid


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a name that is no string": ({"name": 5}, "/name must be a string"),
    "a description that is no string": ({"description": None}, "/description must be a string"),
    "a description that UTF-8 cannot say": ({"description": "\ud800"}, "/description"),
    "a version that is no string": ({"version": 1}, "/version must be a string"),
    "a version that UTF-8 cannot say": ({"version": "\udfff"}, "/version"),
    "a title that UTF-8 cannot say": ({"title": "\ud800"}, "/title"),
    "annotations that are none": ({"annotations": {}}, "/annotations must be ToolAnnotations"),
    "icons that are none": ({"icons": ["a:b"]}, "/icons must be a sequence of Icon"),
    "meta that is no object": ({"meta": [1]}, "/_meta must be an object"),
    "meta that is no JSON": ({"meta": {"a": object()}}, "/_meta must be JSON"),
    "an output schema that is no object": ({"output_schema": True}, "/outputSchema must be an"),
    "an output schema that does not compile": (
        {"output_schema": {"type": "strnig"}},
        "outputSchema: #/type must be one of",
    ),
    "a schema that is no object": ({"input_schema": [1]}, "/inputSchema must be an object"),
    "a schema that is no JSON": ({"input_schema": {"a": object()}}, "/inputSchema must be JSON"),
    "a schema with keys that are no strings": ({"input_schema": {1: 2}}, "/inputSchema must be"),
    "a schema without a type": ({"input_schema": {}}, "type.*object.*root"),
    "a schema whose root is no object": ({"input_schema": {"type": "string"}}, "type.*object"),
    "a schema whose root may be no object": (
        {"input_schema": {"type": ["object", "null"]}},
        "type.*object",
    ),
    "a schema that does not compile": (
        {"input_schema": {"type": "object", "properties": {"a": {"type": "strnig"}}}},
        "properties/a/type must be one of",
    ),
    "a schema with a remote reference": (
        {"input_schema": {"type": "object", "properties": {"a": {"$ref": "http://x.example/s"}}}},
        "ref",
    ),
}


@pytest.mark.rule("REG-03")
@pytest.mark.parametrize(("members", "message"), REFUSED.values(), ids=REFUSED)
def test_problems_are_found_with_and_without_registering(
    members: dict[str, Any], message: str
) -> None:
    registry = ToolRegistry()
    found = registry.validate_definition(definition(**members))
    assert not found.valid
    assert found.errors
    with pytest.raises(RegistrationError, match=message) as refusal:
        registry.register(definition(**members), handler)
    assert repr(members.get("name", "tool")) in str(refusal.value)
    assert registry.list() == ()
    assert listed(registry) == []


@pytest.mark.rule("REG-03")
def test_all_problems_are_reported_at_once() -> None:
    found = ToolRegistry().validate_definition(
        definition("", description=1, version=2, input_schema=3)
    )
    assert [issue.path for issue in found.errors] == [
        "/name",
        "/description",
        "/version",
        "/inputSchema",
    ]


@pytest.mark.rule("REG-03")
@pytest.mark.parametrize("timeout_ms", [0, -1, 1.5, True, "5", 2**31, 10**400])
def test_timeout_outside_the_range_of_the_setting_is_refused(
    timeout_ms: Any,
) -> None:
    with pytest.raises(RegistrationError, match=r"'tool'.*timeout_ms must be"):
        ToolRegistry().register(definition(), handler, timeout_ms=timeout_ms)


@pytest.mark.rule("REG-03")
@pytest.mark.parametrize("timeout_ms", [None, 1, 2**31 - 1])
def test_timeout_within_the_range_of_the_setting_is_accepted(timeout_ms: int | None) -> None:
    tool = ToolRegistry().register(definition(), handler, timeout_ms=timeout_ms)
    assert tool.timeout_ms == timeout_ms


@pytest.mark.rule("REG-03")
def test_a_handler_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(RegistrationError, match=r"'tool'.*handler is not callable"):
        ToolRegistry().register(definition(), "handler")  # type: ignore[arg-type]


@pytest.mark.rule("REG-03", "REG-02")
@pytest.mark.parametrize("depth", [50, 100, 120, 125, 126, 127, 128, 200, 254])
def test_a_schema_however_deep_is_refused_or_can_be_listed(depth: int) -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    core = make_core().handshake()
    try:
        core.registry.register(definition(input_schema=schema), handler)
    except RegistrationError:
        return
    assert core.answer(request("tools/list"))["result"]["tools"][0]["inputSchema"] == schema


@pytest.mark.rule("REG-03", "REG-02")
@pytest.mark.parametrize("depth", [200, 250, 251, 252, 253])
def test_an_annotation_however_deep_is_refused_or_can_be_listed(depth: int) -> None:
    deep: list[Any] = []
    for _ in range(depth - 1):
        deep = [deep]
    schema = {"type": "object", "default": deep}
    core = make_core().handshake()
    try:
        core.registry.register(definition(input_schema=schema), handler)
    except RegistrationError:
        return
    assert core.answer(request("tools/list"))["result"]["tools"][0]["inputSchema"] == schema


# -- listing


@pytest.mark.rule("REG-04")
def test_a_tool_is_encoded_once_for_each_revision_and_shown_only_while_it_is_there() -> None:
    registry = ToolRegistry()
    registry.register(definition("a"), handler)
    [encoded], _ = registry.page(None, 10, NEWEST)
    registry.register(definition("b"), handler)
    assert registry.page(None, 10, NEWEST)[0][0] is encoded
    assert registry.page(None, 10, OLDEST)[0][0] is not encoded
    registry.unregister("a")
    assert [tool["name"] for tool in listed(registry)] == ["b"]
    registry.register(definition("a", description="another"), handler)
    assert [tool["description"] for tool in listed(registry)] == ["another", ""]


ANNOTATIONS = ToolAnnotations(
    title="T", read_only=True, destructive=False, idempotent=True, open_world=False
)
WHOLE = definition(
    "whole",
    title="Whole",
    output_schema={"type": "object"},
    annotations=ANNOTATIONS,
    icons=[Icon("https://x.example/i.png")],
    meta={"k": [1]},
    version="1",
)


@pytest.mark.rule("REG-02")
def test_list_shows_every_member_of_a_definition() -> None:
    registry = ToolRegistry()
    registry.register(WHOLE, handler)
    assert listed(registry) == [
        {
            "name": "whole",
            "title": "Whole",
            "description": "",
            "inputSchema": SCHEMA,
            "outputSchema": {"type": "object"},
            "annotations": {
                "title": "T",
                "readOnlyHint": True,
                "destructiveHint": False,
                "idempotentHint": True,
                "openWorldHint": False,
            },
            "icons": [{"src": "https://x.example/i.png"}],
            "version": "1",
            "_meta": {"k": [1]},
        }
    ]


@pytest.mark.rule("CONT-07", "CONT-12")
@pytest.mark.parametrize("schema", [{"type": "array"}, {}, {"type": ["object", "null"]}])
def test_an_output_schema_for_more_than_objects_is_wrapped_before_2026_07_28(
    schema: dict[str, Any],
) -> None:
    registry = ToolRegistry()
    registry.register(definition(output_schema=schema), handler)
    wrapped = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    for revision in REVISIONS.values():
        [tool] = shown(registry, revision)
        has_schemas = revision.has("tool", "outputSchema")
        expected = schema if revision.is_stateless else wrapped if has_schemas else None
        assert tool.get("outputSchema") == expected


@pytest.mark.rule("REG-05")
def test_definition_is_a_private_copy() -> None:
    output: dict[str, Any] = {"type": "object"}
    meta: dict[str, Any] = {"k": [1]}
    icons = [Icon("a:b")]
    registry = ToolRegistry()
    registry.register(definition(output_schema=output, meta=meta, icons=icons), handler)
    output["type"] = "array"
    meta["k"].append(2)
    icons.clear()
    [tool] = listed(registry)
    assert (tool["outputSchema"], tool["_meta"]) == ({"type": "object"}, {"k": [1]})
    assert tool["icons"] == [{"src": "a:b"}]


# -- names as clients see them


@pytest.mark.rule("REG-16")
@pytest.mark.parametrize(
    ("name", "doubt"),
    [
        ("getUser", None),
        ("DATA_EXPORT-v2.1", None),
        ("agent/sendMessage", None),
        ("x" * 128, None),
        ("x" * 129, "129 characters"),
    ],
)
def test_a_name_longer_than_recommended_is_taken_with_a_warning(
    name: str, doubt: str | None
) -> None:
    logger, sink = logged()
    registry = ToolRegistry(logger)
    registry.register(definition(name), handler)
    assert registry.get(name) is not None
    warnings = [(line["message"], line["toolName"]) for line in sink.lines]
    assert warnings == ([] if doubt is None else [("tool name warning", name)])
    if doubt is not None:
        assert doubt in sink.lines[0]["warning"]


@pytest.mark.rule("REG-11")
def test_separator_replaces_slash_in_every_advertised_name() -> None:
    core = make_core().handshake()
    core.registry.register(definition("agent/send/all"), handler)
    core.registry.use_separator("_")
    core.registry.register(definition("agent/list"), handler)
    names = [tool["name"] for tool in core.answer(request("tools/list"))["result"]["tools"]]
    assert names == ["agent_list", "agent_send_all"]
    assert [each.name for each in core.registry.list()] == names
    assert core.registry.get("agent_list") is core.registry.find("agent/list")
    assert core.registry.get("agent/list") is None
    assert core.registry.find("agent_list") is None
    assert core.registry.unregister("agent_list") is False
    assert core.registry.unregister("agent/list") is True
    core.registry.use_separator("_")
    core.registry.use_separator("/")
    assert [each.name for each in core.registry.list()] == ["agent/send/all"]


@pytest.mark.rule("REG-17")
def test_two_tools_with_one_advertised_name_are_refused() -> None:
    message = r"'a_b' and 'a/b' would both be called 'a_b': .*tools.name_separator"
    registry = ToolRegistry()
    registry.use_separator("_")
    first = registry.register(definition("a_b"), handler)
    with pytest.raises(RegistrationError, match=message):
        registry.register(definition("a/b"), handler)
    assert not registry.validate_definition(definition("a/b")).valid
    assert registry.find("a/b") is None
    assert registry.get("a_b") is first
    later = ToolRegistry()
    for name in ("a/b", "a_b", "c/d"):
        later.register(definition(name), handler)
    with pytest.raises(RegistrationError, match="'a/b' and 'a_b' would both be called 'a_b'"):
        later.use_separator("_")
    assert [each.name for each in later.list()] == ["a/b", "a_b", "c/d"]
    assert later.get("c/d") is later.find("c/d") is not None


@pytest.mark.rule("REG-12")
def test_scopes_are_kept_with_the_tool() -> None:
    registry = ToolRegistry()
    assert registry.register(definition("a"), handler).scopes == frozenset()
    tool = registry.register(definition("b"), handler, scopes=["x", "y"])
    assert tool.scopes == {"x", "y"}
    with pytest.raises(RegistrationError, match="scopes must be several strings"):
        registry.register(definition("c"), handler, scopes="xy")
    for wrong in ("", "a b", 'a"b', "a\r\nb", "ä", 5):
        with pytest.raises(RegistrationError, match="is no scope of OAuth"):
            registry.register(definition("c"), handler, scopes=["x", wrong])
    assert registry.get("c") is None


@pytest.mark.rule("SCHEMA-23")
def test_header_parameters_are_kept_with_the_tool() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
    registry = ToolRegistry()
    tool = registry.register(definition(input_schema=schema), handler)
    assert tool.header_parameters == (("A", ("a",), "string"),)
    broken = {"type": "object", "properties": {"a": {"type": "array", "x-mcp-header": "A"}}}
    with pytest.raises(RegistrationError, match=r"'other'.*#/properties/a: `x-mcp-header`"):
        registry.register(definition("other", input_schema=broken), handler)


# -- schemas


@pytest.mark.rule("REG-05")
def test_advertised_schema_is_a_private_copy_of_the_enforced_one() -> None:
    inner = {"type": "integer"}
    schema = {"type": "object", "properties": {"a": inner}}
    registry = ToolRegistry()
    tool = registry.register(definition(input_schema=MappingProxyType(schema)), handler)
    inner["type"] = "string"
    schema["required"] = ["b"]  # type: ignore[assignment]
    assert listed(registry)[0]["inputSchema"] == {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
    }
    assert tool.validate({"a": 5}) == ()
    assert tool.validate({"a": "5"}) != ()


@pytest.mark.rule("REG-18")
def test_checks_are_generated_once_and_then_at_registration() -> None:
    core = make_core().handshake()
    with generations() as noted:
        core.registry.register(definition(), handler)
        assert len(noted) == 0
        assert len([*core.registry.generate_checks()]) == len(noted) == 1
        texts = {"type": "array", "items": {"type": "string", "minLength": 1}}
        core.registry.register(definition("later", output_schema=texts), handler)
        assert len(noted) == 2
        for arguments in ({"a": 1}, {"a": 1.0}, {"a": "x"}):
            core.call("tool", arguments, request_id=str(arguments))
        assert len(noted) == 2


@pytest.mark.rule("REG-19")
def test_equal_schemas_share_a_check_as_long_as_a_tool_has_it() -> None:
    registry = ToolRegistry()
    other = {"type": "object", "properties": {"a": {"type": "string"}}}
    first, second, third, fourth = (
        registry.register(definition(name, input_schema=schema, output_schema=output), handler)
        for name, schema, output in (
            ("first", SCHEMA, other),
            ("second", {**SCHEMA}, other),
            ("third", SCHEMA, None),
            ("fourth", other, None),
        )
    )
    assert first.checks == second.checks
    assert first.validate is second.validate is third.validate
    # Results may be checked for longer than arguments.
    assert first.validate_output is not fourth.validate is not first.validate
    assert len([*registry.generate_checks()]) == 3
    kept = weakref.ref(fourth.checks[0])
    registry.unregister("fourth")
    del fourth
    gc.collect()
    assert kept() is None


@pytest.mark.rule("REG-05")
def test_a_call_makes_as_many_steps_with_a_thousand_tools_as_with_one() -> None:
    def steps(tools: int) -> int:
        core = make_core().handshake()
        for number in range(tools):
            core.registry.register(definition(f"tool-{number}"), handler)
        message = parse(request("tools/call", {"name": "tool-0", "arguments": {"a": 1}}))
        with CallCounter() as counter:
            [call] = core.dispatcher.dispatch(core.session, message)
            core.dispatcher.conclude(call, Returned(None), 1.0)  # type: ignore[arg-type]
        return counter.calls

    steps(1)  # the first call loads what the others need
    assert steps(1000) == steps(1)


# -- how a handler runs


async def coroutine_function(arguments: dict[str, Any], context: Any) -> None:
    """Wait; no test calls this async handler."""
    await context


class AsyncInstance:
    async def __call__(self, arguments: dict[str, Any], context: Any) -> None:
        """Do nothing; no test calls this async handler."""


class Methods:
    async def asynchronous(self, arguments: dict[str, Any], context: Any) -> None:
        """Wait; no test calls this async handler."""
        async with context:
            pass

    async def brief(self, arguments: dict[str, Any], context: Any) -> None:
        """Do nothing; no test calls this async handler."""

    def synchronous(self, arguments: dict[str, Any], context: Any) -> None:
        """Do nothing; no test calls this handler."""


ASYNC = [
    coroutine_function,
    partial(coroutine_function),
    partial(partial(coroutine_function)),
    AsyncInstance(),
    partial(AsyncInstance()),
    Methods().asynchronous,
]


@pytest.mark.rule("CALL-12")
@pytest.mark.parametrize("function", ASYNC)
def test_an_async_callable_runs_as_a_task(function: Callable[..., Any]) -> None:
    assert is_async_callable(function)
    registry = ToolRegistry()
    assert not registry.has_async_tools()
    assert registry.register(definition(), function).execution is ExecutionMode.ASYNC
    assert registry.has_async_tools()


@pytest.mark.rule("CALL-44")
def test_coroutine_function_that_never_waits_needs_no_event_loop() -> None:
    registry = ToolRegistry()
    assert registry.register(definition(), Methods().brief).execution is ExecutionMode.BRIEF
    assert not registry.has_async_tools()


@pytest.mark.rule("CALL-44")
@pytest.mark.skipif(sys.version_info < (3, 12), reason="nothing marks functions there")
def test_function_that_is_marked_runs_as_a_task_since_its_coroutine_may_wait() -> None:
    def marked(arguments: dict[str, Any], context: Any) -> Any:
        return coroutine_function(arguments, context)

    inspect.markcoroutinefunction(marked)  # type: ignore[attr-defined]
    assert ToolRegistry().register(definition(), marked).execution is ExecutionMode.ASYNC


@pytest.mark.rule("CALL-12")
@pytest.mark.parametrize("function", [handler, partial(handler), Methods().synchronous, print])
def test_any_other_callable_runs_in_a_thread(function: Callable[..., Any]) -> None:
    assert not is_async_callable(function)
    registry = ToolRegistry()
    assert registry.register(definition(), function).execution is ExecutionMode.THREAD
    assert not registry.has_async_tools()


@pytest.mark.rule("CALL-12")
def test_execution_mode_can_be_given() -> None:
    tool = ToolRegistry().register(definition(), handler, execution=ExecutionMode.INLINE)
    assert tool.execution is ExecutionMode.INLINE


# -- unregistering and warnings


@pytest.mark.rule("REG-07")
def test_running_call_goes_on_when_its_tool_is_removed() -> None:
    core = make_core().handshake()
    core.registry.register(definition(), handler)
    call = core.begin("tool", {"a": 1})
    assert core.registry.unregister("tool")
    reply, _ = core.conclude(call, Returned("done"))
    assert orjson.loads(reply.line)["result"]["isError"] is False  # type: ignore[union-attr]
    assert core.resources.concurrent_executions == 0


@pytest.mark.rule("REG-07")
def test_remove_ignores_a_tool_that_was_replaced() -> None:
    registry = ToolRegistry()
    former = registry.register(definition(), handler)
    registry.unregister("tool")
    present = registry.register(definition(), handler)
    assert registry.remove(former) is False
    assert registry.get("tool") is present
    assert registry.remove(present) is True
    assert registry.remove(present) is False


# -- observers and threads


class Watcher:
    """Records the list at each notification."""

    def __init__(self, registry: ToolRegistry) -> None:
        self.seen: list[list[str]] = []
        self.registry = registry
        registry.observe(self)

    def list_changed(self, kind: str, *, seen_by: Any = None) -> None:
        assert kind == "tools"
        self.seen.append([tool["name"] for tool in listed(self.registry)])


@pytest.mark.rule("REG-15")
def test_observer_is_notified_after_each_change() -> None:
    registry = ToolRegistry()
    registry.register(definition("first"), handler)
    watcher, other = Watcher(registry), Watcher(registry)
    registry.register(definition("a"), handler)
    with pytest.raises(RegistrationError):
        registry.register(definition("a"), handler)
    with pytest.raises(RegistrationError):
        registry.register(definition(""), handler)
    assert not registry.unregister("b")
    registry.unregister("first")
    assert watcher.seen == other.seen == [["a", "first"], ["a"]]


@pytest.mark.rule("REG-09", "REG-04")
def test_threads_that_register_list_and_unregister_see_one_registry() -> None:
    registry = ToolRegistry()
    stale: list[str] = []
    taken: list[str] = []

    def come_and_go(number: int) -> None:
        for turn in range(30):
            own = f"{number}-{turn}"
            registry.register(definition(own), handler)
            if own not in {tool["name"] for tool in listed(registry)}:
                stale.append(own)
            if own not in {tool.name for tool in registry.list()}:
                stale.append(own)
            with suppress(RegistrationError):
                registry.register(definition(f"shared-{turn}"), handler)
                taken.append(f"shared-{turn}")
            registry.has_async_tools()
            registry.unregister(own)
            if own in {tool["name"] for tool in listed(registry)}:
                stale.append(own)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(come_and_go, number) for number in range(4)]:
            done.result(60)
    assert stale == []
    shared = [f"shared-{turn}" for turn in range(30)]
    assert sorted(taken) == sorted(shared)
    assert [tool["name"] for tool in listed(registry)] == sorted(shared)


def logged() -> tuple[StructuredLogger, MemorySink]:
    sink = MemorySink()
    return StructuredLogger(sink, ManualClock()), sink


@pytest.mark.rule("REG-06", "REG-13")
def test_dynamic_tool_is_logged_at_warn_when_added_and_removed() -> None:
    logger, sink = logged()
    registry = ToolRegistry(logger)
    registry.register(definition("static"), handler)
    registry.register(definition("dynamic"), handler, is_dynamic=True)
    registry.register(definition("typed"), handler, is_dynamic=True, tool_type="echo")
    for name in ("static", "dynamic", "typed"):
        registry.unregister(name)
    assert {line["level"] for line in sink.lines} == {"warn"}
    assert [(line["message"], line["toolName"], line.get("toolType")) for line in sink.lines] == [
        ("Dynamic tool registered: dynamic", "dynamic", None),
        ("Dynamic tool registered: typed (type: echo)", "typed", "echo"),
        ("Tool unregistered: dynamic", "dynamic", None),
        ("Tool unregistered: typed", "typed", "echo"),
    ]


@pytest.mark.rule("REG-08")
def test_warnings_are_held_for_the_logger_once_and_in_order() -> None:
    registry = ToolRegistry()
    unknown = {"type": "object", "x-unknown": 1}
    registry.register(definition("a", input_schema=unknown), handler)
    registry.register(definition("b"), handler, is_dynamic=True)
    logger, sink = logged()
    registry.attach_logger(logger)
    assert [(line["message"], line["toolName"]) for line in sink.lines] == [
        ("tool schema warning", "a"),
        ("Dynamic tool registered: b", "b"),
    ]
    assert "x-unknown" in sink.lines[0]["warning"]
    second_logger, second_sink = logged()
    registry.attach_logger(second_logger)
    assert second_sink.lines == []
    registry.unregister("b")
    assert len(second_sink.lines) == 1
    assert len(sink.lines) == 2
