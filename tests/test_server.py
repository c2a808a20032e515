"""The server of an author: its tools, its components and its configuration."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt import (
    ConfigError,
    Icon,
    RegistrationError,
    Server,
    ServerOptions,
    ToolAnnotations,
    ToolContext,
    ToolDefinition,
    UsageError,
    create_server,
)
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.settings import (
    ResourcesSection,
    ServerConfig,
    ServerSection,
    ToolsSection,
)
from foundation_rt.base.ids import SequentialIds
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.kernel.execution_limits import ResourceManager
from foundation_rt.kernel.registry.tools import ToolRegistry
from foundation_rt.protocol.revisions import REVISIONS
from foundation_rt.testing import TestClient
from foundation_rt.version import __version__
from tests.lab.servers.fixture import HANDSHAKE, ServerFixture, ServerPeer

ANYTHING = {"type": "object"}


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("FOUNDATION_RT_"):
            monkeypatch.delenv(name)


def quiet(server: Server) -> Server:
    """Return the server, with its log in memory."""
    server._options.logger = StructuredLogger(MemorySink(), ManualClock())
    return server


def connect(server: Server) -> ServerPeer:
    peer = ServerPeer()
    peer.connection = server.connect(peer.receive)
    peer.shake_hands()
    return peer


def server_info(server: Server) -> dict[str, Any]:
    """Return the result of `initialize`."""
    peer = ServerPeer()
    peer.connection = server.connect(peer.receive)
    peer.ask("initialize", HANDSHAKE, id="hello")
    result: dict[str, Any] = peer.answer("hello")["result"]
    return result


def answer_to(server: Server, tool: str, arguments: dict[str, Any] | None = None) -> Any:
    """Return the outcome of one call of an inline tool."""
    peer = connect(server)
    return peer.outcome(peer.start(tool, arguments))


# -- tools -----------------------------------------------------------------------------------------


@pytest.mark.rule("TYPED-27", "PROMPT-03")
def test_a_word_in_the_decorator_is_the_name() -> None:
    server = Server("names")

    @server.tool("sum", inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    @server.prompt("letter")
    def write() -> str:
        return "Write."

    assert (add(1, 2), write()) == (3, "Write.")
    assert [each.name for each in server.list()] == ["health", "sum"]
    assert [each.name for each in server.list_prompts()] == ["letter"]
    with pytest.raises(TypeError, match="multiple values"):
        server.tool("one", name="two")(add)


@pytest.mark.rule("TYPED-01", "TYPED-27", "REG-01", "REG-02")
def test_a_decorated_function_stays_as_it_is_and_its_tool_is_listed() -> None:
    server = Server("weather", version="1.0.0")

    @server.tool
    def forecast(city: str, days: int = 3) -> dict[str, Any]:
        """Forecast for a city.

        Args:
            city: Name of the city.
        """
        return {"city": city, "days": days}

    @server.tool(
        name="sum", description="Add.", version="2.1", timeout_ms=500, inline=True,
    )  # fmt: skip
    def add(a: int, b: int) -> int:
        return a + b

    assert forecast("Oslo") == {"city": "Oslo", "days": 3}
    assert add(1, 2) == 3
    assert [definition.name for definition in server.list()] == ["forecast", "health", "sum"]
    tool = server.get("sum")
    assert tool is not None
    assert tool.definition.to_wire(REVISIONS["2026-07-28"]) == {
        "name": "sum",
        "description": "Add.",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        "outputSchema": {"type": "integer"},
        "version": "2.1",
    }
    assert tool.timeout_ms == 500
    forecast_tool = server.get("forecast")
    assert forecast_tool is not None
    assert forecast_tool.definition.description == "Forecast for a city."
    assert answer_to(quiet(server), "sum", {"a": 20, "b": 22.0}) == 42


@pytest.mark.rule("REG-02", "REG-12", "TYPED-26")
def test_decorator_takes_every_member_of_a_definition() -> None:
    server = Server()
    annotations = ToolAnnotations(read_only=True)
    icon = Icon("https://x.example/i.png")

    @server.tool(
        title="Count",
        annotations=annotations,
        icons=[icon],
        meta={"k": 1},
        scopes=["count"],
        output_schema=True,
    )
    def count() -> dict[str, int]:
        return {"count": 1}

    tool = server.get("count")
    assert tool is not None
    definition = tool.definition
    assert (definition.title, definition.annotations) == ("Count", annotations)
    assert (definition.icons, definition.meta) == ((icon,), {"k": 1})
    assert definition.output_schema == {
        "type": "object",
        "additionalProperties": {"type": "integer"},
    }
    assert tool.scopes == {"count"}
    server.register(ToolDefinition("plain", "", ANYTHING), lambda *_: None, scopes=["a", "b"])
    plain = server.get("plain")
    assert plain is not None
    assert plain.scopes == {"a", "b"}


@pytest.mark.rule("REG-17")
def test_separator_that_makes_names_equal_prevents_the_start() -> None:
    server = Server(config={"tools": {"name_separator": "_"}})
    for name in ("a/b", "a_b"):
        server.register(ToolDefinition(name, "", ANYTHING), lambda *_: None, inline=True)
    with pytest.raises(RegistrationError, match=r"'a/b' and 'a_b' .* `tools.name_separator`"):
        _ = server.runtime
    server.unregister("a_b")
    assert server.runtime.registry.get("a_b") is server.get("a/b") is not None


@pytest.mark.rule("TYPED-22", "REG-03")
def test_a_schema_given_by_hand_is_what_is_advertised_and_enforced() -> None:
    server = quiet(Server())
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 1}},
        "required": ["n"],
    }

    @server.tool(input_schema=schema, inline=True)
    def take(n: int, **rest: Any) -> list[Any]:
        return [n, rest]

    tool = server.get("take")
    assert tool is not None
    assert tool.definition.input_schema == schema
    assert answer_to(server, "take", {"n": 5, "extra": True}) == [5, {"extra": True}]
    assert answer_to(server, "take", {"n": 0})["code"] == "INVALID_ARGUMENT"


@pytest.mark.rule("REG-03", "TYPED-04")
def test_refusal_names_the_tool_and_the_remedy() -> None:
    server = Server()

    async def later(city: str) -> None: ...

    with pytest.raises(RegistrationError, match=r"'later'.*inline=True is for def"):
        server.tool(inline=True)(later)
    with pytest.raises(RegistrationError, match="timeout_ms must be a whole number"):
        server.tool(timeout_ms=0)(later)
    with pytest.raises(RegistrationError, match=r"health.*already registered"):
        server.tool(name="health")(later)

    def unsaid(city) -> None:  # type: ignore[no-untyped-def]
        ...

    with pytest.raises(RegistrationError, match="city"):
        server.tool(unsaid)
    assert [definition.name for definition in server.list()] == ["health"]


@pytest.mark.rule("REG-03", "CALL-12")
def test_a_coroutine_function_cannot_run_in_place_whichever_way_it_is_registered() -> None:
    async def later(arguments: dict[str, Any], context: ToolContext) -> None: ...

    server = Server()
    with pytest.raises(RegistrationError, match=r"'later'.*inline=True is for def"):
        server.register(ToolDefinition("later", "", ANYTHING), later, inline=True)
    assert server.get("later") is None


@pytest.mark.rule("REG-01", "REG-06", "REG-07", "REG-08")
def test_tools_can_be_registered_found_and_removed_while_a_client_is_connected() -> None:
    rig = ServerFixture()
    server = rig.server
    definition = ToolDefinition("double", "Twice as much.", ANYTHING, version="7")
    server.register(definition, lambda arguments, context: 2 * arguments["n"], inline=True)
    peer = rig.connect()
    assert peer.outcome(peer.start("double", {"n": 4})) == 8
    found = server.get("double")
    assert found is not None and found.definition == definition
    assert server.get("triple") is None
    late = ToolDefinition("late", "", ANYTHING)
    server.register(
        late, lambda arguments, context: "here", is_dynamic=True, timeout_ms=5, inline=True
    )
    assert peer.outcome(peer.start("late")) == "here"
    names = [tool["name"] for tool in peer.answer(peer.ask("tools/list"))["result"]["tools"]]
    assert names == ["double", "health", "late"]
    assert server.unregister("late") is True
    assert server.unregister("late") is False
    assert peer.outcome(peer.start("late"))["code"] == "NOT_FOUND"
    warnings = [line["message"] for line in rig.sink.lines if line["level"] == "warn"]
    assert warnings == ["Dynamic tool registered: late", "Tool unregistered: late"]


@pytest.mark.rule("REG-03")
def test_a_definition_can_be_validated_without_registering_it() -> None:
    server = Server()
    good = ToolDefinition("good", "", ANYTHING)
    assert server.validate_definition(good).valid
    assert server.get("good") is None
    for bad, path in (
        (ToolDefinition("", "", ANYTHING), "/name"),
        (ToolDefinition("health", "", ANYTHING), "/name"),
        (ToolDefinition("x", 5, ANYTHING), "/description"),  # type: ignore[arg-type]
        (ToolDefinition("x", "", {"type": "array"}), "/inputSchema"),
    ):
        result = server.validate_definition(bad)
        assert not result.valid
        assert [error.path for error in result.errors] == [path]
        with pytest.raises(RegistrationError):
            server.register(bad, lambda arguments, context: None)


# -- configuration ---------------------------------------------------------------------------------


@pytest.mark.rule("CONF-02", "LIFE-02")
def test_file_and_environment_win_over_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code: dict[str, Any] = {"server": {"version": "0.0.1"}, "tools": {"default_timeout_ms": 1000}}

    def config(*, file: str = "") -> ServerConfig:
        server = Server("by code", version="0.0.2", config=code)
        if file:
            path = tmp_path / "settings.toml"
            path.write_text(file)
            server.configure(path)
        return server.runtime.config

    plain = config()
    assert (plain.server.name, plain.server.version) == ("by code", "0.0.1")
    assert plain.tools.default_timeout_ms == 1000
    text = '[server]\nname = "by file"\n[tools]\ndefault_timeout_ms = 2000\n'
    from_file = config(file=text)
    assert (from_file.server.name, from_file.server.version) == ("by file", "0.0.1")
    assert from_file.tools.default_timeout_ms == 2000
    monkeypatch.setenv("FOUNDATION_RT_TOOLS__DEFAULT_TIMEOUT_MS", "3000")
    from_all = config(file=text)
    assert from_all.server.name == "by file"
    assert from_all.tools.default_timeout_ms == 3000
    monkeypatch.setenv("FOUNDATION_RT_SERVER__NAME", "by environment")
    assert config().server.name == "by environment"
    assert server_info(quiet(Server("by code")))["serverInfo"]["name"] == "by environment"


@pytest.mark.rule("CONF-01", "CONF-02")
def test_configuration_is_the_default_without_sources() -> None:
    server = quiet(Server())
    assert server.runtime.config == ServerConfig()
    assert server_info(server)["serverInfo"] == {"name": "foundation-rt", "version": __version__}


@pytest.mark.rule("CONF-03", "CONF-04")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"name": ""}, "server.name"),
        ({"name": 5}, "server.name"),
        ({"version": "x" * 300}, "server.version"),
        ({"config": {"server": {"nam": "x"}}}, "server.name"),
        ({"config": {"server": {"name": "bell \a"}}}, "server.name"),
        ({"config": {"tools": {"default_timeout_ms": "5"}}}, "tools.default_timeout_ms"),
        ({"config": {"toools": {}}}, "tools"),
        ({"config": {"tools": 5}}, "tools"),
        ({"config": {"server": ["x"]}}, "server"),
        ({"name": "x", "config": {"server": "y"}}, "server"),
    ],
)
def test_refused_configuration_prevents_the_start(arguments: dict[str, Any], expected: str) -> None:
    server = Server(**arguments)
    for _ in range(2):
        with pytest.raises(ConfigError, match=expected):
            server.connect(lambda line: None)


@pytest.mark.rule("CONF-02")
def test_a_server_that_has_started_takes_no_other_configuration(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(orjson.dumps({"server": {"name": "by file"}}))
    server = quiet(Server())
    server.configure(path)
    assert server.runtime.config.server.name == "by file"
    assert server.runtime is server.runtime
    with pytest.raises(UsageError, match="before the server is started"):
        server.configure(path)


@pytest.mark.rule("LIFE-02")
def test_instructions_are_sent_if_given() -> None:
    assert "instructions" not in server_info(quiet(Server()))
    with_advice = quiet(Server(instructions="Ask for a city."))
    assert server_info(with_advice)["instructions"] == "Ask for a city."


ICON = Icon("https://example.com/icon.png", sizes=("48x48",))


@pytest.mark.rule("LIFE-02", "REV-03")
@pytest.mark.parametrize(
    ("revision", "shown"),
    [
        ("2025-03-26", set()),
        ("2025-06-18", {"title"}),
        ("2025-11-25", {"title", "websiteUrl", "icons"}),
        ("2026-07-28", {"title", "websiteUrl", "icons"}),
    ],
)
def test_title_website_and_icons_are_sent(revision: str, shown: set[str]) -> None:
    server = Server("s", title="S.", website_url="https://example.com/", icons=[ICON])
    all_of_it = {
        "title": "S.",
        "websiteUrl": "https://example.com/",
        "icons": [{"src": "https://example.com/icon.png", "sizes": ["48x48"]}],
    }

    async def look() -> Any:
        async with TestClient(server, revision=revision, handshake=False) as client:
            if REVISIONS[revision].is_stateless:
                result = await client.request("server/discover")
                return result["_meta"]["io.modelcontextprotocol/serverInfo"]
            params = {**HANDSHAKE, "protocolVersion": revision}
            return (await client.request("initialize", params))["serverInfo"]

    info = asyncio.run(look())
    assert info.items() >= {name: all_of_it[name] for name in shown}.items()
    assert not set(info) & set(all_of_it) - shown


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"title": 5}, "title must be a string, not int"),
        ({"website_url": b"https://example.com/"}, "website_url must be a string, not bytes"),
        ({"instructions": ["Ask."]}, "instructions must be a string, not list"),
        ({"icons": ["icon.png"]}, "icons must be a sequence of Icon"),
        ({"icons": ICON}, "icons must be a sequence of Icon"),
    ],
)
def test_title_website_and_icons_are_checked(arguments: dict[str, Any], argument: str) -> None:
    with pytest.raises(UsageError, match=argument):
        Server(**arguments)


EXPERIMENTAL = {"asyncBatch": {"name": "asyncBatch", "version": "1.0.0", "limits": [1, None]}}


def capabilities_of(server: Server, revision: str) -> Any:
    async def look() -> Any:
        async with TestClient(server, revision=revision, handshake=False) as client:
            if REVISIONS[revision].is_stateless:
                result = await client.request("server/discover")
            else:
                params = {**HANDSHAKE, "protocolVersion": revision}
                result = await client.request("initialize", params)
            return result["capabilities"]

    return asyncio.run(look())


@pytest.mark.rule("REV-13")
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize(
    "make",
    [
        lambda given: Server(experimental=given),
        lambda given: create_server(ServerOptions(experimental=given)),
    ],
)
def test_experimental_capabilities_are_sent_in_every_revision(make: Any, revision: str) -> None:
    given = {name: dict(value) for name, value in EXPERIMENTAL.items()}
    server = make(given)
    given["asyncBatch"]["version"] = "later"  # a copy was made
    assert capabilities_of(server, revision)["experimental"] == EXPERIMENTAL
    assert "experimental" not in capabilities_of(make({}), revision)
    assert "experimental" not in capabilities_of(make(None), revision)


@pytest.mark.rule("REV-13")
@pytest.mark.parametrize(
    ("experimental", "problem"),
    [
        (["asyncBatch"], "experimental is a mapping of mappings"),
        ({"asyncBatch": True}, "experimental is a mapping of mappings"),
        (
            {"asyncBatch": {"since": {1, 2}}},
            "cannot be written as JSON: Type is not JSON serializable: set",
        ),
        ({"asyncBatch": {1: 2}}, "cannot be written as JSON: Dict key must be str"),
        ({1: {}}, "cannot be written as JSON: Dict key must be str"),
        ({"\ud800": {}}, "cannot be written as JSON"),
        ({"asyncBatch": {"count": 2**64}}, "cannot be written as JSON"),
    ],
)
def test_experimental_capabilities_are_checked(experimental: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Server(experimental=experimental)
    with pytest.raises(UsageError, match=problem):
        create_server(ServerOptions(experimental=experimental))


# -- components from outside -----------------------------------------------------------------------


@pytest.mark.rule("EMBED-06", "HEALTH-01", "ID-04")
def test_a_server_uses_the_components_it_is_given() -> None:
    config = ServerConfig(
        server=ServerSection(name="given", version="9"),
        resources=ResourcesSection(max_concurrent_executions=3),
    )
    clock, sink, registry = ManualClock(), MemorySink(), ToolRegistry()
    resources = ResourceManager(config, lambda: 12_345)
    options = ServerOptions(
        config=config,
        logger=StructuredLogger(sink, clock),
        tool_registry=registry,
        resource_manager=resources,
        id_generator=SequentialIds(),
        clock=clock,
        instructions="Given too.",
    )
    server = create_server(options)
    registry.register(ToolDefinition("theirs", "", ANYTHING), lambda arguments, context: None)
    assert server_info(server) == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"logging": {}, "tools": {"listChanged": True}},
        "serverInfo": {"name": "given", "version": "9"},
        "instructions": "Given too.",
    }
    assert [definition.name for definition in server.list()] == ["health", "theirs"]
    clock.advance(1.5)
    slot = resources.try_acquire_slot()
    report = answer_to(server, "health")
    assert report["server"] == {"name": "given", "version": "9"}
    assert report["resources"] == {
        "memoryUsageBytes": 12_345,
        "eventLoopDelayMs": 0.0,
        "concurrentExecutions": 1,
        "maxConcurrentExecutions": 3,
    }
    assert slot is not None
    [record] = [line for line in sink.lines if line["message"] == "tool call completed"]
    assert record["timestamp"] == "2024-01-01T00:00:01.500Z"
    assert record["runId"] == "00000000-0000-4000-8000-000000000001"
    assert record["correlationId"] == "00000000-0000-4000-9000-000000000001"
    assert record["connectionCorrelationId"] == "00000000-0000-4000-a000-000000000002"


@pytest.mark.rule("EMBED-06", "CONF-02")
def test_a_configuration_that_is_given_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOUNDATION_RT_SERVER__NAME", "by environment")
    config = ServerConfig(server=ServerSection(name="given"))
    server = Server("by code", options=ServerOptions(config=config))
    server.configure(tmp_path / "no such file.toml")
    assert server.runtime.config is config


@pytest.mark.rule("EMBED-06")
def test_options_can_be_used_for_several_servers() -> None:
    options = ServerOptions(config=ServerConfig())
    first = Server(instructions="Only mine.", options=options)
    second = Server(options=options)
    assert server_info(quiet(first))["instructions"] == "Only mine."
    assert "instructions" not in server_info(quiet(second))


@pytest.mark.rule("EMBED-06", "CALL-12")
def test_there_are_as_many_worker_threads_as_there_are_slots() -> None:
    resources = ResourceManager(
        ServerConfig(resources=ResourcesSection(max_concurrent_executions=3)), lambda: 0
    )
    rig = ServerFixture(
        ServerConfig(resources=ResourcesSection(max_concurrent_executions=1)),
        resource_manager=resources,
    )
    together = threading.Barrier(3)

    def meet(arguments: dict[str, Any], context: ToolContext) -> None:
        together.wait(5)

    rig.server.register(ToolDefinition("meet", "", ANYTHING), meet)
    peer = rig.connect()
    for _ in range(3):
        peer.start("meet")
    assert rig.server.runtime.engine.wait_idle(20)
    assert [record["outcome"] for record in rig.records] == ["success"] * 3


@pytest.mark.rule("HEALTH-01")
def test_a_registry_may_bring_a_health_tool_of_its_own() -> None:
    registry = ToolRegistry()
    registry.register(ToolDefinition("health", "", ANYTHING), lambda arguments, context: "fine")
    server = create_server(ServerOptions(config=ServerConfig(), tool_registry=registry))
    assert server.get("health") is registry.get("health")


# -- the settings that calls are held to -----------------------------------------------------------


@pytest.mark.rule("SCHEMA-25")
@pytest.mark.parametrize("checked", [False, True])
def test_formats_are_annotations_for_all_tools_if_disabled(
    checked: bool,
) -> None:
    registry = ToolRegistry()
    schema = {"type": "object", "properties": {"day": {"type": "string", "format": "date"}}}

    def give_back(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        return {"day": "never"}

    before = ToolDefinition("before", "", schema)
    after = ToolDefinition("after", "", schema, output_schema=schema)
    registry.register(before, give_back)
    config = ServerConfig(tools=ToolsSection(check_formats=checked))
    Server(options=ServerOptions(config=config, tool_registry=registry)).runtime  # noqa: B018
    registry.register(after, give_back)
    for tool in (registry.get("before"), registry.get("after")):
        assert tool is not None
        assert (tool.validate({"day": "never"}) == ()) is not checked
        assert tool.validate({"day": 5}) != ()
        if tool.validate_output is not None:
            assert (tool.validate_output({"day": "never"}) == ()) is not checked


@pytest.mark.rule("EMBED-06", "HEALTH-01")
def test_a_registry_belongs_to_one_server() -> None:
    registry = ToolRegistry()
    Server(options=ServerOptions(tool_registry=registry))
    with pytest.raises(UsageError, match="belongs to one server"):
        Server(options=ServerOptions(tool_registry=registry))


@pytest.mark.rule("CONF-16")
def test_a_configuration_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(UsageError, match="mapping of sections"):
        Server(config=[1])  # type: ignore[arg-type]
