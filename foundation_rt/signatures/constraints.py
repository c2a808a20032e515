"""Markers in ``Annotated``, and the JSON Schema keywords they become (TYPED-13, TYPED-25).

`Constraints` and `Header` are this package's own markers. Those of the `annotated_types` package
are read by their attributes, so that types annotated for another library need not be annotated
again; it is never imported.
"""

from __future__ import annotations

import math
from typing import Any

from attrs import fields, frozen

from ..jsonschema.dialects import HEADER_KEYWORD
from .type_schema import Schema, TypeSchema, UnsupportedType


@frozen(kw_only=True)
class Constraints:
    """Limits of a value besides its type: ``Annotated[int, Constraints(minimum=1)]``.

    Args:
        minimum: numbers: the smallest value.
        maximum: numbers: the largest value.
        exclusive_minimum: numbers: every value is larger.
        exclusive_maximum: numbers: every value is smaller.
        multiple_of: numbers: every value is a multiple of it.
        min_length: strings: characters; arrays: items; dicts: members.
        max_length: of strings, arrays and dicts, as `min_length`.
        pattern: strings: a regular expression (ECMA-262) that matches somewhere in the value.
    """

    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: float | None = None
    exclusive_maximum: float | None = None
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None


@frozen
class Header:
    """An argument that HTTP clients repeat in the header ``Mcp-Param-{name}`` (SCHEMA-23).

    ``Annotated[str, Header("Region")]``; proxies may route by it, and can read it.
    """

    name: str


_ANNOTATED_TYPES = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusive_minimum",
    "lt": "exclusive_maximum",
    "multiple_of": "multiple_of",
    "min_length": "min_length",
    "max_length": "max_length",
}

_KEYWORDS: dict[str, dict[type, str]] = {
    "minimum": {int: "minimum"},
    "maximum": {int: "maximum"},
    "exclusive_minimum": {int: "exclusiveMinimum"},
    "exclusive_maximum": {int: "exclusiveMaximum"},
    "multiple_of": {int: "multipleOf"},
    "min_length": {str: "minLength", list: "minItems", dict: "minProperties"},
    "max_length": {str: "maxLength", list: "maxItems", dict: "maxProperties"},
    "pattern": {str: "pattern"},
}
"""The JSON Schema keyword of each constraint, by the type of the JSON value."""

_JSON_TYPES: dict[type, tuple[str, ...]] = {
    int: ("integer", "number"),
    str: ("string",),
    list: ("array",),
    dict: ("object",),
}


def constrain(derived: TypeSchema, marker: Any) -> None:
    """Put the keywords of `marker` into the schema of `derived`; ignore markers of other kinds.

    Raises:
        UnsupportedType: the constraint does not apply to the type, or is not valid.
    """
    if isinstance(marker, Header):
        derived.schema[HEADER_KEYWORD] = marker.name
        return
    for name, limit in _limits(marker):
        _check_limit(name, limit)
        # A class defines how many members its instances have; a constraint cannot.
        kinds = derived.accepts if derived.members is None else derived.accepts - {dict}
        keywords = [(kind, keyword) for kind, keyword in _KEYWORDS[name].items() if kind in kinds]
        if not keywords:
            raise UnsupportedType(f"{name} does not apply to its type")
        for kind, keyword in keywords:
            for place in _places(derived.schema, kind):
                if keyword in place:
                    raise UnsupportedType(f"{name} is given twice")
                place[keyword] = limit


def _places(schema: Schema, kind: type) -> list[Schema]:
    """Return where a keyword for values of `kind` stands: within an ``anyOf``, never beside it."""
    if "anyOf" in schema:
        return [place for one in schema["anyOf"] for place in _places(one, kind)]
    return [schema] if schema.get("type", _JSON_TYPES[kind][0]) in _JSON_TYPES[kind] else []


def _limits(marker: Any) -> list[tuple[str, Any]]:
    if isinstance(marker, Constraints):
        named = [(field.name, field.name) for field in fields(Constraints)]
    else:
        named = list(_ANNOTATED_TYPES.items())
    found = [(name, getattr(marker, attribute, None)) for attribute, name in named]
    return [(name, limit) for name, limit in found if limit is not None]


def _check_limit(name: str, limit: Any) -> None:
    if name == "pattern":
        if type(limit) is not str:
            raise UnsupportedType(f"pattern is {limit!r}, which is no string")
    elif name in ("min_length", "max_length"):
        if type(limit) is not int or limit < 0:
            raise UnsupportedType(f"{name} is {limit!r}, which is no length")
    elif type(limit) not in (int, float) or not math.isfinite(limit):
        raise UnsupportedType(f"{name} is {limit!r}, which is no number")
    elif name == "multiple_of" and limit <= 0:
        raise UnsupportedType(f"multiple_of is {limit!r}, which is not above 0")
