"""The cost of a server's schema, estimated before it is compiled.

A schema of a few kilobytes can take seconds and gigabytes to compile. What exceeds a limit here is
not compiled, and its values are not checked (CTOOL-19). Patterns are limited in number; the engine
bounds the size of each one (`foundation_rt.base.jsonschema.rust_validator`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from attrs import define, field

from ...base.jsonschema.dialects import DIALECTS, SHAPES_IN, SILENT
from ...base.jsonschema.references import target_of
from ...errors import RegistrationError

MAX_PARTS: Final = 2000
"""Most keywords, names, choices and alternatives of a schema: 0.1 ms and 12 kB each, compiled."""

MAX_PATTERNS: Final = 200

MAX_PATTERN_CHARACTERS: Final = 16 * 1024
"""Longest text of all patterns together: 2 kB a character, compiled."""

MAX_EXPANSION: Final = 2000
"""Most schemas that the engine goes through for all `unevaluated...` keywords together."""

_SHAPES: Final = {
    keyword: shape
    for dialect in reversed(DIALECTS)
    for keyword, shape in SHAPES_IN[dialect].items()
}
_FREE: Final = SILENT - {"definitions", "$defs"}
_MAPS: Final = ("map", "dependencies", "name lists")
_UNEVALUATED: Final = ("unevaluatedItems", "unevaluatedProperties")


def cost_problem(schema: Mapping[str, Any]) -> str | None:
    """Return why a schema is too expensive to be compiled; None if it is not.

    Raises:
        RegistrationError: a reference that `unevaluated...` depends on leads nowhere.
        RecursionError: the schema is nested too deeply.
    """
    parts, expanding = 0, []
    patterns: list[str] = []
    pending: list[Any] = [schema]
    while pending:
        one = pending.pop()
        if type(one) is not dict:
            continue
        if any(keyword in one for keyword in _UNEVALUATED):
            expanding.append(one)
        for keyword, value in one.items():
            if keyword in _FREE:
                continue
            parts += 1 + _members(keyword, value)
            if keyword == "pattern" and type(value) is str:
                patterns.append(value)
            elif keyword == "patternProperties" and type(value) is dict:
                patterns.extend(value)
            if parts > MAX_PARTS:
                return (
                    f"the schema has more than {MAX_PARTS} keywords, names, choices and"
                    " alternatives"
                )
            pending.extend(_inner(keyword, value))
    if len(patterns) > MAX_PATTERNS or sum(map(len, patterns)) > MAX_PATTERN_CHARACTERS:
        return (
            f"the schema has more than {MAX_PATTERNS} patterns, or more than"
            f" {MAX_PATTERN_CHARACTERS} characters of them"
        )
    expansion = _Expansion(schema)
    if sum(map(expansion.size, expanding)) > MAX_EXPANSION:
        return f"`unevaluated...` leads to more than {MAX_EXPANSION} schemas"
    return None


def _members(keyword: str, value: Any) -> int:
    """Return how many names, choices or alternatives the value of a keyword has."""
    if type(value) is list:
        return len(value)
    if type(value) is not dict or _SHAPES.get(keyword) not in _MAPS:
        return 0
    return len(value) + sum(len(names) for names in value.values() if type(names) is list)


def _inner(keyword: str, value: Any) -> list[Any]:
    """Return the schemas in the value of a keyword of any dialect."""
    shape = _SHAPES.get(keyword)
    if type(value) is dict:
        if shape in _MAPS:
            return list(value.values())
        return [value] if shape in ("schema", "schema or boolean", "items") else []
    return value if type(value) is list and shape in ("schemas", "items") else []


@define(eq=False)
class _Expansion:
    """The number of schemas that the engine visits for `unevaluated...` keywords.

    It follows every path, so that references to one schema multiply.
    """

    root: Mapping[str, Any]
    _sizes: dict[int, int] = field(factory=dict)
    _open: set[int] = field(factory=set)

    def size(self, schema: Any) -> int:
        """Return the number of schemas that apply to the same value as `schema`, along all paths.

        Raises:
            RegistrationError: a reference cannot be followed, or leads round in a circle.
        """
        if type(schema) is not dict:
            return 1
        known = self._sizes.get(id(schema))
        if known is None:
            if id(schema) in self._open:
                raise RegistrationError("`unevaluated...` leads round in a circle")
            self._open.add(id(schema))
            known = 1 + sum(map(self.size, self._on_same_value(schema)))
            self._open.discard(id(schema))
            self._sizes[id(schema)] = known
        return known

    def _on_same_value(self, schema: dict[str, Any]) -> Iterator[Any]:
        for keyword in ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"):
            if keyword in schema:
                yield from _inner(keyword, schema[keyword])
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            reference = schema.get(keyword)
            if type(reference) is str:
                yield target_of(self.root, "", reference, f"/{keyword}")
