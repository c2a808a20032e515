"""URI templates: both ways, every URI, nothing that leaves its path segment."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from foundation_rt.protocol.uri_template import (
    MAX_URI_LENGTH,
    InvalidUri,
    UriTemplate,
    check_uri,
    is_traversal,
    parse_template,
    percent_decode,
    percent_encode,
)
from tests.support.counting import CallCounter

# -- URIs


@pytest.mark.rule("MRES-01")
@pytest.mark.parametrize(
    "uri",
    [
        "task://all",
        "a:b",
        "file:///etc/hosts",
        "git+ssh://host/x?y=z#w",
        "urn:isbn:0451450523",
        "http://[::1]/",
        "task://größe",
        "x:%41%C3%A9",
        "x:" + "a" * (MAX_URI_LENGTH - 2),
    ],
)
def test_absolute_uri_is_accepted(uri: str) -> None:
    check_uri(uri)


@pytest.mark.rule("MRES-15")
@pytest.mark.parametrize(
    ("uri", "what"),
    [
        ("", "1 to 2048 characters"),
        ("x:" + "a" * (MAX_URI_LENGTH - 1), "1 to 2048 characters"),
        ("all", "begin with a scheme"),
        ("/all", "begin with a scheme"),
        ("://all", "begin with a scheme"),
        ("1a:b", "begin with a scheme"),
        ("é:b", "begin with a scheme"),
        ("a_b:c", "begin with a scheme"),
        ("task:", "begin with a scheme"),
        ("a:b c", "white space"),
        ("a:b\n", "white space"),
        ("a:\x00", "white space"),
        ("a:\x7f", "white space"),
        ("a:{b}", "white space"),
        ("a:b\\c", "white space"),
        ("a:\ud800", "valid Unicode"),
        ("a:%", "two digits"),
        ("a:%4", "two digits"),
        ("a:%zz", "two digits"),
        ("a:%+1", "two digits"),
        ("a:%FF", "two digits"),
    ],
)
def test_other_than_absolute_uri_is_refused(uri: str, what: str) -> None:
    with pytest.raises(InvalidUri, match=what):
        check_uri(uri)


@given(st.text())
def test_percent_decoding_inverts_encoding(text: str) -> None:
    try:
        encoded = percent_encode(text)
    except UnicodeEncodeError:
        return
    assert encoded.isascii()
    assert percent_decode(encoded) == text


@given(st.text("%4C3aé/", max_size=12))
def test_decoding_decodes_every_escape_once_or_refuses(text: str) -> None:
    decoded = percent_decode(text)
    if "%" not in text:
        assert decoded == text
    if decoded is not None:
        assert percent_decode(percent_encode(decoded)) == decoded


# -- templates


@pytest.mark.rule("MRES-06")
@pytest.mark.parametrize(
    ("text", "variables", "literals"),
    [
        ("task://{id}", ("id",), ("task://", "")),
        ("a:{b}/{c_1}x", ("b", "c_1"), ("a:", "/", "x")),
        ("search:q?text={text}&page={page}", ("text", "page"), ("search:q?text=", "&page=", "")),
    ],
)
def test_template_has_literals_and_variables(
    text: str, variables: tuple[str, ...], literals: tuple[str, ...]
) -> None:
    template = parse_template(text)
    assert (template.text, template.variables, template.literals) == (text, variables, literals)


@pytest.mark.rule("MRES-06")
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("task://all", "must have a variable"),
        ("", "must have a variable"),
        ("{id}", "begin with a scheme"),
        ("{a}:{b}", "begin with a scheme"),
        ("task{a}://x", "begin with a scheme"),
        ("a b:{c}", "begin with a scheme"),
        ("task://{id", "brace"),
        ("task://id}{a}", "white space"),
        ("task://{id}}", "brace"),
        ("task://{{id}}", "brace"),
        ("task://{}", "level 1"),
        ("task://{+id}", "level 1"),
        ("task://{id*}", "level 1"),
        ("task://{id:3}", "level 1"),
        ("task://{a,b}", "level 1"),
        ("task://{é}", "level 1"),
        ("task://{a}{b}", "something between 'a' and 'b'"),
        ("task://{a}/{a}", "variable 'a' twice"),
        ("task://{a} b", "white space"),
        ("task://{a}/%zz", "two digits"),
        ("task://{a}/%A9/{b}", "two digits"),
        ("task://{a}/../{b}", "path segment"),
        ("task://{a}/%2e./{b}", "path segment"),
        ("task://{" + "a" * MAX_URI_LENGTH + "}", "1 to 2048 characters"),
    ],
)
def test_other_than_level_1_template_is_refused(text: str, what: str) -> None:
    with pytest.raises(InvalidUri, match=what):
        parse_template(text)


# -- expanding and matching


@pytest.mark.rule("MRES-07", "MRES-20")
@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("task://{id}", "task://7", {"id": "7"}),
        ("task://{id}", "task://%C3%A9%20%25", {"id": "é %"}),
        ("task://{id}", "task://é@x:1,2;3=4", {"id": "é@x:1,2;3=4"}),
        ("a:{b}/{c}", "a:1/2", {"b": "1", "c": "2"}),
        ("a:{b}-{c}", "a:1-2-3", {"b": "1", "c": "2-3"}),
        ("a:{b}.", "a:x.", {"b": "x"}),
        ("a:{b}2{c}", "a:%25q2b", {"b": "%q", "c": "b"}),
        ("a:{b}/x", "a:%252e%252e/x", {"b": "%2e%2e"}),
        ("a:x?q={q}", "a:x?q=1", {"q": "1"}),
    ],
)
def test_matching_uri_returns_values(template: str, uri: str, values: dict[str, str]) -> None:
    assert parse_template(template).match(uri) == values


@pytest.mark.rule("MRES-07", "MRES-20", "MRES-09")
@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("task://{id}", "task://"),
        ("task://{id}", "TASK://7"),
        ("task://{id}", "other://7"),
        ("task://{id}", "task://a/b"),
        ("task://{id}", "task://a/"),
        ("task://{id}", "task://a?b"),
        ("task://{id}", "task://a#b"),
        ("task://{id}", "task://a b"),
        ("task://{id}", "task://a\n"),
        ("task://{id}", "task://a{b"),
        ("task://{id}", "task://\ud800%41"),
        ("task://{id}", "task://%"),
        ("task://{id}", "task://%zz"),
        ("task://{id}", "task://%FF"),
        ("task://{id}", "task://a%2Fb"),
        ("task://{id}", "task://a%2fb"),
        ("task://{id}", "task://a%5Cb"),
        ("task://{id}", "task://a\\b"),
        ("task://{id}", "task://a%00"),
        ("task://{id}", "task://.."),
        ("task://{id}", "task://%2e%2E"),
        ("task://{id}", "task://.%2e"),
        ("task://{id}", "task://."),
        ("task://{id}", "task://%2e%2e%2Fetc"),
        ("file:///{a}/{b}", "file:///x/.."),
        ("file:///.{a}", "file:///.."),
        ("file:///{a}.", "file:///.%2E"),
        ("a:{b}F", "a:%2F"),
        ("a:{b}/x", "a:/x"),
        ("a:{b}-{c}", "a:-1"),
        ("a:{b}-{c}", "a:1"),
        ("a:{b}xx", "a:x"),
    ],
)
def test_other_uri_does_not_match(template: str, uri: str) -> None:
    assert parse_template(template).match(uri) is None


@pytest.mark.rule("MRES-09")
@pytest.mark.parametrize("value", ["", "/", "a/b", "a\\b", "\0", ".", ".."])
def test_value_beyond_one_segment_is_not_expanded(value: str) -> None:
    with pytest.raises(InvalidUri, match="path segment"):
        parse_template("file:///{a}").expand({"a": value})


def test_expanding_needs_every_variable() -> None:
    with pytest.raises(KeyError):
        parse_template("a:{b}/{c}").expand({"b": "1"})


@pytest.mark.rule("MRES-09")
@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("a:b/c", False),
        ("a:b/...", False),
        ("a:b/.c", False),
        ("a:b/..", True),
        ("a:b/./c", True),
        ("a:b/%2E%2e/c", True),
        ("a:b/..?c", True),
        ("a:b/..#c", True),
        ("a:b\\..\\c", True),
        ("a:b%5C..", True),
        ("a:b%00", True),
        ("a:%zz", True),
    ],
)
def test_path_traversal_is_detected(uri: str, expected: bool) -> None:
    assert is_traversal(uri) is expected


LITERALS = st.text("ab-2F./?%", max_size=3)
VALUES = st.text("ab-2F.%é", min_size=1, max_size=4)


@st.composite
def templates(draw: st.DrawFn) -> UriTemplate:
    count = draw(st.integers(1, 3))
    text = "t:" + draw(LITERALS)
    for index in range(count):
        text += f"{{v{index}}}{draw(LITERALS)}"
    try:
        return parse_template(text)
    except InvalidUri:
        assume(False)
        raise


@pytest.mark.rule("MRES-06", "MRES-07", "MRES-20")
@given(templates(), st.data())
def test_matching_inverts_expanding(template: UriTemplate, data: st.DataObject) -> None:
    values = {name: data.draw(VALUES) for name in template.variables}
    try:
        uri = template.expand(values)
    except InvalidUri:
        assert any(set(value) <= {"."} for value in values.values()) or is_traversal(
            template.text.format(**values)
        )
        return
    found = template.match(uri)
    assert found is not None
    assert template.expand(found) == uri
    if len(values) == 1:
        assert found == values


def _around(uri: str, cuts: list[int]) -> list[str]:
    edges = [0, *cuts, len(uri)]
    return [uri[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]


def spans(template: UriTemplate, uri: str) -> list[list[str]]:
    """Every way in which the variables could stand for parts of `uri`."""
    count = len(template.variables)
    return [
        [uri[start:end] for start, end in zip(cuts[::2], cuts[1::2], strict=True)]
        for cuts in product(range(len(uri) + 1), repeat=2 * count)
        if list(cuts) == sorted(cuts) and _around(uri, list(cuts)) == list(template.literals)
    ]


@pytest.mark.rule("MRES-19")
@given(templates(), st.text("ab-2F./?%", min_size=1, max_size=5))
def test_ambiguous_uri_is_matched(template: UriTemplate, rest: str) -> None:
    assume(len(template.variables) < 3)
    uri = "t:" + rest
    simple = parse_template("t:{v}")
    readable = [
        each
        for each in spans(template, uri)
        if all(
            simple.match(f"t:{value}") is not None or (value and set(value) == {"."})
            for value in each
        )
    ]
    assert (template.match(uri) is not None) == bool(readable and not is_traversal(uri))


@pytest.mark.rule("MRES-19")
def test_matching_never_backtracks() -> None:
    template = parse_template("a:" + "x".join(f"{{v{index}}}" for index in range(20)) + "y")
    steps = []
    for length in (500, 1000):
        with CallCounter() as counter:
            assert template.match("a:" + "x" * length) is None
        steps.append(counter.calls)
    assert steps[1] <= steps[0] + 10
