"""Values through a real server: what the API parses is what the tool was given."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Iterator
from email.message import Message
from email.parser import BytesParser
from typing import Any
from urllib.parse import parse_qsl, unquote

import orjson
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foundation_rt import Server, ToolError, Transform
from foundation_rt.testing import TestClient
from tests.lab.peers.echo_api import EchoApi, echo_api
from tests.lab.sizes import examples

QUIET = {"logging": {"level": "error"}}
STYLES = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "array": {"type": "array", "items": {"type": "string"}},
    "object": {"type": "object", "additionalProperties": {"type": "string"}},
}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
PLAIN = TEXT.filter(str.isidentifier)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": TEXT,
    "array": st.lists(TEXT, min_size=1, max_size=3),
    "object": st.dictionaries(PLAIN, TEXT, min_size=1, max_size=3),
}


def cases() -> list[tuple[str, str, bool, str]]:
    """Return every location, style, way of explosion and shape that OpenAPI defines."""
    found = []
    for location, styles in STYLES.items():
        for style in styles:
            for explode in (False, True):
                for shape in SCHEMAS:
                    if style == "deepObject" and not (explode and shape == "object"):
                        continue
                    if style in ("spaceDelimited", "pipeDelimited") and shape == "text":
                        continue
                    found.append((location, style, explode, shape))
    return found


def document() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for number, (location, style, explode, shape) in enumerate(cases()):
        parameter = {
            "name": "v",
            "in": location,
            "required": True,
            "style": style,
            "explode": explode,
            "schema": SCHEMAS[shape],
        }
        path = f"/c{number}/" + ("{v}/end" if location == "path" else "end")
        paths[path] = {"get": {"operationId": f"c{number}", "parameters": [parameter]}}
    content = {
        "schema": {"type": "object", "properties": {"of it": {}}, "additionalProperties": True}
    }
    for name, media_type in (
        ("json", "application/json"),
        ("form", "application/x-www-form-urlencoded"),
        ("parts", "multipart/form-data"),
        ("bytes", "application/octet-stream"),
        ("text", "text/plain"),
    ):
        body = {"required": True, "content": {media_type: content}}
        paths[f"/{name}"] = {"post": {"operationId": name, "requestBody": body}}
    return {"openapi": "3.1.0", "info": {"title": "echo", "version": "1"}, "paths": paths}


class Through:
    """A client of a server of the echoing API, for tests that are no coroutines."""

    def __init__(self, api: EchoApi) -> None:
        self.runner = asyncio.Runner()
        self.server = Server.from_openapi(document(), base_url=f"{api.url}/base", config=QUIET)
        self.client = TestClient(self.server)
        self.runner.run(self.client.__aenter__())

    def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        return self.runner.run(self.client.call_tool(tool, arguments))

    def close(self) -> None:
        self.runner.run(self.client.close())
        self.runner.close()


@pytest.fixture(scope="module")
def api() -> Iterator[EchoApi]:
    with echo_api() as served:
        yield served


@pytest.fixture(scope="module")
def through(api: EchoApi) -> Iterator[Through]:
    found = Through(api)
    yield found
    found.close()


def parsed(location: str, style: str, explode: bool, shape: str, raw: str) -> Any:
    """Return the value that a server reads from the raw text of a parameter."""
    prefix = {"label": ".", "matrix": ";"}.get(style, "")
    assert raw.startswith(prefix)
    raw = raw[len(prefix) :]
    plain = (lambda text: text) if location == "header" else unquote
    delimiter = {"label": "." if explode else ",", "spaceDelimited": "%20"}.get(style, ",")
    delimiter = "%7C" if style == "pipeDelimited" else delimiter
    if style == "matrix":
        if explode and shape != "text":
            pairs = [each.split("=", 1) for each in raw.split(";")]
            if shape == "object":
                return {plain(key): plain(each) for key, each in pairs}
            return [plain(each) for _, each in pairs]
        assert raw.startswith("v=")
        raw = raw[2:]
    if shape == "text":
        return plain(raw)
    parts = raw.split(delimiter)
    if shape == "array":
        return [plain(each) for each in parts]
    if explode:
        return {plain(each.split("=", 1)[0]): plain(each.split("=", 1)[1]) for each in parts}
    return {plain(key): plain(each) for key, each in zip(parts[::2], parts[1::2], strict=True)}


def received(case: tuple[str, str, bool, str], arrived: dict[str, Any]) -> Any:
    """Return the value that arrived."""
    location, style, explode, shape = case
    if location == "path":
        raw = arrived["path"].split("/")
        assert raw[:2] == ["", "base"] and raw[4:] == ["end"]
        return parsed(location, style, explode, shape, raw[3])
    if location == "header":
        raw_header = arrived["headers"]["v"]
        return parsed(location, style, explode, shape, raw_header)
    joined = arrived["query"] if location == "query" else arrived["headers"]["cookie"]
    pairs = [each.split("=", 1) for each in joined.split("&" if location == "query" else "; ")]
    if style == "deepObject":
        return {unquote(key)[2:-1]: unquote(each) for key, each in pairs}
    if explode and shape == "object":
        return {unquote(key): unquote(each) for key, each in pairs}
    assert all(key == "v" for key, _ in pairs)
    if explode and shape == "array":
        return [unquote(each) for _, each in pairs]
    assert len(pairs) == 1
    return parsed(location, style, explode, shape, pairs[0][1])


@pytest.mark.rule("OAPI-20", "OAPI-21", "OAPI-22", "OAPI-30")
@settings(max_examples=examples(200))
@given(st.data(), st.integers(0, len(cases()) - 1))
def test_api_parses_the_value_that_was_given(through: Through, data: Any, number: int) -> None:
    case = cases()[number]
    value = data.draw(VALUES[case[3]])
    try:
        arrived = through.call(f"c{number}", {"v": value})
    except ToolError as refusal:
        assert refusal.details is not None and refusal.details["reason"] == "not_sendable"
        assert is_refused(case, value)
        return
    assert received(case, arrived) == value


def is_refused(case: tuple[str, str, bool, str], value: Any) -> bool:
    """Return whether the rules refuse a value at this place."""
    location, style, _, shape = case
    if shape == "text":
        texts = [value]
    else:
        texts = list(value) + (list(value.values()) if shape == "object" else [])
    joined = "".join(texts)
    if location == "path":
        return "." in joined or (style == "label" and bool(set("/\\") & set(joined)))
    if location == "header":
        return "," in joined or not joined.isprintable() or any(map(_has_spaces, texts))
    return {"spaceDelimited": " ", "pipeDelimited": "|"}.get(style, "no") in joined


def _has_spaces(text: str) -> bool:
    return text != text.strip(" \t") or any(ord(each) < 32 or ord(each) == 127 for each in text)


@pytest.mark.rule("OAPI-22")
@pytest.mark.parametrize(
    "value",
    [
        *("", ".", "..", "../admin", "a/../b", "..\\x", "a/..", "./x", "x/./y", "/..", "\\..\\"),
        *("%2e%2e", "%2F..%2F", "%252e%25252e", "..;v=1"),
    ],
)
def test_value_of_a_path_leads_nowhere_else(through: Through, value: str) -> None:
    number = cases().index(("path", "simple", False, "text"))
    with pytest.raises(ToolError) as refusal:
        through.call(f"c{number}", {"v": value})
    assert refusal.value.details == {"reason": "not_sendable", "argument": "v"}


@pytest.mark.rule("OAPI-22")
@pytest.mark.parametrize("value", ["%2F", "%2e%2e%2e", "?x=1", "#top", "//h", "a b", ";v=1", "…"])
def test_value_of_a_path_stays_one_segment(through: Through, value: str) -> None:
    number = cases().index(("path", "simple", False, "text"))
    arrived = through.call(f"c{number}", {"v": value})
    segment = arrived["path"].split("/")[3]
    assert unquote(segment) == value and arrived["query"] == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def body_of(arrived: dict[str, Any]) -> bytes:
    return b64decode(arrived["body"])


@pytest.mark.rule("OAPI-23")
@given(st.dictionaries(TEXT, JSON, max_size=3))
def test_json_body_arrives_as_it_was(through: Through, value: Any) -> None:
    arrived = through.call("json", {"body": value})
    assert arrived["headers"]["content-type"] == "application/json"
    assert orjson.loads(body_of(arrived)) == value


@pytest.mark.rule("OAPI-23")
@given(st.dictionaries(TEXT, TEXT | st.lists(TEXT, min_size=1, max_size=3), max_size=3))
def test_form_arrives_as_it_was(through: Through, value: dict[str, Any]) -> None:
    arrived = through.call("form", {"body": value})
    pairs = parse_qsl(body_of(arrived).decode(), keep_blank_values=True)
    several = {key: each if isinstance(each, list) else [each] for key, each in value.items()}
    assert pairs == [(key, each) for key, items in several.items() for each in items]


@pytest.mark.rule("OAPI-23")
@given(st.dictionaries(PLAIN.filter(str.isascii), TEXT, min_size=1, max_size=3))
def test_parts_arrive_as_they_were(through: Through, value: dict[str, str]) -> None:
    # The parser of the standard library ends lines as it likes.
    assume(
        not any(set(each) & set("\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029") for each in value.values())
    )
    arrived = through.call("parts", {"body": value})
    head = f"Content-Type: {arrived['headers']['content-type']}\r\n\r\n".encode()
    parsed_parts: Message = BytesParser().parsebytes(head + body_of(arrived))
    found = {}
    for part in parsed_parts.get_payload():
        assert isinstance(part, Message)
        payload = part.get_payload(decode=True)
        assert isinstance(payload, bytes)
        name = part.get_param("name", header="content-disposition")
        found[str(name)] = payload.decode()
    assert found == value


@pytest.mark.rule("OAPI-18", "OAPI-23")
@given(st.binary(max_size=40))
def test_bytes_arrive_as_they_were(through: Through, value: bytes) -> None:
    arrived = through.call("bytes", {"body": b64encode(value).decode()})
    assert body_of(arrived) == value


@pytest.mark.rule("OAPI-18")
def test_text_body_is_a_text_and_bytes_are_base64(through: Through) -> None:
    assert body_of(through.call("text", {"body": "å\n"})) == "å\n".encode()
    with pytest.raises(ToolError, match=r"body.*base64"):
        through.call("bytes", {"body": "no base64!"})


# -- every place, exactly as it is written -------------------------------------------------------

OF_JSON: dict[str, Any] = {"application/json; charset=utf-8": {"schema": {}}}
JOINED: dict[str, Any] = {"in": "query", "explode": False}
OPEN: dict[str, Any] = {"in": "query", "allowReserved": True}
HEADER: dict[str, Any] = {"in": "header"}
PLACES: list[tuple[dict[str, Any], Any, str]] = [
    # a parameter `v` of the document, its value, and what arrives; or the words of a refusal
    ({"in": "path", "content": OF_JSON}, ["a/b"], "/%5B%22a%2Fb%22%5D"),
    ({"in": "path", "style": "matrix", "explode": True}, ["a", 1], "/;v=a;v=1"),
    ({"in": "path", "style": "label", "explode": True}, {"a": "b.c", "n": None}, "/.a=b%2Ec"),
    ({"in": "path"}, {"a": "b/c"}, "/a,b%2Fc"),
    ({"in": "query", "content": OF_JSON}, {"a": [1]}, "v=%7B%22a%22%3A%5B1%5D%7D"),
    ({"in": "query", "content": {"text/plain": {}}}, "a&b", "v=a%26b"),
    ({"in": "query", "style": "matrix"}, ["a", "b"], "v=a&v=b"),
    (JOINED, ["a", "b,c", None], "v=a,b%2Cc"),
    (JOINED, [], ""),
    (OPEN, "a/b?c&d", "v=a/b?c%26d"),
    ({**OPEN, "explode": False}, ["a/b", "c,d"], "v=a/b,c%2Cd"),
    (
        {"in": "query", "style": "deepObject"},
        {"a": {"b": [1, None]}, "c": "x"},
        "v%5Ba%5D%5Bb%5D%5B0%5D=1&v%5Bc%5D=x",
    ),
    ({"in": "query", "style": "deepObject"}, {"a]": 1}, "'a]' must have no brackets"),
    ({**JOINED, "style": "pipeDelimited"}, ["a|b"], r"no '|' in an item"),
    ({**JOINED, "style": "spaceDelimited"}, ["a b"], r"no ' ' in an item"),
    ({**HEADER, "content": OF_JSON}, {"a": [1]}, '{"a":[1]}'),
    (HEADER, ["a", 1], "a,1"),
    (HEADER, {"a": 1, "b": "c"}, "a,1,b,c"),
    ({**HEADER, "explode": True}, {"a": 1, "b": "c"}, "a=1,b=c"),
    ({**HEADER, "explode": True}, {"a=b": 1}, "must have no `=` in its names"),
    (HEADER, ["a,b"], "must have no comma"),
    (HEADER, "a\r\nx-other: b", "must have no control characters"),
    (HEADER, " a", "no spaces at its ends"),
]


@pytest.mark.rule("OAPI-22")
async def test_value_beside_a_text_of_the_path_leads_nowhere_else(api: EchoApi) -> None:
    operation = {"operationId": "x", "parameters": [{"name": "v", "in": "path"}]}
    with pytest.raises(ToolError, match=r"'path' must have no part `\.` or `\.\.`"):
        await sent(api, operation, "/..{v}/x", v=";x")


async def sent(api: EchoApi, operation: dict[str, Any], path: str = "/", **arguments: Any) -> Any:
    """Return what arrives at the API from a call of an operation."""
    given = {"openapi": "3.1.0", "info": {}, "paths": {path: {"post": operation}}}
    transform = arguments.pop("transform", None)
    server = Server.from_openapi(given, base_url=api.url, config=QUIET, transform=transform)
    async with TestClient(server) as client:
        return await client.call("x", **arguments)


@pytest.mark.rule("OAPI-20", "OAPI-21")
@pytest.mark.parametrize(("parameter", "value", "outcome"), PLACES)
async def test_value_arrives_as_its_place_writes_it(
    api: EchoApi, parameter: dict[str, Any], value: Any, outcome: str
) -> None:
    place = parameter["in"]
    operation = {"operationId": "x", "parameters": [{"name": "v", "schema": {}, **parameter}]}
    try:
        arrived = await sent(api, operation, "/{v}" if place == "path" else "/", v=value)
    except ToolError as refusal:
        assert refusal.details is not None and refusal.details["reason"] == "not_sendable"
        assert outcome in refusal.message
    else:
        assert (arrived["headers"]["v"] if place == "header" else arrived[place]) == outcome


@pytest.mark.rule("OAPI-21")
@pytest.mark.parametrize(
    ("value", "words"), [({1}, "An argument is no JSON"), ("\ud800", "no valid Unicode text")]
)
async def test_value_of_a_program_that_is_no_json_is_refused(
    api: EchoApi, value: Any, words: str
) -> None:
    shape = {"x": {"arguments": {"v": {"from": lambda context: value}}}}
    operation = {"operationId": "x", "parameters": [{"name": "v", "in": "query", "schema": {}}]}
    with pytest.raises(ToolError, match=words):
        await sent(api, operation, transform=Transform(shape))


FILE = {"type": "string", "format": "binary"}
IMAGE = {"contentType": "image/*, image/png"}
FORMS: list[tuple[str, dict[str, Any], dict[str, Any], Any, str]] = [
    # media type, schema, `encoding` of `v`, the value of `v`, what arrives
    ("x-www-form-urlencoded", {}, {"style": "spaceDelimited"}, ["a", "b"], "v=a%20b"),
    ("x-www-form-urlencoded", {}, {"style": "form", "explode": False}, ["a", "b"], "v=a,b"),
    ("x-www-form-urlencoded", {}, {"style": "deepObject"}, {"a": [1]}, "v%5Ba%5D%5B0%5D=1"),
    ("x-www-form-urlencoded", {}, {}, {"a": 1}, "v=%7B%22a%22%3A1%7D"),
    ("x-www-form-urlencoded", {}, {}, None, ""),
    ("form-data", {}, {}, {"a": 1}, "\r\nContent-Type: application/json\r\n\r\n{"),
    ("form-data", {}, {}, True, '; name="v"\r\n\r\ntrue\r\n'),
    ("form-data", {}, {"contentType": "text/csv"}, "a,b", "\r\nContent-Type: text/csv\r\n\r\na,b"),
    (
        "form-data",
        {},
        IMAGE,
        {"data": "aGk="},
        "\r\nContent-Type: application/octet-stream\r\n\r\nhi",
    ),
    ("form-data", {}, {"contentType": "*/*"}, {"data": "aGk="}, '; filename="v"\r\n'),
    (
        "form-data",
        {"type": "array", "items": FILE},
        {},
        [{"data": "aGk=", "filename": 'a"\r\nb', "mime_type": "a/b"}],
        '; name="v"; filename="a%22%0D%0Ab"\r\nContent-Type: a/b\r\n\r\nhi\r\n',
    ),
    ("form-data", FILE, {}, {"data": "", "mime_type": "a\r\nb"}, "visible ASCII"),
]


@pytest.mark.rule("OAPI-23", "OAPI-18")
@pytest.mark.parametrize(("media_type", "schema", "encoding", "value", "outcome"), FORMS)
async def test_property_of_a_form_arrives_as_its_encoding_says(
    api: EchoApi,
    media_type: str,
    schema: dict[str, Any],
    encoding: dict[str, Any],
    value: Any,
    outcome: str,
) -> None:
    content = {
        "schema": {"type": "object", "properties": {"v": schema, "open": True}},
        "encoding": {"v": encoding},
    }
    kind = f"{'multipart' if media_type == 'form-data' else 'application'}/{media_type}"
    body = {"required": True, "content": {kind: content}}
    operation = {"operationId": "x", "requestBody": body}
    try:
        arrived = body_of(await sent(api, operation, v=value)).decode()
    except ToolError as refusal:
        assert outcome in refusal.message
    else:
        assert outcome in arrived if media_type == "form-data" else outcome == arrived


@pytest.mark.rule("OAPI-17")
async def test_form_that_is_no_object_is_sent_as_its_text(api: EchoApi) -> None:
    content = {"application/x-www-form-urlencoded": {"schema": {"type": "string"}}}
    operation = {"operationId": "x", "requestBody": {"required": True, "content": content}}
    assert body_of(await sent(api, operation, body="a=b&c")) == b"a=b&c"
