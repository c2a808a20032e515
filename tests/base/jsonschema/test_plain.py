"""Schemas of objects whose members have types, and nothing else."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.jsonschema.analysis import analyze
from foundation_rt.base.jsonschema.compilation import compile_schema, deferred_validator
from foundation_rt.base.jsonschema.plain import plain_validator
from foundation_rt.errors import RegistrationError

NAMES = st.sampled_from(["a", "b", "c", "$ref", ""])
TYPES = st.sampled_from(["array", "boolean", "integer", "null", "number", "object", "string"])
TEXTS = st.just("text") | st.sampled_from([None, 1])
MEMBERS = st.recursive(
    st.fixed_dictionaries(
        {"type": TYPES},
        optional={"title": TEXTS, "default": st.none() | st.integers(), "minimum": st.just(0)},
    ),
    lambda inner: st.fixed_dictionaries({"anyOf": st.lists(inner, max_size=3)}),
    max_leaves=4,
)
SCHEMAS = st.fixed_dictionaries(
    {"type": st.just("object")},
    optional={
        "properties": st.dictionaries(NAMES, MEMBERS, max_size=3),
        "required": st.lists(NAMES, max_size=3) | st.just([1]),
        "additionalProperties": st.booleans() | st.fixed_dictionaries({"type": TYPES}),
        "description": TEXTS,
        "unknown": st.just(1),
    },
)
ITEMS = st.sampled_from([None, True, 0, 5.0, 0.5, 2**70, "x", [], [1], {}, {"a": 1}])
VALUES = st.dictionaries(NAMES, ITEMS, max_size=4) | ITEMS


def refuse(value: Any) -> Any:
    """Return one issue for every value."""
    return ("refused",)


@pytest.mark.rule("SCHEMA-10")
@given(SCHEMAS, st.lists(VALUES, min_size=1, max_size=5))
def test_plain_check_decides_as_the_generated_one(schema: Any, values: list[Any]) -> None:
    if plain_validator(schema, refuse) is None:
        return
    analysis = analyze(deepcopy(schema))
    assert (analysis.dialect, analysis.warnings, analysis.header_params) == ("draft-07", [], [])
    generated, _ = deferred_validator(analysis, max_steps=10**6)
    compiled = compile_schema(schema)
    assert (compiled.dialect, compiled.warnings) == ("draft-07", ())
    for value in values:
        assert compiled.validate(value) == generated(value)


@pytest.mark.rule("SCHEMA-10", "REG-18")
@pytest.mark.parametrize(
    ("member", "item"),
    [
        ({"type": "integer", "description": "how many", "default": 1}, 2),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, None),
        ({"anyOf": [{"anyOf": [{"type": "array"}]}, {"type": "number"}]}, [{}]),
    ],
)
def test_types_of_members_alone_show_that_a_value_is_valid(
    member: dict[str, Any], item: Any
) -> None:
    schema = {"type": "object", "properties": {"a": member}, "required": ["a"]}
    validate = plain_validator(schema, refuse)
    assert validate is not None
    assert validate({"a": item, "b": 2}) == ()
    assert validate({}) == validate([]) == validate({"a": True}) == ("refused",)
    closed = plain_validator({**schema, "additionalProperties": False}, refuse)
    assert closed is not None
    assert closed({"a": item}) == ()
    assert closed({"a": item, "b": 2}) == ("refused",)


@pytest.mark.rule("SCHEMA-03")
@pytest.mark.parametrize(
    "fault",
    [
        {"properties": []},
        {"properties": {"a": {"type": "text"}}},
        {"properties": {"a": {"anyOf": []}}},
        {"required": ["a", "a"]},
        {"required": "a"},
        {"title": 1},
        {"additionalProperties": 1},
    ],
)
def test_schema_with_a_fault_is_not_plain_and_refused(fault: dict[str, Any]) -> None:
    schema = {"type": "object", **fault}
    assert plain_validator(schema, refuse) is None
    with pytest.raises(RegistrationError):
        compile_schema(schema)
