"""A server at a terminal: what it serves, and a line for each call instead of JSON (CLI-45, -46).

A server that a program has spawned imports nothing of this.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from ..base.jsonschema.compilation import compile_schema
from ..base.shell_words import join, quote
from ..client.safe_text import printable_line
from ..kernel.records import REQUEST_COMPLETED, TOOL_CALL_COMPLETED
from .render import in_words, takes_escapes, wrapped

if TYPE_CHECKING:
    from ..server import Server

_NAMES_SHOWN = 12
_NAME_WIDTH = 24
_MAX_LINE = 2000
_INDENT = " " * 9

_COLOURS = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}
LEVEL_COLOURS = {
    **dict.fromkeys(("debug",), "dim"),
    **dict.fromkeys(("info", "notice"), "cyan"),
    **dict.fromkeys(("warn", "warning"), "yellow"),
    **dict.fromkeys(("error", "critical", "alert", "emergency"), "red"),
}
"""The colours of the levels of a log, of this runtime's and of the protocol's."""


_VALUES = {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}, "null": None}
"""Of the example in a banner, by their types; text of others."""

_ANYWHERE = {"//0.0.0.0:": "//127.0.0.1:", "//[::]:": "//[::1]:"}
"""The hosts of a socket that listens everywhere, and those at which a client here reaches it."""

_COMPLETED = frozenset((TOOL_CALL_COMPLETED, REQUEST_COMPLETED))
_IN_BANNER = "serving over HTTP"
# Ids, which relate lines of a log to each other; and what stands in front.
_UNSHOWN = frozenset(
    ("timestamp", "level", "message", "connectionCorrelationId", "runId", "correlationId")
)
_OF_CALL = frozenset(
    ("toolName", "method", "name", "durationMs", "outcome", "errorCode", "payloadBytes")
)


def has_colours() -> bool:
    """Return whether the terminal gets colours: not with NO_COLOR, nor one without escapes."""
    return not os.environ.get("NO_COLOR") and takes_escapes()


def paint(text: str, colour: str, *, coloured: bool) -> str:
    """Return a text in a colour of `_COLOURS`, or as it is."""
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if coloured else text


# -- lines of the log -----------------------------------------------------------------------------


def readable_record(line: bytes, *, coloured: bool) -> str:
    """Return a record of the log as a line for people; "" for one that the banner has said.

    Args:
        line: JSON, as the log has it.
        coloured: for a terminal with colours.
    """
    record = orjson.loads(line)
    if record["message"] == _IN_BANNER:
        return ""
    at = datetime.fromisoformat(record["timestamp"]).astimezone()
    words = [paint(f"{at:%H:%M:%S}", "dim", coloured=coloured)]
    lines = [*_error_lines(record.pop("error", None))]
    left_out = _UNSHOWN
    if record["message"] in _COMPLETED:
        words += _call_words(record, coloured)
        left_out |= _OF_CALL
    else:
        level = str(record["level"])
        colour = LEVEL_COLOURS.get(level, "yellow")
        words.append(paint(f"{level:<5}", colour, coloured=coloured))
        if lines:
            words.append(f"{lines.pop(0).strip()} ")
        words.append(printable_line(record["message"]))
    more = {name: value for name, value in record.items() if name not in left_out}
    words += (paint(text, "dim", coloured=coloured) for text in _pairs(more))
    return "".join(f"{each}\n" for each in (" ".join(words), *lines))


def readable_problem(line: bytes, *, coloured: bool) -> str:
    """Return a record as `readable_record` does; of the end of a call only its exception.

    It is for who has made the call: the result is shown in another place.
    """
    record = orjson.loads(line)
    if record["message"] not in _COMPLETED:
        return readable_record(line, coloured=coloured)
    return "".join(f"{each}\n" for each in _error_lines(record.get("error")))


def _call_words(record: Mapping[str, Any], coloured: bool) -> list[str]:
    """Return mark, name, duration and error of a call."""
    is_fine = record.get("outcome") == "success"
    name = record.get("toolName") or f"{record.get('method', '')} {record.get('name', '')}".strip()
    said = "ok" if is_fine else str(record.get("errorCode") or record.get("outcome") or "")
    colour = "green" if is_fine else "red"
    return [
        paint("✓" if is_fine else "✗", colour, coloured=coloured),
        f"{printable_line(str(name)):<{_NAME_WIDTH}}",
        f"{record.get('durationMs', 0.0):>9.1f} ms ",
        paint(printable_line(said), colour, coloured=coloured),
    ]


def _error_lines(error: Any, indent: str = _INDENT) -> Iterable[str]:
    """Return an exception of the program, with the places it came through, innermost last.

    A group of one exception is shown as that one, a larger group before its exceptions.
    """
    if error is None:
        return
    if not isinstance(error, dict):
        yield f"{indent}{printable_line(str(error)[:_MAX_LINE])}"
        return
    while len(inner := error.get("exceptions", [])) == 1:
        error = inner[0]
    name = error.get("type") or error.get("code") or "error"
    said = f"{name}: {error.get('message', '')}"
    yield f"{indent}{printable_line(said[:_MAX_LINE])}"
    from .program_errors import own_frames, source_of

    frames = own_frames([str(frame) for frame in error.get("frames") or ()])
    for frame in frames:
        yield f"{indent}  {printable_line(frame)}"
    if frames:
        yield f"{indent}    {printable_line(source_of(frames[-1]))}"
    for each in inner:
        yield from _error_lines(each, f"{indent}  ")


def _pairs(fields: Mapping[str, Any]) -> Iterable[str]:
    for name, value in fields.items():
        yield printable_line(f"{name}={in_words(value)}"[:_MAX_LINE])


def log_to_terminal(server: Server) -> None:
    """Make the server write its log in lines for people (CLI-46)."""
    coloured = has_colours()
    server.log_as(lambda line: readable_record(line, coloured=coloured).encode())


# -- the banner -----------------------------------------------------------------------------------


def greet_over_http(server: Server, url: str) -> None:
    """Show on stderr what is served, where, and how to try it (CLI-45).

    Args:
        server: serves already.
        url: of the endpoint.
    """
    tried = " ".join(["foundation-rt", "call", quote(reachable(url)), *_example(server)])
    if not server.runtime.config.http.no_auth:
        # A key is asked for: no log and no terminal shows one.
        tried = f'read -r KEY && {tried} --header "Authorization: Bearer $KEY"'
    _write(server, [("address", url), *_served(server), ("try it", tried), ("end it", "Ctrl-C")])


def reachable(url: str) -> str:
    """Return the URL at which a client of this machine reaches a server that listens at `url`."""
    for anywhere, here in _ANYWHERE.items():
        url = url.replace(anywhere, here)
    return url


def greet_over_stdio(server: Server, arguments: Sequence[str]) -> None:
    """Tell the person at the terminal what stdin is for, and what to do instead (CLI-45).

    Args:
        server: begins to serve.
        arguments: the command and its arguments, such as `serve tools.py`.
    """
    target = _target(arguments)
    rows = [*_served(server)]
    if target is not None:
        words = ["foundation-rt", "call", target, *_example(server)]
        rows.append(("try it", " ".join(words)))
        rows.append(("see it all", f"foundation-rt inspect {target}"))
    http = server.runtime.config
    is_closed = http.http.api_keys or http.has_issuer() or http.http.no_auth
    words = [*arguments, "--http", "8000", *(() if is_closed else ("--no-auth",))]
    rows.append(("over HTTP", join(["foundation-rt", *words])))
    rows.append(("end it", "Ctrl-Z, then Enter" if sys.platform == "win32" else "Ctrl-D"))
    text = (
        "This terminal is now the client: stdin takes JSON-RPC messages, one on a line, as the"
        " program sends them that starts this server.\n"
    )
    _write(server, rows, text)


def _target(arguments: Sequence[str]) -> str | None:
    """Return the TARGET that names the same server to the commands of a client, if a word can."""
    command, *rest = arguments
    words = [word for word in rest if not word.startswith("-")]
    if command != "serve" or "--" in rest:
        return None
    if not words:
        return "'foundation-rt serve'"
    target = words[0]
    return quote(target if ":" in target or target.endswith(".py") else f"{target}:server")


def _example(server: Server) -> list[str]:
    """Return the name of a tool and arguments that fit: of `health` if of no other."""
    tools = sorted(server.list(), key=lambda each: each.name == "health")
    for tool in tools:
        schema = tool.input_schema
        members = schema.get("properties", {})
        given = {name: _value_of(members.get(name, {})) for name in schema.get("required", ())}
        if not compile_schema(schema).validate(given):
            pairs = (f"{name}={in_words(value)}" for name, value in given.items())
            return [*map(quote, (tool.name, *pairs))]
    return ["TOOL"]


def _value_of(schema: Any) -> Any:
    """Return a value that probably fits a schema of an argument."""
    for keyword in ("examples", "enum", "anyOf", "oneOf"):
        if found := schema.get(keyword):
            return found[0] if keyword in ("examples", "enum") else _value_of(found[0])
    return schema.get("default", _VALUES.get(str(schema.get("type")), "text"))


def _served(server: Server) -> list[tuple[str, str]]:
    resources, prompts = server.features.resources, server.features.prompts
    lists = {
        "tools": [*dict.fromkeys(each.name for each in server.list())],
        "resources": [each.definition.uri for each in resources.resources.entries()],
        "templates": [each.definition.uri_template for each in resources.templates.entries()],
        "prompts": [each.definition.name for each in prompts.entries()],
    }
    return [(kind, _listed(names)) for kind, names in lists.items() if names]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _write(server: Server, rows: Sequence[tuple[str, str]], text: str = "") -> None:
    coloured, config = has_colours(), server.runtime.config.server
    title = paint(printable_line(config.name), "bold", coloured=coloured)
    columns = shutil.get_terminal_size().columns
    lines = [f"{title} {printable_line(config.version)}\n", wrapped(text, columns)]
    for name, value in rows:
        shown = paint(f"{name:<10}", "cyan", coloured=coloured)
        lines.append(f"  {shown} {printable_line(value)}\n")
    with suppress(OSError, AttributeError):  # the terminal has been closed
        sys.stderr.write("".join(lines) + "\n")
        sys.stderr.flush()
