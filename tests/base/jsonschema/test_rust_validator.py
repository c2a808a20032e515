"""2019-09 and 2020-12, by the optional engine."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from foundation_rt.base.jsonschema.compilation import ValidationIssue, Validator, compile_schema
from foundation_rt.base.jsonschema.dialects import URIS
from foundation_rt.errors import RegistrationError
from tests.lab.programs.program import run_source


def validator(schema: Any, dialect: str = "2020-12", **more: Any) -> Validator:
    root = {"$schema": URIS[dialect], "type": "object", "properties": {"v": schema}}
    return compile_schema(root | more).validate


@pytest.mark.rule("SCHEMA-05")
def test_new_keywords_are_enforced() -> None:
    validate = compile_schema(
        {
            "type": "object",
            "properties": {"v": {"prefixItems": [{"type": "integer"}], "items": False}},
            "dependentRequired": {"v": ["w"]},
            "unevaluatedProperties": False,
        }
    ).validate
    assert validate({"v": [1]}) != ()
    assert validate({"x": 1}) != ()
    validate = validator({"prefixItems": [{"type": "integer"}], "items": False})
    assert validate({"v": [1]}) == ()
    assert [issue.path for issue in validate({"v": ["a"]})] == ["/v/0"]
    assert [issue.path for issue in validate({"v": [1, 2]})] == ["/v/1"]


@pytest.mark.rule("SCHEMA-05")
def test_2019_09_differs_from_2020_12() -> None:
    validate = validator({"items": [{"type": "integer"}], "additionalItems": False}, "2019-09")
    assert validate({"v": [1]}) == ()
    assert [issue.path for issue in validate({"v": ["a"]})] == ["/v/0"]
    assert [issue.message for issue in validate({"v": [1, 2]})] == ["must have at most 1 items"]


@pytest.mark.rule("SCHEMA-05")
def test_refusal_without_extra_names_it_and_keyword(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(RegistrationError) as caught:
        compile_schema({"type": "object", "dependentRequired": {"a": ["b"]}})
    assert "#/dependentRequired: `dependentRequired`" in str(caught.value)
    assert "foundation-rt[jsonschema]" in str(caught.value)
    with pytest.raises(RegistrationError, match=r"#/\$schema: declared.*\[jsonschema\]"):
        validator({})
    assert compile_schema({"type": "object"}).validate({}) == ()


@pytest.mark.rule("SCHEMA-05")
def test_engine_is_imported_only_for_modern_dialects() -> None:

    code = (
        "import sys; from foundation_rt.base.jsonschema.compilation import compile_schema as c;"
        "assert 'fastjsonschema' not in sys.modules;"
        "c({'type': 'object'}); assert 'jsonschema_rs' not in sys.modules;"
        "c({'type': 'object', 'unevaluatedProperties': False});"
        "assert 'jsonschema_rs' in sys.modules"
    )
    run_source(code)


@pytest.mark.rule("SCHEMA-03", "SCHEMA-08")
@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"$ref": "#/$defs/nowhere"}, "#"),
        ({"$anchor": "not a name"}, "#/properties/v/$anchor"),
        ({"$dynamicRef": "#nowhere"}, "#"),
        ({"pattern": "(?<n>"}, "#/properties/v/pattern"),
    ],
)
def test_schema_refused_by_engine_is_refused(schema: Any, place: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        validator(schema)
    assert str(caught.value).startswith(f"{place} is refused by jsonschema-rs: ")


@pytest.mark.rule("SCHEMA-08")
def test_references_by_name_and_inner_identifiers_work() -> None:
    definitions = {"a": {"$anchor": "here", "type": "integer"}, "b": {"$id": "b", "type": "null"}}
    root = {"$id": "https://example.com/tool", "$defs": definitions}
    assert validator({"$ref": "#here"}, **root)({"v": "1"}) != ()
    assert validator({"$ref": "b"}, **root)({"v": "1"}) != ()
    assert validator({"$ref": "b"}, **root)({"v": None}) == ()
    definitions["b"] = {"$id": "b", "$defs": {"c": {"type": "null"}}, "$ref": "#/$defs/c"}
    check = validator({"$ref": "b"}, **root)
    assert check({"v": None}) == () != check({"v": 1})
    check = validator({"$recursiveRef": "#"}, "2019-09", **{"$recursiveAnchor": True})
    assert check({"v": {"v": {}}}) == () != check({"v": {"v": 1}})


@pytest.mark.rule("SCHEMA-08")
def test_multiples_are_those_of_integers_and_of_floats() -> None:
    check = validator({"multipleOf": 3, "unevaluatedProperties": False})
    assert check({"v": 9}) == () != check({"v": 10})
    assert check({"v": 9.0}) == () != check({"v": 0.5})


@pytest.mark.rule("SCHEMA-13")
@pytest.mark.parametrize("dialect", ["2019-09", "2020-12"])
def test_formats_are_enforced_by_the_same_rules(dialect: str) -> None:
    assert validator({"format": "date"}, dialect)({"v": "2020-02-30"}) != ()
    # The engine's own rules would take the first and refuse the second.
    assert validator({"format": "date"}, dialect)({"v": "+020-01-01"}) != ()
    assert validator({"format": "hostname"}, dialect)({"v": "ab--c"}) == ()


@pytest.mark.rule("SCHEMA-20", "SCHEMA-22")
@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": "integer"}, "a", "must be integer"),
        ({"enum": [1, "a"]}, 2, 'must be one of 1, "a"'),
        ({"const": {"a": 1}}, 2, 'must be {"a":1}'),
        ({"minimum": 3}, 2, "must be at least 3"),
        ({"maximum": 3}, 4, "must be at most 3"),
        ({"exclusiveMinimum": 3}, 3, "must be greater than 3"),
        ({"exclusiveMaximum": 3}, 3, "must be less than 3"),
        ({"multipleOf": 0.01}, 0.001, "must be a multiple of 0.01"),
        ({"minLength": 2}, "a", "must have at least 2 characters"),
        ({"maxLength": 0}, "a", "must have at most 0 characters"),
        ({"pattern": "^b"}, "a", 'must match the pattern "^b"'),
        ({"pattern": r"\S"}, " ", "must not be blank"),
        ({"pattern": r"^[^\u0000]*$"}, "\0", "must not contain U+0000"),
        (
            {"pattern": r"^\s*[^\s\u0000][^\u0000]*$"},
            " ",
            "must not be blank, nor contain U+0000",
        ),
        ({"format": "date"}, "a", "must be a valid date"),
        ({"minItems": 1}, [], "must have at least 1 items"),
        ({"maxItems": 0}, [1], "must have at most 0 items"),
        ({"uniqueItems": True}, [1, 1], "must have no two equal items"),
        ({"contains": False}, [1], "must contain items that fit its contains schema"),
        ({"required": ["a"]}, {}, 'must have the property "a"'),
        ({"minProperties": 1}, {}, "must have at least 1 properties"),
        ({"maxProperties": 0}, {"a": 1}, "must have at most 0 properties"),
        (
            {"properties": {"a": {}}, "additionalProperties": False},
            {"a": 1, "n" * 200: 1},
            f'must not have the property "{"n" * 100}..."',
        ),
        ({"unevaluatedProperties": False}, {"a": 1}, 'must not have the property "a"'),
        ({"unevaluatedItems": False}, [1], "must satisfy `unevaluatedItems`"),
        ({"anyOf": [False]}, 1, "must fit at least one of the schemas in anyOf"),
        ({"oneOf": [{}, {}]}, 1, "must fit exactly one of the schemas in oneOf"),
        ({"oneOf": [False]}, 1, "must fit exactly one of the schemas in oneOf"),
        ({"not": {}}, 1, "must not fit the schema in not"),
        (False, 1, "must not be there"),
        (
            {"propertyNames": {"maxLength": 1}},
            {"ab": 1},
            "must have property names that fit its propertyNames schema",
        ),
    ],
)
def test_issues_have_same_messages(schema: Any, value: Any, message: str) -> None:
    (issue,) = validator(schema)({"v": value})
    assert (issue.path, issue.message) == ("/v", message)


@pytest.mark.rule("SCHEMA-20")
def test_schema_that_allows_nothing() -> None:
    schema = {"$schema": URIS["2020-12"], "type": "object", "additionalProperties": False}
    (issue,) = compile_schema(schema).validate({"a": 1})
    assert (issue.path, issue.message) == ("", "must have at most 0 properties")


@pytest.mark.rule("SCHEMA-19")
def test_paths_are_pointers() -> None:
    validate = validator({"additionalProperties": {"items": {"type": "null"}}})
    (issue,) = validate({"v": {"a/b~c": [None, 1]}})
    assert issue.path == "/v/a~1b~0c/1"


@pytest.mark.rule("SCHEMA-19")
@pytest.mark.parametrize("name", ["10", "007", "+1", "-1", "\u0663", "1" * 30, "00"])
def test_names_that_look_like_numbers_stay_as_they_are(name: str) -> None:
    validate = validator({"additionalProperties": {"items": {"type": "null"}}})
    found = validate({"v": {"x": [], name: [1]}, "other": 1})
    assert [issue.path for issue in found] == [f"/v/{name}/0"]


@pytest.mark.rule("SCHEMA-21", "SCHEMA-40")
def test_small_value_has_up_to_twenty_issues_large_value_one() -> None:
    validate = validator({"items": {"type": "null"}})
    small = validate({"v": [1] * 50})
    assert [issue.path for issue in small] == [f"/v/{number}" for number in range(20)]
    assert [issue.path for issue in validate({"v": [1] * 10_000})] == ["/v/0"]
    assert [issue.path for issue in validate({"v": ["x" * 65_536, 1]})] == ["/v/0"]


@pytest.mark.rule("SCHEMA-17", "SCHEMA-18", "SCHEMA-21")
@pytest.mark.parametrize("levels", range(240, 270))
def test_values_at_limits_of_both_engines_are_handled(levels: int) -> None:
    value: Any = []
    for _ in range(levels):
        value = [value]
    for schema in ({"items": {"type": "null"}}, {"const": 1}, {"uniqueItems": True}):
        assert len(validator(schema)({"v": value, "w": 1})) <= 1


@pytest.mark.rule("SCHEMA-17", "SCHEMA-18")
def test_deep_values_are_handled() -> None:
    definitions = {"a": {"items": {"$ref": "#/$defs/a"}}}
    value: Any = []
    for _ in range(1020):
        value = [value]
    assert validator({"$ref": "#/$defs/a"}, **{"$defs": definitions})({"v": value}) == ()
    assert validator({"type": "null"})({"v": value}) == (
        ValidationIssue("", "is nested too deeply"),
    )
