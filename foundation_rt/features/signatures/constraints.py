"""Markers in ``Annotated``, and the JSON Schema keywords they become (TYPED-13, TYPED-25).

`Constraints`, `Header` and `ByName` are this package's own markers. Those of the `annotated_types`
package are read by their attributes, so that types annotated for another library need not be
annotated again; it is never imported. What no keyword can say is checked on the converted value
(TYPED-59), and a marker that is not understood is refused (TYPED-58): none is dropped.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from attrs import fields, frozen

from ...base.jsonschema.dialects import HEADER_KEYWORD
from .converters import ConversionError, Converter
from .type_schema import (
    ANYTHING,
    NUMBERS,
    NoneType,
    Schema,
    TypeSchema,
    UnsupportedType,
    any_value,
)


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

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> Schema:
        """Put the keywords into the schema of a field of a model of pydantic (TYPED-62)."""
        schema: Schema = handler(core_schema)
        inner = fitting(schema)
        constrain(TypeSchema(inner, accepted_types(inner, {})), self)
        return schema

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Have pydantic check what a validator has made of a value that no schema has checked."""
        from pydantic_core.core_schema import no_info_after_validator_function

        from ...base.jsonschema.compilation import compile_schema

        keywords = {
            keyword: limit for name, limit in _limits(self) for keyword in KEYWORDS[name].values()
        }
        validate = compile_schema(keywords, any_root=True).validate

        def check(value: Any) -> Any:
            for issue in validate(value):
                raise ValueError(issue.message)
            return value

        return no_info_after_validator_function(check, handler(source))


@frozen
class ByName:
    """The members of an enumeration by their names: ``Annotated[Color, ByName()]`` (TYPED-08)."""


@frozen
class Header:
    """An argument that HTTP clients repeat in the header ``Mcp-Param-{name}`` (SCHEMA-23).

    ``Annotated[str, Header("Region")]``; proxies may route by it, and can read it.
    """

    name: str


class Keywords:
    """Keywords of a schema that describe; or a function that puts them into a schema."""

    __slots__ = ("given",)

    def __init__(self, given: Schema | Callable[[Schema], None]) -> None:
        self.given = given

    def put_into(self, schema: Schema) -> None:
        """Put the keywords into `schema`."""
        if callable(self.given):
            self.given(schema)
        else:
            schema.update(self.given)


_ANNOTATED_TYPES = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusive_minimum",
    "lt": "exclusive_maximum",
    "multiple_of": "multiple_of",
    "min_length": "min_length",
    "max_length": "max_length",
    "pattern": "pattern",
}

KEYWORDS: dict[str, dict[type, str]] = {
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


_COMPARISONS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("at least", operator.ge),
    "maximum": ("at most", operator.le),
    "exclusive_minimum": ("more than", operator.gt),
    "exclusive_maximum": ("less than", operator.lt),
    "multiple_of": ("a multiple of", lambda value, limit: value % limit == 0),
    "min_length": ("no shorter than", lambda value, limit: len(value) >= limit),
    "max_length": ("no longer than", lambda value, limit: len(value) <= limit),
}
"""The words for each constraint on a converted value, and its test."""


def constrain(derived: TypeSchema, marker: Any) -> None:
    """Apply one marker of ``Annotated`` to `derived`: by keywords, or by a check of the value.

    Raises:
        UnsupportedType: the constraint does not apply to the type, is not valid, or is unknown.
    """
    if isinstance(marker, Header):
        derived.schema[HEADER_KEYWORD] = marker.name
    elif isinstance(marker, Keywords):
        marker.put_into(derived.schema)
    elif isinstance(text := documentation(marker), str):
        derived.schema["description"] = text
    elif limits := _limits(marker):
        for name, limit in limits:
            _limit(derived, name, limit)
    elif not _is_without_limits(marker):
        _predicate(derived, marker)


def documentation(marker: Any) -> Any:
    """Return the text of a marker that describes: a string, or one with a text; None else."""
    return marker if isinstance(marker, str) else getattr(marker, "documentation", None)


