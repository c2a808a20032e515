"""Schemas for which fastjsonschema alone would decide wrongly, fail, or execute text."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt.base.jsonschema.analysis import analyze
from foundation_rt.base.jsonschema.compilation import compile_schema
from foundation_rt.base.jsonschema.dialects import URIS
from foundation_rt.base.jsonschema.interpreter import explain
from foundation_rt.base.jsonschema.issues import UNEXPLAINED


def fits(schema: Any, value: Any, dialect: str = "draft-07", **definitions: Any) -> bool:
    """Return what the generated check and the interpreter of its issues both decide."""
    root = {
        "$schema": URIS[dialect],
        "type": "object",
        "properties": {"v": schema},
        "definitions": definitions,
    }
    is_valid = not compile_schema(root).validate({"v": value})
    assert (explain(analyze(root), {"v": value}) == UNEXPLAINED) is is_valid
    return is_valid


@pytest.mark.rule("SCHEMA-10")
@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ([1], [1.0], True),
        ([1], [True], False),
        ({"a": [0]}, {"a": [False]}, False),
        ({"a": 1, "b": 2}, {"b": 2.0, "a": 1}, True),
        ([], {}, False),
        ("", None, False),
        ("1", 1, False),
        (2**53, 2**53 + 1, False),
        (2**63, float(2**63), True),
        ([{}], [{}], True),
        ({"$ref": "#/nowhere"}, {"$ref": "#/nowhere"}, True),
        ({"$ref": "http://localhost:9/"}, {"$ref": "http://localhost:9/x"}, False),
    ],
)
def test_values_are_equal_as_in_json(one: Any, other: Any, equal: bool) -> None:
    assert fits({"const": one}, other) is equal
    assert fits({"enum": ["x", one]}, other) is equal
    assert fits({"uniqueItems": True}, [one, other]) is not equal


@pytest.mark.rule("SCHEMA-10")
@pytest.mark.parametrize(
    ("schema", "fitting", "unfitting"),
    [
        ({"type": "integer"}, [5, 5.0, -0.0, 1e300, 2**64 - 1], [True, 5.5, "5", None]),
        ({"type": "number"}, [5, 5.5], [True, "5"]),
        ({"type": "boolean"}, [True], [1, 0, "true"]),
        ({"type": ["integer", "boolean"]}, [True, 1.0], [1.5]),
        ({"minLength": 2.0}, ["ab", 1], ["😀"]),
        ({"minimum": 0}, [0, True, "a", -0.0], [-1, -1e-300]),
        ({"maximum": 2**53}, [2**53, float(2**53)], [2**53 + 1]),
        ({"required": ["a", "$b"]}, [{"a": 1, "$b": None}, 1], [{"a": 1}]),
        ({"const": 1, "enum": [1, 2]}, [1], [2]),
        ({"const": 1, "allOf": [{"type": "integer"}], "enum": [True, 1.0]}, [1, 1.0], [True]),
        ({"contains": {"type": "null"}}, [[1, None], 1], [[], [1]]),
        ({"uniqueItems": True}, [[["x", 2**70], {"x": 2**70}]], [[["x", 2**70], ["x", 2**70]]]),
        ({"propertyNames": {"pattern": "^a$"}}, [{"a": 1}, {}], [{"a\n": 1}]),
        ({"propertyNames": False}, [{}], [{"a": 1}]),
        ({"patternProperties": {"^a$": False}}, [{"a\n": 1}], [{"a": 1}]),
        (
            {"patternProperties": {r"^\d$": {"minimum": 5}, "^[0-9]$": {"maximum": 7}}},
            [{"1": 6}],
            [{"1": 4}, {"1": 8}],
        ),
        ({"additionalProperties": False, "required": ["a"]}, [1], [{"a": 1}, {}]),
        ({"anyOf": [{"additionalProperties": False, "required": ["a"]}, {}]}, [{}], []),
        ({"additionalProperties": {}, "required": ["a"]}, [{"a": 1, "b": 1}], [{}]),
        (
            {
                "additionalProperties": False,
                "properties": {"a": {}},
                "patternProperties": {"^b": {}},
                "required": ["a", "b"],
            },
            [{"a": 1, "b": 1, "bb": 1}],
            [{"a": 1}, {"a": 1, "b": 1, "c": 1}],
        ),
        ({"items": {}, "minItems": 1}, [[1]], [[]]),
        ({"items": [True, False]}, [[], [1]], [[1, 2]]),
        ({"items": [{}], "additionalItems": {}}, [[1, 2]], []),
        ({"items": {"type": "null"}, "additionalItems": False}, [[None, None]], [[1]]),
        ({"not": {"title": "anything"}}, [], [1]),
        ({"not": False}, [1], []),
        ({"if": True}, [1], []),
        ({"if": {}, "then": False}, [], [1]),
        ({"then": False, "else": False}, [1], []),
        ({"dependencies": {"a": {}, "b": True, "c": []}}, [{"a": 1, "b": 1, "c": 1}], []),
        ({"dependencies": {"a": False, "b": ["c"]}}, [{"c": 1}], [{"a": 1}, {"b": 1}]),
        ({"properties": {}, "patternProperties": {}, "dependencies": {}}, [{"a": 1}, 1], []),
        ({"uniqueItems": False}, [[1, 1]], []),
        ({"contentEncoding": "base64", "maxLength": 4}, ["!!!!"], ["YWFhYQ=="]),
        ({"contentMediaType": "application/json", "type": "string"}, ["{"], [1]),
        ({"default": 5, "examples": [{"$ref": "nowhere"}], "type": "integer"}, [1], ["a"]),
        ({"$comment": "nothing else"}, [1], []),
    ],
)
def test_keywords_have_meaning_of_their_dialect(
    schema: Any, fitting: list[Any], unfitting: list[Any]
) -> None:
    assert [value for value in fitting if not fits(schema, value)] == []
    assert [value for value in unfitting if fits(schema, value)] == []


@pytest.mark.rule("SCHEMA-10")
def test_definitions_with_similar_names_stay_separate() -> None:
    definitions = {
        "Node": {"type": "integer"},
        "node": {"type": "string"},
        "a-b": {"type": "null"},
        "a_b": {"type": "array"},
        "a~b": {"type": "boolean"},
    }
    values = {"Node": 1, "node": "a", "a-b": None, "a_b": [], "a~b": True}
    for name, value in values.items():
        reference = {"$ref": "#/definitions/" + name.replace("~", "~0")}
        for other in values.values():
            assert fits(reference, other, **definitions) is (value is other)


@pytest.mark.rule("SCHEMA-08")
def test_recursive_schema_follows_value() -> None:
    tree = {
        "type": "object",
        "properties": {"sub": {"items": {"$ref": "#"}}, "n": {"type": "null"}},
    }
    validate = compile_schema(tree).validate
    assert validate({"sub": [{"sub": []}, {"sub": [{"n": None}]}]}) == ()
    assert [issue.path for issue in validate({"sub": [{}, {"sub": [{"n": 1}]}]})] == [
        "/sub/1/sub/0/n"
    ]


@pytest.mark.rule("SCHEMA-34", "SCHEMA-08")
@pytest.mark.parametrize("target", [True, {"properties": {"v": {"type": "null"}}}])
def test_reference_at_root_is_followed(target: Any) -> None:
    schema = {"$schema": URIS["draft-07"], "type": "object", "$ref": "#/definitions/a"}
    compiled = compile_schema(schema | {"definitions": {"a": target}})
    assert compiled.warnings == ("#/type: draft-07 ignores it beside `$ref`",)
    assert (compiled.validate({"v": 1}) == ()) is (target is True)


HOSTILE = [
    '"',
    "'",
    '"]); raise SystemExit #',
    "{data}",
    "{",
    "}}",
    "{0}",
    "%s",
    "\\",
    '\\"',
    "\n",
    "\r\nraise SystemExit",
    "\0",
    "\u2028",
    "\x0c",
    '"""',
    "data",
    "a-b",
    "ab",
    "é",
    "😀",
    "$ref",
    "__missing_keys",
    "",
]


