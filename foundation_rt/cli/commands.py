"""The commands of a client: their requests, and the results that they show (CLI-09).

Arguments of tools and prompts come from the command line (CLI-16).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from ..base.exact_json import loads
from ..base.tool_versions import DEPRECATED_KEY
from ..client.errors import MCPError
from ..client.resilience.circuit_breaker import BreakerSettings
from ..errors import JsonRpcErrorCode
from .args import FOLDERS, Argument, CliCommand, CommandLine, CommandLineError, Option
from .json_schemas import types_of
from .render import Heading, Page, Paragraph, Part, Table
from .reports import (
    call_report,
    capability_list,
    listed,
    ping_report,
    prompt_report,
    read_report,
    title_of,
    tool_list,
)
from .run import FAILURE_EXIT, Answer, ClientCommand, log, run
from .targets import TARGET, TARGET_OPTIONS

if TYPE_CHECKING:
    from ..client.client import Client
    from ..client.session.handshake import ServerDescription
    from .live_view import LiveView

MAX_PINGS = 1_000_000
_DEFAULT_PINGS = 10
_PERCENTILES = {"p50": 50, "p95": 95, "p99": 99}


async def _tools(client: Client, line: CommandLine, view: LiveView | None) -> Answer:
    tools = [tool.wire for tool in await client.list_tools()]
    return Answer({"tools": tools}, tool_list(tools))


async def _call(client: Client, line: CommandLine, view: LiveView | None) -> Answer:
    _, name, *words = line.positional
    tool = await client.get_tool_schema(name)
    result = await client.call(
        name,
        read_arguments(words, tool.input_schema),
        on_progress=None if view is None else view.progress,
    )
    advice = result.meta.get(DEPRECATED_KEY)
    if type(advice) is str:
        log.warning("%s is deprecated: %s", name, advice)
    result.raise_for_error()
    return Answer(result.wire, call_report(result))


async def _read(client: Client, line: CommandLine, view: LiveView | None) -> Answer:
    result = await client.read_resource(line.positional[1])
    return Answer(result.wire, read_report(result))


async def _prompt(client: Client, line: CommandLine, view: LiveView | None) -> Answer:
    _, name, *words = line.positional
    result = await client.get_prompt(name, read_texts(words))
    return Answer(result.wire, prompt_report(result))


async def _ping(client: Client, line: CommandLine, view: LiveView | None) -> Answer:
    count = line.number("--count") or _DEFAULT_PINGS
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


async def _inspect(client: Client, line: CommandLine, view: LiveView | None) -> Answer:
    server = await client.initialize()
    found = await _lists(client, server)
    failed = {name: each for name, each in found.items() if isinstance(each, MCPError)}
    data = {
        "serverInfo": server.implementation,
        "protocolVersion": server.revision.name,
        "mode": server.revision.mode.value,
        "capabilities": server.capabilities,
        "instructions": server.instructions,
        **{name: each for name, each in found.items() if name not in failed},
        "failed": {name: error.message for name, error in failed.items()},
    }
    page = [*_initialized(server)]
    for name, entries in found.items():
        page += _section(name, entries)
    return Answer(data, page, FAILURE_EXIT if failed else 0)


async def _lists(client: Client, server: ServerDescription) -> dict[str, Any]:
    """Return all lists of the server by name; in place of a list that fails, its error."""
    requests: dict[str, tuple[str, Callable[[], Awaitable[Any]]]] = {
        "tools": ("tools", client.list_tools),
        "resources": ("resources", client.list_resources),
        "resourceTemplates": ("resources", client.list_resource_templates),
        "prompts": ("prompts", client.list_prompts),
    }
    found: dict[str, Any] = {}
    for name, (capability, ask) in requests.items():
        if server.can(capability):
            try:
                found[name] = [each.wire for each in await ask()]
            except MCPError as error:
                # A server with resources but without templates may not have the method.
                if error.original_code != JsonRpcErrorCode.METHOD_NOT_FOUND:
                    found[name] = error
    return found


def _initialized(server: ServerDescription) -> Page:
    rows = [
        ("revision", f"{server.revision.name} ({server.revision.mode.value})"),
        ("capabilities", capability_list(server.capabilities) or "none"),
    ]
    parts: list[Part] = [Heading(server.name or "a server without a name", server.version)]
    parts.append(Table(rows))
    if server.instructions:
        parts += [Heading("INSTRUCTIONS"), Paragraph(server.instructions)]
    return parts


def _section(name: str, found: Any) -> Page:
    """Return one of the lists of `inspect`."""
    if isinstance(found, MCPError):
        return [Heading(title_of(name)), Paragraph(f"cannot be listed: {found}")]
    return [*listed(name, found)]


_PERSON = """

