"""Tools that FastMCP transforms, and versions of tools, as programs of ours."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt import Server
from foundation_rt.apps.migration.migrate import migrate_source
from foundation_rt.testing import TestClient

HEAD = '''\
from fastmcp import Context, FastMCP
from fastmcp.server.transforms import Namespace, PromptsAsTools, ToolTransform, VersionFilter
from fastmcp.tools import Tool
from fastmcp.tools.tool_transform import ArgTransform, ToolTransformConfig

mcp = FastMCP("shop")


@mcp.tool(annotations={"readOnlyHint": True})
def search(q: str, category: str = "all", limit: int = 3, *, page: int = len("a")) -> list:
    """Search."""
    return [q, category, limit]


'''


def migrated(text: str) -> Server:
    """Return the server of a program that is rewritten without anything to decide."""
    result = migrate_source(text)
    assert result.open_findings == ()
    assert "fastmcp" not in result.text
    names: dict[str, Any] = {"__name__": "migrated"}
    exec(compile(result.text, "migrated.py", "exec", dont_inherit=True), names)
    server = names["mcp"]
    assert isinstance(server, Server)
    return server


MADE = """\
find = Tool.from_tool(
    search,
    name="find",
    description="Find products.",
    tags={"a"},
    transform_args={
        "q": ArgTransform(name="query", description="Words.", default=...),
        "category": ArgTransform(hide=True, default="toys"),
        "limit": ArgTransform(hide=True),
    },
)
mcp.add_tool(find)
"""


@pytest.mark.rule("MIGR-25")
async def test_a_tool_that_is_made_of_a_function_is_mounted() -> None:
    """The answers are those that FastMCP 4.2.3 gives."""
    factory = 'ArgTransform(hide=True, default_factory=lambda: len("ab"))'
    inline = (
        f'mcp.add_tool(Tool.from_tool(search, transform_args={{"limit": {factory}}}, name="a-b"))'
    )
    server = migrated(f"{HEAD}{MADE}{inline}\n")
    async with TestClient(server) as client:
        tools = {each["name"]: each for each in (await client.request("tools/list"))["tools"]}
        assert tools.keys() == {"find", "a-b", "search", "health"}
        assert tools["find"]["description"] == "Find products."
        assert tools["find"]["annotations"] == {"readOnlyHint": True}
        assert tools["find"]["inputSchema"]["properties"].keys() == {"query", "page"}
        assert tools["find"]["inputSchema"]["properties"]["query"]["description"] == "Words."
        assert tools["a-b"]["description"] == "Search."
        assert await client.call("find", query="tea") == ["tea", "toys", 3]
        assert await client.call("a-b", q="tea") == ["tea", "all", 2]
        assert await client.call("search", q="tea") == ["tea", "all", 3]


OTHER = """\
stock = FastMCP("stock")


@stock.tool
def count(item: str, place: str = "x") -> int:
    return len(item) + len(place)


