"""Compiling schemas: the door, and the answers of three engines compared."""

from __future__ import annotations

import copy
import inspect
import sys
from types import MappingProxyType
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foundation_rt.base.jsonschema.analysis import analyze
from foundation_rt.base.jsonschema.compilation import (
    CompiledSchema,
    ValidationIssue,
    ValidationResult,
    compile_schema,
)
from foundation_rt.base.jsonschema.dialects import URIS
from foundation_rt.base.jsonschema.formats import ENFORCED, predicate
from foundation_rt.base.jsonschema.interpreter import Decider, explain
from foundation_rt.errors import RegistrationError
from tests.lab.sizes import examples

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "days": {"type": "integer", "default": 3},
    },
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.mark.rule("SCHEMA-04", "SCHEMA-19", "SCHEMA-20")
def test_schema_is_compiled_to_function() -> None:
    compiled = compile_schema(WEATHER)
    assert isinstance(compiled, CompiledSchema)
    assert (compiled.dialect, compiled.warnings) == ("draft-07", ())
    assert compiled.validate({"city": "Oslo", "days": 5}) == ()
    assert compiled.validate({"days": True, "nights": 1}) == (
        ValidationIssue("", 'must have the property "city"'),
        ValidationIssue("/days", "must be integer"),
        ValidationIssue("", 'must not have the property "nights"'),
    )


def test_validation_results_are_equal_by_value() -> None:
    assert ValidationResult(True) == ValidationResult(True, ())
    assert ValidationResult(False, (ValidationIssue("", "must be object"),)).errors[0].path == ""


@pytest.mark.rule("SCHEMA-07")
def test_later_changes_of_schema_have_no_effect() -> None:
    schema = copy.deepcopy(WEATHER)
    compiled = compile_schema(MappingProxyType(schema))
    assert schema == WEATHER
    schema["properties"].clear()
    schema["required"].append("day")
    assert compiled.validate({"city": "Oslo"}) == ()
    assert compiled.validate({"city": 1}) != ()


@pytest.mark.rule("SCHEMA-07")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "default": {1, 2}},
        {"type": "object", "properties": {1: {}}},
        {"type": "object", "enum": [2**64]},
        {"type": "object", "title": "\ud800"},
        [],
        "object",
        [1],
    ],
)
def test_schema_must_be_json(schema: Any) -> None:
    with pytest.raises(RegistrationError):
        compile_schema(schema)


@pytest.mark.rule("SCHEMA-03", "SCHEMA-07")
def test_non_json_schema_is_refused() -> None:
    """JSON has no NaN: it would be advertised as null."""
    with pytest.raises(RegistrationError, match="#/properties/v/minimum must be a number"):
        compile_schema({"type": "object", "properties": {"v": {"minimum": float("nan")}}})


@pytest.mark.rule("SCHEMA-16")
def test_too_deeply_nested_schema_is_refused() -> None:
    schema: Any = {}
    for _ in range(300):
        schema = {"not": schema}
    with pytest.raises(RegistrationError, match="must be JSON"):
        compile_schema({"type": "object", "properties": {"v": schema}})


@pytest.mark.rule("SCHEMA-16")
def test_schema_beyond_stack_limit_is_refused() -> None:
    schema: Any = {}
    for _ in range(200):
        schema = {"not": schema}
    root = {"type": "object", "properties": {"v": schema}}

    def descend(levels: int) -> CompiledSchema:
        return descend(levels - 1) if levels else compile_schema(root)

    with pytest.raises(RegistrationError, match="nested too deeply"):
        descend(sys.getrecursionlimit() - len(inspect.stack()) - 100)


@pytest.mark.rule("SCHEMA-17")
@pytest.mark.parametrize("more", [{}, {"minProperties": 0}, {"unevaluatedProperties": True}])
def test_defaults_are_not_filled_in(more: dict[str, Any]) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"default": 1}, "b": {"items": {"properties": {"c": {"default": 2}}}}},
    }
    value = {"b": [{}]}
    assert compile_schema(schema | more).validate(value) == ()
    assert value == {"b": [{}]}


def nested(levels: int, leaf: Any) -> Any:
    value = leaf
    for _ in range(levels):
        value = {"next": value}
    return value


@pytest.mark.rule("SCHEMA-17", "SCHEMA-18")
@pytest.mark.parametrize("more", [{}, {"multipleOf": 1}])
def test_value_too_deep_for_recursive_schema_is_an_issue(more: dict[str, Any]) -> None:
    """With `multipleOf` in it, the schema is read instead of compiled."""
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    validate = compile_schema(schema | more).validate
    assert validate(nested(100, {})) == ()
    assert [issue.path for issue in validate(nested(100, 1))] == ["/next" * 100]
    too_deep = (ValidationIssue("", "is nested too deeply"),)
    for leaf in ({}, 1):
        assert validate(nested(5000, leaf)) == too_deep


@pytest.mark.rule("SCHEMA-17", "SCHEMA-18")
def test_value_too_deep_for_equality_is_an_issue() -> None:
    validate = compile_schema(
        {"type": "object", "properties": {"next": {"uniqueItems": True}}}
    ).validate
    assert validate({"next": [nested(5000, 1)]}) == (ValidationIssue("", "is nested too deeply"),)
    assert validate({"other": nested(5000, 1)}) == ()


# What three engines say of the same schema and value. Names are such that they collide in
# careless generated code, values such that careless comparisons confuse them.

