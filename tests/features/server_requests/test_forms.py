"""Forms: what they may ask for, how they are sent, and what they make of an answer."""

from __future__ import annotations

import dataclasses
import enum
import threading
from datetime import date
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from uuid import UUID

import attrs
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.errors import UsageError
from foundation_rt.features.server_requests.errors import ClientCapabilityError, InvalidClientResult
from foundation_rt.features.server_requests.forms import Forms
from foundation_rt.features.signatures.constraints import Constraints
from foundation_rt.protocol.revisions import REVISIONS

NEWEST = REVISIONS["2026-07-28"]
OPTIONS = [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]


def schema_of(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


GOOD: dict[str, dict[str, Any]] = {
    "text": {
        "type": "string",
        "title": "T",
        "description": "D",
        "minLength": 1,
        "maxLength": 5,
        "default": "x",
    },
    "mail": {"type": "string", "format": "email"},
    "day": {"type": "string", "format": "date"},
    "count": {"type": "integer", "minimum": 0, "maximum": 9, "default": 3},
    "share": {"type": "number"},
    "sure": {"type": "boolean", "default": True},
    "plain": {"type": "string", "enum": ["a", "b"]},
    "named": {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
    "titled": {"type": "string", "oneOf": OPTIONS, "default": "#f00"},
    "several": {
        "type": "array",
        "items": {"type": "string", "enum": ["a", "b"]},
        "minItems": 1,
        "maxItems": 2,
        "default": ["a"],
    },
    "several_titled": {"type": "array", "items": {"anyOf": OPTIONS}},
}


@pytest.mark.rule("ASK-06")
@pytest.mark.parametrize("name", GOOD)
def test_supported_fields_are_sent_unchanged(name: str) -> None:
    schema = {**schema_of(**{name: GOOD[name]}), "required": [name]}
    form = Forms().form(schema)
    assert form.to_wire(NEWEST) == schema
    assert form.to_wire(REVISIONS["2025-11-25"]) == schema


@pytest.mark.rule("ASK-23")
@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string"},
        {"type": "object", "properties": []},
        {**schema_of(), "additionalProperties": False},
        {**schema_of(), "required": ["a"]},
        {**schema_of(), "required": "a"},
        {**schema_of(), "required": [["a"]]},
        schema_of(a=True),
        schema_of(a={}),
        schema_of(a={"type": "object"}),
        schema_of(a={"type": "null"}),
        schema_of(a={"type": ["string", "null"]}),
        schema_of(a={"type": "string", "pattern": "x"}),
        schema_of(a={"type": "string", "format": "uuid"}),
        schema_of(a={"type": "integer", "enum": [1, 2]}),
        schema_of(a={"type": "number", "multipleOf": 2}),
        schema_of(a={"type": "boolean", "title": "x", "enum": [True]}),
        schema_of(a={"type": "string", "enum": []}),
        schema_of(a={"type": "string", "enum": [1]}),
        schema_of(a={"type": "string", "enum": ["a"], "enumNames": ["A", "B"]}),
        schema_of(a={"type": "string", "enum": ["a"], "oneOf": OPTIONS}),
        schema_of(a={"type": "string", "oneOf": []}),
        schema_of(a={"type": "string", "oneOf": [{"const": "a"}]}),
        schema_of(a={"type": "string", "oneOf": [{"const": 1, "title": "x"}]}),
        schema_of(a={"type": "string", "enum": ["a"], "minLength": 1}),
        schema_of(a={"type": "array"}),
        schema_of(a={"type": "array", "items": {"type": "string"}}),
        schema_of(a={"type": "array", "items": {"type": "integer", "enum": ["a"]}}),
        schema_of(a={"type": "array", "items": {"anyOf": OPTIONS, "enum": ["a"]}}),
        schema_of(a={"type": "array", "items": {"enum": ["a"], "x": 1}}),
        schema_of(a={"type": "array", "items": {"enum": ["a"]}, "uniqueItems": True}),
        schema_of(a={"type": "string", "minLength": "x"}),
        schema_of(a={"type": "string", "default": object()}),
        "no schema",
    ],
)
def test_unsupported_field_is_refused_by_name(schema: Any) -> None:
    with pytest.raises(UsageError, match=r"form|must be"):
        Forms().form(schema)


