"""Schemas at random times values at random: the steps of every check grow in proportion.

The seed is fixed, and printed with what it found; change it to look elsewhere.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from jsonschema import Draft7Validator

from foundation_rt.base.jsonschema import compilation, interpreter
from foundation_rt.base.jsonschema.budget import MAX_STEPS, CheckRun
from foundation_rt.base.jsonschema.compilation import compile_schema
from foundation_rt.base.jsonschema.dialects import URIS
from foundation_rt.base.jsonschema.equality import size
from foundation_rt.base.jsonschema.issues import TOO_COMPLEX, TOO_DEEP
from foundation_rt.errors import RegistrationError
from tests.lab import sizes

SEED = 11
PAIRS = sizes.size(5_000, 100_000)
VALUES = 500
COMPARED = 10
"""The number of values of each schema whose results are compared with other engines."""

STEPS = 100
LOOKS = 10
"""Most steps, and most looks while explaining, for a value and a schema of size 1."""

NAMES = "abc"
ALTERNATIVES = ("anyOf", "oneOf", "allOf")


class Schemas:
    """Makes schemas with mutually recursive definitions."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.count = random.randint(1, 5)

    def root(self) -> dict[str, Any]:
        definitions = {f"d{number}": self.schema(3) for number in range(self.count)}
        return {
            "type": "object",
            "properties": {"v": {"$ref": "#/definitions/d0"}},
            "definitions": definitions,
        }

    def schema(self, depth: int) -> Any:
        random = self.random
        if depth == 0 or random.random() < 0.25:
            return random.choice((self.reference, self.reference, self.leaf))()
        made: dict[str, Any] = {}
        for _ in range(random.randint(1, 3)):
            make = random.choice((self.alternatives, self.alternatives, self.members, self.others))
            made.update(make(depth - 1))
        return made

    def reference(self) -> dict[str, Any]:
        return {"$ref": f"#/definitions/d{self.random.randrange(self.count)}"}

    def leaf(self) -> Any:
        leaves: tuple[Any, ...] = (
            *({"type": kind} for kind in ("object", "array", "integer", "string", "null")),
            *({"const": 1}, {"enum": ["a", 1, [], {}]}, {"enum": list(range(12))}),
            *({"multipleOf": 0.5}, {"minimum": 1}, {"maxLength": 1}, {"required": ["a"]}),
            *({"uniqueItems": True}, {"maxItems": 2}, {"pattern": "^a"}, True, False),
        )
        return self.random.choice(leaves)

    def alternatives(self, depth: int) -> dict[str, Any]:
        several = [self.schema(depth) for _ in range(self.random.randint(1, 3))]
        return {self.random.choice(ALTERNATIVES): several}

    def members(self, depth: int) -> dict[str, Any]:
        named = {name: self.schema(depth) for name in NAMES if self.random.random() < 0.6}
        made: dict[str, Any] = {"properties": named}
        if self.random.random() < 0.3:
            made["additionalProperties"] = self.schema(depth)
        if self.random.random() < 0.2:
            made["patternProperties"] = {"a|b": self.schema(depth), "^.$": self.schema(depth)}
        return made

    def others(self, depth: int) -> dict[str, Any]:
        keyword = self.random.choice(("items", "contains", "not", "if", "propertyNames"))
        made = {keyword: self.schema(depth)}
        if keyword == "if":
            made.update(then=self.schema(depth), **{"else": self.schema(depth)})
        return made


def make_value(random: Random, depth: int) -> Any:
    if depth == 0 or random.random() < 0.3:
        return random.choice((None, True, 0, 1, 1.0, 1.5, "a", "bb", [], {}))
    if random.random() < 0.4:
        return [make_value(random, depth - 1) for _ in range(random.randint(1, 3))]
    return {name: make_value(random, depth - 1) for name in NAMES if random.random() < 0.6}


def stretched(random: Random, value: Any) -> Any:
    """Return the value deep inside of others, or many times beside itself."""
    if random.random() < 0.5:
        name = random.choice(NAMES)
        for _ in range(random.choice((5, 10, 30))):
            value = random.choice(({name: value}, [value]))
        return value
    if random.random() < 0.5:
        return [value] * random.randint(5, 20)
    return {f"{name}{n}": value for n in range(random.randint(2, 4)) for name in NAMES}


@pytest.mark.rule("SCHEMA-27", "SCHEMA-28", "SCHEMA-30")
def test_steps_are_linear_for_any_schema_and_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[CheckRun] = []
    readings: list[interpreter.Decider] = []

    class Counted(CheckRun):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            runs.append(self)

    decide = interpreter.Decider

    def read(*given: Any) -> interpreter.Decider:
        readings.append(decide(*given))
        return readings[-1]

    monkeypatch.setattr(compilation, "CheckRun", Counted)
    monkeypatch.setattr(interpreter, "Decider", read)
    random = Random(SEED)
    pairs = compared = 0
    worst = [0.0, 0.0]
    while pairs < PAIRS:
        root = Schemas(random).root()
        try:
            validate = compile_schema(root).validate
        except RegistrationError as error:
            assert "round in a circle" in str(error)
            continue
        later = compile_schema(root | {"$schema": URIS["2020-12"]}).validate
        plain = Draft7Validator(root)
        schema_size = size(root)
        for number in range(VALUES):
            value = {"v": make_value(random, 3)}
            small = number < COMPARED
            if not small:
                value = {"v": stretched(random, value["v"])}
            runs.clear()
            readings.clear()
            issues = validate(value)
            pairs += 1
            assert issues is not TOO_COMPLEX
            product = schema_size * size(value)
            for each in runs:
                worst[0] = max(worst[0], (MAX_STEPS - each.left) / product)
            for one in readings:
                worst[1] = max(worst[1], (interpreter.MAX_LOOKS - one.left) / product)
            if small and issues is not TOO_DEEP:
                compared += 1
                assert (issues == ()) is plain.is_valid(value), (root, value)
                other = later(value)
                assert other is TOO_COMPLEX or (other == ()) is (issues == ()), (root, value)
    print(f"seed {SEED}: {pairs} pairs, {compared} compared, at most {worst} for each product")
    assert worst[0] < STEPS
    assert worst[1] < LOOKS
