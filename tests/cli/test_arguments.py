"""Arguments of tools and prompts, as they are written on a command line."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.cli.args import CommandLineError
from foundation_rt.cli.commands import read_arguments, read_texts

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "degrees": {"type": "number"},
        "dry": {"type": "boolean"},
        "stops": {"type": "array", "items": {"type": "string"}},
        "place": {"$ref": "#/$defs/Place"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["string", "integer"]},
        "tone": {"enum": ["dry", "cheerful"]},
        "level": {"enum": [1, 2]},
        "nothing": {"const": None},
        "mixed": {"oneOf": [{"type": "number"}, {"$ref": "#/$defs/Name"}]},
        "free": {},
        "odd": 5,
        "lost": {"$ref": "#/nowhere"},
    },
    "$defs": {"Place": {"type": "object"}, "Name": {"type": "string"}},
}


def read(*words: str) -> dict[str, Any]:
    return read_arguments(words, SCHEMA)


@pytest.mark.rule("CLI-28")
@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("city=Oslo", "Oslo"),
        ("city=5", "5"),
        ("city=", ""),
        ("city=a=b", "a=b"),
        ("city:=5", 5),
        ("days=5", 5),
        ("days=-5", -5),
        ("degrees=1.5e3", 1500.0),
        ("dry=true", True),
        ('stops=["a", "b"]', ["a", "b"]),
        ('place={"city": "Oslo"}', {"city": "Oslo"}),
        ("maybe=null", None),
        ("maybe=5", 5),
        ("either=5", "5"),
        ("either:=5", 5),
        ("tone=dry", "dry"),
        ("level=2", 2),
        ("nothing=null", None),
        ("mixed=5", "5"),
        ("free=5", 5),
        ("free=five", "five"),
        ("odd=true", True),
        ("lost=x", "x"),
        ("unknown=[1]", [1]),
        ("unknown=[1", "[1"),
    ],
)
def test_a_value_is_read_as_the_schema_says(word: str, value: Any) -> None:
    key = word.partition("=")[0].removesuffix(":")
    assert read(word) == {key: value}
    assert type(read(word)[key]) is type(value)


@pytest.mark.rule("CLI-16")
def test_arguments_are_an_object_or_words() -> None:
    assert read() == {}
    assert read('{"city": "a=b"}') == {"city": "a=b"}
    assert read(' {"days": "5"}') == {"days": "5"}
    assert read("city=Oslo", "days=3") == {"city": "Oslo", "days": 3}


@pytest.mark.rule("CLI-16")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{city: Oslo}"], "not valid JSON"),
        (["{"], "not valid JSON"),
        ([""], "'' is neither a JSON object nor of the form key=value"),
        (["null"], "'null' is neither"),
        (["[1]"], "neither"),
        (["=5"], "neither"),
        ([":=5"], "neither"),
        (["city=Oslo", '{"days": 5}'], "neither"),
        (["city=a", "city=b"], "'city' is given twice"),
        (["city=a", "city:=1"], "'city' is given twice"),
        (["days=five"], "days takes integer, written as JSON; not 'five'"),
        (["stops=a"], "stops takes array"),
        (["maybe=x"], "maybe takes integer or null"),
        (["free:=five"], "free:= takes JSON"),
        (["days=NaN"], "days takes integer"),
    ],
)
def test_wrong_argument_is_named(words: list[str], message: str) -> None:
    with pytest.raises(CommandLineError) as raised:
        read(*words)
    assert message in str(raised.value)


@pytest.mark.rule("CLI-28")
@pytest.mark.parametrize("schema", [{}, {"properties": 5}, {"properties": {"a": None}}])
def test_value_decides_the_type_if_the_schema_is_invalid(schema: dict[str, Any]) -> None:
    assert read_arguments(["a=5", "b=x"], schema) == {"a": 5, "b": "x"}


@pytest.mark.rule("CLI-16")
def test_the_arguments_of_a_prompt_are_text() -> None:
    assert read_texts(["a=5", "b=", "c=d=e"]) == {"a": "5", "b": "", "c": "d=e"}
    for wrong in (["a"], ["=5"], ["a=1", "a=2"]):
        with pytest.raises(CommandLineError):
            read_texts(wrong)


@pytest.mark.rule("CLI-28")
@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.text()))
def test_text_parameter_takes_any_text_unchanged(arguments: dict[str, str]) -> None:
    schema = {"properties": {key: {"type": "string"} for key in arguments}}
    words = [f"{key}={value}" for key, value in arguments.items()]
    assert read_arguments(words, schema) == arguments
    as_json = [f"{key}:={orjson.dumps(value).decode()}" for key, value in arguments.items()]
    assert read_arguments(as_json, {}) == arguments
