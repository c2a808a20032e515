"""Programs of other libraries, rewritten: what changes, what stays, what a person decides."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient as StarletteClient

from foundation_rt.cli.main import main
from foundation_rt.migration.migrate import NotPythonError, migrate_source
from foundation_rt.testing import ProtocolError, TestClient
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
    "await ctx.request_context.session.send_resource_updated('a:b')": "mcp.resource_updated('a:b')",
    "x = ctx.request_context.request_id": "x = ctx.run_id",
    "x = ctx.request_context.meta.progressToken": 'x = ctx.call.meta.get("progressToken")',
    "x = ctx.meta.progress_token if ctx.meta else 0": (
        'x = ctx.call.meta.get("progressToken") if ctx.call.meta else 0'
    ),
    "x = ctx.request_context.meta.get('a')": "x = ctx.call.meta.get('a')",
    "x = ctx.request_context.protocol_version": "x = ctx.client.revision.name",
    "x = (await ctx.session.list_roots()).roots": "x = (await ctx.roots())",
    "x = await ctx.session.list_roots(); y = x.roots": "x = await ctx.roots(); y = x",
    "x = ctx.close_sse_stream is None": "x = ctx.close_stream is None",
    "x = V.LATEST_MODERN_VERSION": 'x = "2026-07-28"',
    "x = await ctx.elicit('a', schema=int)": "x = await ctx.elicit('a', response_type=int)",
    "await ctx.info('a', extra={'b': 1})": "await ctx.info('a', **{'b': 1})",
    "x = await ctx.get_state('a')": "x = ctx.session_state.get('a')",
    "await ctx.session.send_log_message(level='info', data=1)": "ctx.log(level='info', data=1)",
    "x = await ctx.session.create_message(messages='a', max_tokens=1)": (
        "x = await ctx.sample(messages='a', max_tokens=1)"
    ),
}


@pytest.mark.rule("MIGR-04", "MIGR-15")
@pytest.mark.parametrize("before", CHANGES)
def test_what_context_has_is_named_as_here(before: str) -> None:
    head = "from mcp.server.fastmcp import Context, FastMCP\nmcp = FastMCP()\n"
    head += "import mcp.types.version as V\n"
    result = migrate_source(f"{head}async def f(ctx: Context):\n    {before}\n")
    assert CHANGES[before] in result.text
    assert result.open_findings == ()


@pytest.mark.rule("MIGR-15")
def test_other_uses_of_meta_are_listed() -> None:
    head = "from mcp.server.fastmcp import Context, FastMCP\n"
    result = migrate_source(f"{head}def f(ctx: Context):\n    return ctx.meta.model_dump()\n")
    assert ["mapping" in each.text for each in result.open_findings] == [True]


COMPLETION = """\
from mcp.server.{module} import {server}
from mcp.types import Completion, CompletionArgument, CompletionContext
from mcp.types import PromptReference, ResourceTemplateReference

mcp = {server}("shop")


@mcp.prompt()
def review(language: str) -> str:
    return language


@mcp.completion()
async def complete(
    ref: PromptReference | ResourceTemplateReference,
    argument: CompletionArgument,
    context: CompletionContext | None,
) -> Completion | None:
    if not isinstance(ref, PromptReference) or ref.type == "ref/resource":
        return None
    if context is None or argument.name != "language":
        return None
    return Completion(values=[f"{{ref.name}}:{{argument.value}}", *context.arguments], {more}=True)
"""

LOW_LEVEL_COMPLETION = """\
import mcp.types as types
from mcp.server import Server


def build():
    async def list_prompts(ctx, params: types.PaginatedRequestParams):
        prompt = types.Prompt(name="review", arguments=[types.PromptArgument(name="language")])
        return types.ListPromptsResult(prompts=[prompt])

    async def get_prompt(ctx, params: types.GetPromptRequestParams):
        raise NotImplementedError

    async def complete(ctx, params: types.CompleteRequestParams) -> types.CompleteResult:
        values = [f"{params.ref.name}:{params.argument.value}"]
        return types.CompleteResult(completion=types.Completion(values=values, has_more=True))

    return Server(
        "a", on_list_prompts=list_prompts, on_get_prompt=get_prompt, on_completion=complete
    )
