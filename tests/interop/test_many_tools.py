"""A server that lists three tools instead of all, and official clients that use the others."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp_types import TextContent

from tests.interop import inspector
from tests.lab.servers.process import command, environment

APP = """
from foundation_rt import Server

server = Server("many", version="1.0.0", config={"tools": {"expose": "search", "pinned": ["add"]}})


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.tool
def multiply_numbers(a: int, b: int) -> int:
    '''Return the product.'''
    return a * b


@server.prompt
def review(language: str) -> str:
    return f"Review {language}."


@server.resource("notes://today")
def today() -> str:
    return "milk"


server.expose_prompts_as_tools()
server.expose_resources_as_tools()
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "many.py"
    path.write_text(APP)
    return path


@pytest.mark.rule("SEARCH-01", "SEARCH-03", "PROMPT-12", "MRES-27")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_official_python_client_finds_and_calls(app: Path, mode: str) -> None:
    program, *words = command("serve", str(app))
    server = stdio_client(StdioServerParameters(command=program, args=words, env=environment()))
    async with Client(server, mode=mode) as client:

        async def call(tool: str, **arguments: object) -> str:
            result = await client.call_tool("call_tool", {"name": tool, "arguments": arguments})
            assert not result.is_error
            [block] = result.content
            assert isinstance(block, TextContent)
            return block.text

        listed = [each.name for each in (await client.list_tools()).tools]
        assert listed == ["add", "call_tool", "describe_tool", "search_tools"]
        found = await client.call_tool("search_tools", {"query": "product numbers"})
        [block] = found.content
        assert isinstance(block, TextContent)
        assert orjson.loads(block.text)["tools"][0]["name"] == "multiply_numbers"
        assert await call("multiply_numbers", a=6, b=7) == "42"
        assert await call("read_resource", uri="notes://today") == "milk"
        prompt = orjson.loads(await call("get_prompt", name="review", arguments={"language": "C"}))
        assert prompt["messages"][0]["content"]["text"] == "Review C."


@pytest.mark.rule("SEARCH-03")
def test_inspector_calls_a_tool_by_another(app: Path, home: Path) -> None:
    words = ("--cli", *command("serve", str(app)), "--method", "tools/call")
    given = ("--tool-name", "call_tool", "--tool-arg", "name=add", 'arguments={"a":1,"b":2}')
    result = inspector.run(home, inspector.LAUNCHER, *words, *given)
    assert result["content"][0]["text"] == "3"
