"""Programs of other libraries, rewritten: what changes, what stays, what a person decides."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt.cli.main import main
from foundation_rt.migration.migrate import NotPythonError, migrate_source
from foundation_rt.testing import TestClient
from tests.support.core import INITIALIZE

FASTMCP = '''\
"""Notes."""

from dataclasses import dataclass

from fastmcp import Context, FastMCP  # the server
from fastmcp.exceptions import ToolError
from fastmcp.utilities.types import Image as Picture

mcp = FastMCP("notes", instructions="Be brief.", on_duplicate="error")


@dataclass
class Text:
    words: str


@mcp.tool("add", annotations={"readOnlyHint": True}, timeout=2)
async def add_note(text, ctx: Context) -> str:
    # kept as it is
    await ctx.set_state("last", text)
    if not text:
        raise ToolError("A note has words.")
    return ctx.session_id or "none"


@mcp.tool
def picture() -> Picture:
    return Picture(data=b"...", format="png")


@mcp.resource(uri="notes://all")
def everything() -> str:
    return "none yet"


@mcp.prompt()
def sum_up(topic):
    return f"Sum up {topic}."


if __name__ == "__main__":
    mcp.run(transport="http", port=9000)
'''

LOW_LEVEL = """\
import asyncio

import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import AnyUrl

app = Server("low")


@app.list_tools()
async def list_tools() -> list[types.Tool]:
    return [types.Tool(name="echo", inputSchema={"type": "object"})]


@app.call_tool()
async def call_tool(name: str, arguments: dict) -> list[types.TextContent]:
    if name != "echo":
        raise ValueError(name)
    return [types.TextContent(type="text", text=str(arguments))]


@app.list_resources()
async def list_resources() -> list[types.Resource]:
    return [types.Resource(uri=AnyUrl("file:///a"), name="a")]


@app.read_resource()
async def read_resource(uri: AnyUrl) -> str:
    return f"contents of {uri}"


@app.list_prompts()
async def list_prompts() -> list[types.Prompt]:
    return [types.Prompt(name="greet", arguments=[types.PromptArgument(name="who")])]


@app.get_prompt()
async def get_prompt(name: str, arguments: dict[str, str] | None = None) -> types.GetPromptResult:
    content = types.TextContent(type="text", text=f"Greet {(arguments or {}).get('who')}.")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])


