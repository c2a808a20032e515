"""Types and fields of pydantic in signatures: schemas, values, refusals, results."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

import attrs
import orjson
import pydantic
import pydantic.dataclasses
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
)

from foundation_rt import Server
from foundation_rt.apps.host.llm.portability import findings
from foundation_rt.base.jsonschema.compilation import compile_schema
from foundation_rt.errors import ErrorCode, RegistrationError, ToolError
from foundation_rt.features.signatures.constraints import Constraints
from foundation_rt.protocol.plain_values import write_json
from foundation_rt.testing import TestClient
from tests.lab.apps.signatures import arrived, derive_tool, tool_of
from tests.lab.programs.program import run_source
from tests.lab.sizes import examples

T = TypeVar("T")
REST = {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}, "contains": True}


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    """A place."""

    name: str = Field(alias="theName", min_length=1, description="Its name.")
    color: Color = Color.RED
    pair: tuple[int, str] = (1, "a")
    parts: list[Place] = Field(default_factory=list)


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    good: bool = True


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: UUID
    amount: Decimal = Field(gt=0)
    day: date
    wait: timedelta = timedelta(minutes=5)
    secret: pydantic.SecretStr = pydantic.SecretStr("")
    site: pydantic.HttpUrl | None = None
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] = Cat()
    limit: Annotated[int, Constraints(maximum=9)] = 1

    @pydantic.field_validator("day")
    @classmethod
    def _not_too_old(cls, day: date) -> date:
        if day.year < 2000:
            raise ValueError("must be of this century")
        return day

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> Order:
        if self.amount == 13:
            raise ValueError("unlucky")
        return self

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> int:
        return int(self.amount) + 1


class Names(RootModel[list[str]]):
    pass


class Box(BaseModel, Generic[T]):
    one: T


class Exact(BaseModel):
    model_config = ConfigDict(strict=True)
    day: date
    count: int


@pydantic.dataclasses.dataclass
class Point:
    x: int = pydantic.Field(ge=0)
    y: int = pydantic.Field(default=0, alias="why")


@dataclass
class Plain:
    x: int = Field(ge=0)


@dataclass
class Route:
    """A dataclass that holds models."""

    places: list[Place]
    names: Names


class Whole(RootModel[Place]):
    pass


class Wide(BaseModel):
    same: tuple[int, int] = (1, 2)
    rest: Annotated[list[Any], pydantic.WithJsonSchema({"type": "array", **REST})] = [1]
    more: dict[str, Any] = {}
    at: time | None = None
    size: int = Field(1, validation_alias=AliasChoices("size", AliasPath("a", "b")))
    unit: int = Field(1, json_schema_extra={"x-unit": "m"})
    free: Any = None
    next: Wide | None = None


class Moments(BaseModel):
    at: datetime
    sure: pydantic.AwareDatetime
    long: timedelta = timedelta(days=400, milliseconds=5)
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


ORDER = {"id": "12345678-1234-5678-1234-567812345678", "amount": "12.50", "day": "2026-01-31"}


def schema_of(hint: Any) -> dict[str, Any]:
    schema: dict[str, Any] = tool_of(hint).input_schema
    assert compile_schema(schema).warnings == ()
    return schema


def refused(hint: Any, value: Any) -> ToolError:
    with pytest.raises(ToolError) as error:
        arrived(hint, value)
    assert error.value.code is ErrorCode.INVALID_ARGUMENT
    return error.value


@pytest.mark.rule("TYPED-60")
@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (Place, {"theName": "a"}, Place(theName="a")),
        (list[Place], [{"theName": "a", "color": "blue"}], [Place(theName="a", color=Color.BLUE)]),
        (
            dict[str, Place | None],
            {"x": {"theName": "a", "parts": [{"theName": "b"}]}, "y": None},
            {"x": Place(theName="a", parts=[Place(theName="b")]), "y": None},
        ),
        (Cat | Dog, {"kind": "dog"}, Dog()),
        (
            Annotated[Cat | Dog, Field(discriminator="kind")],
            {"kind": "cat", "lives": 3},
            Cat(lives=3),
        ),
        (Place | int, 5.0, 5),
        (Names, ["a"], Names(["a"])),
        (Names | None, ["a"], Names(["a"])),
        (Box[int], {"one": 1}, Box[int](one=1)),
        (Exact, {"day": "2026-01-31", "count": 1}, Exact(day=date(2026, 1, 31), count=1)),
        (Point, {"x": 1, "why": 2}, Point(1, why=2)),
        (Plain, {"x": 1}, Plain(1)),
        (
            Route,
            {"places": [{"theName": "a"}], "names": ["b"]},
            Route([Place(theName="a")], Names(["b"])),
        ),
        (Annotated[str, AfterValidator(str.upper)], "a", "A"),
        (
            Annotated[str, Field(min_length=1), AfterValidator(str.upper), Field(max_length=3)],
            "a",
            "A",
        ),
        (Annotated[str, pydantic.StringConstraints(to_upper=True, min_length=1)], "a", "A"),
        (pydantic.conint(ge=1, strict=True), 5.0, 5),
        (Annotated[int, Field(ge=1, strict=True)], 5.0, 5),
        (pydantic.SecretStr, "x", pydantic.SecretStr("x")),
        (pydantic.NaiveDatetime, "2026-01-31T00:00:00", datetime(2026, 1, 31)),
        (set[pydantic.HttpUrl], ["http://a.b/"], {pydantic.HttpUrl("http://a.b/")}),
    ],
)
def test_values_arrive_as_pydantic_makes_them(hint: Any, value: Any, expected: Any) -> None:
    assert repr(arrived(hint, value)) == repr(expected)


@pytest.mark.rule("TYPED-60", "TYPED-68")
def test_schemas_of_models_are_those_of_our_dialect() -> None:
    def tool(one: Place, two: list[Place], cat: Cat) -> None: ...

    schema = derive_tool(tool).input_schema
    assert compile_schema(schema).warnings == ()
    assert "$schema" not in schema
    assert schema["properties"] == {
        "one": {"$ref": "#/definitions/Place"},
        "two": {"type": "array", "items": {"$ref": "#/definitions/Place"}},
        "cat": {
            "type": "object",
            "properties": {
                "kind": {"type": "string", "enum": ["cat"], "default": "cat"},
                "lives": {"type": "integer", "default": 9},
            },
        },
    }
    place = schema["definitions"]["Place"]
    assert schema["definitions"].keys() == {"Place"}
    assert place["description"] == "A place."
    assert place["required"] == ["theName"]
    assert place["properties"]["theName"] == {
        "type": "string",
        "minLength": 1,
        "description": "Its name.",
    }
    assert place["properties"]["pair"]["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    assert place["properties"]["parts"]["items"] == {"$ref": "#/definitions/Place"}
    assert place["properties"]["color"] == {
        "default": "red",
        "enum": ["red", "blue"],
        "type": "string",
    }


@pytest.mark.rule("TYPED-11", "TYPED-68")
def test_members_of_every_form_are_those_of_our_dialect() -> None:
    schema = tool_of(Wide).input_schema
    assert len(compile_schema(schema).warnings) == 1  # x-unit
    properties = schema["definitions"]["Wide"]["properties"]
    same = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
    assert properties["same"] == {**same, "default": [1, 2]}
    both = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert properties["rest"] == {"type": "array", **REST, "items": both, "default": [1]}
    assert properties["more"] == {"type": "object", "additionalProperties": True, "default": {}}
    assert properties["at"]["anyOf"] == [{"type": "string", "format": "time"}, {"type": "null"}]
    assert properties["size"] == {"type": "integer", "default": 1}
    assert properties["unit"] == {"type": "integer", "default": 1, "x-unit": "m"}
    assert properties["free"]["anyOf"][-1] == {"type": "null"}
    sent = {"rest": [1, "a"], "more": {"x": 1}, "at": "10:00:00Z", "size": 4, "next": {}}
    wide = arrived(Wide, sent)
    assert (wide.rest, wide.at, wide.size, wide.next.same) == (
        [1, "a"],
        time(10, 0, tzinfo=UTC),
        4,
        (1, 2),
    )

    def tool(one: Whole, two: Whole) -> None: ...

    whole = derive_tool(tool).input_schema["definitions"]["Whole"]
    assert whole == {"allOf": [{"$ref": "#/definitions/Place"}]}


@pytest.mark.rule("TYPED-40", "TYPED-60")
def test_models_and_classes_of_one_name_have_definitions_of_their_own() -> None:
    def made(kind: Any) -> Any:
        class Node(BaseModel):
            value: kind
            next: Node | None = None

        Node.model_rebuild()
        return Node

    @attrs.define
    class Node:
        value: bool
        next: Node | None = None

    first, second = made(int), made(str)

    def tool(a: Any, b: Any, c: Any, d: Any) -> Any:
        return a, b, c, d

    tool.__annotations__ = {"a": first, "b": second, "c": Node, "d": first}
    derived = derive_tool(tool)
    assert derived.input_schema["definitions"].keys() == {"Node", "Node_2", "Node_3"}
    compiled = compile_schema(derived.input_schema)
    deep = [{"value": value, "next": {"value": value}} for value in (1, "x", True, 2)]
    arguments = dict(zip("abcd", deep, strict=True))
    assert compiled.validate(arguments) == ()
    values = derived.handler(arguments, None)
    assert [type(value) for value in values] == [first, second, Node, first]
    assert compiled.validate({**arguments, "b": deep[0]}) != ()


@pytest.mark.rule("TYPED-19", "TYPED-82")
@pytest.mark.parametrize(
    ("hint", "value", "errors"),
    [
        (Order, {**ORDER, "day": "1999-01-01"}, [("/it/day", "must be of this century")]),
        (Order, {**ORDER, "amount": 13}, [("/it", "unlucky")]),
        (
            list[Order],
            [ORDER, {**ORDER, "day": "1999-01-01", "amount": "0.0"}],
            [("/it/1/amount", "greater than 0"), ("/it/1/day", "must be of this century")],
        ),
        (Annotated[str, AfterValidator(int)], "hunter2x", [("/it", "was refused (value_error)")]),
        (pydantic.HttpUrl, "http:", [("/it", "")]),
        (Exact, {"day": "2026-01-31", "count": 1.0}, [("/it/count", "valid integer")]),
    ],
)
def test_refusals_of_pydantic_have_paths(hint: Any, value: Any, errors: Any) -> None:
    error = refused(hint, value)
    found = [(each["path"], each["message"]) for each in error.details["errors"]]
    assert [path for path, _ in found] == [path for path, _ in errors]
    assert all(part in text for (_, text), (_, part) in zip(found, errors, strict=True))
    assert error.details["path"] == found[0][0]
    assert error.message.startswith(f"{found[0][0]} was refused")


@pytest.mark.rule("TYPED-43", "TYPED-82")
def test_refusal_of_pydantic_never_quotes_the_value() -> None:
    def check(text: str) -> str:
        raise ValueError(f"{text} is no password")

    error = refused(Annotated[pydantic.Json[int], AfterValidator(lambda n: n)], '"hunter2"')
    assert "hunter2" not in str(error.message) + str(error.details)
    error = refused(list[int] | list[Exact], [{"day": "2026-01-31", "count": 1.0}] * 30)
    assert len(error.details["errors"]) == 20
    error = refused(Annotated[str, AfterValidator(check)], "hunter2")
    assert "hunter2" not in str(error.message) + str(error.details)


@pytest.mark.rule("TYPED-43", "ERR-01")
def test_other_errors_of_a_validator_are_those_of_the_author() -> None:
    def found(text: str) -> str:
        raise ToolError(ErrorCode.NOT_FOUND, f"no {text}")

    with pytest.raises(ToolError, match=r"^no tea$"):
        arrived(Annotated[str, AfterValidator(found)], "tea")
    with pytest.raises(ZeroDivisionError):
        arrived(Annotated[int, AfterValidator(lambda n: 1 / n)], 0)


@pytest.mark.rule("TYPED-61")
def test_field_as_default_and_in_annotated() -> None:
    calls: list[list[str]] = []

    def tool(
        city: Annotated[str, Field(description="Where.", max_length=9, pattern="^[A-Z]")],
        days: int = Field(5, ge=1, title="Days", examples=[3], json_schema_extra={"x-unit": "d"}),
        tags: list[str] = Field(default_factory=list, alias="labels", max_length=2),  # noqa: B008
        old: Annotated[float, Field(default=1, multiple_of=0.5, deprecated=True)] = 2.5,
        must: int = Field(validation_alias=AliasChoices("must", "should")),
        price: Annotated[Decimal, Field(gt=Decimal("0.5"))] = Decimal(1),
        odd: int = Field(1, json_schema_extra=lambda schema: schema.update({"x-odd": True})),
    ) -> Any:
        calls.append(tags)
        return city, days, tags, old, must, price

    derived = derive_tool(tool)
    assert derived.input_schema["properties"] == {
        "city": {"type": "string", "maxLength": 9, "pattern": "^[A-Z]", "description": "Where."},
        "days": {
            "type": "integer",
            "minimum": 1,
            "title": "Days",
            "examples": [3],
            "x-unit": "d",
            "default": 5,
        },
        "labels": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "old": {"type": "number", "multipleOf": 0.5, "deprecated": True, "default": 1},
        "must": {"type": "integer"},
        "price": derived.input_schema["properties"]["price"],
        "odd": {"type": "integer", "default": 1, "x-odd": True},
    }
    assert derived.input_schema["required"] == ["city", "must"]
    arguments = {"city": "Oslo", "must": 2.0}
    assert compile_schema(derived.input_schema).validate(arguments) == ()
    expected = ("Oslo", 5, [], 1, 2, Decimal(1))
    assert derived.handler(arguments, None) == expected
    assert derived.handler(arguments, None) == expected
    assert calls[0] is not calls[1]
    assert derived.handler({**arguments, "labels": ["x"]}, None)[2] == ["x"]
    with pytest.raises(ToolError, match=r"/price must be more than 0\.5"):
        derived.handler({**arguments, "price": "0.50"}, None)


@pytest.mark.rule("TYPED-58", "TYPED-60", "TYPED-83", "TYPED-69")
@pytest.mark.parametrize(
    ("hint", "default", "reason"),
    [
        (list[Annotated[int, Field(alias="x")]], ..., "inside of a type has an alias"),
        (Annotated[int, Field(alias="")], 1, "its alias '' is no name"),
        (Annotated[int, AfterValidator(abs), object()], 1, "would drop"),
        (Annotated[str, Field(max_digits=3)], ..., "max_digits does not apply"),
        (list[Annotated[int, Field(decimal_places=1)]], ..., "decimal_places does not apply"),
        (Place | attrs.make_class("Other", ["x"]), None, "pydantic|has no type"),
        (int, Field(default_factory=lambda data: 1), "takes data"),
        (
            Annotated[attrs.make_class("Own", []), AfterValidator(id)],
            None,
            "pydantic has no schema",
        ),
        (
            type("Own", (), {"__get_pydantic_core_schema__": classmethod(lambda *_: int("x"))}),
            None,
            "pydantic cannot read it: invalid literal",
        ),
        (int, Field(alias="more"), "another parameter has the name 'more' too"),
        (int, attrs.Factory(list), "no value of its type"),
    ],
)
def test_what_pydantic_would_drop_is_refused(hint: Any, default: Any, reason: str) -> None:
    def tool(more: int = 1, it: Any = default) -> None: ...

    tool.__annotations__ = {"more": int, "it": hint}
    with pytest.raises(RegistrationError, match=reason):
        derive_tool(tool)


@pytest.mark.rule("TYPED-60")
def test_model_of_pydantic_1_is_refused() -> None:
    import pydantic.v1

    class Old(pydantic.v1.BaseModel):
        x: int

    with pytest.raises(RegistrationError, match="Old is of pydantic 1"):
        tool_of(Old)


@pytest.mark.rule("TYPED-19", "TYPED-60")
def test_value_nested_too_deeply_is_refused() -> None:
    place: Any = {"theName": "a"}
    for _ in range(140):
        place = {"theName": "a", "parts": [place]}
    tool = tool_of(Place)
    for value in (place, place["parts"][0]["parts"][0], {"theName": "b", "parts": [place] * 2}):
        with pytest.raises(ToolError) as error:
            tool.handler({"it": value}, None)
        assert error.value.code is ErrorCode.INVALID_ARGUMENT


class Booking(BaseModel):
    city: str
    nights: Annotated[int, Constraints(minimum=1)] = 1
    tags: list[str] = []

    @pydantic.model_validator(mode="before")
    @classmethod
    def _raw(cls, raw: Any) -> Any:
        value = json.loads(raw) if isinstance(raw, str) else raw
        return {"city": value["town"]} if "town" in value else value

    @pydantic.field_validator("tags", mode="before")
    @classmethod
    def _split(cls, raw: Any) -> Any:
        return raw.split(",") if isinstance(raw, str) else raw


NUMBERS_OF_TEXT = Annotated[list[int], pydantic.BeforeValidator(json.loads)]
ONE_OR_MANY = Annotated[
    list[int], pydantic.WrapValidator(lambda raw, then: then([raw] if type(raw) is int else raw))
]
SAID = Annotated[int, pydantic.BeforeValidator(int, json_schema_input_type=str)]
AT_LEAST_1 = Annotated[int, pydantic.BeforeValidator(int), Constraints(minimum=1)]


@pytest.mark.rule("TYPED-60", "TYPED-93")
@pytest.mark.parametrize(
    ("hint", "sent", "expected"),
    [
        (NUMBERS_OF_TEXT, "[1, 2]", [1, 2]),
        (NUMBERS_OF_TEXT | None, "[1]", [1]),
        (list[NUMBERS_OF_TEXT], ["[1]"], [[1]]),
        (ONE_OR_MANY, 5, [5]),
        (Booking, '{"city": "Oslo", "tags": "a,b"}', Booking(city="Oslo", tags=["a", "b"])),
        (Booking, {"town": "Oslo"}, Booking(city="Oslo")),
        (Booking | None, {"city": "Oslo", "tags": "a"}, Booking(city="Oslo", tags=["a"])),
        (SAID, "5", 5),
        (AT_LEAST_1, "1", 1),
        (NUMBERS_OF_TEXT, "[", None),
        (NUMBERS_OF_TEXT, [1], None),
        (NUMBERS_OF_TEXT, '["x"]', None),
        (Booking, {}, None),
        (Booking, {"city": "Oslo", "tags": 5}, None),
        (Booking, '{"city": "Oslo", "nights": 0}', None),
        (SAID, 5, None),
        (AT_LEAST_1, "0", None),
    ],
)
async def test_validator_that_runs_before_decides_about_raw_values(
    hint: Any, sent: Any, expected: Any
) -> None:
    server = Server("x")
    values: list[Any] = []

    def tool(it: Any) -> None:
        values.append(it)

    tool.__annotations__ = {"it": hint, "return": None}
    server.tool(tool)
    async with TestClient(server) as client:
        try:
            await client.call_tool("tool", {"it": sent})
        except ToolError as error:
            assert error.code is ErrorCode.INVALID_ARGUMENT
    assert values == [] if expected is None else values == [expected]
    schema = derive_tool(tool).input_schema
    assert not findings([{"name": "tool", "inputSchema": schema}])


@pytest.mark.rule("TYPED-93")
def test_schema_of_raw_values_admits_text_and_says_what_fits() -> None:
    number = schema_of(NUMBERS_OF_TEXT)["properties"]["it"]["anyOf"]
    assert number[:2] == [{"type": "array", "items": {"type": "integer"}}, {"type": "string"}]
    assert schema_of(SAID)["properties"]["it"] == {"type": "string"}


@pytest.mark.rule("TYPED-62")
def test_constraints_in_a_model_are_enforced_by_its_schema() -> None:
    validate = compile_schema(schema_of(Order)).validate
    assert validate({"it": {**ORDER, "limit": 9}}) == ()
    assert [issue.path for issue in validate({"it": {**ORDER, "limit": 10}})] == ["/it/limit"]


# -- results -------------------------------------------------------------------------------------


@pytest.mark.rule("TYPED-60", "CALL-20")
@pytest.mark.parametrize(
    "value",
    [
        Place(theName="a", parts=[Place(theName="b")]),
        Order.model_validate(ORDER),
        Names(["a"]),
        Box[int](one=1),
        Point(1, why=2),
        Route([Place(theName="a")], Names([])),
        Exact(day=date(2026, 1, 31), count=1),
        Moments(at=datetime(2026, 1, 31), sure=datetime(2026, 1, 31, tzinfo=UTC), pet=Dog()),
    ],
)
def test_results_are_what_their_schema_says(value: Any) -> None:
    def tool() -> Any: ...

    for hint, result in ((type(value), value), (list[type(value)], [value])):  # type: ignore[misc]
        tool.__annotations__ = {"return": hint}
        schema = derive_tool(tool, output_schema=True).output_schema
        assert schema is not None
        compiled = compile_schema(schema, any_root=True)
        assert compiled.warnings == ()
        assert compiled.validate(orjson.loads(write_json(result))) == ()


@pytest.mark.rule("TYPED-68", "TYPED-84")
def test_schema_of_a_moment_in_a_result_has_a_format_if_it_has_an_offset() -> None:
    def tool() -> Moments: ...

    schema = derive_tool(tool, output_schema=True).output_schema
    assert schema is not None
    assert schema["properties"]["at"] == {"type": "string"}
    assert schema["properties"]["sure"] == {"type": "string", "format": "date-time"}
    assert "oneOf" not in schema["properties"]["pet"]
    assert len(schema["properties"]["pet"]["anyOf"]) == 2


@pytest.mark.rule("TYPED-60", "CALL-20")
def test_results_have_aliases_and_computed_fields() -> None:
    assert orjson.loads(write_json(Point(1, why=2))) == {"x": 1, "why": 2}
    written = orjson.loads(write_json({"order": Order.model_validate(ORDER)}))["order"]
    assert written["total"] == 13
    assert written["amount"] == "12.50"
    assert written["secret"] == ""


# -- both checks agree ---------------------------------------------------------------------------

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 12)
    | st.sampled_from([0.5, 2.0, "a", "red", "cat"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(("theName", "color", "kind", "lives", "x", "parts"), inner),
        )
    ),
    max_leaves=5,
)
STRICT = ConfigDict(strict=True)


class Sized(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    x: int = Field(ge=0, le=9)
    kind: Literal["cat", "red"] | None = None
    parts: list[Sized] = Field(default=[], max_length=1)
    lives: float = Field(1, multiple_of=0.5)


@pytest.mark.rule("TYPED-60", "TYPED-68")
def test_schema_and_pydantic_accept_the_same_values() -> None:
    compiled = compile_schema(schema_of(Sized))

    @settings(max_examples=examples(100), deadline=None)
    @given(
        st.fixed_dictionaries(
            {"x": st.integers(-1, 10) | st.just(True)},
            optional={
                "kind": st.sampled_from(["cat", "red", "dog", None, 1]),
                "parts": st.lists(st.sampled_from([{"x": 1}, {"x": 10}, {}]), max_size=2),
                "lives": st.sampled_from([1, 0.5, 0.25, "1"]),
                "more": VALUES,
            },
        )
        | VALUES
    )
    def run(value: Any) -> None:
        try:
            Sized.model_validate_json(orjson.dumps(value))
        except pydantic.ValidationError:
            is_valid = False
        else:
            is_valid = True
        assert (compiled.validate({"it": value}) == ()) is is_valid

    run()


@pytest.mark.rule("TYPED-60")
def test_values_written_by_a_model_come_back_equal() -> None:
    def tool(it: Place) -> Any:
        return it

    derived = derive_tool(tool)
    compiled = compile_schema(derived.input_schema)
    places = st.recursive(
        st.builds(
            Place,
            theName=st.text(st.characters(codec="utf-8"), min_size=1),
            color=st.sampled_from(Color),
        ),
        lambda inner: st.builds(Place, theName=st.just("p"), parts=st.lists(inner, max_size=2)),
        max_leaves=4,
    )

    @settings(max_examples=examples(50), deadline=None)
    @given(places)
    def run(place: Place) -> None:
        arguments = {"it": orjson.loads(write_json(place))}
        assert compiled.validate(arguments) == ()
        assert derived.handler(arguments, None) == place

    run()


@pytest.mark.rule("TYPED-60")
def test_pydantic_is_not_imported_for_a_program_without_it() -> None:
    program = (
        "import sys, decimal, pathlib, typing, enum, attrs\n"
        "from foundation_rt import Server, Constraints\n"
        "server = Server('x')\n"
        "@server.tool\n"
        "def tool(a: decimal.Decimal, b: typing.Annotated[int, Constraints(minimum=1)]): ...\n"
        "print(*(name for name in sys.modules if 'pydantic' in name))"
    )
    run = run_source(program)
    assert run.stdout.strip() == ""