"""


@pytest.mark.rule("MIGR-09")
@pytest.mark.parametrize(
    "text",
    [
        COMPLETION.format(module="fastmcp", server="FastMCP", more="hasMore"),
        COMPLETION.format(module="mcpserver", server="MCPServer", more="has_more"),
        f"{LOW_LEVEL_COMPLETION}\n\nmcp = build()\n",
    ],
)
async def test_handler_of_completions_completes(text: str) -> None:
    result = migrate_source(text)
    assert result.findings == ()
    async with TestClient(defined(result.text)["mcp"]) as client:
        assert (await client.complete("review", "language", "py"))[0] == "review:py"


@pytest.mark.rule("MIGR-09")
def test_what_a_handler_of_completions_does_besides_is_listed() -> None:
    text = COMPLETION.format(module="fastmcp", server="FastMCP", more="hasMore")
    result = migrate_source(text.replace("return None", "return ref.values"))
    [finding] = result.open_findings
    assert "look at ref" in finding.text


SERVER = "from fastmcp import Context, FastMCP\nmcp = FastMCP()\n"
ANSWERS = "from fastmcp.server.elicitation import AcceptedElicitation, DeclinedElicitation\n"
ERRORS = "from mcp import McpError\nfrom mcp.types import INVALID_PARAMS, ErrorData\n"
APPS = "from fastmcp.apps import AppConfig, ResourceCSP\n"
FILES = "from fastmcp.utilities.types import File\n"
REPLACED = {
    f"{ANSWERS}y = isinstance(x, AcceptedElicitation)": "y = x.accepted",
    f"{ANSWERS}y = isinstance(x, DeclinedElicitation)": 'y = (x.action == "decline")',
    f"{ANSWERS}match x:\n    case AcceptedElicitation(data=d): ...": (
        'case ElicitResult(action="accept", data=d)'
    ),
    f"{ERRORS}raise McpError(ErrorData(code=INVALID_PARAMS, message='a'))": (
        "raise ToolError(ErrorCode.INVALID_ARGUMENT, 'a')"
    ),
    f"{APPS}@mcp.tool(app=AppConfig(resource_uri=U))\ndef f() -> int: ...": (
        '@mcp.tool(meta={"ui": {"resourceUri": U}})'
    ),
    f"{APPS}@mcp.resource(U, app=AppConfig(csp=ResourceCSP(resource_domains=[])))\ndef f(): ...": (
        'meta={"ui": {"csp": {"resourceDomains": []}}}, mime_type="text/html;profile=mcp-app"'
    ),
    f"{FILES}x = File(path='a')": "Path('a').read_bytes()",
    f"{FILES}x = File(data=b, format='pdf', name=n)": '"file:///" + n + "." + \'pdf\'',
    "async def f(ctx: Context):\n    await ctx.session.report_progress(1)": (
        "await ctx.report_progress(1)"
    ),
    "async def f(ctx: Context):\n    await ctx.notify_resource_updated(u)": (
        "\n    mcp.resource_updated(str(u))"
    ),
    "async def f(ctx: Context):\n    ctx.transport": "    ctx.call.session.transport_type\n",
    "async def f():\n    x = await mcp.list_tools()": "    x = mcp.list()\n",
    "mcp.disable(names={'a'}, tags=t)": "mcp.disable('a', tags=t)",
    "mcp.enable(names=n, only=True)": "mcp.enable(*n, only=True)",
    "b = FastMCP('b', include_tags=t, exclude_tags={'c'})": (
        "b = Server('b')\nb.enable(tags=t, only=True)\nb.disable(tags={'c'})"
    ),
    "from mcp.types import ServerResult\ndef f(x: list[ServerResult]): ...": "x: list[Any]",
}


@pytest.mark.rule("MIGR-02", "MIGR-04", "MIGR-13")
@pytest.mark.parametrize("text", REPLACED)
def test_value_of_theirs_becomes_one_of_ours(text: str) -> None:
    result = migrate_source(f"{SERVER}{text}\n")
    assert REPLACED[text] in result.text
    assert result.open_findings == ()
    assert "fastmcp" not in result.text and "from mcp" not in result.text


@pytest.mark.rule("MIGR-10")
def test_import_that_only_functions_use_moves_into_them() -> None:
    head = "from mcp import Client, ClientSession as S, FastMCP\n"
    text = f'{head}\n\nasync def main():\n    """Try."""\n    async with Client(1): ...\n'
    result = migrate_source(f"{text}\n\nclass A(S): ...\n")
    assert "from mcp import ClientSession as S\n" in result.text
    assert '    """Try."""\n    from mcp import Client\n    async with' in result.text
    assert len(result.open_findings) == 2


MIDDLEWARE = """\
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS

