"""Schemas of results: the schema of a return type describes the written value."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, Literal, NewType, NotRequired, TypedDict
from uuid import UUID

import attrs
import orjson
import pytest

from foundation_rt.base.jsonschema.compilation import compile_schema
from foundation_rt.errors import RegistrationError
from foundation_rt.protocol.content import Text, ToolResult
from foundation_rt.protocol.plain_values import write_json
from tests.lab.apps.signatures import derive_tool


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.define
class Point:
    """A place.

    Attributes:
        x: to the right.
    """

    x: float
    y: float = 0.0
    _hidden: int = attrs.field(default=7, alias="given")
    computed: int = attrs.field(init=False, default=1)


@dataclasses.dataclass
class Box:
    corner: Point
    color: Color
    tags: list[str] = dataclasses.field(default_factory=list)
    _private: int = 0
    fixed: int = dataclasses.field(default=5, init=False)
    made: int = dataclasses.field(default_factory=lambda: 6, init=False)


class Row(TypedDict):
    key: int
    note: NotRequired[str]


@attrs.define
class Tree:
    value: int
    children: list[Tree]


@attrs.define
class Cat:
    name: str


@attrs.define
class Kitten(Cat):
    weeks: int


@attrs.define
class Dog:
    name: str


def schema_of(function: Any) -> dict[str, Any]:
    schema = derive_tool(function, output_schema=True).output_schema
    assert schema is not None
    return schema


def returning(hint: Any) -> Any:
    def tool() -> Any: ...

    tool.__annotations__ = {"return": hint}
    return tool


VALUES: dict[str, tuple[Any, list[Any]]] = {
    "a string": (str, ["", "x"]),
    "a number": (float, [1, 1.5]),
    "nothing": (None, [None]),
    "anything": (Any, [None, 1, [], {}]),
    "a list": (list[int], [[], [1, 2]]),
    "a set": (set[int], [set(), {2, 1}]),
    "a set of tuples": (frozenset[tuple[int, bool]], [frozenset([(1, True), (2, False)])]),
    "a tuple": (tuple[int, str], [(1, "a")]),
    "a mapping": (Mapping[str, int], [{}, {"a": 1}]),
    "a mapping with an enumeration": (dict[Color, int], [{Color.RED: 1}]),
    "an attrs class": (Point, [Point(1, 2.5)]),
    "a dataclass": (Box, [Box(Point(1), Color.RED)]),
    "a typed dict": (Row, [{"key": 1}, {"key": 1, "note": "x"}]),
    "a tree": (Tree, [Tree(1, []), Tree(1, [Tree(2, [])])]),
    "several trees": (list[Tree], [[], [Tree(1, [Tree(2, [])])]]),
    "classes that look alike": (Cat | Dog, [Cat("a"), Dog("b")]),
    "lists that look alike": (list[Cat] | list[Dog], [[Cat("a")], [Dog("b")]]),
    "a union with nothing": (Point | None, [None, Point(1)]),
    "an enumeration": (Color | Literal[1], [Color.BLUE, 1]),
    "moments": (
        tuple[date, datetime],
        [(date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)), (date.min, datetime(2026, 1, 1))],
    ),
    "a subclass": (Cat, [Kitten("a", 1)]),
    "an id": (UUID, [UUID(int=5)]),
}


@pytest.mark.rule("TYPED-26", "TYPED-46")
@pytest.mark.parametrize(("hint", "values"), VALUES.values(), ids=VALUES)
def test_written_value_fits_the_schema(hint: Any, values: list[Any]) -> None:
    validate = compile_schema(schema_of(returning(hint)), any_root=True).validate
    for value in values:
        assert validate(orjson.loads(write_json(value))) == ()
    assert validate({"something": "else"}) != () or hint is Any


@pytest.mark.rule("TYPED-46")
def test_a_class_is_described_by_its_attributes() -> None:
    def where() -> Point: ...

    assert schema_of(where) == {
        "type": "object",
        "description": "A place.",
        "properties": {
            "x": {"type": "number", "description": "to the right."},
            "y": {"type": "number"},
            "_hidden": {"type": "integer"},
            "computed": {"type": "integer"},
        },
        "required": ["x", "y", "_hidden", "computed"],
    }


@pytest.mark.rule("TYPED-46")
def test_dataclass_has_the_members_that_orjson_writes() -> None:
    schema = schema_of(returning(Box))
    assert [*schema["properties"]] == ["corner", "color", "tags", "fixed", "made"]
    assert schema["required"] == ["corner", "color", "tags", "made"]


@pytest.mark.rule("TYPED-26")
@pytest.mark.parametrize("hint", [Tree, Cat | Dog, Row, dict[str, int]])
def test_root_of_objects_has_type_object(hint: Any) -> None:
    assert schema_of(returning(hint))["type"] == "object"


@pytest.mark.rule("TYPED-26")
def test_schema_of_a_coroutine_is_that_of_its_result() -> None:
    async def soon() -> list[int]: ...

    assert schema_of(soon) == {"type": "array", "items": {"type": "integer"}}


@pytest.mark.rule("TYPED-47")
@pytest.mark.parametrize(
    ("hint", "why"),
    [
        (ToolResult, "ToolResult is content"),
        (list[Text], "Text is content"),
        ("Nowhere", "cannot be resolved"),
        (complex, "no form in JSON"),
    ],
)
def test_a_type_that_has_no_schema_is_refused_with_the_way_out(hint: Any, why: str) -> None:
    message = rf"tool 'tool', result: .*{why}.*output_schema=\{{"
    with pytest.raises(RegistrationError, match=message):
        schema_of(returning(hint))


@pytest.mark.rule("TYPED-47")
def test_a_class_without_types_is_refused() -> None:
    untyped = attrs.make_class("Untyped", ["a"])
    with pytest.raises(RegistrationError, match=r"Untyped\.a has no type"):
        schema_of(returning(untyped))


@pytest.mark.rule("TYPED-47")
def test_a_missing_annotation_is_refused() -> None:
    def tool():  # type: ignore[no-untyped-def]
        """Return something."""

    with pytest.raises(RegistrationError, match="result: it has no annotation"):
        schema_of(tool)


@pytest.mark.rule("TYPED-26")
def test_a_schema_given_by_hand_is_used_as_it_is() -> None:
    def tool() -> complex: ...

    by_hand = {"type": "array"}
    assert derive_tool(tool, output_schema=by_hand).output_schema == by_hand
    assert derive_tool(tool, output_schema=False).output_schema is None


@pytest.mark.rule("TYPED-49", "TYPED-85")
@pytest.mark.parametrize(
    ("hint", "has_schema"),
    [
        (Point, True),
        (Point | None, True),
        (Row, True),
        (dict, True),
        (dict[str, Any], True),
        (int, True),
        (list[int], True),
        (list[str], True),
        (tuple[int, str], True),
        (Color, True),
        (Literal["a"] | None, True),
        (date, True),
        (str, False),
        (str | None, False),
        (NewType("Name", str), False),
        (None, False),
        (Any, False),
        (object, False),
        (int | Any, False),
        (list, False),
        (list[Any], False),
        (tuple[str, Any], False),
        (list[str | Text], False),
        (list[str | Any], False),
        (Text, False),
        (ToolResult | None, False),
        (dict[int, str], True),
        (dict[complex, str], False),
        (dict[tuple[int, int], str], False),
        (dict[Row, str], False),
        (complex, False),
        ("Nowhere", False),
    ],
)
def test_a_structure_has_an_output_schema_by_default(hint: Any, has_schema: bool) -> None:
    tool = returning(hint)
    assert (derive_tool(tool).output_schema is not None) is has_schema
    assert derive_tool(tool, output_schema=False).output_schema is None


@pytest.mark.rule("TYPED-49", "TYPED-85")
def test_a_result_without_annotation_has_no_output_schema() -> None:
    def tool():  # type: ignore[no-untyped-def]
        """Return something."""

    assert derive_tool(tool).output_schema is None
