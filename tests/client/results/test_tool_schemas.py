"""Tools as a server lists them: what is taken for one, what is checked, what headers repeat."""

from __future__ import annotations

import logging
import sys
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.jsonschema.header_params import HeaderParameter
from foundation_rt.client.errors import InvalidArgumentsError, InvalidResponseError
from foundation_rt.client.results.schema_check import MAX_SCHEMA_BYTES
from foundation_rt.client.results.tool_schemas import ToolSchema
from tests.lab.peers.client_vectors import cases
from tests.lab.programs.program import run_source
from tests.lab.values.json_values import json_values

FORECAST = {
    "name": "forecast",
    "inputSchema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
    "outputSchema": {"type": "array", "items": {"type": "number"}},
    "annotations": {"readOnlyHint": True},
    "x-own": [1],
}
JSON = json_values(
    st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text(max_size=5)
)


def tool(schema: dict[str, Any], **members: Any) -> ToolSchema:
    return ToolSchema.read({"name": "a", "inputSchema": schema, **members})


def mirroring(**properties: Any) -> ToolSchema:
    return tool({"type": "object", "properties": properties})


def header(name: Any, kind: Any = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name}


# -- what is a tool


@pytest.mark.rule("CTOOL-01")
def test_a_tool_is_kept_as_it_came() -> None:
    read = ToolSchema.read(FORECAST)
    assert read.name == "forecast"
    assert read.wire is FORECAST
    assert read.input_schema == FORECAST["inputSchema"]
    assert read.output_schema == FORECAST["outputSchema"]
    assert read.annotations == {"readOnlyHint": True}
    assert tool({}).output_schema is None
    assert tool({}, outputSchema=None).output_schema is None


@pytest.mark.rule("CTOOL-01")
@pytest.mark.parametrize("vector", cases("results", "tool"))
def test_invalid_tool_is_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(InvalidResponseError, match="E209 a tool is listed"):
        ToolSchema.read(vector["tool"])


MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(max_size=3) | JSON,
        "inputSchema": st.just(FORECAST["inputSchema"]) | JSON,
        "outputSchema": st.just(FORECAST["outputSchema"]) | JSON,
        "annotations": JSON,
    },
)


@pytest.mark.rule("CTOOL-01", "CTOOL-02", "CTOOL-04", "CTOOL-09")
@given(MEMBERS | JSON, JSON, st.dictionaries(st.text(max_size=3), JSON, max_size=3))
def test_whatever_is_listed_nothing_else_is_raised(
    wire: Any, value: Any, arguments: dict[str, Any]
) -> None:
    try:
        read = ToolSchema.read(wire)
    except InvalidResponseError:
        return
    for found in (read.check_arguments(arguments), read.check_output(value)):
        assert all(issue.message for issue in found)
    assert read.uncheckable is None or read.uncheckable
    assert read.is_idempotent in (True, False)
    assert read.header_params(arguments) == {} or read.header_problem is None


@pytest.mark.rule("CTOOL-03")
def test_only_true_makes_a_tool_idempotent() -> None:
    for hints in ({"readOnlyHint": True}, {"idempotentHint": True, "readOnlyHint": False}):
        assert tool({}, annotations=hints).is_idempotent
    for said in (None, {}, [], "yes", {"idempotentHint": 1}, {"idempotentHint": "true"}):
        assert not tool({}, annotations=said).is_idempotent
    assert not tool({}).is_idempotent
    assert tool({}, annotations=["a"]).annotations == {}


# -- what is checked


@pytest.mark.rule("CTOOL-02")
def test_arguments_and_results_are_held_against_the_schemas() -> None:
    read = ToolSchema.read(FORECAST)
    assert read.check_arguments({"city": "Oslo", "days": 3}) == ()
    [missing] = read.check_arguments({"days": 3})
    assert (missing.path, missing.message) == ("", 'must have the property "city"')
    [wrong] = read.check_arguments({"city": "Oslo", "days": "3"})
    assert (wrong.path, wrong.message) == ("/days", "must be integer")
    assert read.check_output([1, 2.5]) == ()
    [wrong] = read.check_output([1, "2"])
    assert (wrong.path, wrong.message) == ("/1", "must be number")
    assert read.uncheckable is None
    assert tool({}).check_output({"any": "thing"}) == ()


