"""Results that a handler has shaped, and results that an output schema is held against."""

from __future__ import annotations

from typing import Any

import attrs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import ToolContext
from foundation_rt.base.jsonschema.compilation import compile_schema
from foundation_rt.errors import ErrorCode, ToolError
from foundation_rt.features.typed.tool_signature import add_tool
from foundation_rt.kernel.invocation import Returned
from foundation_rt.kernel.registry.tool_definition import ToolDefinition
from foundation_rt.kernel.registry.tools import RegisteredTool, ToolRegistry
from foundation_rt.kernel.results import OutputSchemaViolation, is_shaped, tool_result
from foundation_rt.protocol.content import Audio, Block, Image, ResourceLink, Text, ToolResult
from foundation_rt.protocol.revisions import REVISIONS, Revision
from tests.lab.servers.core import Core, completions, make_core, replies

OLDEST, _, OBJECTS, *_, NEWEST = REVISIONS.values()
PLENTY = 10_000
COUNT = {
    "type": "object",
    "properties": {"count": {"type": "integer"}},
    "required": ["count"],
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@attrs.define
class Count:
    count: int


def make_tool(output_schema: dict[str, Any] | None = None) -> RegisteredTool:
    definition = ToolDefinition("tool", "", {"type": "object"}, output_schema=output_schema)
    return ToolRegistry().register(definition, lambda arguments, context: None)


def titled() -> str:
    return ""


PLAIN = make_tool()
TYPED = add_tool(ToolRegistry(), titled, ToolContext)
COUNTING = make_tool(COUNT)
ANYTHING = make_tool({})


def result(
    value: Any, tool: RegisteredTool = PLAIN, revision: Revision = NEWEST, limit: int = PLENTY
) -> dict[str, Any]:
    sent: dict[str, Any] = orjson.loads(orjson.dumps(tool_result(value, tool, revision, limit)))
    return sent


def refusal(value: Any, tool: RegisteredTool = PLAIN, limit: int = PLENTY) -> ToolError:
    with pytest.raises(ToolError) as refused:
        tool_result(value, tool, NEWEST, limit)
    assert refused.value.code is ErrorCode.INTERNAL
    return refused.value


def text(of: str) -> dict[str, Any]:
    return {"type": "text", "text": of}


# -- content


PIXEL = {"type": "image", "data": "YWJj", "mimeType": "image/png"}


@pytest.mark.rule("CONT-01", "CONT-03")
@pytest.mark.parametrize(
    ("value", "content"),
    [
        (Text("hi"), [text("hi")]),
        (Image(b"abc", "image/png"), [PIXEL]),
        ([Text("a"), Image(b"abc", "image/png"), "b"], [text("a"), PIXEL, text("b")]),
        ((Text("a"), Text("b")), [text("a"), text("b")]),
        (ToolResult("hi"), [text("hi")]),
        (ToolResult([]), []),
        (ToolResult(), []),
        (ToolResult(["a", Text("b")]), [text("a"), text("b")]),
    ],
)
def test_content_is_sent_unchanged(value: Any, content: list[Any]) -> None:
    assert result(value) == {"content": content, "isError": False}


@pytest.mark.rule("CONT-01", "CONT-09")
@pytest.mark.parametrize("value", ["hi", ["hi"], [], (), [["a"]], {"type": "text"}, None, 5])
def test_plain_value_is_json_text(value: Any) -> None:
    assert not is_shaped(value, PLAIN)
    assert result(value) == {"content": [text(orjson.dumps(value).decode())], "isError": False}


@pytest.mark.rule("CONT-09")
@pytest.mark.parametrize(
    "value",
    [
        ["a", Text("b")],
        {"a": Text("b")},
        [[Text("a")]],
        [Text("a"), 5],
        [Text("a"), None],
        ToolResult(meta={"a": object()}),
        ToolResult("\ud800"),
        ToolResult(structured={1j}),
        Text("a", meta={"a": Text("b")}),
    ],
)
def test_content_mixed_with_plain_values_is_refused(value: Any) -> None:
    error = refusal(value)
    assert error.details == {"reason": "result_not_serializable"}
    assert error.__cause__ is not None


@pytest.mark.rule("CONT-04")
@pytest.mark.parametrize("revision", REVISIONS.values(), ids=REVISIONS)
def test_content_has_kinds_of_the_revision(revision: Revision) -> None:
    blocks: list[Block] = [Audio(b"", "audio/wav"), ResourceLink("a:b", "b"), Text("c")]
    kinds = [block["type"] for block in result(blocks, revision=revision)["content"]]
    assert set(kinds) <= revision.content_kinds
    assert len(kinds) == 3


@pytest.mark.rule("CONT-03")
def test_tool_result_with_all_members_is_sent() -> None:
    value = ToolResult("sorry", is_error=True, meta={"k": Count(1)})
    assert result(value) == {
        "content": [text("sorry")],
        "isError": True,
        "_meta": {"k": {"count": 1}},
    }


# -- structured results


@pytest.mark.rule("CONT-06")
@pytest.mark.parametrize("value", [{"count": 1}, Count(1), ToolResult(structured=Count(1))])
def test_value_that_fits_output_schema_is_structured_and_text(value: Any) -> None:
    assert result(value, COUNTING) == {
        "content": [text('{"count":1}')],
        "isError": False,
        "structuredContent": {"count": 1},
    }


@pytest.mark.rule("CONT-03", "CONT-06")
def test_explicit_content_replaces_text_of_structured_value() -> None:
    value = ToolResult("One.", structured={"count": 1})
    for tool in (COUNTING, PLAIN):
        assert result(value, tool)["content"] == [text("One.")]
        assert result(value, tool)["structuredContent"] == {"count": 1}


@pytest.mark.rule("CONT-10", "SCHEMA-37")
def test_too_complex_result_is_not_sent() -> None:
    alternatives = [{"properties": {f"key{at}": {"type": "integer"}}} for at in range(100)]
    schema = {"items": {"anyOf": [{"type": "null"}, *alternatives]}}
    error = refusal([0] * 1_500_000, make_tool(schema), limit=8_000_000)
    assert error.code is ErrorCode.INTERNAL
    assert error.details == {"reason": "too_complex"}


@pytest.mark.rule("CONT-10")
@pytest.mark.parametrize(
    "value", [{"count": "secret"}, {}, None, [], "secret", Text("secret"), ToolResult("secret")]
)
def test_result_that_violates_output_schema_is_not_sent(value: Any) -> None:
    error = refusal(value, COUNTING)
    assert error.details == {"reason": "output_schema_violation"}
    assert isinstance(error.__cause__, OutputSchemaViolation)
    assert "secret" not in f"{error.message} {error.__cause__}"


@pytest.mark.rule("CONT-10")
def test_violation_of_output_schema_is_logged_only() -> None:
    core = counting_core()
    effects = core.conclude(core.begin("tool"), Returned({"count": "secret"}))
    [reply] = replies(effects)
    assert orjson.loads(reply["result"]["content"][0]["text"])["code"] == "INTERNAL"
    logged = [each for each in effects if getattr(each, "message", "") == "tool result refused"]
    assert logged[0].fields["error"]["message"] == "/count must be integer"  # type: ignore[union-attr]
    [record] = completions(effects)
    assert (record.fields["outcome"], record.fields["errorCode"]) == ("tool_error", "INTERNAL")


@pytest.mark.rule("CONT-06")
def test_error_result_has_only_a_structured_value_that_fits() -> None:
    sent = result(ToolResult("no", is_error=True, structured={"count": "x"}), COUNTING)
    assert sent == {"content": [text("no")], "isError": True}
    sent = result(ToolResult("no", is_error=True, structured={"count": 1}), COUNTING)
    assert sent["structuredContent"] == {"count": 1}


@pytest.mark.rule("CONT-07")
@given(value=JSON)
def test_any_json_is_structured_since_2026_07_28(value: Any) -> None:
    sent = result(value, ANYTHING, limit=10**6)
    assert sent["structuredContent"] == value
    assert orjson.loads(sent["content"][0]["text"]) == value


@pytest.mark.rule("CONT-07", "CONT-12")
@given(value=JSON)
def test_other_values_than_objects_are_wrapped_before_2026_07_28(value: Any) -> None:
    sent = result(value, ANYTHING, OBJECTS, limit=10**6)
    assert sent["structuredContent"] == {"result": value}
    assert orjson.loads(sent["content"][0]["text"]) == value
    assert "structuredContent" not in result(value, ANYTHING, OLDEST, limit=10**6)


@pytest.mark.rule("CONT-12")
def test_a_schema_that_refers_to_itself_as_a_whole_is_not_wrapped() -> None:
    nested = make_tool({"type": "array", "items": {"$ref": "#"}})
    assert "outputSchema" not in nested.wire(OBJECTS)
    assert "structuredContent" not in result([[]], nested, OBJECTS)
    assert result([[]], nested)["structuredContent"] == [[]]
    definitions = {"node": {"type": "array", "items": {"$ref": "#/definitions/node"}}}
    named = make_tool({"$ref": "#/definitions/node", "definitions": definitions})
    schema = named.wire(OBJECTS)["outputSchema"]
    assert schema["definitions"] == definitions
    sent = result([[]], named, OBJECTS)["structuredContent"]
    assert sent == {"result": [[]]}
    assert compile_schema(schema, any_root=True).validate(sent) == ()


# -- typed tools


@pytest.mark.rule("CONT-11")
@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("hi", [text("hi")]),
        ('{"a": 1}', [text('{"a": 1}')]),
        (["hi"], [text('["hi"]')]),
        (["a", Text("b")], [text("a"), text("b")]),
        (
            ["The chart:", Image(b"abc", "image/png"), {"a": 1}, None, [2], Count(3)],
            [text("The chart:"), PIXEL, *map(text, ('{"a":1}', "null", "[2]", '{"count":3}'))],
        ),
        ((5, Text("b")), [text("5"), text("b")]),
    ],
)
def test_a_typed_tool_returns_text_and_mixed_lists(value: Any, content: list[Any]) -> None:
    assert result(value, TYPED) == {"content": content, "isError": False}


