"""JSON values to Python values: conversions, and refusals before the function is called."""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from collections.abc import Set
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from ipaddress import IPv4Address, IPv6Network
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from uuid import UUID

import attrs
import orjson
import pytest
from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation_rt.base.jsonschema.compilation import compile_schema
from foundation_rt.errors import ErrorCode, ToolError
from foundation_rt.features.signatures.constraints import Constraints
from tests.lab.apps.signatures import arrived, tool_of

LIMIT = 2**53


def refused(hint: Any, value: Any, *, by_hand: bool = False) -> ToolError:
    """Return the error for `value`, which the schema accepts."""
    tool = tool_of(hint, {"type": "object"} if by_hand else None)
    arguments = {"it": value}
    assert compile_schema(tool.input_schema).validate(arguments) == ()
    with pytest.raises(ToolError) as error:
        tool.handler(arguments, None)
    assert error.value.code is ErrorCode.INVALID_ARGUMENT
    return error.value


def is_advertised(hint: Any, value: Any) -> bool:
    return compile_schema(tool_of(hint).input_schema).validate({"it": value}) == ()


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    ONE = 1
    NOTHING = None
    HALF = 0.5


class Words(enum.Enum):
    RED = "red"


@define
class Place:
    name: str
    height: int = 0
    _owner: str = "nobody"


@dataclass
class Reading:
    place: Place
    values: tuple[float, ...]
    at: datetime | None = None


class Options(TypedDict):
    level: Level
    limit: NotRequired[int]


class Plain(TypedDict):
    name: str


# -- numbers ---------------------------------------------------------------------------------


@pytest.mark.rule("TYPED-16", "TYPED-17", "TYPED-18")
@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, 5.0, 5),
        (int, -0.0, 0),
        (int, 2**64 - 1, 2**64 - 1),
        (int, -(2**63), -(2**63)),
        (int, float(LIMIT - 1), LIMIT - 1),
        (int | None, 5.0, 5),
        (Annotated[int, Constraints(minimum=1)], 5.0, 5),
        (list[int], [1.0, 2], [1, 2]),
        (dict[str, int], {"a": 1.0}, {"a": 1}),
        (tuple[int, ...], [1.0], (1,)),
        (Literal[5, 6], 5.0, 5),
        (Level, 2.0, Level.HIGH),
        (Mixed, 1.0, Mixed.ONE),
        (float, 5, 5.0),
        (float, 2**64 - 1, float(2**64)),
        (float | None, 5, 5.0),
        (list[float], [1, 2.5], [1.0, 2.5]),
        (int | float, 5, 5),
        (int | float, 5.0, 5.0),
        (int | float | None, 1e300, 1e300),
    ],
)
def test_numbers_arrive_in_their_type(hint: Any, value: Any, expected: Any) -> None:
    # repr: 5 and 5.0 differ
    assert repr(arrived(hint, value)) == repr(expected)


@pytest.mark.rule("TYPED-16", "TYPED-19")
@pytest.mark.parametrize(
    ("hint", "value", "path"),
    [
        (int, 1e300, "/it"),
        (int, float(LIMIT), "/it"),
        (int, -float(LIMIT), "/it"),
        (list[int], [1, 1e16], "/it/1"),
        (dict[str, int], {"a/b": 1e16}, "/it/a~1b"),
        (int | None, 1e16, "/it"),
        (Place, {"name": "x", "height": 1e16}, "/it/height"),
        (list[Place], [{"name": "x", "height": 1e16}], "/it/0/height"),
        (Options, {"level": 1, "limit": 1e16}, "/it/limit"),
        (Annotated[int, Constraints(minimum=1)], 1e16, "/it"),
    ],
)
def test_rounded_float_is_no_integer(hint: Any, value: Any, path: str) -> None:
    error = refused(hint, value)
    assert error.details == {"reason": "integer_out_of_range", "path": path}
    assert error.message.startswith(f"{path} may have been rounded")


@pytest.mark.rule("TYPED-16")
@settings(deadline=None)
@given(st.integers(-(2**63), 2**64 - 1))
def test_integers_in_digits_are_exact(number: int) -> None:
    arguments = orjson.loads(b'{"it":%d}' % number)
    result = tool_of(int).handler(arguments, None)
    assert type(result) is int
    assert result == number


@pytest.mark.rule("TYPED-16")
@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_the_integer_it_equals_or_refused(number: float) -> None:
    handler = tool_of(int).handler
    if not number.is_integer():
        assert not is_advertised(int, number)
    elif abs(number) < LIMIT:
        result = handler({"it": number}, None)
        assert type(result) is int
        assert result == number
    else:
        with pytest.raises(ToolError):
            handler({"it": number}, None)


