"""The schemas that are accepted, with their dialects, and the refusals of others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foundation_rt.base.jsonschema.compilation import compile_schema
from foundation_rt.base.jsonschema.dialects import DIALECTS, SHAPES_IN, URIS
from foundation_rt.errors import RegistrationError

UP_TO_07 = ("draft-04", "draft-06", "draft-07")


def tool(schema: dict[str, Any] | bool, *, dialect: str | None = None, **more: Any) -> Any:
    """Return a schema with `schema` for its property `v`."""
    declared = {} if dialect is None else {"$schema": URIS[dialect]}
    return {**declared, "type": "object", "properties": {"v": schema}, **more}


def refusal(schema: Any) -> str:
    with pytest.raises(RegistrationError) as caught:
        compile_schema(schema)
    return str(caught.value)


@pytest.mark.rule("SCHEMA-01")
@pytest.mark.parametrize(
    "schema", [{}, {"type": "string"}, {"type": ["object"]}, {"properties": {}}, {"type": None}]
)
def test_root_must_be_of_type_object(schema: dict[str, Any]) -> None:
    assert '"type": "object"' in refusal(schema)


@pytest.mark.rule("SCHEMA-02")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_dollar_schema_selects_dialect(dialect: str) -> None:
    uri = URIS[dialect].removesuffix("#")
    for spelling in (uri, uri + "#", uri.replace("http://", "https://")):
        assert compile_schema({"$schema": spelling, "type": "object"}).dialect == dialect


@pytest.mark.rule("SCHEMA-02")
@pytest.mark.parametrize("uri", ["http://json-schema.org/schema#", "draft-07", "", 7, None])
def test_unknown_dialect_is_refused(uri: Any) -> None:
    message = refusal({"$schema": uri, "type": "object"})
    assert all(known in message for known in URIS.values())


@pytest.mark.rule("SCHEMA-02")
def test_only_root_selects_dialect() -> None:
    inner = {"$schema": URIS["draft-04"]}
    assert "#/properties/v/$schema" in refusal(tool(inner, dialect="draft-07"))
    assert "#/properties/v/$schema" in refusal(tool(inner))
    compile_schema(tool(inner, dialect="draft-04"))


@pytest.mark.rule("SCHEMA-03")
@pytest.mark.parametrize(
    ("keyword", "values"),
    [
        ("type", ["strnig", [], ["string", "string"], ["any"], 1, None]),
        ("required", ["x", ["a", "a"], [1], {}]),
        ("minimum", ["5", True, None]),
        ("maximum", ["5"]),
        ("exclusiveMaximum", ["5"]),
        ("multipleOf", [0, -1, "1", True]),
        ("minLength", [-1, 1.5, "1", True, None]),
        ("maxItems", [-1]),
        ("pattern", [1]),
        ("format", [1]),
        ("title", [1]),
        ("readOnly", ["yes"]),
        ("examples", ["a"]),
        ("enum", ["a", {}]),
        ("uniqueItems", [1]),
        ("properties", [[], "a", {"a": 1}, {"a": None}]),
        ("patternProperties", [[], {"a": []}]),
        ("additionalProperties", [1, "false"]),
        ("items", [1, [], None]),
        ("allOf", [[], {}, [1]]),
        ("anyOf", [[]]),
        ("oneOf", [True]),
        ("not", [[], 1]),
        ("if", ["a"]),
        ("contains", [0]),
        ("propertyNames", ["a"]),
        ("definitions", [[], {"unused": {"type": "strnig"}}]),
        ("$defs", [{"unused": 5}]),
        ("$ref", [1]),
        ("$id", [1]),
    ],
)
def test_keyword_with_wrong_shape_is_refused(keyword: str, values: list[Any]) -> None:
    for value in values:
        for dialect in (None, "draft-07"):
            message = refusal(tool({keyword: value}, dialect=dialect))
            assert message.startswith(f"#/properties/v/{keyword}")
            assert "must be" in message


@pytest.mark.rule("SCHEMA-03")
def test_dependencies_are_schemas_or_names() -> None:
    for value in ([], {"a": 1}, {"a": ["b", "b"]}, {"a": [1]}):
        assert "#/properties/v/dependencies" in refusal(
            tool({"dependencies": value}, dialect="draft-07")
        )
    compile_schema(tool({"dependencies": {"a": ["b"], "c": {}, "d": True}}, dialect="draft-07"))


@pytest.mark.rule("SCHEMA-04")
def test_undeclared_schema_is_draft_07_if_2020_12_agrees() -> None:
    schema = {
        "type": "object",
        "title": "All that both know",
        "$id": "https://example.com/tool",
        "properties": {
            "a": {"type": "integer", "exclusiveMinimum": 0, "multipleOf": 2},
            "b": {"items": {"const": 1}, "contains": True, "uniqueItems": True},
            "c": {"if": {"minLength": 2}, "then": {"pattern": "^a"}, "else": False},
            "d": {"$ref": "#/$defs/d", "title": "may stand there", "default": 1},
        },
        "propertyNames": {"maxLength": 1},
        "$defs": {"d": {"enum": [1]}},
        "deprecated": False,
    }
    compiled = compile_schema(schema)
    assert compiled.dialect == "draft-07"
    assert compiled.warnings == ()


@pytest.mark.rule("SCHEMA-04")
@pytest.mark.parametrize(
    "schema",
    [
        {"dependentRequired": {"a": ["b"]}},
        {"dependentSchemas": {"a": {}}},
        {"unevaluatedProperties": False},
        {"unevaluatedItems": {}},
        {"contains": {}, "minContains": 0},
        {"contains": {}, "maxContains": 2},
        {"$dynamicAnchor": "x"},
        {"$ref": "#/$defs/a", "minimum": 5},
        {"$id": "https://example.com/inner"},
        {"pattern": r"\p{L}"},
        {"patternProperties": {r"(?<=a+)b": True}},
    ],
)
def test_undeclared_schema_is_2020_12_if_needed(schema: dict[str, Any]) -> None:
    assert compile_schema(tool(schema, **{"$defs": {"a": {}}})).dialect == "2020-12"


@pytest.mark.rule("SCHEMA-43")
@pytest.mark.parametrize("where", ["here", "a definition"])
def test_undeclared_prefix_items_are_those_of_draft_07(where: str) -> None:
    items = {"prefixItems": [{"type": "string"}, {"$ref": "#/$defs/b"}], "items": {"minimum": 5}}
    schema = tool(
        items if where == "here" else {"$ref": "#/$defs/a"},
        **{"$defs": {"a": items, "b": {"prefixItems": [{"const": 1}]}}},
    )
    given = json.dumps(schema)
    compiled = compile_schema(schema)
    assert (compiled.dialect, compiled.warnings) == ("draft-07", ())
    assert json.dumps(schema) == given
    for value in ("x", [], ["a"], ["a", []], ["a", [1, 2], 5], ["a", 0, 6, "x"]):
        assert compiled.validate({"v": value}) == ()
    for value, path in ([1], "/v/0"), (["a", [2]], "/v/1/0"), (["a", [1], 6, 4], "/v/3"):
        assert [each.path for each in compiled.validate({"v": value})] == [path]


@pytest.mark.rule("SCHEMA-33")
@pytest.mark.parametrize(
    "schema",
    [
        {"dependencies": {"a": ["b"]}},
        {"items": [{}]},
        {"items": {}, "additionalItems": False},
        {"minimum": 1, "exclusiveMinimum": True},
        {"$recursiveRef": "#"},
    ],
)
def test_keywords_of_older_dialects_need_declaration(schema: dict[str, Any]) -> None:
    message = refusal(tool(schema))
    keyword = list(schema)[-1]
    assert f"#/properties/v/{keyword}: `{keyword}`" in message
    assert "2020-12, as `$schema` is absent" in message
    assert "set `$schema`" in message


@pytest.mark.rule("SCHEMA-04")
def test_target_of_reference_may_need_2020_12() -> None:
    """The definition stands where no keyword leads."""
    schema = tool(
        {"$ref": "#/x-shared/a"}, **{"x-shared": {"a": {"minContains": 1, "contains": {}}}}
    )
    assert compile_schema(schema).dialect == "2020-12"


@pytest.mark.rule("SCHEMA-06")
@pytest.mark.parametrize(
    ("dialect", "schema"),
    [
        ("draft-04", {"const": 1}),
        ("draft-04", {"contains": {}}),
        ("draft-06", {"if": {}}),
        ("draft-07", {"dependentRequired": {"a": ["b"]}}),
        ("draft-07", {"prefixItems": [{}]}),
        ("draft-07", {"$anchor": "a"}),
        ("2019-09", {"prefixItems": [{}]}),
        ("2019-09", {"dependencies": {}}),
        ("2020-12", {"additionalItems": False}),
        ("2020-12", {"items": [{}]}),
    ],
)
def test_keyword_of_another_dialect_is_refused(dialect: str, schema: dict[str, Any]) -> None:
    message = refusal(tool(schema, dialect=dialect))
    (keyword,) = schema
    assert f"`{keyword}` in this form belongs to" in message
    assert f"read as {dialect}" in message


@pytest.mark.rule("SCHEMA-34")
@pytest.mark.parametrize(
    ("schema", "warning"),
    [
        ({"nullable": True}, "#/properties/v/nullable: unknown keyword"),
        ({"id": "v"}, "#/properties/v/id: unknown keyword"),
        ({"contentEncoding": "base64"}, "#/properties/v/contentEncoding: describes"),
        ({"contentMediaType": "text/plain"}, "#/properties/v/contentMediaType: describes"),
        ({"then": {}}, "#/properties/v/then: idle without `if`"),
    ],
)
def test_unenforced_keywords_are_warned_about(schema: dict[str, Any], warning: str) -> None:
    for dialect in (None, "draft-07", "2020-12"):
        (found,) = compile_schema(tool(schema, dialect=dialect)).warnings
        assert found.startswith(warning)


@pytest.mark.rule("SCHEMA-34", "SCHEMA-15")
def test_exclusive_limit_of_draft_04_alone_is_warned_about() -> None:
    compiled = compile_schema(tool({"exclusiveMinimum": True}, dialect="draft-04"))
    assert compiled.warnings == ("#/properties/v/exclusiveMinimum: idle without `minimum`",)
    assert compiled.validate({"v": 1}) == ()


@pytest.mark.rule("SCHEMA-34")
def test_content_schema_is_warned_about() -> None:
    compiled = compile_schema(tool({"contentSchema": {"type": "object"}}, dialect="2020-12"))
    assert compiled.warnings == (
        "#/properties/v/contentSchema: describes the content of a string, not enforced",
    )


@pytest.mark.rule("SCHEMA-06", "SCHEMA-34")
@pytest.mark.parametrize("dialect", UP_TO_07)
def test_siblings_of_reference_are_ignored_with_warning(dialect: str) -> None:
    beside = {"$ref": "#/definitions/a", "minimum": 5, "title": "no matter"}
    compiled = compile_schema(tool(beside, dialect=dialect, definitions={"a": {}}))
    assert compiled.warnings == (f"#/properties/v/minimum: {dialect} ignores it beside `$ref`",)
    assert compiled.validate({"v": 1}) == ()


@pytest.mark.rule("SCHEMA-06", "SCHEMA-34")
def test_siblings_of_reference_count_in_2020_12() -> None:
    schema = tool({"$ref": "#/$defs/a", "minimum": 5}, dialect="2020-12", **{"$defs": {"a": {}}})
    compiled = compile_schema(schema)
    assert compiled.warnings == ()
    assert [issue.path for issue in compiled.validate({"v": 1})] == ["/v"]


@pytest.mark.rule("SCHEMA-08")
@pytest.mark.parametrize(
    ("reference", "definitions"),
    [
        ("#/definitions/a", {"a": {"type": "integer"}}),
        ("#/definitions/a~1b~0c", {"a/b~c": {"type": "integer"}}),
        ("#/definitions/a%20b", {"a b": {"type": "integer"}}),
        ("#/definitions/", {"": {"type": "integer"}}),
        ("#/definitions/a/allOf/1", {"a": {"allOf": [{}, {"type": "integer"}]}}),
        ("https://example.com/t#/definitions/a", {"a": {"type": "integer"}}),
        ("#/x-elsewhere/0", {}),
    ],
)
def test_reference_finds_its_target(reference: str, definitions: dict[str, Any]) -> None:
    schema = tool(
        {"$ref": reference},
        dialect="draft-07",
        definitions=definitions,
        **{"$id": "https://example.com/t#", "x-elsewhere": [{"type": "integer"}]},
    )
    validate = compile_schema(schema).validate
    assert validate({"v": 1}) == ()
    assert [issue.path for issue in validate({"v": "1"})] == ["/v"]


@pytest.mark.rule("SCHEMA-08")
def test_draft_04_identifier_has_no_dollar() -> None:
    schema = tool({"$ref": "https://example.com/t#/definitions/a"}, dialect="draft-04")
    schema |= {"id": "https://example.com/t", "definitions": {"a": {"type": "integer"}}}
    assert compile_schema(schema).validate({"v": "1"}) != ()


@pytest.mark.rule("SCHEMA-08")
@pytest.mark.parametrize(
    "reference",
    ["#/definitions/b", "#/definitions/a/0", "#/type/a", "#/enum/2", "#/enum/-1", "#/enum/٠"],
)
def test_reference_without_target_is_refused(reference: str) -> None:
    schema = tool({"$ref": reference}, definitions={"a": {}}, enum=[{}, {}])
    assert f"#/properties/v/$ref: '{reference}' leads nowhere" in refusal(schema)


@pytest.mark.rule("SCHEMA-08")
def test_reference_to_non_schema_is_refused() -> None:
    assert "#/definitions/a/enum/0 must be a schema" in refusal(
        tool({"$ref": "#/definitions/a/enum/0"}, definitions={"a": {"enum": [1]}})
    )


@pytest.mark.rule("SCHEMA-08")
@pytest.mark.parametrize(
    "definitions",
    [
        {"a": {"$ref": "#/definitions/a"}},
        {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}},
        {"a": {"allOf": [{"$ref": "#/definitions/a"}]}},
        {"a": {"anyOf": [{"type": "string"}, {"$ref": "#/definitions/a"}]}},
        {"a": {"oneOf": [{"not": {"$ref": "#/definitions/a"}}]}},
        {"a": {"if": {}, "then": {"$ref": "#/definitions/a"}}},
        {"a": {"else": {"dependencies": {"x": {"$ref": "#/definitions/a"}, "y": []}}, "if": True}},
    ],
)
def test_circular_references_are_refused(definitions: dict[str, Any]) -> None:
    schema = tool({"$ref": "#/definitions/a"}, dialect="draft-07", definitions=definitions)
    assert "round in a circle" in refusal(schema)


@pytest.mark.rule("SCHEMA-08")
@pytest.mark.parametrize(
    "schema", [{"$ref": "#a"}, {"$id": "#a"}, {"$id": "https://example.com/inner"}]
)
def test_names_and_inner_identifiers_are_refused_up_to_draft_07(schema: dict[str, Any]) -> None:
    assert "#/properties/v/$" in refusal(tool(schema, dialect="draft-07"))


@pytest.mark.rule("SCHEMA-08")
def test_property_named_like_keyword_is_property() -> None:
    names = ["$ref", "$id", "id", "$schema", "type", "required", "definitions", "properties"]
    schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}}
    compiled = compile_schema(schema)
    assert compiled.warnings == ()
    assert compiled.validate(dict.fromkeys(names, 1)) == ()
    found = compiled.validate(dict.fromkeys(names, "#"))
    assert [issue.path for issue in found] == [f"/{name}" for name in names]


@pytest.mark.rule("SCHEMA-09")
@pytest.mark.parametrize("dialect", [None, *DIALECTS])
@pytest.mark.parametrize(
    "reference",
    [
        "http://localhost:9/a.json",
        "file:///etc/hostname",
        "other.json",
        "//host/a",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ],
)
def test_reference_out_of_schema_is_refused(dialect: str | None, reference: str) -> None:
    message = refusal(tool({"$ref": reference}, dialect=dialect))
    assert reference.rstrip("#") in message
    if dialect in (None, *UP_TO_07):
        assert "nothing is ever fetched" in message


@pytest.mark.rule("SCHEMA-12")
def test_invalid_pattern_is_refused() -> None:
    for dialect in (None, "draft-07", "2020-12"):
        assert "#/properties/v/pattern" in refusal(tool({"pattern": "("}, dialect=dialect))
        names = {"patternProperties": {"[b-a]": {}}}
        assert "#/properties/v/patternProperties/[b-a]" in refusal(tool(names, dialect=dialect))


@pytest.mark.rule("SCHEMA-35")
@pytest.mark.parametrize("dialect", UP_TO_07)
def test_untranslatable_pattern_is_refused_in_declared_dialect(dialect: str) -> None:
    message = refusal(tool({"pattern": r"^\p{Lu}"}, dialect=dialect))
    assert "#/properties/v/pattern: the pattern uses a Unicode property" in message
    assert "foundation-rt[jsonschema]" in message


@pytest.mark.rule("SCHEMA-13")
@pytest.mark.parametrize("name", ["iri", "idn-email", "int32", 'x"); raise SystemExit #'])
def test_unenforced_format_is_warned_about(name: str) -> None:
    for dialect in (None, *DIALECTS):
        compiled = compile_schema(tool({"format": name}, dialect=dialect))
        assert compiled.warnings == (f"#/properties/v/format: format {name!r} is not enforced",)
        assert compiled.validate({"v": "::"}) == ()


@pytest.mark.rule("SCHEMA-25")
@pytest.mark.parametrize("dialect", [None, *DIALECTS])
def test_format_is_annotation_if_formats_are_not_checked(dialect: str | None) -> None:
    schema = tool({"format": "date", "type": "string"}, dialect=dialect)
    assert compile_schema(schema).validate({"v": "never"}) != ()
    compiled = compile_schema(schema, check_formats=False)
    assert compiled.validate({"v": "never"}) == ()
    assert compiled.validate({"v": 5}) != ()
    assert compiled.warnings == ()


@pytest.mark.rule("SCHEMA-26")
@pytest.mark.parametrize("reference", ["", "#/properties/v", "#/$defs/none", "https://a.example/"])
def test_recursive_reference_targets_only_root(reference: str) -> None:
    message = refusal(tool({"$recursiveRef": reference}, dialect="2019-09"))
    assert message.startswith("#/properties/v/$recursiveRef must be '#'")
    assert compile_schema(tool({"$recursiveRef": "#"}, dialect="2019-09")).dialect == "2019-09"


@pytest.mark.rule("SCHEMA-15")
def test_draft_04_has_no_boolean_schemas() -> None:
    for schema in ({"not": True}, {"properties": {"a": True}}, {"items": False}):
        assert "must be a schema, that is an object" in refusal(tool(schema, dialect="draft-04"))
    validate = compile_schema(
        tool({"items": [{}], "additionalItems": False}, dialect="draft-04")
        | {"additionalProperties": False}
    ).validate
    assert validate({"v": [1]}) == ()
    assert len(validate({"v": [1, 2], "w": 1})) == 2


@pytest.mark.rule("SCHEMA-03")
def test_every_dialect_has_common_keywords() -> None:
    shared = set.intersection(*(set(shapes) for shapes in SHAPES_IN.values()))
    assert {"type", "properties", "required", "enum", "$ref", "items", "multipleOf"} <= shared