NAMES = st.sampled_from(
    ["a", "b", "A", "a-b", "a_b", "ab", "a.b", "a[0]", "$ref", "$id", "id", 'q"', "{a}", "n\nl", ""]
) | st.text(max_size=3)
NUMBERS = st.sampled_from(
    [0, 1, -1, 2, 3, 10, 1.0, 0.5, -0.0, 1.5, 2**53, 2**53 + 1, float(2**53), 2**63, 1e17, 0.1, 0.3]
)
TEXTS = st.sampled_from(["", "a", "ab", "A", "é", "a\n", "1", "2020-01-01", "a b", "$", "😀", "٣"])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
# Without `.`, of which jsonschema-rs has its own idea.
PATTERNS = st.sampled_from(
    ["a", "^a$", "[a-c]", r"^\d$", r"^\w+$", "[^a]", "a|b", "[$]", r"[\w-]", "^$"]
)
COUNTS = st.integers(0, 2)
TYPES = st.sampled_from(["array", "boolean", "integer", "null", "number", "object", "string"])


def keywords(draft: int, inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    """Keyword to its values, in one of the drafts up to 7."""
    names = st.lists(NAMES, min_size=1, max_size=3, unique=True)
    several = st.lists(inner, min_size=1, max_size=3)
    mapped = st.dictionaries(NAMES, inner, max_size=3)
    table: dict[str, st.SearchStrategy[Any]] = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=3, unique_by=repr),
        "minimum": NUMBERS,
        "maximum": NUMBERS,
        "multipleOf": st.sampled_from([1, 3, 0.1, 0.01, 1.5, 2.0]),
        "minLength": COUNTS,
        "maxLength": COUNTS,
        "minItems": COUNTS,
        "maxItems": COUNTS,
        "minProperties": COUNTS,
        "maxProperties": COUNTS,
        "pattern": PATTERNS,
        "format": st.sampled_from(["email", "ipv4", "uri"]),
        "uniqueItems": st.booleans(),
        "required": names,
        "items": inner | several,
        "additionalItems": inner | st.just(False),
        "properties": mapped,
        "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
        "additionalProperties": inner | st.just(False),
        "dependencies": st.dictionaries(NAMES, inner | names, max_size=2),
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": inner,
        "title": TEXTS,
        "default": VALUES,
    }
    if draft == 4:
        return table | {"exclusiveMinimum": st.booleans(), "exclusiveMaximum": st.booleans()}
    table |= {"const": VALUES, "exclusiveMinimum": NUMBERS, "exclusiveMaximum": NUMBERS}
    table |= {"contains": inner, "propertyNames": inner}
    return table if draft == 6 else table | {"if": inner, "then": inner, "else": inner}


REFERENCES = st.sampled_from(["#", "#/definitions/a", "#/definitions/A", "#/definitions/a-b"]).map(
    lambda reference: {"$ref": reference}
)


def one_schema(draft: int, inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a schema of up to four keywords, with subschemas from `inner`."""
    table = keywords(draft, inner)

    def with_partners(chosen: list[str]) -> st.SearchStrategy[Any]:
        limits = [
            name[9:].lower() for name in chosen if draft == 4 and name.startswith("exclusive")
        ]
        return st.fixed_dictionaries({name: table[name] for name in [*chosen, *limits]})

    chosen = st.lists(st.sampled_from(sorted(table)), max_size=4, unique=True)
    return chosen.flatmap(with_partners)


def schemas(draft: int) -> st.SearchStrategy[Any]:
    leaves = REFERENCES | st.just({})
    if draft > 4:
        leaves |= st.booleans()
    return st.recursive(leaves, lambda inner: one_schema(draft, inner), max_leaves=6)


@st.composite
def roots(draw: st.DrawFn, drafts: tuple[int, ...] = (4, 6, 7)) -> tuple[int, dict[str, Any]]:
    draft = draw(st.sampled_from(drafts))
    parts = schemas(draft)
    root = {
        "$schema": f"http://json-schema.org/draft-0{draft}/schema#",
        "type": "object",
        "properties": {"v": draw(parts)},
        "definitions": {name: draw(parts) for name in ("a", "A", "a-b")},
    }
    return draft, root


ENGINES = {
    4: jsonschema_rs.Draft4Validator,
    6: jsonschema_rs.Draft6Validator,
    7: jsonschema_rs.Draft7Validator,
}
FORMATS = {name: predicate(name) for name in ENFORCED}


@pytest.mark.rule("SCHEMA-10", "SCHEMA-11", "SCHEMA-15", "SCHEMA-17")
@settings(
    max_examples=examples(400),
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(roots(), st.lists(VALUES, min_size=1, max_size=4))
def test_three_engines_agree(drawn: tuple[int, dict[str, Any]], values: list[Any]) -> None:
    draft, root = drawn
    try:
        compiled = compile_schema(root)
    except RegistrationError as error:
        assert "round in a circle" in str(error)
        return
    oracle = ENGINES[draft](root, formats=FORMATS, validate_formats=True)
    read = analyze(root)
    for value in values:
        arguments = {"v": value}
        before = repr(arguments)
        issues = compiled.validate(arguments)
        assert (not issues) is oracle.is_valid(arguments)
        fits = not Decider(read, 10_000).read(read.root, arguments, "")
        assert issues == (() if fits else explain(read, arguments))
        assert repr(arguments) == before


@pytest.mark.rule("SCHEMA-04")
@settings(
    max_examples=examples(200),
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(roots((7,)), st.lists(VALUES, min_size=1, max_size=3))
def test_without_a_dialect_draft_07_and_2020_12_agree(
    drawn: tuple[int, dict[str, Any]], values: list[Any]
) -> None:
    _, root = drawn
    del root["$schema"]
    try:
        compiled = compile_schema(root)
    except RegistrationError:
        return
    later = compile_schema(root | {"$schema": URIS["2020-12"]})
    for value in values:
        arguments = {"v": value}
        assert (compiled.validate(arguments) == ()) is (later.validate(arguments) == ())
