"""Plain schemas: of an object whose members have types, and nothing else.

Most tools have such arguments. The types of the members alone decide that a value is valid, so its
check needs neither the analysis of all keywords nor generated code, which together take a fifth of
the time from the start of a process to its first result. Any other value, an invalid one for
instance or 5.0 for an integer, is left to the check that these make.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from .issues import ValidationIssue

Validator = Callable[[Any], tuple[ValidationIssue, ...]]
"""Takes any JSON value and returns its issues, `()` if it is valid. It never raises, and never
changes the value or fills in defaults (SCHEMA-17)."""

Types = frozenset[type]
"""Types of decoded JSON."""


class _AnyType(frozenset[type]):
    def __contains__(self, value: object) -> bool:
        return True


_ANY, _NONE = _AnyType(), Types()

_TYPES: Final[dict[str, Types]] = {
    "array": frozenset((list,)),
    "boolean": frozenset((bool,)),
    "integer": frozenset((int,)),
    "null": frozenset((type(None),)),
    "number": frozenset((float, int)),
    "object": frozenset((dict,)),
    "string": frozenset((str,)),
}
"""The types whose values a type of JSON Schema always allows."""

_TEXTS: Final = frozenset(("title", "description"))
_OF_OBJECTS: Final = _TEXTS | {"type", "properties", "required", "additionalProperties"}
_OF_MEMBERS: Final = _TEXTS | {"type", "anyOf", "default"}

_MAX_MEMBERS: Final = 63
"""The check of a larger schema is generated when its tool is registered (REG-18)."""


def plain_validator(schema: Mapping[str, Any], decide: Validator) -> Validator | None:
    """Return the validator for a plain schema; None if it has any other keyword, or a fault.

    Args:
        schema: any schema.
        decide: decides about the values that the types of their members do not show to be valid.
    """
    properties, required = schema.get("properties", {}), schema.get("required", [])
    others = schema.get("additionalProperties", True)
    if schema.get("type") != "object" or not _has_only(schema, _OF_OBJECTS):
        return None
    if type(properties) is not dict or len(properties) > _MAX_MEMBERS or type(others) is not bool:
        return None
    members = {
        name: types
        for name, member in properties.items()
        if (types := _types_of(member)) is not None
    }
    if len(members) < len(properties) or not _are_names(required):
        return None
    names, types_of, of_others = frozenset(required), members.get, _ANY if others else _NONE

    def validate(value: Any) -> tuple[ValidationIssue, ...]:
        if type(value) is not dict or not value.keys() >= names:
            return decide(value)
        for name, item in value.items():
            if type(item) not in types_of(name, of_others):
                return decide(value)
        return ()

    return validate


def _types_of(schema: Any) -> Types | None:
    """Return the types that a member may have; None if its schema says anything else."""
    if type(schema) is not dict or not _has_only(schema, _OF_MEMBERS):
        return None
    if "anyOf" not in schema:
        names = schema.get("type")
        return _TYPES.get(names) if type(names) is str else None
    alternatives = schema["anyOf"]
    if "type" in schema or type(alternatives) is not list or not alternatives:
        return None
    types = [_types_of(each) for each in alternatives]
    known = [each for each in types if each is not None]
    return frozenset[type]().union(*known) if len(known) == len(types) else None


def _has_only(schema: Mapping[str, Any], keywords: frozenset[str]) -> bool:
    """Return whether a schema has these keywords alone, and its texts are texts."""
    return schema.keys() <= keywords and all(type(schema.get(one, "")) is str for one in _TEXTS)


def _are_names(value: Any) -> bool:
    """Return whether a value is an array of different strings."""
    if type(value) is not list or any(type(name) is not str for name in value):
        return False
    return len(set(value)) == len(value)
