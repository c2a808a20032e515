"""The commands that ask a server: what each asks, and what it makes of the answers (CLI-09)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from ..client.failing.circuit_breaker import BreakerSettings
from ..client.failing.errors import MCPError
from ..errors import JsonRpcErrorCode
from .arguments import read_arguments, read_texts
from .latency import percentiles
from .page import Heading, Page, Paragraph, Part, Table
from .reports import (
    call_report,
    capability_list,
    entry_list,
    ping_report,
    prompt_details,
    prompt_report,
    read_report,
    tool_details,
    tool_list,
)
from .words import CommandLine, UsageProblem

if TYPE_CHECKING:
    from ..client.client import Client
    from ..client.sessions.server_description import ServerDescription

FAILURE_EXIT = 3
"""The server cannot be reached, or did not answer as asked."""

MAX_PINGS = 1_000_000
_DEFAULT_PINGS = 10


@frozen
class Answer:
    """What a command has to say.

    Attributes:
        data: JSON, for programs.
        page: for people.
    """

    data: Any
    page: Page
    exit_code: int = 0


@frozen
class ClientCommand:
    """A command that asks a server.

    Attributes:
        perform: asks; raises `UsageProblem`, `MCPError`, `ToolCallError`.
        takes: what stands on the command line, after options.
        require: the capabilities it cannot do without.
        takes_more: whether any number of arguments may follow.
        options: of `ClientOptions`, besides.
    """

    perform: Callable[[Client, CommandLine], Awaitable[Answer]]
    takes: tuple[str, ...]
    require: frozenset[str] = frozenset()
    takes_more: bool = False
    options: Mapping[str, Any] = field(factory=dict)


async def _tools(client: Client, line: CommandLine) -> Answer:
    tools = [tool.wire for tool in await client.list_tools()]
    return Answer({"tools": tools}, tool_list(tools))


async def _call(client: Client, line: CommandLine) -> Answer:
    _, name, *words = line.positional
    tool = await client.get_tool_schema(name)
    result = await client.call(name, read_arguments(words, tool.input_schema))
    result.raise_for_error()
    return Answer(result.wire, call_report(result))


async def _read(client: Client, line: CommandLine) -> Answer:
    result = await client.read_resource(line.positional[1])
    return Answer(result.wire, read_report(result))


async def _prompt(client: Client, line: CommandLine) -> Answer:
    _, name, *words = line.positional
    result = await client.get_prompt(name, read_texts(words))
    return Answer(result.wire, prompt_report(result))


async def _ping(client: Client, line: CommandLine) -> Answer:
    count = _count(line.option("--count"))
    await client.initialize()
    times = []
    for _ in range(count):
        try:
            times.append(await client.ping() * 1000)
        except MCPError as error:
            last = error
    if not times:
        raise last
    found, lost = percentiles(times), count - len(times)
    data = {"sent": count, "lost": lost, "ms": dict(found)}
    return Answer(data, ping_report(count, lost, found))


def _count(text: str | None) -> int:
    if text is None:
        return _DEFAULT_PINGS
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_PINGS))
    if not (is_number and 1 <= int(text) <= MAX_PINGS):
        raise UsageProblem(f"--count is a number from 1 to {MAX_PINGS}, not {text!r}")
    return int(text)


async def _inspect(client: Client, line: CommandLine) -> Answer:
    server = await client.initialize()
    found = await _lists(client, server)
    failed = {name: each for name, each in found.items() if isinstance(each, MCPError)}
    data = {
        "serverInfo": server.implementation,
        "protocolVersion": server.revision.name,
        "era": server.revision.era.value,
        "capabilities": server.capabilities,
        "instructions": server.instructions,
        **{name: each for name, each in found.items() if name not in failed},
        "failed": {name: error.message for name, error in failed.items()},
    }
    page = [*_introduction(server)]
    for name, listed in found.items():
        page += _section(name, listed)
    return Answer(data, page, FAILURE_EXIT if failed else 0)


async def _lists(client: Client, server: ServerDescription) -> dict[str, Any]:
    """All that the server offers, by name of the list; an error where one cannot be had."""

    ways: dict[str, tuple[str, Callable[[], Awaitable[Any]]]] = {
        "tools": ("tools", client.list_tools),
        "resources": ("resources", client.list_resources),
        "resourceTemplates": ("resources", client.list_resource_templates),
        "prompts": ("prompts", client.list_prompts),
    }
    found: dict[str, Any] = {}
    for name, (capability, ask) in ways.items():
        if server.can(capability):
            try:
                found[name] = [each.wire for each in await ask()]
            except MCPError as error:
                # Servers that have resources, and no templates, may not know the method.
                if error.original_code != JsonRpcErrorCode.METHOD_NOT_FOUND:
                    found[name] = error
    return found


def _introduction(server: ServerDescription) -> Page:
    rows = [
        ("revision", f"{server.revision.name} ({server.revision.era.value})"),
        ("capabilities", capability_list(server.capabilities) or "none"),
    ]
    parts: list[Part] = [Heading(server.name or "a server without a name", server.version)]
    parts.append(Table(rows))
    if server.instructions:
        parts += [Heading("INSTRUCTIONS"), Paragraph(server.instructions)]
    return parts


def _section(name: str, listed: Any) -> Page:
    """One of the lists of `inspect`."""
    title = "RESOURCE TEMPLATES" if name == "resourceTemplates" else name.upper()
    if isinstance(listed, MCPError):
        return [Heading(title), Paragraph(f"cannot be listed: {listed}")]
    parts: list[Part] = [Heading(title, str(len(listed)))]
    match name:
        case "tools":
            parts += [part for tool in listed for part in tool_details(tool)]
        case "prompts":
            parts += [part for prompt in listed for part in prompt_details(prompt)]
        case "resources":
            parts += entry_list(listed, "uri")
        case _:
            parts += entry_list(listed, "uriTemplate")
    return parts


CLIENT_COMMANDS: Mapping[str, ClientCommand] = {
    "tools": ClientCommand(_tools, ("TARGET",), frozenset({"tools"})),
    "call": ClientCommand(_call, ("TARGET", "TOOL"), frozenset({"tools"}), takes_more=True),
    "read": ClientCommand(_read, ("TARGET", "URI"), frozenset({"resources"})),
    "prompt": ClientCommand(_prompt, ("TARGET", "NAME"), frozenset({"prompts"}), takes_more=True),
    "ping": ClientCommand(
        _ping,
        ("TARGET",),
        # Every ping is to be sent, however many were lost before it.
        options={"breaker": BreakerSettings(failure_threshold=MAX_PINGS + 1)},
    ),
    "inspect": ClientCommand(_inspect, ("TARGET",)),
}
