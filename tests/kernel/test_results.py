"""Results of handlers as JSON text, and what JSON cannot say."""

from __future__ import annotations

import re
import uuid
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from enum import Enum, IntEnum
from ipaddress import ip_address, ip_network
from typing import Any

import attrs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, RootModel
from pydantic.dataclasses import dataclass as pydantic_dataclass

from foundation_rt.errors import ErrorCode, ToolError
from foundation_rt.kernel.results import tool_result
from foundation_rt.protocol.revisions import NEWEST_HANDSHAKE_REVISION, REVISIONS
from tests.lab.servers.core import make_core

LIMIT = 1_000_000

CORE = make_core(tools={"plain": lambda arguments, context: None})


def encode_result(value: Any, max_bytes: int) -> str:
    """Return the text of the result of a plain tool."""
    tool = CORE.registry.get("plain")
    assert tool is not None
    result = tool_result(value, tool, REVISIONS[NEWEST_HANDSHAKE_REVISION], max_bytes)
    [content] = result["content"]
    assert (content["type"], result["isError"]) == ("text", False)
    text: str = content["text"]
    return text


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@attrs.frozen
class Point:
    x: int
    y: Any = None


@attrs.define(slots=False)
class Unslotted:
    x: Any


@dataclass
class Pair:
    left: Any
    right: Any


class Text(str):
    pass


class Fraction(float):
    pass


class Words(tuple[str, ...]):
    pass


RESULTS: list[tuple[Any, str]] = [
    ({"a": 1}, '{"a":1}'),
    ("text", '"text"'),
    ("", '""'),
    (None, "null"),
    (True, "true"),
    (5, "5"),
    (0.5, "0.5"),
    ([], "[]"),
    ((1, 2), "[1,2]"),
    ("ä\n\u2028", '"ä\\n\u2028"'),
    (2**64 - 1, "18446744073709551615"),
    (-(2**63), "-9223372036854775808"),
    (Point(1, Point(2)), '{"x":1,"y":{"x":2,"y":null}}'),
    (Unslotted([Unslotted(1)]), '{"x":[{"x":1}]}'),
    (Pair(1, [Pair(2, 3)]), '{"left":1,"right":[{"left":2,"right":3}]}'),
    ({"p": Point(1, Pair(Color.RED, 2))}, '{"p":{"x":1,"y":{"left":"red","right":2}}}'),
    (Color.RED, '"red"'),
    (Level.HIGH, "3"),
    (date(2024, 2, 3), '"2024-02-03"'),
    (time(4, 5, 6), '"04:05:06"'),
    (datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC), '"2024-02-03T04:05:06+00:00"'),
    (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
    ({1: "a", None: 2, False: 3}, '{"1":"a","null":2,"false":3}'),
    ({Color.RED: {2.5: Point(1)}}, '{"red":{"2.5":{"x":1,"y":null}}}'),
    ({date(2024, 2, 3): 1}, '{"2024-02-03":1}'),
    (OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
    ({Text("k"): Text("ä")}, '{"k":"ä"}'),
    ([Fraction(0.5), Words("ab")], '[0.5,["a","b"]]'),
    ([range(2), {1: 2}.keys(), {1: 2}.items(), deque("a")], '[[0,1],[1],[[1,2]],["a"]]'),
    ([ip_address("::1"), ip_network("10.0.0.0/8")], '["::1","10.0.0.0/8"]'),
]


@pytest.mark.rule("CALL-16")
@pytest.mark.parametrize(("value", "text"), RESULTS)
def test_result_is_written_as_json(value: Any, text: str) -> None:
    assert encode_result(value, LIMIT) == text


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.rule("CALL-16")
@given(json_values)
def test_any_json_value_is_a_result(value: Any) -> None:
    assert orjson.loads(encode_result(value, LIMIT)) == orjson.loads(orjson.dumps(value))


# -- what JSON cannot say


def cyclic_list() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def cyclic_point() -> Point:
    inner: list[Any] = []
    point = Point(1, inner)
    inner.append(point)
    return point


def deep_list(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def a_generator() -> Any:
    yield 1


class Hostile:
    """Every look at it raises what `except Exception` does not catch."""

    def __getattr__(self, name: str) -> Any:
        raise SystemExit(name)


@attrs.define
class HostileField:
    value: Any = 1

    def __getattribute__(self, name: str) -> Any:
        if name == "value":
            raise KeyboardInterrupt
        return super().__getattribute__(name)


UNSPEAKABLE = {
    "a cycle": cyclic_list(),
    "a cycle through an attrs instance": cyclic_point(),
    "too deep": deep_list(300),
    "a set of such": {1j},
    "an object": object(),
    "a class": Point,
    "a function": len,
    "a generator": a_generator(),
    "a complex number": 1j,
    "a lone surrogate": "\ud800",
    "a lone surrogate as a key": {"\udfff": 1},
    "a tuple as a key": {(1, 2): 3},
    "bytes as a key": {b"k": 1},
    "an exception": ValueError("x"),
    "an object that raises SystemExit when looked at": Hostile(),
    "an attrs instance that raises when read": HostileField(),
    "far inside": {"a": [1, {"b": object()}]},
}


@pytest.mark.rule("CALL-17", "ERR-06")
@pytest.mark.parametrize("value", UNSPEAKABLE.values(), ids=UNSPEAKABLE)
def test_value_that_is_not_json_is_refused_with_cause(value: Any) -> None:
    with pytest.raises(ToolError) as refusal:
        encode_result(value, LIMIT)
    assert refusal.value.code is ErrorCode.INTERNAL
    assert refusal.value.details == {"reason": "result_not_serializable"}
    assert refusal.value.__cause__ is not None


NAN = float("nan")


@pytest.mark.rule("CALL-42")
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (NAN, "$ is NaN"),
        ({"a": [None, Fraction("inf")]}, "$.a[1] is infinite"),
        (Point(1, Pair(2, {"a b": {1: -float("inf")}})), "$.y.right['a b']['1'] is infinite"),
        ({NAN: 1}, "$ has a key that is nan"),
        ({"a": {1: 2, "1": 3}}, "$.a has two keys that are '1' in JSON"),
    ],
)
def test_what_json_would_change_is_refused_with_its_place(value: Any, problem: str) -> None:
    with pytest.raises(ToolError, match="written as JSON: ") as refusal:
        encode_result(value, LIMIT)
    assert refusal.value.details == {"reason": "result_not_serializable", "problem": problem}


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow", ser_json_bytes="base64")

    a: Any = None
    inner: list[Loose] = []
    data: bytes = b""


