"""The ways through a schema: which of its parts one value can be held against, and how often.

A value is decided once by a part that is reached on one way. A part that `$ref` reaches on two
ways, both for the same value, would be decided twice; where such a part contains itself, twice at
every level, which is exponential in the depth of the value. So the two must be told apart from the
schema alone, when it is compiled (SCHEMA-27).

All that can apply to one value together is a state, and a step into the value leads from state to
state. Patterns of names are taken to match every name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from attrs import define, field, frozen

from .dialects import Schema

_MAX_VISITS: Final = 4_000
"""Most schemas looked at; where more would have to be, all of them are taken to be shared."""

_SAME: Final = ("allOf", "anyOf", "oneOf")
_SAME_ONE: Final = ("not", "if", "then", "else")
_SAME_MAPS: Final = ("dependencies", "dependentSchemas")
_ANY_MEMBER: Final = ("additionalProperties", "unevaluatedProperties")
_ANY_ITEM: Final = ("items", "additionalItems", "contains", "unevaluatedItems")

Resolve = Callable[[dict[str, Any]], Iterable[Any]]
"""Gives the schemas that a schema refers to."""


def on_same_value(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield what `schema` applies to the value it is applied to, without its references.

    Here and below, keywords of all dialects are followed. One that is unknown in the dialect of the
    schema may hold anything: what is no dict, is no schema to follow.
    """
    for keyword in _SAME:
        yield from _list(schema, keyword)
    for keyword in _SAME_ONE:
        yield schema.get(keyword)
    for keyword in _SAME_MAPS:
        yield from _map(schema, keyword).values()


def on_any_member(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield what applies to members of an object whose names `schema` does not state."""
    yield from _map(schema, "patternProperties").values()
    for keyword in _ANY_MEMBER:
        yield schema.get(keyword)


def on_leading_items(schema: dict[str, Any]) -> list[Any]:
    """Return what applies to the first items of an array, one for each."""
    return _list(schema, "items") or _list(schema, "prefixItems")


def on_any_item(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield what applies to items of an array wherever they stand, or behind the leading ones."""
    for keyword in _ANY_ITEM:
        yield schema.get(keyword)


def named_members(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what applies to members of an object by their names."""
    return _map(schema, "properties")


def _list(schema: dict[str, Any], keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def _map(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


@frozen(eq=False, repr=False)
class Ways:
    """What a walk over all states has found.

    Attributes:
        shared: the `id` of every schema that is reached on several ways for one value.
        widest: the largest weight of a state below the root: of all that one value can be held
            against.
    """

    shared: frozenset[int]
    widest: int


def find_ways(root: Schema, resolve: Resolve, weight: Callable[[Any], int]) -> Ways | None:
    """Walk over all states of a schema.

    Args:
        resolve: gives the schemas that a schema refers to.
        weight: what a schema, its parts and references not counted, adds to its state.

    Returns:
        None if the walk would take too long: any schema may be shared, any state any weight.
    """
    states = _States(resolve, weight)
    if not states.explore(root):
        return None
    return Ways(frozenset(states.shared), states.widest)


@define(eq=False, repr=False)
class _States:
    """A walk over all states; `shared` and `widest` are what it finds."""

    resolve: Resolve
    weight: Callable[[Any], int]
    shared: set[int] = field(factory=set)
    widest: int = 0
    _visits: int = 0

    def explore(self, root: Schema) -> bool:
        """Walk from `root`; return whether the walk came to its end."""
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
        """Return all that applies to one value together, each schema once."""
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
        """Yield what applies to the parts of the value, for each part that differs in that."""
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
