"""URI templates: both ways, every URI, nothing that leaves its path segment."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from foundation_rt.features.resources.uri_template import (
    MAX_URI_LENGTH,
    InvalidUri,
    UriTemplate,
    check_uri,
    is_traversal,
    parse_template,
    percent_decode,
    percent_encode,
)
from tests.lab.clock.counting import CallCounter

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
        ("file:///{+path}", ("path",), ("file:///", "")),
        ("a:{b}/{c*}.txt{?d,e}", ("b", "c", "d", "e"), ("a:", "/", ".txt")),
        ("a:all{?b}", ("b",), ("a:all",)),
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
        ("task://{}", "a name is letters"),
        ("task://{id:3}", "a name is letters"),
        ("task://{a,b}", "a name is letters"),
        ("task://{é}", "a name is letters"),
        ("task://{+}", "a name is letters"),
        ("task://{#a}", "a name is letters"),
        ("task://{/a*}", "a name is letters"),
        ("task://x{?}", "a name is letters"),
        ("task://x{?a,}", "a name is letters"),
        ("task://x{?a*}", "a name is letters"),
        ("task://x{?a,a}", "variable 'a' twice"),
        ("task://{a}{?a}", "variable 'a' twice"),
        ("task://x{?a", "end after"),
        ("task://x{?a}/y", "end after"),
        ("task://x{?a}{b}", "end after"),
        ("task://x?b={b}{?a}", "after a \\?"),
        ("task://{+a}/x/{b*}", "two variables of several segments: 'a' and 'b'"),
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
def test_other_template_is_refused(text: str, what: str) -> None:
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
        ("file:///{+p}", "file:///a/b%20c/d", {"p": "a/b c/d"}),
        ("file:///{p*}", "file:///a", {"p": "a"}),
        ("a:{b}/{+c}/{d}.{e}", "a:1/2/3/4.5.6", {"b": "1", "c": "2/3", "d": "4.5", "e": "6"}),
        ("a:{+b}2{c}", "a:x2%25q%2Bb", {"b": "x", "c": "%q+b"}),
        ("a:x{?b,c}", "a:x", {}),
        ("a:x{?b,c}", "a:x?c=1%262&b=", {"b": "", "c": "1&2"}),
        ("a:{+p}{?b}", "a:x/y?b=p/q", {"p": "x/y", "b": "p/q"}),
        ("m://{id}", "m://org%2Fmodel", {"id": "org/model"}),
        ("m://{id}/{+p}", "m://a%2fb/c%2Fd/e", {"id": "a/b", "p": "c/d/e"}),
        ("m://Ä/%c3%84/{id}", "m://%c3%84/Ä/%41Ä", {"id": "AÄ"}),
    ],
)
def test_matching_uri_returns_values(template: str, uri: str, values: dict[str, str]) -> None:
    assert parse_template(template).match(uri) == values


@pytest.mark.rule("MRES-07", "MRES-20", "MRES-09", "MRES-25")
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
        ("task://{id}", "task://a%2F"),
        ("task://{id}", "task://%2fa"),
        ("task://{id}", "task://a%2F%2Fb"),
        ("task://{id}", "task://a%2F..%2Fb"),
        ("task://{id}", "task://a%2F%252e%252e"),
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
        ("file:///{+p}", "file:///"),
        ("file:///{+p}", "file:////etc/passwd"),
        ("file:///{+p}", "file:///a//b"),
        ("file:///{+p}", "file:///a/"),
        ("file:///{+p}", "file:///a/../b"),
        ("file:///{+p}", "file:///a%2F..%2Fb"),
        ("file:///{+p}", "file:///a%5Cb"),
        ("file:///{+p}", "file:///%252e%252e/b"),
        ("file:///{+p}", "file:///%25252e%25252e/b"),
        ("file:///{+p}", "file:///a/%252e%252e%252fb"),
        ("file:///{+p}", "file:///%" + "25" * 9 + "41"),
        ("file:///{+p}", "file:///%252E%252e%252f%25zz"),
        ("file:///{+p}", "file:///a?b"),
        ("a:x{?b}", "a:x?"),
        ("a:x{?b}", "a:x?c=1"),
        ("a:x{?b}", "a:x?b=1&b=2"),
        ("a:x{?b}", "a:x?b=.."),
        ("a:x{?b}", "a:x?b=%2e%2e%2Fetc"),
        ("a:x{?b}", "a:x?b=%252e%252e%252Fetc"),
        ("a:x{?b}", "a:x?b=%zz"),
        ("a:x{?b}", "a:x?b=1#c"),
        ("a:x{?b}", "a:y?b=1"),
        ("a:{b}/{+c}/x/{d}", "a:b/c/y/d"),
        ("a:{b}/{c}", "a:b"),
    ],
)
def test_other_uri_does_not_match(template: str, uri: str) -> None:
    assert parse_template(template).match(uri) is None


@pytest.mark.rule("MRES-09")
@pytest.mark.parametrize(
    "value", ["", "/", "/a", "a/", "a//b", "a\\b", "\0", "..", "a/../b", "%2e%2e/a"]
)
def test_value_that_leaves_its_folder_is_not_expanded(value: str) -> None:
    for text in ("file:///{a}", "file:///{+a}", "file:///x{?a}"):
        if text.endswith("?a}") and not {".."} & {*value.replace("%2e", ".").split("/")}:
            continue
        with pytest.raises(InvalidUri, match="path segment"):
            parse_template(text).expand({"a": value})


def test_expanding_needs_every_variable_of_the_path() -> None:
    with pytest.raises(KeyError):
        parse_template("a:{b}/{c}").expand({"b": "1"})
    assert parse_template("a:{b}{?c,d}").expand({"b": "1", "d": "&"}) == "a:1?d=%26"


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


PATHS = st.lists(VALUES, min_size=1, max_size=3).map("/".join)


def _has_dots(values: Iterable[str]) -> bool:
    texts = [text for value in values for text in (value, percent_decode(value) or "..")]
    return any({".", ".."} & {*text.split("/")} for text in texts)


@st.composite
def templates(draw: st.DrawFn) -> UriTemplate:
    count = draw(st.integers(1, 3))
    text = "t:" + draw(LITERALS)
    wide = draw(st.integers(0, 2 * count))
    for index in range(count):
        text += f"{{{'+' * (wide == index)}v{index}}}{draw(LITERALS)}"
    try:
        return parse_template(text)
    except InvalidUri:
        assume(False)
        raise


@pytest.mark.rule("MRES-06", "MRES-07", "MRES-20")
@given(templates(), st.data())
def test_matching_inverts_expanding(template: UriTemplate, data: st.DataObject) -> None:
    values = {
        name: data.draw(PATHS if name == template.wide else VALUES) for name in template.variables
    }
    try:
        uri = template.expand(values)
    except InvalidUri:
        text = template.text.replace("{+", "{").format(**values)
        assert (
            is_traversal(text)
            or _has_dots(values.values())
            or is_traversal(percent_decode(text) or "..")
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
    readers = [
        parse_template("t:{+v}" if name == template.wide else "t:{v}") for name in template.path
    ]
    readable = [
        each
        for each in spans(template, uri)
        if all(
            reader.match(f"t:{value}") is not None or (value and set(value) == {"."})
            for reader, value in zip(readers, each, strict=True)
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
