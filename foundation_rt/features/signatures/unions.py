"""Unions: the member that a value belongs to (TYPED-09).

The JSON type of a value decides, if only one member takes it. Members of the same JSON type are
told apart where that cannot fail: finite sets of values by the value, formats by parsing, classes
by their keys or by a tag. All other unions are refused when the tool is registered; a call never
guesses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from .classes import Member, tags
from .converters import ConversionError, Converter
from .enumerations import exact, finite_converter
from .type_schema import NUMBERS, REQUIRED, NoneType, Schema, TypeSchema, UnsupportedType

_KIND_NAMES = {
    NoneType: "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def union(alternatives: Sequence[TypeSchema]) -> TypeSchema:
    """Return the type schema of a value of any one of several types.

    Raises:
        UnsupportedType: two of them cannot be told apart by the JSON value.
    """
    accepts = frozenset[type]().union(*(derived.accepts for derived in alternatives))
    choices = {
        kind: _choice(kind, [derived for derived in alternatives if kind in derived.accepts])
        for kind in _KIND_NAMES
        if kind in accepts
    }
    convert = _by_type(choices) if any(choices.values()) else None
    schema = union_schema([derived.schema for derived in alternatives])
    return TypeSchema(schema, accepts, convert, values=_values(alternatives))


def _values(alternatives: Sequence[TypeSchema]) -> list[Any] | None:
    """Return the values of all of `alternatives`; None if one of them is no finite set."""
    values: list[Any] = []
    for derived in alternatives:
        if derived.accepts == {NoneType}:
            values.append(None)
        elif derived.values is None:
            return None
        else:
            values += derived.values
    return values


def _by_type(choices: Mapping[type, Converter | None]) -> Converter:
    def convert(value: Any) -> Any:
        try:
            choice = choices[type(value)]
        except KeyError:
            raise ConversionError("is of none of the types allowed") from None
        return value if choice is None else choice(value)

    return convert


def _choice(kind: type, alternatives: Sequence[TypeSchema]) -> Converter | None:
    """Return the converter of a JSON value of one kind that each of `alternatives` accepts."""
    if not any(derived.convert for derived in alternatives):
        return None
    if len(alternatives) == 1:
        return alternatives[0].convert
    if kind is dict and all(derived.members is not None for derived in alternatives):
        return _by_members(alternatives)
    if kind in (dict, list):
        raise UnsupportedType(
            f"two members of the union take a JSON {_KIND_NAMES[kind]} and cannot be told apart; "
            "put the union inside (list[A | B]), or give each a class of its own"
        )
    return _by_trial(kind, alternatives)


def _by_trial(kind: type, alternatives: Sequence[TypeSchema]) -> Converter | None:
    """Return a converter that tries selective members in order, then the one that takes all."""
    general = [index for index, derived in enumerate(alternatives) if not _is_selective(derived)]
    split = general[0] if general else len(alternatives)
    if len(general) != len(alternatives) - split:
        raise UnsupportedType(
            f"a member of the union takes every JSON {_KIND_NAMES[kind]}, so the ones after it "
            "are never reached; put it last"
        )
    rest = alternatives[split:]
    # int | float takes a number as it was written: there is no choice to make.
    unconverted = not any(derived.convert for derived in rest) or (
        len(rest) > 1 and all(derived.accepts == NUMBERS for derived in rest)
    )
    if (
        len(rest) > 1 and not unconverted and kind is not NoneType
    ):  # each of them makes None of null
        raise UnsupportedType(f"two members of the union take every JSON {_KIND_NAMES[kind]}")
    attempts = [
        derived.convert or finite_converter({exact(v): v for v in derived.values or ()})
        for derived in alternatives[:split]
    ]
    _refuse_overlaps([derived for derived in alternatives[:split] if derived.values is not None])
    last = None if unconverted else rest[0].convert

    def convert(value: Any) -> Any:
        for attempt in attempts:
            try:
                return attempt(value)
            except ConversionError:
                continue
        if not rest:
            raise ConversionError("is not one of the values allowed")
        return value if last is None else last(value)

    return convert if attempts else last


def _is_selective(derived: TypeSchema) -> bool:
    """Return whether it refuses values of the JSON type it takes: an enumeration, a date."""
    return derived.values is not None or (derived.convert is not None and derived.accepts == {str})


def _refuse_overlaps(alternatives: Sequence[TypeSchema]) -> None:
    for one, other in combinations(alternatives, 2):
        shared = {*map(exact, one.values or ())} & {*map(exact, other.values or ())}
        if shared and (one.convert or other.convert):
            (_, value), *_ = shared
            raise UnsupportedType(f"two members of the union have the value {value!r}")


def _by_members(alternatives: Sequence[TypeSchema]) -> Converter:
    shapes = [_Shape(derived.members or ()) for derived in alternatives]
    for (one, shape), (other, other_shape) in combinations(
        zip(alternatives, shapes, strict=True), 2
    ):
        if not shape.differs_from(other_shape):
            names = " and ".join(
                derived.schema["$ref"].rpartition("/")[2] for derived in (one, other)
            )
            raise UnsupportedType(
                f"{names} can be given by the same keys; give each a member such as "
                "kind: Literal['...'] with a value of its own and no default"
            )
    choices = [
        (shape, derived.convert) for shape, derived in zip(shapes, alternatives, strict=True)
    ]

    def convert(value: Any) -> Any:
        for shape, choice in choices:
            if shape.fits(value):
                return value if choice is None else choice(value)
        raise ConversionError("has the keys of none of the types allowed")

    return convert


class _Shape:
    """The objects that may stand for an instance of one class."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.allowed = frozenset(member.key for member in members)
        self.required = frozenset(member.key for member in members if member.default is REQUIRED)
        self.tags = tags(members)
        # A tuple, not a set: a value that cannot be hashed is refused like any other.
        self._tag_values = [(key, tuple(choices)) for key, choices in self.tags.items()]

    def differs_from(self, other: _Shape) -> bool:
        """Return whether no object fits both."""
        return (
            not self.required <= other.allowed
            or not other.required <= self.allowed
            or any(
                self.tags[key].isdisjoint(other.tags[key])
                for key in self.tags.keys() & other.tags.keys()
            )
        )

    def fits(self, value: dict[str, Any]) -> bool:
        return self.required <= value.keys() <= self.allowed and all(
            exact(value[key]) in choices for key, choices in self._tag_values
        )


