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
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...base.shown import Shown
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


COMPUTED = object()
"""The default of a member that may be left out, if there is no value to show."""


class UnsupportedType(Exception):
    """A type has no schema; the message says why."""


class Checked(Shown):
    """The constraints of a type that are checked on the converted value (TYPED-59).

    Attributes:
        names: of the constraints.
        limits: the types that a limit may have.
    """

    __slots__ = ("limits", "names")

    def __init__(self, names: frozenset[str], *limits: type) -> None:
        self.names = names
        self.limits = limits


ORDER = frozenset(("minimum", "maximum", "exclusive_minimum", "exclusive_maximum"))
"""The names of the constraints that compare."""


class TypeSchema(Shown):
    """A type at one place.

    Attributes:
        schema: its JSON Schema there.
        accepts: the Python types of the JSON values that it takes.
        convert: makes the value; None if the JSON value is the value.
        members: of a class whose JSON form is an object.
        values: all the JSON values that it takes, if they are enumerated; else None.
        checked: the constraints that apply to the converted value, not to its JSON form.
    """

    __slots__ = ("accepts", "checked", "convert", "members", "schema", "values")

    def __init__(
        self,
        schema: Schema,
        accepts: frozenset[type],
        convert: Converter | None = None,
        members: Sequence[Member] | None = None,
        values: Sequence[Any] | None = None,
        checked: Checked | None = None,
    ) -> None:
        self.schema = schema
        self.accepts = accepts
        self.convert = convert
        self.members = members
        self.values = values
        self.checked = checked


_JSON_TYPES = {NoneType: "null", bool: "boolean", int: "integer", float: "number", str: "string"}


_PYTHON_TYPES: dict[Any, frozenset[type]] = {
    "null": frozenset((NoneType,)),
    "boolean": frozenset((bool,)),
    "integer": NUMBERS,
    "number": NUMBERS,
    "string": frozenset((str,)),
    "array": frozenset((list,)),
    "object": frozenset((dict,)),
}


def accepted_types(schema: Any, definitions: Mapping[str, Schema]) -> frozenset[type]:
    """Return the Python types of the JSON values that `schema` may accept.

    Args:
        schema: any schema.
        definitions: the targets of its references, by the last step of each.
    """
    if not isinstance(schema, dict):
        return ANYTHING
    if "type" in schema:
        kinds = schema["type"]
        kinds = kinds if isinstance(kinds, list) else [kinds]
        return frozenset[type]().union(*(_PYTHON_TYPES.get(kind, ANYTHING) for kind in kinds))
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        others = {key: value for key, value in definitions.items() if key != name}
        return accepted_types(definitions.get(name), others)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return frozenset[type]().union(
                *(accepted_types(one, definitions) for one in schema[keyword])
            )
    values = schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else ()
    found = {type(value) for value in values}
    return frozenset(found | NUMBERS if found & NUMBERS else found) or ANYTHING


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
    return type(value) in _JSON_TYPES and (type(value) is not float or math.isfinite(value))


def json_default(default: Any) -> Any:
    """Return `default` as a JSON value; `REQUIRED` if there is no such value."""
    if isinstance(default, enum.Enum):
        return json_default(default.name if is_by_name(type(default)) else default.value)
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


_MAX_LISTS = 3
"""The levels of lists directly within one another in a value of type ``Any``."""


def any_value(lists: int = _MAX_LISTS) -> Schema:
    """Return a schema of any JSON value in which every schema has a type (TYPED-06).

    Hosts refuse an array without `items`, items without a type, and recursion; so it says how
    deep lists may be nested in one another.
    """
    kinds: list[Schema] = [{"type": kind} for kind in ("string", "number", "boolean", "object")]
    if lists:
        kinds.append({"type": "array", "items": any_value(lists - 1)})
    return {"anyOf": [*kinds, {"type": "null"}]}


def admitting_any(schema: Schema) -> Schema:
    """Return a schema of what fits `schema`, and of any other JSON value (TYPED-93)."""
    return {"anyOf": [schema, *any_value(lists=1)["anyOf"]]}


def fitting(schema: Schema) -> Schema:
    """Return the schema of what fits: that which `admitting_any` was given; else `schema`."""
    first, *others = schema.get("anyOf", (schema,))
    return first if others == any_value(lists=1)["anyOf"] else schema