seen = []


async def note(ctx: ServerRequestContext, call_next: CallNext) -> HandlerResult:
    if ctx.method in ("tools/call", "prompts/get") and ctx.params is not None:
        seen.append((ctx.method, ctx.params.get("name"), ctx.params["arguments"]))
    result = await call_next(ctx)
    return result


def only(server: MCPServer) -> ServerMiddleware:
    class Only:
        async def __call__(self, ctx: ServerRequestContext[None], call_next):
            params = ctx.params if isinstance(ctx.params, dict) else {}
            names = [each.name for each in await server.list_prompts()]
            if ctx.method == "prompts/get" and params.get("arguments") == {"topic": names[0]}:
                raise MCPError(INVALID_PARAMS, "no")
            return await call_next(ctx)

    return Only()


mcp = MCPServer("shop", middleware=[note])
mcp.middleware.append(only(mcp))


@mcp.tool()
def buy(item: str) -> str:
    return item


@mcp.prompt()
def praise(topic: str) -> str:
    return topic
"""


@pytest.mark.rule("MIGR-17")
async def test_middleware_of_second_sdk_is_around_calls() -> None:
    result = migrate_source(MIDDLEWARE)
    assert result.open_findings == ()
    assert "from mcp" not in result.text
    names = defined(result.text)
    async with TestClient(names["mcp"]) as client:
        assert "tea" in str(await client.call("buy", item="tea"))
        await client.get_prompt("praise", topic="tea")
        with pytest.raises(ProtocolError, match="no"):
            await client.get_prompt("praise", topic="praise")
    assert names["seen"][:2] == [
        ("tools/call", "buy", {"item": "tea"}),
        ("prompts/get", "praise", {"topic": "tea"}),
    ]


HOST = """\
from typing import Any, TypeAlias

import anyio

from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.stdio import stdio_server

AnyServer: TypeAlias = "MCPServer | Server[Any] | None"


def run(build) -> None:
    anyio.run(serve, build())


async def serve(server: AnyServer) -> None:
    if isinstance(server, MCPServer):
        await server.run_stdio_async()
    else:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
"""


@pytest.mark.rule("MIGR-18")
@pytest.mark.parametrize("union", ["", "MCPServer | Server[Any] | None"])
def test_host_of_servers_of_several_classes_serves_ours(union: str) -> None:
    text = HOST if not union else HOST.replace(f'"{union}"', union)
    result = migrate_source(text)
    assert result.open_findings == ()
    assert ('"Server | None"' in result.text) is (not union)
    assert "    serve(build())\n" in result.text and "\ndef serve(" in result.text
    assert "mcp" not in result.text
    served: list[None] = []
    names = defined(result.text)
    names["run"](lambda: type("Fake", (), {"run": lambda self: served.append(None)})())
    assert served == [None]


PROMPTS = """\
from mcp.server import MCPServer
from mcp.server.mcpserver.prompts import Prompt

mcp = MCPServer("shop")


def first(code: str) -> str:
    return f"first {code}"


