"""Schemas of servers that would cost too much to be compiled, and the most that the others cost."""

from __future__ import annotations

from typing import Any

import pytest

from foundation_rt.client.results.schema_costs import MAX_PARTS, MAX_PATTERNS, cost_problem
from foundation_rt.client.results.tool_schemas import SchemaCheck
from tests.lab.programs.program import run_source

LATER = "https://json-schema.org/draft/2020-12/schema"
NAMES = [f"p{number}" for number in range(5000)]


def later(**members: Any) -> dict[str, Any]:
    return {"$schema": LATER, "type": "object", **members}


def patterns(count: int, pattern: str) -> dict[str, Any]:
    return {"properties": {name: {"pattern": pattern} for name in NAMES[:count]}}


def doubled(levels: int) -> dict[str, Any]:
    """Return a schema with 2 ** `levels` paths, each through schemas that say unevaluated."""
    steps: dict[str, Any] = {
        f"s{level}": {
            "anyOf": [{"$ref": f"#/$defs/s{level + 1}"}] * 2,
            "unevaluatedProperties": False,
        }
        for level in range(levels)
    }
    return later(**{"$defs": {**steps, f"s{levels}": {}}, "$ref": "#/$defs/s0"})


TOO_EXPENSIVE: dict[str, dict[str, Any]] = {
    "properties": {"properties": {name: {"type": "string"} for name in NAMES[: MAX_PARTS // 2]}},
    "definitions": {"$defs": {name: {"not": {}} for name in NAMES[: MAX_PARTS // 2]}},
    "choices": {"properties": {"a": {"enum": NAMES[:MAX_PARTS]}}},
    "required": {"required": NAMES[:MAX_PARTS]},
    "dependent names": {"dependentRequired": {"a": NAMES[:MAX_PARTS]}},
    "alternatives": {"anyOf": [True] * MAX_PARTS},
    "a property named default": {"properties": {"default": {"enum": NAMES[:MAX_PARTS]}}},
    "nested alternatives": {"anyOf": [{"oneOf": [{"enum": [1]}] * 10}] * 100},
    "patterns": patterns(MAX_PATTERNS + 1, "a"),
    "pattern properties": {"patternProperties": dict.fromkeys(NAMES[: MAX_PATTERNS + 1], True)},
    "long patterns": patterns(20, "a" * 1000),
    "large repetitions": patterns(100, ".{900}N"),
    "nested repetitions": patterns(1, "((a{100}){100}){100}"),
    "classes": patterns(3, r"\p{L}{64}N"),
    "unevaluated": doubled(12),
    "unevaluated in a circle": later(anyOf=[{"$ref": "#"}], unevaluatedProperties=False),
    "unevaluated by name": later(anyOf=[{"$ref": "#a"}], unevaluatedProperties=False),
}
AT_THE_LIMIT: dict[str, dict[str, Any]] = {
    "properties": {"properties": {name: {"type": "string"} for name in NAMES[:990]}},
    "choices": {"properties": {"a": {"enum": [*range(1990)]}}},
    "required": {"required": NAMES[:1990]},
    "alternatives": {"anyOf": [{"required": [name]} for name in NAMES[:660]]},
    "patterns": patterns(199, "^[a-z0-9]{1,64}$"),
    "one pattern": patterns(1, ".{1,900}N"),
    "unevaluated": doubled(6),
}


@pytest.mark.rule("CTOOL-19")
@pytest.mark.parametrize("name", TOO_EXPENSIVE)
def test_a_schema_that_costs_too_much_is_not_checked_and_says_so(name: str) -> None:
    check = SchemaCheck(TOO_EXPENSIVE[name])
    assert check.issues({"a": [5]}) == ()
    assert check.problem is not None


@pytest.mark.rule("CTOOL-19")
@pytest.mark.parametrize("name", AT_THE_LIMIT)
def test_a_schema_within_the_limits_is_checked(name: str) -> None:
    check = SchemaCheck({"type": "object", **AT_THE_LIMIT[name]})
    assert check.issues([]) != ()
    assert check.problem is None


@pytest.mark.rule("CTOOL-19")
def test_annotations_cost_nothing() -> None:
    described = {"description": "x", "title": "y", "examples": NAMES, "default": NAMES}
    schema = {"properties": {name: dict(described) for name in NAMES[:10]}, **described}
    assert cost_problem(schema) is None


MEASURE = """
import resource
from tests.client.results import test_schema_costs as costs

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

def check(schemas):
    for schema in schemas:
        costs.SchemaCheck({"type": "object", **schema}).issues([])

check([costs.patterns(1, "a"), {}, {"$schema": costs.LATER}])
before = peak()
check(costs.TOO_EXPENSIVE.values())
check(costs.AT_THE_LIMIT.values())
print(peak() - before)
"""


@pytest.mark.rule("CTOOL-25")
def test_no_schema_takes_more_than_fifty_megabytes() -> None:
    """All of them one after the other, in a process of its own; the issue had 2.1 GB for one."""
    measured = run_source(MEASURE)
    assert int(measured.stdout) < 50 * 1024, measured.stdout
