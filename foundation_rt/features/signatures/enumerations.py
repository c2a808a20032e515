"""A few values: of a ``Literal`` or of an ``Enum`` (TYPED-08, TYPED-81)."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any

from .converters import ConversionError, Converter
from .type_schema import NUMBERS, NoneType, Schema, TypeSchema, UnsupportedType

JSON_TYPES = {NoneType: "null", bool: "boolean", int: "integer", float: "number", str: "string"}


def exact(value: Any) -> tuple[bool, Any]:
    """Return `value` as a key: ``True`` and ``1`` differ, ``1`` and ``1.0`` do not."""
    return type(value) is bool, value


def finite_converter(members: Mapping[Any, Any]) -> Converter:
    """Return the converter of one of a few values, by their JSON values (`exact`)."""

    def convert(value: Any) -> Any:
        try:
            return members[exact(value)]
        except (KeyError, TypeError):  # TypeError: a list or an object
            raise ConversionError("is not one of the values allowed") from None

    return convert


def enumeration(members: Sequence[tuple[Any, Any]]) -> TypeSchema:
    """Return the type schema of a few values: pairs of a JSON value and its Python value."""
    values = [value for value, _ in members]
    for value in values:
        if not _is_scalar(value):
            raise UnsupportedType(f"{value!r} is not a JSON string, number, boolean or null")
    if not values:
        raise UnsupportedType("it has no members")
    kinds = [type(value) for value in values]
    accepts = frozenset(kinds).union(NUMBERS if NUMBERS.intersection(kinds) else ())
    same = all(value is meant for value, meant in members) and not accepts & NUMBERS
    table = {exact(value): meant for value, meant in members}
    convert = None if same else finite_converter(table)
    return TypeSchema(_enum(values), accepts, convert, values=values)


def _enum(values: Sequence[Any]) -> Schema:
    """Return the schema of the values, one ``enum`` for each JSON type among them."""
    numbers = "number" if any(type(value) is float for value in values) else "integer"
    by_type: dict[str, list[Any]] = {}
    for value in values:
        kind = numbers if type(value) in NUMBERS else JSON_TYPES[type(value)]
        by_type.setdefault(kind, []).append(value)
    schemas: list[Schema] = [
        {"type": kind} if kind == "null" else {"type": kind, "enum": of_kind}
        for kind, of_kind in by_type.items()
    ]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def enumerated(cls: type[enum.Enum], *, by_name: bool = False) -> TypeSchema:
    """Return the type schema of an enumeration (TYPED-08, TYPED-81).

    Args:
        cls: the class.
        by_name: by the names of its members, as if a value is no JSON scalar.
    """
    if by_name or is_by_name(cls):
        return enumeration([(member.name, member) for member in cls])
    return enumeration([(member.value, member) for member in cls])


def is_by_name(cls: type[enum.Enum]) -> bool:
    """Return whether a member of `cls` has a value that is no JSON scalar."""
    return not all(map(_is_scalar, (member.value for member in cls)))


def _is_scalar(value: Any) -> bool:
    return type(value) in JSON_TYPES and (type(value) is not float or math.isfinite(value))
