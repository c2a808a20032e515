"""JSON into attrs classes: exact types, every problem at once, and no value in a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import pytest
from attrs import field, frozen
from attrs.validators import in_
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.structuring import MAX_ISSUES, Structurer, StructuringError


@frozen
class Circle:
    radius: int
    kind: ClassVar[str] = "circle"


@frozen
class Square:
    side: float
    kind: ClassVar[str] = "square"


Shape = Circle | Square


@frozen
class Drawing:
    name: str
    shapes: tuple[Shape, ...]
    is_new: bool = False
    colour: Literal["red", "blue"] | None = None
    thumb_nail: bytes | None = None
    layers: Sequence[str] = ()
    scale: int = field(default=1, validator=in_((1, 2)))
    meta: Mapping[str, Any] | None = field(default=None, metadata={"wire": "_meta"})


def structurer(*, leaves_out: bool = False) -> Structurer:
    made = Structurer(leaves_out=leaves_out)
    made.register_kinds(Shape)
    return made


EXACT, LENIENT = structurer(), structurer(leaves_out=True)
WHOLE = {
    "name": "a",
    "shapes": [{"type": "circle", "radius": 2.0}, {"type": "square", "side": 1}],
    "isNew": True,
    "colour": "red",
    "thumbNail": "AAE=",
    "layers": ["x"],
    "scale": 2,
    "_meta": {"m": None},
}
LEAST = {"name": "a", "shapes": []}


def issues(value: Any) -> dict[str, str]:
    with pytest.raises(StructuringError) as caught:
        EXACT.structure(value, Drawing)
    return dict(caught.value.issues)


def test_members_are_fields_in_camel_case_or_by_their_own_name() -> None:
    read = EXACT.structure({**WHOLE, "unknown": 1}, Drawing)
    shapes = (Circle(2), Square(1))
    assert read == Drawing("a", shapes, True, "red", b"\0\1", ["x"], 2, {"m": None})


def test_null_counts_as_absent() -> None:
    assert EXACT.structure({**dict.fromkeys(WHOLE), **LEAST}, Drawing) == Drawing("a", ())


@pytest.mark.parametrize(
    ("member", "value", "path", "problem"),
    [
        ("name", 7, "/name", "is not a string"),
        ("name", None, "/name", "is missing"),
        ("shapes", "abc", "/shapes", "is not an array"),
        ("shapes", {}, "/shapes", "is not an array"),
        ("shapes", [1], "/shapes/0", "is not an object"),
        ("shapes", [{}], "/shapes/0/type", "is not one of circle, square"),
        ("shapes", [{"type": []}], "/shapes/0/type", "is not one of circle, square"),
        (
            "shapes",
            [{"type": "circle", "radius": "7"}],
            "/shapes/0/radius",
            "is not a whole number",
        ),
        (
            "shapes",
            [{"type": "circle", "radius": True}],
            "/shapes/0/radius",
            "is not a whole number",
        ),
        (
            "shapes",
            [{"type": "circle", "radius": 1.5}],
            "/shapes/0/radius",
            "is not a whole number",
        ),
        ("shapes", [{"type": "square", "side": True}], "/shapes/0/side", "is not a number"),
        ("isNew", 1, "/isNew", "is not true or false"),
        ("colour", "green", "/colour", "is not one of red, blue"),
        ("thumbNail", "?", "/thumbNail", "is not base64"),
        ("layers", ["x", 1], "/layers/1", "is not a string"),
        ("scale", 3, "/scale", "is not a value that is allowed"),
        ("_meta", [], "/_meta", "is not an object"),
    ],
)
def test_types_are_exact(member: str, value: Any, path: str, problem: str) -> None:
    assert issues({**WHOLE, member: value}) == {path: problem}
    if member not in LEAST:
        left = {name: each for name, each in WHOLE.items() if name != member}
        if member == "layers":
            left["layers"] = ["x"]  # its wrong item alone is left out
        assert LENIENT.structure({**WHOLE, member: value}, Drawing) == LENIENT.structure(
            left, Drawing
        )


def test_all_problems_are_told_at_once_and_the_text_is_short() -> None:
    wrong = {"shapes": [{"type": "circle"}, 5], "layers": [1, 2, 3], "scale": 9}
    found = issues(wrong)
    assert list(found) == [
        "/name",
        "/shapes/0/radius",
        "/shapes/1",
        "/layers/0",
        "/layers/1",
        "/layers/2",
        "/scale",
    ]
    with pytest.raises(StructuringError, match=r"/name is missing; .*; and 2 more$"):
        EXACT.structure(wrong, Drawing)
    assert len(issues({**LEAST, "layers": [1] * 10_000})) == MAX_ISSUES


SECRET = "hunter2"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.just(SECRET),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*WHOLE, "type", "radius", "side", SECRET]), inner)
    ),
    max_leaves=8,
)


@given(
    VALUES
    | st.builds(lambda more: {**WHOLE, **more}, st.dictionaries(st.sampled_from([*WHOLE]), VALUES))
)
def test_no_message_repeats_a_value_and_each_pointer_leads_somewhere(value: Any) -> None:
    for each in (EXACT, LENIENT):
        try:
            assert isinstance(each.structure(value, Drawing), Drawing)
        except StructuringError as error:
            assert SECRET not in str(error)
            for path, problem in error.issues:
                *parents, last = path.split("/")[1:] or [""]
                place = value
                for name in parents:
                    place = place[int(name)] if isinstance(place, list) else place[name]
                if problem != "is missing" and last:
                    assert isinstance(place, list | dict)
