"""Programs of other libraries, rewritten: what changes, what stays, what a person decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient as StarletteClient

from foundation_rt.apps.migration.migrate import NotPythonError, migrate_source
from foundation_rt.cli.main import main
from foundation_rt.testing import TestClient
from tests.lab.programs.program import run_source
from tests.lab.servers.core import INITIALIZE

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
import mcp.types as types
from mcp.server.lowlevel import Server

app = Server("low")


@app.list_tools()
async def list_tools(request: types.ListToolsRequest) -> types.ListToolsResult:
    tools = [types.Tool(name="echo", inputSchema={"type": "object"})]
    return types.ListToolsResult(tools=tools, nextCursor=None)


@app.call_tool()
async def call_tool(name: str, arguments: dict) -> list[types.TextContent]:
    return [types.TextContent(type="text", text=str(arguments))]
"""

LOW_LEVEL_2 = """\
import mcp.types as types
from mcp.server import Server, ServerRequestContext

ECHO = types.Tool(name="echo", description="Echo.", input_schema={"type": "object"})


async def list_tools(ctx: ServerRequestContext, params: types.PaginatedRequestParams | None):
    return types.ListToolsResult(tools=[ECHO], next_cursor=None)


async def note(ctx: ServerRequestContext, call_next):
    return await call_next(ctx)


app = Server(
    name="low",
    on_list_tools=list_tools,
    on_ping=ping,
)
app.middleware.append(note)
"""

