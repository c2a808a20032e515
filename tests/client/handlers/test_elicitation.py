"""Forms and pages on the client's side: what is read, what is sent for an answer."""

from __future__ import annotations

import string
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client.handlers.elicitation import (
    MAX_CHOICES,
    MAX_FIELDS,
    MAX_FORM_BYTES,
    read_form,
    read_page,
)
from foundation_rt.client.handlers.params import ServerRequestRefused
from foundation_rt.features.server_requests.elicitation import Elicit, ElicitResult, ElicitUrl
from foundation_rt.features.server_requests.errors import InvalidClientResult
from foundation_rt.features.server_requests.forms import Forms
from foundation_rt.protocol.revisions import REVISIONS
from tests.lab.peers.clients import peer
from tests.lab.values.json_values import json_values

NEWEST = REVISIONS["2026-07-28"]
NAMED = REVISIONS["2025-11-25"]


def form(properties: Any, **more: Any) -> dict[str, Any]:
    return {"message": "?", "requestedSchema": {"type": "object", "properties": properties, **more}}


def fill_in(params: Mapping[str, Any], answer: Any) -> Any:
    _, write = read_form(params)
    return write(answer)


def refusal(params: Mapping[str, Any]) -> ServerRequestRefused:
    with pytest.raises(ServerRequestRefused) as caught:
        read_form(params)
    return caught.value


def issues(params: Mapping[str, Any], answer: Any) -> tuple[tuple[str, str], ...]:
    with pytest.raises(InvalidClientResult) as caught:
        fill_in(params, answer)
    return caught.value.issues


@pytest.mark.rule("QUEST-04")
def test_a_handler_sees_the_form_as_it_came() -> None:
    properties = {"name": {"type": "string", "title": "Name", "x-hint": 1}}
    request, _ = read_form(
        {"message": "Who?", **form(properties), "task": {"ttl": 1}} | {"message": "Who?"}
    )
    assert request.message == "Who?"
    assert request.schema == {"type": "object", "properties": properties}


@pytest.mark.rule("QUEST-04")
@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        ({"name": "Ada"}, {"action": "accept", "content": {"name": "Ada"}}),
        (MappingProxyType({"name": "Ada"}), {"action": "accept", "content": {"name": "Ada"}}),
        (ElicitResult("accept", {"name": "Ada"}), {"action": "accept", "content": {"name": "Ada"}}),
        (ElicitResult("accept"), {"action": "accept", "content": {}}),
        ({}, {"action": "accept", "content": {}}),
        (None, {"action": "decline"}),
        (ElicitResult("decline", {"name": "Ada"}), {"action": "decline"}),
        (ElicitResult("cancel"), {"action": "cancel"}),
    ],
)
def test_handler_value_becomes_the_result(answer: Any, sent: Any) -> None:
    assert fill_in(form({"name": {"type": "string"}}), answer) == sent


@pytest.mark.rule("QUEST-06")
def test_omitted_field_gets_its_default() -> None:
    defaults = {"name": "John Doe", "age": 30, "score": 95.5, "status": "active", "verified": True}
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
        "nick": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    }
    params = form(fields, required=["name"])
    request, _ = read_form(params)
    assert request.defaults == defaults
    assert fill_in(params, {})["content"] == defaults
    assert fill_in(params, {"age": 31, "nick": "J"})["content"] == {
        **defaults,
        "age": 31,
        "nick": "J",
    }
    assert fill_in(params, {"verified": False})["content"]["verified"] is False


@pytest.mark.rule("QUEST-06", "QUEST-22")
@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ({"type": "string"}, 1, "must be string"),
        ({"type": "string"}, None, "must be string"),
        ({"type": "string", "minLength": 2}, "a", "must have at least 2 characters"),
        ({"type": "string", "maxLength": 2}, "abc", "must have at most 2 characters"),
        ({"type": "string", "format": "email"}, "ada", "must be a valid email"),
        ({"type": "string", "enum": ["a"]}, "b", 'must be one of "a"'),
        ({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}, "A", 'must be one of "a"'),
        ({"type": "integer"}, 1.5, "must be integer"),
        ({"type": "integer"}, True, "must be integer"),
        ({"type": "number", "minimum": 2}, 1, "must be at least 2"),
        ({"type": "number", "maximum": 2}, 3, "must be at most 2"),
        ({"type": "number"}, float("nan"), "must be number"),
        ({"type": "boolean"}, 1, "must be boolean"),
        ({"type": "array", "items": {"type": "string"}}, "ab", "must be array"),
        ({"type": "array", "minItems": 1}, [], "must have at least 1 items"),
        ({"type": ["string", "null"]}, None, "must be string or number or boolean or array"),
        ({"anyOf": [{"type": "object"}]}, {}, "must be string or number or boolean or array"),
        ({}, {"a": 1}, "must be string or number or boolean or array"),
    ],
)
def test_value_outside_the_form_is_not_sent(field: Any, value: Any, what: str) -> None:
    assert issues(form({"f": field}), {"f": value}) == (("/content/f", what),)