@pytest.mark.rule("ASK-24")
def test_older_revision_gets_only_keywords_it_defines() -> None:
    form = Forms().form(schema_of(**{name: GOOD[name] for name in ("titled", "sure", "count")}))
    assert form.to_wire(REVISIONS["2025-06-18"])["properties"] == {
        "titled": {"type": "string", "enum": ["#f00", "#0f0"], "enumNames": ["Red", "Green"]},
        "sure": {"type": "boolean", "default": True},
        "count": {"type": "integer", "minimum": 0, "maximum": 9},
    }


@pytest.mark.rule("ASK-01", "ASK-24")
def test_older_revision_gets_no_dialect() -> None:
    dialect = "http://json-schema.org/draft-07/schema#"
    form = Forms().form({"$schema": dialect, **schema_of(a={"type": "string"})})
    assert form.to_wire(NEWEST)["$schema"] == dialect
    assert "$schema" not in form.to_wire(REVISIONS["2025-06-18"])


@pytest.mark.rule("ASK-21", "ASK-24")
def test_list_field_is_refused_in_older_revisions() -> None:
    form = Forms().form(schema_of(several=GOOD["several"]))
    with pytest.raises(ClientCapabilityError, match="'several'"):
        form.to_wire(REVISIONS["2025-06-18"])


@pytest.mark.rule("ASK-09")
def test_content_is_validated_against_the_schema() -> None:
    form = Forms().form({**schema_of(n=GOOD["count"], t=GOOD["several"]), "required": ["n"]})
    assert form.read({"n": 5, "t": ["b"], "not asked": 1}) == {"n": 5, "t": ["b"]}
    for wrong, at in (({"n": 10}, "/content/n"), ({"n": 1, "t": ["c"]}, "/content/t/0")):
        with pytest.raises(InvalidClientResult) as refused:
            form.read(wrong)
        assert refused.value.issues[0][0] == at
    for wrong in ({}, [], None, "x"):
        with pytest.raises(InvalidClientResult):
            form.read(wrong)


@given(st.dictionaries(st.text(max_size=3), st.none() | st.integers() | st.text(max_size=3)))
def test_any_content_is_accepted_or_refused(content: dict[str, Any]) -> None:
    form = Forms().form({**schema_of(a={"type": "integer"}), "required": ["a"]})
    try:
        assert form.read(content) == {"a": content["a"]}
    except InvalidClientResult:
        assert type(content.get("a")) is not int or abs(content["a"]) >= 2**63


# -- classes -------------------------------------------------------------------------------------


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@attrs.frozen
class Order:
    """An order.

    Attributes:
        name: for whom.
        day: when.
    """

    name: str
    size: Size = Size.SMALL
    count: Annotated[int, Constraints(minimum=1)] = 1
    day: date | None = None
    extras: list[Literal["milk", "sugar"]] = attrs.field(factory=list)


@dataclasses.dataclass
class Plain:
    sure: bool
    nick: str | None = None
    odd: str = None  # type: ignore[assignment]


class Typed(TypedDict):
    share: float
    note: NotRequired[str]


@pytest.mark.rule("ASK-07")
def test_class_is_a_form() -> None:
    assert Forms().form(Order).to_wire(NEWEST) == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "for whom."},
            "size": {"type": "string", "enum": ["s", "l"], "default": "s"},
            "count": {"type": "integer", "minimum": 1, "default": 1},
            "day": {"type": "string", "format": "date", "description": "when."},
            "extras": {"type": "array", "items": {"type": "string", "enum": ["milk", "sugar"]}},
        },
        "required": ["name"],
    }
    assert Forms().form(Plain).to_wire(NEWEST)["properties"] == {
        "sure": {"type": "boolean"},
        "nick": {"type": "string"},
        "odd": {"type": "string"},
    }
    assert Forms().form(Typed).to_wire(NEWEST)["required"] == ["share"]


@pytest.mark.rule("ASK-07")
def test_values_of_a_class_form_become_an_instance() -> None:
    forms = Forms()
    filled = {"name": "Ann", "size": "l", "day": "2024-02-29", "extras": ["milk"], "other": 1}
    assert forms.form(Order).read(filled) == Order(
        "Ann", Size.LARGE, 1, date(2024, 2, 29), ["milk"]
    )
    assert forms.form(Order).read({"name": "Ann"}) == Order("Ann")
    assert forms.form(Plain).read({"sure": False}) == Plain(False)
    assert forms.form(Typed).read({"share": 0.5, "note": "x"}) == {"share": 0.5, "note": "x"}


