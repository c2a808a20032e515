"""The server that every client in this folder talks to: one of everything.

`count` goes on until `enough` is called. `waiting` tells when `wait` runs, to be cancelled, and
`ended_with` what became of it. So no client has to guess at times.
"""

from __future__ import annotations

import asyncio
from typing import TypedDict

from foundation_rt import (
    Annotations,
    Audio,
    BlobContents,
    EmbeddedResource,
    Icon,
    Image,
    PromptMessage,
    ResourceLink,
    Server,
    Text,
    TextContents,
    ToolAnnotations,
    ToolContext,
    ToolResult,
)

server = Server("interop", version="1.0.0", instructions="Be kind.")
ICON = Icon("https://example.com/icon.png", "image/png", ("48x48",), "dark")
heard = asyncio.Event()
started = asyncio.Event()
ended = asyncio.Event()
reasons: list[str] = []


class Sum(TypedDict):
    total: int


@server.tool(
    title="Addition",
    output_schema=True,
    annotations=ToolAnnotations(read_only=True, idempotent=True),
    icons=(ICON,),
    meta={"example.com/kind": "arithmetic"},
)
def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return {"total": a + b}


@server.tool(inline=True)
def picture() -> list[Text | Image]:
    """Return a text and an image."""
    return [Text("a pixel"), Image(b"\x89PNG", "image/png")]


@server.tool(inline=True)
def gallery() -> ToolResult:
    """Content of every kind."""
    noted = Annotations(audience=("user",), priority=0.5, last_modified="2026-07-28T12:00:00+00:00")
    text = TextContents("note://today", "water the plants", "text/plain", meta={"n": 1})
    return ToolResult(
        content=(
            Text("a text", annotations=noted, meta={"example.com/n": 1}),
            Image(b"\x89PNG", "image/png", annotations=noted),
            Audio(b"RIFF", "audio/wav", annotations=noted),
            ResourceLink("note://today", "today", title="Today", size=16, icons=(ICON,)),
            EmbeddedResource(text, annotations=noted),
            EmbeddedResource(BlobContents("note://photo", b"\x89PNG", "image/png")),
        ),
        structured={"blocks": 6},
        meta={"example.com/n": 2},
    )


@server.tool
async def ask_user(context: ToolContext) -> Text:
    """Asks who is there."""
    form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    answer = await context.elicit("Who is there?", form)
    return Text(f"{answer.action}: {answer.content['name']}" if answer.content else answer.action)


@server.tool
async def ask_model(context: ToolContext) -> Text:
    """Asks the client's model."""
    return Text((await context.sample("Say something.", max_tokens=10)).text)


@server.tool
async def ask_roots(context: ToolContext) -> Text:
    """Asks for the client's roots."""
    return Text(" ".join(root.uri for root in await context.roots()))


@server.tool
async def ask_elsewhere(context: ToolContext) -> Text:
    """Send the user to a page, and notify the client when that is done."""
    page = "https://example.com/pay"
    answer = await context.elicit_url("Please pay.", page, elicitation_id="payment")
    server.elicitation_completed("payment")
    return Text(answer.action)


@server.tool(task="required")
async def clean_up(context: ToolContext) -> Text:
    """Run as a task, which asks before it does anything."""
    form = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
    answer = await context.elicit("Are you sure?", form)
    return Text("cleaned up" if answer.content == {"sure": True} else "left as it was")


@server.tool
async def count(to: int, context: ToolContext) -> Text:
    """Report a count as progress until the call is aborted."""
    for number in range(1, to + 1):
        context.report_progress(number, to, f"at {number}")
        context.log("info", f"counted {number}")
    await heard.wait()
    return Text("done")


@server.tool
async def enough() -> Text:
    """Lets `count` end."""
    heard.set()
    return Text("enough")


@server.tool
async def wait(context: ToolContext) -> Text:
    """Wait until the call is aborted."""
    started.set()
    reasons.append(await context.abort_signal.wait())
    ended.set()
    return Text("nobody reads this")


@server.tool
async def waiting() -> Text:
    """Return when `wait` runs."""
    await started.wait()
    return Text("it waits")


@server.tool
async def ended_with() -> Text:
    """Return why `wait` was aborted."""
    await ended.wait()
    return Text(reasons[0])


@server.tool
async def drop(context: ToolContext) -> Text:
    """Close the stream of its own result."""
    context.close_stream()
    return Text("found again")


@server.tool
async def touch(uri: str) -> Text:
    """Says that a resource has changed."""
    server.resource_updated(uri)
    return Text("touched")


@server.tool
async def learn() -> Text:
    """Add a tool, a resource and a prompt."""
    server.tool(name="learned", description="What was learned.")(waiting)
    server.resource("note://learned", description="What was learned.")(today)
    server.prompt(name="teach", description="Teaches it.")(today)
    return Text("learned")


@server.resource("note://photo", mime_type="image/png")
def photo() -> bytes:
    """Return a photo."""
    return b"\x89PNG"


@server.resource("note://today", title="Today", mime_type="text/plain", icons=(ICON,))
def today() -> str:
    """Today's note."""
    return "water the plants"


@server.resource("note://by-name/{name}", mime_type="application/json")
def note(name: str) -> dict[str, str]:
    """Return a note by its name."""
    return {"name": name}


@server.prompt(title="Greeting", icons=(ICON,))
def greet(name: str) -> list[PromptMessage]:
    """Greets somebody.

    Args:
        name: Whom to greet.
    """
    return [PromptMessage("user", Text(f"Greet {name}."))]


@server.completion("greet", "name")
def names(value: str, others: dict[str, str]) -> list[str]:
    """Names that begin so."""
    return [name for name in ("Ada", "Alan", "Grace") if name.startswith(value)]