@pytest.mark.rule("SCHEMA-14")
@pytest.mark.parametrize("text", HOSTILE)
def test_text_in_schema_never_becomes_code(text: str) -> None:
    name_only = {"properties": {text: {"type": "integer"}}, "additionalProperties": False}
    assert fits(name_only | {"required": [text]}, {text: 1})
    assert not fits(name_only, {text: "1"})
    assert not fits(name_only, {text + "x": 1})
    assert not fits({"required": [text]}, {text + "x": 1})
    assert not fits({"dependencies": {text: [text + "x"]}}, {text: 1})
    assert not fits({"dependencies": {text: False}}, {text: 1})
    assert fits({"enum": [text, {text: [text]}]}, {text: [text]})
    assert not fits({"const": {text: text}}, {text: text + "x"})
    nested = {"properties": {text: {"items": {"anyOf": [{"$ref": "#/definitions/d"}, False]}}}}
    assert fits(nested, {text: [text]}, d={"const": text})
    assert not fits(nested, {text: [text, 1]}, d={"const": text})
    within = {"additionalProperties": {"patternProperties": {"": {"const": text}}}}
    assert not fits(within, {text: {text: 1}})


@pytest.mark.rule("SCHEMA-14")
@pytest.mark.parametrize("pattern", ['"', "'", "\\{data\\}", "{", "\n", "\\\\", '\\\\"', "é", "%s"])
def test_pattern_never_becomes_code(pattern: str) -> None:
    literal = pattern.replace("\\\\", "\\").replace("\\{", "{").replace("\\}", "}")
    assert fits({"pattern": pattern}, f"a{literal}b")
    assert not fits({"pattern": pattern}, "a")
    assert not fits({"patternProperties": {pattern: False}}, {literal: 1})
    assert fits({"patternProperties": {pattern: False}}, {"a": 1})


