"""An upper bound of the steps that the optional engine takes for a value (SCHEMA-27).

jsonschema-rs checks a shared subschema again on each path, holds the interpreter lock and cannot be
stopped. So values are bounded before the check: the steps are counted, in time linear in value and
schema, because counts are remembered. All alternatives count, as if each failed.

If a schema has no shared subschemas, the largest weight of a state (see `reachability`), times the
number of values within the value, is a bound that needs no counting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from attrs import define, field

from ..errors import RegistrationError
from .analysis import SchemaAnalysis
from .budget import PATTERN, TooComplex
from .equality import size
from .reachability import (
    named_members,
    on_any_item,
    on_any_member,
    on_leading_items,
    on_same_value,
    walk_states,
)
from .references import target_of

MAX_COUNTED: Final = 100_000
"""The most pairs of a schema and a value that are counted one by one: about 0.2 s."""

_ALTERNATIVES: Final = ("anyOf", "oneOf")
_UNEVALUATED: Final = ("unevaluatedItems", "unevaluatedProperties")
_FORMAT: Final = 25
"""The steps to check a format of SCHEMA-13, which is a Python function."""


def step_limit(analysis: SchemaAnalysis, max_steps: int) -> Callable[[Any], None] | None:
    """Return a function that raises for values for which the engine may exceed `max_steps`.

    The function raises `TooComplex`, and `RecursionError` for a value nested too deeply.

    Returns:
        The function; None if the steps do not depend on the size of the value.
    """
    references = _References(analysis.root).targets if analysis.is_modern else analysis.referred
    schemas = list(_all_schemas(analysis.root))
    reach = walk_states(analysis.root, references, _own_steps)
    counts = reach is None or bool(reach.shared)
    counts = counts or any(keyword in one for one in schemas for keyword in _UNEVALUATED)
    counts = counts or "regex" in analysis.formats
    if not counts and not any(map(_loops, schemas)):
        return None
    widest = 0 if reach is None else reach.widest
    once = sum(map(_own_steps, schemas))

    def limit(value: Any) -> None:
        if not counts and once + widest * size(value) <= max_steps:
            return
        if _StepCount(references).count(analysis.root, value)[1] > max_steps:
            raise TooComplex

    return limit


def _loops(schema: dict[str, Any]) -> bool:
    """Return whether the steps of a schema depend on the size of the value."""
    found = (*on_any_item(schema), *on_any_member(schema), schema.get("propertyNames"))
    return "$ref" in schema or any(map(_is_schema, found))


@define
class _References:
    """The possible targets of references of 2019-09 and 2020-12."""

    root: dict[str, Any]
    _resources: dict[str, dict[str, Any]] = field(factory=dict)
    _named: dict[str, list[Any]] = field(factory=dict)
    _recursive: list[Any] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        for schema in _all_schemas(self.root):
            if isinstance(schema.get("$id"), str):
                self._resources[schema["$id"].rpartition("/")[2].partition("#")[0]] = schema
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(schema.get(keyword), str):
                    self._named.setdefault(schema[keyword], []).append(schema)
            if schema.get("$recursiveAnchor") is True:
                self._recursive.append(schema)

    def targets(self, schema: dict[str, Any]) -> Iterator[Any]:
        """Yield the schemas to which `schema` may refer."""
        for keyword in ("$ref", "$dynamicRef"):
            if isinstance(schema.get(keyword), str):
                yield from self._find(schema[keyword])
        if "$recursiveRef" in schema:
            yield self.root
            yield from (one for one in self._recursive if one is not self.root)

    def _find(self, reference: str) -> Iterator[Any]:
        document, _, fragment = reference.partition("#")
        if fragment and not fragment.startswith("/"):
            yield from self._named.get(fragment, ())
            return
        named = self._resources.get(document.rpartition("/")[2])
        places = [named] if document and named else [self.root, *self._resources.values()]
        for place in {id(one): one for one in places}.values():
            try:
                yield target_of(place, "", f"#{fragment}", "")
            except RegistrationError:
                continue
            return


def _all_schemas(root: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a schema, since each may be a schema."""
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _own_steps(schema: dict[str, Any]) -> int:
    """Return the steps of a schema for one value, without its subschemas."""
    steps = 1 + len(schema) // 4 + len(named_members(schema)) // 4
    for keyword in ("enum", "required", "patternProperties"):
        if isinstance(schema.get(keyword), list | dict):
            steps += len(schema[keyword]) // 2
    if isinstance(schema.get("format"), str):
        steps += _FORMAT
    return steps


@define
class _StepCount:
    """Counts steps for one value: those to validate it, and those to find its errors."""

    references: Callable[[dict[str, Any]], Any]
    left: int = MAX_COUNTED
    _known: dict[tuple[int, int], tuple[int, int]] = field(factory=dict)

    def count(self, schema: Any, value: Any) -> tuple[int, int]:
        """Return the steps to validate `value` under `schema`, and to find its errors.

        Raises:
            TooComplex: there are too many pairs of schemas and values to count.
        """
        if not isinstance(schema, dict):
            return 0, 0
        self.left -= 1
        if self.left < 0:
            raise TooComplex
        memo_key = id(schema), id(value)  # both outlive the counting
        known = self._known.get(memo_key)
        if known is not None:
            return known
        steps = _own_steps(schema)
        if schema.get("format") == "regex" and isinstance(value, str):
            steps += PATTERN * len(value)
        errors = steps
        again = 1
        if any(keyword in schema for keyword in _UNEVALUATED) and isinstance(value, list | dict):
            again = 2 + len(value)  # evaluated again for each item or member
        for one in (*self.references(schema), *on_same_value(schema)):
            decide, explain = self.count(one, value)
            steps += decide * again
            errors += explain * again
        for keyword in _ALTERNATIVES:  # validated first, then explained
            for one in schema.get(keyword, ()):
                errors += self.count(one, value)[0]
        for one, part in _on_parts(schema, value):
            decide, explain = self.count(one, part)
            steps += decide
            errors += explain
        self._known[memo_key] = steps, errors
        return steps, errors


def _on_parts(schema: dict[str, Any], value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the subschemas for the parts of `value`, each with its part."""
    if isinstance(value, list):
        leading = on_leading_items(schema)
        yield from zip(leading, value, strict=False)
        for one in filter(_is_schema, on_any_item(schema)):
            for part in value:
                yield one, part
    elif isinstance(value, dict):
        named = named_members(schema)
        for name in named.keys() & value.keys():
            yield named[name], value[name]
        others = [one for one in on_any_member(schema) if _is_schema(one)]
        if "propertyNames" in schema:
            yield from ((schema["propertyNames"], name) for name in value)
        for one in others:
            for part in value.values():
                yield one, part


def _is_schema(one: Any) -> bool:
    return isinstance(one, dict)
