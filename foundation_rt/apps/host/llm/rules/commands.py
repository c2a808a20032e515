"""`/server:tool key=value`: a call as people write it, and as a question keeps it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from attrs import frozen

from .....base.exact_json import loads_bounded
from ..service import ModelTool
from .parameters import Parameter, read_parameters, read_value

OPEN = "?"
"""The value of the parameter that a question asks for."""

_KEY = re.compile(r"\s*([^\s=\"']+)=")
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'")
_BARE = re.compile(r"\S*")
_MAX_COMPARED = 2_000


@frozen
class Command:
    """A call that was written out.

    Attributes:
        tool: that it names.
        arguments: that it has.
        asked: the parameter whose value is open; None if there is none.
    """

    tool: ModelTool
    arguments: Mapping[str, Any]
    asked: str | None = None


class CommandError(Exception):
    """A command that cannot be read; the message says why and what to write."""


def read_command(text: str, tools: Sequence[ModelTool]) -> Command:
    """Return the call that a text starting with `/` is.

    Raises:
        CommandError: the tool or a key is unknown, or a value does not fit.
    """
    tool, rest = _named_tool(text.strip()[1:], tools)
    parameters = {each.name: each for each in read_parameters(tool.parameters)}
    arguments: dict[str, Any] = {}
    asked = None
    while match := _KEY.match(rest):
        key = _known(match[1], parameters, tool)
        value, is_quoted, rest = _value(rest[match.end() :])
        if value == OPEN and not is_quoted:
            asked = key
        elif is_quoted and parameters[key].type == "string" and not parameters[key].choices:
            arguments[key] = value
        else:
            arguments[key] = _fitting(parameters[key], value, tool)
    if rest.strip():
        parameter = _only_open_text(parameters, arguments)
        if parameter is None:
            raise CommandError(f"Write the arguments as `key=value`: {usage_of(tool)}")
        arguments[parameter.name] = _fitting(parameter, rest.strip(), tool)
    return Command(tool, arguments, asked)


def write_command(tool: ModelTool, arguments: Mapping[str, Any], asked: str) -> str:
    """Return a call with an open parameter, as `read_command` reads it."""
    known = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items()]
    return " ".join([f"/{tool.name}", *known, f"{asked}={OPEN}"])


def usage_of(tool: ModelTool) -> str:
    """Return how a tool is called: `/server:tool key=...`, what it need not have in brackets."""
    shown = [
        f"{each.name}=…" if each.is_required else f"[{each.name}=…]"
        for each in read_parameters(tool.parameters)[:8]
    ]
    return "`" + " ".join([f"/{tool.name}", *shown]) + "`"


def _named_tool(text: str, tools: Sequence[ModelTool]) -> tuple[ModelTool, str]:
    """Return the tool at the start of a text and what follows; names may have blanks."""
    best: tuple[ModelTool, str] | None = None
    for tool in tools:
        bare = tool.name.partition(":")[2]
        is_only = sum(each.name.partition(":")[2] == bare for each in tools) == 1
        for name in (tool.name, tool.outside_name, *([bare] if is_only else ())):
            follows = text[len(name) : len(name) + 1]
            is_named = text.startswith(name) and (not follows or follows.isspace())
            if is_named and (best is None or len(text) - len(name) < len(best[1])):
                best = tool, text[len(name) :]
    if best is not None:
        return best
    word = text.split()[0] if text.split() else ""
    names = [tool.name for tool in tools][:_MAX_COMPARED]
    bare_names = {name.partition(":")[2]: name for name in names}
    near = get_close_matches(word[:128], [*names, *bare_names], n=3, cutoff=0.75)
    hint = ", ".join(f"`/{bare_names.get(name, name)}`" for name in dict.fromkeys(near))
    raise CommandError(
        f"There is no tool `{word[:128]}`."
        + (f" Did you mean {hint}?" if hint else "")
        + " `tools` lists them all."
    )


def _known(key: str, parameters: Mapping[str, Parameter], tool: ModelTool) -> str:
    if key in parameters:
        return key
    near = get_close_matches(key[:128], parameters, n=1)
    hint = f" Did you mean `{near[0]}`?" if near else ""
    raise CommandError(f"`{tool.name}` has no `{key[:128]}`.{hint} Write {usage_of(tool)}.")


def _value(text: str) -> tuple[str, bool, str]:
    """Return the value at the start of a text, whether it stood in quotes, and what follows it."""
    quoted = _QUOTED.match(text)
    if quoted is not None:
        shown = quoted[0]
        try:
            value = loads_bounded(shown) if shown[0] == '"' else shown[1:-1]
        except ValueError:
            value = shown[1:-1]
        return value, True, text[quoted.end() :]
    if text[:1] in ("{", "["):
        try:
            _, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            pass
        else:
            return text[:end], False, text[end:]
    bare = _BARE.match(text)
    assert bare is not None
    return bare[0], False, text[bare.end() :]


def _fitting(parameter: Parameter, value: str, tool: ModelTool) -> Any:
    try:
        return read_value(parameter, value)
    except ValueError:
        expected = f"`{parameter.name}` of `{tool.name}` is {parameter.expected}"
        raise CommandError(f"{expected}, not `{value[:128]}`.") from None


def _only_open_text(
    parameters: Mapping[str, Parameter], arguments: Mapping[str, Any]
) -> Parameter | None:
    lacking = [p for p in parameters.values() if p.is_required and p.name not in arguments]
    return lacking[0] if len(lacking) == 1 else None
