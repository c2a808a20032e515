"""What each keyword and each format takes longest for, of a MiB or a part of it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from foundation_rt.base.jsonschema.budget import CHARACTER, MAX_STEPS
from foundation_rt.base.jsonschema.compilation import compile_schema
from foundation_rt.base.jsonschema.dialects import ENFORCING, SHAPES_IN, URIS
from foundation_rt.base.jsonschema.formats import ENFORCED
from foundation_rt.base.jsonschema.issues import TOO_COMPLEX
from tests.lab.clock.effort import steps_of

MIB = 2**20
MOST = 4 * MAX_STEPS
"""Steps of a plain loop. A check may use up its budget, and its faults have to be found."""

PART = MIB // 4
"""The size of values that hold many: what they take is in proportion to it (SCHEMA-27)."""

ENGINES = {"draft-07": URIS["draft-07"], "2020-12": URIS["2020-12"]}

TEXTS: dict[str, list[str]] = {
    "date": ["1" * MIB, "2020-01-01" * (MIB // 10)],
    "date-time": ["2020-01-01T12:00:00." + "1" * MIB],
    "duration": ["P" + "1" * MIB, "P1Y" + "1" * MIB],
    "email": ["a" * MIB, '"' + "a" * MIB, "a@" + "a." * (MIB // 2)],
    "hostname": ["a" * MIB, "a." * (MIB // 2)],
    "ipv4": ["1." * (MIB // 2)],
    "ipv6": [":" * MIB, "1:" * (MIB // 2), "::%" + "a" * MIB],
    "json-pointer": ["/" * MIB + "~", "/" + "~0" * (MIB // 2) + "~", "/a" * (MIB // 2) + "~"],
    "regex": ["a" * MIB, "(" * MIB, "[" * MIB],
    "relative-json-pointer": ["1" * MIB + "/~", "0" + "/" * MIB + "~"],
    "time": ["12:00:00." + "1" * MIB],
    "uri": [
        head + part * (MIB // len(part)) + "<"
        for head in ("a:", "a:/", "a://", "a://b@", "a:?", "a:#", "a://[")
        for part in ("b", "%41")
    ],
    "uri-reference": [
        head + part * (MIB // len(part)) + "<"
        for head in ("", "a:", "/", "//", "?", "#")
        for part in ("/b", "%41")
    ],
    "uuid": ["1" * MIB],
}
"""Strings that a format reads to their end, or would read from many places."""


def lists(*items: str) -> list[str]:
    """Return JSON texts of a MiB, each an array of one of `items`, as often as they fit."""
    return ["[" + ",".join([item] * (PART // (len(item) + 1))) + "]" for item in items]


def counted(item: str, number: int = PART // 12) -> str:
    return "[" + ",".join(item % n for n in range(number)) + "]"


MEMBERS = "{" + ",".join(f'"k{n:05}":1' for n in range(PART // 11)) + "}"
NUMBERS = lists("12", "1.5", "1e300", "5e-324", "0.1234567890123456")
CHOICES = [f"c{n}" for n in range(1000)]
LAST_FAILS = lists("1")[0][:-1] + ',"x"]'

KEYWORDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "additionalProperties": ({"additionalProperties": {"type": "integer"}}, [MEMBERS]),
    "allOf": ({"items": {"allOf": [{"minimum": n} for n in range(9)]}}, lists("10")),
    "anyOf": ({"items": {"anyOf": [{"type": "null"}, {"minimum": 5}]}}, lists("12", "123")),
    "const": ({"items": {"const": [1]}}, lists("[1]", "1")),
    "contains": ({"contains": {"anyOf": [{"type": "null"}, {"const": 5}]}}, lists("11", "11111")),
    "dependencies": ({"items": {"dependencies": {"a": CHOICES}}}, lists('{"a":1}')),
    "dependentRequired": ({"items": {"dependentRequired": {"a": CHOICES}}}, lists('{"a":1}')),
    "dependentSchemas": (
        {"items": {"dependentSchemas": {"a": {"minProperties": 2}}}},
        lists('{"a":1}'),
    ),
    "enum": ({"items": {"enum": [*CHOICES, [1]]}}, [*lists('"c9"'), counted('"c9%d"')]),
    "if": (
        {"items": {"if": {"type": "null"}, "then": {"const": 1}, "else": {"minimum": 1}}},
        lists("1", "123"),
    ),
    "items": ({"items": {"type": "integer"}}, [LAST_FAILS, *lists('"x"')]),
    "minContains": (
        {"contains": {"minimum": 5}, "minContains": 9, "maxContains": 10},
        lists("1", "9"),
    ),
    "multipleOf": ({"items": {"multipleOf": 1e-9}}, NUMBERS),
    "not": ({"items": {"not": {"type": "string"}}}, lists("12")),
    "oneOf": ({"items": {"oneOf": [{"type": "null"}, {"minimum": 1}]}}, lists("1", "123")),
    "pattern": ({"items": {"pattern": "^a+$"}}, lists('"a"', '"aaaab"')),
    "patternProperties": (
        {"patternProperties": {f"{n}$": {"minimum": 0} for n in range(10)}},
        [MEMBERS],
    ),
    "prefixItems": ({"items": {"prefixItems": [{"minimum": n} for n in range(50)]}}, lists("[9]")),
    "properties": ({"items": {"properties": {name: {} for name in CHOICES}}}, lists('{"c1":1}')),
    "propertyNames": ({"propertyNames": {"anyOf": [{"const": "k"}, {"pattern": "k"}]}}, [MEMBERS]),
    "required": ({"items": {"required": CHOICES}}, lists("{}")),
    "unevaluatedItems": (
        {"items": {"prefixItems": [{}], "unevaluatedItems": {"minimum": 1}}},
        lists("[1,2]"),
    ),
    "unevaluatedProperties": (
        {"properties": {"a": {}}, "unevaluatedProperties": {"minimum": 1}},
        [MEMBERS],
    ),
    "uniqueItems": (
        {"uniqueItems": True},
        [counted("%d"), counted('"%d"'), counted('{"%d":1}'), *lists("[]")],
    ),
}
"""A schema for each keyword that looks at parts of a value or compares, and its values."""

SIMPLE = {
    *("additionalItems", "exclusiveMaximum", "exclusiveMinimum", "format", "maxItems", "maxLength"),
    *("maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum", "type"),
    *("else", "then", "maxContains"),
}
"""Keywords that look at nothing but a size, or are part of another one's case."""