MIDDLEWARE = """\
from mcp.server.context import CallNext, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp import types
from mcp.types import INVALID_PARAMS, TextContent as Text


async def note(ctx: ServerRequestContext, call_next: CallNext) -> object:
    if isinstance(ctx.params, types.CallToolRequestParams):
        raise MCPError(INVALID_PARAMS, Text(text="no").text)
    return await call_next(ctx)


mcp = MCPServer("shop", middleware=[note])
mcp.middleware.append(note)


@mcp.tool()
def buy(item: str) -> list[Text]:
    if not item:
        raise MCPError(types.INVALID_PARAMS, "no item")
    return [types.TextContent(type="text", text=item)]
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
    "a = await ctx.session.create_message(b, c); x = a.content.type == 'text'": "; x = a.text",
    "a = await ctx.session.create_message(b, c); x = isinstance(a.content, T)": "; x = a.text",
    "a = await ctx.session.create_message(b, c); x = a.content.text": "; x = a.text",
    "x = await ctx.list_roots()": "x = await ctx.roots()",
    "await ctx.set_state('a', 1)": "ctx.session_state.update({'a': 1})",
    "await ctx.delete_state('a')": "ctx.session_state.pop('a', None)",
    "await ctx.close_sse_stream()": "ctx.close_stream()",
    "await ctx.notify_tools_changed()": 'mcp.list_changed("tools")',
    "await ctx.log('a', level='info', logger_name='b')": (
        "ctx.log(data='a', level='info', logger='b')"
    ),
    "await ctx.log(level='info', message='a')": "ctx.log(level='info', data='a')",
    "await ctx.session.send_progress_notification(t, 1, 2)": "await ctx.report_progress(1, 2)",
    "await ctx.request_context.session.send_progress_notification(progress_token=t, progress=1)": (
        "await ctx.report_progress(progress=1)"
    ),
    "self.c = ctx.request_context; await self.c.session.send_log_message('info', 1)": (
        "self.c.log('info', 1)"
    ),
    "await client.session.send_log_message('info', 1)": (
        "await client.session.send_log_message('info', 1)"
    ),
    "x = isinstance(client.content, int)": "x = isinstance(client.content, int)",
    "def g(c: Context[ServerSession, App]): ...": "def g(c: ToolContext[App]): ...",
    "def g(c: Context[ServerSession, None]): ...": "def g(c: ToolContext): ...",
    "def g(c: Context[App]): ...": "def g(c: ToolContext[App]): ...",
    "def g(c: RequestContext['ServerSession', App, R]): ...": "def g(c: ToolContext[App]): ...",
}


@pytest.mark.rule("MIGR-04", "MIGR-15")
@pytest.mark.parametrize("before", CHANGES)
def test_what_context_has_is_named_as_here(before: str) -> None:
    head = "from mcp.server.fastmcp import Context, FastMCP\nmcp = FastMCP()\n"
    head += "import mcp.types.version as V\nfrom mcp.server.session import ServerSession\n"
    head += "from mcp.shared.context import RequestContext\n"
    result = migrate_source(f"{head}async def f(ctx: Context):\n    {before}\n")
    assert CHANGES[before] in result.text
    assert result.findings == ()


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


@pytest.mark.rule("MIGR-09")
@pytest.mark.parametrize(
    "text",
    [
        COMPLETION.format(module="fastmcp", server="FastMCP", more="hasMore"),
        COMPLETION.format(module="mcpserver", server="MCPServer", more="has_more"),
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
    other = "return isinstance(argument, str) or ref.type != 'ref/prompt' or os.environ"
    result = migrate_source(text.replace("return None", other))
    [finding] = result.open_findings
    assert "look at argument, ref: use request" in finding.text


SERVER = "from fastmcp import Context, FastMCP\nmcp = FastMCP()\n"
ANSWERS = "from fastmcp.server.elicitation import AcceptedElicitation, DeclinedElicitation\n"
ERRORS = "from mcp import McpError\nfrom mcp.types import INVALID_PARAMS, ErrorData\n"
APPS = "from fastmcp.apps import AppConfig, ResourceCSP\n"
FILES = "from fastmcp.utilities.types import Audio, File, Image\n"
MESSAGES = "from mcp.server.fastmcp.prompts.base import AssistantMessage, Message, UserMessage\n"
PAGES = (
    "from mcp.types import ElicitRequestURLParams\n"
    "from mcp.shared.exceptions import UrlElicitationRequiredError\n"
)
STDIO = "from mcp.server.stdio import stdio_server\n"
CURRENT = "from fastmcp.dependencies import CurrentContext\n"
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
    "import mcp.types as t\nx = t.Tool(name='a', inputSchema={})": (
        "x = ToolDefinition(name='a', input_schema={}, description=\"\")"
    ),
    "import mcp.types as t\nx = t.Resource(uri=AnyUrl('a:b'), name='a')": (
        "x = ResourceDefinition(uri='a:b', name='a')"
    ),
    "import mcp.types as t\nx = t.BlobResourceContents(uri='a:b', blob=b)": (
        "x = BlobContents(uri='a:b', blob=b64decode(b))"
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
    f"{ANSWERS}match x:\n    case dict(): ...\n    case DeclinedElicitation(): ...": (
        'case dict(): ...\n    case ElicitResult(action="decline"): ...'
    ),
    f"{ANSWERS}y = isinstance(x, (AcceptedElicitation, DeclinedElicitation))": (
        'y = (x.action in ("accept", "decline"))'
    ),
    f"{PAGES}UrlElicitationRequiredError([ElicitRequestURLParams(url=u, elicitationId='1')])": (
        "UrlElicitationRequired(ElicitUrl(url=u, elicitation_id='1'))"
    ),
    f"{PAGES}UrlElicitationRequiredError(pages)": "UrlElicitationRequired(*pages)",
    f"{MESSAGES}x = UserMessage('a')": "x = PromptMessage(\"user\", 'a')",
    f"{MESSAGES}x = AssistantMessage(content='a')": "x = PromptMessage(\"assistant\", 'a')",
    f"{MESSAGES}x = Message('a', 'assistant')": "x = PromptMessage('assistant', 'a')",
    f"{MESSAGES}x = Message(role=r, content='a')": "x = PromptMessage(r, 'a')",
    f"{FILES}x = File('a')": "Path('a').read_bytes()",
    f"{FILES}x = Image('a')": "Image(Path('a').read_bytes(), guess_type('a')[0] or \"image/png\")",
    f"{FILES}x = Audio(path=p)": 'Audio(Path(p).read_bytes(), guess_type(p)[0] or "audio/wav")',
    f"{FILES}x = Audio(data=b)": 'x = Audio(data=b, mime_type="audio/wav")',
    f"{FILES}x = Image(data=b, format=f)": 'x = Image(data=b, mime_type=f"image/{f}")',
    "b = FastMCP('b', 'Be brief.')": "b = Server('b', instructions='Be brief.')",
    "@mcp.tool('a', 'b')\ndef f(): ...": "@mcp.tool(name='a', title='b')\ndef",
    "b = FastMCP('b', tools=[f, g])": "b = Server('b')\nb.tool(f)\nb.tool(g)",
    "def f():\n    return FastMCP('b', lifespan=g)": (
        "    server = Server('b')\n    server.lifespan(g)\n    return server"
    ),
    "b = FastMCP('b', transport_security=None)": "b = Server('b')\n",
    "mcp.http_app(transport_security=None)": "mcp.asgi_app()",
    "mcp.colors.paper = 1": "mcp.colors.paper = 1",
    "async def f():\n    x = await mcp.list_resources()": "    x = mcp.list_resources()",
    "@mcp.resource('a:b', annotations={'audience': ['user']})\ndef f(): ...": (
        "@mcp.resource('a:b')\ndef"
    ),
    "@mcp.tool(task=True)\ndef f(): ...": '@mcp.tool(task="optional")',
    "@mcp.tool(task=False, output_schema=None)\ndef f(): ...": "@mcp.tool(output_schema=False)",
    "@mcp.tool(timeout=n, annotations=a)\ndef f(): ...": (
        "@mcp.tool(timeout_ms=round((n) * 1000), annotations=a)"
    ),
    "@mcp.local_provider.tool\ndef f(): ...": "@mcp.tool\ndef",
    "mcp.mount(server=b, namespace='p', as_proxy=True)": "mcp.mount(b, prefix='p')",
    "mcp.mount('p', b)": "mcp.mount(b, prefix='p')",
    "mcp.add_tool(f)": "mcp.tool(f)",
    "mcp.add_tool(f, name='a', description='b')": "mcp.tool(name='a', description='b')(f)",
    "mcp.run(transport='stdio')": "mcp.run()",
    "mcp.run(transport='sse', port=9)": "mcp.run_http(port=9, no_auth=True)",
    "mcp.run(t)": 'mcp.run() if t == "stdio" else mcp.run_http(no_auth=True)',
    "import asyncio\nasyncio.run(mcp.run_http_async(port=9))": (
        "asyncio\nmcp.run_http(port=9, no_auth=True)"
    ),
    "import asyncio\nasyncio.run(f())": "asyncio.run(f())",
    "import asyncio\nasyncio.run(waiting)": "asyncio.run(waiting)",
    "from .notes import *": "from .notes import *",
    f"{STDIO}def f():\n  with open(n) as a: ...\nasync def g():\n"
    "  # served\n  async with stdio_server() as (a, b): await mcp.run(a, b)\ng()": (
        "def g():\n  # served\n  mcp.run()\n"
    ),
    f"{STDIO}async def f():\n  async with stdio_server() as (a, b):\n    if x: ...\n"
    "    await mcp.run(a, b)\nf()": "def f():\n  if x: ...\n  mcp.run()\n",
    f"{CURRENT}@mcp.tool\ndef f(a=1, *, ctx: Context = CurrentContext()): ...": (
        "def f(a: Any=1, *, ctx: ToolContext): ..."
    ),
    f"{CURRENT}@mcp.tool\ndef f(a=1, ctx: Context = CurrentContext()): ...": (
        "def f(ctx: ToolContext, a: Any=1): ..."
    ),
    f"from typing import Any\nx: Any = 1\n{CURRENT}@mcp.tool\ndef f(a): ...": "def f(a: Any): ...",
    '# /// script\n# dependencies = ["fastmcp>=2", "mcp[cli]", "httpx"]\n# ///': (
        '# dependencies = ["foundation-rt", "foundation-rt", "httpx"]'
    ),
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


@pytest.mark.rule("MIGR-18")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LIBRARY: str = 'FastMCP'", "LIBRARY: str = 'FastMCP'"),
        ("X: TypeAlias = 'FastMCP |'", "X: TypeAlias = 'FastMCP |'"),
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


@pytest.mark.rule("MIGR-21")
@pytest.mark.parametrize(
    ("full", "words"),
    [
        ("timing.TimingMiddleware", "drop it: the record of a call has its duration"),
        ("rate_limiting.RateLimitingMiddleware", "set rate_limit.per_key"),
        ("error_handling.ErrorHandlingMiddleware", "drop it: errors are logged"),
        ("error_handling.RetryMiddleware", "drop it: repeat in the handler"),
    ],
)
def test_ready_made_middleware_of_fastmcp_is_dropped_or_a_setting(full: str, words: str) -> None:
    module, name = full.split(".")
    result = migrate_source(
        "from fastmcp import FastMCP\n"
        f"from fastmcp.server.middleware.{module} import {name}\n"
        f"mcp = FastMCP('a')\nmcp.add_middleware({name}())\n"
    )
    [finding] = result.open_findings
    assert words in finding.text


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
    result = migrate_source(MANAGER)
    assert result.open_findings == ()
    assert "class Store:" in result.text and "mcp.server" not in result.text
    app = "from foundation_rt import Server\napp = Server('low')\n"
    names = defined(f"{app}app.set_defaults('http', no_auth=True)\n{result.text}")
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


PROVIDER = "from fastmcp.server.auth.providers.github import GitHubProvider\n"
DECISIONS = {
    f"{PROVIDER}GitHubProvider()\n": (2, "http.api_keys"),
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
    f"{SERVER}other = FastMCP('a', middleware=[f])\n": (3, "@server.middleware"),
    f"{SERVER}mcp.add_middleware(f)\n": (3, "@server.middleware"),
    f"{SERVER}@mcp._mcp_server.set_logging_level()\nasync def f(level): ...\n": (
        3,
        "keeps a level",
    ),
    f"{SERVER}mcp._mcp_server.subscribe_resource()(f)\n": (3, "resource_updated(uri)"),
    f"{SERVER}@mcp.custom_route('/a')\nasync def f(r): ...\n": (3, "http_app"),
    f"{SERVER}async def f(c: Context):\n  x = await c.read_resource(u)\n  x.contents[0].content": (
        5,
        ".blob",
    ),
    f"{SERVER}b = FastMCP()\nasync def f(c: Context):\n  await c.notify_tools_changed()\n": (
        5,
        "server.list_changed",
    ),
    f"{SERVER}def f():\n  c = mcp.get_context()\n  c.info('a')\n": (4, "take a ToolContext"),
    f"{SERVER}b = FastMCP(tools=tools)\n": (3, "no such argument"),
    f"{SERVER}mcp.add_prompt(p)\n": (3, "server.register_prompt"),
    f"{SERVER}mcp.add_prompt(Prompt(p))\n": (3, "server.register_prompt"),
    f"{SERVER}mcp.add_resource(TextResource(uri=u))\n": (3, "server.register_resource"),
    f"{SERVER}@mcp.tool(annotations={{**x}})\ndef f(): ...\n": (3, "give ToolAnnotations"),
    f"{SERVER}@mcp.tool(app=x)\ndef f(): ...\n": (3, "into meta="),
    f"{SERVER}@mcp.tool(app=AppConfig(**x))\ndef f(): ...\n": (3, "into meta="),
    f"{SERVER}@mcp.tool\ndef f(**more): ...\n": (4, "name the parameters"),
    f"{SERVER}@mcp.completion()\ndef f(ref, argument): ...\n": (4, "take one CompletionRequest"),
    "from fastmcp import *\n": (1, "import what is used by name"),
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


WRITE_SERVER = "this file stays as it is: write Server(...), and register each tool"
WRITE_TOOLS = "register each tool: server.register(ToolDefinition(...), handler)"
WRITE_PAGES = "lists are paged by this runtime: return all entries"
WRITE_MIDDLEWARE = "it stays as it is: write `@server.middleware async def f(call, proceed)`"


@pytest.mark.rule("MIGR-24")
@pytest.mark.parametrize(
    ("text", "findings"),
    [
        (
            LOW_LEVEL,
            [(4, WRITE_SERVER), (7, WRITE_TOOLS), (10, WRITE_PAGES), (13, "handler for each tool")],
        ),
        (
            LOW_LEVEL_2,
            [
                (8, WRITE_PAGES),
                (8, WRITE_SERVER),
                (11, WRITE_MIDDLEWARE),
                (17, WRITE_TOOLS),
                (18, "on_ping: it has no counterpart"),
            ],
        ),
        ("from mcp.server import Server\n\nclass Mine(Server[int]): ...\n", [(3, WRITE_SERVER)]),
    ],
)
def test_file_of_low_level_server_is_not_changed_and_is_told_what_to_write(
    text: str, findings: list[tuple[int, str]]
) -> None:
    result = migrate_source(text)
    assert result.text == text
    for found, (line, words) in zip(result.open_findings, findings, strict=True):
        assert found.line == line and words in found.text


@pytest.mark.rule("MIGR-24")
async def test_middleware_of_second_sdk_stays_in_a_server_that_is_rewritten() -> None:
    result = migrate_source(MIDDLEWARE)
    function = MIDDLEWARE[MIDDLEWARE.index("async def note") : MIDDLEWARE.index("\n\nmcp =")]
    assert function in result.text
    found = {each.line: each.text for each in result.open_findings}
    assert found.keys() == {8, 14, 15}
    assert all("@server.middleware async def f(call, proceed)" in each for each in found.values())
    by_hand = result.text.replace(function, "").replace("mcp.middleware.append(note)\n", "")
    by_hand = by_hand.replace(", middleware=[note]", "")
    async with TestClient(defined(by_hand)["mcp"]) as client:
        assert "tea" in str(await client.call("buy", item="tea"))


@pytest.mark.rule("MIGR-03", "MIGR-07")
@pytest.mark.parametrize(
    ("call", "kept", "words"),
    [
        ("http_app(middleware=[f])", "mcp.asgi_app(middleware=[f])", "wrap server.asgi_app()"),
        ("run('http', auth=f)", "mcp.run_http(auth=f)", "http.api_keys"),
        ("run('http', uvicorn_config=f)", "uvicorn_config=f, no_auth=True)", "with uvicorn"),
        ("run('http', **f)", "**f", "look at what"),
        ("http_app('/a', f)", "mcp.asgi_app('/a', f)", "give f by its name"),
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


@pytest.mark.rule("MIGR-20")
def test_server_of_an_api_names_its_secrets() -> None:
    text = (
        "from fastmcp import FastMCP\n"
        "mcp = FastMCP.from_openapi(spec, client, 'x', route_maps=maps)\n"
        "other = FastMCP.from_openapi(openapi_spec=spec, client=client, mcp_names=names)\n"
        "app = FastMCP.from_fastapi(app=fastapi, name='y')\n"
    )
    result = migrate_source(text)
    assert result.text == (
        "from foundation_rt import Server\n"
        "mcp = Server.from_openapi(document=spec, client=client, name='x', route_maps=maps)\n"
        "other = Server.from_openapi(document=spec, client=client, rename=names)\n"
        "app = Server.from_asgi(app=fastapi, name='y')\n"
    )
    assert [(each.line, "routes=" in each.text) for each in result.open_findings] == [(2, True)]
    notes = [each.line for each in result.findings if "give auth=" in each.text]
    assert notes == [2, 3]


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


IN_PART = {
    "from mcp.server.lowlevel.helper_types import ReadResourceContents\n"
    "x = ReadResourceContents('a', 'b')": (
        "x = TextContents(text='a', mime_type='b')",
        "give it uri=",
    ),
    f"{ERRORS}McpError()": ("ToolError()", "an error has a code and a message"),
    f"{ERRORS}McpError(7, 'a')": ("ToolError(ErrorCode.INTERNAL, 'a')", "7 became INTERNAL"),
    f"{MESSAGES}UserMessage(**x)": ("PromptMessage(**x)", "give it a role and a content"),
    "f(FastMCP(lifespan=g))": ("f(Server())", "after the server was made: server.lifespan(g)"),
    "from mcp.server.streamable_http_manager import StreamableHTTPSessionManager as S\n"
    "S(event_store=x)": ("S(event_store=x)", "make it of a server: server.asgi_app()"),
    "@mcp.tool\ndef f(data: bytes): ...": ("data: bytes", "bytes are sent in base64 here"),
}


@pytest.mark.rule("MIGR-07")
@pytest.mark.parametrize("text", IN_PART)
def test_what_is_rewritten_in_part_is_listed(text: str) -> None:
    changed, words = IN_PART[text]
    result = migrate_source(f"{SERVER}{text}\n")
    assert changed in result.text
    assert any(words in each.text for each in result.findings)


TYPES = (
    "TextContent, ImageContent, AudioContent, EmbeddedResource, ResourceLink, ToolAnnotations, "
    "PromptMessage, PromptArgument"
)
AT_THE_TOP = {
    '"""Notes."""\nfrom fastmcp import FastMCP\nmcp = FastMCP()\n': (
        '"""Notes."""\n\nfrom foundation_rt import Server\nmcp = Server()\n'
    ),
    "from fastmcp import FastMCP\nimport os; mcp = FastMCP()\n": (
        "from foundation_rt import Server\nimport os; mcp = Server()\n"
    ),
    f"from mcp.types import {TYPES}\nx = [{TYPES}, Tool]\n": (
        "from foundation_rt import (\n    Audio,\n    EmbeddedResource,\n    Image,\n"
    ),
    "from __future__ import annotations\nfrom mcp import ClientSession\nx: ClientSession\n"
    "def f(): ClientSession()\n": "annotations\nfrom typing import Any\nfrom mcp import Client",
}


@pytest.mark.rule("MIGR-02", "MIGR-10")
@pytest.mark.parametrize("text", AT_THE_TOP)
def test_imports_are_at_the_top_before_what_uses_them(text: str) -> None:
    assert AT_THE_TOP[text] in migrate_source(text).text


PACKAGE = {
    "server.py": """\
from mcp.server import MCPServer

async def serve(name: str = "a") -> None:
    app = MCPServer(name)
    await app.run_stdio_async()
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
    asyncio.run(s.serve("d"))
    asyncio.run(asyncio.sleep(0))
""",
    "alone.py": "import asyncio\nfrom os.path import *\n\nasyncio.run(asyncio.sleep(0))\n",
}


@pytest.mark.rule("MIGR-07")
def test_other_uses_of_session_options_are_listed() -> None:
    text = HOST.replace("else:", "else:\n        print(server.create_initialization_options())")
    [said] = {each.text for each in migrate_source(text).open_findings}
    assert "Server.create_initialization_options" in said


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
    assert 's.serve("c")\n    s.serve("d")\n' in written["other.py"]
    code = "import sys; sys.path.insert(0, sys.argv[1]); import shop; shop.main()"
    run_source(code, tmp_path)


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
