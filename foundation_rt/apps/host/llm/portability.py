"""Tools that the protocol allows and vendors of models refuse, and what they take (CLI-43).

A host passes tools on to the API of its model, which takes less than MCP allows. It refuses the
whole request for one such tool. `RULES` has what the vendors refuse, one row for each reason, with
what mends it; a row of notes is what a vendor leaves out without a word. The rows come from the
public documentation of these APIs, and from their own messages (400) where that is silent.

`check --portable` reports what a row finds (`findings`); the chat host sends what it mends
(`taken_schema`, LLM-23). A schema is read as it came from any server: nothing in it is trusted to
be valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

from attrs import evolve, frozen

from ....base.exact_json import dumps
from ....base.jsonschema.references import at_pointer
from ....features.signatures.type_schema import any_value

CLAUDE: Final = "Claude"
OPENAI: Final = "OpenAI"
GEMINI: Final = "Gemini"
AZURE: Final = "Azure OpenAI"
KIMI: Final = "Kimi"
VENDORS: Final = (CLAUDE, OPENAI, GEMINI, AZURE, KIMI)

MAX_TOOLS: Final = 128
MAX_DESCRIPTION: Final = 1024
"""Characters of a description that Azure OpenAI takes; OpenAI itself takes more since 2025."""

_MAX_DEPTH: Final = 64

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_GEMINI_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_KIMI_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}")
_CLAUDE_PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


@frozen
class SchemaPlace:
    """A schema within the input schema of a tool.

    Attributes:
        path: a JSON pointer; "" is the root.
        schema: the schema there.
        root: the whole input schema.
        cycles: the references that lead back to themselves.
    """

    path: str
    schema: Any
    root: Mapping[str, Any]
    cycles: Collection[str] = ()

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
        mend: returns the schema as they take it; None: they leave it out themselves.
        is_cut: what is mended says less than it did.
    """

    hosts: tuple[str, ...]
    applies: Callable[[SchemaPlace], bool]
    problem: str
    advice: str
    mend: Callable[[SchemaPlace], Any] | None = None
    is_cut: bool = False

    @property
    def is_refused(self) -> bool:
        """Tell whether the hosts refuse it."""
        return self.mend is not None


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
    if len(tools) > MAX_TOOLS:
        problem = f"{len(tools)} tools, more than {MAX_TOOLS}"
        advice = "serve fewer at once, by several servers or by scopes"
        found.append(HostFinding("", "tools", (OPENAI,), problem, advice, True))
    for tool in tools:
        name, schema = str(tool.get("name", "")), tool.get("inputSchema")
        found += [*_of_name(name), *_of_description(name, tool.get("description"))]
        if isinstance(schema, Mapping):
            found += _of_schema(name, schema)
    return found


