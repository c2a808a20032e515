"""Results of handlers as JSON text, and what JSON cannot say."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from enum import Enum, IntEnum
from typing import Any

import attrs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.core.results import tool_result
from foundation_rt.errors import ErrorCode, ToolError
from foundation_rt.protocol.revisions import NEWEST_HANDSHAKE_REVISION, REVISIONS
from tests.support.core import make_core

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
    (float("nan"), "null"),
    ([float("inf"), -float("inf")], "[null,null]"),
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
]


@pytest.mark.rule("CALL-16")
@pytest.mark.parametrize(("value", "text"), RESULTS)
def test_result_is_written_as_json(value: Any, text: str) -> None:
    assert encode_result(value, LIMIT) == text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.floats(),
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
    "an integer beyond 64 bits": 2**64,
    "a negative integer beyond 64 bits": -(2**63) - 1,
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


class Awaitable:
    def __await__(self) -> Any:
        """Never called."""


@pytest.mark.rule("CALL-17", "ERR-06")
def test_awaitable_is_refused_with_hint_and_coroutine_closed() -> None:
    async def forecast() -> int:
        return 1

    for value in (forecast(), {"nested": forecast()}, Awaitable()):
        with pytest.raises(ToolError) as refusal:
            encode_result(value, LIMIT)
        cause: BaseException | None = refusal.value
        texts = []
        while cause is not None:
            texts.append(str(cause))
            cause = cause.__cause__ or cause.__context__
        assert "async def" in " ".join(texts)


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