def union_schema(schemas: Sequence[Schema]) -> Schema:
    """Return the schema of a value that fits at least one of `schemas`.

    It has one `type` or is an ``anyOf``, never a list of types, which some hosts refuse
    (TYPED-48). Choices of one JSON type become one ``enum``.
    """
    alternatives: list[Schema] = []
    for schema in schemas:
        for one in schema["anyOf"] if schema.keys() == {"anyOf"} else (schema,):
            _add(alternatives, one)
    if {"type": "number"} in alternatives and {"type": "integer"} in alternatives:
        alternatives.remove({"type": "integer"})
    return alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}


def tuple_items(first: Sequence[Schema], again: Sequence[Schema]) -> Schema:
    """Return the keywords for the items of a tuple, in both dialects (TYPED-86).

    draft-07 does not know `prefixItems` and applies `items` to all of them; so `items` takes what
    any of them is. Without it hosts refuse the array.

    Args:
        first: the schemas of the items, in order.
        again: equal schemas, at least one more if any number of items may follow.
    """
    keywords: Schema = {"prefixItems": [*first]}
    return keywords if {} in again else {**keywords, "items": union_schema(again)}


def _add(alternatives: list[Schema], schema: Schema) -> None:
    if schema in alternatives:
        return
    if schema.keys() == {"type", "enum"}:
        for other in alternatives:
            if other.keys() == {"type", "enum"} and other["type"] == schema["type"]:
                values = [*other["enum"], *schema["enum"]]
                other["enum"] = list({exact(value): value for value in values}.values())
                return
    alternatives.append(schema)
