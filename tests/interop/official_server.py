"""A server made with the official Python SDK, for our client: one of everything that `app.py` has.

    python official_server.py stdio
    python official_server.py http [PORT]
    python official_server.py plain [PORT]

Over HTTP it listens on a free port unless it is told one, and prints its URL when it does; `plain`
has neither sessions nor streams. `count` goes on until `enough` is called; `waiting` tells when
`wait` runs, to be cancelled, and `ended_with` what became of it: no client has to guess at times.
"""

from __future__ import annotations

import base64
import os
import socket
import sys
import warnings
from functools import partial
from typing import Annotated, Any

import anyio
import uvicorn
from mcp.server.elicitation import ElicitationResult
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import (
    Completion,
    CreateMessageResult,
    EmptyResult,
    ImageContent,
    JSONRPCMessage,
    ListResourcesResult,
    ListRootsResult,
    PaginatedRequestParams,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    ToolAnnotations,
    UnsubscribeRequestParams,
)
from pydantic import BaseModel

# Both SDKs still offer what 2026-07-28 deprecates, and so does this server.
warnings.simplefilter("ignore", MCPDeprecationWarning)

server = MCPServer("official-python", version="1.0.0", instructions="Be kind.", log_level="ERROR")
heard = anyio.Event()
started = anyio.Event()
ended = anyio.Event()
subscribed: set[str] = set()


class Sum(BaseModel):
    total: int


class Name(BaseModel):
    name: str


@server.tool(annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True))
def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b)


@server.tool()
def picture() -> list[TextContent | ImageContent]:
    """Return a text and an image."""
    pixel = base64.b64encode(b"\x89PNG").decode()
    image = ImageContent(type="image", data=pixel, mime_type="image/png")
    return [TextContent(type="text", text="a pixel"), image]


@server.tool()
def fail() -> str:
    """Fails."""
    raise ToolError("it cannot be done")


@server.tool()
def process_id() -> str:
    """Return the process that answers."""
    return str(os.getpid())


def _who() -> Elicit[Name]:
    return Elicit("Who is there?", Name)


def _model() -> Sample:
    question = TextContent(type="text", text="Say something.")
    return Sample([SamplingMessage(role="user", content=question)], max_tokens=10)


def _roots() -> ListRoots:
    return ListRoots()


@server.tool()
def ask_user(answer: Annotated[ElicitationResult[Name], Resolve(_who)]) -> str:
    """Asks who is there."""
    return f"accept: {answer.data.name}" if answer.action == "accept" else answer.action


@server.tool()
def ask_model(answer: Annotated[CreateMessageResult, Resolve(_model)]) -> str:
    """Asks the client's model."""
    assert isinstance(answer.content, TextContent)
    return answer.content.text


@server.tool()
def ask_roots(answer: Annotated[ListRootsResult, Resolve(_roots)]) -> str:
    """Asks for the client's roots."""
    return " ".join(str(root.uri) for root in answer.roots)


@server.tool()
async def count(to: int, context: Context) -> str:
    """Report a count as progress until the call is aborted."""
    for number in range(1, to + 1):
        await context.report_progress(number, to, f"at {number}")
        await context.info(f"counted {number}")
    await heard.wait()
    return "done"


@server.tool()
async def enough() -> str:
    """Lets `count` end."""
    heard.set()
    return "enough"


@server.tool()
async def wait() -> str:
    """Wait until the call is aborted."""
    started.set()
    try:
        await anyio.sleep_forever()
    finally:
        ended.set()
    return "nobody reads this"


@server.tool()
async def waiting() -> str:
    """Return when `wait` runs."""
    await started.wait()
    return "it waits"


@server.tool()
async def ended_with() -> str:
    """Return when `wait` was cancelled."""
    await ended.wait()
    return "cancelled"


@server.tool()
async def drop(context: Context) -> str:
    """Close the stream of its own result."""
    await context.close_sse_stream()
    return "found again"


