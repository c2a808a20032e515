"""The server that the vectors talk to; spec/vectors/README.md defines its tools.

`foundation-rt serve` serves this file; `tests.lab.peers.vectors` embeds it, and scripts the two
tools that take time instead of running them.
"""

from __future__ import annotations

import threading
from typing import Any, Literal

import attrs

from foundation_rt import (
    Annotations,
    Audio,
    BlobContents,
    EmbeddedResource,
    ErrorCode,
    Icon,
    Image,
    PromptMessage,
    ResourceLink,
    Server,
    ServerOptions,
    Text,
    TextContents,
    ToolAnnotations,
    ToolContext,
    ToolDefinition,
    ToolError,
    ToolResult,
)

NAME, VERSION = "vectors", "1.0.0"

Kind = Literal["text", "image", "audio", "resource_link", "resource"]

BLOCKS = {
    "text": Text("Some text.", annotations=Annotations(audience=["user"], priority=0.5)),
    "image": Image(b"png", "image/png", meta={"vectors.example/width": 1}),
    "audio": Audio(b"wav", "audio/wav"),
    "resource_link": ResourceLink("note://1", "one", title="One", size=3),
    "resource": EmbeddedResource(TextContents("note://1", "one", "text/plain")),
}


@attrs.frozen
class Report:
    city: str
    days: int


_COUNT_SCHEMA = {
    "type": "object",
    "properties": {"count": {"type": "integer"}},
    "required": ["count"],
}

_VALUE_SCHEMA = {"type": "object", "properties": {"value": {}}, "required": ["value"]}

_SLEEP_SCHEMA = {
    "type": "object",
    "properties": {
        "ms": {"type": "integer", "minimum": 0},
        "heed": {"type": "boolean"},
        "fail": {"type": "boolean"},
    },
    "required": ["ms"],
    "additionalProperties": False,
}


def make_server(options: ServerOptions | None = None) -> Server:
    """Return a new server with the tools of the vectors."""
    server = Server(NAME, version=VERSION, options=options)
    _register(server, "crash", "Fail in a way nobody foresaw.", {}, _crash)
    _register(
        server,
        "echo",
        "Send a message back.",
        {"properties": {"message": {"type": "string"}}, "required": ["message"]},
        lambda arguments, context: {"message": arguments["message"]},
    )
    _register(
        server,
        "fail",
        "Fail with the error asked for.",
        {
            "properties": {
                "code": {"enum": [code.value for code in ErrorCode]},
                "message": {"type": "string"},
                "details": {"type": "object"},
            },
            "required": ["code", "message"],
        },
        _fail,
    )
    _register(
        server,
        "mirror",
        "Send all arguments back.",
        {"additionalProperties": True},
        _mirror,
    )
    _register(
        server,
        "repeat",
        "Write a text several times.",
        {
            "properties": {
                "text": {"type": "string"},
                "times": {"type": "integer", "minimum": 0, "maximum": 100000},
            },
            "required": ["text", "times"],
        },
        lambda arguments, context: arguments["text"] * int(arguments["times"]),
    )
    _register(server, "unspeakable", "Return what JSON cannot say.", {}, lambda *_: object())
    server.register(ToolDefinition("sleep", "Take some time.", _SLEEP_SCHEMA), sleep)
    server.register(
        ToolDefinition("nap", "Take some time, of which there is little.", _SLEEP_SCHEMA, "2.0.0"),
        sleep,
        timeout_ms=50,
    )
    return server


def make_featured_server(options: ServerOptions | None = None) -> Server:
    """Return a new server with the resources, prompts and completions of the vectors."""
    server = Server(NAME, version=VERSION, options=options)
    _add_resources(server)
    _add_prompts(server)
    return server


def _add_resources(server: Server) -> None:
    @server.resource(
        "note://all", title="All notes", mime_type="text/markdown", size=5, inline=True
    )
    def notes() -> str:
        """Every note."""
        return "# All"

    @server.resource("note://both", inline=True)
    def both() -> list[TextContents | BlobContents]:
        return [TextContents("note://1", "one"), BlobContents("note://2", b"two", "image/png")]

    @server.resource("note://{number}", annotations=Annotations(priority=1), inline=True)
    def note(number: int) -> dict[str, int]:
        """One note."""
        if number > 9:
            raise ToolError(ErrorCode.NOT_FOUND, "There is no such note.", {"number": number})
        return {"number": number}

    @server.resource("file:///{folder}/{name}", inline=True)
    def file(folder: str, name: str) -> bytes:
        return f"{folder} {name}".encode()


def _add_prompts(server: Server) -> None:
    @server.prompt(title="Review", inline=True)
    def review(code: str, language: Literal["python", "rust"] = "python", depth: int = 1) -> str:
        """Review some code.

        Args:
            code: what to review
        """
        return f"{language} {depth} {code}"

    @server.prompt(inline=True)
    def show() -> list[PromptMessage | Image]:
        return [Image(b"png", "image/png"), PromptMessage("assistant", "A picture.")]

    @server.prompt(inline=True)
    def crash() -> str:
        raise RuntimeError("boom")

    @server.completion("review", "code", inline=True)
    def code(value: str, known: dict[str, str]) -> list[str]:
        return [value + known.get("language", "") + str(number) for number in range(200)]