def _limits(marker: Any) -> list[tuple[str, Any]]:
    if isinstance(marker, Constraints):
        named = [(field.name, field.name) for field in fields(Constraints)]
    else:
        named = list(_ANNOTATED_TYPES.items())
    found = [(name, getattr(marker, attribute, None)) for attribute, name in named]
    return [(name, limit) for name, limit in found if limit is not None]


def _is_without_limits(marker: Any) -> bool:
    """Return whether `marker` is one that constrains nothing: an open interval, a unit."""
    return isinstance(marker, Constraints) or (
        type(marker).__module__ == "annotated_types"
        and type(marker).__name__ in ("Interval", "Len", "Unit")
    )


def _predicate(derived: TypeSchema, marker: Any) -> None:
    """Check every value by the function of a ``Predicate`` (TYPED-59)."""
    if type(marker).__module__ != "annotated_types" or not callable(getattr(marker, "func", None)):
        is_aware = type(marker).__name__ == "Timezone" and getattr(marker, "tz", None) is ...
        if is_aware and derived.accepts == {str}:
            return  # every moment and every time of day has an offset (TYPED-31)
        raise UnsupportedType(
            f"its Annotated holds {repr(marker)[:100]}, which is not understood here and would be "
            "dropped: use Constraints, a marker of annotated_types or pydantic, or check the "
            "value in the function"
        )
    inner = getattr(marker.func, "func", marker.func)  # that of Not(...)
    name = getattr(inner, "__name__", type(inner).__name__)
    outcome = "fails" if inner is marker.func else "passes"
    text = f"is refused: it {outcome} the check {name.strip('<>')!r}"
    derived.convert = checked_converter(derived.convert, marker.func, text)


def _limit(derived: TypeSchema, name: str, limit: Any) -> None:
    if derived.checked is not None and name in derived.checked.names:
        _check_value(derived, name, limit)
        return
    if name == "pattern":
        limit = getattr(limit, "pattern", limit)  # a compiled one
    _check_limit(name, limit)
    # A class defines how many members its instances have; a constraint cannot.
    kinds = derived.accepts if derived.members is None else derived.accepts - {dict}
    keywords = [(kind, keyword) for kind, keyword in KEYWORDS[name].items() if kind in kinds]
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


def _check_value(derived: TypeSchema, name: str, limit: Any) -> None:
    """Check the converted value: what is written as a string has an order of its own."""
    assert derived.checked is not None
    kinds = derived.checked.limits
    if type(limit) not in kinds or getattr(limit, "tzinfo", kinds) is None:
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise UnsupportedType(f"{name} is {limit!r}: write it as {expected}, with an offset if any")
    if int in derived.accepts and type(limit) in (int, float) and math.isfinite(limit):
        for place in _places(derived.schema, int):
            place[KEYWORDS[name][int]] = limit
    words, holds = _COMPARISONS[name]
    text = f"must be {words} {limit}"
    derived.convert = checked_converter(derived.convert, lambda value: holds(value, limit), text)


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


def checked_converter(
    convert: Converter | None, holds: Callable[[Any], Any], text: str
) -> Converter:
    """Return a converter that refuses a value with `text` if it does not hold.

    Args:
        convert: makes the value; None if the JSON value is the value.
        holds: takes the value; a ``ValueError`` or ``TypeError`` is a refusal.
        text: a predicate.
    """

    def checked(value: Any) -> Any:
        made = value if convert is None else convert(value)
        try:
            if holds(made):
                return made
        except (ValueError, TypeError) as error:
            raise ConversionError(text) from error
        raise ConversionError(text)

    return checked


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


def admitting_any(schema: Schema) -> Schema:
    """Return a schema of what fits `schema`, and of any other JSON value (TYPED-93)."""
    return {"anyOf": [schema, *any_value(lists=1)["anyOf"]]}


def fitting(schema: Schema) -> Schema:
    """Return the schema of what fits: that which `admitting_any` was given; else `schema`."""
    first, *others = schema.get("anyOf", (schema,))
    return first if others == any_value(lists=1)["anyOf"] else schema
