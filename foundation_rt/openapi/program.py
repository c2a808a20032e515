"""A program from a document: plain typed functions, which a person goes on editing (OAPI-42)."""

from __future__ import annotations

import keyword
import re
import textwrap
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from ..registry.resources import ResourceTemplateDefinition
from ..signatures.type_schema import any_value
from .api import Api, ApiResource, ApiTool
from .arguments import ArgumentPlan
from .client import is_form, usual_parameter
from .operations import ApiOperation, ApiParameter
from .texts import snake_case

_WIDTH: Final = 96
_TYPES: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
_HINTS: Final = {
    "GET": "READS",
    "PUT": "REPLACES",
    "DELETE": "REPLACES",
    "PATCH": "CHANGES",
    "POST": "ADDS",
}
_MEMBERS: Final = {"path": "values", "query": "query", "header": "headers", "cookie": "cookies"}
_TEXT: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*["]""")
_CHOICES: Final = re.compile(rf"Literal\[((?:{_TEXT.pattern}|, )*)\]")
_RESERVED: Final = frozenset(("ctx", "api", "server", "uri", "self"))

_HEAD: Final = '''\
"""Tools of {title}, written by `foundation-rt openapi`."""

from __future__ import annotations

from typing import Any, Literal

from foundation_rt import Server, ToolAnnotations, ToolContext, ToolResult
from foundation_rt.openapi.client import ApiClient
from foundation_rt.openapi.operations import ApiParameter
from foundation_rt.openapi.security import SecurityScheme
from foundation_rt.protocol.content import ResourceContents

READS = ToolAnnotations(read_only=True, open_world=True)
REPLACES = ToolAnnotations(read_only=False, destructive=True, idempotent=True, open_world=True)
CHANGES = ToolAnnotations(read_only=False, destructive=True, open_world=True)
ADDS = ToolAnnotations(read_only=False, open_world=True)

server = Server({name}, version={version})
api = ApiClient(
    server,
    {base_url},
{client})
'''
_TAIL: Final = """

if __name__ == "__main__":
    server.run()
"""


def write_program(api: Api, name: str | None = None) -> str:
    """Return the text of a program with the tools and resources of an API.

    Args:
        api: of a document.
        name: of the server; by default the title of the document.
    """
    used: list[ApiTool | ApiResource] = [*api.tools, *api.resources]
    base_url = _most_common([each.base_url for each in used], "http://localhost")
    security = _most_common([each.operation.security for each in used], ())
    writer = _Writer(base_url, security)
    functions = [writer.tool(each) for each in api.tools]
    functions += [writer.resource(each) for each in api.resources]
    schemes = [
        f'        SecurityScheme("{each.name}", "{each.kind}", {written(each.parameter)}),\n'
        for each in api.credentials.schemes.values()
    ]
    client = f"    schemes=(\n{''.join(schemes)}    ),\n" if schemes else ""
    client += f"    security={written(security)},\n" if security else ""
    title = re.sub(r"[^\w .,:()-]", "", api.title)[:40].strip()
    head = _HEAD.format(
        title=title,
        name=written(name or api.title),
        version=written(api.version),
        base_url=written(base_url),
        client=client,
    )
    text = "\n\n".join([head.rstrip("\n") + "\n", *functions]) + _TAIL
    return _without_unused(text)


def uri_of(resource: ApiResource) -> str:
    """Return the URI of a resource, or its template."""
    definition = resource.definition
    if isinstance(definition, ResourceTemplateDefinition):
        return definition.uri_template
    return definition.uri


def _most_common(values: Iterable[Any], default: Any) -> Any:
    counted = Counter(values).most_common(1)
    return counted[0][0] if counted else default


def _without_unused(text: str) -> str:
    """Return a program without the imports and the hints that it does not use."""
    for name in ("Any", "Literal", "ApiParameter", "SecurityScheme", "ResourceContents"):
        if len(re.findall(rf"\b{name}\b", text)) == 1:
            text = re.sub(rf"from [\w.]+ import {name}\n", "", text)
            text = text.replace(f"import {name}, ", "import ").replace(f", {name}\n", "\n")
    for name in ("READS", "REPLACES", "CHANGES", "ADDS"):
        if len(re.findall(rf"\b{name}\b", text)) == 1:
            text = re.sub(rf"{name} = [^\n]*\n", "", text)
    return re.sub(r"\n{4,}", "\n\n\n", text)


