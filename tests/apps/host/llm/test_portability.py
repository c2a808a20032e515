"""Tools as vendors take them: what is mended, renamed and cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.apps.host.llm import tool_forms
from foundation_rt.apps.host.llm.portability import (
    CLAUDE,
    GEMINI,
    MAX_DESCRIPTION,
    OPENAI,
    VENDORS,
    findings,
    simple_schema,
    taken_schema,
)
from foundation_rt.apps.host.llm.tool_forms import ToolForms, wire_name
from foundation_rt.features.signatures.type_schema import any_value
from tests.lab.models.chats import model_tool

TEXT = {"type": "string"}
KINDS = ("string", "integer", "array", "object", "null", "boolean", "nonsense", 5)
KEYWORDS = (
    "$ref", "additionalProperties", "allOf", "anyOf", "const", "description", "enum",
    "exclusiveMinimum", "items", "minimum", "not", "oneOf", "prefixItems", "properties", "required",
    "type",
)  # fmt: skip
LEAVES = st.sampled_from(
    [*KINDS, "#", "#/properties/a", "#/$defs/x", "#/items", "a", True, False, None, 1.5]
)


def schemas() -> st.SearchStrategy[Any]:
    """Return schemas, and much that looks like one."""
    names = st.sampled_from([*KEYWORDS, "$defs", "a", "$filter", "x", "x" * 70])
    inner = st.recursive(
        LEAVES,
        lambda more: st.dictionaries(names, more, max_size=4) | st.lists(more, max_size=3),
        max_leaves=25,
    )
    return st.dictionaries(names, inner, max_size=6)


@pytest.mark.rule("LLM-23", "CLI-43")
@given(schema=schemas(), vendor=st.sampled_from([*VENDORS, None]))
def test_whatever_a_schema_is_vendors_take_it_once_it_is_mended(
    schema: dict[str, Any], vendor: str | None
) -> None:
    hosts = VENDORS if vendor is None else (vendor,)
    before = json.dumps(schema)
    for given_schema in (schema, simple_schema(schema)):
        taken, _, _ = taken_schema(given_schema, hosts)
        found = findings([{"name": "a", "inputSchema": taken}])
        assert not [each for each in found if each.is_refused and {*each.hosts} & {*hosts}]
    assert json.dumps(schema) == before


@pytest.mark.rule("LLM-23")
@pytest.mark.parametrize(
    ("vendor", "schema", "taken"),
    [
        (GEMINI, {"properties": {"b": TEXT}}, {"type": "object", "properties": {"b": TEXT}}),
        (GEMINI, {"items": TEXT}, {"type": "array", "items": TEXT}),
        (GEMINI, True, any_value(1)),
        (GEMINI, {"enum": [1, "a"]}, {"description": 'One of: [1,"a"].', **any_value(0)}),
        (
            GEMINI,
            {"type": "object", "properties": {"b": TEXT}, "required": ["b", "c", 5]},
            {"type": "object", "properties": {"b": TEXT}, "required": ["b"]},
        ),
        (OPENAI, {"type": "array"}, {"type": "array", "items": any_value(0)}),
        (
            GEMINI,
            {"type": ["string", "null"], "description": "A."},
            {"description": "A.", "anyOf": [{"type": "string"}, {"type": "null"}]},
        ),
        (
            GEMINI,
            {"type": "integer", "enum": [1, 2], "description": "A."},
            {"type": "integer", "description": "A. One of: [1,2]."},
        ),
        (CLAUDE, {"minimum": 0, "exclusiveMinimum": True}, {"exclusiveMinimum": 0}),
        (
            OPENAI,
            {"type": "array", "items": [TEXT, {"type": "integer"}]},
            {"type": "array", "items": {"anyOf": [TEXT, {"type": "integer"}]}},
        ),
    ],
)
def test_what_a_vendor_refuses_is_said_in_another_way(
    vendor: str, schema: Any, taken: dict[str, Any]
) -> None:
    whole, _, _ = taken_schema({"type": "object", "properties": {"a": schema}}, (vendor,))
    assert whole["properties"]["a"] == taken


@pytest.mark.rule("LLM-23")
def test_alternatives_at_the_root_leave_their_properties() -> None:
    schema = {
        "oneOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"$ref": "#/$defs/b"}],
        "allOf": [{"properties": {"c": TEXT}, "required": ["c"]}],
        "$defs": {"b": {"properties": {"b": TEXT}}},
    }
    taken, _, problems = taken_schema(schema, (CLAUDE,))
    assert taken["properties"] == {"a": TEXT, "b": TEXT, "c": TEXT}
    assert (taken["required"], taken["type"]) == (["c"], "object")
    assert problems == ["anyOf, oneOf or allOf at the root"]


@pytest.mark.rule("LLM-23")
def test_simple_schema_has_one_type_for_each_parameter_and_its_items() -> None:
    many = {"a": {"type": "array", "items": {"type": "integer"}}, "b": {"type": "array"}, "c": 5}
    assert simple_schema({"properties": many})["properties"] == {
        "a": {"type": "array", "items": {"type": "integer"}},
        "b": {"type": "array", "items": {"type": "string"}},
        "c": TEXT,
    }


@pytest.mark.rule("CLI-43")
def test_description_that_a_vendor_does_not_take_is_found() -> None:
    long = {"name": "a", "description": "x" * (MAX_DESCRIPTION + 1), "inputSchema": None}
    [found] = findings([long])
    assert str(found) == (
        "a, description: 1025 characters, more than 1024: refused by Azure OpenAI;"
        " write a shorter one"
    )


@pytest.mark.rule("LLM-111")
def test_parameters_have_names_that_the_vendor_takes_and_come_back_under_their_own() -> None:
    own = {"$filter": TEXT, "filter": TEXT, "$": TEXT, "x" * 70: TEXT, "ok": TEXT}
    tool = model_tool("2fast:list", "List.", **own)
    form = ToolForms((CLAUDE,)).of(tool)
    assert form.sent is not None
    sent = form.sent.parameters
    assert [*sent["properties"]] == ["filter_1", "filter", "p", "x" * 56, "ok"]
    assert sent["required"] == [*sent["properties"]]
    arguments = {name: name for name in own}
    assert form.inward(form.outward(arguments)) == arguments
    assert form.outward(arguments)["filter_1"] == "$filter"
    assert form.inward({"filter": 1, "$filter": 2}) == {"filter": 1, "$filter": 2}
    assert form.name == wire_name("2fast__list")
    assert form.name.startswith("t_2fast__list_")
    assert "the parameter $filter is called filter_1" in form.notes


@pytest.mark.rule("LLM-23")
def test_huge_schema_is_sent_simple_and_a_new_definition_is_tried_anew() -> None:
    forms = ToolForms((OPENAI,))
    tool = model_tool("a:b", "B.", a={"type": "object", "properties": {"x" * 70_000: TEXT}})
    form = forms.of(tool)
    assert form.sent is not None
    assert form.sent.parameters["properties"] == {"a": {"type": "object"}}
    small = model_tool("a:b", "B.", a=TEXT)
    for attempt in (1, 2, 3):
        form = forms.of(small)
        assert form.sent is not None
        assert forms.refused("tools[0] is wrong", [form.sent], attempt)
    assert forms.of(small).sent is None
    for _ in range(3):  # then none is left that is stricter
        assert forms.refused("`a__b` is wrong", [small], 5)
    assert not forms.refused("it is wrong", [small], 5)
    assert not forms.refused("`a__b` is wrong", [small], 9)
    assert forms.of(model_tool("a:b", "C.", a=TEXT)).sent is not None


@pytest.mark.rule("LLM-23")
def test_people_read_what_a_vendor_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_forms, "_MAX_KEPT", 1)
    forms = ToolForms((CLAUDE,))
    root = evolve(model_tool("a:b", "B."), parameters={"anyOf": [{"properties": {"a": TEXT}}]})
    said = ("its parameters are simplified (anyOf, oneOf or allOf at the root)",)
    for _ in range(2):
        assert forms.of(root).notes == said
        assert forms.of(model_tool("a:c", "C.")).notes == ()
    assert [*forms._made] == ["a:c"]