@pytest.mark.rule("CTOOL-22")
@pytest.mark.parametrize("dialect", [None, "https://json-schema.org/draft/2020-12/schema"])
@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_a_format_that_does_not_fit_is_a_debug_line(
    dialect: str | None, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Servers of other SDKs say date-time of datetimes without an offset."""
    when = {"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}
    schema = when if dialect is None else {**when, "$schema": dialect}
    read = tool(schema, outputSchema=schema)
    with caplog.at_level(level, "foundation_rt.client"):
        for check in (read.check_arguments, read.check_output):
            caplog.clear()
            assert check({"at": "2026-07-28T12:00:00Z"}) == ()
            assert caplog.messages == []
            assert check({"at": "2026-07-28T12:00:00"}) == ()
            line = "a format does not fit: /at must be a valid date-time"
            assert caplog.messages == ([line] if level == logging.DEBUG else [])
            assert check({"at": 5}) != ()
    assert read.uncheckable is None


@pytest.mark.rule("CTOOL-02")
def test_a_root_that_names_no_type_is_checked_all_the_same() -> None:
    read = tool({"properties": {"days": {"type": "integer"}}})
    assert read.check_arguments({"days": "3"}) != ()
    assert read.uncheckable is None


@pytest.mark.rule("CTOOL-02")
def test_nothing_is_compiled_before_it_is_needed() -> None:
    code = (
        "import sys\n"
        "from foundation_rt.client.results.tool_schemas import ToolSchema\n"
        "wire = {'name': 'a', 'inputSchema': {'type': 'object', 'maxProperties': 1}}\n"
        "tool = ToolSchema.read(wire)\n"
        "tool.annotations, tool.is_idempotent, tool.uncheckable, tool.says_the_same(tool)\n"
        "assert 'fastjsonschema' not in sys.modules\n"
        "tool.check_output([])\n"
        "assert 'fastjsonschema' not in sys.modules\n"
        "assert tool.check_arguments({}) == ()\n"
        "assert 'fastjsonschema' in sys.modules\n"
    )
    run_source(code)


UNCHECKABLE = {
    "a reference out of it": ({"properties": {"a": {"$ref": "https://x.example/s"}}}, "outside"),
    "a dialect nobody knows": ({"$schema": "https://x.example/my"}, "`\\$schema` must be one of"),
    "no schema": ({"type": "thing"}, "#/type must be"),
    "too long": ({"enum": ["x" * MAX_SCHEMA_BYTES]}, "longer than 131072 bytes"),
    "too deep": (orjson.loads(b'{"not":' * 300 + b"{}" + b"}" * 300), "Recursion limit"),
}


@pytest.mark.rule("CTOOL-04")
@pytest.mark.parametrize(("schema", "reason"), UNCHECKABLE.values(), ids=UNCHECKABLE)
def test_a_schema_that_cannot_be_compiled_refuses_nothing_and_says_why(
    schema: dict[str, Any], reason: str
) -> None:
    read = tool(schema, outputSchema=schema)
    assert read.uncheckable is None
    assert read.check_arguments({"a": 5}) == ()
    told = read.uncheckable
    assert told is not None
    assert told.startswith("inputSchema: ")
    assert read.check_output([]) == ()
    assert read.uncheckable == f"{told}; {told.replace('inputSchema', 'outputSchema', 1)}"
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(told)


EVIL = ["^(a+)+$", "^(a|a)*$", "a*a*a*a*a*b", "^(.*)*x$"]


@pytest.mark.rule("CTOOL-05")
@pytest.mark.parametrize("pattern", EVIL)
@pytest.mark.parametrize("dialect", [None, "http://json-schema.org/draft-07/schema#"])
def test_no_pattern_runs_away(pattern: str, dialect: str | None) -> None:
    # In a backtracking engine each of these takes longer than anybody waits.
    schema: dict[str, Any] = {"properties": {"a": {"pattern": pattern}, "b": {"type": "null"}}}
    if dialect is not None:
        schema["$schema"] = dialect
    read = tool(schema, outputSchema={"patternProperties": {pattern: {"type": "null"}}})
    assert [issue.path for issue in read.check_arguments({"a": "a" * 5000 + "!"})] == ["/a"]
    assert [issue.path for issue in read.check_arguments({"b": 5})] == ["/b"]
    assert read.check_output({"a" * 5000 + "!": 5}) == ()
    assert read.uncheckable is None


@pytest.mark.rule("CTOOL-05")
def test_a_pattern_that_needs_another_engine_is_not_run() -> None:
    for pattern in ("(?=a)b", "(?<!a)b", r"(a)\1"):
        read = tool({"properties": {"a": {"pattern": pattern}}})
        assert read.check_arguments({"a": "b"}) == ()
        assert read.uncheckable is not None


@pytest.mark.rule("CTOOL-05")
def test_without_the_extra_no_pattern_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    read = tool({"properties": {"a": {"pattern": "^a$"}, "b": {"type": "null"}}})
    assert read.check_arguments({"a": "b", "b": 5}) == ()
    assert read.uncheckable is not None
    assert "pip install 'foundation-rt[jsonschema]'" in read.uncheckable
    plain = tool({"properties": {"b": {"type": "null"}}})
    assert plain.check_arguments({"b": 5}) != ()


# -- what headers repeat


@pytest.mark.rule("CTOOL-09")
def test_the_arguments_that_headers_repeat_are_found() -> None:
    read = mirroring(
        region=header("Region"),
        plain={"type": "string", "default": {"x-mcp-header": 5}},
        deep={"type": "object", "properties": {"flag": header("Flag", "boolean")}},
        **{"x-mcp-header": {"type": "array"}},
    )
    assert read.header_problem is None
    assert set(read.header_parameters) == {
        HeaderParameter("Region", ("region",), "string"),
        HeaderParameter("Flag", ("deep", "flag"), "boolean"),
    }


@pytest.mark.rule("CTOOL-09")
def test_they_are_found_in_a_schema_that_cannot_be_compiled() -> None:
    read = mirroring(region=header("Region"), other={"$ref": "https://x.example/s"}, bad=5)
    assert [each.name for each in read.header_parameters] == ["Region"]
    assert read.check_arguments({}) == ()
    assert read.uncheckable is not None


@pytest.mark.rule("CTOOL-09")
@pytest.mark.parametrize("vector", cases("mirrored-arguments", "refused"))
def test_header_annotations_that_break_the_rules_are_reported(vector: dict[str, Any]) -> None:
    read = tool(vector["schema"])
    assert read.header_problem is not None
    assert "x-mcp-header" in read.header_problem
    assert read.header_parameters == ()


@pytest.mark.rule("CTOOL-09")
def test_annotations_are_looked_for_however_deep() -> None:
    # As deep as JSON is read.
    bottom = orjson.dumps(header("A"))
    sideways = orjson.loads(b'{"not":' * 1000 + bottom + b"}" * 1000)
    assert tool(sideways).header_problem is not None
    levels = 450
    deep = orjson.loads(b'{"properties":{"a":' * levels + bottom + b"}}" * levels)
    arguments = orjson.loads(b'{"a":' * levels + b'"x"' + b"}" * levels)
    read = tool(deep)
    assert read.header_problem is not None or read.header_params(arguments) == {"A": "x"}


@pytest.mark.rule("CTOOL-09", "CTOOL-10")
@pytest.mark.parametrize("vector", cases("mirrored-arguments", "headers"))
def test_headers_repeat_the_values_of_a_call(vector: dict[str, Any]) -> None:
    read = tool(vector["schema"])
    assert read.header_problem is None
    assert read.header_params(vector["arguments"]) == vector["headers"]


@pytest.mark.rule("CTOOL-10")
@pytest.mark.parametrize("vector", cases("mirrored-arguments", "unsendable"))
def test_value_that_fits_no_header_is_refused_before_sending(vector: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentsError) as caught:
        tool(vector["schema"]).header_params(vector["arguments"])
    assert [issue.path for issue in caught.value.issues] == [vector["unsendable"]]


@pytest.mark.rule("CTOOL-10")
@pytest.mark.parametrize("value", [2**53, -(2**53), 1e300, 0.5, float("inf"), b"a"])
def test_only_that_value_is_named(value: Any) -> None:
    read = mirroring(**{"a/b": header("A", "integer"), "b": header("B")})
    with pytest.raises(InvalidArgumentsError) as caught:
        read.header_params({"a/b": value, "b": "x"})
    [issue] = caught.value.issues
    assert issue.path == "/a~1b"
    assert not caught.value.may_have_run
    assert read.header_params({"a/b": 2**53 - 1}) == {"A": "9007199254740991"}


@pytest.mark.rule("CTOOL-09")
def test_header_annotations_nested_too_deeply_are_reported() -> None:
    levels = 450
    deep = orjson.loads(
        b'{"properties":{"a":' * levels + orjson.dumps(header("A")) + b"}}" * levels
    )

    def below(frames: int) -> str | None:
        return below(frames - 1) if frames else tool(deep).header_problem

    assert below(600) == "`x-mcp-header` stands too deep in the schema"


# -- what is the same


@pytest.mark.rule("CTOOL-08")
def test_tools_are_the_same_if_their_json_is() -> None:
    one = tool({"const": 1})
    assert one.says_the_same(tool({"const": 1}))
    for other in (True, 1.0, "1", None):
        assert not one.says_the_same(tool({"const": other}))
    assert not one.says_the_same(tool({"const": 1}, title="A"))