@pytest.mark.rule("QUEST-06")
@pytest.mark.parametrize(
    ("answer", "path", "what"),
    [
        ({"action": "accept", "content": {}}, "/content", 'the properties "action", "content"'),
        ({"f": "", "other": 1}, "/content", 'must not have the property "other"'),
        ({"f": b"bytes"}, "/content", "is not JSON"),
        ({"f": {1, 2}}, "/content", "is not JSON"),
        ({1: "f"}, "/content", "is not JSON"),
        ({"f": "\ud800"}, "/content", "is not JSON"),
        ({}, "/content", 'must have the property "f"'),
        (ElicitResult("accept", ["f"]), "/content", "is not an object"),
        (ElicitResult("perhaps", {}), "/action", "is not one of"),  # type: ignore[arg-type]
        (ElicitResult([], {}), "/action", "is not one of"),  # type: ignore[arg-type]
        (True, "", "is not an ElicitResult"),
        ("accept", "", "is not an ElicitResult"),
        ([], "", "is not an ElicitResult"),
    ],
)
def test_an_answer_that_is_none_is_not_sent(answer: Any, path: str, what: str) -> None:
    seen = issues(form({"f": {"type": "string"}}, required=["f"]), answer)
    assert {where for where, _ in seen} == {path}
    assert any(what in text for _, text in seen)


@pytest.mark.rule("QUEST-17")
def test_choices_of_a_list() -> None:
    named = {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "maxItems": 1}
    titled = {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}
    assert fill_in(form({"f": named}), {"f": ["a"]})["content"] == {"f": ["a"]}
    assert fill_in(form({"f": titled}), {"f": ["a", "a"]})["content"] == {"f": ["a", "a"]}
    assert issues(form({"f": named}), {"f": ["a", "b"]}) == (
        ("/content/f", "must have at most 1 items"),
    )
    assert issues(form({"f": titled}), {"f": ["A"]}) == (("/content/f/0", 'must be one of "a"'),)
    assert issues(form({"f": titled}), {"f": [1]})[0] == ("/content/f/0", "must be string")


@pytest.mark.rule("QUEST-05")
@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"properties": {"a": {"type": "string", "enum": [*range(MAX_CHOICES + 1)]}}}, ""),
        (
            {"properties": {"a": {"type": "string", "oneOf": [{"const": "x"}] * 200_000}}},
            "/properties/a/oneOf",
        ),
        (
            {
                "properties": {
                    f"f{each}": {"type": "array", "items": {"enum": [*map(str, range(30))]}}
                    for each in range(MAX_FIELDS)
                }
            },
            "",
        ),
        ({"properties": {}, "required": [*map(str, range(MAX_FIELDS + 1))]}, "/required"),
        ({"properties": {"a": {"type": "string", "enum": ["x" * MAX_FORM_BYTES]}}}, ""),
    ],
)
def test_a_form_that_costs_too_much_is_refused(schema: Any, path: str) -> None:
    with pytest.raises(ServerRequestRefused) as caught:
        read_form({"message": "?", "requestedSchema": {"type": "object", **schema}})
    assert caught.value.data["reason"] == "invalid_params"
    assert caught.value.data["path"].startswith(f"/requestedSchema{path}")


@pytest.mark.rule("QUEST-18")
def test_pattern_of_a_server_is_not_evaluated() -> None:
    evil = {"type": "string", "pattern": "^(a+)+$", "default": "a" * 60 + "!"}
    remote = {"type": "string", "$ref": "https://evil.example/schema"}
    choice = {"type": "string", "oneOf": [{"const": "a", "pattern": "^(a+)+$"}]}
    assert fill_in(form({"f": evil}), {})["content"] == {"f": "a" * 60 + "!"}
    assert fill_in(form({"f": remote}), {"f": "a"})["content"] == {"f": "a"}
    assert fill_in(form({"f": choice}), {"f": "a"})["content"] == {"f": "a"}
    many = {f"f{index}": {"type": "string"} for index in range(MAX_FIELDS + 1)}
    assert refusal(form(many)).data["path"] == "/requestedSchema/properties"
    del many["f0"]
    read_form(form(many))


