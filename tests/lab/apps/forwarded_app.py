"""A server for tests of forwarding: every kind of definition, content and error."""

from __future__ import annotations

from typing import Any

from foundation_rt import (
    Audio,
    Icon,
    Image,
    PromptMessage,
    ResourceLink,
    Server,
    Text,
    ToolAnnotations,
    ToolContext,
    ToolDefinition,
    ToolError,
    ToolResult,
)

server = Server("behind", version="2.0.0")
META = {"origin": {"n": [1, 2.5, None]}}


@server.tool(
    title="Rich",
    annotations=ToolAnnotations(read_only=True),
    icons=[Icon("https://x.test/a.png")],
    meta=META,
)
def rich() -> ToolResult:
    """Return everything."""
    blocks = [
        Text("é\u2028", meta=META),
        Image(b"\x89PNG\x00", "image/png"),
        Audio(b"RIFF", "audio/wav"),
        ResourceLink("note://1", "one", title="One"),
    ]
    return ToolResult(blocks, structured={"n": 1, "x": [None, True]}, meta=META)


@server.tool(inline=True)
def echo(value: str) -> str:
    return value


@server.tool
def fail(kind: str) -> None:
    if kind == "tool":
        raise ToolError("RESOURCE_EXHAUSTED", "full", {"n": 1})
    raise ValueError("secret")


@server.tool
async def hang(ctx: ToolContext) -> None:
    ctx.report_progress(1, 2, "half")
    await ctx.abort_signal.wait()


@server.resource("note://{id}", inline=True)
def note(id: str) -> str:
    return f"note {id}"


@server.resource("note://list", mime_type="application/json", inline=True)
def notes() -> list[str]:
    return ["1"]


@server.prompt(title="Review")
def review(code: str, language: str = "python") -> list[PromptMessage]:
    """Review code."""
    return [PromptMessage("user", Text(code)), PromptMessage("assistant", Text(language))]


@server.completion("review", "language")
def languages(value: str) -> list[str]:
    return [each for each in ("python", "perl") if each.startswith(value)]


def _page(number: int) -> ToolDefinition:
    schema: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}
    return ToolDefinition(f"many-{number:04}", "One of many. " * 10, schema)


def add_many(to: Server, count: int) -> None:
    """Register `count` tools."""
    for number in range(count):
        to.register(_page(number), lambda arguments, context: None, inline=True)


if __name__ == "__main__":
    server.run()
