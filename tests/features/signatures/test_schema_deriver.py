"""Types to schemas: the schema of each type, and refused types."""

from __future__ import annotations

import enum
import typing
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
    Set,
)
from dataclasses import InitVar, dataclass
from dataclasses import field as dataclass_field
from datetime import date, datetime, time
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    Self,
    TypedDict,
    TypeVar,
    Union,
)
from uuid import UUID

import attrs
import jsonschema_rs
import pytest
import typing_extensions
from attrs import define, field

from foundation_rt.errors import RegistrationError
from foundation_rt.features.signatures.constraints import Constraints
from tests.lab.apps.signatures import derive_tool

T = TypeVar("T")


def schema_of(hint: Any, **default: Any) -> dict[str, Any]:
    """Return the whole schema of a tool with one parameter `it`."""

    def tool(it: Any) -> None: ...

    if default:
        tool.__defaults__ = (default["default"],)
    tool.__annotations__ = {"it": hint}
    return derive_tool(tool).input_schema


def it(hint: Any, **default: Any) -> dict[str, Any]:
    """Return the schema of a parameter."""
    schema = schema_of(hint, **default)
    assert "definitions" not in schema
    assert "$schema" not in schema
    return schema["properties"]["it"]


def refusal(hint: Any) -> str:
    with pytest.raises(RegistrationError) as refused:
        schema_of(hint)
    return str(refused.value)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    NOTHING = None
    YES = True
    TWO = 2
    HALF = 0.5
    WORD = "word"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Strange(enum.Enum):
    PAIR = (1, 2)


class Endless(enum.Enum):
    MUCH = float("inf")


class Empty(enum.Enum):
    pass


def any_value(lists: int) -> dict[str, Any]:
    """Return the schema of ``Any``, with lists nested so deeply in one another."""
    kinds: list[dict[str, Any]] = [
        {"type": kind} for kind in ("string", "number", "boolean", "object")
    ]
    if lists:
        kinds.append({"type": "array", "items": any_value(lists - 1)})
    return {"anyOf": [*kinds, {"type": "null"}]}


ANY = any_value(3)
LIST = {"type": "array", "items": ANY}


# -- simple types ----------------------------------------------------------------------------


@pytest.mark.rule("TYPED-06", "TYPED-31", "TYPED-50")
@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (None, {"type": "null"}),
        (type(None), {"type": "null"}),
        (Any, ANY),
        (object, ANY),
        (date, {"type": "string", "format": "date"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (time, {"type": "string", "format": "time"}),
        (
            UUID,
            {
                "type": "string",
                "format": "uuid",
                "pattern": "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$",
            },
        ),
        (NewType("UserId", int), {"type": "integer"}),
        (typing_extensions.TypeAliasType("Name", str), {"type": "string"}),
    ],
)
def test_simple_types(hint: Any, schema: dict[str, Any]) -> None:
    assert it(hint) == schema


MIXED = {
    "anyOf": [
        {"type": "null"},
        {"type": "boolean", "enum": [True]},
        {"type": "number", "enum": [2, 0.5]},
        {"type": "string", "enum": ["word"]},
    ]
}


@pytest.mark.rule("TYPED-08", "TYPED-48")
@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
        (Literal[True], {"type": "boolean", "enum": [True]}),
        (
            Literal[1, True, "x", None],
            {
                "anyOf": [
                    {"type": "integer", "enum": [1]},
                    {"type": "boolean", "enum": [True]},
                    {"type": "string", "enum": ["x"]},
                    {"type": "null"},
                ]
            },
        ),
        (Literal[Color.RED, "green"], {"type": "string", "enum": ["red", "green"]}),
        (Color, {"type": "string", "enum": ["red", "blue"]}),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (Mixed, MIXED),
    ],
)
def test_finite_types(hint: Any, schema: dict[str, Any]) -> None:
    # repr: True and 1 differ
    assert repr(it(hint)) == repr(schema)


ARRAY_OF_INTEGERS = {"type": "array", "items": {"type": "integer"}}
SET_OF_STRINGS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
OBJECT_OF_INTEGERS = {"type": "object", "additionalProperties": {"type": "integer"}}