def check(schema: dict[str, Any], dialect: str, value: Any) -> float:
    """Return for how many steps of a plain loop a check lasts."""
    root = {"$schema": ENGINES[dialect], "type": "object", "properties": {"v": schema}}
    validate = compile_schema(root).validate
    validate({"v": None})  # the code is generated
    return steps_of(lambda: validate({"v": value}), MOST)


@pytest.mark.rule("SCHEMA-27", "SCHEMA-37")
def test_every_keyword_and_format_has_a_worst_value() -> None:
    assert TEXTS.keys() == ENFORCED
    others = {name for name in ENFORCING if name.startswith(("$", "content"))}
    assert ENFORCING - others - SIMPLE == KEYWORDS.keys()


@pytest.mark.rule("SCHEMA-37", "SCHEMA-44")
@pytest.mark.parametrize("dialect", ENGINES)
@pytest.mark.parametrize("name", sorted(TEXTS))
def test_mebibyte_of_a_format_is_checked_in_few_steps(name: str, dialect: str) -> None:
    for text in TEXTS[name]:
        assert check({"format": name}, dialect, text) <= MOST, text[:20]


@pytest.mark.rule("SCHEMA-37", "SCHEMA-28", "SCHEMA-45")
@pytest.mark.parametrize("dialect", ENGINES)
@pytest.mark.parametrize("keyword", sorted(KEYWORDS))
def test_large_value_for_a_keyword_is_checked_in_few_steps(keyword: str, dialect: str) -> None:
    schema, values = KEYWORDS[keyword]
    inner = schema.get("items", {})
    if any(name not in SHAPES_IN[dialect] for name in (*schema, *inner)):
        return
    for text in values:
        assert check(schema, dialect, orjson.loads(text)) <= MOST, text[:20]


@pytest.mark.rule("SCHEMA-44")
@pytest.mark.parametrize("dialect", ENGINES)
@pytest.mark.parametrize("name", sorted(CHARACTER))
def test_characters_of_many_formats_are_counted(name: str, dialect: str) -> None:
    some = [{"format": name, "minLength": number} for number in range(100)]
    root = {"$schema": ENGINES[dialect], "type": "object", "properties": {"v": {"anyOf": some}}}
    assert compile_schema(root).validate({"v": TEXTS[name][0]}) is TOO_COMPLEX
    assert compile_schema(root).validate({"v": "x"}) is not TOO_COMPLEX


@pytest.mark.rule("SCHEMA-45")
@pytest.mark.parametrize("dialect", ENGINES)
def test_patterns_of_a_peer_are_counted(dialect: str) -> None:
    patterns = [f"a{number}" for number in range(50)]
    schemas = {
        "text": {"allOf": [{"pattern": each} for each in patterns]},
        "name": {"patternProperties": dict.fromkeys(patterns, False)},
    }
    root = {"$schema": ENGINES[dialect], "type": "object", "properties": schemas}
    validate = compile_schema(root, linear=True).validate
    assert validate({"text": "b" * MIB}) is validate({"name": {"b" * MIB: 1}}) is TOO_COMPLEX
    assert validate({"text": "b", "name": {"a1": 1}}) not in ((), TOO_COMPLEX)
