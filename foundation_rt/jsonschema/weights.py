"""What the generated functions cost, in steps, as far as their code alone decides it.

A step is some 50 ns. The weights are measured, rounded up, and taken as if every keyword of a
schema applied to every value. What the code cannot know, the size of the value, is a factor: a
function costs so much, and so much more for each item or member of its value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import define, field

from .dialects import Schema

Charge = tuple[int, int]
"""Steps that a function takes, and those it takes for each item or member of its value."""

_CALL: Final = 12
"""A call of a function that counts, or that decides exactly what is not counted while it runs."""
_TRIAL: Final = 12
"""A branch that may fail: an exception made, raised and caught."""

_WEIGHTS: Final = {"format": 45, "pattern": 8}
_MAX_LEAF: Final = 200
"""Most steps of a function that its callers count for it."""

_MAX_MEMBERS: Final = 100
"""Most steps of all properties together that are taken as if every property were there. Beyond,
each member of the value counts as the dearest property."""

_LIGHT_STEPS: Final = 5
"""Steps for each byte of a value that need not be counted: those of a MiB are within the budget."""

ROOT: Final = ""
"""Stands among the names of definitions for the schema around them."""


def weigh(
    document: dict[str, Any],
    exact: Collection[str],
    shared: Collection[str],
    *,
    calls_root: bool,
) -> dict[str, Charge]:
    """Return the functions that have to be counted, by the names of their definitions.

    Not counted are those that are called once for a place in their caller, call no others and do
    not loop: their callers count for them. The root is counted if it is called again, or loops.

    Args:
        document: the private schema.
        exact: definitions that are decided by other code.
        shared: definitions that are asked more than once about one value.
        calls_root: whether the root is called from within.
    """
    functions = {
        name: schema for name, schema in document["definitions"].items() if name not in exact
    }
    called = dict.fromkeys(exact, 0)
    called.update((name, fixed) for name, fixed in _leaves(functions, exact) if name not in shared)
    code = Code(called)
    charges = {name: code.charge(schema) for name, schema in functions.items()}
    if calls_root or not is_light(document, code):
        charges[ROOT] = code.charge(document)
    return {name: charge for name, charge in charges.items() if name not in called}


def is_light(schema: dict[str, Any], code: Code) -> bool:
    """Return whether what `schema` does for each item need not be counted.

    It need not, where the schema applies to one part of a value at most and nothing beside it does:
    the more bytes an item has at least, the fewer items there are in a value.
    """
    item = schema.get("items")
    least = 2  # a digit and a comma
    if isinstance(item, dict) and item.get("type") in ("array", "object", "string"):
        least = 3
        if item["type"] == "object":
            least += sum(len(name) + len('"":0') for name in item.get("required", ()))
    return code.loops(schema) <= _LIGHT_STEPS * least


def _leaves(functions: Mapping[str, Schema], exact: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield the functions that call no others, do not loop and cost little, with what they cost."""
    for name, schema in functions.items():
        code = Code(dict.fromkeys(exact, 0))
        fixed, each = code.charge(schema)
        if not each and not code.calls and fixed <= _MAX_LEAF:
            yield name, fixed


@define(eq=False, repr=False)
class Code:
    """What generated code costs.

    Attributes:
        called: what functions cost that do not count for themselves.
        calls: the other functions that the code calls.
    """

    called: dict[str, int]
    calls: set[str] = field(factory=set)

    def charge(self, schema: Schema) -> Charge:
        """Return what the code of a function costs: at once, and for each item or member."""
        if isinstance(schema, bool):
            return 1, 0
        members = [self._all([one]) for one in schema.get("properties", {}).values()]
        fixed, each = self._fixed(schema) + 2 * len(members), self.loops(schema)
        if sum(members) <= _MAX_MEMBERS:
            return fixed + sum(members), each
        return fixed, each + max(members)

    def loops(self, schema: dict[str, Any]) -> int:
        """Return what the code costs that is run for each item or member."""
        each = self._loop(schema.get("items"), 2) + self._loop(schema.get("additionalItems"), 2)
        each += self._loop(schema.get("contains"), _TRIAL)
        each += self._loop(schema.get("propertyNames"), _TRIAL)
        for one in schema.get("patternProperties", {}).values():
            each += _WEIGHTS["pattern"] + self._all([one])
        others = schema.get("additionalProperties")
        return each + self._loop(others, 4 + len(schema.get("properties", ())) // 2)

    def _loop(self, schema: Any, weight: int) -> int:
        """Return what the code for `schema` costs, if it is one, and `weight`."""
        return weight + self._all([schema]) if isinstance(schema, dict) else 0

    def _all(self, schemas: Iterable[Schema], weight: int = 0) -> int:
        """Return what the code for `schemas` costs, and `weight` for each."""
        return sum(weight + sum(self.charge(schema)) for schema in schemas)

    def _fixed(self, schema: dict[str, Any]) -> int:
        """Return what the code costs that is run once."""
        if "$ref" in schema:
            name = schema["$ref"].removeprefix("#").removeprefix("/definitions/")
            if name not in self.called:
                self.calls.add(name)
            return _CALL + self.called.get(name, 0)
        weight = sum(_WEIGHTS.get(keyword, 1) for keyword in schema)
        weight += len(schema.get("required", ())) + 2 * len(schema.get("enum", ()))
        weight += self._all(schema.get("allOf", ()))
        weight += self._all((*schema.get("anyOf", ()), *schema.get("oneOf", ())), _TRIAL)
        weight += self._all((schema[one] for one in ("not", "if") if one in schema), _TRIAL)
        weight += self._all(schema[one] for one in ("then", "else") if one in schema)
        if isinstance(schema.get("items"), list):
            weight += self._all(schema["items"], 1)
        for one in schema.get("dependencies", {}).values():
            weight += len(one) if isinstance(one, list) else self._all([one], 1)
        return weight
