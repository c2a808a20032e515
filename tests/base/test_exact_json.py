"""JSON with integers of any size."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.exact_json import dumps, loads

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.sampled_from([2**64, 2**64 - 1, -(2**63), -(2**63) - 1, 10**18, 10**19, -(10**18)])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("0123456789-.x", max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=15,
)


def typed(value: Any) -> Any:
    """Return a value that is equal only to one of the same JSON types."""
    if isinstance(value, list):
        return [typed(one) for one in value]
    if isinstance(value, dict):
        return {name: typed(one) for name, one in value.items()}
    return (type(value), value)


@pytest.mark.rule("CTOOL-20")
@given(JSON, st.sampled_from([None, orjson.OPT_INDENT_2]))
def test_integers_are_read_exactly(value: Any, option: int | None) -> None:
    text = dumps(value, option=option)
    assert typed(loads(text)) == typed(value)
    assert typed(loads(text.decode())) == typed(value)


class Size(Enum):
    HUGE = 2**70


@dataclass
class Order:
    count: int
    size: Size
    _own: int = 0


@pytest.mark.rule("CTOOL-20")
def test_long_integer_does_not_change_other_values() -> None:
    small = {"order": Order(1, Size.HUGE), "pair": (1, True, None, 1.5), "z": 2**64}
    assert dumps(small) == (
        b'{"order":{"count":1,"size":1180591620717411303424},'
        b'"pair":[1,true,null,1.5],"z":18446744073709551616}'
    )


@pytest.mark.rule("CTOOL-20")
@pytest.mark.parametrize(
    "text",
    [
        "9" * 400,
        f"[{'9' * 5000}]",
        "[9" + "9" * 30,
        pytest.param(
            "[" * 1020 + "9" * 30 + "]" * 1020,
            marks=pytest.mark.skipif(
                sys.version_info >= (3, 12), reason="json reads as deep as orjson since 3.12"
            ),
        ),
    ],
)
def test_integer_beyond_limit_is_refused(text: str) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        loads(text)


@pytest.mark.rule("CTOOL-20")
def test_invalid_json_with_long_integer_is_refused() -> None:
    circle: list[Any] = [2**64]
    circle.append(circle)
    for value in (object(), [2**64, object()], {1: 2**64}, 10**5000, circle):
        with pytest.raises(TypeError):
            dumps(value)
