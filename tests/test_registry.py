"""The tool registry: what it takes, what it lists, and that a call costs the same with many."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.clock import ManualClock
from foundation_rt.errors import ErrorCode, RegistrationError
from foundation_rt.invocation import Returned
from foundation_rt.logs import MemorySink, StructuredLogger
from foundation_rt.protocol.jsonrpc import parse
from foundation_rt.registry import Execution, ToolDefinition, ToolRegistry, is_async_callable
from tests.support.core import make_core, request
from tests.support.counting import CallCounter

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def handler(arguments: dict[str, Any], context: Any) -> None:
    """A handler that nobody calls here."""


def definition(name: Any = "tool", **members: Any) -> ToolDefinition:
    return ToolDefinition(**{"name": name, "description": "", "input_schema": SCHEMA, **members})


def listed(registry: ToolRegistry) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = orjson.loads(registry.encoded_list())
    return tools


# -- names


@pytest.mark.rule("REG-01")
@pytest.mark.parametrize(
    "name", ["a", "x" * 256, "admin/registerTool", "größe", "two words", "\U0001f600"]
)
def test_a_name_is_a_printable_string(name: str) -> None:
    registry = ToolRegistry()
    registry.register(definition(name), handler)
    tool = registry.get(name)
    assert tool is not None
    assert tool.definition.name == name


@pytest.mark.rule("REG-01", "REG-03")
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
    ],
)
def test_a_name_that_is_empty_long_or_not_printable_is_refused(name: str) -> None:
    registry = ToolRegistry()
    with pytest.raises(RegistrationError, match="/name must be") as refusal:
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
def test_what_is_wrong_is_told_with_and_without_registering(
    members: dict[str, Any], message: str
) -> None:
    registry = ToolRegistry()
    told = registry.validate_definition(definition(**members))
    assert not told.valid
    assert told.errors
    with pytest.raises(RegistrationError, match=message) as refusal:
        registry.register(definition(**members), handler)
    assert repr(members.get("name", "tool")) in str(refusal.value)
    assert registry.list() == ()
    assert listed(registry) == []


@pytest.mark.rule("REG-03")
def test_all_that_is_wrong_is_told_at_once() -> None:
    told = ToolRegistry().validate_definition(
        definition("", description=1, version=2, input_schema=3)
    )
    assert [issue.path for issue in told.errors] == [
        "/name",
        "/description",
        "/version",
        "/inputSchema",
    ]


@pytest.mark.rule("REG-03")
def test_validating_a_definition_registers_nothing() -> None:
    registry = ToolRegistry()
    told = registry.validate_definition(definition())
    assert told.valid
    assert told.errors == ()
    assert registry.get("tool") is None
    registry.register(definition(), handler)
    again = registry.validate_definition(definition())
    assert not again.valid
    assert again.errors[0].message == "is already registered"


@pytest.mark.rule("REG-03")
@pytest.mark.parametrize("timeout_ms", [0, -1, 1.5, True, "5", 2**31, 10**400])
def test_a_deadline_is_refused_unless_it_is_one_the_configuration_could_set(
    timeout_ms: Any,
) -> None:
    with pytest.raises(RegistrationError, match=r"'tool'.*timeout_ms must be"):
        ToolRegistry().register(definition(), handler, timeout_ms=timeout_ms)


@pytest.mark.rule("REG-03")
@pytest.mark.parametrize("timeout_ms", [None, 1, 2**31 - 1])
def test_a_deadline_may_be_what_the_configuration_could_set(timeout_ms: int | None) -> None:
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


@pytest.mark.rule("REG-02")
@given(st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=6), unique=True))
def test_tools_are_listed_in_the_order_of_their_names_by_code_point(names: list[str]) -> None:
    registry = ToolRegistry()
    for name in names:
        registry.register(definition(name), handler, execution=Execution.INLINE)
    by_code_point = sorted(names, key=lambda name: [ord(character) for character in name])
    assert [tool.name for tool in registry.list()] == by_code_point
    assert [tool["name"] for tool in listed(registry)] == by_code_point


@pytest.mark.rule("REG-02")
def test_a_tool_is_shown_with_its_version_only_if_it_has_one() -> None:
    registry = ToolRegistry()
    registry.register(definition("b", description="B", version="2.0"), handler)
    registry.register(definition("a"), handler)
    assert listed(registry) == [
        {"name": "a", "description": "", "inputSchema": SCHEMA},
        {"name": "b", "description": "B", "inputSchema": SCHEMA, "version": "2.0"},
    ]


@pytest.mark.rule("REG-04")
def test_the_encoded_list_is_kept_until_the_registry_changes() -> None:
    registry = ToolRegistry()
    registry.register(definition("a"), handler)
    encoded = registry.encoded_list()
    registry.get("a")
    registry.list()
    registry.validate_definition(definition("b"))
    with pytest.raises(RegistrationError):
        registry.register(definition("a"), handler)
    assert registry.encoded_list() is encoded
    registry.register(definition("b"), handler)
    assert [tool["name"] for tool in listed(registry)] == ["a", "b"]
    registry.unregister("a")
    assert [tool["name"] for tool in listed(registry)] == ["b"]


# -- schemas


@pytest.mark.rule("REG-05")
def test_what_is_advertised_is_a_private_copy_of_what_is_enforced() -> None:
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


@pytest.mark.rule("REG-05")
def test_a_call_compiles_nothing() -> None:
    core = make_core().handshake()
    core.registry.register(definition(), handler)
    core.call("tool", {"a": "explaining a refusal loads what it needs the first time"})
    for arguments in ({"a": 1}, {"a": "x"}):
        with CallCounter() as counter:
            core.call("tool", arguments, request_id=str(arguments))
        names = {name for _, name in counter.called}
        assert not {name for name in names if "compile" in name or "survey" in name}
        assert "CodeGenerator" not in names


@pytest.mark.rule("REG-05")
def test_a_call_makes_as_many_steps_with_a_thousand_tools_as_with_one() -> None:
    def steps(tools: int) -> int:
        core = make_core().handshake()
        for number in range(tools):
            core.registry.register(definition(f"tool {number}"), handler)
        message = parse(request("tools/call", {"name": "tool 0", "arguments": {"a": 1}}))
        with CallCounter() as counter:
            [call] = core.dispatcher.dispatch(core.session, message)
            core.dispatcher.conclude(call, Returned(None), 1.0)  # type: ignore[arg-type]
        return counter.calls

    assert steps(1000) == steps(1)


# -- how a handler runs


async def coroutine_function(arguments: dict[str, Any], context: Any) -> None:
    """An async handler that nobody calls here."""


class AsyncInstance:
    async def __call__(self, arguments: dict[str, Any], context: Any) -> None:
        """An async handler that nobody calls here."""


class Methods:
    async def asynchronous(self, arguments: dict[str, Any], context: Any) -> None:
        """An async handler that nobody calls here."""

    def synchronous(self, arguments: dict[str, Any], context: Any) -> None:
        """A handler that nobody calls here."""


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
    assert registry.register(definition(), function).execution is Execution.ASYNC
    assert registry.has_async_tools()


@pytest.mark.rule("CALL-12")
@pytest.mark.parametrize("function", [handler, partial(handler), Methods().synchronous, print])
def test_any_other_callable_runs_in_a_thread(function: Callable[..., Any]) -> None:
    assert not is_async_callable(function)
    registry = ToolRegistry()
    assert registry.register(definition(), function).execution is Execution.THREAD
    assert not registry.has_async_tools()


@pytest.mark.rule("CALL-12")
def test_where_a_handler_runs_can_be_said() -> None:
    tool = ToolRegistry().register(definition(), handler, execution=Execution.INLINE)
    assert tool.execution is Execution.INLINE


# -- unregistering and warnings


@pytest.mark.rule("REG-07")
def test_unregister_tells_whether_there_was_such_a_tool() -> None:
    registry = ToolRegistry()
    registry.register(definition(), handler)
    assert registry.unregister("tool") is True
    assert registry.unregister("tool") is False
    assert registry.get("tool") is None
    registry.register(definition(), handler)


@pytest.mark.rule("REG-07")
def test_a_call_that_runs_is_not_touched_when_its_tool_goes() -> None:
    core = make_core().handshake()
    core.registry.register(definition(), handler)
    call = core.begin("tool", {"a": 1})
    assert core.registry.unregister("tool")
    reply, _ = core.conclude(call, Returned("done"))
    assert orjson.loads(reply.line)["result"]["isError"] is False  # type: ignore[union-attr]
    assert core.resources.concurrent_executions == 0


@pytest.mark.rule("REG-07")
def test_a_tool_is_removed_only_as_long_as_it_is_still_the_one_of_its_name() -> None:
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
    """Notes, at each change, what is listed then."""

    def __init__(self, registry: ToolRegistry) -> None:
        self.seen: list[list[str]] = []
        self.registry = registry
        registry.observe(self)

    def tools_changed(self) -> None:
        self.seen.append([tool["name"] for tool in listed(self.registry)])


@pytest.mark.rule("REG-09")
def test_observers_are_told_of_each_change_after_it_was_made() -> None:
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


@pytest.mark.rule("REG-09")
def test_an_observer_that_nobody_else_holds_is_forgotten() -> None:
    registry = ToolRegistry()
    watcher = Watcher(registry)
    gone = weakref.ref(watcher)
    del watcher
    gc.collect()
    assert gone() is None
    registry.register(definition(), handler)


@pytest.mark.rule("REG-09", "REG-04")
def test_threads_that_register_list_and_unregister_see_one_registry() -> None:
    registry = ToolRegistry()
    stale: list[str] = []
    taken: list[str] = []

    def come_and_go(number: int) -> None:
        for turn in range(30):
            own = f"{number} {turn}"
            registry.register(definition(own), handler)
            if own not in {tool["name"] for tool in listed(registry)}:
                stale.append(own)
            if own not in {tool.name for tool in registry.list()}:
                stale.append(own)
            with suppress(RegistrationError):
                registry.register(definition(f"shared {turn}"), handler)
                taken.append(f"shared {turn}")
            registry.has_async_tools()
            registry.unregister(own)
            if own in {tool["name"] for tool in listed(registry)}:
                stale.append(own)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(come_and_go, number) for number in range(4)]:
            done.result(60)
    assert stale == []
    shared = [f"shared {turn}" for turn in range(30)]
    assert sorted(taken) == sorted(shared)
    assert [tool["name"] for tool in listed(registry)] == sorted(shared)


def logged() -> tuple[StructuredLogger, MemorySink]:
    sink = MemorySink()
    return StructuredLogger(sink, ManualClock()), sink


@pytest.mark.rule("REG-06")
def test_dynamic_tools_are_logged_at_warn_when_they_come_and_when_they_go() -> None:
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
def test_warnings_wait_for_a_logger_and_come_once_and_in_order() -> None:
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
