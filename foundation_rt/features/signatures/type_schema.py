"""The result of the walk over a type, at each place: a schema, and the converter of a value.

Invariants: each place where a type stands has a `TypeSchema` of its own, so its schema may be
completed in place (description, default, constraints). `convert` is None exactly when the JSON
value already is the Python value, so a value without conversion costs nothing on a call.

The classes here and in `schema_deriver` are plain ones: every start pays for their definition, and
`attrs` takes 0.4 ms for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...base.shown import Shown
from .converters import Converter, convert_integer, convert_number

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


_PLAIN: dict[Any, Callable[[], TypeSchema]] = {
    None: lambda: TypeSchema({"type": "null"}, frozenset((NoneType,))),
    NoneType: lambda: TypeSchema({"type": "null"}, frozenset((NoneType,))),
    str: lambda: TypeSchema({"type": "string"}, frozenset((str,))),
    bool: lambda: TypeSchema({"type": "boolean"}, frozenset((bool,))),
    int: lambda: TypeSchema({"type": "integer"}, NUMBERS, convert_integer),
    float: lambda: TypeSchema({"type": "number"}, NUMBERS, convert_number),
    dict: lambda: TypeSchema({"type": "object"}, frozenset((dict,))),
}


def plain_type(hint: Any) -> TypeSchema | None:
    """Return the type schema of a type that needs no walk; None for any other one."""
    make = _PLAIN.get(hint) if hint is None or isinstance(hint, type) else None
    return None if make is None else make()