class _Writer:
    """Writes functions, each under a name of its own."""

    def __init__(self, base_url: str, security: tuple[tuple[str, ...], ...]) -> None:
        self.base_url = base_url
        self.security = security
        self.taken = {"server", "api"}

    def tool(self, tool: ApiTool) -> str:
        operation, plan, definition = tool.operation, tool.plan, tool.definition
        options = [f'name="{definition.name}"', f"annotations={_HINTS[operation.method]}"]
        if definition.title is not None:
            options.insert(1, f"title={written(definition.title)}")
        names = _identifiers(plan.schema["properties"])
        signature, notes = _signature(plan, names)
        function = self._function_name(definition.name)
        call = [
            f'"{operation.method}"',
            written(operation.path),
            *_parts(operation, plan, names),
            *self._changes(operation, tool.base_url),
        ]
        return (
            f"{_bracketed('@server.tool', options, 0)}\n"
            f"{_bracketed(f'async def {function}', signature, 0)} -> ToolResult:\n"
            f"{_docstring(definition.description, notes)}"
            f"{_bracketed('    return await api.call', ['ctx', *call], 4)}\n"
        )

    def resource(self, resource: ApiResource) -> str:
        operation, definition = resource.operation, resource.definition
        uri = uri_of(resource)
        found = dict.fromkeys(re.findall(r"\{(\w+)\}", uri))
        values = {
            parameter.name: argument.replace("-", "_")
            for argument, parameter in resource.plan.parameters.items()
            if parameter.location == "path"
        }
        pairs = ", ".join(f"{written(name)}: {each}" for name, each in values.items())
        call = [f'"{operation.method}"', written(operation.path)]
        call += [f"values={{{pairs}}}"] if values else []
        call += self._changes(operation, resource.base_url)
        function = self._function_name(definition.name)
        options = [written(uri), f"name={written(definition.name)}"]
        signature = [*(f"{each}: str" for each in found), "uri: str", "ctx: ToolContext"]
        return (
            f"{_bracketed('@server.resource', options, 0)}\n"
            f"{_bracketed(f'async def {function}', signature, 0)} -> ResourceContents:\n"
            f"{_docstring(definition.description or '', [])}"
            f"{_bracketed('    return await api.read', ['ctx', 'uri', *call], 4)}\n"
        )

    def _function_name(self, name: str) -> str:
        base = snake_case(name) or "tool"
        base = f"{base}_" if keyword.iskeyword(base) else base
        base = f"call_{base}" if base[0].isdigit() else base
        found, number = base, 2
        while found in self.taken:
            found, number = f"{base}_{number}", number + 1
        self.taken.add(found)
        return found

    def _changes(self, operation: ApiOperation, base_url: str) -> list[str]:
        changes = []
        if operation.security != self.security:
            changes.append(f"security={written(operation.security)}")
        if base_url != self.base_url:
            changes.append(f"base_url={written(base_url)}")
        return changes


def _identifiers(properties: Iterable[str]) -> dict[str, str]:
    """Return the parameters of a function, by argument."""
    names: dict[str, str] = {}
    for argument in properties:
        base = argument.replace("-", "_").lstrip("_") or "value"
        if base[0].isdigit() or keyword.iskeyword(base) or base in _RESERVED:
            base = f"{base}_" if not base[0].isdigit() else f"n{base}"
        while base in names.values():
            base += "_"
        names[argument] = base
    return names