@server.tool()
async def touch(uri: str, context: Context) -> str:
    """Says that a resource has changed, in the way of either mode."""
    await context.notify_resource_updated(uri)
    if uri in subscribed:
        await context.session.send_resource_updated(uri)
    return "touched"


@server.tool()
async def learn(context: Context) -> str:
    """Add a tool."""
    server.add_tool(waiting, name="learned", description="What was learned.")
    await context.notify_tools_changed()
    if context.session.can_send_request:
        await context.session.send_tool_list_changed()
    return "learned"


@server.resource("note://photo", name="photo", mime_type="image/png")
def photo() -> bytes:
    """Return a photo."""
    return b"\x89PNG"


@server.resource("note://today", name="today", mime_type="text/plain")
def today() -> str:
    """Today's note."""
    return "water the plants"


@server.resource("note://by-name/{name}", name="note", mime_type="application/json")
def note(name: str) -> str:
    """Return a note by its name."""
    return f'{{"name":"{name}"}}'


@server.prompt()
def greet(name: str) -> UserMessage:
    """Greets somebody."""
    return UserMessage(f"Greet {name}.")


@server.completion()
async def complete(ref: object, argument: Any, context: object) -> Completion:
    """Names that begin so."""
    names = ("Ada", "Alan", "Grace")
    return Completion(values=[name for name in names if name.startswith(argument.value)])


# -- what the SDK has no decorator for ---------------------------------------------------------


async def _page_of_resources(_: object, params: PaginatedRequestParams) -> ListResourcesResult:
    """One resource a page; the cursor is the number of the next one."""
    resources = await server.list_resources()
    position = int(params.cursor or 0)
    more = position + 1 < len(resources)
    return ListResourcesResult(
        resources=resources[position : position + 1],
        next_cursor=str(position + 1) if more else None,
    )


async def _subscribe(_: object, params: SubscribeRequestParams) -> EmptyResult:
    subscribed.add(str(params.uri))
    return EmptyResult()


async def _unsubscribe(_: object, params: UnsubscribeRequestParams) -> EmptyResult:
    subscribed.discard(str(params.uri))
    return EmptyResult()


async def _set_level(_: object, params: SetLevelRequestParams) -> EmptyResult:
    return EmptyResult()


lowlevel = server._lowlevel_server
lowlevel.add_request_handler("resources/list", PaginatedRequestParams, _page_of_resources)
lowlevel.add_request_handler("resources/subscribe", SubscribeRequestParams, _subscribe)
lowlevel.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, _unsubscribe)
lowlevel.add_request_handler("logging/setLevel", SetLevelRequestParams, _set_level)


class Events(EventStore):
    """Every event of every stream, for clients that come back."""

    def __init__(self) -> None:
        self.events: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id: str, send: EventCallback) -> str | None:
        seen = int(last_event_id)
        stream, _ = self.events[seen - 1]
        for number, (of, message) in enumerate(self.events[seen:], seen + 1):
            if of == stream and message is not None:
                await send(EventMessage(message, str(number)))
        return stream


async def serve_stdio() -> None:
    """As `server.run()` does, but saying that lists change: they do."""
    changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
    async with stdio_server() as (reading, writing):
        await lowlevel.run(reading, writing, lowlevel.create_initialization_options(changes))


async def serve_http(port: int, **options: Any) -> None:
    """As `server.run("streamable-http")` does, on a socket that is bound before."""
    listening = socket.create_server(("127.0.0.1", port))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    app = server.streamable_http_app(**options)
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=0)
    await uvicorn.Server(config).serve([listening])


def main(transport: str = "stdio", port: str = "0") -> None:
    """Serve."""
    if transport == "http":
        options: dict[str, Any] = {"event_store": Events(), "retry_interval": 10}
        anyio.run(partial(serve_http, int(port), **options))
    elif transport == "plain":
        anyio.run(partial(serve_http, int(port), stateless_http=True, json_response=True))
    else:
        anyio.run(serve_stdio)


if __name__ == "__main__":
    main(*sys.argv[1:])
