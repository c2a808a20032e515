"""JSON Schemas of any server, made readable (CLI-18).

Nothing is enforced here, and nothing is trusted: a keyword of a wrong type is skipped, references
are followed to a limit, and long values are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import frozen

from ..base.exact_json import dumps
from ..base.jsonschema.references import at_pointer

MAX_DEPTH = 6
"""Depth to which nested objects are shown and references are followed."""

_MAX_PARTS = 12
_MAX_PART_DEPTH = (
    3  # of parts within parts: at most 12 ** 3 words are shown for a schema, not 12 ** 9
)
_MAX_VALUE = 60
_LAST_SAFE_INTEGER = 2**53 - 1

_CHOICES = ("anyOf", "oneOf")
_EACH = {"array": "items", "object": "additionalProperties"}
_JSON_TYPES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    type(None): "null",
}
_BOUNDS = {
    "minimum": ">= {}",
    "exclusiveMinimum": "> {}",
    "maximum": "<= {}",
    "exclusiveMaximum": "< {}",
    "multipleOf": "multiple of {}",
    "minLength": "length >= {}",
    "maxLength": "length <= {}",
    "minItems": "items >= {}",
    "maxItems": "items <= {}",
    "pattern": "matches {}",
}

_Schema = Mapping[str, Any]


@frozen
class Property:
    """A property of an object, for people.

    Attributes:
        name: with the names of the objects around it, as in `place.city`, `stops[].city`.
        kind: such as `integer, >= 1` or `"dry" | "cheerful"`.
        presence: `required`, or the default as in `= 3`, or "".
        description: as the schema has it.
    """

    name: str
    kind: str
    presence: str
    description: str


def properties_of(schema: Any) -> Iterator[Property]:
    """Yield the properties of an object schema; those of an inner object follow it."""
    outermost = _follow(schema, schema)
    yield from _properties(outermost, schema, "", (id(outermost),))


def kind_of(schema: Any) -> str:
    """Return the values that a schema takes, in a few words."""
    return _kind(schema, schema, 0)


def types_of(schema: Any, root: Any) -> frozenset[str]:
    """Return the JSON types that a schema names itself; none if it names none."""
    return frozenset(_types(schema, root, 0))


def _types(schema: Any, root: Any, depth: int) -> Iterator[str]:
    schema = _follow(schema, root)
    if "type" in schema:
        yield from _names(schema["type"])
    elif (choices := _choices(schema)) is not None:
        yield from (_JSON_TYPES.get(type(each), "object") for each in choices)
    elif depth < _MAX_PART_DEPTH:
        for keyword in (*_CHOICES, "allOf"):
            for part in _list(schema.get(keyword))[:_MAX_PARTS]:
                yield from _types(part, root, depth + 1)


def _properties(
    schema: _Schema, root: Any, prefix: str, path: tuple[int, ...]
) -> Iterator[Property]:
    """Yield the properties of the last schema on `path`; no object is shown within itself."""
    declared = schema.get("properties")
    required = _names(schema.get("required"))
    for name, described in declared.items() if isinstance(declared, dict) else ():
        followed = _follow(described, root)
        presence = "required" if name in required else _default(followed)
        description = _text(described, "description") or _text(followed, "description")
        yield Property(f"{prefix}{name}", _kind(described, root, 0), presence, description)
        within, sign = _object_within(followed, root)
        if id(within) not in path and len(path) < MAX_DEPTH:
            yield from _properties(within, root, f"{prefix}{name}{sign}", (*path, id(within)))


def _object_within(schema: _Schema, root: Any) -> tuple[_Schema, str]:
    """Return the object in a property or in its items, and the separator to its properties."""
    parts = [part for keyword in _CHOICES for part in _list(schema.get(keyword))[:_MAX_PARTS]]
    for part in (schema, *(_follow(each, root) for each in parts)):
        items = _follow(part.get("items"), root)
        if "properties" in items:
            return items, "[]."
        if "properties" in part:
            return part, "."
    return {}, ""


def _kind(schema: Any, root: Any, depth: int) -> str:
    if schema is False:
        return "nothing"
    schema = _follow(schema, root)
    choices = _choices(schema)
    if choices is not None:
        return _joined(" | ", choices, _value) or "nothing"
    bounds = [
        form.format(_value(schema[name]))
        for name, form in _BOUNDS.items()
        if name in schema and not _is_no_bound(schema[name])
    ]
    return ", ".join([_base(schema, root, depth), *_names(schema.get("format")), *bounds])


def _base(schema: _Schema, root: Any, depth: int) -> str:
    """Return the kind without bounds: types, or the parts that it combines."""

    def part(inner: Any) -> str:
        return _kind(inner, root, depth + 1)

    def of_type(name: str) -> str:
        each = schema.get(_EACH.get(name, ""))
        return (
            f"{name} of {part(each)}"
            if isinstance(each, dict) and depth < _MAX_PART_DEPTH
            else name
        )

    if names := _names(schema.get("type")):
        return _joined(" | ", names, of_type)
    if depth < _MAX_PART_DEPTH:
        for keyword, sign in (("anyOf", " | "), ("oneOf", " | "), ("allOf", " & ")):
            if parts := _list(schema.get(keyword)):
                return _joined(sign, parts, part)
    return "object" if "properties" in schema else "anything"


def _follow(schema: Any, root: Any) -> _Schema:
    """Return the schema behind references within the document; `{}` if there is none."""
    for _ in range(MAX_DEPTH):
        if not isinstance(schema, dict):
            break
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        schema = at_pointer(root, reference.removeprefix("#"))
    return {}


def _is_no_bound(value: Any) -> bool:
    """Return whether it is just JavaScript's largest safe integer, which some servers add."""
    return isinstance(value, int | float) and abs(value) >= _LAST_SAFE_INTEGER


def _choices(schema: _Schema) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    listed = schema.get("enum")
    return listed if isinstance(listed, list) else None


def _joined(sign: str, parts: list[Any], show: Callable[[Any], str]) -> str:
    shown = [*dict.fromkeys(show(part) for part in parts[:_MAX_PARTS])]
    if len(parts) > _MAX_PARTS:
        shown.append(f"{len(parts) - _MAX_PARTS} more")
    return sign.join(shown)


def _default(schema: _Schema) -> str:
    return f"= {_value(schema['default'])}" if "default" in schema else ""


def _value(value: Any) -> str:
    text = dumps(value).decode()
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}..."


def _text(schema: Any, member: str) -> str:
    value = schema.get(member) if isinstance(schema, dict) else None
    return value if isinstance(value, str) else ""


def _names(value: Any) -> list[str]:
    return [each for each in _list(value) if isinstance(each, str)]


def _list(value: Any) -> list[Any]:
    """Return a list, also of one value that stands alone."""
    if isinstance(value, list):
        return value
    return [] if value is None else [value]
