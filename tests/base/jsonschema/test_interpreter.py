"""The issues of invalid values, and their paths."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt.base.jsonschema.compilation import ValidationIssue, compile_schema
from foundation_rt.base.jsonschema.dialects import URIS


def issues(schema: Any, value: Any, dialect: str = "draft-07") -> list[tuple[str, str]]:
    """Path and message of each issue of `value` as the property `v` under `schema`."""
    root = {"$schema": URIS[dialect], "type": "object", "properties": {"v": schema}}
    validate = compile_schema(root).validate
    return [(issue.path, issue.message) for issue in validate({"v": value})]


@pytest.mark.rule("SCHEMA-19", "SCHEMA-20", "SCHEMA-41", "SCHEMA-42")
@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": "integer"}, "5", "must be integer"),
        ({"type": ["string", "null"]}, 5, "must be string or null"),
        ({"enum": ["a", 1, None]}, "b", 'must be one of "a", 1, null'),
        ({"const": {"a": [1]}}, "b", 'must be {"a":[1]}'),
        ({"minimum": 5}, 4, "must be at least 5"),
        ({"maximum": 5.5}, 6, "must be at most 5.5"),
        ({"exclusiveMinimum": 5}, 5, "must be greater than 5"),
        ({"exclusiveMaximum": 5}, 5, "must be less than 5"),
        ({"multipleOf": 0.01}, 0.001, "must be a multiple of 0.01"),
        ({"minLength": 2}, "😀", "must have at least 2 characters"),
        ({"maxLength": 0}, "a", "must have at most 0 characters"),
        ({"pattern": r"^\d$"}, "a", r'must match the pattern "^\\d$"'),
        ({"pattern": r"\S"}, " ", "must not be blank"),
        ({"pattern": r"^[^\u0000]*$"}, "\0", "must not contain U+0000"),
        (
            {"pattern": r"^\s*[^\s\u0000][^\u0000]*$"},
            " ",
            "must not be blank, nor contain U+0000",
        ),
        ({"format": "date"}, "a", "must be a valid date"),
        ({"minItems": 1}, [], "must have at least 1 items"),
        ({"maxItems": 1}, [1, 2], "must have at most 1 items"),
        ({"uniqueItems": True}, [1, 1.0], "must have no two equal items"),
        ({"items": [{}], "additionalItems": False}, [1, 2], "must have at most 1 items"),
        ({"contains": {"const": 1}}, [2], "must contain items that fit its contains schema"),
        ({"required": ["a", "b"]}, {"b": 1}, 'must have the property "a"'),
        ({"required": ["a", "b"]}, {}, 'must have the properties "a", "b"'),
        ({"minProperties": 1}, {}, "must have at least 1 properties"),
        ({"maxProperties": 0}, {"a": 1}, "must have at most 0 properties"),
        ({"additionalProperties": False}, {"a": 1}, 'must not have the property "a"'),
        ({"dependencies": {"a": ["b"]}}, {"a": 1}, 'must have the property "b"'),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, None),
        (
            {"anyOf": [{"type": "null"}, {"maximum": 0}]},
            1,
            "must fit at least one of the schemas in anyOf",
        ),
        ({"anyOf": [{"type": "null"}, {"type": ["string", "null"]}]}, 1, "must be null or string"),
        ({"anyOf": [{"type": "integer", "minimum": 2}, {"type": "null"}]}, 1, "must be at least 2"),
        ({"oneOf": [{}, {}]}, 1, "must fit exactly one of the schemas in oneOf"),
        ({"oneOf": [{"type": "null"}]}, 1, "must fit exactly one of the schemas in oneOf"),
        ({"not": {}}, 1, "must not fit the schema in not"),
        (False, 1, "must not be there"),
    ],
)
def test_message_says_what_was_expected(schema: Any, value: Any, message: str | None) -> None:
    expected = message or "must have property names that fit its propertyNames schema"
    assert issues(schema, value) == [("/v", expected)]


@pytest.mark.rule("SCHEMA-19")
@pytest.mark.parametrize(
    ("schema", "value", "path"),
    [
        ({"items": {"type": "null"}}, [None, 1], "/v/1"),
        ({"items": [{}, {"type": "null"}]}, [1, 1, 1], "/v/1"),
        ({"items": [{}], "additionalItems": {"type": "null"}}, [1, 1], "/v/1"),
        ({"properties": {"a.b[0]": {"type": "null"}}}, {"a.b[0]": 1}, "/v/a.b[0]"),
        ({"properties": {"a/b~c": {"type": "null"}}}, {"a/b~c": 1}, "/v/a~1b~0c"),
        ({"properties": {"": {"type": "null"}}}, {"": 1}, "/v/"),
        ({"patternProperties": {"^x": {"type": "null"}}}, {"a": 1, "xy": 1}, "/v/xy"),
        ({"additionalProperties": {"type": "null"}}, {"0": 1}, "/v/0"),
        ({"dependencies": {"a": {"properties": {"b": False}}}}, {"a": 1, "b": 1}, "/v/b"),
        ({"allOf": [{"items": {"items": False}}]}, [[], [1]], "/v/1/0"),
        ({"if": {"required": ["a"]}, "then": {"properties": {"a": False}}}, {"a": 1}, "/v/a"),
        ({"if": {"required": ["a"]}, "else": {"properties": {"b": False}}}, {"b": 1}, "/v/b"),
    ],
)
def test_path_points_to_invalid_part(schema: Any, value: Any, path: str) -> None:
    assert [found for found, _ in issues(schema, value)] == [path]


@pytest.mark.rule("SCHEMA-19")
def test_root_has_empty_path() -> None:
    validate = compile_schema({"type": "object"}).validate
    for value in (None, 1, "a", [], True):
        assert validate(value) == (ValidationIssue("", "must be object"),)


@pytest.mark.rule("SCHEMA-20")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer"},
        {"enum": ["a"]},
        {"const": "a"},
        {"maxLength": 1},
        {"pattern": "^a$"},
        {"format": "uuid"},
        {"anyOf": [{"type": "null"}, {"maxLength": 3}]},
        {"not": {"type": "string"}},
    ],
)
@pytest.mark.parametrize("dialect", ["draft-07", "2020-12"])
def test_message_never_repeats_value(schema: Any, dialect: str) -> None:
    found = issues(schema, "hunter2-secret", dialect)
    assert found
    assert all("secret" not in message for _, message in found)


@pytest.mark.rule("SCHEMA-21")
def test_up_to_twenty_issues_are_reported_in_order_of_schema() -> None:
    schema = {"properties": {name: {"type": "null"} for name in "zyx"}, "minProperties": 4}
    assert [path for path, _ in issues(schema, dict.fromkeys("xyz", 1))] == [
        "/v",
        "/v/z",
        "/v/y",
        "/v/x",
    ]
    assert [path for path, _ in issues({"items": False}, [0] * 50)] == [
        f"/v/{number}" for number in range(20)
    ]


TASK = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["title"],
    "additionalProperties": False,
}


def paths(schema: Any, value: Any, dialect: str) -> list[str]:
    return [path.removeprefix("/v") for path, _ in issues(schema, value, dialect)]


@pytest.mark.rule("SCHEMA-21", "SCHEMA-39")
@pytest.mark.parametrize("dialect", ["draft-07", "2020-12"])
class TestIssuesOfItems:
    def test_each_item_comes_first_with_one_issue(self, dialect: str) -> None:
        good, bad = {"title": "t"}, {"title": "", "tags": [1, 2, 3]}
        value = [good, bad, good, bad, *[bad] * 30]
        found = paths({"items": TASK}, value, dialect)
        assert found == [f"/{number}/title" for number in (1, 3, *range(4, 22))]

    def test_others_fill_up(self, dialect: str) -> None:
        bad = {"title": "", "tags": [1, 2]}
        found = paths({"items": TASK}, [bad] * 18, dialect)
        assert found == [
            *("/0/title", "/0/tags/0", "/0/tags/1"),
            *(f"/{number}/title" for number in range(1, 18)),
        ]

    def test_up_to_twenty_are_reported_whole(self, dialect: str) -> None:
        bad = {"title": "", "tags": [1, 2, 3]}
        found = paths({"items": TASK}, [bad] * 5, dialect)
        assert found == [
            f"/{number}/{name}"
            for number in range(5)
            for name in ("title", "tags/0", "tags/1", "tags/2")
        ]

    def test_items_of_one_item_are_all_reported(self, dialect: str) -> None:
        value = [{"title": "t", "tags": [*range(30)]}, {}]
        found = paths({"items": TASK}, value, dialect)
        assert found == [*(f"/0/tags/{number}" for number in range(19)), "/1"]

    def test_issues_outside_of_items_come_first_too(self, dialect: str) -> None:
        nulls = {"type": "null"}
        schema = {
            "properties": dict.fromkeys("abc", nulls),
            "additionalProperties": {"items": {"items": nulls}},
        }
        found = paths(schema, {"d": [[1] * 10] * 5, "a": 1, "b": 1, "c": 1}, dialect)
        assert len(found) == 20
        assert {"/a", "/b", "/c", *(f"/d/{number}/0" for number in range(5))} <= {*found}

    def test_names_that_are_numbers_are_no_items(self, dialect: str) -> None:
        members = {str(number): 1 for number in range(10, 40)}
        schema = {"additionalProperties": {"additionalProperties": {"type": "null"}}}
        found = paths(schema, {"0": members, "1": members}, dialect)
        assert found == [f"/0/{number}" for number in range(10, 30)]


@pytest.mark.rule("SCHEMA-28", "SCHEMA-39")
def test_faults_at_the_end_of_a_long_array_are_found() -> None:
    value = [{"title": "t", "tags": ["a", "b"]}] * 2 + [
        {"title": f"t{number}", "tags": ["a", "b", "c"]} for number in range(5_000)
    ]
    value += [{"title": ""}] * 25
    found = [path for path, _ in issues({"items": TASK}, value)]
    assert found == [f"/v/{number}/title" for number in range(5_002, 5_022)]


@pytest.mark.rule("SCHEMA-36")
@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_deepest_failing_alternative_is_explained(keyword: str) -> None:
    point = {"properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}}
    found = issues({keyword: [{"type": "null"}, point]}, {"x": "1", "y": "2"})
    assert [path for path, _ in found] == ["/v", "/v/x", "/v/y"]
    ambiguous = issues({keyword: [point, point | {"title": "again"}]}, {"x": "1"})
    assert [path for path, _ in ambiguous] == ["/v"]


@pytest.mark.rule("SCHEMA-36")
def test_explaining_nested_alternatives_is_not_exponential() -> None:
    """With doubling, forty levels would take years."""
    node = {
        "anyOf": [
            {
                "type": "object",
                "properties": {"next": {"$ref": "#/definitions/node"}, "kind": {"const": kind}},
                "required": [kind],
            }
            for kind in ("a", "b", "c")
        ]
        + [{"type": "null"}]
    }
    schema = {"type": "object", "properties": {"v": {"$ref": "#/definitions/node"}}}
    validate = compile_schema(schema | {"definitions": {"node": node}}).validate
    value: Any = 5
    for _ in range(40):
        value = {"b": 1, "kind": "b", "next": value}
    assert [issue.path for issue in validate({"v": value})] == [
        "/v" + "/next" * number for number in range(20)
    ]
    fitting: Any = None
    for _ in range(40):
        fitting = {"b": 1, "kind": "b", "next": fitting}
    assert validate({"v": fitting}) == ()


@pytest.mark.rule("SCHEMA-22")
def test_names_are_truncated_and_counted() -> None:
    long = "n" * 300
    ((path, message),) = issues({"additionalProperties": False}, {long: 1})
    assert (path, message) == ("/v", f'must not have the property "{"n" * 100}..."')
    ((_, message),) = issues({"additionalProperties": False}, dict.fromkeys("abcdefg", 1))
    assert message == 'must not have the properties "a", "b", "c", "d", "e" and 2 more'
    ((path, _),) = issues({"additionalProperties": {"type": "null"}}, {long: 1})
    assert path == "/v/" + "n" * 100 + "..."


@pytest.mark.rule("SCHEMA-20")
def test_long_list_of_allowed_values_is_truncated() -> None:
    ((_, message),) = issues({"enum": list(range(5000))}, -1)
    assert message.startswith("must be one of 0, 1, 2")
    assert len(message) < 1100


@pytest.mark.rule("SCHEMA-11")
@pytest.mark.parametrize(
    ("divisor", "multiples", "others"),
    [
        (0.01, [19.99, 4.35, 1.1, 0, -0.01, 1e308, 3], [0.001, 19.999]),
        (0.1, [0.3, 1e22, 4.3], [4.35]),
        (3, [0, -3, 3.0, 9007199254740993, 18446744073709551615], [1e17, 1e300, 4, 4.5]),
        (7, [], [2**63, 2**53]),
        (0.7, [0.7, 2.1, 7e30], [1e30]),
        (1e-8, [12391239123], [1e-9]),
        (2.0, [4, 2**53 + 2], [2**53 + 1, 5e-324]),
    ],
)
def test_multiple_of_is_exact(divisor: float, multiples: list[Any], others: list[Any]) -> None:
    assert [value for value in multiples if issues({"multipleOf": divisor}, value)] == []
    assert [value for value in others if not issues({"multipleOf": divisor}, value)] == []
    for unconcerned in ("4", None, True, [1], {}):
        assert issues({"multipleOf": divisor}, unconcerned) == []


@pytest.mark.rule("SCHEMA-15")
@pytest.mark.parametrize("more", [{}, {"items": {"multipleOf": 1}}])
def test_draft_04_semantics(more: Any) -> None:
    sharp = {"minimum": 1, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": True}
    blunt = {"minimum": 1, "exclusiveMinimum": False, "maximum": 9, "exclusiveMaximum": False}
    assert issues(sharp | more, 1, "draft-04") == [("/v", "must be greater than 1")]
    assert issues(sharp | more, 9, "draft-04") == [("/v", "must be less than 9")]
    assert issues(sharp | more, 5, "draft-04") == []
    assert issues(blunt | more, 1, "draft-04") == issues(blunt | more, 9, "draft-04") == []
    assert issues(blunt | more, 0, "draft-04") == [("/v", "must be at least 1")]
    assert issues({"type": "integer"} | more, 5.0, "draft-04") == [("/v", "must be integer")]
    assert issues({"type": "integer"} | more, 5.0, "draft-06") == []
