"""Types of the standard library, generic classes, enumerations by name, checks of values."""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Generic, NamedTuple, NewType, Optional, TypedDict, TypeVar

import annotated_types as at
import attrs
import orjson
import pytest
import typing_extensions
from attrs import validators as v
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation_rt.base.jsonschema.compilation import compile_schema
from foundation_rt.errors import RegistrationError, ToolError
from foundation_rt.features.signatures.constraints import ByName, Constraints
from foundation_rt.protocol.plain_values import write_json
from tests.lab.apps.signatures import arrived, derive_tool, tool_of
from tests.lab.sizes import examples

T = TypeVar("T")
U = TypeVar("U", bound=int)


class Pair(NamedTuple):
    """Two of them.

    Attributes:
        one: the first.
    """

    one: int
    two: str = "b"


class Rgb(enum.Enum):
    RED = (255, 0, 0)
    BLUE = (0, 0, 255)


class Color(enum.Enum):
    RED = "r"
    BLUE = "b"


@dataclass
class Box(Generic[T]):
    one: T
    more: list[T] | None = None


@dataclass
class Crate(Box[list[T]], Generic[T]):
    """A box whose own variable is another one than that of its base."""

    label: T | None = None


@attrs.frozen
class Both(Generic[T, U]):
    left: T
    right: U


class Row(TypedDict, Generic[T]):
    key: T


class Wide(Row[int], Generic[T]):
    value: T


class Point(NamedTuple, Generic[T]):  # type: ignore[misc]
    x: T


Maybe = Box[Optional[int]]  # noqa: UP045 - of another type than `int | None` before Python 3.14
UserId = NewType("UserId", Annotated[int, at.Ge(2)])  # type: ignore[valid-newtype]
Twice = typing_extensions.TypeAliasType("Twice", tuple[T, T], type_params=(T,))
EXAMPLES = settings(max_examples=examples(40) // 2, deadline=None)

LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False, places=3)),
    (Path, st.text("ab/. \n", max_size=5).map(Path)),
    (bytes, st.binary(max_size=9)),
    (timedelta, st.timedeltas()),
    (Pair, st.builds(Pair, st.integers(-9, 9), st.text("xy"))),
    (Color, st.sampled_from(Color)),
    (set[int], st.sets(st.integers(-99, 99))),
    (frozenset[str], st.frozensets(st.text("xyz"))),
    (UserId, st.integers(2, 9)),
]
WRAPPERS: list[Callable[[Any, Any], tuple[Any, Any]]] = [
    lambda hint, values: (hint, values),
    lambda hint, values: (list[hint], st.lists(values, max_size=2)),
    lambda hint, values: (hint | None, st.none() | values),
    lambda hint, values: (Box[hint], st.builds(Box, values, st.none() | st.lists(values))),
    lambda hint, values: (Both[hint, int], st.builds(Both, values, st.integers(0, 9))),
    lambda hint, values: (Row[hint], st.fixed_dictionaries({"key": values})),
    lambda hint, values: (
        Wide[hint],
        st.fixed_dictionaries({"key": st.integers(0, 9), "value": values}),
    ),
    lambda hint, values: (Point[hint], st.builds(Point, values)),
    lambda hint, values: (Twice[hint], st.tuples(values, values)),
    lambda hint, values: (
        Crate[hint],
        st.builds(Crate, st.lists(values), st.none(), st.none() | values),
    ),
]


@pytest.mark.parametrize(
    ("hint", "values"), [wrap(*leaf) for leaf in LEAVES for wrap in WRAPPERS], ids=str
)
@pytest.mark.rule("TYPED-63", "TYPED-64", "TYPED-65", "TYPED-66", "TYPED-67", "CALL-20")
def test_values_that_are_written_come_back_equal(hint: Any, values: Any) -> None:
    def tool(it: Any) -> Any:
        return it

    tool.__annotations__ = {"it": hint, "return": hint}
    derived = derive_tool(tool, output_schema=True)
    read = compile_schema(derived.input_schema)
    assert read.warnings == ()
    assert derived.output_schema is not None
    written = compile_schema(derived.output_schema, any_root=True)

    @EXAMPLES
    @given(values)
    def run(value: Any) -> None:
        json = orjson.loads(write_json(value))
        assert read.validate({"it": json}) == ()
        assert written.validate(json) == ()
        back = derived.handler({"it": json}, None)
        assert back == value
        assert type(back) is type(value)

    run()


