"""Versions of a tool, side by side (spec/versions.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import (
    ErrorCode,
    Principal,
    RegistrationError,
    Server,
    ToolContext,
    ToolDefinition,
    ToolError,
    ToolUi,
    Transform,
)
from foundation_rt.base.config.feature_sections import RateLimitSection
from foundation_rt.base.config.settings import ServerConfig, ServerSection
from foundation_rt.base.tool_versions import rank
from foundation_rt.kernel.registry.tools import ToolRegistry
from foundation_rt.testing import TestClient
from tests.lab.peers.forwarders import ScriptedForwarder
from tests.lab.servers.fixture import ServerFixture, ServerPeer

VERSION, VERSIONS, DEPRECATED = (
    f"foundation-rt/{name}" for name in ("version", "versions", "deprecated")
)
QUIET = {"logging": {"level": "error"}}


def add(server: Server, version: str | None, name: str = "find", **options: Any) -> None:
    """Add a tool that says which version it is."""
    server.tool(name=name, version=version, inline=True, **options)(lambda: f"{name} {version}")


@pytest.mark.rule("VERS-04", "FWD-06")
async def test_list_with_the_tools_of_a_forwarder_has_the_highest_versions() -> None:
    server = Server("versions", config={**QUIET, "server": {"page_size": 1}})
    for version in ("1", "2"):
        add(server, version)
    server.forward(ScriptedForwarder(lists={"tools": ({"name": "theirs"}, {"name": "find"})}))
    async with TestClient(server) as client:
        listed = {each["name"]: each for each in await client.list_tools()}
    assert [*listed] == ["find", "health", "theirs"]
    assert [*listed["find"]["_meta"][VERSIONS]] == ["1"]


def connect(rig: ServerFixture, *scopes: str, subject: str = "ada") -> ServerPeer:
    peer = rig.connect()
    peer.connection.session.principal = Principal(subject, frozenset(scopes))
    return peer


def ask(peer: ServerPeer, method: str, params: Any = None) -> dict[str, Any]:
    result: dict[str, Any] = peer.answer(peer.ask(method, params))["result"]
    return result


def call(peer: ServerPeer, name: str, meta: Any = None) -> str:
    """Return what a call has returned, or its error."""
    extra = {} if meta is None else {"_meta": meta}
    text: str = ask(peer, "tools/call", {"name": name, **extra})["content"][0]["text"]
    return text


def listed(peer: ServerPeer) -> dict[str, list[str]]:
    """Return the versions of each tool in the list, the newest first."""
    found, cursor = {}, {}
    while True:
        page = ask(peer, "tools/list", cursor)
        for each in page["tools"]:
            if each["name"] != "health":
                assert each["name"] not in found
                older = each.get("_meta", {}).get(VERSIONS, {})
                found[each["name"]] = [each.get("version"), *older]
        if "nextCursor" not in page:
            return found
        cursor = {"cursor": page["nextCursor"]}


# -- what a version is ----------------------------------------------------------------------------


@pytest.mark.rule("VERS-01")
@pytest.mark.parametrize("version", ["", "v1", "latest", "1+2", "1 ", "1\n", "１", "1" * 65, 1])
def test_a_version_that_is_none_is_refused(version: Any) -> None:
    server = Server("v")
    assert not server.validate_definition(definition(version)).valid
    with pytest.raises(RegistrationError, match="/version must be a string: a digit"):
        add(server, version)


def definition(version: Any, name: str = "find") -> ToolDefinition:
    return ToolDefinition(name, "", {"type": "object"}, version)


@pytest.mark.rule("VERS-02")
def test_versions_have_one_order() -> None:
    ascending = ["0", "0.9", "1-a", "1.0-rc", "1.0-rc.2", "1.0-RC10", "1.0", "1.0.1", "1.10", "2"]
    ascending += ["10", "2025-01-9", "2025-01-10"]
    assert sorted(set(ascending), key=rank) == ascending
    for one, other in (("1", "1.0.0"), ("1.0-rc1", "1-RC.1"), ("1.02", "1_2.0"), ("0", "0.0")):
        assert rank(one) == rank(other)


@pytest.mark.rule("VERS-03")
def test_equal_versions_and_a_tool_without_one_beside_them_are_refused() -> None:
    server = Server("v")
    add(server, "1")
    server.disable("find@1")
    for version, problem in (("1.0", "version '1' is already registered"), (None, "no version")):
        assert not server.validate_definition(definition(version)).valid
        with pytest.raises(RegistrationError, match=problem):
            add(server, version)
    add(server, None, "plain")
    with pytest.raises(RegistrationError, match="no version"):
        add(server, "2", "plain")
    with pytest.raises(RegistrationError, match="'plain' is already registered"):
        add(server, None, "plain")
    assert server.validate_definition(definition("2")).valid
    assert [each.version for each in server.list() if each.name == "plain"] == [None]


@pytest.mark.rule("VERS-03", "REG-11")
def test_a_separator_never_makes_versions_of_two_tools() -> None:
    server = Server("v", config={"tools": {"name_separator": "_"}})
    add(server, "1", "a/b")
    add(server, "2", "a/b")
    rig = server.runtime.registry
    assert rig.get("a_b@1") is not None
    assert rig.get("a/b@1") is None
    with pytest.raises(RegistrationError, match="'a/b' and 'a_b' would both be called 'a_b'"):
        add(server, "3", "a_b")
    early = Server("v", config={"tools": {"name_separator": "_"}})
    add(early, "1", "a/b")
    add(early, "2", "a_b")
    with pytest.raises(RegistrationError, match="would both be called"):
        _ = early.runtime


# -- what is seen and called, against a model -----------------------------------------------------


@frozen
class Entry:
    """A version as the model has it: who sees it, which scope it needs, whether it is on."""

    version: str
    seen_by: str = "ab"
    scope: str = ""
    is_on: bool = field(default=True)


entries = st.builds(
    Entry,
    version=st.sampled_from(["1", "1.5", "2", "2.0-rc1", "10"]),
    seen_by=st.sampled_from(["ab", "a", "b", ""]),
    scope=st.sampled_from(["", "", "s"]),
    is_on=st.booleans(),
)


@pytest.mark.rule("VERS-04", "VERS-05", "VERS-06", "VIS-02", "PAGE-01")
@given(st.lists(entries, max_size=5, unique_by=lambda each: each.version), st.booleans())
def test_each_principal_has_its_newest_version(found: list[Entry], removes: bool) -> None:
    rig = ServerFixture(ServerConfig(server=ServerSection(page_size=2)))
    server = rig.server
    for name in ("fin", "find-x", "find.x", "finds"):  # around it in every order
        add(server, None, name)
    for each in found:
        add(
            server,
            each.version,
            visible=_seen_by(each.seen_by),
            scopes=[each.scope] if each.scope else [],
        )
    for each in found:
        if not each.is_on:
            server.disable(f"find@{each.version}")
    if removes and found:
        server.unregister(f"find@{found.pop().version}")
    for subject, scopes in (("a", ()), ("a", ("s",)), ("b", ())):
        peer = connect(rig, *scopes, subject=subject)
        newest = sorted(found, key=lambda each: rank(each.version), reverse=True)
        seen = [each for each in newest if each.is_on and subject in each.seen_by]
        usable = [each for each in seen if not each.scope or each.scope in scopes]
        shown = listed(peer)
        assert list(shown) == sorted(["fin", "find-x", "find.x", "finds", *["find"] * bool(usable)])
        assert shown.get("find", []) == [each.version for each in usable]
        by_name = call(peer, "find")
        if usable:
            assert by_name == f"find {usable[0].version}"
        else:
            assert ("UNAUTHORIZED" if seen else "NOT_FOUND") in by_name
        for each in found:
            wanted = (
                f"find {each.version}"
                if each in usable
                else "UNAUTHORIZED"
                if each in seen
                else "NOT_FOUND"
            )
            for made in (
                call(peer, f"find@{each.version}"),
                call(peer, "find", {VERSION: each.version}),
                call(peer, "find", {"fastmcp": {"version": each.version}}),
            ):
                assert wanted in made
        peer.connection.close()


def _seen_by(subjects: str) -> Callable[[Principal | None], bool]:
    return lambda principal: principal is not None and principal.subject in subjects


@pytest.mark.rule("VERS-06")
def test_a_version_that_is_hidden_is_answered_as_one_that_is_not_there() -> None:
    rig = ServerFixture()
    add(rig.server, "1")
    add(rig.server, "2", visible=lambda principal: False)
    add(rig.server, None, "plain")
    peer = connect(rig)

    def said(name: str, meta: Any = None) -> str:
        return call(peer, name, meta).replace("3", "2").partition(',"runId')[0]

    assert said("find", {VERSION: "2"}) == said("find", {VERSION: "3"})
    assert '"versions":["1"]' in call(peer, "find", {VERSION: "2"})
    assert (
        said("find@2")[0].partition(',"details')[0] == said("find@3")[0].partition(',"details')[0]
    )
    assert "INVALID_ARGUMENT" in call(peer, "find@1", {VERSION: "2"})
    assert "NOT_FOUND" in call(peer, "find@1@1")
    assert "NOT_FOUND" in call(peer, "find@")
    assert "NOT_FOUND" in call(peer, "plain@1")
    assert "NOT_FOUND" in call(peer, "find@1.0")
    assert call(peer, "find@1", {VERSION: "1"}) == "find 1"
    assert "NOT_FOUND" in call(peer, "find", {VERSION: ["1"]})
    assert "NOT_FOUND" in call(peer, "find", {VERSION: ""})
    assert "NOT_FOUND" in call(peer, "find", {VERSION: "9" * 10_000})
    assert call(peer, "plain", {VERSION: "7"}) == "plain None"


@pytest.mark.rule("VERS-04")
def test_a_list_has_the_definitions_of_the_others() -> None:
    rig = ServerFixture()

    @rig.server.tool("find", version="1", title="Old", tags=["x"])
    def find_all(query: str) -> dict[str, Any]:
        """Find."""
        return {}

    add(rig.server, "2")
    tool = ask(connect(rig), "tools/list")["tools"][0]
    assert tool["version"] == "2"
    assert tool["_meta"] == {
        VERSIONS: {
            "1": {
                "title": "Old",
                "description": "Find.",
                "inputSchema": {
                    "type": "object",
                    "properties": {"query": {"type": "string"}},
                    "required": ["query"],
                    "additionalProperties": False,
                },
                "outputSchema": {"type": "object"},
            }
        }
    }


# -- what else knows of versions ------------------------------------------------------------------


@pytest.mark.rule("VERS-07")
def test_calls_of_all_versions_are_calls_of_one_tool() -> None:
    limits = RateLimitSection(tools=("find=3",), per_tool=100)
    rig = ServerFixture(ServerConfig(rate_limit=limits))
    names: list[str] = []

    def tell(ctx: ToolContext) -> str:
        assert ctx.call is not None
        names.append(ctx.call.name)
        return ""

    for version in ("1", "2"):
        rig.server.tool(name="find", version=version, inline=True)(tell)
    peer = connect(rig)
    said = [call(peer, name) for name in ("find", "find@1", "find@2", "find@1")]
    assert said[:3] == [""] * 3
    assert "RESOURCE_EXHAUSTED" in said[3]
    assert names == ["find"] * 3
    assert [(each["toolName"], each["toolVersion"]) for each in rig.records[:3]] == [
        ("find", "2"),
        ("find", "1"),
        ("find", "2"),
    ]


@pytest.mark.rule("VERS-09")
def test_a_name_means_all_versions_and_one_with_a_version_that_one() -> None:
    rig = ServerFixture()
    server = rig.server
    for version in ("1", "2", "3"):
        add(server, version)
    peer = connect(rig)
    assert server.get("find") is server.get("find@3")
    server.disable("find@3", "find@1")
    assert listed(peer) == {"find": ["2"]}
    server.disable("find")
    assert listed(peer) == {}
    server.enable("find@1")
    assert call(peer, "find") == "find 1"
    assert server.unregister("find@1")
    assert not server.unregister("find@1")
    add(server, "4")
    assert listed(peer) == {}  # what comes later obeys, too
    server.enable("find")
    assert listed(peer) == {"find": ["4", "3", "2"]}
    assert server.unregister("find")
    assert server.get("find") is None
    assert listed(peer) == {}


@pytest.mark.rule("VERS-09", "VIS-07")
def test_clients_are_notified_of_a_version_that_they_see() -> None:
    rig = ServerFixture()
    add(rig.server, "1")
    peer = connect(rig)
    peer.take()
    add(rig.server, "2", visible=_seen_by("b"))
    assert peer.take() == []
    add(rig.server, "3")
    assert [each["method"] for each in peer.take()] == ["notifications/tools/list_changed"]


@pytest.mark.rule("VERS-09", "MOUNT-01", "MOUNT-02", "TRANS-01")
async def test_versions_are_mounted_and_shaped_each_or_all() -> None:
    inner = Server("inner")

    @inner.tool("find", version="1", deprecated="use 2")
    def find_all(query: str) -> list[str]:
        return [query]

    @inner.tool("find", version="2")
    def find(query: str, tenant: str) -> list[str]:
        return [query, tenant]

    shapes = {
        "find": {
            "as": "search",
            "description": "Search.",
            "arguments": {"query": {"as": "q"}},
        },
        "find@2": {
            "as": "search",
            "arguments": {"query": {"as": "q"}, "tenant": {"hide": "acme"}},
        },
    }
    server = Server("outer", config=QUIET)
    server.mount(inner, "x", transform=Transform(shapes))
    async with TestClient(server) as client:
        tool = (await client.request("tools/list"))["tools"][1]
        assert (tool["name"], [*tool["inputSchema"]["properties"]]) == ("x_search", ["q"])
        assert [*tool["_meta"][VERSIONS]["1"]["inputSchema"]["properties"]] == ["q"]
        assert tool["_meta"][VERSIONS]["1"]["description"] == "Search.\n\nDeprecated: use 2"
        assert await client.call("x_search", q="a") == ["a", "acme"]
        assert await client.call("x_search@1", q="a") == ["a"]
        inner.disable("find@2")
        assert await client.call("x_search", q="a") == ["a"]
    with pytest.raises(RegistrationError, match="there is no tool 'find@3': did you mean"):
        Server("outer").mount(other_versions(), transform=Transform({"find@3": {"as": "a"}}))
    with pytest.raises(RegistrationError, match="there is no argument 'tenant'"):
        shape = {"find": {"arguments": {"tenant": {"hide": "x"}}}}
        Server("outer").mount(other_versions(), transform=Transform(shape))


def other_versions() -> Server:
    server = Server("inner")
    for version in ("1", "2"):
        add(server, version)
    return server


@pytest.mark.rule("VERS-08")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_a_deprecated_version_says_so(revision: str) -> None:
    server = Server("v", config=QUIET)

    @server.tool("find", version="1", deprecated="use version 2")
    def find_all(fails: bool = False) -> dict[str, int]:
        """Find."""
        if fails:
            raise ToolError(ErrorCode.NOT_FOUND, "gone")
        return {"a": 1}

    async with TestClient(server, revision=revision) as client:
        tool = (await client.request("tools/list"))["tools"][0]
        assert tool["description"] == "Find.\n\nDeprecated: use version 2"
        assert ("_meta" in tool) is (revision != "2024-11-05")
        assert tool.get("_meta", {DEPRECATED: "use version 2"}) == {DEPRECATED: "use version 2"}
        result = await client.request("tools/call", {"name": "find"})
        assert result["_meta"][DEPRECATED] == "use version 2"
        assert result.get("structuredContent", {"a": 1}) == {"a": 1}
        failing = {"name": "find", "arguments": {"fails": True}}
        result = await client.request("tools/call", failing)
        assert (result["isError"], result["_meta"][DEPRECATED]) == (True, "use version 2")
    for advice in ("", " ", "a\nb", 1):
        with pytest.raises(RegistrationError, match="deprecated says what to do"):
            add(server, "2", deprecated=advice)
    with pytest.raises(RegistrationError, match="deprecated needs version="):
        add(server, None, "plain", deprecated="use find")


@pytest.mark.rule("VERS-04", "SEARCH-02", "SEARCH-03")
async def test_a_search_finds_the_newest_and_calls_any_version() -> None:
    server = Server("v", config={**QUIET, "tools": {"expose": "search", "pinned": ["find"]}})
    add(server, "1")
    add(server, "2")
    add(server, "3", visible=lambda principal: False)
    async with TestClient(server) as client:
        tools = {each["name"]: each for each in (await client.request("tools/list"))["tools"]}
        assert tools["find"]["_meta"][VERSIONS].keys() == {"1"}
        assert await client.call("describe_tool", name="find") == tools["find"]
        found = await client.call("search_tools", query="find")
        assert [each["name"] for each in found["tools"]] == ["find"]
        for name, version in (("find", "2"), ("find@1", "1")):
            assert (await client.call("describe_tool", name=name))["version"] == version
            assert await client.call("call_tool", name=name, arguments={}) == f"find {version}"
        for name in ("find@3", "find@4"):
            result = await client.request(
                "tools/call", {"name": "describe_tool", "arguments": {"name": name}}
            )
            assert result["isError"]


@pytest.mark.rule("VERS-04", "APP-08")
@pytest.mark.parametrize("for_apps", ["1", "2"])
async def test_a_version_for_apps_alone_hides_no_other(for_apps: str) -> None:
    server = Server("v", config={**QUIET, "server": {"page_size": 1}})
    for version in ("1", "2"):
        ui = ToolUi("ui://v/x", visibility=("app",)) if version == for_apps else None
        add(server, version, ui=ui)
    add(server, "1", "other")
    server.app("ui://v/x")(lambda: "<p></p>")
    async with TestClient(server) as client:
        first = await client.request("tools/list")
        shown = first["tools"][0]
        assert (shown["name"], shown["version"]) == ("find", "1" if for_apps == "2" else "2")
        assert VERSIONS not in shown.get("_meta", {})
        after = await client.request("tools/list", {"cursor": first["nextCursor"]})
        assert after["tools"][0]["name"] != "find"


@pytest.mark.rule("VERS-03")
def test_a_registry_that_had_a_version_before_keeps_more() -> None:
    registry = ToolRegistry()
    for name in ("find", "other"):
        registry.register(definition("1", name), lambda arguments, context: "1")
    rig = ServerFixture(tool_registry=registry)
    rig.server.disable("other")
    rig.server.register(definition("2"), lambda arguments, context: "2", inline=True)
    peer = connect(rig)
    assert listed(peer) == {"find": ["2", "1"]}
    rig.server.enable("other@1")
    assert listed(peer) == {"find": ["2", "1"], "other": ["1"]}
    with pytest.raises(RegistrationError, match="is already registered"):
        rig.server.register(definition("1.0", "other"), lambda arguments, context: "2")


@pytest.mark.rule("VERS-03", "ADMIN-07")
async def test_no_client_registers_a_newer_version() -> None:
    config = {
        "tools": {"admin_registration_enabled": True, "admin_policy": {"mode": "local_stdio_only"}},
        "security": {"dynamic_registration_enabled": True},
    }
    server = Server("v", config={**QUIET, **config})
    add(server, "1")
    _ = server.runtime  # which adds the tool
    handler = server.get("admin/registerTool")
    assert handler is not None
    made = {"name": "find", "description": "", "toolType": "echo", "version": "9"}
    with pytest.raises(ToolError, match="static and can't be replaced"):
        handler.handler(made, None)


def test_a_server_without_versions_takes_the_way_that_it_took() -> None:
    server = Server("v")
    add(server, None)
    registry = server.runtime.registry
    tool = registry.get("find")
    assert type(registry) is ToolRegistry
    assert registry.get == registry._entries.get
    assert tool is not None and not tool.is_restricted and tool.choose is None