def make_content_server(options: ServerOptions | None = None) -> Server:
    """Return a new server with the tools whose results are more than plain values."""
    server = Server(NAME, version=VERSION, options=options)

    @server.tool(
        title="Show",
        annotations=ToolAnnotations(read_only=True, open_world=False),
        icons=[Icon("https://vectors.example/show.png", "image/png", ["48x48"])],
        meta={"vectors.example/kind": "content"},
        inline=True,
    )
    def show(kinds: list[Kind], failed: bool = False) -> ToolResult:
        """Return content of these kinds."""
        return ToolResult([BLOCKS[kind] for kind in kinds], is_error=failed, meta={"shown": True})

    @server.tool(
        name="count/up", output_schema=_COUNT_SCHEMA, input_schema=_VALUE_SCHEMA, inline=True
    )
    def count(value: Any) -> Any:
        """Return how many there are."""
        return {"count": value}

    @server.tool(output_schema={}, input_schema=_VALUE_SCHEMA, inline=True)
    def anything(value: Any) -> Any:
        """Return the value, whatever it is."""
        return value

    return server


def make_methods_server(options: ServerOptions | None = None) -> Server:
    """Return a new server with methods of its own, and an extension."""
    extensions = {"com.example/reports": {"formats": ["text"]}}
    server = Server(NAME, version=VERSION, extensions=extensions, options=options)

    @server.method("vectors/report", inline=True)
    def report(city: str, days: int = 3) -> Report:
        return Report(city, days)

    @server.method("vectors/nothing", inline=True)
    def nothing() -> None: ...

    @server.method("vectors/fail", inline=True)
    def fail() -> None:
        raise ToolError(ErrorCode.NOT_FOUND, "There is no report.")

    @server.method("vectors/wrong", inline=True)
    def wrong() -> Any:
        return ["no object"]

    return server


def make_versions_server(options: ServerOptions | None = None) -> Server:
    """Return a new server with versions of a tool."""
    server = Server(NAME, version=VERSION, options=options)

    @server.tool("find", version="1.9", inline=True, deprecated="use version 2")
    def find_all(query: str) -> dict[str, str]:
        """Find."""
        return {"1.9": query}

    @server.tool("find", version="1.10", inline=True)
    def find_some(query: str) -> dict[str, str]:
        """Find some."""
        return {"1.10": query}

    @server.tool("find", version="2-rc1", inline=True, visible=lambda principal: False)
    def find(query: str) -> dict[str, str]:
        """Find what nobody sees yet."""
        return {"2-rc1": query}

    return server


def make_headers_server(options: ServerOptions | None = None) -> Server:
    """Return a new server with a tool whose arguments are repeated in headers."""
    server = Server(NAME, version=VERSION, options=options)
    deep = {"type": "object", "properties": {"text": {"type": "string", "x-mcp-header": "Deep"}}}
    properties = {
        "text": {"type": "string", "x-mcp-header": "Text"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "flag": {"type": "boolean", "x-mcp-header": "Flag"},
        "deep": deep,
    }
    _register(server, "place", "Send all arguments back.", {"properties": properties}, _mirror)
    return server


def _register(
    server: Server, name: str, description: str, schema: dict[str, Any], handler: Any
) -> None:
    whole = {"type": "object", "additionalProperties": False, **schema}
    server.register(ToolDefinition(name, description, whole), handler, inline=True)


def _mirror(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    return arguments


def _crash(arguments: dict[str, Any], context: ToolContext) -> None:
    raise RuntimeError("boom")


def _fail(arguments: dict[str, Any], context: ToolContext) -> None:
    raise ToolError(arguments["code"], arguments["message"], arguments.get("details"))


def sleep(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """Return after so many ms, or end as soon as the signal fires if it is to be heeded."""
    woken = threading.Event()
    signal = context.abort_signal
    heeded = arguments.get("heed", True)
    if heeded:
        signal.add_callback(woken.set)
    woken.wait(arguments["ms"] / 1000)
    if heeded:
        signal.raise_if_aborted()
    return end_of_sleep(arguments)


def end_of_sleep(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return or raise what a sleeper ends with, once its time is over."""
    if arguments.get("fail", False):
        raise ToolError(ErrorCode.UNAUTHORIZED, "Slept badly.")
    return {"sleptMs": arguments["ms"]}


SERVERS = {
    "server": make_server,
    "features": make_featured_server,
    "content": make_content_server,
    "methods": make_methods_server,
    "versions": make_versions_server,
    "headers": make_headers_server,
}
"""The functions that make the servers, by name."""

server = make_server()
features = make_featured_server()
content = make_content_server()
methods = make_methods_server()
versions = make_versions_server()
headers = make_headers_server()
