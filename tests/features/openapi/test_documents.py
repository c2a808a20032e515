"""Documents: their text, their references, hostile ones."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt.apps.host.llm.portability import findings
from foundation_rt.base.yaml_text import parse_yaml
from foundation_rt.features.openapi.api import Api, read_api
from foundation_rt.features.openapi.documents import OpenApiError, read_document
from foundation_rt.features.openapi.schemas import SchemaConverter
from foundation_rt.features.signatures.type_schema import any_value

BASE = "https://api.example.com"
HEAD = "openapi: 3.0.3\ninfo: {title: x, version: '1'}\n"


def document(paths: Any, version: str = "3.1.0", **more: Any) -> dict[str, Any]:
    return {"openapi": version, "info": {"title": "x", "version": "1"}, "paths": paths, **more}


def of_body(schema: Any, version: str = "3.1.0", **more: Any) -> dict[str, Any]:
    """Return the schema that the body of an operation has as an argument."""
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    api = read_api(
        document({"/x": {"post": {"operationId": "x", "requestBody": body}}}, version, **more),
        {"base_url": BASE},
    )
    assert not api.skipped, api.skipped
    return api.tools[0].plan.schema


@pytest.mark.rule("OAPI-01")
def test_document_is_read_from_mapping_path_and_text(tmp_path: Path) -> None:
    given = document({"/x": {"get": {"operationId": "x"}}})
    text = orjson.dumps(given).decode()
    file = tmp_path / "api.json"
    file.write_text(text)
    yaml = f"{HEAD}paths:\n  /x:\n    get: {{operationId: x}}\n"
    for each in (
        given,
        file,
        str(file),
        text,
        text.encode(),
        b"\xef\xbb\xbf" + text.encode(),
        yaml,
    ):
        assert [tool.definition.name for tool in read_api(each, {"base_url": BASE}).tools] == ["x"]


@pytest.mark.rule("OAPI-01")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"swagger": "2.0"}, "swagger2openapi"),
        ({"openapi": "4.0.0"}, "3.0 or 3.1"),
        ({}, "3.0 or 3.1"),
        (b"[]", "is an object"),
        (b"{", "not valid JSON"),
        ("/nowhere/api.json", "cannot be read"),
        (b"a: [", "neither JSON nor YAML"),
        (document(None), "no `paths`"),
        pytest.param(b" " * ((64 << 20) + 1), "larger than 64 MiB", id="large"),
        pytest.param(b"#" * ((16 << 20) + 1), "16 MiB: write it in JSON", id="large YAML"),
    ],
)
def test_what_is_no_document_is_refused_with_advice(given: Any, words: str) -> None:
    with pytest.raises(OpenApiError, match=words):
        read_api(given, {"base_url": BASE})


@pytest.mark.rule("OAPI-02")
def test_yaml_is_read_by_the_rules_of_1_2() -> None:
    text = (
        f"{HEAD}x-a: [no, on, 010, 0x10, 2020-01-01, 1.5, null, true, 12:30:45]\nx-b: {{200: a}}\n"
        "x-d: [! 1, !!str 1, !!int 0o17, !!float 1, !!null null, '1']\n"
    )
    found = read_document(text).document
    assert found["x-a"] == ["no", "on", 10, 16, "2020-01-01", 1.5, None, True, "12:30:45"]
    assert found["x-b"] == {"200": "a"}
    assert found["x-d"] == ["1", "1", 15, 1, None, "1"]


BOMB = "\n".join(
    f"x{number}: &x{number} [{', '.join([f'*x{number - 1}'] * 10) if number else 'a'}]"
    for number in range(30)
)


@pytest.mark.rule("OAPI-02")
@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "a: &a [*a]",
        "a: {<<: {b: 1}}",
        "a: 1\na: 2",
        "a: !!python/object/apply:os.system [id]",
        "a: !!binary aGk=",
        "a: !!timestamp 2020-01-01",
        "a: !!set {b}",
        f"a: {'[' * 900}{']' * 900}",
        f"a: {'[' * 9000}{']' * 9000}",
        f"a: {'9' * 5000}",
        "a: 1e999",
        f"a: [{'1,' * 1_000_001}]",
        "".join(f"x{n}: &x{n} [{f'*x{n - 1}' if n else 1}]\n" for n in range(300)),
        "? [a]\n: b",
        "a: &a 1\n*a : b",
        "a: !!int x",
        "a: !!map [b]",
        "a: *b",
        "a: 1\n--- \nb: 2",
        "\x00",
        "a: \udcff",
    ],
)
def test_hostile_yaml_is_refused(text: str) -> None:
    with pytest.raises(OpenApiError):
        read_document(f"{HEAD}{text}\n")


@pytest.mark.rule("OAPI-47")
def test_limits_beyond_64_bits_are_doubles() -> None:
    limits = {"minimum": -9223372036854776000, "maximum": 18446744073709552000}
    parameter = {"name": "seed", "in": "query", "schema": {"type": "integer", **limits}}
    paths = {"/x": {"get": {"operationId": "x", "parameters": [parameter]}}}
    text = json.dumps(document(paths, **{"x-on": "2024-01-02"}))
    for given in (document(paths, **{"x-on": date(2024, 1, 2)}), text, f"# YAML\n{text}"):
        (tool,) = read_api(given, {"base_url": BASE}).tools
        seed = tool.plan.schema["properties"]["seed"]
        assert {name: seed[name] for name in limits} == {
            name: float(limit) for name, limit in limits.items()
        }
        assert read_document(given).document["x-on"] == "2024-01-02"
    with pytest.raises(OpenApiError, match="no JSON"):
        read_document(document({}, **{"x-set": {1}, "x-large": 1 << 70}))


@pytest.mark.rule("OAPI-02")
def test_aliases_of_honest_yaml_are_followed() -> None:
    found = read_document(f"{HEAD}x-a: &a {{b: 1}}\nx-c: [*a, *a]\n").document
    assert found["x-c"] == [{"b": 1}, {"b": 1}]
    assert parse_yaml(b"&k a: &v b\nc: {*k : 1, *v : 2}", max_values=99, max_depth=9) == {
        "a": "b",
        "c": {"a": 1, "b": 2},
    }
    text = b"a: &a [{b: 1}]\nc: [*a]"
    assert parse_yaml(text, max_values=99, max_depth=4)["c"] == [[{"b": 1}]]
    with pytest.raises(ValueError, match="deeper than 3"):
        parse_yaml(text, max_values=99, max_depth=3)


@pytest.mark.rule("OAPI-05")
def test_references_lead_to_files_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    main = f"""{HEAD}paths:
  /x:
    get:
      operationId: x
      parameters: [{{$ref: 'parts/all.yaml#/limit'}}, {{$ref: 'parts/all.yaml#/more/0'}}]