"""
CONFIG = """ToolTransformConfig(
    name="how_many", arguments={"item": {"name": "thing"}, "place": {"hide": True, "default": "yy"}}
)"""


@pytest.mark.rule("MIGR-25")
@pytest.mark.parametrize(
    "text",
    [
        f'stock.add_transform(ToolTransform({{"count": {CONFIG}}}))\nmcp.mount(stock, "st")\n',
        f'mcp.mount(stock, namespace="st")\nstock.add_tool_transformation("count", {CONFIG})\n',
    ],
)
async def test_what_a_server_transforms_moves_to_its_mount(text: str) -> None:
    async with TestClient(migrated(HEAD + OTHER + text)) as client:
        assert await client.call("st_how_many", thing="a") == 3
        assert (await client.request("tools/call", {"name": "st_count"}))["isError"]


@pytest.mark.rule("MIGR-25")
async def test_a_tool_that_is_made_has_the_options_of_the_other_one() -> None:
    text = '@mcp.tool(name="look", version="1", title="Look", description="It looks.")\n'
    text += "def see(a: int) -> int:\n    return a\n"
    text += 'stock.add_tool(Tool.from_tool(see, title="See"))\nmcp.mount(stock, "st")\n'
    async with TestClient(migrated(HEAD + OTHER + text)) as client:
        tools = {each["name"]: each for each in (await client.request("tools/list"))["tools"]}
        assert tools["st_look"]["title"] == "See"
        assert tools["st_look"]["description"] == "It looks."
        assert await client.call("st_look", a=1) == 1


@pytest.mark.rule("MIGR-25")
async def test_names_of_a_mount_are_a_transform() -> None:
    text = f'{HEAD}{OTHER}mcp.mount(stock, tool_names={{"count": "number"}})\n'
    text += "mcp.add_transform(PromptsAsTools(mcp))\n"
    async with TestClient(migrated(text)) as client:
        assert await client.call("number", item="a") == 2
        assert await client.call("list_prompts") == {"prompts": []}


@pytest.mark.rule("MIGR-25")
def test_a_transform_of_an_api_is_given_where_it_is_made() -> None:
    text = "mcp = FastMCP.from_openapi({}, client)\n"
    text += 'mcp.add_transform(ToolTransform({"a": C(name="b")}))\nmcp.run(transport="http")\n'
    head = "from fastmcp import FastMCP\nfrom fastmcp.server.transforms import ToolTransform\n"
    head += "from fastmcp.tools.tool_transform import ToolTransformConfig as C\n"
    changed = migrate_source(head + text).text
    wanted = '(document={}, client=client, transform=Transform({"a": {"as": "b"}}))\nmcp.run_http('
    assert wanted in changed


OPEN = {
    'mcp.add_transform(ToolTransform({"a": ToolTransformConfig(name="b")}))': (
        'write mount(mcp, transform=Transform({"a": {"as": "b"}}))'
    ),
    'mcp.add_transform(Namespace("a"))': "give a prefix where the server is mounted",
    'mcp.add_transform(VersionFilter(version_lt="2"))': 'server.disable("NAME@VERSION")',
    "mcp.add_transform(found)": "shape tools where they join",
    'mcp.add_tool_transformation("a", found)': "write the ToolTransformConfig out",
    'mcp.add_tool_transformation("a", ToolTransformConfig(enabled=False))': "server.disable",
    "mcp.add_tool(Tool.from_tool(search, transform_fn=search))": "give it as `call`",
    "mcp.add_tool(Tool.from_tool(other))": "make it of a function of this file",
    "x = Tool.from_tool(search)": "add it to a server of this file",
    "x = Tool.from_tool(search)\nmcp.add_tool(x)\nprint(x)": "x is a server of one tool now",
    'mcp.add_tool(Tool.from_tool(search, transform_args={"q": ArgTransform(type=int)}))': "type=",
    'mcp.add_tool(Tool.from_tool(search, transform_args={"q": ArgTransform(hide=True)}))': "'q' is",
    'mcp.add_tool(Tool.from_tool(search, transform_args={"page": {"hide": True}}))': "'page' is",
    "mcp.add_tool(Tool.from_tool(search, transform_args=found))": "write found out, as a dict",
    "mcp.add_tool(Tool.from_tool(search, **found))": "its arguments by name",
    'mcp.mount(o, "o", tool_names={"a": "b"})': "names begin with the prefix here",
    "mcp.mount(**found)": "look at what found passes",
    "mcp.mount(mcp, tool_names={**found})": "write the dict out, without **",
    "@mcp.tool\ndef f(ctx: Context) -> int: ...\nmcp.add_tool(Tool.from_tool(f))": "ctx.state",
    '@mcp.tool(version="latest")\ndef f() -> int: ...': "it begins with a digit here",
    'mcp.disable(version="1")': 'give the name of one version of a tool: "NAME@VERSION"',
}


@pytest.mark.rule("MIGR-25", "MIGR-26", "MIGR-07")
@pytest.mark.parametrize("text", OPEN)
def test_what_cannot_be_rewritten_is_listed_with_what_to_write(text: str) -> None:
    result = migrate_source(f"{HEAD}{text}\n")
    assert any(OPEN[text] in each.text for each in result.open_findings)


@pytest.mark.rule("MIGR-25", "MIGR-07")
def test_each_transform_that_cannot_be_rewritten_has_a_reason_of_its_own() -> None:
    lines = 'mcp.add_transform(Namespace("a"))', "mcp.add_transform(found)"
    found = migrate_source(HEAD + "\n".join(lines) + "\n").open_findings
    said = [each.text for each in found if each.text.startswith("mcp.add_transform(): ")]
    assert len(said) == 2 and OPEN[lines[0]] in said[0] and OPEN[lines[1]] in said[1]


@pytest.mark.rule("MIGR-25")
def test_a_transform_never_moves_before_what_it_uses() -> None:
    text = f'{HEAD}{OTHER}mcp.mount(stock)\nNAME = "a"\n'
    text += 'stock.add_transform(ToolTransform({"count": ToolTransformConfig(name=NAME)}))\n'
    found = migrate_source(text).open_findings
    assert any("move it, and NAME, before the server is mounted" in each.text for each in found)


VERSIONS = """\
@mcp.tool("find", version=1)
def one() -> list:
    return [1]


@mcp.tool(name="find", version="v2.0")
def two() -> list:
    return [2]


@mcp.tool(name="find", version="3")
def three() -> list:
    return [3]


mcp.local_provider.remove_tool("find", version="3")
"""


@pytest.mark.rule("MIGR-26")
async def test_versions_are_called_by_clients_of_fastmcp() -> None:
    async with TestClient(migrated(HEAD + VERSIONS)) as client:
        for meta, wanted in (({}, "[2]"), ({"fastmcp": {"version": "1"}}, "[1]")):
            result = await client.request("tools/call", {"name": "find", "_meta": meta})
            assert result["content"][0]["text"] == wanted
    [note] = migrate_source(HEAD + VERSIONS).findings
    assert 'version="v2.0" became "2.0"' in note.text
    kept = migrate_source(
        HEAD + "mcp.remove_tool(name, version=v)\n@mcp.tool(version=v)\ndef f(): ..."
    )
    assert 'mcp.unregister(name + "@" + v)' in kept.text
    assert "@mcp.tool(version=v)" in kept.text
