"""Unions: which member a value is taken for, and which unions are refused."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import pytest
from attrs import define

from foundation_rt.base.jsonschema.compilation import compile_schema
from foundation_rt.errors import RegistrationError, ToolError
from foundation_rt.features.signatures.constraints import Constraints
from tests.lab.apps.signatures import arrived, derive_tool, tool_of


class Color(enum.Enum):
    RED = "red"


class Fruit(enum.Enum):
    PEAR = "pear"


class Tint(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


@define
class Circle:
    radius: float
    name: str = ""


@dataclass
class Square:
    side: float
    name: str = ""


@define
class Named:
    name: str = ""


@define
class Dog:
    kind: Literal["dog"]
    name: str = ""


@define
class Cat:
    kind: Annotated[Literal["cat", "kitten"], "Which."]
    name: str = ""


@define
class Untagged:
    kind: str
    name: str = ""


class Raw(TypedDict):
    text: str


@define
class Branch:
    left: Branch | Leaf
    right: Branch | Leaf


@define
class Leaf:
    value: int


@define
class Minus:
    of: Minus | Plus | int
    sign: Literal["-"]


@define
class Plus:
    of: Minus | Plus | int
    sign: Literal["+"]


@pytest.mark.rule("TYPED-23")
@pytest.mark.parametrize("innermost", [5, "no"])
def test_tags_are_checked_before_nested_members(innermost: Any) -> None:
    def tool(term: Minus | Plus) -> Any:
        return term

    derived = derive_tool(tool)
    definitions = derived.input_schema["definitions"].values()
    assert all(next(iter(each["properties"])) == "sign" for each in definitions)
    value: Any = innermost
    for level in range(60):  # in the other order it would take 2**60 steps
        value = {"of": value, "sign": "+-"[level % 2]}
    issues = compile_schema(derived.input_schema).validate({"term": value})
    assert bool(issues) == (innermost == "no")


@pytest.mark.rule("TYPED-09", "TYPED-35", "TYPED-36")
@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int | str | None, 5.0, 5),
        (int | str | None, "5", "5"),
        (int | str | None, None, None),
        (bool | int, True, True),
        (bool | int, 1.0, 1),
        (Color | str, "red", Color.RED),
        (Color | str, "green", "green"),
        (Color | Fruit, "pear", Fruit.PEAR),
        (Literal["blue"] | Color, "blue", "blue"),
        (Literal["blue"] | Color, "red", Color.RED),
        (Level | int, 1.0, Level.LOW),
        (Level | int, 2.0, 2),
        (Level | float, 2, 2.0),
        (Level | int | float, 2.0, 2.0),
        (Literal[True] | Level, True, True),
        (Literal[True] | Level, 1, Level.LOW),
        (date | datetime | str, "2026-01-31", date(2026, 1, 31)),
        (date | datetime | str, "2026-01-31T10:00:00Z", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        (date | datetime | str, "soon", "soon"),
        (
            date | UUID,
            "12345678-1234-1234-1234-123456789abc",
            UUID("12345678-1234-1234-1234-123456789abc"),
        ),
        (list[int] | str, [1.0], [1]),
        (list[str] | list[bool], [True], [True]),
        (Annotated[Color | None, "x"] | int, None, None),
        (Annotated[Color | None, "x"] | str, "red", Color.RED),
        (Circle | Square, {"side": 1}, Square(1.0)),
        (Circle | Square | None, {"radius": 1, "name": "x"}, Circle(1.0, "x")),
        (Circle | Raw, {"text": "x"}, {"text": "x"}),
        (Dog | Cat, {"kind": "kitten"}, Cat("kitten")),
        (Dog | Cat | Square, {"kind": "dog", "name": "x"}, Dog("dog", "x")),
        (
            Branch,
            {"left": {"value": 1}, "right": {"left": {"value": 2.0}, "right": {"value": 3}}},
            Branch(Leaf(1), Branch(Leaf(2), Leaf(3))),
        ),
        (Any | None, {"a": 1}, {"a": 1}),
        (date | Any, "soon", "soon"),
        (Annotated[int | None, "x"] | Annotated[date | None, "y"], None, None),
        (Annotated[int | None, "x"] | Annotated[date | None, "y"], 1.0, 1),
    ],
)
def test_value_is_converted_by_the_matching_member(hint: Any, value: Any, expected: Any) -> None:
    result = arrived(hint, value)
    assert repr(result) == repr(expected)


@pytest.mark.rule("TYPED-30", "TYPED-09", "TYPED-37")
@pytest.mark.parametrize(
    ("hint", "reason"),
    [
        (str | Color, "takes every JSON string, so the ones after it are never reached"),
        (int | Level, "takes every JSON number, so the ones after it are never reached"),
        (Color | Tint, "two members of the union have the value 'red'"),
        (Annotated[int | str, "x"] | date, "never reached"),
        (Annotated[int | None, "x"] | Annotated[float | None, "y"] | Level, "never reached"),
        (Any | date, "never reached"),
        (Annotated[int | str, "x"] | str, "two members of the union take every JSON string"),
        (list[int] | list[str], "two members of the union take a JSON array"),
        (dict[str, int] | Circle, "two members of the union take a JSON object"),
        (Any | Circle, "two members of the union take a JSON object"),
        (Named | Untagged | Cat, "Untagged and Cat can be given by the same keys"),
        (Dog | Untagged, "Dog and Untagged can be given by the same keys"),
    ],
)
def test_ambiguous_union_is_refused(hint: Any, reason: str) -> None:
    with pytest.raises(RegistrationError) as refused:
        tool_of(hint)
    assert reason in str(refused.value)


@pytest.mark.rule("TYPED-09", "TYPED-19", "TYPED-22")
@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Color | Fruit, "plum"),
        (Color | date, "plum"),
        (Circle | Square, {"name": "x"}),
        (Circle | Square, {"side": 1, "radius": 1}),
        (Dog | Cat, {"kind": "cow"}),
        (Dog | Cat, {"kind": ["dog"]}),
        (int | Circle, "x"),
    ],
)
def test_a_value_of_no_member_is_refused(hint: Any, value: Any) -> None:
    with pytest.raises(ToolError) as refused:
        tool_of(hint, {"type": "object"}).handler({"it": value}, None)
    assert refused.value.details == {"reason": "not_structurable", "path": "/it"}


@pytest.mark.rule("TYPED-09")
def test_constrained_numbers_of_both_kinds_arrive_as_written() -> None:
    hint = Annotated[int, Constraints(minimum=9)] | float
    assert repr(arrived(hint, 10.0)) == "10.0"
    assert repr(arrived(hint, 10)) == "10"