@pytest.mark.rule("QUEST-17")
@pytest.mark.parametrize("dialect", ["2020-12/schema", "2019-09/schema", "never/heard/of"])
def test_a_form_is_the_same_in_every_dialect(dialect: str) -> None:
    params = form(
        {"f": {"type": "string"}}, **{"$schema": f"https://json-schema.org/draft/{dialect}"}
    )
    assert fill_in(params, {"f": "a"})["content"] == {"f": "a"}


JSON = json_values(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=5)
)
KEYWORD = st.sampled_from(
    ["type", "enum", "oneOf", "items", "default", "minLength", "maximum", "format", "minItems"]
)
FIELD = JSON | st.dictionaries(
    KEYWORD,
    JSON
    | st.sampled_from(["string", "array", "integer", "boolean", "email", [], [{"const": "a"}]]),
    max_size=4,
)


@pytest.mark.rule("QUEST-03", "QUEST-22")
@given(
    st.dictionaries(st.text(max_size=3), FIELD, max_size=3),
    JSON,
    st.none() | st.dictionaries(st.text(max_size=3), JSON, max_size=3),
)
def test_any_json_is_a_form_or_refused(properties: Any, wanted: Any, answer: Any) -> None:
    try:
        sent = fill_in(form(properties, required=wanted), answer)
    except (ServerRequestRefused, InvalidClientResult):
        return
    assert orjson.loads(orjson.dumps(sent)) == sent
    assert sent.get("content", {}).keys() <= properties.keys()


@pytest.mark.rule("QUEST-06")
@given(st.sampled_from(["2025-06-18", "2025-11-25", "2026-07-28"]), st.data())
def test_elicitation_of_this_runtime_can_be_read(revision: str, data: Any) -> None:
    name = st.text(string.ascii_letters, min_size=1, max_size=4)
    fields = {
        "string": ({"type": "string", "minLength": 1}, st.text("ab", min_size=1)),
        "choice": ({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}, st.just("a")),
        "integer": ({"type": "integer", "minimum": 0}, st.integers(0, 9)),
        "number": ({"type": "number", "default": 1.5}, st.floats(-9, 9)),
        "boolean": ({"type": "boolean", "default": True}, st.booleans()),
    }
    kinds = data.draw(st.dictionaries(name, st.sampled_from([*fields])))
    schema = {
        "type": "object",
        "properties": {key: fields[kind][0] for key, kind in kinds.items()},
        "required": [key for key, kind in kinds.items() if kind == "string"],
    }
    answer = {key: data.draw(fields[kind][1]) for key, kind in kinds.items()}
    asked = Elicit("?", schema).prepare(peer(revision), Forms(), "run/1")
    assert asked.read(fill_in(asked.params, answer)) == ElicitResult("accept", answer)


# -- pages ---------------------------------------------------------------------------------------

PAGE = {"mode": "url", "message": "Pay", "url": "https://pay.example/1?q", "elicitationId": "e"}


@pytest.mark.rule("QUEST-07")
@pytest.mark.parametrize(
    ("answer", "action"),
    [
        (True, "accept"),
        (False, "decline"),
        (None, "decline"),
        (ElicitResult("accept", {"secret": 1}), "accept"),
        (ElicitResult("cancel"), "cancel"),
    ],
)
def test_a_visit(answer: Any, action: str) -> None:
    page, write = read_page(PAGE, NAMED)
    assert (page.message, page.url, page.elicitation_id) == ("Pay", "https://pay.example/1?q", "e")
    assert write(answer) == {"action": action}


@pytest.mark.rule("QUEST-07")
@pytest.mark.parametrize("answer", [1, {}, "accept", {"action": "accept"}, ElicitResult("no")])  # type: ignore[arg-type]
def test_an_answer_that_is_no_visit_is_not_sent(answer: Any) -> None:
    _, write = read_page(PAGE, NAMED)
    with pytest.raises(InvalidClientResult):
        write(answer)


@pytest.mark.rule("QUEST-07")
def test_host_of_a_page_is_shown() -> None:
    page, _ = read_page({**PAGE, "url": "https://bank.example@EVIL.example:444/login"}, NAMED)
    assert page.host == "evil.example"


@pytest.mark.rule("QUEST-07")
def test_a_page_has_an_id_where_the_revision_has_them() -> None:
    nameless = {name: value for name, value in PAGE.items() if name != "elicitationId"}
    assert read_page(nameless, NEWEST)[0].elicitation_id is None
    with pytest.raises(ServerRequestRefused, match="/elicitationId is not a string"):
        read_page(nameless, NAMED)
    asked = ElicitUrl("Pay", "https://pay.example/").prepare(peer("2025-11-25"), Forms(), "run/1")
    assert read_page(asked.params, NAMED)[0].elicitation_id == "run/1"