@pytest.mark.rule("TYPED-63", "TYPED-64", "TYPED-65", "TYPED-66", "TYPED-81")
@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (Decimal, 1, Decimal(1)),
        (Decimal, 0.1, Decimal("0.1")),
        (Decimal, "-1.50", Decimal("-1.50")),
        (Decimal, "1e3", Decimal("1e3")),
        (PurePosixPath, "a//b", PurePosixPath("a/b")),
        (bytes, "aGk=", b"hi"),
        (timedelta, "PT1H30M", timedelta(minutes=90)),
        (timedelta, "-P1W2DT0.5S", -timedelta(days=9, milliseconds=500)),
        (Pair, {"one": 1.0}, Pair(1)),
        (Rgb, "RED", Rgb.RED),
        (dict[Rgb, int], {"RED": 1}, {Rgb.RED: 1}),
        (Annotated[Color, ByName()], "RED", Color.RED),
        (Color, "r", Color.RED),
        (Box, {"one": "x"}, Box("x")),
        (Both[str, Any], {"left": "a", "right": None}, Both("a", None)),  # type: ignore[type-var]
    ],
)
def test_written_forms(hint: Any, value: Any, expected: Any) -> None:
    assert repr(arrived(hint, value)) == repr(expected)


@pytest.mark.rule("TYPED-18", "TYPED-63", "TYPED-64", "TYPED-65", "TYPED-66", "TYPED-67")
@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Decimal, "NaN"),
        (Decimal, "1e9999"),
        (Decimal, "١"),
        (Decimal, "1_0"),
        (Decimal, True),
        (bytes, "aGk"),
        (bytes, "aG k"),
        (timedelta, "P"),
        (timedelta, "PT"),
        (timedelta, "P1Y"),
        (timedelta, "P9999999999D"),
        (timedelta, "P" + "9" * 10_000 + "D"),
        (timedelta, "90"),
        (Path, 5),
        (Rgb, [255, 0, 0]),
        (Annotated[Color, ByName()], "r"),
        (Box[int], {"one": "x"}),
        (Crate[int], {"one": [1], "label": [1]}),
        (Wide[str], {"key": "x", "value": "x"}),
        (Row[int], {"key": "x"}),
        (Twice[int], [1, "x"]),
        (UserId, 0),
        (Pair, [1, "b"]),
        (Both[int, int], {"left": 1, "right": "x"}),
    ],
)
def test_values_of_other_forms_are_refused(hint: Any, value: Any) -> None:
    tool = tool_of(hint)
    if compile_schema(tool.input_schema).validate({"it": value}) == ():
        with pytest.raises(ToolError):
            tool.handler({"it": value}, None)


