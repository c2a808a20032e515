"""Parameters of tools, and their values as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt.apps.host.llm.commands import read_parameters, read_value

SCHEMA = {
    "$defs": {
        "Level": {"enum": ["low", "high"]},
        "Self": {"$ref": "#/$defs/Self"},
        "a/b": {"type": "boolean"},
    },
    "properties": {
        "opt": {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "How many."},
        "level": {"$ref": "#/$defs/Level", "description": "How high."},
        "maybe": {"type": ["string", "null"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "fixed": {"const": "x"},
        "site": {"type": "string", "format": "uri"},
        "when": {"type": "string", "format": "date"},
        "delay": {"type": "number"},
        "on": {"type": "boolean"},
        "rows": {"type": "array", "items": {"type": "object"}},
        "names": {"type": "array", "items": {"type": "string"}},
        "any": {},
        "loop": {"$ref": "#/$defs/Self"},
        "slash": {"$ref": "#/$defs/a~1b"},
        "anchor": {"$ref": "#a"},
        "data": {"type": "object"},
    },
    "required": ["level"],
}
PARAMETERS = {each.name: each for each in read_parameters(SCHEMA)}


@pytest.mark.rule("LLM-84")
@pytest.mark.parametrize(
    ("name", "kind", "form", "expected"),
    [
        ("opt", "integer", "", "a whole number"),
        ("level", "string", "", "one of `low`, `high`"),
        ("maybe", "string", "", "a text"),
        ("either", "", "", "a text"),
        ("site", "string", "uri", "a URL"),
        ("when", "string", "date", "a date such as 2026-05-31"),
        ("on", "boolean", "", "yes or no"),
        ("rows", "array", "", "a list, as JSON"),
        ("names", "array", "", "a list: values with commas between, or JSON"),
        ("loop", "", "", "a text"),
        ("slash", "boolean", "", "yes or no"),
        ("anchor", "", "", "a text"),
    ],
)
def test_parameters_are_read_from_the_schema(
    name: str, kind: str, form: str, expected: str
) -> None:
    parameter = PARAMETERS[name]
    assert (parameter.type, parameter.format, parameter.expected) == (kind, form, expected)


@pytest.mark.rule("LLM-84")
def test_required_parameters_come_first_with_their_descriptions() -> None:
    assert next(iter(PARAMETERS)) == "level"
    assert PARAMETERS["level"].description == "How high."
    assert PARAMETERS["opt"].description == "How many."


@pytest.mark.rule("LLM-84")
@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("opt", "12", 12),
        ("opt", "5.0", 5),
        ("opt", "9" * 20, int("9" * 20)),
        ("level", "HIGH", "high"),
        ("maybe", '"quoted"', "quoted"),
        ("maybe", "“quoted”", "quoted"),
        ("either", "5", 5),
        ("any", "[1]", [1]),
        ("any", "text", "text"),
        ("delay", "0.25", 0.25),
        ("delay", "2", 2),
        ("on", "Yes.", True),
        ("on", "off", False),
        ("rows", '[{"a": 1}]', [{"a": 1}]),
        ("names", "red, green; blue", ["red", "green", "blue"]),
        ("data", '{"a": 1}', {"a": 1}),
    ],
)
def test_value_is_read_by_the_schema(name: str, text: str, value: Any) -> None:
    assert read_value(PARAMETERS[name], text) == value


@pytest.mark.rule("LLM-84")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("opt", "many"),
        ("opt", "about 12"),
        ("opt", "1.5"),
        ("level", "middle"),
        ("on", "perhaps"),
        ("data", "[1]"),
        ("data", "{"),
        ("rows", "["),
    ],
)
def test_value_that_does_not_fit_is_none(name: str, text: str) -> None:
    with pytest.raises(ValueError):
        read_value(PARAMETERS[name], text)
