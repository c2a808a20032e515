"""Middleware classes of FastMCP, rewritten: they run around the same calls; others stay."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt import ToolError
from foundation_rt.apps.migration.migrate import migrate_source
from foundation_rt.testing import TestClient

SHOP = '''\
from fastmcp import FastMCP
from fastmcp.exceptions import AuthorizationError, ToolError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.tool import ToolResult
import mcp.types as mt

seen = []


class Guard(Middleware):
    """Refuses, changes and answers calls."""

    def __init__(self, forbidden: str) -> None:
        self.forbidden = forbidden

    async def on_message(self, context, call_next):
        seen.append(f"message {context.method}")
        if context.method == "prompts/get":
            raise AuthorizationError("no prompts")
        return await call_next(context)

    async def on_call_tool(
        self,
        context: MiddlewareContext[mt.CallToolRequestParams],
        call_next: CallNext[mt.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        args = context.message.arguments or {}
        seen.append((context.message.name, dict(args)))
        if args["item"] == self.forbidden:  # says which
            raise ToolError(f"no {context.message.name} of {args['item']}")
        if args["item"] == "gift":
            return ToolResult(content="for you")
        context.message.arguments["item"] = args["item"].strip()
        result = await call_next(context)
        seen.append("done")
        return result


class Reads(Middleware):
    async def on_read_resource(self, ctx: MiddlewareContext, proceed: CallNext):
        seen.append("read " + str(ctx.message.uri))
        try:
            return await proceed(ctx)
        finally:
            seen.append("read it")


guard = Guard("bomb")
mcp = FastMCP("shop", middleware=[guard])
mcp.add_middleware(middleware=Reads())


@mcp.tool
def buy(item: str) -> str:
    return item


@mcp.resource("shop://{shelf}")
def shelf(shelf: str) -> str:
    return shelf


@mcp.prompt
def praise() -> str:
    return "Praise it."
'''


@pytest.mark.rule("MIGR-22")
async def test_hooks_run_around_the_calls_that_they_were_written_for() -> None:
    result = migrate_source(SHOP)
    assert result.open_findings == ()
    assert "fastmcp" not in result.text and "# says which" in result.text
    assert migrate_source(result.text).text == result.text
    names: dict[str, Any] = {"__name__": "migrated"}
    exec(compile(result.text, "migrated.py", "exec", dont_inherit=True), names)
    seen = names["seen"]
    async with TestClient(names["mcp"]) as client:
        assert await client.call("buy", item=" tea ") == "tea"
        assert seen == ["message tools/call", ("buy", {"item": " tea "}), "done"]
        with pytest.raises(ToolError, match="no buy of bomb"):
            await client.call("buy", item="bomb")
        assert await client.call("buy", item="gift") == "for you"
        assert seen.count("done") == 1
        seen.clear()
        assert await client.read_resource("shop://tea") == "tea"
        assert seen == ["message resources/read", "read shop://tea", "read it"]
        with pytest.raises(Exception, match="no prompts"):
            await client.get_prompt("praise")


HEAD = """\
from fastmcp import FastMCP
from fastmcp.server.dependencies import get_http_headers
from fastmcp.server.middleware import Middleware


class One(Middleware):
    async def {hook}(self, context, call_next):
        {body}


mcp = FastMCP("a")
mcp.add_middleware(One())
"""

STAYS = {
    "return (await call_next(context)).content": "return what comes next gives",
    "r = await call_next(context); log(r.content); return r": "what the handler returned",
    "return await call_next(context.copy(message=1))": "change call.arguments",
    "await call_next(context); return None": "or a ToolResult",
    "return await wait_for(call_next(context), 5)": "call_next is given away",
    "log(context); return await call_next(context)": "context is given away",
    "log(context.message); return await call_next(context)": "a call has name, arguments",
    "log(context.message.uri.host); return await call_next(context)": "the URI is a text here",
    "log(context.timestamp); return await call_next(context)": "take the time in the hook",
    "context.fastmcp_context.set_state('a', 1); return await call_next(context)": "variables",
    "log(get_http_headers()); return await call_next(context)": "a call has headers",
    "log(context.method != 'tools/list'); return await call_next(context)": "not around tools/list",
    "return await super().on_message(context, call_next)": "context is given away",
}


@pytest.mark.rule("MIGR-23")
@pytest.mark.parametrize("body", STAYS)
def test_class_with_a_hook_that_cannot_be_said_stays_whole(body: str) -> None:
    result = migrate_source(HEAD.format(hook="on_message", body=body))
    assert (
        "class One(Middleware):\n    async def on_message(self, context, call_next):" in result.text
    )
    assert f"        {body}\n" in result.text
    found = [each.text for each in result.open_findings]
    assert any(STAYS[body] in text and text.startswith("One stays: ") for text in found)
    assert any("@server.middleware" in text for text in found)


@pytest.mark.rule("MIGR-23")
@pytest.mark.parametrize("hook", ["on_list_tools", "on_initialize", "on_notification", "__call__"])
def test_class_with_a_hook_around_other_messages_stays(hook: str) -> None:
    result = migrate_source(HEAD.format(hook=hook, body="return await call_next(context)"))
    assert "class One(Middleware):" in result.text
    assert any(f"One stays: {hook}: " in each.text for each in result.open_findings)


@pytest.mark.rule("MIGR-23")
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("One(Middleware)", "One(Middleware, Other)", "remove the others"),
        ("async def", "def", "write `async def (self, context, call_next)`"),
    ],
)
def test_class_of_another_form_stays(old: str, new: str, words: str) -> None:
    text = HEAD.format(hook="on_call_tool", body="return call_next(context)").replace(old, new)
    result = migrate_source(text)
    assert f"    {new} on_call_tool" in result.text or f"class {new}:" in result.text
    assert any(words in each.text for each in result.open_findings)


@pytest.mark.rule("MIGR-23")
def test_class_that_another_one_derives_from_stays() -> None:
    text = HEAD.format(hook="on_call_tool", body="return await call_next(context)")
    result = migrate_source(f"{text}\n\nclass Two(One):\n    pass\n")
    assert "class One(Middleware):" in result.text
    assert any("Two derives from it" in each.text for each in result.open_findings)


@pytest.mark.rule("MIGR-22")
def test_hook_around_every_message_is_said_to_be_around_calls_alone() -> None:
    result = migrate_source(HEAD.format(hook="on_request", body="return await call_next(context)"))
    [finding] = result.open_findings
    assert "class One:" in result.text
    assert finding.text.startswith("One.on_request: middleware is around calls here")


@pytest.mark.rule("MIGR-21", "MIGR-22")
def test_middleware_of_the_library_stays_in_the_list_of_a_server() -> None:
    text = HEAD.format(hook="on_call_tool", body="return await call_next(context)")
    text = text.replace('FastMCP("a")', 'FastMCP("a", middleware=[PingMiddleware(), One()])')
    result = migrate_source(f"from fastmcp.server.middleware.ping import PingMiddleware\n{text}")
    assert 'Server("a", middleware=[PingMiddleware()])\nmcp.middleware(One())\n' in result.text
    assert any("http.keep_alive_ms" in each.text for each in result.open_findings)