@pytest.mark.rule("CONT-11", "CALL-17", "CONT-08")
@pytest.mark.parametrize(
    "value",
    ["\ud800", [Text("a"), "\ud800"], [Text("a"), object()], ["a", ToolResult("b")], [[Text("a")]]],
)
def test_what_a_typed_tool_cannot_send_is_refused(value: Any) -> None:
    assert refusal(value, TYPED).details == {"reason": "result_not_serializable"}
    assert (refusal("x" * 11, TYPED, limit=10).details or {})["reason"] == "result_too_large"


@pytest.mark.rule("CONT-11", "CONT-12")
def test_a_structured_text_is_text_as_well() -> None:
    tool = add_tool(ToolRegistry(), titled, ToolContext, output_schema=True)
    assert result("a", tool)["structuredContent"] == "a"
    assert result("a", tool, OBJECTS) == {
        "content": [text("a")],
        "isError": False,
        "structuredContent": {"result": "a"},
    }


@pytest.mark.rule("CONT-07")
def test_null_is_structured_where_schema_allows_it() -> None:
    assert result(None, ANYTHING)["structuredContent"] is None
    assert "structuredContent" not in result(ToolResult(structured=None), PLAIN)


# -- sizes and records


@pytest.mark.rule("CONT-08")
@pytest.mark.parametrize(
    "value", [Text("x" * 100), [Text("x" * 50), Image(b"x" * 50, "image/png")]]
)
def test_result_larger_than_limit_is_refused(value: Any) -> None:
    details = refusal(value, limit=100).details
    assert details is not None
    assert details["reason"] == "result_too_large"
    assert result(value, limit=details["resultBytes"])["isError"] is False
    refusal(value, limit=details["resultBytes"] - 1)


@pytest.mark.rule("CONT-08")
def test_limit_counts_content_and_structured_value() -> None:
    whole = len('[{"type":"text","text":"{\\"count\\":1}"}]{"count":1}')
    assert result({"count": 1}, COUNTING, limit=whole)["isError"] is False
    refusal({"count": 1}, COUNTING, limit=whole - 1)


def counting_core() -> Core:
    core = make_core().handshake()
    definition = ToolDefinition("tool", "", {"type": "object"}, output_schema=COUNT)
    core.registry.register(definition, lambda arguments, context: None)
    return core


@pytest.mark.rule("CONT-08")
def test_error_result_is_recorded_as_tool_error() -> None:
    core = counting_core()
    effects = core.conclude(core.begin("tool"), Returned(ToolResult("no", is_error=True)))
    [record] = completions(effects)
    assert record.level == "info"
    assert record.fields["outcome"] == "tool_error"
    assert "errorCode" not in record.fields
    [reply] = replies(effects)
    assert reply["result"] == {"content": [text("no")], "isError": True}