At a terminal you see progress and log messages meanwhile, and answer what the server asks. Ctrl-D
cancels a question, Ctrl-C the request."""
_EXIT_CODES = """

exit codes: 0; 1 the tool failed; 2 the command line or the arguments are wrong; 3 the server cannot
be reached, or has not sent the result; 4 stdout cannot be written; 130 interrupted"""
_COUNT = Option("--count", "send N pings, by default 10", "N", range(1, MAX_PINGS + 1))
_SAVE = Option(
    "--save", "write images, audio and other bytes to new files in it", "FOLDER", FOLDERS
)
_SAVING = {
    **TARGET_OPTIONS,
    "options of the output": (*TARGET_OPTIONS["options of the output"], _SAVE),
}

TOOLS = CliCommand(
    "tools",
    "list its tools",
    partial(run, ClientCommand(_tools, frozenset({"tools"}))),
    (TARGET,),
    TARGET_OPTIONS,
    takes_program=True,
    usage_exit=2,
    about="""\
List the tools of a server, each in a line. `foundation-rt inspect` shows their schemas too.""",
    notes=f"""\
examples:
  foundation-rt tools tools.py
  foundation-rt tools https://example.com/mcp --header "X-API-Key: $KEY"{_EXIT_CODES}
""",
)
CALL = CliCommand(
    "call",
    "call a tool; print its result",
    partial(run, ClientCommand(_call, frozenset({"tools"}), is_attended=True)),
    (
        TARGET,
        Argument("TOOL", "the name of the tool"),
        Argument(
            "ARGUMENT",
            "KEY=VALUE, read as the tool's schema says; KEY:=JSON; or all of them as one JSON"
            " object",
            count="*",
        ),
    ),
    _SAVING,
    takes_program=True,
    usage_exit=2,
    about=f"""\
Call one tool and print what it returns. The arguments are checked against its schema
first.{_PERSON}""",
    notes=f"""\
examples:
  foundation-rt call tools.py forecast city=Oslo days=3
  foundation-rt call tools.py forecast city=Oslo 'days:=3' --json
  foundation-rt call tools.py forecast '{{"city": "Oslo"}}' --timeout 5
  foundation-rt call "uvx some-server" chart --save charts{_EXIT_CODES}""",
)
READ = CliCommand(
    "read",
    "read a resource",
    partial(run, ClientCommand(_read, frozenset({"resources"}), is_attended=True)),
    (TARGET, Argument("URI", "the address of the resource")),
    _SAVING,
    takes_program=True,
    usage_exit=2,
    about=f"Read a resource of a server and print its contents.{_PERSON}",
    notes=f"""\
examples:
  foundation-rt read tools.py notes://today
  foundation-rt read tools.py image://logo > logo.png{_EXIT_CODES}""",
)
PROMPT = CliCommand(
    "prompt",
    "print a prompt, filled in",
    partial(run, ClientCommand(_prompt, frozenset({"prompts"}), is_attended=True)),
    (
        TARGET,
        Argument("NAME", "the name of the prompt"),
        Argument("KEY=VALUE", "an argument of the prompt", count="*"),
    ),
    _SAVING,
    takes_program=True,
    usage_exit=2,
    about=f"Print the messages of a prompt, filled in with these arguments.{_PERSON}",
    notes=f"""\
examples:
  foundation-rt prompt tools.py review language=python{_EXIT_CODES}""",
)
INSPECT = CliCommand(
    "inspect",
    "show all its lists, with readable schemas",
    partial(run, ClientCommand(_inspect)),
    (TARGET,),
    TARGET_OPTIONS,
    takes_program=True,
    usage_exit=2,
    about="""\
Show a server: its name, revision and capabilities, its tools and prompts with readable schemas, its
resources and templates.""",
    notes=f"""\
examples:
  foundation-rt inspect tools.py
  foundation-rt inspect "npx -y @modelcontextprotocol/server-everything"
  foundation-rt inspect weather --servers mcp.json --json{_EXIT_CODES}""",
)
PING = CliCommand(
    "ping",
    "measure its round-trip times",
    partial(
        run,
        # All pings are sent, however many were lost before.
        ClientCommand(_ping, options={"breaker": BreakerSettings(failure_threshold=MAX_PINGS + 1)}),
    ),
    (TARGET,),
    {"options": (_COUNT,), **TARGET_OPTIONS},
    takes_program=True,
    usage_exit=2,
    about="""\
Ping a server N times, one after the other; print the least time, p50, p95, p99 and the greatest.
""",
    notes=f"""\
examples:
  foundation-rt ping tools.py --count 100
  foundation-rt ping https://example.com/mcp --json{_EXIT_CODES}""",
)