async def main():
    async with stdio_server() as (read, write):
        await app.run(read, write, app.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
"""

LOW_LEVEL_2 = """\
from mcp.server import Server, ServerRequestContext
import mcp.types as types

ECHO = types.Tool(name="echo", description="Echo.", input_schema={"type": "object"})


async def list_tools(
    ctx: ServerRequestContext, params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[ECHO])


async def call_tool(
    ctx: ServerRequestContext, params: types.CallToolRequestParams
) -> types.CallToolResult:
    text = f"{params.name} {params.arguments}"
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


app = Server("low", on_list_tools=list_tools, on_call_tool=call_tool)
"""


def defined(text: str) -> dict[str, Any]:
    """Run a migrated program as a module, and return its names."""
    names: dict[str, Any] = {"__name__": "migrated"}
    exec(compile(text, "migrated.py", "exec", dont_inherit=True), names)
    return names


@pytest.mark.rule("MIGR-02", "MIGR-03", "MIGR-04")
async def test_program_of_fastmcp_runs_and_keeps_its_comments() -> None:
    result = migrate_source(FASTMCP)
    assert result.libraries == ("fastmcp",)
    assert result.open_findings == ()
    assert "# kept as it is" in result.text and "fastmcp" not in result.text
    assert "mcp.run_http(port=9000, no_auth=True)" in result.text
    assert any("no_auth" in each.text for each in result.findings)
    server = defined(result.text)["mcp"]
    async with TestClient(server) as client:
        listed = {each["name"]: each for each in (await client.request("tools/list"))["tools"]}
        assert {"add", "picture"} <= set(listed)
        assert listed["add"]["annotations"] == {"readOnlyHint": True}
        assert await client.read_resource("notes://all") == "none yet"
        [message] = await client.get_prompt("sum_up", topic="tea")
        assert message["content"]["text"] == "Sum up tea."
        assert (await client.call("picture"))["content"][0]["mimeType"] == "image/png"


@pytest.mark.rule("MIGR-05")
async def test_handlers_of_low_level_server_answer() -> None:
    result = migrate_source(LOW_LEVEL)
    assert result.open_findings == ()
    assert "mcp" not in result.text
    async with TestClient(defined(result.text)["app"]) as client:
        assert "{'a': 1}" in str(await client.call("echo", a=1))
        assert await client.read_resource("file:///a") == "contents of file:///a"
        [message] = await client.get_prompt("greet", who="Ann")
        assert message["content"]["text"] == "Greet Ann."


@pytest.mark.rule("MIGR-05")
async def test_handlers_of_second_low_level_server_answer() -> None:
    result = migrate_source(LOW_LEVEL_2)
    assert result.open_findings == ()
    async with TestClient(defined(result.text)["app"]) as client:
        assert "echo {'a': 1}" in str(await client.call("echo", a=1))


@pytest.mark.rule("MIGR-05")
def test_migrated_program_serves_over_stdio(tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text(migrate_source(LOW_LEVEL).text)
    line = INITIALIZE + b"\n"
    done = subprocess.run(
        [sys.executable, str(program)], input=line, capture_output=True, timeout=40, check=True
    )
    assert orjson.loads(done.stdout)["result"]["serverInfo"]["name"] == "low"


@pytest.mark.rule("MIGR-02")
def test_name_that_is_taken_is_imported_under_another() -> None:
    text = "from mcp.types import TextContent\n\nclass Text: ...\n\nx = TextContent(text='a')\n"
    changed = migrate_source(text).text
    assert "from foundation_rt import Text as McpText" in changed
    assert "x = McpText(text='a')" in changed


CHANGES = {
    "data = ctx.request_context.lifespan_context.db": "data = ctx.state.db",
    "await ctx.session.send_tool_list_changed()": 'mcp.list_changed("tools")',
    "x = await ctx.elicit('a', schema=int)": "x = await ctx.elicit('a', response_type=int)",
    "await ctx.info('a', extra={'b': 1})": "await ctx.info('a', **{'b': 1})",
    "x = await ctx.get_state('a')": "x = ctx.session_state.get('a')",
    "await ctx.session.send_log_message(level='info', data=1)": "ctx.log(level='info', data=1)",
    "x = await ctx.session.create_message(messages='a', max_tokens=1)": (
        "x = await ctx.sample(messages='a', max_tokens=1)"
    ),
}


@pytest.mark.rule("MIGR-04")
@pytest.mark.parametrize("before", CHANGES)
def test_what_context_has_is_named_as_here(before: str) -> None:
    head = "from mcp.server.fastmcp import Context, FastMCP\nmcp = FastMCP()\n"
    result = migrate_source(f"{head}async def f(ctx: Context):\n    {before}\n")
    assert CHANGES[before] in result.text
    assert result.open_findings == ()


SERVER = "from fastmcp import Context, FastMCP\nmcp = FastMCP()\n"
PROVIDER = "from fastmcp.server.auth.providers.github import GitHubProvider\n"
DECISIONS = {
    f"{PROVIDER}GitHubProvider()\n": (2, "OAuth"),
    f"{SERVER}other = FastMCP('a', auth=mcp)\n": (3, "auth=mcp"),
    f"{SERVER}async def f(ctx: Context):\n    ctx.transport\n": (4, "transport"),
    "from mcp import ClientSession\nClientSession()\n": (2, "foundation_rt.client.connect"),
    f"{SERVER}@mcp.custom_route('/a')\nasync def f(r): ...\n": (3, "http_app"),
}


@pytest.mark.rule("MIGR-07")
@pytest.mark.parametrize("text", DECISIONS)
def test_what_has_no_counterpart_stays_and_is_listed(text: str) -> None:
    line, words = DECISIONS[text]
    result = migrate_source(text)
    assert [(each.line, words in each.text) for each in result.open_findings] == [(line, True)]
    kept = (
        text.splitlines()[line - 1].replace("FastMCP", "Server").replace("Context", "ToolContext")
    )
    assert kept.strip() in result.text


@pytest.mark.rule("MIGR-03")
def test_run_inside_of_an_event_loop_is_listed() -> None:
    text = f"{SERVER}async def f():\n    await mcp.run_async()\n    await g()\n"
    [finding] = migrate_source(text).open_findings
    assert finding.line == 4 and "event loop" in finding.text


@pytest.mark.rule("MIGR-08")
@pytest.mark.parametrize("text", [FASTMCP, LOW_LEVEL, LOW_LEVEL_2, *DECISIONS])
def test_second_migration_changes_nothing(text: str) -> None:
    once = migrate_source(text).text
    assert migrate_source(once).text == once


@pytest.mark.rule("MIGR-01")
def test_file_of_no_library_is_not_changed() -> None:
    text = "import os\nserver = FastMCP( 'a' )\n"
    assert migrate_source(text).text == text
    with pytest.raises(NotPythonError, match="line 2"):
        migrate_source("x = 1\ndef :\n")


@pytest.mark.rule("MIGR-01", "MIGR-06")
def test_command_prints_a_diff_or_writes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "app.py"
    program.write_text(FASTMCP)
    assert main(["migrate", str(program)]) == 0
    out, err = capfd.readouterr()
    assert "-from fastmcp import Context, FastMCP" in out and "+from foundation_rt import" in out
    assert "note: no_auth" in err
    assert program.read_text() == FASTMCP
    assert main(["migrate", str(tmp_path), "--write"]) == 0
    assert program.read_text() == migrate_source(FASTMCP).text
    assert main(["migrate", str(program)]) == 0
    assert "nothing to do" in capfd.readouterr().err


@pytest.mark.rule("MIGR-06")
def test_command_fails_while_there_is_something_to_decide(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "app.py"
    program.write_text("from mcp import ClientSession\nClientSession()\n")
    assert main(["migrate", str(program)]) == 1
    assert f"{program}:2: decide: mcp.ClientSession" in capfd.readouterr().err
    broken = tmp_path / "broken.py"
    broken.write_text("def :")
    assert main(["migrate", str(broken), str(tmp_path / "none.py")]) == 1
    err = capfd.readouterr().err
    assert "broken.py: not Python: line 1" in err and "none.py: No such file" in err
    assert main(["migrate"]) == 2
