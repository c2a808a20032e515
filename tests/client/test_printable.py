"""What a hostile server says, on its way to a terminal."""

from __future__ import annotations

import unicodedata
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.cli.render import pretty_json
from foundation_rt.client.safe_text import printable_json, printable_line, printable_text
from tests.lab.values.json_values import json_values

ANY_TEXT = st.text(st.characters())
JSON = json_values(st.integers(-(2**53), 2**53), st.text(), keys=st.text())


@pytest.mark.rule("CLI-19")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, å, 漢字, 👍🏽, e\u0301", "plain, å, 漢字, 👍🏽, e\u0301"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("a\rb", "a\\rb"),
        ("a\r\nb\tc", "a\nb\tc"),
        ("a\u202eb\u2066c\u200b", "a\\u202eb\\u2066c\\u200b"),
        ("hidden\U000e0041\U000e0042", "hidden\\U000e0041\\U000e0042"),
        ("half \ud83d", "half \\ud83d"),
        ("\x7f\x00", "\\x7f\\x00"),
    ],
)
def test_control_characters_are_shown_as_escapes(text: str, shown: str) -> None:
    assert printable_text(text) == shown


@pytest.mark.rule("CLI-19")
def test_a_line_has_no_line_breaks() -> None:
    assert printable_line("a\nb\tc\r\n") == "a\\nb\\tc\\r\\n"


@pytest.mark.rule("CLI-19")
@given(ANY_TEXT)
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    for shown, allowed in ((printable_text(text), "\n\t"), (printable_line(text), "")):
        shown.encode()
        left = {each for each in shown if unicodedata.category(each) == "Cc"}
        assert left <= set(allowed)
        directions = {unicodedata.bidirectional(each) for each in shown}
        assert not directions & {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}


@pytest.mark.rule("CLI-19")
@given(JSON)
def test_json_says_the_same_and_is_fit_for_a_terminal(value: Any) -> None:
    text = pretty_json(value)
    assert orjson.loads(text) == value
    assert printable_text(text) == text


@pytest.mark.rule("CLI-19")
def test_json_escapes_of_characters_beyond_16_bits_are_pairs() -> None:
    assert printable_json('"\U000e0041"') == '"\\udb40\\udc41"'
    assert orjson.loads(printable_json('"\U000e0041"')) == "\U000e0041"