mcp.add_prompt(Prompt.from_function(first))
mcp.remove_prompt("first")
mcp.add_prompt(Prompt.from_function(fn=first, name="second", description="Second."))
"""


@pytest.mark.rule("MIGR-14")
async def test_prompts_that_are_added_and_removed_are_registered() -> None:
    result = migrate_source(PROMPTS)
    assert result.findings == () and "from mcp" not in result.text
    server = defined(result.text)["mcp"]
    assert [(each.name, each.description) for each in server.list_prompts()] == [
        ("second", "Second.")
    ]
    async with TestClient(server) as client:
        [message] = await client.get_prompt("second", code="x")
        assert message["content"]["text"] == "first x"


AROUND = {
    "return await call_next(ctx)": "not around handshakes, lists and notifications",
    "log(ctx.method == 'tools/call', 'tools/list'); return await call_next(ctx)": "tools/list",
    "log('tools/call', ctx.session); return await call_next(ctx)": "connection_correlation_id",
    "log('tools/call', ctx.params['_meta']); return await call_next(ctx)": "has no '_meta'",
    "log('tools/call'); return await call_next(replace(ctx))": "give it nothing",
    "r = await call_next(ctx); log('tools/call', r.content); return r": "what the handler returned",
    "log('tools/call'); return {'content': []}": "what a handler may return",
}


@pytest.mark.rule("MIGR-19")
@pytest.mark.parametrize("body", AROUND)
def test_what_middleware_does_besides_is_listed(body: str) -> None:
    head = "from mcp.server import ServerRequestContext\n"
    result = migrate_source(f"{head}async def f(ctx: ServerRequestContext, call_next): {body}\n")
    assert any(AROUND[body] in finding.text for finding in result.open_findings)


BY_HAND = (
    "print(f'{ctx.method} {ctx.params}')",
    "print(f'{ctx.meta.progress_token}')",
    "p = ctx.params if ctx.params and ctx.method == 'tools/call' else {}",
    "p = ctx.params or {}; p.get('_meta')",
    "p = ctx.params or {}; print('uri' in p)",
    "p = ctx.params or {}; p['arguments'] = {}",
    "p = ctx.params or {}; print(p.get('name'), p.get('uri'))",
    "p = dict(ctx.params)",
    "ctx.params = {}",
    "ctx.params['arguments'] = {}",
    "audit(ctx)",
    "await asyncio.wait_for(run(call_next), 5)",
)


@pytest.mark.rule("MIGR-19")
@pytest.mark.parametrize("body", BY_HAND)
def test_what_middleware_means_something_else_by_is_listed(body: str) -> None:
    head = "from mcp.server import ServerRequestContext\n"
    body = f"{body}; print('tools/call'); return await call_next(ctx)"
    result = migrate_source(f"{head}async def f(ctx: ServerRequestContext, call_next): {body}\n")
    assert any("by hand" in finding.text for finding in result.open_findings)


SAME = {
    "print(({0} and a) == b)": "print((a) == b)",
    "print(({0} and a | b) & c)": "print((a | b) & c)",
    "print(not({0} and a))": "print(not(a))",
    "print(\n (\n {0}\n and a))": "print(\n (\n a))",
}


@pytest.mark.rule("MIGR-17")
@pytest.mark.parametrize("there", ["ctx.params", "ctx.params is not None"])
@pytest.mark.parametrize("text", SAME)
def test_parentheses_stay_where_params_are_there(text: str, there: str) -> None:
    head = "from mcp.server import ServerRequestContext\n"
    head += "async def f(ctx: ServerRequestContext, call_next):\n    print('tools/call')\n    "
    result = migrate_source(f"{head}{text.format(there)}\n    return await call_next(ctx)\n")
    assert result.open_findings == ()
    assert "".join(SAME[text].split()) in "".join(result.text.split())
    compile(result.text, "migrated", "exec")


@pytest.mark.rule("MIGR-19")
@pytest.mark.parametrize(
    "registered",
    ["middleware=[note]", "middleware=[*common, note]", "middleware=[partial(note, 1)]"],
)
def test_middleware_that_was_not_rewritten_is_listed(registered: str) -> None:
    result = migrate_source(
        "from mcp.server.mcpserver import MCPServer\n"
        "async def note(ctx, call_next): return await call_next(ctx)\n"
        f"mcp = MCPServer('a', {registered})\n"
    )
    assert any("@server.middleware" in finding.text for finding in result.open_findings)


@pytest.mark.rule("MIGR-18")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LIBRARY: str = 'FastMCP'", "LIBRARY: str = 'FastMCP'"),
        ("X: TypeAlias = 'FastMCP | dict[str, int]'", 'X: TypeAlias = "Server | dict[str, int]"'),
        (
            "X: TypeAlias = 'FastMCP | Callable[[int | str], None]'",
            'X: TypeAlias = "Server | Callable[[int | str], None]"',
        ),
    ],
)
def test_texts_are_types_where_they_are_said_to_be(text: str, expected: str) -> None:
    head = "from typing import TypeAlias\nfrom fastmcp import FastMCP\n"
    assert expected in migrate_source(f"{head}{text}\nmcp = FastMCP('a')\n").text


@pytest.mark.rule("MIGR-17")
def test_middleware_of_fastmcp_is_listed() -> None:
    result = migrate_source("from fastmcp import FastMCP\nmcp = FastMCP(middleware=[f])\n")
    [finding] = result.open_findings
    assert "@server.middleware" in finding.text


PAGES = """\
import mcp.types as types
from mcp.server.lowlevel import Server

