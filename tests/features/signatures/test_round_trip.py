"""Values of a type, written as JSON, validate against the type's schema and arrive equal."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import UTC, date, datetime
from typing import Any, Literal, NotRequired, TypedDict
from uuid import UUID

import attrs
import jsonschema_rs
import orjson
import pytest
import typing_extensions
from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation_rt.base.jsonschema.compilation import compile_schema
from tests.lab.apps.signatures import derive_tool
from tests.lab.sizes import examples


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@define
class Place:
    name: str
    height: int = 0
    _colors: list[Color] = field(factory=list)


@dataclass
class Reading:
    measured: float
    level: Level | None = None
    places: dict[str, Place] = dataclass_field(default_factory=dict)


@define
class Tree:
    value: int
    left: Tree | None = None
    right: Tree | Reading | None = None


class Options(TypedDict):
    when: date | None
    trees: NotRequired[list[Tree]]


# There are 161 types: one type alone need not find everything.
EXAMPLES = settings(max_examples=examples(30) // 2, deadline=None)

INTEGERS = st.integers(-(2**63), 2**64 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
DATES = st.dates()
MOMENTS = st.datetimes(timezones=st.just(UTC))
PLACES = st.builds(Place, TEXT, INTEGERS, st.lists(st.sampled_from(Color), max_size=2))
READINGS = st.builds(
    Reading,
    FLOATS,
    st.none() | st.sampled_from(Level),
    st.dictionaries(TEXT, PLACES, max_size=2),
)
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.builds(Tree, INTEGERS),
    lambda trees: st.builds(Tree, INTEGERS, st.none() | trees, st.none() | trees | READINGS),
    max_leaves=4,
)

Json = typing_extensions.TypeAliasType(
    "Json", "bool | int | float | str | list[Json] | dict[str, Json] | None"
)
JSON = st.recursive(
    st.none() | st.booleans() | st.sampled_from([0, 1, 1.0, 2.5, -3]) | st.sampled_from("ab"),
    lambda items: (
        st.lists(items, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "height", "value", "left", "when"]), items)
    ),
    max_leaves=6,
)

Case = tuple[Any, st.SearchStrategy[Any]]

LEAVES: list[Case] = [
    (int, INTEGERS),
    (float, FLOATS),
    (bool, st.booleans()),
    (str, TEXT),
    (None, st.none()),
    (date, DATES),
    (datetime, MOMENTS),
    (UUID, st.uuids()),
    (Color, st.sampled_from(Color)),
    (Level, st.sampled_from(Level)),
    (Literal["a", 1, True, None], st.sampled_from(["a", 1, True, None])),
    (Place, PLACES),
    (Reading, READINGS),
    (Tree, TREES),
    (
        Options,
        st.fixed_dictionaries(
            {"when": st.none() | DATES}, optional={"trees": st.lists(TREES, max_size=2)}
        ),
    ),
    (set[date], st.sets(DATES, max_size=3)),
    (frozenset[Color], st.frozensets(st.sampled_from(Color))),
    (dict[Color, int], st.dictionaries(st.sampled_from(Color), INTEGERS)),
    (Color | int | None, st.none() | INTEGERS | st.sampled_from(Color)),
    (date | datetime | UUID, DATES | MOMENTS | st.uuids()),
    (Place | Reading, PLACES | READINGS),
    (int | float, INTEGERS | FLOATS),
    (Json, JSON),
]

WRAPPERS: list[Callable[[Case], Case]] = [
    lambda case: case,
    lambda case: (list[case[0]], st.lists(case[1], max_size=3)),  # type: ignore[name-defined]
    lambda case: (dict[str, case[0]], st.dictionaries(TEXT, case[1], max_size=3)),  # type: ignore[name-defined]
    lambda case: (case[0] | None if case[0] else None, st.none() | case[1]),
    lambda case: (tuple[case[0], ...], st.lists(case[1], max_size=3).map(tuple)),  # type: ignore[name-defined]
    lambda case: (tuple[case[0], str], st.tuples(case[1], TEXT)),  # type: ignore[name-defined]
    lambda case: (tuple[case[0], case[0]], st.tuples(case[1], case[1])),  # type: ignore[name-defined]
]


def as_json(value: Any) -> Any:
    """Return the value as a client would send it."""
    if attrs.has(type(value)):
        return {
            f.alias: as_json(getattr(value, f.name)) for f in attrs.fields(type(value)) if f.alias
        }
    if isinstance(value, Reading):
        return {key: as_json(getattr(value, key)) for key in ("measured", "level", "places")}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {as_json(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_json(item) for item in value]
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


def typed(value: Any) -> Any:
    """`value` with the types of its numbers in plain sight: ``1 == 1.0 == True`` is not enough."""
    if isinstance(value, list | tuple):
        return [type(value), *map(typed, value)]
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    return type(value), value


HINTS = [
    pytest.param(*wrap(case), id=f"{number}-{wrapper}")
    for number, case in enumerate(LEAVES)
    for wrapper, wrap in enumerate(WRAPPERS)
]


@pytest.mark.parametrize(("hint", "strategy"), HINTS)
@pytest.mark.rule("TYPED-02", "TYPED-18")
def test_values_arrive_as_they_were_sent(hint: Any, strategy: st.SearchStrategy[Any]) -> None:
    def tool(it: Any) -> Any:
        return it

    tool.__annotations__ = {"it": hint}
    derived = derive_tool(tool)
    compiled = compile_schema(derived.input_schema)
    assert compiled.warnings == ()

    @EXAMPLES
    @given(strategy)
    def run(value: Any) -> None:
        arguments = orjson.loads(orjson.dumps({"it": as_json(value)}))
        assert compiled.validate(arguments) == ()
        assert typed(derived.handler(arguments, None)) == typed(value)

    run()


@pytest.mark.parametrize(("hint", "strategy"), LEAVES)
@pytest.mark.rule("TYPED-12")
def test_a_schema_means_the_same_in_both_dialects(hint: Any, strategy: Any) -> None:
    def tool(it: Any) -> None: ...

    tool.__annotations__ = {"it": hint}
    schema = derive_tool(tool).input_schema
    older = jsonschema_rs.Draft7Validator(schema, validate_formats=True)
    later = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)

    @EXAMPLES
    @given(JSON | strategy.map(as_json))
    def run(value: Any) -> None:
        assert older.is_valid({"it": value}) == later.is_valid({"it": value})

    run()


@pytest.mark.rule("TYPED-86")
def test_draft_07_takes_every_tuple_that_2020_12_takes() -> None:
    def tool(it: tuple[int, str, bool | None]) -> None: ...

    schema = derive_tool(tool).input_schema
    older = jsonschema_rs.Draft7Validator(schema)
    later = jsonschema_rs.Draft202012Validator(schema)
    items = st.none() | st.integers() | st.booleans() | st.just("x")

    @EXAMPLES
    @given(st.lists(items, max_size=4))
    def run(value: Any) -> None:
        kinds = [{int}, {str}, {bool, type(None)}]
        fits = len(value) == 3 and all(type(v) in k for v, k in zip(value, kinds, strict=True))
        assert later.is_valid({"it": value}) == fits
        assert older.is_valid({"it": value}) or not fits

    run()


@pytest.mark.rule("TYPED-18")
def test_recursion_as_deep_as_arguments_can_be() -> None:
    def tool(it: Tree) -> Any:
        return it

    tree: Any = {"value": 0.0}
    for _ in range(250):
        tree = {"value": 7.0, "left": tree}
    result = derive_tool(tool).handler({"it": tree}, None)
    for _ in range(250):
        assert result.value == 7
        result = result.left
    assert type(result.value) is int