@pytest.mark.rule("SCHEMA-14")
def test_pattern_named_like_format_is_pattern() -> None:
    schema = {"anyOf": [{"pattern": "date_re_pattern"}, {"format": "date"}]}
    assert fits(schema, "2020-01-01")
    assert fits(schema, "date_re_pattern")
    assert not fits(schema, "2020-01-99")


@pytest.mark.rule("SCHEMA-16")
@pytest.mark.parametrize(
    ("wrap", "inside", "outside"),
    [
        (lambda s: {"items": s}, lambda v: [v], ""),
        (lambda s: {"properties": {"a": s}}, lambda v: {"a": v}, "a"),
        (lambda s: {"additionalProperties": s}, lambda v: {"a": v}, "a"),
        (lambda s: {"patternProperties": {"a": s}}, lambda v: {"a": v}, "a"),
        (lambda s: {"contains": s}, lambda v: [v], "a"),
        (lambda s: {"anyOf": [False, s]}, lambda v: v, "a"),
        (lambda s: {"not": {"not": s}}, lambda v: v, "a"),
        (lambda s: {"if": True, "then": s}, lambda v: v, "a"),
        (lambda s: {"if": False, "else": s}, lambda v: v, "a"),
        (lambda s: {"dependencies": {"a": s}}, None, ""),
        (lambda s: {"propertyNames": s}, None, ""),
    ],
)
def test_schemas_may_nest_deeper_than_python_code(wrap: Any, inside: Any, outside: str) -> None:
    schema: Any = {"type": "integer"}
    value, wrong = 1, "1"
    for _ in range(60):
        schema = wrap(schema)
        if inside:
            value, wrong = inside(value), inside(wrong)
    assert fits(schema, value)
    if inside:
        assert not fits(schema, wrong)


@pytest.mark.rule("SCHEMA-16")
def test_values_in_schema_may_nest_deeply() -> None:
    value: Any = 1
    for _ in range(100):
        value = [{"a": value}]
    assert fits({"const": value}, value)
    assert not fits({"const": value}, [value])