app = Server("low")


@app.list_resources()
async def list_resources(request: types.ListResourcesRequest) -> types.ListResourcesResult:
    cursor = request.params.cursor if request.params is not None else None
    first = int(cursor or 0)
    entries = [types.Resource(uri=f"a://{n}", name=str(n)) for n in range(first, first + 2)]
    after = str(first + 2) if first < 4 else None
    return types.ListResourcesResult(resources=entries, nextCursor=after)
"""
PAGES_2 = """\
from mcp.server import Server
import mcp_types as types


async def list_resources(ctx, params: types.PaginatedRequestParams | None):
    first = 0
    if params is not None and params.cursor is not None:
        first = int((params and params.cursor) or 0)
    entries = [types.Resource(uri=f"a://{n}", name=str(n)) for n in range(first, first + 2)]
    after = str(first + 2) if first < 4 else None
    return types.ListResourcesResult(resources=entries, next_cursor=after)


app = Server("low", on_list_resources=list_resources)
"""


@pytest.mark.rule("MIGR-12")
@pytest.mark.parametrize("text", [PAGES, PAGES_2])
async def test_entries_of_all_pages_are_listed(text: str) -> None:
    result = migrate_source(text)
    [finding] = result.findings
    assert "without read_resource" in finding.text and not finding.is_open
    async with TestClient(defined(result.text)["app"]) as client:
        listed = (await client.request("resources/list"))["resources"]
        assert [each["uri"] for each in listed] == [f"a://{n}" for n in range(6)]
        with pytest.raises(Exception, match="no handler answers"):
            await client.read_resource("a://1")


@pytest.mark.rule("MIGR-12")
def test_what_a_handler_of_pages_does_besides_is_listed() -> None:
    text = PAGES.replace("    first =", "    print(request.method)\n    first =")
    [finding] = migrate_source(text).open_findings
    assert "look at request" in finding.text
    alone = PAGES.replace("list_resources()", "get_prompt()")
    assert any("without list_prompts" in each.text for each in migrate_source(alone).open_findings)


MANAGER = """\
from starlette.applications import Starlette
from starlette.routing import Mount
from mcp.server.streamable_http import EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager


class Store(EventStore):
    async def replay_events_after(self, last_event_id): ...


manager = StreamableHTTPSessionManager(
    app=app, event_store=Store(), json_response=True, stateless=True
)


async def handle(scope, receive, send):
    await manager.handle_request(scope, receive, send)


def lifespan(host):
    return manager.run()