# -- arguments ------------------------------------------------------------------------------------


def read_arguments(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a tool: of one JSON object, or of words `key=value` and `key:=JSON`.

    Args:
        words: the command line after the name of the tool; none are no arguments.
        schema: the tool's `inputSchema`; it has the types of the values, and is not enforced here.

    Raises:
        CommandLineError: a word has neither form, a key comes twice, or a value has the wrong type.
    """
    if len(words) == 1 and words[0].lstrip()[:1] == "{":
        return _read_object(words[0])
    arguments: dict[str, Any] = {}
    for key, value, is_json in map(_split, words):
        if key in arguments:
            raise CommandLineError(f"the argument {key!r} is given twice")
        arguments[key] = _json(key, value) if is_json else _by_schema(key, value, schema)
    return arguments


def read_texts(words: Sequence[str]) -> dict[str, str]:
    """Return the arguments of a prompt, which are all text, of words `key=value`.

    Raises:
        CommandLineError: a word is not of that form, or a key comes twice.
    """
    arguments: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise CommandLineError(f"{word!r} is not of the form key=value")
        if key in arguments:
            raise CommandLineError(f"the argument {key!r} is given twice")
        arguments[key] = value
    return arguments


def _split(word: str) -> tuple[str, str, bool]:
    key, equals, value = word.partition("=")
    is_json = key.endswith(":")
    key = key.removesuffix(":")
    if not equals or not key:
        raise CommandLineError(f"{word!r} is neither a JSON object nor of the form key=value")
    return key, value, is_json


def _read_object(text: str) -> dict[str, Any]:
    try:
        read: dict[str, Any] = loads(text)
    except orjson.JSONDecodeError as error:
        raise CommandLineError(f"the arguments are not valid JSON: {error}") from None
    return read


def _json(key: str, text: str) -> Any:
    try:
        return loads(text)
    except orjson.JSONDecodeError as error:
        raise CommandLineError(f"{key}:= takes JSON: {error}") from None


def _by_schema(key: str, text: str, schema: Mapping[str, Any]) -> Any:
    """Return text if the schema takes text; else JSON; without a type, JSON if it is valid."""
    properties = schema.get("properties")
    declared = properties.get(key) if isinstance(properties, dict) else None
    types = types_of(declared, schema)
    if "string" in types:
        return text
    try:
        return loads(text)
    except orjson.JSONDecodeError:
        if not types:
            return text
    raise CommandLineError(
        f"{key} takes {' or '.join(sorted(types))}, written as JSON; not {text!r}"
    )


# -- times ----------------------------------------------------------------------------------------


def percentiles(times: Sequence[float]) -> Mapping[str, float]:
    """Return the least, p50, p95, p99 and the greatest time, by nearest rank; of none, nothing.

    A percentile is one of the measured times: interpolation would show a time that was not.
    """
    if not times:
        return {}
    ordered = sorted(times)
    ranks = {
        # The rank is rounded up, with whole numbers: 0.95 is not exact.
        name: ordered[-(-percent * len(ordered) // 100) - 1]
        for name, percent in _PERCENTILES.items()
    }
    return {"min": ordered[0], **ranks, "max": ordered[-1]}