class Lenient(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="null")

    a: Any


@pydantic_dataclass
class LooseData:
    a: Any


@pytest.mark.rule("CALL-42", "CALL-20")
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (Loose(a=NAN), "$.a is NaN"),
        (Loose(inner=[Loose(b=[NAN])]), "$.inner[0].b[0] is NaN"),
        (RootModel[list[Any]]([1, NAN]), "$[1] is NaN"),
        (LooseData(NAN), "$.a is NaN"),
    ],
)
def test_nan_in_a_model_is_refused_whatever_the_type_of_its_field(value: Any, problem: str) -> None:
    with pytest.raises(ToolError, match="written as JSON: ") as refusal:
        encode_result(value, LIMIT)
    assert refusal.value.details == {"reason": "result_not_serializable", "problem": problem}


@pytest.mark.rule("CALL-20")
def test_what_a_model_says_of_its_json_counts() -> None:
    assert orjson.loads(encode_result(Loose(data=b"\xff"), LIMIT)) == {
        "a": None,
        "inner": [],
        "data": "_w==",
    }
    assert orjson.loads(encode_result(Lenient(a=NAN), LIMIT)) == {"a": None}


@pytest.mark.rule("CALL-17", "CALL-41")
def test_forgotten_await_is_named_with_its_place_and_its_coroutine_closed() -> None:
    async def forecast() -> int:
        return 1

    with pytest.raises(ToolError) as refusal:
        encode_result({"nested": [1, forecast()]}, LIMIT)
    line = forecast.__code__.co_firstlineno
    assert re.fullmatch(
        rf"\$\.nested\[1\]: \S+forecast\(\) was not awaited \(.+[/\\]test_results\.py:{line}\)",
        str(refusal.value.__cause__),
    )


# -- size


@pytest.mark.rule("CALL-10", "ERR-06")
@pytest.mark.parametrize("value", ["x" * 98, "ä" * 49, [10] * 33 + [5]])
def test_text_larger_than_limit_is_refused(value: Any) -> None:
    size = len(orjson.dumps(value))
    assert len(encode_result(value, size).encode()) == size
    with pytest.raises(ToolError) as refusal:
        encode_result(value, size - 1)
    assert refusal.value.code is ErrorCode.INTERNAL
    assert refusal.value.details == {
        "reason": "result_too_large",
        "resultBytes": size,
        "maxResponseBytes": size - 1,
    }
    assert refusal.value.__cause__ is None
