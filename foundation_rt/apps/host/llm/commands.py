"""`/server:tool key=value`: a call as people write it, and as a question keeps it. Pure.

`Parameter` is a parameter of a tool, whose values are read as people write them (LLM-84).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from ....base.close_names import close_names
from ....base.exact_json import loads_bounded
from ....base.jsonschema.references import at_pointer
from .portability import target_of
from .service import ModelTool

MAX_PARAMETERS = 64
_YES = {"true", "yes", "on", "y", "1"}
_NO = {"false", "no", "off", "n", "0"}
_NUMBER = re.compile(r"[-+]?\d{1,30}(?:\.\d{1,30})?(?:[eE][-+]?\d{1,2})?")
_FORMATS = {
    "uri": "a URL",
    "date": "a date such as 2026-05-31",
    "date-time": "a time such as 2026-05-31T08:00:00Z",
    "email": "an address such as ann@example.org",
}


@frozen
class Parameter:
    """A parameter of a tool.

    Attributes:
        name: as in the schema.
        type: of JSON Schema; "" if it takes several.
        is_required: a call needs it.
        choices: the only values that it takes; () if there is no such list.
        format: of JSON Schema; "" without one.
        description: "" if there is none.
        items: the type of the items of an array.
    """

    name: str
    type: str
    is_required: bool
    choices: Sequence[Any] = ()
    format: str = ""
    description: str = ""
    items: str = ""

    @property
    def expected(self) -> str:
        """The kind of value that it takes, for people."""
        if self.choices:
            return "one of " + ", ".join(f"`{choice}`" for choice in self.choices[:20])
        kinds = {
            "integer": "a whole number",
            "number": "a number",
            "boolean": "yes or no",
            "array": "a list: values with commas between, or JSON",
            "object": "a JSON object",
        }
        if self.type == "array" and self.items in ("object", "array"):
            return "a list, as JSON"
        return kinds.get(self.type) or _FORMATS.get(self.format) or "a text"


def read_parameters(schema: Mapping[str, Any]) -> list[Parameter]:
    """Return the parameters of a schema, the required ones first."""
    properties = schema.get("properties")
    required = schema.get("required")
    if not isinstance(properties, Mapping):
        return []
    listed = required if isinstance(required, Sequence) else ()
    names = {name for name in listed if isinstance(name, str)}
    found = [
        _parameter(str(name), each, schema, name in names)
        for name, each in list(properties.items())[:MAX_PARAMETERS]
    ]
    return sorted(found, key=lambda parameter: not parameter.is_required)


def _parameter(name: str, given: Any, root: Mapping[str, Any], is_required: bool) -> Parameter:
    schema = _resolved(given, root)
    items = _resolved(schema.get("items"), root)
    choices = schema.get("enum", ())
    if "const" in schema:
        choices = (schema["const"],)
    description = schema.get("description", "")
    if isinstance(given, Mapping) and not description:
        description = given.get("description", "")
    return Parameter(
        name=name,
        type=_type(schema),
        is_required=is_required,
        choices=tuple(choices) if isinstance(choices, Sequence) else (),
        format=str(schema.get("format", "")),
        description=" ".join(description.split()) if isinstance(description, str) else "",
        items=_type(items),
    )


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema without references within the document, and the choice that is not null."""
    for _ in range(8):
        if not isinstance(schema, Mapping):
            return {}
        options = schema.get("anyOf") or schema.get("oneOf")
        if (target := target_of(schema)) is not None:
            schema = at_pointer(root, target)
        elif isinstance(options, list) and "type" not in schema and "enum" not in schema:
            real = [each for each in options if each != {"type": "null"}]
            if len(real) != 1:
                return schema
            schema = real[0]
        else:
            return schema
    return {}


def _type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        real = [each for each in kind if each != "null"]
        kind = real[0] if len(real) == 1 else None
    if isinstance(kind, str):
        return kind
    choices = schema.get("enum")
    is_texts = isinstance(choices, list) and all(isinstance(each, str) for each in choices)
    return "string" if is_texts else ""


def read_value(parameter: Parameter, text: str) -> Any:
    """Return the value that a text says.

    Raises:
        ValueError: it says none.
    """
    said = unquoted(text.strip())
    if parameter.choices:
        return _choice(parameter, said)
    if parameter.type in ("integer", "number"):
        return _number(parameter, said)
    if parameter.type == "boolean":
        word = said.lower().strip(" .!")
        if word not in _YES | _NO:
            raise ValueError(parameter.expected)
        return word in _YES
    if parameter.type == "array":
        return _list(parameter, said)
    if parameter.type == "object":
        value = loads_bounded(said)
        if not isinstance(value, dict):
            raise ValueError(parameter.expected)
        return value
    if not said and parameter.is_required:
        raise ValueError(parameter.expected)
    return said if parameter.type == "string" else _anything(said)


def _choice(parameter: Parameter, said: str) -> Any:
    for choice in parameter.choices:
        if str(choice).lower() == said.lower().strip(" .!"):
            return choice
    raise ValueError(parameter.expected)


def _number(parameter: Parameter, said: str) -> int | float:
    if _NUMBER.fullmatch(said) is None:
        raise ValueError(parameter.expected)
    if said.lstrip("+-").isdigit():
        return int(said)
    value = float(said)
    if parameter.type == "integer" and value != int(value):
        raise ValueError(parameter.expected)
    return int(value) if parameter.type == "integer" else value


def _list(parameter: Parameter, said: str) -> list[Any]:
    if said.startswith("["):
        items: list[Any] = loads_bounded(said)
        return items
    item = Parameter(parameter.name, parameter.items or "string", True)
    parts = [part.strip() for part in re.split(r"[,;\n]", said)]
    return [read_value(item, part) for part in parts if part]


def _anything(said: str) -> Any:
    try:
        return loads_bounded(said)
    except ValueError:
        return said


def unquoted(text: str) -> str:
    """Return a text without the quotes around it."""
    pairs = {'"': '"', "'": "'", "“": "”", "„": "“", "«": "»", "`": "`"}
    if len(text) >= 2 and pairs.get(text[0]) == text[-1]:
        return text[1:-1]
    return text


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
    near = close_names(word, [*names, *bare_names], cutoff=0.75)
    hint = ", ".join(f"`/{bare_names.get(name, name)}`" for name in dict.fromkeys(near))
    raise CommandError(
        f"There is no tool `{word[:128]}`."
        + (f" Did you mean {hint}?" if hint else "")
        + " `tools` lists them all."
    )


def _known(key: str, parameters: Mapping[str, Parameter], tool: ModelTool) -> str:
    if key in parameters:
        return key
    near = close_names(key, parameters, 1)
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