"""
    (tmp_path / "api.yaml").write_text(main)
    parts = "limit: {name: limit, in: query, schema: {$ref: '#/s'}}\ns: {$ref: more.yaml#/n}\n"
    parts += "more: [{name: skip, in: query, schema: {$ref: '#/s'}}]\n"
    (tmp_path / "parts" / "all.yaml").write_text(parts)
    (tmp_path / "parts" / "more.yaml").write_text("n: {type: integer, maximum: 5}\n")
    api = read_api(tmp_path / "api.yaml", {"base_url": BASE})
    number = {"type": "integer", "maximum": 5}
    assert api.tools[0].plan.schema["properties"] == {"limit": number, "skip": number}


@pytest.mark.rule("OAPI-05", "OAPI-09")
@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("../secret.yaml#/a", "folder"),
        ("/etc/passwd", "folder"),
        ("parts/%2e%2e/%2e%2e/secret.yaml", "folder"),
        ("http://169.254.169.254/x.yaml", "nothing is fetched"),
        ("//evil.example/x.yaml", "nothing is fetched"),
        ("file:///etc/passwd", "nothing is fetched"),
        ("#/nowhere", "leads nowhere"),
        ("#/x-circle", "circle"),
        ("link.yaml", "folder"),
        ("deep.json", "nested deeper than 200 levels"),
    ],
)
def test_reference_that_leads_out_is_refused(tmp_path: Path, reference: str, words: str) -> None:
    folder = tmp_path / "api"
    folder.mkdir()
    (tmp_path / "secret.yaml").write_text("a: {name: a, in: query}\n")
    (folder / "deep.json").write_text("[" * 202 + "]" * 202)
    (folder / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    given = document(
        {
            "/x": {"get": {"operationId": "x", "parameters": [{"$ref": reference}]}},
            "/y": {"get": {"operationId": "y"}},
        },
        **{"x-circle": {"$ref": "#/x-circle"}},
    )
    (folder / "api.json").write_bytes(orjson.dumps(given))
    api = read_api(folder / "api.json", {"base_url": BASE})
    assert [each.definition.name for each in api.tools] == ["y"]
    assert api.skipped[0].label == "GET /x" and words in api.skipped[0].reason


# -- schemas -------------------------------------------------------------------------------------


@pytest.mark.rule("OAPI-10", "OAPI-12")
@pytest.mark.parametrize(
    ("given", "expected", "version"),
    [
        (
            {"type": "string", "nullable": True},
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "3.0.3",
        ),
        ({"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}, "3.1.0"),
        (
            {"type": "number", "minimum": 1, "exclusiveMinimum": True, "maximum": 9},
            {"type": "number", "exclusiveMinimum": 1, "maximum": 9},
            "3.0.3",
        ),
        (
            {"type": "number", "minimum": 1, "exclusiveMinimum": False},
            {"type": "number", "minimum": 1},
            "3.0.3",
        ),
        (
            {"type": "number", "exclusiveMinimum": 1},
            {"type": "number", "exclusiveMinimum": 1},
            "3.1.0",
        ),
        (
            {"type": "string", "enum": ["a", None], "nullable": True},
            {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]},
            "3.0.3",
        ),
        (
            {
                "oneOf": [{"type": "string"}, {"type": "integer"}],
                "discriminator": {"propertyName": "x"},
            },
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "3.0.3",
        ),
        ({"type": "integer", "format": "int64", "x-a": 1}, {"type": "integer"}, "3.0.3"),
        (
            {"type": "string", "pattern": "^a", "minLength": -1},
            {"type": "string", "pattern": "^a"},
            "3.0.3",
        ),
        ({"type": "date", "required": True}, any_value(), "3.0.3"),
        ({"type": "string", "example": "Oslo"}, {"type": "string", "examples": ["Oslo"]}, "3.0.3"),
        (
            {"type": "object", "additionalProperties": {}},
            {"type": "object", "additionalProperties": True},
            "3.0.3",
        ),
        ({"const": "a"}, {"const": "a"}, "3.1.0"),
        (
            {"type": "string", "anyOf": [{"pattern": "a"}], "oneOf": [{"minLength": 1}]},
            {
                "type": "string",
                "anyOf": [{"type": "string", "pattern": "a"}],
                "allOf": [{"anyOf": [{"type": "string", "minLength": 1}]}],
            },
            "3.0.3",
        ),
    ],
)
def test_schema_of_openapi_becomes_json_schema(
    given: dict[str, Any], expected: dict[str, Any], version: str
) -> None:
    found = of_body({"type": "object", "properties": {"x": given}}, version)
    assert found["properties"]["x"] == expected


@pytest.mark.rule("OAPI-45")
def test_every_argument_says_its_type() -> None:
    schema = {
        "type": "object",
        "required": ["list", "any"],
        "properties": {
            "any": {"description": "Whatever it is."},
            "open": True,
            "list": {"type": "array"},
            "rows": {"type": "array", "items": {}},
            "either": {"anyOf": [{"type": "string"}, {}]},
            "one": {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            "mixed": {"type": ["string", "array"]},
        },
    }
    operation = {
        "operationId": "x",
        "parameters": [{"name": "q", "in": "query", "schema": {}}],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
    }
    [tool] = read_api(document({"/x": {"post": operation}}), {"base_url": BASE}).tools
    properties = tool.plan.schema["properties"]
    assert properties["q"] == properties["open"] == any_value()
    assert properties["any"] == {**any_value(), "description": "Whatever it is."}
    found = findings([{"name": "x", "inputSchema": tool.plan.schema}])
    assert [each for each in found if each.is_refused] == []


@pytest.mark.rule("OAPI-11", "OAPI-05")
def test_recursive_schema_stays_recursive() -> None:
    tree = {
        "type": "object",
        "properties": {
            "children": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}},
            "name": {"$ref": "#/components/schemas/Name", "description": "Of the tree."},
        },
    }
    schemas = {"Tree": tree, "Name": {"type": "string", "maxLength": 5}}
    reference = {"$ref": "#/components/schemas/Tree"}
    found = of_body({"type": "array", "items": reference}, components={"schemas": schemas})
    assert found["properties"]["body"]["items"] == {"$ref": "#/$defs/Tree"}
    properties = found["$defs"]["Tree"]["properties"]
    assert properties["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert properties["name"] == {"type": "string", "maxLength": 5, "description": "Of the tree."}


@pytest.mark.rule("OAPI-11", "OAPI-10")
@pytest.mark.parametrize(
    ("beside", "version", "expected"),
    [
        ({"description": "Of it."}, "3.0.3", {}),
        ({"description": "Of it."}, "3.1.0", {"description": "Of it."}),
        (
            {"description": "Of it.", "minItems": 1},
            "3.1.0",
            {"allOf": [{"$ref": "#/$defs/List"}, {"minItems": 1}], "description": "Of it."},
        ),
    ],
)
def test_reference_keeps_what_stands_beside_it_from_3_1_on(
    beside: dict[str, Any], version: str, expected: dict[str, Any]
) -> None:
    schemas = {"List": {"type": "array", "items": {"type": "string"}}}
    properties = {"v": {"$ref": "#/components/schemas/List", **beside}}
    found = of_body({"properties": properties}, version, components={"schemas": schemas})
    reference = {} if "allOf" in expected else {"$ref": "#/$defs/List"}
    assert found["properties"]["v"] == {**reference, **expected}


@pytest.mark.rule("OAPI-11")
def test_schemas_of_one_name_are_told_apart_and_bounded() -> None:
    def alternatives(*places: str) -> dict[str, Any]:
        return {"anyOf": [{"$ref": f"#/{place}"} for place in places]}

    structure = {"type": "array", "items": {"type": "string"}}
    several = {"x-a": {"S": structure}, "x-b": {"S": structure}, "x-c": {"/": structure}}
    found = of_body(alternatives("x-a/S", "x-b/S", "x-c/~1"), **several)
    assert [*found["$defs"]] == ["S", "S_2", "_1"]
    names = [f"x-{number}" for number in range(1_001)]
    with pytest.raises(AssertionError, match="refers to more than 1,000 others"):
        of_body(alternatives(*names), **dict.fromkeys(names, structure))


@pytest.mark.rule("OAPI-09")
@pytest.mark.parametrize(
    ("media_type", "schema", "words"),
    [
        ("application/json", '{"default": %s}', "cannot be written as JSON"),
        ("multipart/form-data", '{"properties": {"v": %s}}', "nested too deeply"),
    ],
)
def test_operation_that_is_nested_too_deeply_is_left_out(
    media_type: str, schema: str, words: str
) -> None:
    deep = '{"type": "array", "items": ' * 990 + "1" + "}" * 990
    content = f'{{"content": {{"{media_type}": {{"schema": {schema % deep}}}}}}}'
    paths = f'{{"/x": {{"post": {{"requestBody": {content}}}}}, "/y": {{"get": {{}}}}}}'
    api = read_api(f'{{"openapi": "3.1.0", "paths": {paths}}}', {"base_url": BASE})
    assert [each.operation.label for each in api.tools] == ["GET /y"]
    assert words in api.skipped[0].reason


@pytest.mark.rule("OAPI-13")
def test_read_only_properties_are_no_arguments() -> None:
    schema = {
        "type": "object",
        "required": ["id", "name"],
        "properties": {
            "id": {"type": "integer", "readOnly": True},
            "secret": {"type": "string", "writeOnly": True},
            "name": {"type": "string"},
            "size": {"enum": [1, 2]},
        },
    }
    assert list(of_body(schema)["properties"]) == ["secret", "name", "size"]
    assert of_body(schema)["required"] == ["name"]
    response = {"200": {"content": {"application/json": {"schema": schema}}}}
    given = document({"/x": {"get": {"operationId": "x", "responses": response}}})
    api = read_api(given, {"base_url": BASE, "strict_outputs": True})
    output = api.tools[0].definition.output_schema
    assert output is not None and list(output["properties"]) == ["id", "name", "size"]
    assert output["properties"]["size"]["enum"] == [1, 2]


@pytest.mark.rule("OAPI-14")
def test_large_schema_is_cut() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(8):
        properties = {f"p{number}": schema for number in range(5)} | {"open": {"$ref": "#/x-any"}}
        schema = {"type": "object", "description": "A level.", "properties": properties}
    found = of_body(schema, **{"x-any": True})
    assert len(orjson.dumps(found)) <= 64 << 10
    at, depth = found["properties"]["p0"], 0
    while "properties" in at:
        at, depth = at["properties"]["p0"], depth + 1
    assert depth >= 1 and at == {"type": "object", "description": "A level."}


# -- names and arguments -------------------------------------------------------------------------


def names(*operations: tuple[str, str | None]) -> dict[str, str]:
    paths = {}
    for path, operation_id in operations:
        paths[path] = {"get": {} if operation_id is None else {"operationId": operation_id}}
    api = read_api(document(paths), {"base_url": BASE})
    return {tool.operation.path: tool.definition.name for tool in api.tools}


@pytest.mark.rule("OAPI-06")
def test_names_are_those_of_the_document_where_hosts_take_them() -> None:
    found = names(("/a", "list-pets"), ("/b/{id}", None), ("/c", "repos/get"), ("/d", "é" * 3))
    assert found["/a"] == "list-pets" and found["/b/{id}"] == "get_b_id"
    assert found["/c"] == "repos_get" and found["/d"] == "get_root"
    long = names(("/a", "x" * 100), ("/b", "x" * 101))
    assert all(len(each) == 64 for each in long.values()) and len(set(long.values())) == 2


@pytest.mark.rule("OAPI-06")
def test_another_operation_changes_no_other_name() -> None:
    before = names(("/a", "a.b"), ("/b", "a/b"), ("/c", "a_b"), ("/d", "same"), ("/e", "same"))
    after = names(
        ("/new", "a:b"), ("/a", "a.b"), ("/b", "a/b"), ("/c", "a_b"), ("/d", "same"), ("/e", "same")
    )
    assert len(set(after.values())) == 6 and before["/c"] == "a_b"
    assert {path: after[path] for path in before} == before


@pytest.mark.rule("OAPI-16", "OAPI-17")
def test_arguments_keep_their_descriptions() -> None:
    reference, array = {"$ref": "#/x-list"}, {"type": "array", "items": {"type": "string"}}
    file = {"type": "string", "format": "binary", "description": "A file."}
    parameters = [
        {"name": "q", "in": "query", "description": "A parameter.", "schema": reference},
        {"name": "none", "in": "query", "description": "Nothing.", "schema": False},
    ]
    content = {"multipart/form-data": {"schema": {"properties": {"f": file}}}}
    given = {"parameters": parameters, "requestBody": {"content": content}}
    paths = {"/x": {"post": given}, "/y": {"post": {"requestBody": {"content": {"a/b": {}}}}}}
    paths["/z"] = {"post": {"requestBody": {"content": {"multipart/form-data": {}}}}}
    tools = read_api(document(paths, **{"x-list": array}), {"base_url": BASE}).tools
    first, second, third = [each.plan.schema["properties"] for each in tools]
    assert first["q"] == {"$ref": "#/$defs/x-list", "description": "A parameter."}
    assert first["none"] == {"not": {}, "description": "Nothing."}
    assert first["f"]["description"] == "A file."
    assert second["body"] == {"type": "string", "description": "The a/b body, in base64."}
    assert third["body"] == {"type": "object"}


@pytest.mark.rule("OAPI-16", "OAPI-17")
def test_names_that_clash_are_told_apart() -> None:
    parameters = [
        {"name": "id", "in": "header"},
        {"name": "id", "in": "query"},
        {"name": "filter[x]", "in": "query"},
        {"name": "Authorization", "in": "header"},
        {"name": "other", "in": "body"},
    ]
    schema = {"type": "object", "properties": {"id": {"type": "string"}}}
    body = {"content": {"application/json": {"schema": schema}}, "required": True}
    given = {"operationId": "x", "parameters": parameters, "requestBody": body}
    api = read_api(document({"/x/{id}": {"post": given}}), {"base_url": BASE})
    assert list(api.tools[0].plan.schema["properties"]) == [
        "id",
        "id_query",
        "filter_x",
        "id_header",
        "body",
    ]


@pytest.mark.rule("OAPI-17")
@pytest.mark.parametrize(
    ("schema", "required", "is_flat"),
    [
        ({"type": "object", "properties": {"a": {}}}, True, True),
        ({"properties": {"a": {}}, "additionalProperties": False}, True, True),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": True}, True, False),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, False, False),
        ({"type": "object", "properties": {"a": {}}}, False, True),
        ({"allOf": [{"properties": {"a": {}}}], "properties": {"b": {}}}, True, False),
        ({"type": "array"}, True, False),
        ({"type": "object"}, True, False),
        ({"type": "object", "properties": {"a/b": {}, "a.b": {}}}, True, False),
        ({"type": "object", "properties": {"a": {}}, "nullable": True}, True, False),
    ],
)
def test_properties_of_a_plain_body_are_arguments(
    schema: dict[str, Any], required: bool, is_flat: bool
) -> None:
    body = {"required": required, "content": {"application/json": {"schema": schema}}}
    api = read_api(document({"/x": {"post": {"requestBody": body}}}), {"base_url": BASE})
    assert ("body" not in api.tools[0].plan.schema["properties"]) is is_flat


# -- selection -----------------------------------------------------------------------------------


def api_of(**options: Any) -> Api:
    paths = {
        "/pets": {
            "get": {"operationId": "listPets", "tags": ["pets"]},
            "post": {"operationId": "addPet"},
        },
        "/pets/{id}": {
            "get": {"operationId": "getPet", "tags": ["pets"]},
            "delete": {"operationId": "deletePet"},
        },
        "/admin": {
            "get": {"operationId": "admin", "tags": ["internal"]},
            "head": {"operationId": "h"},
        },
    }
    options.setdefault("base_url", BASE)
    return read_api(document(paths), options)  # type: ignore[arg-type]


def tools_of(**options: Any) -> list[str]:
    return [tool.definition.name for tool in api_of(**options).tools]


@pytest.mark.rule("OAPI-04", "OAPI-07")
def test_operations_are_selected() -> None:
    import re

    everything = ["listPets", "addPet", "getPet", "deletePet", "admin"]
    assert tools_of() == everything
    assert tools_of(include=["tag:pets"]) == ["listPets", "getPet"]
    assert tools_of(include=["GET"], exclude=["tag:int*"]) == ["listPets", "getPet"]
    assert tools_of(include=["/pets/*"]) == ["getPet", "deletePet"]
    assert tools_of(include=["DELETE /pets/*", "add*"]) == ["addPet", "deletePet"]
    assert tools_of(include=[re.compile("^/a")]) == ["admin"]
    assert tools_of(exclude=[lambda each: each.method != "POST"]) == ["addPet"]
    assert tools_of(tags=["internal"]) == ["admin"]
    assert tools_of(routes=lambda each: "skip" if "pets" in each.path else None) == ["admin"]
    assert tools_of(rename={"listPets": "pets", "GET /admin": "root"})[::4] == ["pets", "root"]
    assert tools_of(rename=lambda each: each.id.lower())[1] == "addpet"
    with pytest.raises(OpenApiError, match="no kind"):
        api_of(routes={"GET": "thing"})
    with pytest.raises(OpenApiError, match="selects nothing"):
        api_of(include=[" "])


@pytest.mark.rule("OAPI-04")
def test_annotations_and_description_say_what_an_operation_does() -> None:
    by_name = {tool.definition.name: tool.definition for tool in api_of().tools}
    get, delete = by_name["getPet"].annotations, by_name["deletePet"].annotations
    assert get is not None and get.read_only and delete is not None
    assert delete.destructive and delete.idempotent and not delete.read_only
    given = {"get": {"summary": "List.", "description": "y " * 2000, "deprecated": True}}
    again = {"get": {"summary": "List.", "description": "List them all."}}
    api = read_api(document({"/x": given, "/y": again}), {"base_url": BASE})
    text, repeated = [each.definition.description for each in api.tools]
    assert text.startswith("Deprecated.\n\nList.\n\ny y") and len(text) <= 1_500
    assert repeated == "List them all."


TEXT = {"content": {"text/csv": {"schema": {"type": "object"}}, "application/json": 5}}
REFERENCE = {"application/json": {"schema": {"$ref": "#/components/schemas/S"}}}


@pytest.mark.rule("OAPI-35")
@pytest.mark.parametrize(
    ("responses", "expected"),
    [
        ({"404": {"content": REFERENCE}, "default": {"content": REFERENCE}}, None),
        ({"200": TEXT}, None),
        ({"200": TEXT, "2XX": {"content": REFERENCE}}, "S"),
        ({"200": {"content": {"application/json": {}}}}, None),
        ({"200": {"content": {"application/json": {"schema": {}}}}}, None),
    ],
)
def test_output_schema_is_that_of_json_of_the_first_success(responses: Any, expected: Any) -> None:
    s = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/S"}}}
    s["properties"]["at"] = {"type": "string", "format": "date-time"}  # type: ignore[index]
    given = document({"/x": {"get": {"responses": responses}}}, components={"schemas": {"S": s}})
    found = read_api(given, {"base_url": BASE, "strict_outputs": True}).tools[0].definition
    if expected is None:
        assert found.output_schema is None
        return
    assert found.output_schema is not None
    properties = found.output_schema["properties"]
    assert properties["next"] == {"$ref": "#/$defs/S"} and "$defs" in found.output_schema
    assert properties["at"] == {"type": "string", "format": "date-time"}


@pytest.mark.rule("OAPI-30")
def test_base_url_comes_from_the_document_or_the_option() -> None:
    paths = {"/x": {"get": {"operationId": "x"}}}
    for url in ("/", "/v1", 5, "http://[x"):
        with pytest.raises(OpenApiError, match="base_url="):
            read_api(document(paths, servers=[{"url": url}]), {})
    for url in ("ftp://x", "http://", "https://u:p@host", "http://h/{v}", "nothing", "http://h\\x"):
        with pytest.raises(OpenApiError, match="no URL"):
            read_api(document(paths), {"base_url": url})


@pytest.mark.rule("OAPI-09")
def test_what_is_no_operation_is_named() -> None:
    paths = {
        "x-note": 5,
        "pets": {"get": {}},
        "/null": {"get": None, "post": {}},
        "/list": [],
        "/fine": {"trace": 5, "get": {}},
    }
    api = read_api(document(paths), {"base_url": BASE})
    assert {each.label: each.reason for each in api.skipped} == {
        "pets": "its path does not begin with /",
        "GET /null": "it is no object",
        "/list": "it is no object",
    }
    assert [each.operation.label for each in api.tools] == ["POST /null", "GET /fine"]


# -- bounds --------------------------------------------------------------------------------------


def of_operations(schema: str, number: int) -> str:
    """Return the paths of operations that all have a schema, in YAML."""
    content = f"{{application/json: {{schema: {schema}}}}}"
    body = f"{{post: {{requestBody: {{required: true, content: {content}}}}}}}"
    return "paths:\n" + "".join(f"  /x{each}: {body}\n" for each in range(number))


ALIASES = "x-0: &a0 {type: string}\n" + "".join(
    f"x-{level}: &a{level} {{type: object, properties: {{"
    + ", ".join(f"p{each}: *a{level - 1}" for each in range(5))
    + "}}\n"
    for level in range(1, 7)
)


@pytest.mark.rule("OAPI-48")
def test_small_document_does_not_unfold_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    converted = 0
    convert = SchemaConverter.convert

    def counted(self: SchemaConverter, schema: Any) -> Any:
        nonlocal converted
        converted += 1
        return convert(self, schema)

    monkeypatch.setattr(SchemaConverter, "convert", counted)
    paths = of_operations("{$ref: '#/components/schemas/S'}", 200)
    text = f"{HEAD}{ALIASES}components: {{schemas: {{S: *a6}}}}\n{paths}"
    api = read_api(text, {"base_url": BASE})
    assert converted < 60_000
    assert len(api.tools) + len(api.skipped) == 200
    assert "include fewer operations" in api.skipped[-1].reason
    of_types: dict[str, Any] = {"type": "string"}
    for _ in range(30):
        kinds = ["object", "string", "number", "array"]
        of_types = {"type": kinds, "anyOf": [of_types]}
    assert len(orjson.dumps(of_body(of_types))) < 64 << 10


@pytest.mark.rule("OAPI-14")
def test_flat_schema_beyond_every_bound_is_left_out() -> None:
    schema = {"type": "object", "properties": {f"p{each}": {} for each in range(6_000)}}
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    paths = {"/x": {"post": {"requestBody": body}}, "/y": {"get": {"operationId": "y"}}}
    api = read_api(document(paths), {"base_url": BASE})
    assert [tool.definition.name for tool in api.tools] == ["y"]
    assert "more than 5,000 arguments" in api.skipped[0].reason


@pytest.mark.rule("OAPI-16")
def test_parameters_of_one_name_are_told_apart_by_a_digest() -> None:
    names = [chr(0x4E00 + each) for each in range(2_000)]
    parameters = [{"name": name, "in": "query"} for name in names]
    paths = {"/x": {"get": {"parameters": parameters}}}
    (tool,) = read_api(document(paths), {"base_url": BASE}).tools
    assert {each.name for each in tool.plan.parameters.values()} == set(names)


@pytest.mark.rule("OAPI-05")
@pytest.mark.parametrize("name", [".env.json", ".git/config.json", "\0", "sub", "a" * 300])
def test_reference_leads_to_no_hidden_file(tmp_path: Path, name: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    for file in (".env.json", ".git/config.json"):
        (tmp_path / file).write_text('{"get": {"operationId": "hidden"}}')
    file = tmp_path / "api.json"
    given = document({"/x": {"$ref": name}, "/y": {"get": {"operationId": "y"}}}, **{"x-files": 1})
    file.write_bytes(orjson.dumps(given))
    api = read_api(file, {"base_url": BASE})
    assert [tool.definition.name for tool in api.tools] == ["y"]
    assert "hidden file" in api.skipped[0].reason or "leads to no file" in api.skipped[0].reason