@pytest.mark.rule("TYPED-02", "TYPED-08", "TYPED-18")
@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, "5"),
        (int, True),
        (int, 5.5),
        (float, "5"),
        (float, False),
        (bool, 1),
        (bool, "true"),
        (str, 5),
        (str, None),
        (Literal[1], True),
        (Literal[True], 1),
        (Level, True),
        (Level, "1"),
        (Words, "RED"),
        (list[int], (5,)[0]),
        (deque[int], ["a"]),
        (tuple[int, str], [1]),
        (tuple[int, str], [1, "a", 2]),
        (tuple[int, str], ["a", 1]),
        (tuple[int, int], [1]),
        (set[int], [1, 1.0]),
        (dict[Words, int], {"blue": 1}),
        (Place, {}),
        (Place, {"name": "x", "extra": 1}),
        (Place, {"name": "x", "_owner": "y"}),
        (date, "20260131"),
        (date, "2026-02-30"),
        (datetime, "2026-01-31T00:00:00"),
        (UUID, "{12345678-1234-1234-1234-123456789abc}"),
        (IPv4Address, "10.0.0.256"),
    ],
)
def test_advertised_schema_refuses_other_types(hint: Any, value: Any) -> None:
    assert not is_advertised(hint, value)


# -- structured values -----------------------------------------------------------------------


@pytest.mark.rule("TYPED-07", "TYPED-92")
@pytest.mark.rule(
    "TYPED-06", "TYPED-31", "TYPED-33", "TYPED-34", "TYPED-08", "TYPED-10", "TYPED-18"
)
@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (date, "2026-01-31", date(2026, 1, 31)),
        (datetime, "2026-01-31T10:00:00Z", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        (
            datetime,
            "2026-01-31t10:00:00.25+01:30",
            datetime(
                2026, 1, 31, 10, 0, 0, 250000, tzinfo=timezone(timedelta(hours=1, minutes=30))
            ),
        ),
        (time, "10:00:00z", time(10, tzinfo=UTC)),
        (
            UUID,
            "12345678-1234-1234-1234-123456789ABC",
            UUID("12345678-1234-1234-1234-123456789abc"),
        ),
        (Words, "red", Words.RED),
        (Mixed, None, Mixed.NOTHING),
        (Mixed, 0.5, Mixed.HALF),
        (Literal[Words.RED, "blue"], "red", Words.RED),
        (Literal[Words.RED, "blue"], "blue", "blue"),
        (tuple, [1, "a"], (1, "a")),
        (tuple[str, ...], ["a"], ("a",)),
        (tuple[int, str], [1.0, "a"], (1, "a")),
        (tuple[str, str], ["a", "b"], ("a", "b")),
        (tuple[()], [], ()),
        (set[str], ["a", "b"], {"a", "b"}),
        (frozenset[int], [1.0], frozenset((1,))),
        (Set[date], ["2026-01-31"], frozenset((date(2026, 1, 31),))),
        (dict[Words, list[Level]], {"red": [1]}, {Words.RED: [Level.LOW]}),
        (deque[int], [1.0], deque((1,))),
        (OrderedDict[str, date], {"a": "2026-01-31"}, OrderedDict(a=date(2026, 1, 31))),
        (IPv4Address, "10.0.0.1", IPv4Address("10.0.0.1")),
        (IPv6Network, "fe80::/10", IPv6Network("fe80::/10")),
        (dict[Words, str], {"red": "x"}, {Words.RED: "x"}),
        (Place, {"name": "x", "owner": "y"}, Place("x", 0, "y")),
        (Place | None, None, None),
        (
            Reading,
            {"place": {"name": "x"}, "values": [1, 2], "at": "2026-01-31T10:00:00Z"},
            Reading(Place("x"), (1.0, 2.0), datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ),
        (list[Reading | None], [None], [None]),
        (Options, {"level": 2}, {"level": Level.HIGH}),
        (list[Options], [{"level": 1, "limit": 3.0}], [{"level": Level.LOW, "limit": 3}]),
    ],
)
def test_values_are_converted_to_their_types(hint: Any, value: Any, expected: Any) -> None:
    result = arrived(hint, value)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.rule("TYPED-18")
@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Any, {"a": [1.0]}),
        (dict[str, Any], {"a": [1.0]}),
        (list[str], ["a"]),
        (list[Literal["a"] | bool | None], ["a", None]),
        (Plain, {"name": "x"}),
        (dict[str, list[Plain]], {"a": []}),
        (str | list[str] | None, ["a"]),
    ],
)
def test_a_value_that_needs_no_conversion_is_passed_on(hint: Any, value: Any) -> None:
    assert tool_of(hint).handler({"it": value}, None) is value


@pytest.mark.rule("TYPED-32", "TYPED-19")
@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (date, "0000-01-01"),
        (datetime, "2026-06-30T23:59:60Z"),
        (datetime, "2026-01-31T10:00:00.1234567Z"),
        (time, "10:00:00.1234567Z"),
    ],
)
def test_value_without_a_python_value_is_refused(hint: Any, value: str) -> None:
    error = refused(hint, value)
    assert error.details == {"reason": "not_structurable", "path": "/it"}
    assert value not in error.message


