"""The subschemas that can apply to one value, and those that can apply to it more than once.

A subschema that a value reaches by one path is checked once. One that `$ref` reaches by two paths,
both for the same value, would be checked twice; if it contains itself, twice at every level, which
is exponential in the depth of the value. These *shared* subschemas must be found from the schema
alone, when it is compiled (SCHEMA-27).

All subschemas that can apply to one value together are a state; each step into the value produces
another state. Patterns of names are assumed to match every name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from attrs import define, field, frozen

from ..shown import Shown
from .dialects import Schema

_MAX_VISITS: Final = 4_000
"""The most visits of subschemas; if they do not suffice, all subschemas count as shared."""

_SAME: Final = ("allOf", "anyOf", "oneOf")
_SAME_ONE: Final = ("not", "if", "then", "else")
_SAME_MAPS: Final = ("dependencies", "dependentSchemas")
_ANY_MEMBER: Final = ("additionalProperties", "unevaluatedProperties")
_ANY_ITEM: Final = ("items", "additionalItems", "contains", "unevaluatedItems")

Resolve = Callable[[dict[str, Any]], Iterable[Any]]
"""Returns the schemas that a schema refers to."""


def on_same_value(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield the subschemas that `schema` applies to its own value, except by references.

    Here and below, the keywords of all dialects are followed. One that is unknown in the schema's
    dialect may hold any value: callers skip values that are not dicts.
    """
    for keyword in _SAME:
        yield from _list(schema, keyword)
    for keyword in _SAME_ONE:
        yield schema.get(keyword)
    for keyword in _SAME_MAPS:
        yield from _map(schema, keyword).values()


def on_any_member(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield the subschemas of members of an object that `schema` does not name."""
    yield from _map(schema, "patternProperties").values()
    for keyword in _ANY_MEMBER:
        yield schema.get(keyword)


def on_leading_items(schema: dict[str, Any]) -> list[Any]:
    """Return the subschemas of the first items of an array, one for each."""
    return _list(schema, "items") or _list(schema, "prefixItems")


def on_any_item(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield the subschemas of all items of an array, or of those after the leading ones."""
    for keyword in _ANY_ITEM:
        yield schema.get(keyword)


def named_members(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the subschemas of members of an object by their names."""
    return _map(schema, "properties")


def _list(schema: dict[str, Any], keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def _map(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


@frozen(eq=False, repr=False)
class Reachability(Shown):
    """The result of a walk over all states.

    Attributes:
        shared: the `id` of every schema that one value reaches by several paths.
        widest: the largest weight of a state below the root.
    """

    shared: frozenset[int]
    widest: int


def walk_states(
    root: Schema, resolve: Resolve, weight: Callable[[Any], int]
) -> Reachability | None:
    """Walk over all states of a schema.

    Args:
        root: the whole schema.
        resolve: returns the schemas that a schema refers to.
        weight: returns the weight of a schema without its subschemas and references.

    Returns:
        The result; None if the walk takes too long, so that any schema may be shared, and any
        state may have any weight.
    """
    states = _States(resolve, weight)
    if not states.explore(root):
        return None
    return Reachability(frozenset(states.shared), states.widest)


@define(eq=False, repr=False)
class _States:
    """A walk over all states; `shared` and `widest` are its results."""

    resolve: Resolve
    weight: Callable[[Any], int]
    shared: set[int] = field(factory=set)
    widest: int = 0
    _visits: int = 0

    def explore(self, root: Schema) -> bool:
        """Walk from `root`; return whether the walk was completed."""
        seen = set[frozenset[int]]()
        waiting = list(self._steps(self._close([root])))
        while waiting:
            state = self._close(waiting.pop())
            key = frozenset(map(id, state))
            if key in seen:
                continue
            seen.add(key)
            if self._visits > _MAX_VISITS:
                return False
            self.widest = max(self.widest, sum(map(self.weight, state)))
            waiting += self._steps(state)
        return True

    def _close(self, parts: list[Any]) -> list[dict[str, Any]]:
        """Return all schemas that apply to one value together, each once."""
        closed: dict[int, dict[str, Any]] = {}
        waiting = list(parts)
        while waiting and self._visits <= _MAX_VISITS:
            schema = waiting.pop()
            if not isinstance(schema, dict):
                continue
            self._visits += 1
            if id(schema) in closed:
                self.shared.add(id(schema))
                continue
            closed[id(schema)] = schema
            waiting += self.resolve(schema)
            waiting += on_same_value(schema)
        return list(closed.values())

    def _steps(self, state: list[dict[str, Any]]) -> Iterator[list[Any]]:
        """Yield the schemas of each part of the value that has different ones."""
        any_member = [one for schema in state for one in on_any_member(schema)]
        members = [named_members(schema) for schema in state]
        for name in dict.fromkeys(name for each in members for name in each):
            self._visits += len(members)
            yield [*(each[name] for each in members if name in each), *any_member]
        any_item = [one for schema in state for one in on_any_item(schema)]
        leading = [on_leading_items(schema) for schema in state]
        for place in range(max(map(len, leading), default=0)):
            self._visits += len(leading)
            yield [*(each[place] for each in leading if place < len(each)), *any_item]
        yield any_member
        yield any_item
        yield [schema["propertyNames"] for schema in state if "propertyNames" in schema]