@pytest.mark.rule("TYPED-07")
@pytest.mark.rule("TYPED-33", "TYPED-34")
@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (list, LIST),
        (typing.List, LIST),  # noqa: UP006
        (list[int], ARRAY_OF_INTEGERS),
        (list["int"], ARRAY_OF_INTEGERS),
        (list[Any], LIST),
        (Sequence[int], ARRAY_OF_INTEGERS),
        (MutableSequence[int], ARRAY_OF_INTEGERS),
        (Collection[int], ARRAY_OF_INTEGERS),
        (Iterable[int], ARRAY_OF_INTEGERS),
        (Sequence, LIST),
        (tuple, LIST),
        (typing.Tuple[int, ...], ARRAY_OF_INTEGERS),  # noqa: UP006
        (tuple[int, ...], ARRAY_OF_INTEGERS),
        (tuple[int, int], {**ARRAY_OF_INTEGERS, "minItems": 2, "maxItems": 2}),
        (tuple[()], {"type": "array", "minItems": 0, "maxItems": 0}),
        (set[str], SET_OF_STRINGS),
        (frozenset[str], SET_OF_STRINGS),
        (Set[str], SET_OF_STRINGS),
        (MutableSet[str], SET_OF_STRINGS),
        (dict, {"type": "object"}),
        (typing.Dict, {"type": "object"}),  # noqa: UP006
        (dict[str, Any], {"type": "object"}),
        (dict[str, int], OBJECT_OF_INTEGERS),
        (Mapping[str, int], OBJECT_OF_INTEGERS),
        (MutableMapping[str, int], OBJECT_OF_INTEGERS),
        (
            dict[Color, Any],
            {"type": "object", "propertyNames": {"type": "string", "enum": ["red", "blue"]}},
        ),
        (
            dict[Annotated[str, Constraints(max_length=3)], Any],
            {"type": "object", "propertyNames": {"type": "string", "maxLength": 3}},
        ),
    ],
)
def test_containers(hint: Any, schema: dict[str, Any]) -> None:
    assert it(hint) == schema


@pytest.mark.rule("TYPED-86")
def test_a_tuple_of_different_items_is_for_both_dialects() -> None:
    assert schema_of(list[tuple[int, str]])["properties"]["it"]["items"] == {
        "type": "array",
        "prefixItems": [{"type": "integer"}, {"type": "string"}],
        "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "minItems": 2,
        "maxItems": 2,
    }


@pytest.mark.rule("TYPED-11", "TYPED-86")
def test_a_class_in_a_tuple_of_different_items_is_a_definition() -> None:
    schema = schema_of(tuple[Place, int])
    assert schema["definitions"].keys() == {"Place"}
    assert schema["properties"]["it"]["prefixItems"][0] == {"$ref": "#/definitions/Place"}


def any_of(*schemas: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [*schemas]}


NULL = {"type": "null"}


@pytest.mark.rule("TYPED-09", "TYPED-12", "TYPED-48")
@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (int | None, any_of({"type": "integer"}, NULL)),
        (Optional[str], any_of({"type": "string"}, NULL)),  # noqa: UP045
        (Union[int, str], any_of({"type": "integer"}, {"type": "string"})),  # noqa: UP007
        (int | float, {"type": "number"}),
        (float | int | None, any_of({"type": "number"}, NULL)),
        (Literal["a"] | None, any_of({"type": "string", "enum": ["a"]}, NULL)),
        (
            Color | Level,
            any_of(
                {"type": "string", "enum": ["red", "blue"]}, {"type": "integer", "enum": [1, 2]}
            ),
        ),
        (Literal["a"] | Color, {"type": "string", "enum": ["a", "red", "blue"]}),
        (Mixed | None, MIXED),
        (list[int] | str, any_of(ARRAY_OF_INTEGERS, {"type": "string"})),
        (
            Annotated[int, Constraints(minimum=1)] | None,
            any_of({"type": "integer", "minimum": 1}, NULL),
        ),
        (
            Annotated[int | None, Constraints(minimum=1)],
            any_of({"type": "integer", "minimum": 1}, NULL),
        ),
        (
            Color | str,
            {"anyOf": [{"type": "string", "enum": ["red", "blue"]}, {"type": "string"}]},
        ),
        (
            date | datetime,
            {
                "anyOf": [
                    {"type": "string", "format": "date"},
                    {"type": "string", "format": "date-time"},
                ]
            },
        ),
        (
            Annotated[int, "A number."] | None,
            {"anyOf": [{"type": "integer", "description": "A number."}, {"type": "null"}]},
        ),
        (
            Annotated[int, Constraints(minimum=9)] | float,
            {"anyOf": [{"type": "integer", "minimum": 9}, {"type": "number"}]},
        ),
        (Any | None, ANY),
    ],
)
def test_unions(hint: Any, schema: dict[str, Any]) -> None:
    assert repr(it(hint)) == repr(schema)


