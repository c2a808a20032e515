"""Results whose annotation says how they are written: by name, by a serializer of pydantic."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    TypedDict,
    TypeVar,
)

import attrs
import orjson
import pydantic
import pytest
import typing_extensions
from pydantic import AliasPath, BaseModel, ConfigDict, Field, PlainSerializer, WrapSerializer

from foundation_rt import ByName, Server, Text, ToolError, ToolResult
from foundation_rt.base.jsonschema.compilation import compile_schema
from foundation_rt.errors import RegistrationError
from foundation_rt.protocol.plain_values import write_json
from foundation_rt.testing import TestClient
from tests.lab.apps.signatures import arrived, derive_tool, tool_of

T = TypeVar("T")


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Letter(enum.StrEnum):
    """Each name is the value of the other one."""

    A = "B"
    B = "A"


class Shape(enum.Enum):
    """Its values have no form in JSON, so it stands for its names."""

    LINE = (1, 2)
    DOT = object()


S = TypeVar("S", bound=Shape)
Named = Annotated[Level, ByName()]
Hex = Annotated[int, PlainSerializer(hex, return_type=str)]
Maybe = NewType("Maybe", Shape)
Nested = typing_extensions.TypeAliasType("Nested", "list[Nested] | Shape")
Row = typing_extensions.TypeAliasType("Row", list[T], type_params=(T,))


@attrs.define
class Task:
    level: Annotated[Level, ByName()]
    parts: list[Task] = attrs.field(factory=list)
    note: str = ""


@dataclass
class Drawing:
    shapes: dict[str, Shape]
    size: Hex = 0


@dataclass
class Box(Generic[T]):
    one: T


@dataclass
class Count:
    n: int | None


class Pair(NamedTuple):
    shape: Shape
    level: Level


class Options(TypedDict):
    shape: NotRequired[Shape]
    level: int


LEVELS = {"type": "string", "enum": ["LOW", "HIGH"]}
SHAPES = {"type": "string", "enum": ["LINE", "DOT"]}


def written(hint: Any, value: Any) -> Any:
    """Return what a tool sends that returns `value`, which its output schema accepts."""

    def tool() -> Any:
        return value

    tool.__annotations__ = {"return": hint}
    for output_schema in (None, True):
        derived = derive_tool(tool, output_schema=output_schema)
        made = orjson.loads(write_json(derived.handler({}, None)))
        if derived.output_schema is not None:
            compiled = compile_schema(derived.output_schema, any_root=True)
            assert compiled.validate(made) == ()
    return made


@pytest.mark.rule("TYPED-81", "TYPED-87", "TYPED-90")
@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (Level, Level.LOW, 1),
        (Named, Level.LOW, "LOW"),
        (Annotated[Letter, ByName()], Letter.A, "A"),
        (Annotated[Level | None, ByName()], Level.HIGH, "HIGH"),
        (Annotated[Level | None, ByName()], None, None),
        (Shape, Shape.DOT, "DOT"),
        (Maybe, Shape.DOT, "DOT"),
        (list[Named], [Level.LOW], ["LOW"]),
        (set[Shape], {Shape.DOT, Shape.LINE}, ["DOT", "LINE"]),
        (tuple[int, Shape], (1, Shape.LINE), [1, "LINE"]),
        (tuple[Shape, ...], (Shape.LINE,), ["LINE"]),
        (dict[Shape, Named], {Shape.DOT: Level.LOW}, {"DOT": "LOW"}),
        (Mapping[str, Shape] | int, {"a": Shape.DOT}, {"a": "DOT"}),
        (Mapping[str, Shape] | int, 5, 5),
        (Nested, [[Shape.DOT], Shape.LINE], [["DOT"], "LINE"]),
        (
            Task,
            Task(Level.LOW, [Task(Level.HIGH)]),
            {"level": "LOW", "parts": [{"level": "HIGH", "parts": [], "note": ""}], "note": ""},
        ),
        (
            list[Drawing],
            [Drawing({"a": Shape.DOT}, 17)],
            [{"shapes": {"a": "DOT"}, "size": "0x11"}],
        ),
        (Box[Shape], Box(Shape.LINE), {"one": "LINE"}),
        (Pair, Pair(Shape.LINE, Level.LOW), {"shape": "LINE", "level": 1}),
        (Options, {"level": 1, "shape": Shape.DOT}, {"level": 1, "shape": "DOT"}),
        (Options, {"level": 1}, {"level": 1}),
        (Hex, 17, "0x11"),
        (dict[str, list[Hex]], {"a": [17]}, {"a": ["0x11"]}),
        (Hex | None, 17, "0x11"),
        (Hex | None, None, None),
        (pydantic.Base64Str, "hello", "aGVsbG8="),
        (list[S], [Shape.DOT], ["DOT"]),
        (Row[Shape], [Shape.DOT], ["DOT"]),
        (Literal["a"] | Shape, Shape.DOT, "DOT"),
        (Literal["a"] | Shape, "a", "a"),
        (Maybe | int, Shape.DOT, "DOT"),
        (Named | str, Level.LOW, "LOW"),
        (tuple[Shape, Count], (Shape.DOT, Count(1)), ["DOT", {"n": 1}]),
        (dict[Level, str], {Level.LOW: "a"}, {"1": "a"}),
        (dict[int, Shape], {5: Shape.DOT}, {"5": "DOT"}),
        (dict[date, int], {date(2030, 1, 2): 1}, {"2030-01-02": 1}),
    ],
)
def test_annotation_of_a_result_says_how_to_write_it(hint: Any, value: Any, expected: Any) -> None:
    assert written(hint, value) == expected


@pytest.mark.rule("TYPED-81")
def test_output_schema_of_an_enumeration_by_name_has_its_names() -> None:
    def tool() -> dict[str, Annotated[Level | None, ByName()]]: ...

    assert derive_tool(tool).output_schema == {
        "type": "object",
        "additionalProperties": {"anyOf": [LEVELS, {"type": "null"}]},
    }


@pytest.mark.rule("TYPED-87")
@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Named, "LOW"),
        (list[Named], None),
        (Task, {"level": 1}),
        (tuple[Shape, int], [1]),
        (Pair, 5),
        (Maybe | int, "x"),
        (dict[str, Shape], 5),
    ],
)
def test_result_of_another_type_is_written_as_it_is(hint: Any, value: Any) -> None:
    def tool() -> Any:
        return value

    tool.__annotations__ = {"return": hint}
    assert derive_tool(tool).handler({}, None) == value


@pytest.mark.rule("TYPED-81")
@pytest.mark.parametrize(
    ("hint", "default", "advertised"),
    [
        (Named, Level.LOW, "LOW"),
        (Annotated[Letter, ByName()], Letter.A, "A"),
        (Annotated[Level | None, ByName()], Level.HIGH, "HIGH"),
        (list[Named], (Level.LOW,), ["LOW"]),
        (Shape, Shape.DOT, "DOT"),
        (Letter, Letter.A, "B"),
    ],
)
def test_default_is_advertised_by_name_where_the_argument_is(
    hint: Any, default: Any, advertised: Any
) -> None:
    def tool(it: Any = default) -> Any:
        return it

    tool.__annotations__ = {"it": hint}
    derived = derive_tool(tool)
    assert derived.input_schema["properties"]["it"]["default"] == advertised
    assert compile_schema(derived.input_schema).validate({"it": advertised}) == ()
    arrives = derived.handler({"it": advertised}, None)
    assert arrives == (list(default) if isinstance(default, tuple) else default)


@pytest.mark.rule("TYPED-81")
def test_optional_enumeration_by_name_arrives() -> None:
    hint = Annotated[Level | None, ByName()]
    assert arrived(hint, "LOW") is Level.LOW
    assert arrived(hint, None) is None
    with pytest.raises(RegistrationError, match="ByName applies to an Enum or to a union"):
        tool_of(Annotated[list[Level], ByName()])


@pytest.mark.rule("TYPED-81", "CONT-06")
async def test_results_by_name_reach_clients() -> None:
    server = Server("levels", version="1")

    @server.tool
    def level() -> Annotated[Level, ByName()]:
        return Level.HIGH

    @server.tool(output_schema=False)
    async def later() -> list[Shape]:
        return [Shape.DOT]

    @server.tool
    def own() -> list[Shape]:
        return ToolResult([Text("own")], structured=["LINE"])  # type: ignore[return-value]

    async with TestClient(server, revision="2026-07-28") as client:
        assert await client.call("level") == "HIGH"
        assert await client.call("later") == ["DOT"]
        assert await client.call("own") == ["LINE"]


class Reply(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    first_name: str = Field(alias="firstName")
    shown: int = Field(1, serialization_alias="out", validation_alias="in")
    level: Level = Level.LOW
    wrapped: int = 5
    price: Annotated[int, PlainSerializer(lambda v: f"{v} EUR")] = 1
    up: Annotated[int, WrapSerializer(lambda v, handler: handler(v) + 1)] = 1

    @pydantic.field_serializer("level")
    def _level(self, level: Level):  # type: ignore[no-untyped-def]
        return level.name

    @pydantic.field_serializer("wrapped", mode="wrap")
    def _wrapped(self, value: int, handler: Any):  # type: ignore[no-untyped-def]
        return f"<{handler(value)}>"

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> int:
        return self.shown + 1


class Whole(BaseModel):
    one: int = 1

    @pydantic.model_serializer
    def _whole(self):  # type: ignore[no-untyped-def]
        return f"<{self.one}>"


@pytest.mark.rule("TYPED-46", "TYPED-88")
def test_model_is_written_by_its_serializers_as_the_schema_says() -> None:
    reply = Reply(first_name="Ann")
    assert written(list[Reply], [reply]) == [
        {
            "firstName": "Ann",
            "out": 1,
            "level": "LOW",
            "wrapped": "<5>",
            "price": "1 EUR",
            "up": 2,
            "total": 2,
        }
    ]
    assert written(Whole, Whole()) == "<1>"
    assert written(tuple[Whole, Shape], (Whole(), Shape.DOT)) == ["<1>", "DOT"]


@pytest.mark.rule("TYPED-89")
def test_argument_has_its_alias_alone() -> None:
    schema = tool_of(Reply).input_schema["properties"]["it"]
    assert schema["required"] == ["firstName"]
    assert "in" in schema["properties"]
    assert arrived(Reply, {"firstName": "Ann", "in": 3}).shown == 3

    class ByNameAlone(BaseModel):
        model_config = ConfigDict(validate_by_name=True, validate_by_alias=False)
        first_name: str = Field(alias="firstName")

    assert arrived(ByNameAlone, {"first_name": "Ann"}).first_name == "Ann"


@pytest.mark.rule("TYPED-89")
def test_argument_deep_in_another_one_is_refused() -> None:
    class Deep(BaseModel):
        city: str = Field("", validation_alias=AliasPath("address", "city"))

    with pytest.raises(RegistrationError, match=r"AliasPath address\.city has no name"):
        tool_of(Deep)
    assert written(Deep, Deep()) == {"city": ""}


class Place:
    """A place.

    Attributes:
        name: of it.
    """

    world: ClassVar[str] = "Earth"
    name: str
    level: Level = Level.LOW
    shape: Shape
    inside: list[Place]
    _secret: str

    def __init__(self, name: str, *inside: Place) -> None:
        self.name, self.shape, self.inside = name, Shape.DOT, [*inside]
        self._secret = self.unnamed = "secret"


class Untyped:
    def __init__(self) -> None:
        self.secret = "secret"


@pytest.mark.rule("TYPED-91")
async def test_annotated_attributes_of_any_class_are_written() -> None:
    server = Server("places")

    @server.tool
    def one() -> Place:
        return Place("Oslo", Place("Blindern"))

    @server.tool
    def several(name: str = "") -> dict[str, Place | None]:
        return {"a": Place(name) if name else None}

    @server.tool(output_schema=False)
    def plain() -> list[Place]:
        return [Place("Bygdøy")]

    @server.tool
    def unknown() -> Untyped:
        return Untyped()

    @server.tool
    def unsaid() -> Any:
        return Place("Oslo")

    @server.tool(output_schema=False)
    def other() -> Place:
        return "Oslo"  # type: ignore[return-value]

    blindern = {"name": "Blindern", "level": 1, "shape": "DOT", "inside": []}
    async with TestClient(server) as client:
        assert await client.call("one") == {**blindern, "name": "Oslo", "inside": [blindern]}
        assert await client.call("several") == {"a": None}
        assert await client.call("several", name="Blindern") == {"a": blindern}
        assert await client.call("other") == "Oslo"
        assert await client.call("plain") == [{**blindern, "name": "Bygdøy"}]
        for tool in ("unknown", "unsaid"):
            with pytest.raises(ToolError, match="cannot be written"):
                await client.call(tool)
        (schema,) = (t.output_schema for t in server.list() if t.name == "one")
    assert schema is not None
    place = schema["definitions"]["Place"]
    assert place["description"] == "A place."
    assert place["properties"]["name"] == {"type": "string", "description": "of it."}
    assert place["required"] == [*blindern]
    with pytest.raises(RegistrationError, match="Place has no form in JSON"):
        derive_tool(takes_a_place)


def takes_a_place(it: Place) -> None: ...
