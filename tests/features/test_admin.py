"""The administrative tools: access, arguments and effects."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any, get_args

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation_rt import RegistrationError, ToolDefinition
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.settings import AdminMode
from foundation_rt.base.ids import SequentialIds
from foundation_rt.features.admin import CANONICAL_SCHEMAS, REGISTER_TOOL, UNREGISTER_TOOL
from foundation_rt.kernel.session import TransportType
from foundation_rt.testing import TestClient
from tests.lab.servers.core import make_config
from tests.lab.servers.fixture import LIST_CHANGED, ServerFixture, ServerPeer
from tests.lab.sizes import examples
from tests.lab.waiting import PATIENCE, until

ANYTHING = {"type": "object"}
NOTHING = {"type": "object", "additionalProperties": False}
REGISTER, UNREGISTER = REGISTER_TOOL.name, UNREGISTER_TOOL.name
ECHO_SCHEMA = {
    "type": "object",
    "properties": {"message": {"type": "string"}},
    "required": ["message"],
}
PROXY_SCHEMA = {
    "type": "object",
    "properties": {"targetAgentId": {"type": "string"}, "message": {"type": "object"}},
    "required": ["targetAgentId", "message"],
}
HEALTH_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}


def policy(mode: str) -> dict[str, Any]:
    needed: dict[str, dict[str, Any]] = {
        "token": {"token_env_var": "TOKEN"},
        "scopes": {"scopes": ("tools:admin",)},
    }
    return {"mode": mode, **needed.get(mode, {})}


def make_rig(
    mode: str = "local_stdio_only",
    *,
    tools: bool = True,
    security: bool = True,
    separator: str = "/",
    **limits: Any,
) -> ServerFixture:
    """Return a server with these switches and this policy."""
    sections = {
        "tools": {
            "admin_registration_enabled": tools,
            "admin_policy": policy(mode),
            "max_payload_bytes": 4096,
            "name_separator": separator,
        },
        "security": {"dynamic_registration_enabled": security},
        "resources": limits,
    }
    return ServerFixture(make_config(sections))


class Admin:
    """A client over stdio."""

    def __init__(
        self, rig: ServerFixture | None = None, transport_type: TransportType = "stdio"
    ) -> None:
        self.rig = rig or make_rig()
        self.peer: ServerPeer = self.rig.connect(transport_type)

    def call(self, tool: str, /, **arguments: Any) -> Any:
        return self.peer.outcome(self.peer.start(tool, arguments))

    def register(self, name: str, tool_type: str = "echo", **arguments: Any) -> Any:
        whole = {"name": name, "description": "", "toolType": tool_type, **arguments}
        self.rig.clock.advance(1)  # else its notification would come with that before
        return self.call(REGISTER, **whole)

    def unregister(self, name: str) -> Any:
        self.rig.clock.advance(1)
        return self.call(UNREGISTER, name=name)

    @property
    def listed(self) -> dict[str, dict[str, Any]]:
        tools = self.peer.answer(self.peer.ask("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in tools] == sorted(tool["name"] for tool in tools)
        return {tool["name"]: tool for tool in tools}

    @property
    def notified(self) -> int:
        """Count the notifications that the list has changed."""
        return self.peer.received.count(LIST_CHANGED)

    @property
    def warnings(self) -> list[tuple[str, str, str | None]]:
        return [
            (line["message"], line["toolName"], line.get("toolType"))
            for line in self.rig.sink.lines
            if line["level"] == "warn"
        ]


def refusal(error: Any) -> tuple[str, str | None]:
    """Code and reason of an error."""
    return error["code"], error["details"].get("reason")


# -- whether they exist ----------------------------------------------------------------------------


@pytest.mark.rule("ADMIN-01", "CONF-17")
@pytest.mark.parametrize(("tools", "security"), [(False, False), (True, False), (False, True)])
def test_unless_both_switches_are_on_the_tools_do_not_exist(tools: bool, security: bool) -> None:
    admin = Admin(make_rig(tools=tools, security=security))
    assert admin.listed.keys() == {"health"}
    unknown = admin.call("no such tool")
    for name in (REGISTER, UNREGISTER):
        error = admin.call(name, name="health")
        assert refusal(error) == refusal(unknown) == ("NOT_FOUND", None)
        assert error["message"] == unknown["message"].replace("no such tool", name)


@pytest.mark.rule("ADMIN-01", "ADMIN-03", "REG-02")
@pytest.mark.parametrize("mode", get_args(AdminMode))
def test_both_switches_list_the_tools_under_any_policy(mode: str) -> None:
    listed = Admin(make_rig(mode)).listed
    assert listed.keys() == {"health", REGISTER, UNREGISTER}
    assert listed[REGISTER]["inputSchema"] == REGISTER_TOOL.input_schema
    assert listed[UNREGISTER]["inputSchema"] == UNREGISTER_TOOL.input_schema


@pytest.mark.rule("ADMIN-10")
@pytest.mark.parametrize("name", [REGISTER, UNREGISTER])
def test_an_author_may_use_the_names_only_where_the_tools_do_not_exist(name: str) -> None:
    for rig, refused in ((make_rig(), True), (make_rig(tools=False), False)):
        mine = ToolDefinition(name, "Mine.", ANYTHING)
        rig.server.register(mine, lambda arguments, context: "mine", inline=True)
        if refused:
            with pytest.raises(RegistrationError, match=name):
                rig.connect()
        else:
            assert Admin(rig, "http").call(name) == "mine"


@pytest.mark.rule("ADMIN-01", "EMBED-07")
def test_second_runtime_keeps_the_registered_tools() -> None:
    rig = make_rig()

    async def main() -> None:
        for _ in range(2):
            async with TestClient(rig.server, clock=ManualClock(), ids=SequentialIds()) as client:
                assert REGISTER in {tool["name"] for tool in await client.list_tools()}

    asyncio.run(main())
    Admin(rig).register("shout")


# -- access ---------------------------------------------------------------------------------------

ALLOWED = {("local_stdio_only", "stdio"), ("scopes", "stdio")}
EVERY_WAY = list(itertools.product(get_args(AdminMode), get_args(TransportType)))


@pytest.mark.rule("ADMIN-03", "CALL-13")
@pytest.mark.parametrize(("mode", "transport_type"), EVERY_WAY)
def test_the_policy_holds_for_both_tools_and_for_no_other(
    mode: str, transport_type: TransportType
) -> None:
    rig = make_rig(mode)
    handler = ToolDefinition("dynamic", "", ANYTHING)
    rig.server.register(handler, lambda arguments, context: 1, is_dynamic=True, inline=True)
    admin = Admin(rig, transport_type)
    before = admin.listed
    answers = [admin.register("shout"), admin.unregister("dynamic")]
    if (mode, transport_type) in ALLOWED:
        assert answers == [
            {"registered": "shout", "toolType": "echo"},
            {"unregistered": "dynamic"},
        ]
    else:
        assert [refusal(each) for each in answers] == [("UNAUTHORIZED", mode)] * 2
        assert admin.listed == before
        assert admin.notified == 0
        assert admin.call("dynamic") == 1
        codes = [(each["toolName"], each.get("errorCode")) for each in rig.records]
        assert codes == [
            (REGISTER, "UNAUTHORIZED"),
            (UNREGISTER, "UNAUTHORIZED"),
            ("dynamic", None),
        ]
    assert admin.call("health")["status"]


@pytest.mark.rule("ADMIN-03", "CALL-05", "CALL-06", "CALL-07", "CALL-08")
def test_the_policy_comes_after_size_and_existence_and_before_slot_and_validation() -> None:
    rig = make_rig("deny_all", max_concurrent_executions=1)
    admin = Admin(rig)
    slot = rig.server.runtime.resources.try_acquire_slot()
    assert slot is not None
    assert refusal(admin.register("shout"))[0] == "UNAUTHORIZED"
    assert refusal(admin.call(REGISTER, nonsense=1))[0] == "UNAUTHORIZED"
    assert refusal(admin.call(REGISTER, name="x" * 5000))[0] == "RESOURCE_EXHAUSTED"
    slot.release()
    allowed = Admin(make_rig(max_concurrent_executions=1))
    held = allowed.rig.server.runtime.resources.try_acquire_slot()
    assert held is not None
    assert refusal(allowed.register("shout")) == ("RESOURCE_EXHAUSTED", "concurrency_limit")
    held.release()
    assert allowed.register("shout")["registered"] == "shout"
    allowed.rig.assert_all_ended()


# -- registering -----------------------------------------------------------------------------------


@pytest.mark.rule("ADMIN-04", "ADMIN-05", "REG-02")
@pytest.mark.parametrize(
    ("tool_type", "schema"),
    [("echo", ECHO_SCHEMA), ("health", HEALTH_SCHEMA), ("agentProxy", PROXY_SCHEMA)],
)
@pytest.mark.parametrize("claims", [False, True])
def test_a_tool_has_name_description_and_version_from_the_client_and_the_rest_from_its_type(
    tool_type: str, schema: dict[str, Any], claims: bool
) -> None:
    admin = Admin()
    claimed = {"inputSchema": schema} if claims else {}
    answer = admin.register("made", tool_type, description="Made.", version="7", **claimed)
    assert answer == {"registered": "made", "toolType": tool_type}
    assert admin.listed["made"] == {
        "name": "made",
        "description": "Made.",
        "inputSchema": schema,
        "version": "7",
    }
    assert admin.call("made", message=5, no_such=1)["details"]["reason"] == "schema_validation"


@pytest.mark.rule("ADMIN-02", "ADMIN-04", "ADMIN-05")
def test_call_right_after_the_registration_finds_the_tool() -> None:
    admin = Admin()
    calls = [
        (REGISTER, {"name": "shout", "description": "", "toolType": "echo"}),
        ("shout", {"message": "hi", "more": 1}),
        (REGISTER, {"name": "how", "description": "", "toolType": "health"}),
        ("how", {}),
        (UNREGISTER, {"name": "shout"}),
        ("shout", {"message": "hi"}),
    ]
    lines = [
        orjson.dumps(
            {
                "jsonrpc": "2.0",
                "id": f"call {number}",
                "method": "tools/call",
                "params": {"name": tool, "arguments": arguments},
            }
        )
        for number, (tool, arguments) in enumerate(calls)
    ]
    admin.peer.connection.feed(b"\n".join([*lines, b""]))
    assert admin.peer.outcome("call 1") == {"message": "hi"}
    assert admin.peer.outcome("call 3")["server"] == admin.call("health")["server"]
    assert admin.peer.outcome("call 5")["code"] == "NOT_FOUND"


@pytest.mark.rule("ADMIN-05", "RES-09")
def test_a_dynamic_health_tool_takes_a_slot_and_the_static_one_does_not() -> None:
    admin = Admin(make_rig(max_concurrent_executions=1))
    admin.register("how", "health")
    assert admin.call("how")["resources"]["concurrentExecutions"] == 1
    slot = admin.rig.server.runtime.resources.try_acquire_slot()
    assert slot is not None
    assert refusal(admin.call("how")) == ("RESOURCE_EXHAUSTED", "concurrency_limit")
    assert admin.call("health")["status"]
    slot.release()


@pytest.mark.rule("ADMIN-05")
@pytest.mark.parametrize("agents_come", ["before the start", "later", "never"])
def test_a_proxy_sends_its_message_to_the_agent(agents_come: str) -> None:
    rig = make_rig()
    proxied: dict[str, Any] = {"type": "greet", "payload": {"to": "Ada"}}

    async def greet(message: Any, context: Any) -> Any:
        return [context.agent_id, message.type, message.payload]

    async def main() -> None:
        if agents_come == "before the start":
            rig.server.agents.register_agent("greeter", greet)
        admin = Admin(rig)
        admin.register("ask", "agentProxy")
        if agents_come == "later":
            rig.server.agents.register_agent("greeter", greet)
        asked = [
            admin.peer.start("ask", {"targetAgentId": agent, "message": message})
            for agent, message in (("greeter", proxied), ("nobody", proxied), ("greeter", {}))
        ]
        await until(lambda: all(admin.peer.answers(each) for each in asked), "all are answered")
        answer, unknown, untyped = map(admin.peer.outcome, asked)
        assert unknown["code"] == "NOT_FOUND"
        if agents_come == "never":
            assert answer["code"] == untyped["code"] == "NOT_FOUND"
        else:
            assert answer == ["greeter", "greet", {"to": "Ada"}]
            assert untyped["code"] == "INVALID_ARGUMENT"

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
    rig.assert_all_ended()


# -- the claim about the schema --------------------------------------------------------------------


def reordered(value: Any, seed: int) -> Any:
    """Return the same JSON value, with the members of its objects in another order."""
    if not isinstance(value, dict):
        return value
    keys = list(value)
    turned = keys[seed % len(keys) :] + keys[: seed % len(keys)] if keys else keys
    return {key: reordered(value[key], seed // 2) for key in reversed(turned)}


def variants(value: Any) -> Iterator[Any]:
    """Values that differ from `value` in one place, if only in type or order."""
    yield None
    yield [value]
    if isinstance(value, dict):
        yield {**value, "title": "x"}
        for key, inner in value.items():
            yield {name: each for name, each in value.items() if name != key}
            yield {key + "\u0000" if name == key else name: each for name, each in value.items()}
            yield from ({**value, key: changed} for changed in variants(inner))
    elif isinstance(value, list):
        yield value[::-1] if len(value) > 1 else []
        yield [*value, *value]
    elif isinstance(value, str):
        yield value.upper()
        yield value + " "
    elif value is False:
        yield from (True, 0, 0.0, "false")


@pytest.mark.rule("ADMIN-11")
@given(st.sampled_from(sorted(CANONICAL_SCHEMAS)), st.integers(0, 63))
def test_order_of_schema_members_does_not_matter(tool_type: str, seed: int) -> None:
    claimed = reordered(CANONICAL_SCHEMAS[tool_type], seed)
    assert "registered" in Admin().register("made", tool_type, inputSchema=claimed)


@pytest.mark.rule("ADMIN-06", "ADMIN-11")
@pytest.mark.parametrize("tool_type", CANONICAL_SCHEMAS)
def test_any_other_difference_of_the_schema_is_refused(tool_type: str) -> None:
    admin = Admin()
    canonical = CANONICAL_SCHEMAS[tool_type]
    others = [each for each in variants(canonical) if isinstance(each, dict)]
    assert len(others) > 10
    for other in others:
        error = admin.register("made", tool_type, inputSchema=other)
        assert refusal(error) == ("INVALID_ARGUMENT", "schema_mismatch"), other
        assert error["details"]["canonicalSchema"] == canonical
    for other in (None, True, "x", [canonical]):
        error = admin.register("made", tool_type, inputSchema=other)
        assert refusal(error) == ("INVALID_ARGUMENT", "schema_validation"), other
    assert "made" not in admin.listed
    assert admin.notified == 0


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.rule("ADMIN-07", "REG-01")
@pytest.mark.parametrize("name", [" a", "a ", "a\nb", "a\x00", "\u200b"])
def test_name_that_the_registry_refuses_has_its_message(name: str) -> None:
    admin = Admin()
    error = admin.register(name)
    assert refusal(error) == ("INVALID_ARGUMENT", "invalid_definition")
    assert "must have ASCII letters, digits and _ - . / only" in error["message"]
    assert admin.notified == 0


@pytest.mark.rule("ADMIN-07", "ADMIN-08", "ADMIN-09", "REG-06", "LIFE-10")
def test_change_is_logged_and_notified_once_and_a_refusal_never() -> None:
    admin = Admin()
    other = Admin(admin.rig, "http")
    admin.register("shout")
    assert refusal(admin.register("shout", "health")) == ("INVALID_ARGUMENT", "name_taken")
    assert admin.unregister("shout") == {"unregistered": "shout"}
    assert refusal(admin.unregister("shout")) == ("NOT_FOUND", None)
    assert admin.warnings == [
        ("Dynamic tool registered: shout (type: echo)", "shout", "echo"),
        ("Tool unregistered: shout", "shout", "echo"),
    ]
    assert admin.notified == other.notified == 2


# -- against a model -------------------------------------------------------------------------------

STATIC = {"static", "health", REGISTER, UNREGISTER}

names = st.sampled_from(["a", "b", "mine", " bad", *sorted(STATIC)])
operations = st.one_of(
    st.tuples(st.just("register"), names, st.sampled_from(sorted(CANONICAL_SCHEMAS))),
    st.tuples(st.just("unregister"), names),
    st.tuples(st.just("call"), names),
)


class Model:
    """Model the tools with a dict from the names of dynamic tools to their schemas."""

    def __init__(self) -> None:
        self.dynamic: dict[str, Any] = {"mine": NOTHING}
        self.changes = 0

    def register(self, name: str, tool_type: str) -> str:
        if name in STATIC:
            return "static_tool"
        if name in self.dynamic:
            return "name_taken"
        if name == " bad":
            return "invalid_definition"
        self.dynamic[name] = CANONICAL_SCHEMAS[tool_type]
        self.changes += 1
        return "registered"

    def unregister(self, name: str) -> str:
        if name in STATIC:
            return "static_tool"
        if name not in self.dynamic:
            return "NOT_FOUND"
        del self.dynamic[name]
        self.changes += 1
        return "unregistered"

    def call(self, name: str) -> str:
        return "there" if name in STATIC or name in self.dynamic else "NOT_FOUND"


def effect_of(operation: str, answer: Any) -> str:
    """Return an answer in the words of the model."""
    if operation == "call":
        return "NOT_FOUND" if answer["code"] == "NOT_FOUND" else "there"
    if "code" in answer:
        return str(answer["details"].get("reason", answer["code"]))
    return next(iter(answer))


@pytest.mark.rule("ADMIN-04", "ADMIN-07", "ADMIN-08", "ADMIN-09", "REG-02")
@settings(max_examples=examples(100))
@given(st.lists(operations, max_size=20))
def test_any_operations_have_the_effect_they_have_on_a_dict(steps: list[Any]) -> None:
    rig, model = make_rig(), Model()
    for name in ("static", "mine"):
        definition = ToolDefinition(name, "", NOTHING)
        rig.server.register(definition, lambda *_: 1, is_dynamic=name in model.dynamic)
    admin = Admin(rig)
    logged = len(admin.warnings)
    for operation, *subject in steps:
        if operation == "call":
            # No tool takes these arguments: its error shows that it exists.
            answer = admin.call(*subject, unknown=1)
        else:
            answer = getattr(admin, operation)(*subject)
        assert effect_of(operation, answer) == getattr(model, operation)(*subject)
        shown = {name: tool["inputSchema"] for name, tool in admin.listed.items()}
        assert shown.keys() == STATIC | model.dynamic.keys()
        assert {name: shown[name] for name in model.dynamic} == model.dynamic
        assert (admin.notified, len(admin.warnings) - logged) == (model.changes, model.changes)
    rig.assert_all_ended()


@pytest.mark.rule("REG-11", "ADMIN-05", "ADMIN-08")
def test_client_uses_advertised_names_with_another_separator() -> None:
    admin = Admin(make_rig(separator="_"))
    assert {"admin_registerTool", "admin_unregisterTool"} <= admin.listed.keys()
    given = {"name": "my/echo", "description": "", "toolType": "echo"}
    assert admin.call("admin_registerTool", **given)["registered"] == "my_echo"
    assert admin.call("my_echo", message="hi") == {"message": "hi"}
    assert refusal(admin.call("admin_registerTool", **given)) == ("INVALID_ARGUMENT", "name_taken")
    assert refusal(admin.call("admin_unregisterTool", name="my/echo")) == ("NOT_FOUND", None)
    assert admin.call("admin_unregisterTool", name="my_echo") == {"unregistered": "my_echo"}


@pytest.mark.rule("REG-14", "ADMIN-01")
@pytest.mark.parametrize(("tools", "security"), [(True, False), (False, True), (False, False)])
def test_the_switches_bind_clients_and_not_the_code_of_a_server(
    tools: bool, security: bool
) -> None:
    admin = Admin(make_rig(tools=tools, security=security))
    assert admin.register("late")["code"] == "NOT_FOUND"
    definition = ToolDefinition("late", "", {"type": "object"})
    admin.rig.server.register(
        definition, lambda arguments, context: 1, is_dynamic=True, inline=True
    )
    assert admin.call("late") == 1
    assert admin.warnings == [("Dynamic tool registered: late", "late", None)]
