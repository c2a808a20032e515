"""Unions: which member a value belongs to (TYPED-09).

The JSON type of a value decides, where it can. What is left are members that take the same JSON
type. They are told apart where that cannot fail: finite sets of values by the value, formats by
whether they parse, classes by their keys or by a tag. Everything else is refused when the tool is
registered, never guessed on a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from .classes import Member, tags
from .converters import Misfit, Structure, exact, finite_structure
from .type_schema import NUMBERS, REQUIRED, Form, NoneType, Schema, Underivable

_KIND_NAMES = {
    NoneType: "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def union_form(forms: Sequence[Form]) -> Form:
    """The form of a value that is of any one of several types.

    Raises:
        Underivable: two of them cannot be told apart by the JSON value.
    """
    accepts = frozenset[type]().union(*(form.accepts for form in forms))
    choices = {
        kind: _choice(kind, [form for form in forms if kind in form.accepts])
        for kind in _KIND_NAMES
        if kind in accepts
    }
    structure = _by_type(choices) if any(choices.values()) else None
    return Form(union_schema([form.schema for form in forms]), accepts, structure)


def _by_type(choices: Mapping[type, Structure | None]) -> Structure:
    def structure(value: Any) -> Any:
        try:
            choice = choices[type(value)]
        except KeyError:
            raise Misfit("is of none of the types allowed") from None
        return value if choice is None else choice(value)

    return structure


def _choice(kind: type, forms: Sequence[Form]) -> Structure | None:
    """What makes the value of a JSON value of one kind that each of `forms` accepts."""
    if not any(form.structure for form in forms):
        return None
    if len(forms) == 1:
        return forms[0].structure
    if kind is dict and all(form.members is not None for form in forms):
        return _by_members(forms)
    if kind in (dict, list):
        raise Underivable(
            f"two members of the union take a JSON {_KIND_NAMES[kind]} and cannot be told apart; "
            "put the union inside (list[A | B]), or give each a class of its own"
        )
    return _by_trial(kind, forms)


def _by_trial(kind: type, forms: Sequence[Form]) -> Structure | None:
    """The members that take some values of the kind in their order, then the one that takes all."""
    general = [index for index, form in enumerate(forms) if not _is_selective(form)]
    split = general[0] if general else len(forms)
    if len(general) != len(forms) - split:
        raise Underivable(
            f"a member of the union takes every JSON {_KIND_NAMES[kind]}, so the ones after it "
            "are never reached; put it last"
        )
    rest = forms[split:]
    # int | float takes a number as it was written: there is nothing to decide.
    unconverted = not any(form.structure for form in rest) or (
        len(rest) > 1 and all(form.accepts == NUMBERS for form in rest)
    )
    if len(rest) > 1 and not unconverted and kind is not NoneType:  # any of them makes None of null
        raise Underivable(f"two members of the union take every JSON {_KIND_NAMES[kind]}")
    attempts = [_attempt(form) for form in forms[:split]]
    _refuse_overlaps([form for form in forms[:split] if "enum" in form.schema])
    last = None if unconverted else rest[0].structure

    def structure(value: Any) -> Any:
        for attempt in attempts:
            try:
                return attempt(value)
            except Misfit:
                continue
        if not rest:
            raise Misfit("is not one of the values allowed")
        return value if last is None else last(value)

    return structure if attempts else last


def _is_selective(form: Form) -> bool:
    """Whether a form refuses some values of the JSON type it takes: an enumeration, a date."""
    return "enum" in form.schema or (form.structure is not None and form.accepts == {str})


def _attempt(form: Form) -> Structure:
    return form.structure or finite_structure({exact(v): v for v in form.schema["enum"]})


def _refuse_overlaps(forms: Sequence[Form]) -> None:
    for one, other in combinations(forms, 2):
        shared = {*map(exact, one.schema["enum"])} & {*map(exact, other.schema["enum"])}
        if shared and (one.structure or other.structure):
            (_, value), *_ = shared
            raise Underivable(f"two members of the union have the value {value!r}")


def _by_members(forms: Sequence[Form]) -> Structure:
    shapes = [_Shape(form.members or ()) for form in forms]
    for (one, shape), (other, other_shape) in combinations(zip(forms, shapes, strict=True), 2):
        if not shape.differs_from(other_shape):
            names = " and ".join(form.schema["$ref"].rpartition("/")[2] for form in (one, other))
            raise Underivable(
                f"{names} can be given by the same keys; give each a member such as "
                "kind: Literal['...'] with a value of its own and no default"
            )
    choices = [(shape, form.structure) for shape, form in zip(shapes, forms, strict=True)]

    def structure(value: Any) -> Any:
        for shape, choice in choices:
            if shape.fits(value):
                return value if choice is None else choice(value)
        raise Misfit("has the keys of none of the types allowed")

    return structure


class _Shape:
    """The objects that may stand for an instance of one class."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.allowed = frozenset(member.key for member in members)
        self.required = frozenset(member.key for member in members if member.default is REQUIRED)
        self.tags = tags(members)
        # Looked through, not looked up: a value that cannot be hashed is just another misfit.
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
    """One schema that says what ``anyOf`` would, where that can be said more plainly.

    A flat schema is checked in one step, and its errors name what is wrong inside a member.
    """
    plain = [schema for schema in schemas if schema != {"type": "null"}]
    if all("enum" in schema and schema.keys() <= {"type", "enum"} for schema in plain):
        values = [value for schema in schemas for value in schema.get("enum", (None,))]
        kinds = list(dict.fromkeys(schema.get("type") for schema in schemas))
        enum = {"enum": list({exact(value): value for value in values}.values())}
        return enum if None in kinds else {"type": _one_or_many(kinds), **enum}
    if {"type": "number"} in schemas and {"type": "integer"} in schemas:
        schemas = [schema for schema in schemas if schema != {"type": "integer"}]
    kinds = [schema.get("type") for schema in schemas]
    keywords = [keyword for schema in schemas for keyword in schema if keyword != "type"]
    # A keyword says something of one JSON type only, but for these, which say it of every value.
    if (
        all(isinstance(kind, str) for kind in kinds)
        and len(set(kinds)) == len(kinds)
        and not {"integer", "number"} <= set(kinds)
        and len(set(keywords)) == len(keywords)
        and not {"enum", "description"} & set(keywords)
    ):
        merged: Schema = {"type": _one_or_many(kinds)}
        for schema in schemas:
            merged.update((key, value) for key, value in schema.items() if key != "type")
        return merged
    return {"anyOf": list(schemas)}


def _one_or_many(kinds: list[Any]) -> Any:
    return kinds if len(kinds) > 1 else kinds[0]
