"""The steps of a check: their number is bounded, and grows with the value in proportion."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_origin
from unittest import mock

import orjson
import pytest

from foundation_rt import Constraints
from foundation_rt.base.jsonschema import codegen
from foundation_rt.base.jsonschema.analysis import analyze
from foundation_rt.base.jsonschema.compilation import compile_schema
from foundation_rt.base.jsonschema.dialects import URIS
from foundation_rt.base.jsonschema.equality import are_different, identity
from foundation_rt.base.jsonschema.interpreter import Decider
from foundation_rt.base.jsonschema.issues import TOO_COMPLEX, UNEXPLAINED
from foundation_rt.base.jsonschema.reachability import walk_states
from tests.lab.apps.signatures import derive_tool

BRANCHES = {
    "type": "object",
    "required": ["x"],
    "properties": {"x": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}},
}
EXPRESSION = {
    "type": "object",
    "properties": {"x": {"$ref": "#/definitions/e"}},
    "definitions": {
        "e": {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {name: {"$ref": "#/definitions/e"} for name in ("left", right)},
                    "required": ["left", right],
                    "additionalProperties": False,
                }
                for right in ("plus", "times")
            ]
            + [{"type": "integer"}]
        }
    },
}
MIB = 2**20


def nested(depth: int, inmost: Any, right: str | None = None) -> Any:
    value = inmost
    for _ in range(depth):
        value = {"x": value} if right is None else {"left": value, right: 1}
    return value


def lattice(width: int, keyword: str, leaf: Any) -> dict[str, Any]:
    """Return a schema that refers to each next definition twice: 2^width ways to the leaf."""
    definitions = {
        f"a{number}": {keyword: [{"$ref": f"#/definitions/a{number + 1}"}] * 2}
        for number in range(width)
    }
    return {
        "type": "object",
        "properties": {"v": {"$ref": "#/definitions/a0"}},
        "definitions": definitions | {f"a{width}": leaf},
    }


@pytest.mark.rule("SCHEMA-27")
@pytest.mark.parametrize("depth", [20, 40, 80])
def test_alternatives_that_contain_each_other_take_steps_linear_in_the_depth(depth: int) -> None:
    """Checked again at each level they would take 2^80 steps."""
    validate = compile_schema(BRANCHES, max_steps=400 * depth).validate
    assert validate(nested(depth, 1)) not in ((), TOO_COMPLEX)
    validate = compile_schema(EXPRESSION, max_steps=1000 * depth).validate
    assert validate({"x": nested(depth, 1, "times")}) == ()
    assert validate({"x": nested(depth, "no", "times")}) not in ((), TOO_COMPLEX)


@pytest.mark.rule("SCHEMA-27")
@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_shared_definitions_are_checked_once(keyword: str) -> None:
    validate = compile_schema(lattice(60, keyword, {"type": "string"}), max_steps=20_000).validate
    assert validate({"v": 5}) not in ((), TOO_COMPLEX)
    assert (validate({"v": "a"}) == ()) is (keyword != "oneOf")


@pytest.mark.rule("SCHEMA-27")
def test_a_schema_that_many_ways_lead_to_is_walked_once() -> None:
    """A walk that takes too long has no result: all definitions would count as shared."""
    analysis = analyze(lattice(60, "allOf", {"type": "string"}))
    found = walk_states(analysis.root, analysis.referred, lambda schema: 1)
    assert found is not None
    assert found.widest == 122  # each of 61 definitions and 61 references


@dataclass
class Circle:
    kind: Literal["circle"]
    radius: float


@dataclass
class Square:
    kind: Literal["square"]
    side: float


@dataclass
class Polygon:
    kind: Literal["polygon"]
    points: list[tuple[float, float]]


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list)


@dataclass
class Plus:
    left: Plus | Times | int
    plus: Plus | Times | int


@dataclass
class Times:
    left: Plus | Times | int
    times: Plus | Times | int


@pytest.mark.rule("SCHEMA-27", "TYPED-36")
def test_recursive_unions_are_validated_and_converted_in_linear_time() -> None:
    def evaluate(x: Plus | Times | int) -> str:
        return str(x)

    tool = derive_tool(evaluate)
    validate = compile_schema(tool.input_schema, max_steps=100_000).validate
    arguments = {"x": nested(60, 1, "times")}
    assert validate(arguments) == ()
    assert validate({"x": nested(60, "no", "times")}) not in ((), TOO_COMPLEX)
    assert tool.handler(arguments, None).count("Times(") == 60


@pytest.mark.rule("SCHEMA-32")
@pytest.mark.parametrize(
    ("annotation", "item"),
    [
        (list[int | None], 1),
        (list[Literal["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]], "a"),
        (list[list[int]], [1]),
        (list[list[list[int]]], [[1], [2]]),
        (list[tuple[int, int]], [1, 2]),
        (list[dict[str, int]], {"a": 1}),
        (list[Circle | Square | Polygon], {"kind": "polygon", "points": []}),
        (dict[str, Circle | Square | None], {"kind": "square", "side": 1}),
        (list[Tree], {"value": 1}),
        (list[Annotated[int, Constraints(multiple_of=5)]], 25),
        (list[Annotated[float, Constraints(multiple_of=0.01)]], 12.25),
    ],
)
def test_mebibyte_for_typed_tools_is_within_budget(annotation: Any, item: Any) -> None:
    def tool(of: Any) -> None: ...

    tool.__annotations__["of"] = annotation
    count = MIB // len(orjson.dumps([item])) + 1
    of: Any = [item] * count
    if get_origin(annotation) is dict:
        of = {f"k{number}": item for number in range(MIB // (len(orjson.dumps(item)) + 10))}
    assert compile_schema(derive_tool(tool).input_schema).validate({"of": of}) == ()


@pytest.mark.rule("SCHEMA-32")
def test_generated_functions_do_not_track_paths() -> None:
    """To write it out took most of the time; a name with a brace in it made it fail as well."""
    items = {"type": "array", "items": {"type": "array", "items": {"type": "array"}}}
    root = {"type": "object", "properties": {"a{b": items}}
    source = []

    def execute(code: str, names: dict[str, Any]) -> None:
        source.append(code)
        exec(code, names)

    with mock.patch.object(codegen, "exec", execute, create=True):
        validate = compile_schema(root).validate
        assert validate({"a{b": [[[]]]}) == ()
    assert "validate___definitions_" in source[0]
    assert "locals()" not in source[0]
    assert [issue.path for issue in validate({"a{b": [[[], 1]]})] == ["/a{b/0/1"]


@pytest.mark.rule("SCHEMA-37")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"anyOf": [{"maxLength": 1}, {"minimum": 1}]}}, [1] * (MIB // 2)),
        ({"items": {"properties": {str(n): {} for n in range(100)}}}, [{}] * (MIB // 3)),
        ({"items": {"multipleOf": 0.1}}, [0.3] * (MIB // 4)),
        ({"patternProperties": {f"^a{n}": {"type": "null"} for n in range(30)}}, MIB // 11),
        ({"allOf": [{"contains": {"const": n}} for n in range(1, 31)]}, [0] * (MIB // 2)),
        ({"propertyNames": {"allOf": [{"format": "ipv6"}] * 2}}, MIB // 11),
        ({"uniqueItems": True}, [[]] * (MIB // 3)),
        ({"items": {"enum": [[n] for n in range(9)]}}, [[0]] * (MIB // 4)),
    ],
)
def test_value_beyond_budget_is_not_checked(schema: dict[str, Any], value: Any) -> None:
    if isinstance(value, int):
        value = {f"k{number:05}": 1 for number in range(value)}
    root = {"type": "object", "properties": {"v": schema}}
    assert compile_schema(root).validate({"v": value}) is TOO_COMPLEX
    generous = compile_schema(root, max_steps=10**9).validate
    assert generous({"v": value[:100] if isinstance(value, list) else {}}) is not TOO_COMPLEX


@pytest.mark.rule("SCHEMA-37")
@pytest.mark.parametrize(
    ("schema", "item"),
    [
        ({"items": {"type": "integer"}}, 1),
        ({"items": {"type": "string", "pattern": "^[a-z]+$"}}, "abc"),
        ({"items": {"type": "object", "properties": {"a": {"type": "integer"}}}}, {"a": 1}),
        ({"items": {"type": "array", "items": {"type": "number"}}}, [0.5] * 20),
        ({"uniqueItems": True}, None),
    ],
)
def test_mebibyte_of_ordinary_items_is_within_budget(schema: Any, item: Any) -> None:
    count = MIB // (len(str(item)) + 1)
    value = list(range(10**6, 10**6 + MIB // 8)) if item is None else [item] * count
    root = {"type": "object", "properties": {"v": schema}}
    assert compile_schema(root).validate({"v": value}) == ()


LATER = {"$schema": URIS["2020-12"]}


@pytest.mark.rule("SCHEMA-30")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (BRANCHES, nested(60, 1)),
        (EXPRESSION, {"x": nested(60, 1, "times")}),
        (lattice(40, "allOf", {"type": "string"}), {"v": 5}),
        (
            {
                "type": "object",
                "$dynamicAnchor": "node",
                "properties": {"x": {"oneOf": [{"$dynamicRef": "#node"}, {"$ref": "#"}]}},
            },
            nested(60, 1),
        ),
        (
            {
                "$id": "https://a.example/root",
                "type": "object",
                "properties": {"x": {"anyOf": [{"$ref": "root"}, {"$ref": "#here"}]}},
                "$anchor": "here",
            },
            nested(60, 1),
        ),
        (
            {
                "type": "object",
                "anyOf": [{"properties": {"x": {"$ref": "#"}}}, {"properties": {"y": {}}}],
                "unevaluatedProperties": False,
            },
            nested(60, {"y": 1}),
        ),
        (
            {"type": "object", "additionalProperties": {"items": {"format": "date"}}},
            {"v": ["2020-01-01"] * (MIB // 4)},
        ),
    ],
)
def test_rust_engine_gets_no_value_beyond_budget(schema: dict[str, Any], value: Any) -> None:
    assert compile_schema(schema | LATER).validate(value) is TOO_COMPLEX


@pytest.mark.rule("SCHEMA-30")
def test_rust_engine_gets_every_value_within_budget() -> None:
    expression = compile_schema(EXPRESSION | LATER).validate
    assert expression({"x": nested(8, 1, "times")}) == ()
    assert expression({"x": nested(8, "no", "times")}) not in ((), TOO_COMPLEX)
    properties: dict[str, Any] = {f"p{n}": {"type": "string"} for n in range(30)}
    properties["v"] = {"items": {"type": "integer"}}
    many = compile_schema({"type": "object", "properties": properties} | LATER).validate
    assert many({"v": [1] * (MIB // 2)}) == ()
    assert many({"v": [1] * (MIB // 2) + ["a"]}) not in ((), TOO_COMPLEX)


@pytest.mark.rule("SCHEMA-31")
@pytest.mark.parametrize("dialect", ["draft-07", "2020-12"])
def test_regex_format_is_parsed_but_never_compiled(
    dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = {
        "$schema": URIS[dialect],
        "type": "object",
        "properties": {"v": {"items": {"format": "regex"}}},
    }
    validate = compile_schema(root).validate
    assert validate({"v": ["a"]}) == ()

    def refuse(*given: Any) -> None:
        raise AssertionError("a pattern from outside is compiled")

    monkeypatch.setattr(re, "compile", refuse)
    assert validate({"v": ["(?:a{1,999}){1,999}", r"^\p{L}(a)\1[^b-z]$", "(?<=a+)b"]}) == ()
    for wrong in ("(", ")", "[b-a]", "a{2,1}", "*a", "a|*", "a**", "[", "(?<!"):
        assert validate({"v": [wrong]}) not in ((), TOO_COMPLEX)
    assert validate({"v": ["a" * 10_000]}) == ()
    assert validate({"v": ["a" * MIB]}) is TOO_COMPLEX
    assert validate({"v": ["a"] * (MIB // 4)}) is TOO_COMPLEX


@pytest.mark.rule("SCHEMA-28")
def test_issues_are_searched_within_budget() -> None:
    root = {"type": "object", "properties": {"v": {"items": {"type": "integer"}}}}
    validate = compile_schema(root).validate
    assert validate({"v": [1] * 300_000 + ["a"]}) == UNEXPLAINED
    found = validate({"v": ["a"] + [1] * 300_000})
    assert [(issue.path, issue.message) for issue in found] == [("/v/0", "must be integer")]


@pytest.mark.rule("SCHEMA-28")
def test_searching_issues_decides_nothing_twice() -> None:
    found = analyze(EXPRESSION)
    decider = Decider(found, 2_000)
    assert decider.read(found.root, {"x": nested(80, "no", "times")}, "") != ()
    found = analyze(lattice(60, "anyOf", {"type": "string"}))
    decider = Decider(found, 500)
    assert decider.read(found.root, {"v": 5}, "") != ()


@pytest.mark.rule("SCHEMA-29", "SCHEMA-10")
def test_equality_uses_strings_with_secret_hashes() -> None:
    """Numbers that differ by a multiple of 2^61 - 1 have one hash; so can tuples of them."""
    values = [
        *(None, True, False, "true", "null", "1", "", "'", 0, 1, -1, 0.5, 2**53, 2**53 + 1, 2**70),
        *(2**70 + 1, 1e300, -1e300, 5e-324, 10**400, [], {}, [[]], [{}], [1], ["1"], ["1,2"]),
        *([1, 2], [[1], 2], {"a": 1}, {"a": "1"}, {"a": {}}, {"a:1": 1}, [0, 2**61 - 1]),
    ]
    equal = [(1, 1.0), (0, -0.0), (2**53, 2.0**53), (2**70, 2.0**70), (10**300, 1e300)]
    texts = [identity(value) for value in values]
    assert all(type(text) is str for text in texts)
    assert len(set(texts)) == len(values)
    for one, other in equal:
        same = one == other
        assert (identity([one]) == identity([other])) is same
        assert are_different([one, other]) is not same
        assert are_different([[one], [other]]) is not same
    for mixed in ([1, True], [0, False, None], [1.5, "1.5"], [{"a": 1, "b": 2}, {"b": 1, "a": 2}]):
        assert are_different(mixed)
    assert not are_different([{"a": 1, "b": 2}, {"b": 2.0, "a": 1}])
    assert not are_different([*range(50), 7.0])