# -- types without a JSON form----------------------------------------------------------------


class Pair(NamedTuple):
    one: int
    two: int


@dataclass
class WithInitVar:
    one: InitVar[int]


@define
class Untyped:
    one = field()


@define
class Unresolvable:
    one: Missing  # type: ignore[name-defined] # noqa: F821


@define
class Deep:
    one: list[complex]


@define
class Box(Generic[T]):
    one: T


@pytest.mark.rule("TYPED-30", "TYPED-06", "TYPED-33", "TYPED-34", "TYPED-08", "TYPED-10")
@pytest.mark.parametrize(
    ("hint", "reason"),
    [
        (complex, "builtins.complex has no form"),
        (Access, "Access has no form"),
        (Self, "Self is not a type"),
        (5, "5 is not a type"),
        ([], "[] is not a type"),
        (type[int], "with type arguments has no form"),
        (Callable[[int], int], "with type arguments has no form"),
        (Literal[b"x"], "b'x' is not a JSON"),
        (Empty, "no members"),
        (set, "a set can hold"),
        (set[list[int]], "a set can hold"),
        (set[bool | int], "a set can hold"),
        (dict[int, str], "the keys of a JSON object"),
        (dict[str | None, str], "the keys of a JSON object"),
        (dict[date, str], "the keys of a JSON object"),
        (dict[str, complex], "builtins.complex has no form"),
        (WithInitVar, "WithInitVar has an InitVar"),
        (Untyped, "Untyped.one has no type"),
        (Unresolvable, "annotations of Unresolvable cannot be resolved: NameError"),
        (Deep, "Deep.one: builtins.complex"),
        (list[Deep], "Deep.one: builtins.complex"),
        (
            typing_extensions.TypeAliasType("Broken", "list[Missing]"),  # noqa: F821
            "Broken cannot be resolved: NameError",
        ),
    ],
)
def test_type_without_a_json_form_is_refused(hint: Any, reason: str) -> None:
    assert reason in refusal(hint)


# -- classes ---------------------------------------------------------------------------------


@define
class Place:
    """Somewhere.

    Attributes:
        name: What people call it.
        height: Above the sea.
    """

    name: str
    height: Annotated[float, "In metres."] = 0.0
    tags: list[str] = field(factory=list)
    _owner: str | None = None
    _cache: dict[str, Path] = field(factory=dict, init=False)


PLACE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "What people call it."},
        "height": {"type": "number", "description": "In metres.", "default": 0.0},
        "tags": {"type": "array", "items": {"type": "string"}},
        "owner": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    },
    "required": ["name"],
    "additionalProperties": False,
    "description": "Somewhere.",
}


@dataclass
class Reading:
    place: Place
    value: float
    at: datetime | None = None
    level: Level = Level.HIGH
    notes: list[str] = dataclass_field(default_factory=list)
    total: float = dataclass_field(init=False, default=0.0)


class Base(TypedDict):
    one: int
    two: NotRequired[str]
    three: Annotated[NotRequired[bool], "Third."]