web = Starlette(routes=[Mount("/mcp", app=handle)], lifespan=lifespan)
"""


@pytest.mark.rule("MIGR-11")
def test_manager_of_sessions_becomes_an_application() -> None:
    result = migrate_source(LOW_LEVEL + MANAGER)
    assert result.open_findings == ()
    assert "class Store:" in result.text and "mcp.server" not in result.text
    names = defined(result.text)
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    with StarletteClient(names["web"], base_url="http://127.0.0.1") as client:
        response = client.post("/mcp/", content=INITIALIZE, headers=headers)
    assert response.json()["result"]["serverInfo"]["name"] == "low"


@pytest.mark.rule("MIGR-11")
def test_manager_that_a_server_has_is_its_lifetime() -> None:
    text = f"{SERVER}app = mcp.streamable_http_app()\nrun = mcp.session_manager.run()\n"
    result = migrate_source(text)
    assert "run = mcp.lifetime()" in result.text and result.open_findings == ()
    [finding] = migrate_source(f"{SERVER}mcp.session_manager.handle_request\n").open_findings
    assert "asgi_app" in finding.text
    guarded = MANAGER.replace("stateless=True", "security_settings=f")
    assert any("http.allowed_hosts" in f.text for f in migrate_source(guarded).open_findings)


@pytest.mark.rule("MIGR-04")
async def test_transport_of_a_call_is_a_text() -> None:
    text = f"{SERVER}@mcp.tool\nasync def f(ctx: Context) -> str:\n    return ctx.transport\n"
    async with TestClient(defined(migrate_source(text).text)["mcp"]) as client:
        assert await client.call("f") == "memory"


@pytest.mark.rule("MIGR-05")
async def test_uri_is_compared_with_those_of_definitions() -> None:
    text = LOW_LEVEL.replace('f"contents of {uri}"', 'str(uri == "file:///a")')
    async with TestClient(defined(migrate_source(text).text)["app"]) as client:
        assert await client.read_resource("file:///a") == "True"
    taken_apart = LOW_LEVEL.replace('f"contents of {uri}"', "uri.path")
    async with TestClient(defined(migrate_source(taken_apart).text)["app"]) as client:
        assert await client.read_resource("file:///a") == "/a"


@pytest.mark.rule("MIGR-05")
def test_handlers_of_the_server_inside_are_listed_as_not_called() -> None:
    level = "@mcp._mcp_server.set_logging_level()\nasync def f(level): ...\n"
    result = migrate_source(f"{SERVER}{level}mcp._mcp_server.subscribe_resource()(f)\n")
    [finding] = result.open_findings
    assert finding.line == 5 and "not called any more" in finding.text
    assert "_mcp_server" not in result.text


@pytest.mark.rule("MIGR-05")
def test_handler_of_subscriptions_is_listed_as_not_called() -> None:
    text = LOW_LEVEL.replace(
        "@app.list_prompts()", "@app.subscribe_resource()\nasync def s(u): ..."
    )
    [finding, *_] = migrate_source(text).open_findings
    assert "not called any more" in finding.text


PROVIDER = "from fastmcp.server.auth.providers.github import GitHubProvider\n"
DECISIONS = {
    f"{PROVIDER}GitHubProvider()\n": (2, "OAuth"),
    f"{SERVER}other = FastMCP('a', auth=mcp)\n": (3, "auth=mcp"),
    f"{SERVER}async def f(ctx: Context):\n    ctx.client_id\n": (4, "principal"),
    f"{SERVER}mcp.enable(keys={{'tool:a'}})\n": (3, "names of tools"),
    f"{SERVER}async def f(c: Context):\n  x = await c.read_resource(u)\n  x[0].content\n": (
        5,
        ".blob",
    ),
    f"{SERVER}async def f(c: Context):\n  [x] = await c.read_resource(u)\n  x.content\n": (
        5,
        ".blob",
    ),
    f"{SERVER}async def f(c: Context):\n  x = await c.read_resource(u)\n  for e in x:\n"
    "    e.content\n": (6, ".blob"),
    f"{SERVER}@mcp.tool(enabled=False)\ndef f(): ...\n": (3, 'server.disable("NAME")'),
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


@pytest.mark.rule("MIGR-03", "MIGR-07")
@pytest.mark.parametrize(
    ("call", "kept", "words"),
    [
        ("http_app(middleware=[f])", "mcp.asgi_app(middleware=[f])", "wrap server.asgi_app()"),
        ("run('http', auth=f)", "mcp.run_http(auth=f)", "OAuth"),
        ("run('http', uvicorn_config=f)", "uvicorn_config=f, no_auth=True)", "with uvicorn"),
        ("run('http', **f)", "**f", "look at what"),
    ],
)
def test_option_of_serving_stays_and_is_listed(call: str, kept: str, words: str) -> None:
    result = migrate_source(f"{SERVER}f = {{}}\nmcp.{call}\n")
    [finding] = result.open_findings
    assert finding.line == 4 and words in finding.text
    assert kept in result.text


@pytest.mark.rule("MIGR-03")
@pytest.mark.parametrize("how", ["run('http')", "http_app()"])
def test_server_that_asked_for_a_login_is_never_opened(how: str) -> None:
    protected = SERVER.replace("FastMCP()", "FastMCP(auth=f)")
    assert "no_auth" not in migrate_source(f"{protected}mcp.{how}\n").text


@pytest.mark.rule("MIGR-03", "MIGR-14")
def test_allowed_hosts_become_settings() -> None:
    text = (
        "from mcp.server.mcpserver import MCPServer\n"
        "from mcp.server.transport_security import TransportSecuritySettings\n"
        "HOSTS = TransportSecuritySettings(\n"
        "    enable_dns_rebinding_protection=True, allowed_hosts=['a.example']\n"
        ")\n"
        "def make() -> object:\n"
        "    server = MCPServer('a')\n"
        "    # the application\n"
        "    return server.streamable_http_app(transport_security=HOSTS)\n"
        "other = MCPServer('b', transport_security=HOSTS)\n"
    )
    result = migrate_source(text)
    assert not result.open_findings
    assert "    # the application\n    server.set_defaults(" in result.text
    namespace: dict[str, Any] = {}
    exec(result.text, namespace)
    assert namespace["other"].load_config().http.allowed_hosts == ("a.example",)
    with StarletteClient(namespace["make"]()) as client:
        accept = "application/json, text/event-stream"
        headers = {"host": "a.example", "accept": accept, "content-type": "application/json"}
        assert client.post("/mcp", content=INITIALIZE, headers=headers).status_code == 200
        assert (
            client.post("/mcp", content=INITIALIZE, headers={**headers, "host": "b"}).status_code
            == 421
        )


@pytest.mark.rule("MIGR-14")
async def test_resources_that_are_added_are_registered() -> None:
    text = (
        "from fastmcp import FastMCP\n"
        "from fastmcp.resources import BinaryResource, FunctionResource, TextResource\n"
        "mcp = FastMCP('a')\n"
        "for each in 'ab':\n"
        "    mcp.add_resource(TextResource(uri=f'a:{each}', text=each, mime_type='text/x'))\n"
        "mcp.add_resource(BinaryResource(uri='b:c', name='c', data=b'c'))\n"
        "mcp.add_resource(FunctionResource(uri='f:d', name='d', fn=lambda: 'd'))\n"
        "mcp.add_resource(each)\n"
        "mcp.remove_tool('x')\n"
    )
    result = migrate_source(text)
    [finding] = result.open_findings
    assert finding.line == 8
    namespace: dict[str, Any] = {}
    exec(result.text.replace("mcp.add_resource(each)\n", ""), namespace)
    async with TestClient(namespace["mcp"]) as client:
        found = {}
        for uri in ("a:a", "a:b", "b:c", "f:d"):
            answer = await client.request("resources/read", {"uri": uri})
            [found[uri]] = answer["contents"]
    assert [each.get("text", each.get("blob")) for each in found.values()] == [
        "a",
        "b",
        "Yw==",
        "d",
    ]
    assert found["a:a"]["mimeType"] == "text/x"


@pytest.mark.rule("MIGR-04", "MIGR-07")
def test_server_of_another_function_is_not_used() -> None:
    text = (
        "from mcp.server.mcpserver import Context, MCPServer\n"
        "async def f(ctx: Context):\n"
        "    await ctx.session.send_tool_list_changed()\n"
        "def main():\n"
        "    app = MCPServer('a')\n"
        "    @app.tool()\n"
        "    async def g(c: Context) -> None:\n"
        "        await c.session.send_tool_list_changed()\n"
    )
    result = migrate_source(text)
    assert {each.line for each in result.open_findings} == {3}
    assert result.text.count('app.list_changed("tools")') == 1


@pytest.mark.rule("MIGR-04")
def test_server_that_a_lifespan_ignores_is_no_other_one() -> None:
    text = (
        "from mcp.server.mcpserver import Context, MCPServer\n"
        "async def lifespan(_: MCPServer): yield 1\n"
        "mcp = MCPServer('a')\n"
        "async def f(ctx: Context):\n"
        "    await ctx.session.send_tool_list_changed()\n"
    )
    result = migrate_source(text)
    assert result.open_findings == () and 'mcp.list_changed("tools")' in result.text


SERVE = """\
import asyncio
from mcp.server.mcpserver import MCPServer
from mcp.shared.message import SessionMessage