def _signature(plan: ArgumentPlan, names: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the parameters of a function, and the lines that describe them."""
    needed, optional, notes = [], [], []
    required = plan.schema.get("required", ())
    for argument, name in names.items():
        schema = plan.schema["properties"][argument]
        kind = python_type(schema)
        if argument in required:
            needed.append(_annotated(name, kind, ""))
        else:
            maybe = kind if kind == "Any" or kind.endswith("None") else f"{kind} | None"
            optional.append(_annotated(name, maybe, " = None"))
        text = " ".join(str(schema.get("description", "")).split())
        if text:
            notes.append(f"{name}: {text}")
    return [*needed, *optional, "*", "ctx: ToolContext"], notes


def python_type(schema: Any) -> str:
    """Return the annotation of a value of a JSON Schema; nested objects are dictionaries."""
    if not isinstance(schema, dict):
        return "Any"
    enum = schema.get("enum")
    if enum and all(isinstance(each, str) and each.isprintable() for each in enum):
        return f"Literal[{', '.join(map(written, dict.fromkeys(enum)))}]"
    if schema.get("anyOf") == any_value()["anyOf"]:
        return "Any"
    if "anyOf" in schema:
        choices = [each for each in schema["anyOf"] if isinstance(each, dict)]
        texts = [each for one in choices for each in one.get("enum", ())]
        if texts and all(python_type(each).startswith("Literal[") for each in choices):
            return python_type({"enum": texts})
        kinds = [python_type(each) for each in schema["anyOf"]]
        kinds = sorted(dict.fromkeys(kinds), key=lambda each: each == "None")
        return "Any" if "Any" in kinds else " | ".join(kinds)
    kind = schema.get("type")
    if kind == "array":
        return f"list[{python_type(schema.get('items'))}]"
    if kind == "object":
        return "dict[str, Any]"
    return "None" if kind == "null" else _TYPES.get(str(kind), "Any")


def _parts(operation: ApiOperation, plan: ArgumentPlan, names: dict[str, str]) -> list[str]:
    """Return the arguments of a call of the API that say what is sent."""
    by_location: dict[str, list[str]] = {}
    special = []
    for argument, parameter in plan.parameters.items():
        pair = f"{written(parameter.name)}: {names[argument]}"
        by_location.setdefault(_MEMBERS[parameter.location], []).append(pair)
        special += _special(parameter)
    parts = [f"{member}={_object(pairs)}" for member, pairs in by_location.items()]
    if special:
        parts.append(f"special=({', '.join(special)},)")
    body = plan.body
    if body is None:
        return parts
    if plan.body_argument is not None:
        parts.append(f"body={names[plan.body_argument]}")
    else:
        pairs = [
            f"{written(name)}: {names[argument]}" for argument, name in plan.properties.items()
        ]
        parts.append(f"body={_object(pairs)}")
    if body.media_type != "application/json":
        parts.append(f"media_type={written(body.media_type)}")
    if is_form(body.media_type) and body.encodings:
        parts.append(f"encodings={written(dict(body.encodings))}")
    if body.files:
        parts.append(f"files={written(tuple(sorted(body.files)))}")
    return parts


def _object(pairs: list[str]) -> str:
    """Return the literal of a dict as an argument of a call, on one line if it fits."""
    line = f"{{{', '.join(pairs)}}}"
    if len(line) <= _WIDTH - len("        encodings=,"):
        return line
    return "".join(["{\n", *(f"            {each},\n" for each in pairs), "        }"])


def _annotated(name: str, kind: str, default: str) -> str:
    """Return a parameter; one that is too long for a line has its choices below one another."""
    if len(name + kind + default) > _WIDTH - len("    : ,"):
        kind = _CHOICES.sub(_below_one_another, kind)
    return f"{name}: {kind}{default}"


def _below_one_another(choices: re.Match[str]) -> str:
    lines = "".join(f"        {each[0]},\n" for each in _TEXT.finditer(choices[1]))
    return f"Literal[\n{lines}    ]"


def _special(parameter: ApiParameter) -> list[str]:
    usual = usual_parameter(parameter.name, parameter.location)
    words = [written(parameter.name), written(parameter.location)]
    for member in ("style", "explode", "allow_reserved", "media_type"):
        value = getattr(parameter, member)
        if value != getattr(usual, member):
            words.append(f"{member}={written(value)}")
    if len(words) == 2:
        return []
    if not any(each.startswith("style=") for each in words):
        words.append(f"style={written(parameter.style)}")
    if not any(each.startswith("explode=") for each in words):
        words.append(f"explode={written(parameter.explode)}")
    return [f"ApiParameter({', '.join(words)})"]


def written(value: Any) -> str:
    """Return a value as code, its texts in double quotes."""
    if isinstance(value, str):
        plain = repr(f"'{value}")  # a single quote within has `repr` take double ones
        return f'"{plain[2:]}' if plain.startswith('"') else repr(value)
    if isinstance(value, tuple):
        inner = ", ".join(map(written, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{written(key)}: {written(each)}' for key, each in value.items())}}}"
    return repr(value)


def _bracketed(start: str, parts: list[str], indent: int) -> str:
    """Return a call or a signature, on one line if it fits."""
    line = f"{start}({', '.join(parts)})"
    if len(line) + len(" -> ResourceContents:") <= _WIDTH:
        return line
    pad = " " * (indent + 4)
    inner = "".join(f"{pad}{each},\n" for each in parts)
    return f"{start}(\n{inner}{' ' * indent})"


def _docstring(description: str, notes: list[str]) -> str:
    """Return a docstring, indented, with a section of arguments."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", description):
        lines += ["", *_wrapped(paragraph, _WIDTH - 4)]
    if notes:
        lines += ["", "Args:"]
        for note in notes:
            first, *rest = _wrapped(note, _WIDTH - 12)
            lines += [f"    {first}", *(f"        {each}" for each in rest)]
    first, *rest = lines[1:]
    if rest:
        return "\n".join(
            [f'    """{first}', *(f"    {each}".rstrip() for each in rest), '    """\n']
        )
    if first.endswith('"'):
        first = first[:-1] + '\\"'
    return f'    """{first}"""\n'


def _wrapped(text: str, width: int) -> list[str]:
    """Return a text as lines of a docstring, at least one."""
    text = text.replace("\\", "\\\\").replace('"""', "'''")
    text = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or ["-"]
