"""Patterns: ECMA-262 in, Python out, the same matches."""

from __future__ import annotations

import re
import warnings

import pytest

from foundation_rt.base.jsonschema.patterns import PatternError, UnsupportedPatternError, translate

pytestmark = pytest.mark.rule("SCHEMA-12")


def finds(pattern: str, text: str) -> bool:
    return re.search(translate(pattern), text) is not None


@pytest.mark.parametrize(
    ("pattern", "found", "missed"),
    [
        ("b", "abc", "ac"),
        ("^a$", "a", "a\n"),
        (r"\$", "$", "a"),
        ("[$]", "$", "a"),
        (r"a\\$", "a\\", "a$"),
        (r"^\d$", "7", "٣"),
        (r"^\D$", "٣", "7"),
        (r"^\w$", "_", "é"),
        (r"^\W$", "é", "_"),
        (r"^\s$", "\ufeff", "\x1c"),
        (r"^\S$", "\x1c", "\u2003"),
        (r"^[\d\s]$", "\u00a0", "٣"),
        (r"^[^\S]$", "\u2028", "x"),
        (r"^[\D]$", "٣", "7"),
        (r"^[^\W_]$", "a", "é"),
        ("^.$", "\x0b", "\r"),
        ("^.$", "😀", "\u2028"),
        (r"^[^]$", "\n", ""),
        (r"^a[]?$", "a", "ab"),
        (r"\bé", "aé", "éé"),
        (r"^\B$", "", "a"),
        (r"^[\b]$", "\b", "b"),
        (r"^\t\n\v\f\r\0$", "\t\n\v\f\r\0", "tnvfr0"),
        (r"^\cJ\x41\u0062\u{63}$", "\nAbc", "JAbc"),
        (r"^\uD83D\uDE00$", "😀", "😁"),
        (r"^[\uD83D\uDE00-\uD83D\uDE01]$", "😁", "😂"),
        ("^[😀-😂]$", "😁", "😃"),
        ("^(?<year>[0-9]{4})$", "2024", "24"),
        ("^(?:a|b){2,}?$", "ab", "a"),
        ("(?<=a)b", "ab", "cb"),
        ("(?<!a)b", "cb", "ab"),
        ("^a(?=b)", "ab", "ac"),
        ("^a(?!b)", "ac", "ab"),
        (r"^[\w-.]+$", "a-.", "a/"),
        (r"^[a-\d]+$", "a-1", "b"),
        ("^[-a]+$", "-a", "b"),
        ("^[a-]+$", "-a", "b"),
        (r"^[a\-z]$", "-", "b"),
        (r"^[\]\^]+$", "]^", "a"),
        ("^[a&&b]$", "&", "c"),
        ("^[[]$", "[", "a"),
        ("^[|~#]$", "~", "a"),
        ("^{a}$", "{a}", "a"),
        ("^a{,2}$", "a{,2}", "aa"),
        ("^a]$", "a]", "a"),
        (r"^\/\-\_\@\ $", "/-_@ ", "a"),
        ("a b#c", "a b#c", "abc"),
        ("a\nb", "a\nb", "ab"),
    ],
)
def test_pattern_matches_as_in_ecma_262(pattern: str, found: str, missed: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert finds(pattern, found)
        assert not finds(pattern, missed)


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "[a",
        "[",
        "\\",
        "[\\",
        "*a",
        "a**",
        "a++",
        "a{2}{3}",
        "a*+",
        "[b-a]",
        "a{2,1}",
        r"\Z",
        r"\A",
        r"\x4",
        r"\u12",
        r"\u{110000}",
        r"\c1",
        r"\08",
        r"[\B]",
        "(?i)a",
        "(?P<n>a)",
        "(?>a)",
        "(?#a)",
        "(?<1a>b)",
        "a{99999999999}",
    ],
)
def test_invalid_ecma_262_pattern_is_an_error(pattern: str) -> None:
    with pytest.raises(PatternError) as caught:
        translate(pattern)
    assert not isinstance(caught.value, UnsupportedPatternError)
    assert str(caught.value)


@pytest.mark.rule("SCHEMA-35")
@pytest.mark.parametrize(
    ("pattern", "about"),
    [
        (r"\p{L}", "Unicode property"),
        (r"[\P{Lu}]", "Unicode property"),
        (r"(a)\1", "back-reference"),
        (r"(?<n>a)\k<n>", "back-reference"),
        ("(?<=a+)b", "look-behind"),
    ],
)
def test_unsupported_feature_is_named(pattern: str, about: str) -> None:
    with pytest.raises(UnsupportedPatternError, match=about):
        translate(pattern)


def test_translation_has_no_bare_dollar() -> None:
    assert re.search(r"(?<!\\)\$", translate(r"^a$|[$]|\$|\\$")) is None