def create(name: str) -> MCPServer:
    return MCPServer(name)

def stream(message: SessionMessage[int]) -> SessionMessage[int]:
    return message

async def serve() -> None:
    server = create("a")
    server.remove_tool("x")
    await server.run_stdio_async()

async def serve_other() -> None:
    await create("b").run_stdio_async()

asyncio.run(serve())
"""


@pytest.mark.rule("MIGR-03", "MIGR-07")
def test_server_that_a_function_made_is_one() -> None:
    result = migrate_source(SERVE)
    assert "\ndef serve() -> None:\n" in result.text and "\nserve()\n" in result.text
    assert 'server.unregister("x")\n    server.run()' in result.text
    assert '\ndef serve_other() -> None:\n    create("b").run()' in result.text
    assert "(message: Any) -> Any:" in result.text
    [finding] = result.open_findings
    assert "serve_other is no coroutine any more" in finding.text


PACKAGE = {
    "server.py": """\
from mcp.server import Server
from mcp.server.stdio import stdio_server

async def serve(name: str = "a") -> None:
    app = Server(name)
    options = app.create_initialization_options()
    async with stdio_server() as (read, write):
        await app.run(read, write, options, raise_exceptions=True)
""",
    "__init__.py": """\
from .server import serve

def main() -> None:
    import asyncio

    asyncio.run(serve("b"))
