"""Constraints in `Annotated`: the keywords they become, and where they make no sense."""

from __future__ import annotations

import enum
from typing import Annotated, Any, NewType

import annotated_types as at
import pytest
from attrs import define

from foundation_rt.base.jsonschema.compilation import compile_schema
from foundation_rt.errors import RegistrationError
from foundation_rt.features.signatures.constraints import Constraints
from tests.lab.apps.signatures import derive_tool


def schema_of(hint: Any) -> dict[str, Any]:
    def tool(it: Any) -> None: ...

    tool.__annotations__ = {"it": hint}
    schema = derive_tool(tool).input_schema
    assert compile_schema(schema).warnings == ()
    return schema


def it(hint: Any) -> dict[str, Any]:
    return schema_of(hint)["properties"]["it"]


class Color(enum.Enum):
    RED = "red"


@define
class Place:
    name: str


Percent = NewType("Percent", Annotated[int, at.Interval(ge=0, le=100)])  # type: ignore[valid-newtype]


@pytest.mark.rule("TYPED-13", "TYPED-41")
@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (
            Annotated[int, Constraints(minimum=1, maximum=9)],
            {"type": "integer", "minimum": 1, "maximum": 9},
        ),
        (
            Annotated[float, Constraints(exclusive_minimum=0, exclusive_maximum=1.5)],
            {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1.5},
        ),
        (Annotated[int, Constraints(multiple_of=5)], {"type": "integer", "multipleOf": 5}),
        (
            Annotated[str, Constraints(min_length=1, max_length=9, pattern="^[a-z]+$")],
            {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^[a-z]+$"},
        ),
        (
            Annotated[list[str], Constraints(min_length=1, max_length=2)],
            {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
        ),
        (
            Annotated[tuple[str, ...], Constraints(min_length=0)],
            {"type": "array", "items": {"type": "string"}, "minItems": 0},
        ),
        (
            Annotated[dict[str, Any], Constraints(min_length=1, max_length=2)],
            {"type": "object", "minProperties": 1, "maxProperties": 2},
        ),
        (
            list[Annotated[int, Constraints(minimum=1)]],
            {"type": "array", "items": {"type": "integer", "minimum": 1}},
        ),
        (
            Annotated[str | list[str], Constraints(min_length=1)],
            {
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {"type": "array", "items": {"type": "string"}, "minItems": 1},
                ]
            },
        ),
        (
            Annotated[Any, Constraints(minimum=1, max_length=2)],
            {
                "anyOf": [
                    {"type": "string", "maxLength": 2},
                    {"type": "number", "minimum": 1},
                    {"type": "boolean"},
                    {"type": "object", "maxProperties": 2},
                    {**it(Any)["anyOf"][4], "maxItems": 2},
                    {"type": "null"},
                ]
            },
        ),
        (Annotated[int, at.Ge(1), at.Le(9)], {"type": "integer", "minimum": 1, "maximum": 9}),
        (
            Annotated[int, at.Gt(1), at.Lt(9), at.MultipleOf(2)],
            {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 9, "multipleOf": 2},
        ),
        (Annotated[str, at.Len(1, 9)], {"type": "string", "minLength": 1, "maxLength": 9}),
        (Annotated[str, at.MinLen(1)], {"type": "string", "minLength": 1}),
        (Percent, {"type": "integer", "minimum": 0, "maximum": 100}),
        (
            Annotated[int, "How many.", Constraints(minimum=1), "In all."],
            {"type": "integer", "description": "In all.", "minimum": 1},
        ),
        (Annotated[int, at.Predicate(bool), at.Interval(), at.Unit("m")], {"type": "integer"}),
        (Annotated[int, Constraints()], {"type": "integer"}),
    ],
)
def test_constraints_become_keywords(hint: Any, schema: dict[str, Any]) -> None:
    assert it(hint) == schema


@pytest.mark.rule("TYPED-02", "TYPED-13", "TYPED-41")
def test_constraints_are_enforced() -> None:
    validate = compile_schema(schema_of(Annotated[int, Constraints(minimum=1)])).validate
    assert validate({"it": 1}) == ()
    assert validate({"it": 0}) != ()


@pytest.mark.rule("TYPED-30", "TYPED-42")
@pytest.mark.parametrize(
    ("hint", "reason"),
    [
        (Annotated[str, Constraints(minimum=1)], "minimum does not apply"),
        (Annotated[int, Constraints(max_length=1)], "max_length does not apply"),
        (Annotated[int, Constraints(pattern="x")], "pattern does not apply"),
        (Annotated[bool, at.Ge(0)], "minimum does not apply"),
        (Annotated[Color, at.Ge(0)], "minimum does not apply"),
        (Annotated[Place, Constraints(min_length=1)], "min_length does not apply"),
        (Annotated[int, at.Ge(1), Constraints(minimum=2)], "minimum is given twice"),
        (Annotated[tuple[int, int], at.Len(1)], "min_length is given twice"),
        (Annotated[int, Constraints(minimum="1")], "minimum is '1', which is no number"),  # type: ignore[arg-type]
        (Annotated[int, at.Ge(True)], "minimum is True, which is no number"),
        (Annotated[float, at.Le(float("inf"))], "maximum is inf, which is no number"),
        (Annotated[int, Constraints(multiple_of=0)], "multiple_of is 0, which is not above 0"),
        (Annotated[str, Constraints(min_length=-1)], "min_length is -1, which is no length"),
        (Annotated[str, Constraints(max_length=1.5)], "max_length is 1.5, which is no length"),  # type: ignore[arg-type]
        (Annotated[str, Constraints(pattern=5)], "pattern is 5, which is no string"),  # type: ignore[arg-type]
    ],
)
def test_invalid_constraint_is_refused(hint: Any, reason: str) -> None:
    with pytest.raises(RegistrationError, match=f"'it': {reason}"):
        schema_of(hint)