@pytest.mark.rule("TYPED-67")
@pytest.mark.parametrize(
    ("variable", "schema"),
    [
        (typing_extensions.TypeVar("D", default=int), {"type": "integer"}),
        (typing_extensions.TypeVar("N", bound=str), {"type": "string"}),
        (TypeVar("C", int, str), {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    ],
)
def test_variable_that_nothing_sets_is_its_default_bound_or_one_of_its_types(
    variable: Any, schema: Any
) -> None:
    assert tool_of(list[variable]).input_schema["properties"]["it"]["items"] == schema


@pytest.mark.rule("TYPED-67", "TYPED-38")
def test_generic_classes_have_names_and_descriptions() -> None:
    def tool(a: Box[int], b: Box[int], c: Box[str], d: Pair, e: Maybe, f: Maybe) -> None: ...

    schema = derive_tool(tool).input_schema
    assert schema["definitions"].keys() == {"Box_int", "Box_int___None"}
    assert schema["properties"]["c"]["properties"]["one"] == {"type": "string"}
    assert schema["properties"]["d"] == {
        "type": "object",
        "properties": {
            "one": {"type": "integer", "description": "the first."},
            "two": {"type": "string", "default": "b"},
        },
        "required": ["one"],
        "additionalProperties": False,
        "description": "Two of them.",
    }


@pytest.mark.rule("TYPED-59")
@pytest.mark.parametrize(
    ("hint", "good", "bad", "text"),
    [
        (Annotated[str, at.Predicate(str.islower)], "a", "A", "is refused: it fails the check 'is"),
        (at.LowerCase[str], "a", "A", "fails the check"),
        (Annotated[str, at.Predicate(at.Not(str.islower))], "A", "a", "it passes the check"),
        (Annotated[str, at.Predicate(int)], "7", "a", "it fails the check 'int'"),
        (list[Annotated[int, at.Predicate(lambda n: 1 / n)]], [1], [0], None),
        (Decimal, "0.1", "0,1", "is not a decimal number"),
        (Annotated[Decimal, at.Gt(0)], "0.1", "0.0", "must be more than 0"),
        (Annotated[Decimal, at.MultipleOf(Decimal("0.1"))], "0.3", "0.31", "a multiple of 0.1"),
        (Annotated[date, at.Ge(date(2026, 1, 1))], "2026-01-01", "2025-12-31", "at least 2026-"),
        (
            Annotated[datetime, at.Lt(datetime(2026, 1, 1, tzinfo=UTC))],
            "2025-12-31T00:00:00Z",
            "2026-01-01T00:00:00Z",
            "must be less than",
        ),
        (Annotated[timedelta, at.Le(timedelta(hours=1))], "PT1H", "PT61M", "must be at most"),
        (Annotated[bytes, at.Len(1, 2)], "aGk=", "aGlp", "must be no longer than 2"),
        (Annotated[datetime, at.Timezone(...)], "2026-01-01T00:00:00Z", None, None),
    ],
)
def test_what_no_keyword_says_is_checked_on_the_value(
    hint: Any, good: Any, bad: Any, text: str | None
) -> None:
    arrived(hint, good)
    if text is not None:
        with pytest.raises(ToolError, match=text):
            tool_of(hint).handler({"it": bad}, None)
    elif bad is not None:
        with pytest.raises(ZeroDivisionError):
            tool_of(hint).handler({"it": bad}, None)


@pytest.mark.rule("TYPED-58", "TYPED-59", "TYPED-81")
@pytest.mark.parametrize(
    ("hint", "reason"),
    [
        (Annotated[int, 5], "its Annotated holds 5, which is not understood"),
        (Annotated[str, object], "not understood"),
        (list[Annotated[str, {"pattern": "x"}]], "not understood"),
        (Annotated[str, at.Timezone("Europe/Oslo")], "not understood"),
        (Annotated[int, at.Timezone(...)], "not understood"),
        (Annotated[datetime, at.Ge(datetime(2026, 1, 1))], "with an offset"),
        (Annotated[Decimal, at.Ge("1")], "write it as int or float or Decimal"),
        (Annotated[int | None, ByName()], "applies to an Enum"),
        (Annotated[Path, Constraints(minimum=1)], "minimum does not apply"),
    ],
)
def test_marker_that_would_be_dropped_is_refused(hint: Any, reason: str) -> None:
    with pytest.raises(RegistrationError, match=f"'it': .*{reason}"):
        tool_of(hint)


@pytest.mark.rule("TYPED-13")
def test_documentation_in_annotated_is_the_description() -> None:
    schema = tool_of(Annotated[int, typing_extensions.Doc("How many.")]).input_schema
    assert schema["properties"]["it"] == {"type": "integer", "description": "How many."}


class Dependency:
    """What another framework would replace."""


@pytest.mark.rule("TYPED-69")
@pytest.mark.parametrize(
    ("hint", "default", "is_refused"),
    [
        (int, Dependency(), True),
        (Any, Dependency(), True),
        (object, ..., True),
        (list[int] | None, Dependency(), True),
        (dict[str, int], {1: Dependency()}, False),
        (Annotated[date, "When."], date(2026, 1, 1), False),
        (int, None, False),
        (float, float("nan"), False),
        (float, 2**70, False),
        (TypeVar("P", bound=Path), Path(), False),
        (TypeVar("Q"), Path(), True),
        (Rgb, Rgb.RED, False),
        (list[Path] | None, [Path()], False),
        (Row[int], {"key": Path()}, False),
        (UserId, 2**70, False),
        (Twice[Decimal], (Decimal(1), Decimal(2)), False),
        (Twice[int] | None, Dependency(), True),
    ],
)
def test_default_that_is_no_value_is_refused(hint: Any, default: Any, is_refused: bool) -> None:
    def tool(it: Any = default) -> Any:
        return it

    tool.__annotations__ = {"it": hint}
    if is_refused:
        with pytest.raises(RegistrationError, match="is no value of its type"):
            derive_tool(tool)
    else:
        assert derive_tool(tool).handler({}, None) is default


@attrs.define
class Checked:
    low: int = attrs.field(validator=[v.ge(1), v.lt(9)])
    word: str = attrs.field(default="ab", validator=v.matches_re("[a-z]+"))
    pick: str | None = attrs.field(default=None, validator=v.optional(v.in_(["x", "y"])))
    some: list[int] = attrs.field(
        factory=list, validator=v.deep_iterable(v.gt(0), v.and_(v.max_len(2), v.instance_of(list)))
    )
    free: int | None = attrs.field(default=None, validator=v.optional(v.le(5)))
    long: str = attrs.field(default="ab", validator=v.min_len(2))
    own: int = attrs.field(default=1)

    @own.validator
    def _odd(self, attribute: Any, value: int) -> None:
        if value % 2 == 0:
            raise ValueError("must be odd")


@pytest.mark.rule("TYPED-80")
def test_validators_of_attrs_are_keywords() -> None:
    properties = tool_of(Checked).input_schema["properties"]["it"]["properties"]
    assert properties["low"] == {"type": "integer", "minimum": 1, "exclusiveMaximum": 9}
    assert properties["word"]["pattern"] == "^(?:[a-z]+)$"
    assert properties["pick"]["anyOf"] == [
        {"type": "string", "enum": ["x", "y"]},
        {"type": "null"},
    ]
    assert properties["some"]["items"] == {"type": "integer", "exclusiveMinimum": 0}
    assert properties["some"]["maxItems"] == 2
    assert properties["long"]["minLength"] == 2
    assert properties["free"]["anyOf"][0] == {"type": "integer", "maximum": 5}
    value = {"low": 1, "word": "a", "pick": None, "some": [1, 2], "free": None, "own": 3}
    assert arrived(Checked, value) == Checked(**value)  # type: ignore[arg-type]
    with pytest.raises(ToolError, match="/it was refused: must be odd"):
        arrived(Checked, {"low": 1, "own": 2})


@attrs.define
class Unsaid:
    case: str = attrs.field(default="a", validator=v.matches_re("A", re.IGNORECASE))
    group: str = attrs.field(default="a", validator=v.matches_re("(?P<x>a)"))
    part: str = attrs.field(default="a", validator=v.in_("abc"))
    made: bool = attrs.field(default=True, validator=v.in_([True, object()]))
    held: bool = attrs.field(default=True, validator=v.in_(type("", (), {"__contains__": all})()))
    parts: list[Unsaid] = attrs.field(factory=list, validator=v.deep_iterable(v.ge(1)))


@pytest.mark.rule("TYPED-80")
def test_validators_that_no_keyword_says_are_none() -> None:
    definitions = tool_of(Unsaid).input_schema["definitions"]
    text, flag = {"type": "string", "default": "a"}, {"type": "boolean", "default": True}
    parts = {"type": "array", "items": {"$ref": "#/definitions/Unsaid"}}
    texts = {"case": text, "group": text, "part": text}
    expected = {**texts, "made": flag, "held": flag, "parts": parts}
    assert definitions["Unsaid"]["properties"] == expected


@pytest.mark.rule("TYPED-84")
def test_results_are_described_as_they_are_written() -> None:
    def moment() -> datetime: ...

    assert derive_tool(moment, output_schema=True).output_schema == {"type": "string"}


@pytest.mark.rule("CALL-20")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({3, 1, 20}, "[1,3,20]"),
        ({"b", "a"}, '["a","b"]'),
        ({1, "a"}, '["a",1]'),
        (frozenset([frozenset([2, 1]), frozenset()]), "[[1,2],[]]"),
        ({Color.RED, Color.BLUE}, '["b","r"]'),
        ({Both(2, 1), Both(1, 2)}, '[{"left":1,"right":2},{"left":2,"right":1}]'),
        (Pair(1), '{"one":1,"two":"b"}'),
        (b"hi", '"aGk="'),
        (Decimal("1.50"), '"1.50"'),
        (PurePosixPath("a/b"), '"a/b"'),
        (timedelta(), '"PT0S"'),
        (timedelta(days=-1, seconds=1), '"-PT23H59M59S"'),
    ],
)
def test_forms_of_results(value: Any, text: str) -> None:
    assert write_json(value).decode() == text


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax came with 3.12")
@pytest.mark.rule("TYPED-67")
def test_generics_of_pep_695() -> None:
    source = (
        "from dataclasses import dataclass\n"
        "type Pair[T] = tuple[T, T]\n"
        "@dataclass\nclass Box[T]:\n    one: T\n"
    )
    made: dict[str, Any] = {"__name__": __name__}
    exec(source, made)
    assert arrived(made["Pair"][int], [1.0, 2]) == (1, 2)
    assert arrived(made["Box"][date], {"one": "2026-01-31"}).one == date(2026, 1, 31)