""",
    "other.py": """\
import anyio, asyncio
from shop import server as s

def main() -> None:
    anyio.run(s.serve, "c", backend="trio")
    asyncio.run(asyncio.sleep(0))
""",
    "alone.py": "import asyncio\n\nasyncio.run(asyncio.sleep(0))\n",
}


@pytest.mark.rule("MIGR-07")
def test_other_uses_of_session_options_are_listed() -> None:
    text = (
        PACKAGE["server.py"]
        .replace("options =", "print(options :=")
        .replace("options()", "options())")
    )
    [finding] = [f for f in migrate_source(text).open_findings if "coroutine" not in f.text]
    assert "Server.create_initialization_options" in finding.text


@pytest.mark.rule("MIGR-16")
def test_callers_in_other_files_call_what_serves(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    for name, text in PACKAGE.items():
        (folder / name).write_text(text)
    assert main(["migrate", str(folder / "server.py"), str(folder / "alone.py")]) == 1
    assert "serve is no coroutine any more" in capfd.readouterr().err
    assert main(["migrate", str(folder), "--write"]) == 0
    assert "no coroutine" not in capfd.readouterr().err
    written = {name: (folder / name).read_text() for name in PACKAGE}
    assert written["alone.py"] == PACKAGE["alone.py"]
    assert written["__init__.py"].endswith('def main() -> None:\n\n    serve("b")\n')
    assert written["other.py"].startswith("import asyncio\n")
    assert 's.serve("c")\n' in written["other.py"]
    code = "import sys; sys.path.insert(0, sys.argv[1]); import shop; shop.main()"
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], input=b"", capture_output=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.rule("MIGR-03")
def test_tasks_need_no_extension() -> None:
    text = (
        "from fastmcp import FastMCP\n"
        "from fastmcp.utilities.tasks import TaskConfig\n"
        "from fastmcp_tasks import TasksExtension\n"
        "mcp = FastMCP('a')\n"
        "mcp.add_extension(TasksExtension())\n"
        "@mcp.tool(task=TaskConfig(mode='required'))\n"
        "async def f() -> str:\n"
        "    return 'a'\n"
        "@mcp.tool(task=TaskConfig())\n"
        "async def g() -> str:\n"
        "    return 'a'\n"
    )
    result = migrate_source(text)
    assert not result.open_findings
    assert "fastmcp" not in result.text and "add_extension" not in result.text
    assert '@mcp.tool(task="required")' in result.text
    assert '@mcp.tool(task="optional")' in result.text


@pytest.mark.rule("MIGR-03")
def test_settings_that_are_assigned_are_defaults() -> None:
    given = "mcp.settings.port = 9\nmcp.settings.streamable_http_path = '/'\n"
    result = migrate_source(f"{SERVER}{given}mcp.settings.json_response = True\n")
    assert result.open_findings == ()
    assert 'mcp.set_defaults("http", port=9)\nmcp.set_defaults("http", path=\'/\')' in result.text
    assert "settings." not in result.text
    [finding] = migrate_source(f"{SERVER}mcp.settings.other = 1\n").open_findings
    assert "Server(config=" in finding.text


@pytest.mark.rule("MIGR-03")
def test_run_inside_of_an_event_loop_is_listed() -> None:
    text = f"{SERVER}async def f():\n    await mcp.run_async()\n    await g()\n"
    [finding] = migrate_source(text).open_findings
    assert finding.line == 4 and "event loop" in finding.text


@pytest.mark.rule("MIGR-08")
@pytest.mark.parametrize("text", [FASTMCP, LOW_LEVEL, LOW_LEVEL_2, MIDDLEWARE, *DECISIONS])
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
