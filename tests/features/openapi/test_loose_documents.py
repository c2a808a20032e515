"""Documents that say loosely what an API takes: it decides, and every host takes the schemas."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from foundation_rt import Server, ToolError
from foundation_rt.apps.host.llm.portability import findings
from foundation_rt.features.openapi.api import read_api
from foundation_rt.features.openapi.responses import ApiResponse, resource_contents
from foundation_rt.features.signatures.type_schema import any_value
from foundation_rt.protocol.content import TextContents
from foundation_rt.testing import TestClient
from tests.lab.peers.echo_api import EchoApi, echo_api

QUIET = {"logging": {"level": "error"}}


@pytest.fixture(scope="module")
def api() -> Iterator[EchoApi]:
    with echo_api() as served:
        yield served


def document(body: Any, media_type: str = "application/json", **more: Any) -> dict[str, Any]:
    operation = {"operationId": "x", "parameters": more.pop("parameters", [])}
    if body is not None:
        content = {media_type: {"schema": body}}
        operation["requestBody"] = {"required": True, "content": content}
    info = {"title": "x", "version": "1"}
    path = more.pop("path", "/x")
    return {"openapi": "3.1.0", "info": info, "paths": {path: {"post": operation}}, **more}


def schema_of(given: dict[str, Any]) -> dict[str, Any]:
    loaded = read_api(given, {"base_url": "https://api.example.com"})
    assert not loaded.skipped, loaded.skipped
    schema = loaded.tools[0].plan.schema
    assert [
        each for each in findings([{"name": "x", "inputSchema": schema}]) if each.is_refused
    ] == []
    return schema


async def sent(api: EchoApi, given: dict[str, Any], **arguments: Any) -> Any:
    """Return what arrives at the API, its body as a text."""
    async with TestClient(Server.from_openapi(given, base_url=api.url, config=QUIET)) as client:
        arrived = await client.call("x", **arguments)
    return {**arrived, "body": b64decode(arrived["body"]).decode()}


@pytest.mark.rule("OAPI-53")
async def test_integer_arrives_without_a_fraction_wherever_it_stands(api: EchoApi) -> None:
    integer = {"type": "integer"}
    node = {"properties": {"n": integer, "more": {"$ref": "#/components/schemas/Node"}}}
    schemas = {"components": {"schemas": {"Node": {"type": "object", **node}}}}
    parameters: list[dict[str, Any]] = [
        {"name": "p", "in": "path", "required": True, "schema": integer},
        {"name": "q", "in": "query", "schema": {"type": "array", "items": integer}},
        {"name": "h", "in": "header", "schema": {"oneOf": [integer, {"type": "string"}]}},
        {"name": "c", "in": "cookie", "schema": {"type": "integer", "nullable": True}},
    ]
    properties = {"a": {"$ref": "#/components/schemas/Node"}, "x": {"type": "number"}, "any": {}}
    body = {"type": "object", "properties": properties}
    arguments = {"p": 5.0, "q": [5.0, 6], "h": 5.0, "c": 5.0, "x": 5.0, "any": 5.0}
    arguments["a"] = {"n": 5.0, "more": {"n": 1e3}}
    given = document(body, path="/x/{p}", parameters=parameters, **schemas)
    arrived = await sent(api, given, **arguments)
    assert (arrived["path"], arrived["query"]) == ("/x/5", "q=5&q=6")
    assert (arrived["headers"]["h"], arrived["headers"]["cookie"]) == ("5", "c=5")
    assert arrived["body"] == '{"a":{"n":5,"more":{"n":1000}},"x":5.0,"any":5.0}'
    for media_type, text in (
        ("application/x-www-form-urlencoded", "n=5"),
        ("multipart/form-data", "\r\n\r\n5\r\n"),
    ):
        form = document({"type": "object", "properties": {"n": integer}}, media_type)
        assert text in (await sent(api, form, n=5.0))["body"]
    file = {"type": "string", "format": "binary"}
    form = document({"type": "object", "properties": {"f": file}}, "multipart/form-data")
    assert "\r\n\r\nyes\r\n" in (await sent(api, form, f={"data": "eWVz"}))["body"]
    with pytest.raises(ToolError, match="rounded") as refusal:
        await sent(api, given, p=5, a={"more": {"n": 1e20}})
    details = {"reason": "integer_out_of_range", "path": "/a/more/n"}
    assert refusal.value.details == details


LOOSE: list[tuple[dict[str, Any], dict[str, Any], Any]] = [
    # as the document says it, as it is advertised, a value that reaches the API
    ({"type": "string", "enum": [1, 2, 2]}, {"type": "string", "enum": ["1", "2"]}, "2"),
    (
        {"type": "integer", "enum": ["1", "2"], "default": "1"},
        {"type": "integer", "default": 1, "description": "One of 1, 2."},
        2,
    ),
    ({"type": "integer", "enum": ["low"]}, {"type": "string", "enum": ["low"]}, "low"),
    (
        {"type": "integer", "enum": [1, "auto"], "default": {"a": 1}},
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "description": 'One of 1, "auto". Default `{"a":1}`.',
        },
        "auto",
    ),
    (
        {"type": "array", "enum": ["a", "b"], "items": {"type": "string"}},
        {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        ["a"],
    ),
    ({"type": "string", "const": 1}, {"type": "string", "const": "1"}, "1"),
    (
        {"type": "string", "pattern": "/^[a-z]+$/i", "description": "A name"},
        {"type": "string", "description": "A name. Pattern `/^[a-z]+$/i`."},
        "ABC",
    ),
    *(
        (
            {"type": "string", "format": name},
            {"type": "string", "description": f"Format `{name}`."},
            value,
        )
        for name, value in (
            ("date-time", "2026-01-02 03:04:05"),
            ("time", "03:04"),
            ("uri", "/pets/1"),
            ("uuid", "6ba7b8109dad11d180b400c04fd430c8"),
            ("ipv4", "10.0.0.0/8"),
        )
    ),
    ({"type": "string", "minLength": "1", "items": {}}, {"type": "string", "minLength": 1}, "a"),
    (
        {"type": "object", "required": ["a", "a"], "properties": {"a": {"type": "string"}}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"a": ""},
    ),
    (
        {"allOf": [{"type": "string"}, {"description": "A name."}, {"nullable": True}]},
        {"allOf": [{"type": "string"}], "description": "A name."},
        "a",
    ),
    ({"items": {"type": "string"}}, {"type": "array", "items": {"type": "string"}}, ["a"]),
    (
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "examples": [["a"]]},
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "examples": [["a"]]},
        ["a"],
    ),
    ({"enum": [None]}, {"type": "null"}, None),
    (
        {"type": "string", "pattern": "["},
        {"type": "string", "description": "Pattern `[`."},
        "a",
    ),
    (
        {"type": "integer", "example": "x", "deprecated": True},
        {"type": "integer", "deprecated": True},
        1,
    ),
    ({"anyOf": [5, {"type": "string"}]}, {"anyOf": [any_value(), {"type": "string"}]}, "a"),
]


@pytest.mark.rule("OAPI-10", "OAPI-59", "OAPI-57")
@pytest.mark.parametrize(("given", "advertised", "value"), LOOSE)
async def test_api_decides_what_a_document_says_loosely(
    api: EchoApi, given: dict[str, Any], advertised: dict[str, Any], value: Any
) -> None:
    whole = document({"type": "object", "properties": {"v": given}})
    assert schema_of(whole)["properties"]["v"] == advertised
    assert orjson.loads((await sent(api, whole, v=value))["body"]) == {"v": value}


@pytest.mark.rule("OAPI-59")
def test_description_of_a_parameter_stays_beside_what_is_not_enforced() -> None:
    at = {"name": "at", "in": "query", "description": "When.", "schema": {"format": "date"}}
    found = schema_of(document(None, parameters=[at]))["properties"]["at"]
    assert found["description"] == "When. Format `date`."


@pytest.mark.rule("OAPI-58")
def test_values_of_a_schema_are_bounded() -> None:
    codes = [f"code {number}" for number in range(200_000)]
    properties = {
        "short": {"type": "string", "enum": codes[:100]},
        "long": {"type": "string", "enum": codes},
        "large": {"type": "string", "default": "x" * 100_000},
        "names": {"type": "object", "required": codes},
        "one": {"const": "x" * 100_000},
    }
    found = schema_of(document({"type": "object", "properties": properties}))
    assert found["properties"]["short"]["enum"] == codes[:100]
    assert found["properties"]["long"]["description"].startswith('One of 200,000, such as "code 0"')
    assert len(orjson.dumps(found)) < 8_000


def hierarchy(**discriminator: Any) -> dict[str, Any]:
    reference = "#/components/schemas/"
    pet = {
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": {"type": "string"}, "toy": {"$ref": f"{reference}Toy"}},
        "discriminator": {"propertyName": "kind", **discriminator},
    }
    lives = {"type": "object", "required": ["lives"], "properties": {"lives": {"type": "integer"}}}
    kitten = {"type": "object", "properties": {"age": {"type": "integer"}}}
    return {
        "Pet": pet,
        "Cat": {"allOf": [{"$ref": f"{reference}Pet"}, lives]},
        "Kitten": {"allOf": [{"$ref": f"{reference}Cat"}, kitten]},
        "Dog": {"allOf": [{"$ref": f"{reference}Pet"}], "properties": {"bark": {"type": "string"}}},
        "Toy": {"type": "object", "discriminator": {"propertyName": "kind"}},
        "Lost": {"allOf": [{"$ref": f"{reference}Nowhere"}]},
    }


@pytest.mark.rule("OAPI-55")
@pytest.mark.parametrize(
    ("mapping", "known"),
    [
        (
            {"cat": "#/components/schemas/Cat", "pup": "Dog", "dog": "Dog", "no": "#/x"},
            ["Cat", "Dog"],
        ),
        ({"pet": "Pet", "kitten": "Kitten"}, ["Pet_base", "Kitten"]),
        (None, ["Cat", "Dog"]),
    ],
)
async def test_supertype_shows_the_members_of_its_subtypes(
    api: EchoApi, mapping: Any, known: list[str]
) -> None:
    schemas = hierarchy(**({} if mapping is None else {"mapping": mapping}))
    given = document({"$ref": "#/components/schemas/Pet"}, components={"schemas": schemas})
    found = schema_of(given)
    alternatives = found["$defs"]["Pet"]["anyOf"]
    assert [each["$ref"] for each in alternatives] == [f"#/$defs/{each}" for each in known]
    if mapping and "pup" in mapping:
        assert alternatives[1]["description"] == "kind: pup or dog"
    value = {"kind": "cat", "lives": 9.0}
    assert (await sent(api, given, body=value))["body"] == '{"kind":"cat","lives":9}'


@pytest.mark.rule("OAPI-55")
def test_subtype_stands_though_its_supertype_has_an_alternative_that_is_nowhere() -> None:
    schemas, cat = hierarchy(), {"$ref": "#/components/schemas/Cat"}
    schemas["Pet"]["oneOf"] = [{"$ref": "#/nowhere"}, cat]
    found = schema_of(document(cat, components={"schemas": schemas}))
    assert found["$defs"]["Cat"]["allOf"][0] == {"$ref": "#/$defs/Pet_base"}
    assert "oneOf" not in found["$defs"]["Pet_base"]


@pytest.mark.rule("OAPI-45")
@pytest.mark.parametrize("schema", [{}, True, {"title": "Payload"}, {"nullable": True}])
async def test_body_without_a_type_is_any_json(api: EchoApi, schema: Any) -> None:
    for value in (None, 1.5, "a", False, [[1]], {"a": [None]}):
        arrived = await sent(api, document(schema), body=value)
        assert orjson.loads(arrived["body"]) == value


TEXTS = (
    *("application/x-ndjson", "application/jsonl", "application/csv", "application/sql"),
    *("application/toml", "application/graphql", "application/vnd.acme.csv", "image/svg+xml"),
    *("application/geo+json-seq", "application/rss+xml", "application/x-yaml", "text/x-any"),
)


@pytest.mark.rule("OAPI-56")
async def test_text_media_types_are_text_both_ways(api: EchoApi) -> None:
    for media_type in TEXTS:
        contents = resource_contents(
            ApiResponse(200, {"content-type": media_type}, b"\xc3\xa5"), "a:b"
        )
        assert isinstance(contents, TextContents) and contents.text == "å"
    arrived = await sent(api, document({}, "application/x-ndjson"), body='{"a":"å"}\n')
    assert arrived["body"] == '{"a":"å"}\n'
    for media_type in ("application/pdf", "application/vnd.oasis.opendocument.text", "a/b+gzip"):
        contents = resource_contents(ApiResponse(200, {"content-type": media_type}, b"a"), "a:b")
        assert not isinstance(contents, TextContents)


@pytest.mark.rule("OAPI-34")
@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        ("application/json", b"\xef\xbb\xbf%s"),
        ("", b"\xef\xbb\xbf \n%s"),
        ("application/json; charset=utf-16", "\ufeff%s".encode("utf-16-le")),
        ("application/problem+json", b"%s"),
    ],
)
async def test_json_keeps_its_digits_in_any_encoding(
    api: EchoApi, media_type: str, body: bytes
) -> None:
    digits = "-12345678901234567890123"
    written = f'{{"a":{digits}}}'
    encoding = "utf-16-le" if b"\x00" in body else "utf-8"
    content = body.decode(encoding).replace("%s", written).encode(encoding)
    headers = {"content-type": media_type} if media_type else {}
    server = Server.from_openapi(document(None), base_url=api.url, config=QUIET)
    for status, count in ((200, 2), (422, 1)):
        api.answers["/x"] = (status, headers, content)
        async with TestClient(server) as client:
            result = await client.request("tools/call", {"name": "x", "arguments": {}})
        assert str(result).count(digits) >= count, result
    del api.answers["/x"]
