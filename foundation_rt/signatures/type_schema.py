"""The result of the walk over a type, at each place: a schema, and the converter of a value.

Invariants: each place where a type stands has a `TypeSchema` of its own, so its schema may be
completed in place (description, default, constraints). `convert` is None exactly when the JSON
value already is the Python value, so a value without conversion costs nothing on a call.

The classes here and in `schema_deriver` are plain ones: every start pays for their definition, and
`attrs` takes 0.4 ms for each.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..shown import Shown
from . import converters
from .converters import Converter

if TYPE_CHECKING:
    from .classes import Member

NoneType = type(None)

Schema = dict[str, Any]

ANYTHING: frozenset[type] = frozenset((NoneType, bool, int, float, str, list, dict))
"""The Python types of JSON values."""

NUMBERS: frozenset[type] = frozenset((int, float))  # 5.0 is an integer, 5 is a number

REQUIRED = object()
"""The default of a parameter without one."""


class UnsupportedType(Exception):
    """A type has no schema; the message says why."""


class TypeSchema(Shown):
    """A type at one place.

    Attributes:
        schema: its JSON Schema there.
        accepts: the Python types of the JSON values that it takes.
        convert: makes the value; None if the JSON value is the value.
        members: of a class whose JSON form is an object.
        values: all the JSON values that it takes, if they are enumerated; else None.
    """

    __slots__ = ("accepts", "convert", "members", "schema", "values")

    def __init__(
        self,
        schema: Schema,
        accepts: frozenset[type],
        convert: Converter | None = None,
        members: Sequence[Member] | None = None,
        values: Sequence[Any] | None = None,
    ) -> None:
        self.schema = schema
        self.accepts = accepts
        self.convert = convert
        self.members = members
        self.values = values


_JSON_TYPES = {NoneType: "null", bool: "boolean", int: "integer", float: "number", str: "string"}


def enumeration(members: Sequence[tuple[Any, Any]]) -> TypeSchema:
    """Return the type schema of a few values: pairs of a JSON value and its Python value."""
    values = [value for value, _ in members]
    for value in values:
        if type(value) not in _JSON_TYPES or (type(value) is float and not math.isfinite(value)):
            raise UnsupportedType(f"{value!r} is not a JSON string, number, boolean or null")
    if not values:
        raise UnsupportedType("it has no members")
    kinds = [type(value) for value in values]
    accepts = frozenset(kinds).union(NUMBERS if NUMBERS.intersection(kinds) else ())
    same = all(value is meant for value, meant in members) and not accepts & NUMBERS
    table = {converters.exact(value): meant for value, meant in members}
    convert = None if same else converters.finite_converter(table)
    return TypeSchema(_enum(values), accepts, convert, values=values)


def _enum(values: Sequence[Any]) -> Schema:
    """Return the schema of the values, one ``enum`` for each JSON type among them."""
    numbers = "number" if any(type(value) is float for value in values) else "integer"
    by_type: dict[str, list[Any]] = {}
    for value in values:
        kind = numbers if type(value) in NUMBERS else _JSON_TYPES[type(value)]
        by_type.setdefault(kind, []).append(value)
    schemas: list[Schema] = [
        {"type": kind} if kind == "null" else {"type": kind, "enum": of_kind}
        for kind, of_kind in by_type.items()
    ]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def json_default(default: Any) -> Any:
    """Return `default` as a JSON value; `REQUIRED` if there is no such value."""
    if isinstance(default, enum.Enum):
        return json_default(default.value)
    if type(default) in (list, tuple):
        items = [json_default(item) for item in default]
        return REQUIRED if REQUIRED in items else items
    if type(default) is dict:
        members = {key: json_default(value) for key, value in default.items()}
        strange = REQUIRED in members.values() or any(type(key) is not str for key in members)
        return REQUIRED if strange else members
    if type(default) is float and not math.isfinite(default):
        return REQUIRED
    if type(default) is int and not -(2**63) <= default < 2**64:
        return REQUIRED
    return default if type(default) in _JSON_TYPES else REQUIRED
