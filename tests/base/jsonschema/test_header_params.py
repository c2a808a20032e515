"""Arguments that headers repeat: accepted and refused annotations."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.jsonschema.compilation import compile_schema
from foundation_rt.base.jsonschema.header_params import HeaderParameter, header_parameters
from foundation_rt.errors import RegistrationError
from foundation_rt.features.signatures.constraints import Header
from tests.lab.apps.signatures import derive_tool

REGION = {"type": "string", "x-mcp-header": "Region"}


def found(schema: dict[str, Any]) -> tuple[HeaderParameter, ...]:
    return header_parameters(schema, compile_schema(schema).header_params)


def with_properties(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.rule("SCHEMA-23")
def test_every_annotated_argument_is_found_with_its_path_and_type() -> None:
    inner = with_properties(**{"a/b": {"type": "boolean", "x-mcp-header": "Flag"}})
    schema = with_properties(
        region=REGION,
        plain={"type": "string"},
        always=True,
        deep=inner,
        count={"type": "integer", "x-mcp-header": "x!#$%&'*+-.^_`|~9"},
    )
    assert found(schema) == (
        HeaderParameter("Region", ("region",), "string"),
        HeaderParameter("Flag", ("deep", "a/b"), "boolean"),
        HeaderParameter("x!#$%&'*+-.^_`|~9", ("count",), "integer"),
    )
    assert compile_schema(schema).warnings == ()


@pytest.mark.rule("SCHEMA-23", "SCHEMA-38")
def test_lookalike_of_annotation_is_ignored() -> None:
    schema = with_properties(**{"x-mcp-header": {"type": "array"}, "a": {"enum": [REGION]}})
    schema["default"] = {"x-mcp-header": 5}
    assert found(schema) == ()


@pytest.mark.rule("SCHEMA-23")
def test_long_names_with_same_beginning_are_all_found() -> None:
    names = [f"{'x' * 150}{number}" for number in range(2)]
    schema = with_properties(
        **{name: {"type": "string", "x-mcp-header": name[-3:]} for name in names}
    )
    assert [each.path for each in found(schema)] == [(name,) for name in names]


NAMES = ["", "My Region", "Region:Primary", "R\u00e9gion", "Region\t1", "a\r\nb", "a\x00", "(a)"]


@pytest.mark.rule("SCHEMA-23")
@pytest.mark.parametrize("name", NAMES)
def test_header_name_that_is_no_token_is_refused(name: str) -> None:
    with pytest.raises(RegistrationError, match="#/properties/a: `x-mcp-header` must be a token"):
        found(with_properties(a={"type": "string", "x-mcp-header": name}))


@pytest.mark.rule("SCHEMA-23")
def test_header_name_that_is_no_string_is_refused() -> None:
    with pytest.raises(RegistrationError, match="x-mcp-header must be a string"):
        found(with_properties(a={"type": "string", "x-mcp-header": 5}))


@pytest.mark.rule("SCHEMA-38")
@pytest.mark.parametrize("kind", ["array", "object", "null", "number", ["string", "null"], None])
def test_only_scalar_arguments_can_be_annotated(kind: Any) -> None:
    schema = {"x-mcp-header": "A"} if kind is None else {"type": kind, "x-mcp-header": "A"}
    with pytest.raises(RegistrationError, match="needs a `type` beside it that is one of boolean"):
        found(with_properties(a=schema))


@pytest.mark.rule("SCHEMA-23", "SCHEMA-38")
@pytest.mark.parametrize("other", ["Region", "REGION", "rEgion"])
def test_duplicate_name_in_other_case_is_refused(other: str) -> None:
    with pytest.raises(RegistrationError, match="is there twice"):
        found(with_properties(a=REGION, b={"type": "string", "x-mcp-header": other}))


ELSEWHERE: dict[str, dict[str, Any]] = {
    "the root": {"x-mcp-header": "Region"},
    "items": {"properties": {"a": {"type": "array", "items": REGION}}},
    "in items": {"properties": {"a": {"items": with_properties(b=REGION)}}},
    "allOf": {"allOf": [{"properties": {"a": REGION}}]},
    "anyOf": {"properties": {"a": {"anyOf": [REGION, {"type": "null"}]}}},
    "oneOf": {"oneOf": [REGION]},
    "not": {"not": REGION},
    "then": {"if": {}, "then": {"properties": {"a": REGION}}},
    "patterns": {"patternProperties": {"a": REGION}},
    "the rest": {"additionalProperties": REGION},
    "a definition": {
        "definitions": {"a": REGION},
        "properties": {"a": {"$ref": "#/definitions/a"}},
    },
    "a tuple": {"properties": {"a": {"prefixItems": [REGION]}}},
    "2020-12": {"dependentRequired": {}, "$defs": {"a": REGION}, "prefixItems": [{}]},
}


@pytest.mark.rule("SCHEMA-38")
@pytest.mark.parametrize("schema", ELSEWHERE.values(), ids=ELSEWHERE)
def test_annotation_not_reached_by_properties_is_refused(
    schema: dict[str, Any],
) -> None:
    with pytest.raises(RegistrationError, match="may stand on properties only"):
        found({"type": "object", **schema})


@pytest.mark.rule("SCHEMA-23", "SCHEMA-38")
@given(st.text(max_size=8))
def test_any_name_is_valid_header_or_refused(name: str) -> None:
    try:
        [parameter] = found(with_properties(a={"type": "string", "x-mcp-header": name}))
    except RegistrationError:
        return
    assert parameter.name == name
    assert name.isascii()
    assert name.isprintable()
    assert not set(name) & set(' ,:;"()<>@/[]?={}\\')


@pytest.mark.rule("SCHEMA-24")
def test_result_schema_may_have_any_root() -> None:
    for root in (
        {},
        {"type": "array"},
        {"type": ["string", "null"]},
        {"anyOf": [{"type": "null"}]},
    ):
        with pytest.raises(RegistrationError, match='must have "type": "object" at its root'):
            compile_schema(root)
        compile_schema(root, any_root=True)
    listing = compile_schema({"type": "array", "items": {"type": "integer"}}, any_root=True)
    assert listing.validate([1, 2]) == ()
    assert [issue.path for issue in listing.validate([1, "2"])] == ["/1"]
    assert listing.validate({}) != ()


@pytest.mark.rule("TYPED-25")
def test_typed_tool_annotates_its_arguments() -> None:
    def query(region: Annotated[str, Header("Region"), "Where."], text: str) -> None: ...

    schema = derive_tool(query).input_schema
    assert schema["properties"]["region"] == {
        "type": "string",
        "x-mcp-header": "Region",
        "description": "Where.",
    }
    assert found(schema) == (HeaderParameter("Region", ("region",), "string"),)