@attrs.define
class Picky:
    name: str = attrs.field(validator=attrs.validators.max_len(2))


@pytest.mark.rule("ASK-09")
def test_value_refused_by_the_class_is_an_invalid_result() -> None:
    with pytest.raises(InvalidClientResult, match="refused"):
        Forms().form(Picky).read({"name": "long"})


@attrs.define
class Nested:
    inner: Plain


@attrs.define
class Either:
    value: int | str


@attrs.define
class Unresolvable:
    value: Missing  # type: ignore[name-defined]  # noqa: F821


@attrs.define
class Whatever:
    value: object


@pytest.mark.rule("ASK-07")
@pytest.mark.parametrize("cls", [Nested, Either, Unresolvable, Whatever])
def test_class_with_unsupported_members_is_refused(cls: type) -> None:
    with pytest.raises(UsageError, match="form"):
        Forms().form(cls)


class Guest(pydantic.BaseModel):
    name: str = pydantic.Field(alias="fullName", pattern="^[A-Z]", description="Who.")
    size: Size = Size.SMALL
    age: int | None = pydantic.Field(None, gt=0, le=150)
    key: UUID | None = None


class Nesting(pydantic.BaseModel):
    guest: Guest


@pytest.mark.rule("ASK-54")
def test_model_of_pydantic_is_a_form() -> None:
    form = Forms().form(Guest)
    assert form.to_wire(NEWEST) == {
        "type": "object",
        "properties": {
            "fullName": {"type": "string", "description": "Who."},
            "size": {"type": "string", "enum": ["s", "l"], "default": "s"},
            "age": {"type": "integer", "maximum": 150},
            "key": {"type": "string"},  # a form has no such format
        },
        "required": ["fullName"],
    }
    with pytest.raises(InvalidClientResult, match="key"):
        form.read({"fullName": "Ann", "key": "none"})
    assert form.read({"fullName": "Ann", "age": 5}) == Guest(fullName="Ann", age=5)
    with pytest.raises(InvalidClientResult, match="fullName"):
        form.read({"fullName": "ann"})
    with pytest.raises(UsageError, match="guest"):
        Forms().form(Nesting)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@attrs.frozen
class Asked:
    name: str | None
    count: Literal[1, 2]
    level: Level
    least: Level | None
    levels: list[Level]
    key: Literal["a", 0]
    later: Level = Level.HIGH


class AskedModel(pydantic.BaseModel):
    name: str | None
    count: Literal[1, 2]
    level: Level
    least: Level | None
    levels: list[Level]
    key: Literal["a", 0]
    later: Level = Level.HIGH

    @pydantic.model_validator(mode="before")
    @classmethod
    def _raw(cls, raw: Any) -> Any:
        return raw


@pytest.mark.rule("ASK-57")
@pytest.mark.parametrize("cls", [Asked, AskedModel])
def test_form_asks_for_none_and_for_values_that_are_no_strings(cls: Any) -> None:
    form = Forms().form(cls)
    levels = [{"const": "1", "title": "LOW"}, {"const": "2", "title": "HIGH"}]
    assert form.to_wire(NEWEST) == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "count": {"type": "string", "enum": ["1", "2"]},
            "level": {"type": "string", "oneOf": levels},
            "least": {"type": "string", "oneOf": levels},
            "levels": {"type": "array", "items": {"anyOf": levels}},
            "key": {"type": "string", "enum": ["a", "0"]},
            "later": {"type": "string", "oneOf": levels, "default": "2"},
        },
        "required": ["count", "level", "levels", "key"],
    }
    sent: dict[str, Any] = {"count": "2", "level": "1", "levels": ["2"], "key": "0"}
    expected: dict[str, Any] = {"count": 2, "level": Level.LOW, "levels": [Level.HIGH], "key": 0}
    assert form.read(sent) == cls(name=None, least=None, **expected)
    sent |= {"name": "Ann", "least": "1"}
    assert form.read(sent) == cls(name="Ann", least=Level.LOW, **expected)
    for wrong in ({"count": 2}, {"level": "LOW"}, {"levels": [1]}, {"key": 0}):
        with pytest.raises(InvalidClientResult):
            form.read({**sent, **wrong})