def taken_schema(
    schema: Mapping[str, Any], hosts: Collection[str]
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Return the input schema of a tool as these hosts take it.

    Returns:
        The schema; the names that it has for properties, by their own; the problems for which it
        says less.
    """
    rules = [rule for rule in RULES if rule.mend is not None and {*hosts} & {*rule.hosts}]
    problems: dict[str, None] = {}
    root = SchemaPlace("", schema, schema, _cycles(schema))
    taken = _mended(root, rules, problems, 0)
    names = _taken_names(taken) if CLAUDE in hosts else {}
    if names:
        given = taken["properties"].items()
        taken["properties"] = {names.get(name, name): one for name, one in given}
        if isinstance(taken.get("required"), list):
            required = taken["required"]
            taken["required"] = [names.get(each, each) for each in required if _is_text(each)]
    return taken, names, [*problems]


def _taken_names(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return other names for the properties at the root whose names Claude refuses."""
    properties = schema.get("properties")
    known = set(properties) if isinstance(properties, Mapping) else set()
    other: dict[str, str] = {}
    for name in sorted(each for each in known if not _CLAUDE_PROPERTY.fullmatch(each)):
        stem = re.sub(r"[^a-zA-Z0-9_.-]+", "_", name).strip("_.-")[:56] or "p"
        tries = (f"{stem}_{number}" if number else stem for number in count())
        other[name] = next(each for each in tries if each not in known)
        known.add(other[name])
    return other


def simple_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that everybody takes: the properties at the root, each of one type."""
    given = schema.get("properties")
    properties = given if isinstance(given, Mapping) else {}
    simple = {str(name): _simple(each) for name, each in properties.items()}
    wanted = schema.get("required")
    names = filter(_is_text, wanted) if isinstance(wanted, list) else ()
    required = [name for name in names if name in simple]
    return {
        "type": "object",
        "properties": simple,
        **({"required": required} if required else {}),
    }


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _simple(schema: Any) -> dict[str, Any]:
    found = schema if isinstance(schema, Mapping) else {}
    kind = found.get("type")
    simple: dict[str, Any] = {"type": kind if kind in _SCALARS else "string"}
    if kind == "array":
        items = found.get("items")
        inner = items.get("type") if isinstance(items, Mapping) else None
        simple = {"type": "array", "items": {"type": inner if inner in _SCALARS else "string"}}
    if isinstance(found.get("description"), str):
        simple["description"] = found["description"]
    return simple


def _of_name(name: str) -> Iterator[HostFinding]:
    advice = "use letters, digits, _ and -, at most 64"
    if _NAME.fullmatch(name.replace("/", "_")):
        advice = 'set tools.name_separator = "_", which mends all names with a /'
    strict = not _NAME.fullmatch(name)
    hosts: tuple[str, ...] = (CLAUDE, OPENAI) if strict else ()
    if not _GEMINI_NAME.fullmatch(name):
        hosts += (GEMINI,)
    if not _KIMI_NAME.fullmatch(name):
        hosts += (KIMI,)
        advice = advice if strict else "begin it with a letter"
    if hosts:
        yield HostFinding(name, "name", hosts, "a name that is not portable", advice, True)


def _of_description(tool: str, text: Any) -> Iterator[HostFinding]:
    if isinstance(text, str) and len(text) > MAX_DESCRIPTION:
        problem = f"{len(text)} characters, more than {MAX_DESCRIPTION}"
        yield HostFinding(tool, "description", (AZURE,), problem, "write a shorter one", True)


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
_SCALARS: Final = ("string", "number", "integer", "boolean", "object")


def _places(root: Mapping[str, Any]) -> Iterator[SchemaPlace]:
    """Yield the root and every schema within it, but for those nested beyond `_MAX_DEPTH`."""
    cycles = _cycles(root)
    return (SchemaPlace(path, schema, root, cycles) for path, schema in _walk(root))


def _walk(root: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    waiting: list[tuple[str, Any, int]] = [("", root, 0)]
    while waiting:
        path, schema, depth = waiting.pop()
        yield path, schema
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
    return target_of(place.schema) in place.cycles


def target_of(schema: Any) -> str | None:
    """Return the pointer that a schema refers to within its document."""
    reference = schema.get("$ref") if isinstance(schema, Mapping) else None
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    return reference[1:]


Graph = dict[str, set[str]]


def _cycles(root: Mapping[str, Any]) -> Collection[str]:
    """Return the pointers that references lead to and that lead back to themselves."""
    found = ((path, target_of(schema)) for path, schema in _walk(root))
    references = [(path, target) for path, target in found if target is not None]
    inner: Graph = {target: set() for _, target in references}
    for path, target in references:
        steps = path.split("/")
        for length in range(1, len(steps) + 1):
            around = inner.get("/".join(steps[:length]))
            if around is not None:
                around.add(target)
    return _reversed(_leading_on(_reversed(_leading_on(inner))))


def _leading_on(graph: Graph) -> Graph:
    """Return a graph without the nodes that lead to no cycle."""
    left, outer = {node: set(led) for node, led in graph.items()}, _reversed(graph)
    ends = [node for node, led in graph.items() if not led]
    while ends:
        end = ends.pop()
        del left[end]
        for node in outer[end]:
            left[node].discard(end)
            if not left[node]:
                ends.append(node)
    return left


def _reversed(graph: Graph) -> Graph:
    outer: Graph = {node: set() for node in graph}
    for node, led in graph.items():
        for each in led:
            outer[each].add(node)
    return outer


def _has_odd_names(place: SchemaPlace) -> bool:
    names = place.get("properties")
    return (
        place.path == ""
        and isinstance(names, Mapping)
        and not all(_CLAUDE_PROPERTY.fullmatch(name) for name in names)
    )


def _wants_unknown_properties(place: SchemaPlace) -> bool:
    names = place.get("required")
    is_object = place.has("properties") or place.path == ""
    return is_object and isinstance(names, list) and _known(place) != names


def _known(place: SchemaPlace) -> list[Any]:
    """Return the required names that are those of properties."""
    properties, names = place.get("properties"), place.get("required")
    found = properties if isinstance(properties, Mapping) else {}
    return [name for name in names if isinstance(name, str) and name in found]


def _known_required(place: SchemaPlace) -> Any:
    return {**place.schema, "required": _known(place)}


def _is_root(place: SchemaPlace) -> bool:
    return place.path == ""


# -- what mends it ---------------------------------------------------------------------------------


def _mended(
    place: SchemaPlace, rules: Sequence[HostRule], problems: dict[str, None], depth: int
) -> Any:
    """Return the schema of a place, and all within it, as the rules mend it."""
    for rule in rules:
        if rule.mend is not None and rule.applies(place):
            mended = rule.mend(place)
            if mended is not place.schema:
                if rule.is_cut:
                    problems[rule.problem] = None
                place = evolve(place, schema=mended)
    schema = place.schema
    if not isinstance(schema, Mapping) or depth >= _MAX_DEPTH:
        return schema

    def within(step: str, one: Any) -> Any:
        inner = evolve(place, path=f"{place.path}/{step}", schema=one)
        return _mended(inner, rules, problems, depth + 1)

    mended = {}
    for keyword, value in schema.items():
        if keyword in _NAMED and isinstance(value, Mapping):
            mended[keyword] = {
                name: within(f"{keyword}/{_escaped(name)}", one) for name, one in value.items()
            }
        elif keyword in _MANY and isinstance(value, list):
            mended[keyword] = [within(f"{keyword}/{n}", one) for n, one in enumerate(value)]
        elif keyword in _ONE and isinstance(value, Mapping):
            mended[keyword] = within(keyword, value)
        else:
            mended[keyword] = value
    return mended


def _without(*keywords: str) -> Callable[[SchemaPlace], Any]:
    return lambda place: {key: each for key, each in place.schema.items() if key not in keywords}


def _with(keyword: str, value: Any) -> Callable[[SchemaPlace], Any]:
    return lambda place: {**place.schema, keyword: value}


def _said_too(place: SchemaPlace, words: str, *without: str) -> dict[str, Any]:
    """Return the schema without keywords that its description says instead."""
    left = {key: each for key, each in place.schema.items() if key not in without}
    given = left.get("description")
    left["description"] = f"{given} {words}" if isinstance(given, str) else words
    return left


def _members_at_root(place: SchemaPlace) -> Any:
    """Return the root with the properties of its alternatives, without these."""
    schema = dict(place.schema)
    given = schema.get("properties")
    properties = dict(given) if isinstance(given, Mapping) else {}
    required = list(schema["required"]) if isinstance(schema.get("required"), list) else []
    for keyword in ("allOf", "anyOf", "oneOf"):
        members = schema.pop(keyword, None)
        for member in members if isinstance(members, list) else ():
            target = target_of(member)
            found = member if target is None else at_pointer(place.root, target)
            if not isinstance(found, Mapping):
                continue
            inner, wanted = found.get("properties"), found.get("required")
            properties = {**(inner if isinstance(inner, Mapping) else {}), **properties}
            if keyword == "allOf" and isinstance(wanted, list):
                required += [name for name in wanted if name not in required]
    return {**schema, "properties": properties, **({"required": required} if required else {})}


def _one_type_each(place: SchemaPlace) -> Any:
    """Return an `anyOf` with a schema for each of several types."""
    about = ("title", "description", "default", "$defs", "definitions")
    rest = {key: each for key, each in place.schema.items() if key not in (*about, "type")}
    kinds = [kind for kind in place.schema["type"] if isinstance(kind, str)] or ["string"]
    members = [{"type": kind} if kind == "null" else {"type": kind, **rest} for kind in kinds]
    about_it = {key: each for key, each in place.schema.items() if key in about}
    return {**about_it, **(members[0] if len(members) == 1 else {"anyOf": members})}


def _with_a_type(place: SchemaPlace) -> Any:
    if not isinstance(place.schema, Mapping):
        return any_value(1)
    for kind, keyword in (("object", "properties"), ("array", "items")):
        if keyword in place.schema:
            return {**place.schema, "type": kind}
    return {**place.schema, **any_value(1)}


def _one_item_schema(place: SchemaPlace) -> Any:
    items = [each for each in place.schema["items"] if isinstance(each, Mapping)]
    one = {"anyOf": items} if len(items) > 1 else (items or [any_value(0)])[0]
    return {**place.schema, "items": one}


def _limits_as_numbers(place: SchemaPlace) -> Any:
    schema = dict(place.schema)
    for exclusive, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        given = schema.get(exclusive)
        if isinstance(given, bool):
            del schema[exclusive]
            if given and limit in schema:
                schema[exclusive] = schema.pop(limit)
    return schema


def _values_in_words(place: SchemaPlace) -> Any:
    """Return the schema with the values of its `enum` in the description."""
    values = place.schema["enum"]
    mended = _said_too(place, f"One of: {dumps(values, default=str).decode()}.", "enum")
    if not place.has("type", "anyOf", "oneOf", "allOf", "$ref"):
        mended = {**mended, **any_value(0)}
    return mended


def _of_its_type(place: SchemaPlace) -> Any:
    kind = place.get("type")
    other = {"object": ("items",), "array": ("properties", "required")}
    return _without(*other.get(kind, ("items", "properties", "required")))(place)


_ALL: Final = (CLAUDE, OPENAI, GEMINI)

RULES: Final[tuple[HostRule, ...]] = (
    HostRule(
        (CLAUDE, OPENAI),
        lambda place: _is_root(place) and place.has("anyOf", "oneOf", "allOf"),
        "anyOf, oneOf or allOf at the root",
        "say it in the description, and check it in the tool",
        _members_at_root,
        is_cut=True,
    ),
    HostRule(
        (OPENAI,),
        lambda place: _is_root(place) and place.has("enum", "not"),
        "enum or not at the root",
        "remove it",
        _without("enum", "not"),
        is_cut=True,
    ),
    HostRule(
        _ALL,
        lambda place: _is_root(place) and place.get("type") != "object",
        "a root that is not of type object",
        'write "type": "object"',
        _with("type", "object"),
    ),
    HostRule(
        (OPENAI,),
        lambda place: _is_root(place) and not place.has("properties"),
        "an object without properties at the root",
        'write "properties": {}',
        _with("properties", {}),
    ),
    HostRule(
        (CLAUDE,),
        _has_odd_names,
        "a property name that does not match ^[a-zA-Z0-9_.-]{1,64}$",
        "rename the property",
        lambda place: place.schema,  # `taken_schema` renames it
    ),
    HostRule(
        (GEMINI,),
        lambda place: isinstance(place.get("type"), list),
        "a list of types",
        "write an anyOf of schemas with one type each",
        _one_type_each,
    ),
    HostRule(
        (GEMINI,),
        lambda place: isinstance(place.schema, bool) or (bool(place.path) and _has_no_type(place)),
        "a schema without a type",
        "give it a type, or an anyOf of types",
        _with_a_type,
    ),
    HostRule(
        (OPENAI, GEMINI),
        _has_open_array,
        "an array without items",
        "say what its items are",
        _with("items", any_value(0)),
    ),
    HostRule(
        _ALL,
        lambda place: isinstance(place.get("items"), list),
        "items as an array",
        "use a list of one type, or an object with named members",
        _one_item_schema,
    ),
    HostRule(
        (CLAUDE,),
        lambda place: any(
            isinstance(place.get(each), bool) for each in ("exclusiveMinimum", "exclusiveMaximum")
        ),
        "exclusiveMinimum or exclusiveMaximum as a boolean",
        "write the limit itself",
        _limits_as_numbers,
    ),
    HostRule(
        (GEMINI,),
        _has_untyped_values,
        "an enum with values that are not strings",
        "use strings, or minimum and maximum",
        _values_in_words,
    ),
    HostRule(
        (GEMINI,),
        _has_members_of_another_type,
        "keywords of objects or arrays beside another type",
        "move them into the schema of that type",
        _of_its_type,
    ),
    HostRule(
        (GEMINI,),
        _has_untyped_items,
        "items or properties beside an anyOf",
        "move them into the anyOf",
        _without("items", "properties"),
    ),
    HostRule(
        (GEMINI,),
        _wants_unknown_properties,
        "a required property that is not there",
        "remove its name from required",
        _known_required,
    ),
    HostRule(
        (GEMINI,),
        _is_recursive,
        "a schema that contains itself",
        "end it after a few levels, or take JSON as a string",
        lambda place: {"type": "object", "description": "Nested as above."},
        is_cut=True,
    ),
    HostRule(
        (GEMINI,),
        lambda place: place.has("oneOf", "allOf", "not", "if", "patternProperties", "const"),
        "oneOf, allOf, not, if, patternProperties or const",
        "say it in the description as well",
    ),
    HostRule(
        (GEMINI,),
        lambda place: place.has(
            "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems", "propertyNames"
        ),
        "exclusiveMinimum, exclusiveMaximum, multipleOf, uniqueItems or propertyNames",
        "say it in the description as well",
    ),
)
"""One row for each reason, in the order in which they are reported."""
