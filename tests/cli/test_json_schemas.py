"""Schemas of any server, made readable."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foundation_rt.cli.json_schemas import kind_of, properties_of, types_of

KEYWORDS = ["type", "properties", "required", "items", "anyOf", "oneOf", "allOf", "$ref", "$defs"]
KEYWORDS += ["enum", "const", "default", "format", "description", "minimum", "pattern"]
NOISE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["#", "#/$defs/a", "object", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*KEYWORDS, "a"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@pytest.mark.rule("CLI-18")
@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({}, "anything"),
        (True, "anything"),
        (False, "nothing"),
        (5, "anything"),
        ({"type": "string"}, "string"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"type": "integer", "minimum": 1, "maximum": 9}, "integer, >= 1, <= 9"),
        ({"type": "integer", "minimum": 0, "maximum": 2**53 - 1}, "integer, >= 0"),
        ({"type": "string", "format": "uri", "maxLength": 9}, "string, uri, length <= 9"),
        ({"type": "string", "pattern": "^a"}, 'string, matches "^a"'),
        ({"type": "array", "items": {"type": "string"}}, "array of string"),
        ({"type": "array"}, "array"),
        ({"type": "array", "items": [{}]}, "array"),
        ({"type": "array", "items": {"type": "array", "items": {}}}, "array of array of anything"),
        ({"enum": ["dry", 5, None]}, '"dry" | 5 | null'),
        ({"const": "a"}, '"a"'),
        (
            {"type": "integer", "enum": list(range(20))},
            " | ".join(map(str, range(12))) + " | 8 more",
        ),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string | null"),
        ({"anyOf": [{"type": "string"}, {"type": "string"}]}, "string"),
        ({"oneOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "number"}}}, "number"),
        ({"allOf": [{"type": "object"}, {}]}, "object & anything"),
        ({"properties": {}}, "object"),
        ({"$ref": "#"}, "anything"),
        ({"$ref": "https://example.com/"}, "anything"),
        ({"type": 5, "format": 5}, "anything"),
    ],
)
def test_a_kind_is_a_few_words(schema: Any, kind: str) -> None:
    assert kind_of(schema) == kind


@pytest.mark.rule("CLI-18")
def test_properties_are_rows_with_those_of_objects_within() -> None:
    schema = {
        "type": "object",
        "required": ["city", 5],
        "properties": {
            "city": {"type": "string", "description": "Name of the city."},
            "days": {"type": "integer", "default": 3},
            "place": {"$ref": "#/$defs/a~1b", "description": "Where."},
            "stops": {"type": "array", "items": {"$ref": "#/$defs/a~1b"}},
            "maybe": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a~1b"}]},
            "odd": 5,
        },
        "$defs": {
            "a/b": {
                "type": "object",
                "description": "A place.",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "within": {"$ref": "#/$defs/a~1b"}},
            }
        },
    }
    rows = [(row.name, row.kind, row.presence, row.description) for row in properties_of(schema)]
    assert rows == [
        ("city", "string", "required", "Name of the city."),
        ("days", "integer", "= 3", ""),
        ("place", "object", "", "Where."),
        ("place.name", "string", "required", ""),
        ("place.within", "object", "", "A place."),
        ("stops", "array of object", "", ""),
        ("stops[].name", "string", "required", ""),
        ("stops[].within", "object", "", "A place."),
        ("maybe", "null | object", "", ""),
        ("maybe.name", "string", "required", ""),
        ("maybe.within", "object", "", "A place."),
        ("odd", "anything", "", ""),
    ]


@pytest.mark.rule("CLI-18")
def test_types_are_looked_for_to_a_depth() -> None:
    schema: dict[str, Any] = {"type": "string"}
    assert types_of({"allOf": [schema]}, {}) == {"string"}
    for _ in range(100):
        schema = {"allOf": [schema]}
    assert types_of(schema, schema) == frozenset()


@pytest.mark.rule("CLI-18")
def test_an_object_is_not_shown_deeper_than_six_objects() -> None:
    schema: dict[str, Any] = {}
    for _ in range(20):
        schema = {"properties": {"a": schema}}
    assert [row.name for row in properties_of(schema)] == [".".join("a" * at) for at in range(1, 7)]


@pytest.mark.rule("CLI-28", "CLI-18")
def test_types_are_those_a_schema_names() -> None:
    root = {"$defs": {"a": {"anyOf": [{"type": "integer"}, {"enum": ["x", None, 1.5, [], {}]}]}}}
    assert types_of({"$ref": "#/$defs/a"}, root) == {
        "integer",
        "string",
        "null",
        "number",
        "array",
        "object",
    }
    assert types_of({"type": ["string", 5]}, root) == {"string"}
    assert types_of({"allOf": [{"const": True}]}, root) == {"boolean"}
    assert types_of(None, root) == frozenset()


@pytest.mark.rule("CLI-18")
def test_a_schema_made_to_grow_stays_small() -> None:
    inner: dict[str, Any] = {"type": "string"}
    for _ in range(30):
        inner = {"anyOf": [inner] * 50}
    assert len(kind_of(inner)) < 10_000
    everything = {"properties": {f"p{at}": {"$ref": "#/$defs/a"} for at in range(50)}}
    schema = {**everything, "$defs": {"a": {**everything, "default": "x" * 10_000}}}
    assert all(len(row.presence) < 100 for row in islice(properties_of(schema), 1000))


@pytest.mark.rule("CLI-28", "CLI-18")
@given(NOISE)
@example({"enum": []})
def test_any_value_is_shown_as_a_schema(schema: Any) -> None:
    assert kind_of(schema)
    types_of(schema, schema)
    for row in islice(properties_of(schema), 200):
        assert row.name and row.kind