@pytest.mark.rule("ASK-48", "ASK-57")
def test_one_value_that_may_be_none_may_be_left_out() -> None:
    form = Forms().form(Level | None)
    assert form.to_wire(NEWEST)["required"] == []
    assert (form.read({}), form.read({"value": "2"})) == (None, Level.HIGH)
    with pytest.raises(UsageError, match="same text"):
        Forms().form(Literal[1, "1"])


# -- kept ----------------------------------------------------------------------------------------


@pytest.mark.rule("ASK-25")
def test_form_is_made_once_and_the_number_kept_is_bounded() -> None:
    forms = Forms(capacity=2)
    first = forms.form(schema_of(a={"type": "string"}))
    assert forms.form(schema_of(a={"type": "string"})) is first
    other = forms.form(Plain)
    assert forms.form(schema_of(a={"type": "string"})) is first  # used: the other one goes first
    forms.form(Order)
    assert forms.form(schema_of(a={"type": "string"})) is first
    assert forms.form(Plain) is not other


def test_schema_that_changes_later_changes_no_form() -> None:
    forms, schema = Forms(), schema_of(a={"type": "string"})
    form = forms.form(schema)
    schema["properties"]["a"]["type"] = "integer"
    assert form.to_wire(NEWEST)["properties"] == {"a": {"type": "string"}}
    assert forms.form(schema) is not form


def test_forms_can_be_made_in_many_threads() -> None:
    forms, made = Forms(), []

    def make() -> None:
        made.append(forms.form(Order).read({"name": "x"}))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert made == [Order("x")] * 8


# -- one value (ASK-48) --------------------------------------------------------------------------


class Cut(enum.Enum):
    SMALL = "s"
    LARGE = "l"


LOW = {"low": {"title": "Low"}}
ONE_VALUE: list[tuple[Any, dict[str, Any], Any, Any]] = [
    (int, {"type": "integer"}, 5, 5),
    (date, {"type": "string", "format": "date"}, "2026-02-03", date(2026, 2, 3)),
    (Cut, {"type": "string", "enum": ["s", "l"]}, "l", Cut.LARGE),
    (Literal["x"], {"type": "string", "enum": ["x"]}, "x", "x"),
    (["a", "b"], {"type": "string", "enum": ["a", "b"]}, "b", "b"),
    (LOW, {"type": "string", "oneOf": [{"const": "low", "title": "Low"}]}, "low", "low"),
    ([["a"]], {"type": "array", "items": {"type": "string", "enum": ["a"]}}, ["a"], ["a"]),
    (
        [LOW],
        {"type": "array", "items": {"anyOf": [{"const": "low", "title": "Low"}]}},
        ["low"],
        ["low"],
    ),
]


@pytest.mark.rule("ASK-48", "ASK-25")
@pytest.mark.parametrize(("response_type", "field", "sent", "value"), ONE_VALUE)
def test_one_value_is_the_field_of_a_form(
    response_type: Any, field: dict[str, Any], sent: Any, value: Any
) -> None:
    forms = Forms()
    form = forms.form(response_type)
    wire = form.to_wire(NEWEST)
    assert wire == {"type": "object", "properties": {"value": field}, "required": ["value"]}
    assert form.read({"value": sent, "other": 1}) == value
    assert forms.form(response_type) is form
    # The same schema, given by hand, has an object as its content.
    assert forms.form(wire).read({"value": sent}) == {"value": sent}
    with pytest.raises(InvalidClientResult):
        form.read({"value": {}})


WRONG = [[], [5], "text", 5, [["a"], ["b"]], [[]], dict[str, int], object, {"a"}]


@pytest.mark.rule("ASK-49")
def test_form_without_fields_asks_for_consent() -> None:
    form = Forms().form(None)
    assert form.to_wire(NEWEST) == {"type": "object", "properties": {}}
    assert form.read({"unknown": 1}) is None


@pytest.mark.rule("ASK-23", "ASK-48")
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_form_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError):
        Forms().form(wrong)