@pytest.mark.rule("TYPED-18", "TYPED-19", "TYPED-45")
@pytest.mark.parametrize(
    ("hint", "value", "path"),
    [
        (int, "5", "/it"),
        (int, True, "/it"),
        (int, 5.5, "/it"),
        (float, "5", "/it"),
        (float, True, "/it"),
        (date, 5, "/it"),
        (date, "2026-W01-1", "/it"),
        (datetime, "2026-01-31 10:00:00Z", "/it"),
        (UUID, "12345678123412341234123456789abc", "/it"),
        (UUID, "nonsense", "/it"),
        (Words, "RED", "/it"),
        (Words, ["red"], "/it"),
        (Literal[1], True, "/it"),
        (list[int], {"a": 1}, "/it"),
        (list[int], [1, "a"], "/it/1"),
        (tuple[int, str], 5, "/it"),
        (tuple[int, str], [1], "/it"),
        (tuple[int, str], ["a", "b"], "/it/0"),
        (set[int], ["a"], "/it/0"),
        (dict[str, int], [], "/it"),
        (dict[str, int], {"a": "b"}, "/it/a"),
        (dict[Words, str], {"blue": "b"}, "/it/blue"),
        (int | None, "5", "/it"),
        (Place, [], "/it"),
        (Place, {}, "/it"),
        (Place, {"name": "x", "height": "1"}, "/it/height"),
        (Place, {"name": "x", "extra": 1}, "/it/extra"),
        (Reading, {"place": {"name": "x", "height": "1"}, "values": []}, "/it/place/height"),
        (Reading, {"place": {"name": "x"}, "values": [1, "x"]}, "/it/values/1"),
    ],
)
def test_value_that_only_a_given_schema_accepts_is_refused(
    hint: Any, value: Any, path: str
) -> None:
    error = refused(hint, value, by_hand=True)
    assert error.details == {"reason": "not_structurable", "path": path}
    assert error.message.startswith(path + " ")


# -- constructors that refuse ----------------------------------------------------------------


def _refuse(error: Exception) -> Any:
    def validator(instance: Any, attribute: Any, value: Any) -> None:
        raise error

    return validator


def _class_that_raises(error: Exception) -> type:
    return attrs.make_class(
        "Picky", {"secret": attrs.field(type=Any, validator=_refuse(error), default=None)}
    )


@dataclass
class Span:
    start: int
    end: int

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError("start must not be after end")


@define
class Account:
    pin: int = field(converter=int, validator=attrs.validators.in_([1]))


@pytest.mark.rule("TYPED-19", "TYPED-43")
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("out of season"), "was refused: out of season"),
        (ValueError("x" * 500), "was refused: " + "x" * 200),
        (ValueError("hunter2 is a bad one"), "was refused (ValueError)"),
        (ValueError("1234567 is a bad one"), "was refused (ValueError)"),
        (ValueError(r"line\nbreak is a bad one"), "was refused (ValueError)"),
        (ValueError("null, True and abc are not searched for"), None),
        (ValueError("two", "things"), "was refused (ValueError)"),
        (ValueError(5), "was refused (ValueError)"),
        (ValueError(), "was refused (ValueError)"),
        (UnicodeError("bytes"), "was refused: bytes"),
        (TypeError("internals"), "was refused (TypeError)"),
    ],
)
def test_refusal_of_a_constructor_never_quotes_the_value(
    error: Exception, text: str | None
) -> None:
    secret = {"a": ["hunter2", None, True, 1234567], "b": "line\nbreak", "c": "abc"}
    refusal = refused(list[_class_that_raises(error)], [{}, {"secret": secret}], by_hand=True)  # type: ignore[misc]
    assert refusal.details == {"reason": "not_structurable", "path": "/it/0"}
    refusal = refused(_class_that_raises(error), {"secret": secret})
    assert refusal.details == {"reason": "not_structurable", "path": "/it"}
    assert refusal.message == f"/it {text or 'was refused: ' + str(error)}"
    assert refusal.__cause__ is error


@pytest.mark.rule("TYPED-20")
def test_post_init_and_validators_refuse() -> None:
    assert arrived(Span, {"start": 1, "end": 2}) == Span(1, 2)
    error = refused(Span, {"start": 2, "end": 1})
    assert error.message == "/it was refused: start must not be after end"
    error = refused(Account, {"pin": 123456}, by_hand=True)
    assert error.message == "/it was refused (ValueError)"


@pytest.mark.rule("TYPED-20")
@pytest.mark.parametrize("error", [ToolError("NOT_FOUND", "no such place"), KeyError("place")])
def test_other_errors_of_a_constructor_are_passed_on(error: Exception) -> None:
    tool = tool_of(_class_that_raises(error))
    with pytest.raises(type(error)) as raised:
        tool.handler({"it": {}}, None)
    assert raised.value is error


@pytest.mark.rule("TYPED-19")
@settings(deadline=None)
@given(st.text(min_size=4), st.integers(10**4, 2**63))
def test_refusal_never_quotes_the_value(text: str, number: int) -> None:
    for error in (ValueError(f"bad: {text}"), ValueError(f"bad: {number}"), ValueError(repr(text))):
        refusal = refused(_class_that_raises(error), {"secret": [text, {"x": number}]})
        assert refusal.message == "/it was refused (ValueError)"
