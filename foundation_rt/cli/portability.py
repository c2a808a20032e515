"""Tools that the protocol allows and hosts refuse, and why (CLI-43).

A host passes tools on to the API of its model, which takes less than MCP allows. It refuses the
whole request for one such tool. `RULES` has what Claude, OpenAI and Gemini refuse, one row for each
reason; a row of notes is what a host leaves out without a word. The rows come from the public
documentation of these APIs, and from their own messages (400) where that is silent.

A schema is read as it came from any server: nothing in it is trusted to be valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import frozen

CLAUDE: Final = "Claude"
OPENAI: Final = "OpenAI"
GEMINI: Final = "Gemini"

MAX_OPENAI_TOOLS: Final = 128
_MAX_DEPTH: Final = 64

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_GEMINI_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_CLAUDE_PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


@frozen
class SchemaPlace:
    """A schema within the input schema of a tool.

    Attributes:
        path: a JSON pointer; "" is the root.
        schema: the schema there.
        root: the whole input schema.
    """

    path: str
    schema: Any
    root: Mapping[str, Any]

    def get(self, keyword: str) -> Any:
        """Return the value of a keyword; None without one."""
        return self.schema.get(keyword) if isinstance(self.schema, Mapping) else None

    def has(self, *keywords: str) -> bool:
        """Return whether the schema has one of these keywords."""
        return isinstance(self.schema, Mapping) and any(each in self.schema for each in keywords)


@frozen
class HostRule:
    """A reason for which hosts refuse a schema, or leave out a part of it.

    Attributes:
        hosts: their names.
        applies: whether a place has it.
        problem: what the place has.
        advice: what to write instead.
        is_refused: the hosts refuse it; otherwise they leave it out.
    """

    hosts: tuple[str, ...]
    applies: Callable[[SchemaPlace], bool]
    problem: str
    advice: str
    is_refused: bool = True


@frozen
class HostFinding:
    """A place in one tool that hosts refuse or leave out.

    Attributes:
        tool: its name; "" for the list as a whole.
        path: where: `name`, `inputSchema#/properties/city`.
        hosts: their names.
        problem: what is there.
        advice: what to change.
        is_refused: the hosts refuse it; otherwise they leave it out.
    """

    tool: str
    path: str
    hosts: tuple[str, ...]
    problem: str
    advice: str
    is_refused: bool

    def wire(self) -> dict[str, Any]:
        """Return the finding as JSON."""
        return {
            "tool": self.tool,
            "path": self.path,
            "hosts": [*self.hosts],
            "problem": self.problem,
            "advice": self.advice,
            "refused": self.is_refused,
        }

    def __str__(self) -> str:
        place = f"{self.tool}, {self.path}" if self.tool else self.path
        verb = "refused by" if self.is_refused else "note for"
        return f"{place}: {self.problem}: {verb} {', '.join(self.hosts)}; {self.advice}"


def findings(tools: Sequence[Mapping[str, Any]]) -> list[HostFinding]:
    """Return what hosts refuse or leave out of the tools of a `tools/list`."""
    found = []
    if len(tools) > MAX_OPENAI_TOOLS:
        problem = f"{len(tools)} tools, more than {MAX_OPENAI_TOOLS}"
        advice = "serve fewer at once, by several servers or by scopes"
        found.append(HostFinding("", "tools", (OPENAI,), problem, advice, True))
    for tool in tools:
        found += _of_name(str(tool.get("name", "")))
        schema = tool.get("inputSchema")
        if isinstance(schema, Mapping):
            found += _of_schema(str(tool.get("name", "")), schema)
    return found


def _of_name(name: str) -> Iterator[HostFinding]:
    advice = "use letters, digits, _ and -, at most 64"
    if "/" in name:
        advice += '; or set tools.name_separator = "_"'
    strict = not _NAME.fullmatch(name)
    hosts: tuple[str, ...] = (CLAUDE, OPENAI) if strict else ()
    if not _GEMINI_NAME.fullmatch(name):
        hosts += (GEMINI,)
        advice = advice if strict else "begin it with a letter or _"
    if hosts:
        yield HostFinding(name, "name", hosts, "a name that is not portable", advice, True)


def _of_schema(tool: str, schema: Mapping[str, Any]) -> Iterator[HostFinding]:
    for place in _places(schema):
        for rule in RULES:
            if rule.applies(place):
                path = f"inputSchema#{place.path}"
                yield HostFinding(
                    tool, path, rule.hosts, rule.problem, rule.advice, rule.is_refused
                )


# -- the places of a schema ------------------------------------------------------------------------

_ONE: Final = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_MANY: Final = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_NAMED: Final = ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas")


def _places(root: Mapping[str, Any]) -> Iterator[SchemaPlace]:
    """Yield the root and every schema within it, but for those nested beyond `_MAX_DEPTH`."""
    waiting: list[tuple[str, Any, int]] = [("", root, 0)]
    while waiting:
        path, schema, depth = waiting.pop()
        yield SchemaPlace(path, schema, root)
        if isinstance(schema, Mapping) and depth < _MAX_DEPTH:
            inner = [(f"{path}/{step}", one, depth + 1) for step, one in _within(schema)]
            waiting += reversed(inner)


def _within(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for keyword, value in schema.items():
        if keyword in _NAMED and isinstance(value, Mapping):
            for name, one in value.items():
                yield f"{keyword}/{_escaped(name)}", one
        elif keyword in _MANY and isinstance(value, list):
            yield from ((f"{keyword}/{number}", one) for number, one in enumerate(value))
        elif keyword in _ONE and isinstance(value, Mapping):
            yield keyword, value


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


# -- what a place has ------------------------------------------------------------------------------


def _has_no_type(place: SchemaPlace) -> bool:
    return not place.has("type", "anyOf", "oneOf", "allOf", "$ref", "enum", "const", "not")


def _has_open_array(place: SchemaPlace) -> bool:
    kinds = place.get("type")
    is_array = kinds == "array" or (isinstance(kinds, list) and "array" in kinds)
    return is_array and not place.has("items", "prefixItems")


def _has_untyped_values(place: SchemaPlace) -> bool:
    values = place.get("enum")
    return isinstance(values, list) and not all(isinstance(each, str) for each in values)


def _has_members_of_another_type(place: SchemaPlace) -> bool:
    kind = place.get("type")
    return isinstance(kind, str) and (
        (kind != "object" and place.has("properties", "required"))
        or (kind != "array" and place.has("items"))
    )


def _has_untyped_items(place: SchemaPlace) -> bool:
    return place.has("anyOf") and not place.has("type") and place.has("items", "properties")


def _is_recursive(place: SchemaPlace) -> bool:
    """Return whether a reference leads to a schema around it."""
    reference = place.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#"):
        return False
    target = reference[1:]
    if place.path == target or place.path.startswith(f"{target}/"):
        return True
    return _leads_back(target, place.root, target, set())


def _leads_back(pointer: str, root: Mapping[str, Any], target: str, seen: set[str]) -> bool:
    """Return whether the schema at `pointer` refers to `target`, itself or by others."""
    found = _at(root, pointer)
    if pointer in seen or not isinstance(found, Mapping):
        return False
    seen.add(pointer)
    references = [
        place.get("$ref") for place in _places(found) if isinstance(place.get("$ref"), str)
    ]
    return any(
        each[1:] == target or _leads_back(each[1:], root, target, seen) for each in references
    )


def _at(root: Any, pointer: str) -> Any:
    for step in pointer.split("/")[1:]:
        if not isinstance(root, Mapping):
            return None
        root = root.get(step.replace("~1", "/").replace("~0", "~"))
    return root


def _has_odd_names(place: SchemaPlace) -> bool:
    names = place.get("properties")
    return (
        place.path == ""
        and isinstance(names, Mapping)
        and not all(_CLAUDE_PROPERTY.fullmatch(name) for name in names)
    )


def _is_root(place: SchemaPlace) -> bool:
    return place.path == ""


_ALL: Final = (CLAUDE, OPENAI, GEMINI)

RULES: Final[tuple[HostRule, ...]] = (
    HostRule(
        (CLAUDE, OPENAI),
        lambda place: _is_root(place) and place.has("anyOf", "oneOf", "allOf"),
        "anyOf, oneOf or allOf at the root",
        "say it in the description, and check it in the tool",
    ),
    HostRule(
        (OPENAI,),
        lambda place: _is_root(place) and place.has("enum", "not"),
        "enum or not at the root",
        "remove it",
    ),
    HostRule(
        _ALL,
        lambda place: _is_root(place) and place.get("type") != "object",
        "a root that is not of type object",
        'write "type": "object"',
    ),
    HostRule(
        (OPENAI,),
        lambda place: _is_root(place) and not place.has("properties"),
        "an object without properties at the root",
        'write "properties": {}',
    ),
    HostRule(
        (CLAUDE,),
        _has_odd_names,
        "a property name that does not match ^[a-zA-Z0-9_.-]{1,64}$",
        "rename the property",
    ),
    HostRule(
        (GEMINI,),
        lambda place: isinstance(place.get("type"), list),
        "a list of types",
        "write an anyOf of schemas with one type each",
    ),
    HostRule(
        (GEMINI,),
        lambda place: isinstance(place.schema, bool) or (bool(place.path) and _has_no_type(place)),
        "a schema without a type",
        "give it a type, or an anyOf of types",
    ),
    HostRule(
        (OPENAI, GEMINI),
        _has_open_array,
        "an array without items",
        "say what its items are",
    ),
    HostRule(
        _ALL,
        lambda place: isinstance(place.get("items"), list),
        "items as an array",
        "use a list of one type, or an object with named members",
    ),
    HostRule(
        (CLAUDE,),
        lambda place: any(
            isinstance(place.get(each), bool) for each in ("exclusiveMinimum", "exclusiveMaximum")
        ),
        "exclusiveMinimum or exclusiveMaximum as a boolean",
        "write the limit itself",
    ),
    HostRule(
        (GEMINI,),
        _has_untyped_values,
        "an enum with values that are not strings",
        "use strings, or minimum and maximum",
    ),
    HostRule(
        (GEMINI,),
        _has_members_of_another_type,
        "keywords of objects or arrays beside another type",
        "move them into the schema of that type",
    ),
    HostRule(
        (GEMINI,),
        _has_untyped_items,
        "items or properties beside an anyOf",
        "move them into the anyOf",
    ),
    HostRule(
        (GEMINI,),
        _is_recursive,
        "a schema that contains itself",
        "end it after a few levels, or take JSON as a string",
    ),
    HostRule(
        (GEMINI,),
        lambda place: place.has("oneOf", "allOf", "not", "if", "patternProperties", "const"),
        "oneOf, allOf, not, if, patternProperties or const",
        "say it in the description as well",
        is_refused=False,
    ),
    HostRule(
        (GEMINI,),
        lambda place: place.has(
            "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems", "propertyNames"
        ),
        "exclusiveMinimum, exclusiveMaximum, multipleOf, uniqueItems or propertyNames",
        "say it in the description as well",
        is_refused=False,
    ),
)
"""One row for each reason, in the order in which they are reported."""