class Extended(Base, total=False):
    four: Required[int]
    five: list[int]


@pytest.mark.rule("TYPED-03", "TYPED-29", "TYPED-10", "TYPED-38")
def test_an_attrs_class_is_an_object() -> None:
    assert it(Place) == PLACE


@pytest.mark.rule("TYPED-03", "TYPED-29", "TYPED-10", "TYPED-38")
def test_a_dataclass_is_an_object() -> None:
    assert it(Reading) == {
        "type": "object",
        "properties": {
            "place": PLACE,
            "value": {"type": "number"},
            "at": {
                "anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}],
                "default": None,
            },
            "level": {"type": "integer", "enum": [1, 2], "default": 2},
            "notes": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["place", "value"],
        "additionalProperties": False,
    }


@pytest.mark.rule("TYPED-10")
def test_a_typed_dict_is_an_object() -> None:
    schema = it(Extended)
    assert schema == {
        "type": "object",
        "properties": {
            "one": {"type": "integer"},
            "two": {"type": "string"},
            "three": {"type": "boolean", "description": "Third."},
            "four": {"type": "integer"},
            "five": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["one", "four"],
        "additionalProperties": False,
    }


@pytest.mark.rule("TYPED-10")
def test_a_typed_dict_of_a_backport_is_an_object() -> None:
    backport = typing_extensions.TypedDict("backport", {"a b": int})
    assert it(backport)["properties"] == {"a b": {"type": "integer"}}


@pytest.mark.rule("TYPED-10")
def test_a_class_made_without_annotations_is_an_object() -> None:
    made = attrs.make_class("Made", {"one": attrs.field(type=int)})
    assert it(made)["properties"] == {"one": {"type": "integer"}}


# -- definitions -----------------------------------------------------------------------------


@define
class Node:
    """A node."""

    value: int
    left: Node | None = None
    right: Optional["Node"] = None  # noqa: UP037, UP045


@define
class Chain:
    rest: Self | None
    more: list[Self]


@define
class Ping:
    pong: Pong | None


@define
class Pong:
    ping: Ping | None


@pytest.mark.rule("TYPED-11")
def test_a_class_that_contains_itself_is_a_definition() -> None:
    child = {
        "anyOf": [{"$ref": "#/definitions/Node"}, {"type": "null"}],
        "default": None,
    }
    schema = schema_of(Node)
    assert schema["properties"] == {"it": {"$ref": "#/definitions/Node"}}
    assert schema["definitions"] == {
        "Node": {
            "type": "object",
            "properties": {"value": {"type": "integer"}, "left": child, "right": child},
            "required": ["value"],
            "additionalProperties": False,
            "description": "A node.",
        }
    }
    assert set(schema_of(Chain)["definitions"]) == {"Chain"}
    schema = schema_of(Ping)
    assert set(schema["definitions"]) == {"Ping"}
    inner = schema["definitions"]["Ping"]["properties"]["pong"]["anyOf"][0]
    assert inner["properties"]["ping"]["anyOf"][0] == {"$ref": "#/definitions/Ping"}


@pytest.mark.rule("TYPED-11", "TYPED-39")
def test_a_class_used_twice_is_a_definition() -> None:
    def route(start: Place, end: Annotated[Place, "Where to."], via: list[Place]) -> None: ...

    schema = derive_tool(route).input_schema
    reference = {"$ref": "#/definitions/Place"}
    assert schema["properties"] == {
        "start": reference,
        "end": {"allOf": [reference], "description": "Where to."},
        "via": {"type": "array", "items": reference},
    }
    assert schema["definitions"] == {"Place": PLACE}


@pytest.mark.rule("TYPED-11", "TYPED-39")
def test_description_of_the_parameter_wins_over_that_of_its_class() -> None:
    schema = it(Annotated[Place | None, "Where to."], default=None)
    assert schema == {
        "anyOf": [PLACE, {"type": "null"}],
        "description": "Where to.",
        "default": None,
    }
    assert it(Annotated[Place, "Where to."]) == {**PLACE, "description": "Where to."}


@pytest.mark.rule("TYPED-11", "TYPED-12")
def test_a_pair_of_a_class_uses_it_once() -> None:
    assert it(tuple[Place, Place])["items"] == PLACE


@pytest.mark.rule("TYPED-40")
def test_definitions_have_names_that_fit_into_a_reference() -> None:
    one = attrs.make_class("Größe/~%", {"one": attrs.field(type=int)})
    schema = schema_of(tuple[one, one | None])
    assert list(schema["definitions"]) == ["Gr__e___"]
    assert jsonschema_rs.validator_for(schema).is_valid({"it": [{"one": 1}, None]})


@pytest.mark.rule("TYPED-40")
def test_classes_of_one_name_get_different_names() -> None:
    def make(hint: Any) -> Any:
        return attrs.make_class("Thing", {"one": attrs.field(type=hint)})

    one, two, three = make(int), make(str), make(bool)

    def tool(a: one, b: one, c: two, d: two, e: three, f: three) -> None: ...  # type: ignore[valid-type]

    definitions = derive_tool(tool).input_schema["definitions"]
    kinds = {name: thing["properties"]["one"]["type"] for name, thing in definitions.items()}
    assert sorted(kinds) == ["Thing", "Thing_2", "Thing_3"]
    assert sorted(kinds.values()) == ["boolean", "integer", "string"]


Json = typing_extensions.TypeAliasType(
    "Json", "bool | int | float | str | list[Json] | dict[str, Json] | None"
)
Text = typing_extensions.TypeAliasType("Text", Annotated[str, Constraints(max_length=9)])
Thing = typing_extensions.TypeAliasType("Thing", Place)


@pytest.mark.rule("TYPED-06", "TYPED-40")
def test_an_alias_is_written_out_unless_it_contains_itself() -> None:
    text = {"type": "string", "maxLength": 9}
    assert it(tuple[Text, Text])["items"] == text
    assert it(list[Text] | Text) == {"anyOf": [{"type": "array", "items": text}, text]}
    assert it(Thing) == PLACE
    schema = schema_of(Json)
    reference = {"$ref": "#/definitions/Json"}
    assert schema["properties"]["it"] == reference
    assert schema["definitions"] == {
        "Json": any_of(
            {"type": "boolean"},
            {"type": "number"},
            {"type": "string"},
            {"type": "array", "items": reference},
            {"type": "object", "additionalProperties": reference},
            NULL,
        )
    }


# -- defaults --------------------------------------------------------------------------------


@pytest.mark.rule("TYPED-28")
@pytest.mark.parametrize(
    ("hint", "default", "advertised"),
    [
        (str, "x", "x"),
        (int, 0, 0),
        (bool, False, False),
        (float, 1, 1),
        (int | None, None, None),
        (list[int], [1], [1]),
        (tuple[int, ...], (1, 2), [1, 2]),
        (dict[str, Any], {"a": [None, {"b": 1.5}]}, {"a": [None, {"b": 1.5}]}),
        (Color, Color.BLUE, "blue"),
        (list[Color], [Color.BLUE], ["blue"]),
    ],
)
def test_a_default_that_is_a_json_value_is_advertised(
    hint: Any, default: Any, advertised: Any
) -> None:
    schema = it(hint, default=default)
    assert repr(schema["default"]) == repr(advertised)


@pytest.mark.rule("TYPED-28", "TYPED-29")
@pytest.mark.parametrize(
    ("hint", "default"),
    [
        (str, None),
        (float, float("inf")),
        (float, float("nan")),
        (int, 2**64),
        (int, -(2**63) - 1),
        (int, True),
        (list[Any], [object()]),
        (dict[str, Any], {"a": {1}}),
        (dict[str, Any], {1: "a"}),
        (set[int], {1}),
        (date, date(2026, 1, 31)),
        (Place, Place("Oslo")),
    ],
)
def test_default_without_a_json_value_is_left_out(hint: Any, default: Any) -> None:
    schema = schema_of(hint, default=default)
    assert "default" not in schema["properties"]["it"]
    assert schema["required"] == []
